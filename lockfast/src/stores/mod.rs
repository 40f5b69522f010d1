//! The stores: where queues are kept. Each passes the suite of the cargo feature `conformance`.

mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
mod sqlite;
mod subscribers;

pub use memory::Memory;
#[cfg(feature = "redis")]
pub use redis::{Checkup as RedisCheckup, Redis, RedisOptions};
#[cfg(all(feature = "sqlite", target_os = "linux"))]
pub use sqlite::{Sqlite, SqliteOptions};
