//! The primitives that users call: mutex, reader-writer lock, semaphore and so on. Each is a thin layer that turns options and names
//! into a request; none of them knows a store.

mod builder;
mod changes;
mod cron;
mod election;
mod locks;
mod multi;
mod mutex;
mod once;
mod requester;
mod rwlock;
mod semaphore;
mod tokens;

pub use builder::Builder;
pub use cron::Cron;
pub use election::{Election, Leader, Leadership};
pub use locks::Locks;
pub use multi::Multi;
pub use mutex::Mutex;
pub use once::{Once, OnceGuard, OnceState, Outcome};
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
