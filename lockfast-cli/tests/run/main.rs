//! `lockfast run` and `lockfast elect` as processes: every exit code, every signal, every way to lose a lock.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod at_terminal;
mod contention;
mod disks;
mod elect;
mod ends;
mod exits;
#[path = "../fixture/mod.rs"]
mod fixture;
mod namespaces;
mod processes;
mod redis;
mod signals;
mod silent_store;
mod unread;
