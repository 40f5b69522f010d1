//! Distributed locks.
mod claim;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod name;
pub mod store;
pub mod stores;
pub mod table;
pub use claim::*;
pub use clock::{Clock, ManualClock, Moment};
pub use error::{Error, LostWhy, Result};
pub use name::Name;
pub use stores::Memory;
