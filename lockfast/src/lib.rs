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

pub use claim::{Claim, ClaimHash, ClaimId, ClientId, Demand, Demands, Holder, Mode, Note, Ticket, Tickets, Token};
pub use client::{Events, Guard, Percentiles, Retry, Stats};
pub use clock::{Clock, ManualClock, Moment, Timer};
pub use error::{Error, LostWhy, Result};
pub use event::{Event, Happening, TraceId};
pub use name::Name;
pub use primitives::{
    Begun, Builder, Cron, Doing, Election, Leader, Leadership, Locks, Multi, Mutex, Once, Outcome, RwLock, Semaphore,
};
pub use store::{Counters, Guarantees, Resource, Seat, Store};
pub use stores::Memory;
#[cfg(feature = "redis")]
pub use stores::{Redis, RedisCheckup, RedisOptions};
#[cfg(all(feature = "sqlite", target_os = "linux"))]
pub use stores::{Sqlite, SqliteOptions};
