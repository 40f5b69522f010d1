//! The protocol between clients and store as a small model, for a checker that visits every state it can reach.
//!
//! The model has the rules of a queue ([`table`]), a client's handling of answers and pushes ([`client`]), a network that
//! delays, loses and repeats messages, processes that stop and die, and time in ticks ([`world`]). The laws of every state are
//! in [`laws`]; the worlds that are searched are in [`setups`]. Each rule that keeps the laws can be switched off ([`rules`]),
//! and the tests show that the search then finds a broken law.
//!
//! Left out: sealing, lingering, breaking, a store that loses its data, more than one request of a process in the queue at once.
//! Assumed: a call runs within one lease of being sent or never, and a release runs within one lease.
//!
//! The model has no clock, no task and no real store. Its table is tested against `lockfast::table::Table`; its clients follow
//! `lockfast/src/engine/` by hand. In all files, `c` is the index of a client.

pub mod client;
pub mod laws;
pub mod messages;
pub mod notes;
pub mod rules;
pub mod search;
pub mod setups;
pub mod table;
pub mod world;
