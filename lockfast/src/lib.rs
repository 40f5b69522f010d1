#![doc = include_str!("lib.md")]

pub mod blocking;
mod claim;
mod client;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod connect;
#[cfg(feature = "engine")]
#[doc(hidden)]
pub mod engine;
#[cfg(not(feature = "engine"))]
mod engine;
mod error;
mod event;
mod name;
#[cfg(feature = "planted-faults")]
#[doc(hidden)]
pub mod planted;
#[cfg(not(feature = "planted-faults"))]
mod planted;
mod primitives;
pub mod store;
pub mod stores;
pub mod table;

pub use claim::{Holder, Mode, Note, Token};
pub use client::{Events, Guard, Percentiles, Retry, Stats};
pub use clock::{Clock, ManualClock};
pub use error::{Error, LostWhy, Result};
pub use event::{Event, EventKind, TraceId};
pub use primitives::{
    Builder, Cron, Election, Leader, Leadership, Locks, Multi, Mutex, Once, OnceGuard, OnceState, Outcome, RwLock,
    Semaphore,
};
pub use store::{Counters, Entry, Guarantees, Resource};
pub use stores::Memory;
#[cfg(feature = "redis")]
pub use stores::{Redis, RedisCheckup, RedisOptions};
#[cfg(all(feature = "sqlite", target_os = "linux"))]
pub use stores::{Sqlite, SqliteOptions};
