//! The commands. Each file has a command's arguments and its implementation, `run(args, settings)`, which returns the exit
//! code.

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
