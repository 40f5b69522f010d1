//! The commands beside `run`, as real processes on a real file of locks.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in what its tests share too")]

mod breaking;
mod doctor;
mod looking;
mod settings;
mod stage;
mod teaching;
mod tokens;
mod watching;
