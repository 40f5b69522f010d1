//! Locks in Redis when things go wrong: real servers that forget, stall, refuse, fill up and come back; keys that somebody
//! else touches; clients that die. What is lost is reported, what was promised is kept, and the error says what to do.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in what its tests share too")]

mod connecting;
mod connections;
mod crowded_listing;
mod deaths;
mod expiry;
mod failures;
mod forgetting;
mod full;
mod handoff;
mod idle;
mod leftovers;
mod listing;
mod meddling;
mod minimal;
mod names;
mod paths;
mod patience;
mod refusals;
mod rejoining;
mod replicas;
mod rights;
mod settings;
mod silence;
mod stage;
mod storms;
mod tls;
mod unpolled;
