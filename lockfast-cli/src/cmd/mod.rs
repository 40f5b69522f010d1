//! The commands. Each file has a command's arguments and what it does: `run(args, settings)` says how the program ends.

pub(crate) mod completions;
pub(crate) mod elect;
pub(crate) mod man;
pub(crate) mod run;
