//! The commands. Each file has a command's arguments and its implementation, `run(args, settings)`, which returns the exit
//! code.

use std::time::Duration;

pub(crate) mod acquire;
pub(crate) mod break_;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod elect;
pub(crate) mod inspect;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod run;
pub(crate) mod stats;
pub(crate) mod status;
pub(crate) mod token;
pub(crate) mod watch;

/// How long the client's shutdown may take, once the result of the command is known.
pub(crate) const SHUTDOWN_WITHIN: Duration = Duration::from_secs(2);
