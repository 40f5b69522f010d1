//! The faces that users meet: thin, without any knowledge of stores.

mod ask;
mod builder;
mod changes;
mod cron;
mod election;
mod locks;
mod multi;
mod mutex;
mod once;
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
