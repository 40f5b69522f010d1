//! The same locks for code without an async runtime: every method blocks its thread until it has an answer.
//!
//! Each type wraps the one of the same name at the crate's root, and a [`Guard`] is the same guard. Waiting needs no runtime
//! because the client's keeper does it on a thread of its own. Inside asynchronous code use the types at the crate's root
//! instead: a call from there ends too, but until then it blocks every task of its thread.
//!
//! ```
//! use lockfast::blocking::Locks;
//!
//! let locks = Locks::connect("memory:")?;
//! let guard = locks.mutex("account:123").lock()?;
//! assert!(guard.fence()? > 0);
//! guard.release()?;
//! # Ok::<(), lockfast::Error>(())
//! ```

pub(crate) mod wait;
mod wrappers;

use std::ops::Deref;
use std::time::Duration;

use crate::claim::Token;
use crate::client::Stats;
use crate::error::Result;
use crate::primitives;
use crate::store::{Counters, Resource};

use wait::block_on;
pub use wrappers::{Cron, Election, Leadership, Multi, Mutex, Once, RwLock, Semaphore};

/// See [`crate::Locks`].
///
/// ```
/// # use lockfast::blocking::Locks;
/// let locks = Locks::from(lockfast::Locks::in_memory());
/// let guard = locks.mutex("account:123").try_lock()?.expect("it is free");
/// # Ok::<(), lockfast::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Locks(primitives::Locks);

impl From<primitives::Locks> for Locks {
    fn from(locks: primitives::Locks) -> Self {
        Self(locks)
    }
}

impl Locks {
    /// See [`crate::Locks::connect`].
    pub fn connect(url: &str) -> Result<Self> {
        block_on(primitives::Locks::connect(url)).map(Self)
    }

    /// See [`crate::Locks::from_env`].
    pub fn from_env() -> Result<Self> {
        block_on(primitives::Locks::from_env()).map(Self)
    }

    /// See [`crate::Locks::mutex`].
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        self.0.mutex(name).into()
    }

    /// See [`crate::Locks::rwlock`].
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        self.0.rwlock(name).into()
    }

    /// See [`crate::Locks::semaphore`].
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        self.0.semaphore(name, permits).into()
    }

    /// See [`crate::Locks::multi`].
    pub fn multi<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Multi {
        self.0.multi(names).into()
    }

    /// See [`crate::Locks::election`].
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        self.0.election(name).into()
    }

    /// See [`crate::Locks::once`].
    pub fn once(&self, name: impl AsRef<str>) -> Once {
        self.0.once(name).into()
    }

    /// See [`crate::Locks::cron`].
    pub fn cron(&self, name: impl Into<String>) -> Cron {
        self.0.cron(name).into()
    }

    /// See [`crate::Locks::inspect`].
    pub fn inspect(&self, beginning: &str) -> Result<Vec<Resource>> {
        block_on(self.0.inspect(beginning))
    }

    /// See [`crate::Locks::stats`].
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// See [`crate::Locks::fleet_stats`].
    pub fn fleet_stats(&self) -> Result<Counters> {
        block_on(self.0.fleet_stats())
    }

    /// See [`crate::Locks::break_lock`].
    pub fn break_lock(&self, name: impl AsRef<str>, fence: u64) -> Result<bool> {
        block_on(self.0.break_lock(name, fence))
    }

    /// See [`crate::Locks::renew_token`].
    pub fn renew_token(&self, token: &Token, ttl: Duration) -> Result<()> {
        block_on(self.0.renew_token(token, ttl))
    }

    /// See [`crate::Locks::release_token`].
    pub fn release_token(&self, token: &Token) -> Result<()> {
        block_on(self.0.release_token(token))
    }

    /// See [`crate::Locks::shutdown`].
    pub fn shutdown(&self, timeout: Duration) -> Result<()> {
        block_on(self.0.shutdown(timeout))
    }
}

/// The guard of a held lock; everything that does not wait is as on [`crate::Guard`].
///
/// ```
/// # use lockfast::blocking::Locks;
/// # use std::time::Duration;
/// # let locks = Locks::from(lockfast::Locks::in_memory());
/// let guard = locks.mutex("account:123").lock()?;
/// guard.check()?;
/// guard.extend(Duration::from_secs(60))?;
/// guard.release()?;
/// # Ok::<(), lockfast::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct Guard(crate::client::Guard);

impl From<crate::client::Guard> for Guard {
    fn from(guard: crate::client::Guard) -> Self {
        Self(guard)
    }
}

impl Guard {
    /// See [`crate::Guard::extend`].
    pub fn extend(&self, span: Duration) -> Result<()> {
        block_on(self.0.extend(span))
    }

    /// See [`crate::Guard::into_token`].
    pub fn into_token(self) -> Result<Token> {
        block_on(self.0.into_token())
    }

    /// See [`crate::Guard::detach`].
    pub fn detach(self) -> Result<()> {
        block_on(self.0.detach())
    }

    /// See [`crate::Guard::release`].
    pub fn release(self) -> Result<()> {
        block_on(self.0.release())
    }
}

impl Deref for Guard {
    type Target = crate::client::Guard;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
