//! The conformance suite over a real Redis server in worse conditions: as a user with few rights, and through a bad network.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in its fixture too")]

mod as_user;
mod bad_network;
#[allow(dead_code, reason = "other test binaries use the rest of it")]
#[path = "../fixtures/redis.rs"]
mod fixture;
mod minimal;
