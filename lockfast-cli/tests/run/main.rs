//! `lockfast run` and `lockfast elect` as processes: every exit code, every signal, every way to lose a lock.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod at_terminal;
mod disks;
mod elect;
mod ends;
mod exits;
mod full;
mod namespaces;
mod redis;
mod signals;
mod silence;
mod stage;
mod together;
mod unread;
