//! The protocol between clients and store as a small model, for a checker that visits every state it can reach.
//!
//! Here are the rules of a line ([`table`]), what a client makes of answers and pushes ([`client`]), a network that is
//! late, forgets and repeats, processes that stop and die, and time in ticks ([`world`]). What must be true in every state
//! is in [`laws`]; which worlds are searched is in [`setups`]. Each rule that keeps the laws can be switched off
//! ([`rules`]), and the tests show that the search then finds what goes wrong.
//!
//! Left out: sealing, lingering, breaking, a store that loses its data, more than one party of a process in line at once.
//! Assumed: a request runs within one lease of being sent or never, and a release is heard within one lease.
//!
//! The model speaks of no clock, no task and no real store. That its table is not a fantasy is tested against
//! `lockfast::table::Table`; its clients follow `lockfast/src/client/` by hand.

pub mod client;
pub mod laws;
pub mod notes;
pub mod rules;
pub mod search;
pub mod setups;
pub mod table;
pub mod words;
pub mod world;
