//! The suite over a real Redis server in worse conditions: as a user with few rights, and through a bad network.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in what its tests share too")]

mod as_user;
mod minimal;
#[allow(dead_code, reason = "the other tests use all of it")]
mod stage;
mod weather;
