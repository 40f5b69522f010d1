//! The commands beside `run`, as real processes on a real file of locks, and on a real Redis server.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in shared code too")]

mod breaking;
mod doctor;
#[path = "../fixture/mod.rs"]
mod fixture;
mod help;
mod listing;
mod processes;
mod recording;
mod redis;
mod redis_doctor;
mod settings;
mod terminal;
mod tokens;
mod unread;
mod watching;
