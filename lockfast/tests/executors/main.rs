//! Every store on other executors than a tokio runtime with all its drivers, and on none. Time is real, as in users' programs: a
//! lock must not depend on the timer, the driver or the clock of the runtime that its caller runs on.

mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;
