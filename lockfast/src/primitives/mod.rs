//! The faces that users meet: thin, without any knowledge of stores.

mod ask;
mod builder;
mod locks;
mod multi;
mod mutex;
mod rwlock;
mod semaphore;

pub use builder::Builder;
pub use locks::Locks;
pub use multi::Multi;
pub use mutex::Mutex;
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
