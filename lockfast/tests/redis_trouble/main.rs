//! Locks in Redis under failures: real servers that forget, stall, refuse, fill up and come back; keys that another program
//! changes; clients that die. A lost lock is reported, every guarantee is kept, and each error says what to do.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in its fixture too")]

mod connecting;
mod connections;
mod deaths;
mod expiry;
mod failures;
mod faulty_proxy;
mod fixture;
mod forgetting;
mod full;
mod handoff;
mod idle;
mod leftovers;
mod listing;
mod long_listing;
mod meddling;
mod minimal;
mod names;
mod patience;
mod proxy;
mod refusals;
mod rejoining;
mod replicas;
mod rights;
mod settings;
mod silence;
mod storms;
mod tls;
mod unpolled;
