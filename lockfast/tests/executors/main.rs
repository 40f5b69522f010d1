//! Every store on other executors than a tokio runtime with all its drivers, and on none. Time is real, as in users' programs:
//! nothing that a lock needs may come from the timer, the driver or the clock of the runtime that asks for it.

mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;
