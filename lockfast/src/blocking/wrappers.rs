//! The primitives, each a wrapper around the one of the same name at the crate's root.

use std::ops::Deref;
use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::primitives::{self, Outcome};
use crate::store::Resource;

use super::Guard;
use super::wait::block_on;

fn run_and_release<T>(guard: Guard, work: impl FnOnce(&Guard) -> T) -> Result<T> {
    let value = work(&guard);
    match guard.release() {
        Err(error @ Error::Lost { .. }) => Err(error),
        // The work was done under the lock. If the store does not answer now, the keeper repeats the release.
        _ => Ok(value),
    }
}

/// A wrapper around a primitive; the options are those of the primitive.
macro_rules! wrapper {
    ($(#[$doc:meta])* $wrapper:ident { $($methods:item)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $wrapper(primitives::$wrapper);

        impl From<primitives::$wrapper> for $wrapper {
            fn from(wrapped: primitives::$wrapper) -> Self {
                Self(wrapped)
            }
        }

        impl $wrapper {
            /// Sets options, like `.options(|it| it.ttl(span))`.
            pub fn options(self, set: impl FnOnce(primitives::$wrapper) -> primitives::$wrapper) -> Self {
                Self(set(self.0))
            }

            $($methods)*
        }
    };
}

wrapper! {
    /// See [`crate::Mutex`].
    ///
    /// ```
    /// # use lockfast::blocking::Locks;
    /// # use std::time::Duration;
    /// # let locks = Locks::from(lockfast::Locks::in_memory());
    /// let mutex = locks.mutex("account:123").options(|mutex| mutex.ttl(Duration::from_secs(5)));
    /// let total = mutex.with(|held| held.check().map(|()| 42))??;
    /// assert_eq!(total, 42);
    /// # Ok::<(), lockfast::Error>(())
    /// ```
    Mutex {
        /// See [`crate::Mutex::lock`].
        pub fn lock(&self) -> Result<Guard> {
            block_on(self.0.lock()).map(Guard::from)
        }

        /// See [`crate::Mutex::lock_within`].
        pub fn lock_within(&self, patience: Duration) -> Result<Guard> {
            block_on(self.0.lock_within(patience)).map(Guard::from)
        }

        /// See [`crate::Mutex::try_lock`].
        pub fn try_lock(&self) -> Result<Option<Guard>> {
            Ok(block_on(self.0.try_lock())?.map(Guard::from))
        }

        /// See [`crate::Mutex::with`]. Blocking work cannot be stopped: it has to call [`check`](crate::Guard::check) itself. A
        /// loss is returned as an error afterwards.
        pub fn with<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T> {
            run_and_release(self.lock()?, work)
        }

        /// See [`crate::Mutex::is_locked`].
        pub fn is_locked(&self) -> Result<bool> {
            block_on(self.0.is_locked())
        }

        /// See [`crate::Mutex::info`].
        pub fn info(&self) -> Result<Option<Resource>> {
            block_on(self.0.info())
        }
    }
}

wrapper! {
    /// See [`crate::RwLock`].
    ///
    /// ```
    /// # use lockfast::blocking::Locks;
    /// # let locks = Locks::from(lockfast::Locks::in_memory());
    /// let (one, two) = (locks.rwlock("catalog").read()?, locks.rwlock("catalog").read()?);
    /// assert!(locks.rwlock("catalog").try_write()?.is_none());
    /// # Ok::<(), lockfast::Error>(())
    /// ```
    RwLock {
        /// See [`crate::RwLock::read`].
        pub fn read(&self) -> Result<Guard> {
            block_on(self.0.read()).map(Guard::from)
        }

        /// See [`crate::RwLock::write`].
        pub fn write(&self) -> Result<Guard> {
            block_on(self.0.write()).map(Guard::from)
        }

        /// See [`crate::RwLock::read_within`].
        pub fn read_within(&self, patience: Duration) -> Result<Guard> {
            block_on(self.0.read_within(patience)).map(Guard::from)
        }

        /// See [`crate::RwLock::write_within`].
        pub fn write_within(&self, patience: Duration) -> Result<Guard> {
            block_on(self.0.write_within(patience)).map(Guard::from)
        }

        /// See [`crate::RwLock::try_read`].
        pub fn try_read(&self) -> Result<Option<Guard>> {
            Ok(block_on(self.0.try_read())?.map(Guard::from))
        }

        /// See [`crate::RwLock::try_write`].
        pub fn try_write(&self) -> Result<Option<Guard>> {
            Ok(block_on(self.0.try_write())?.map(Guard::from))
        }
    }
}

wrapper! {
    /// See [`crate::Semaphore`].
    ///
    /// ```
    /// # use lockfast::blocking::Locks;
    /// # let locks = Locks::from(lockfast::Locks::in_memory());
    /// let permit = locks.semaphore("external-api", 5).acquire()?;
    /// # Ok::<(), lockfast::Error>(())
    /// ```
    Semaphore {
        /// See [`crate::Semaphore::acquire_many`].
        pub fn acquire_many(&self, permits: u32) -> Result<Guard> {
            block_on(self.0.acquire_many(permits)).map(Guard::from)
        }

        /// See [`crate::Semaphore::acquire`].
        pub fn acquire(&self) -> Result<Guard> {
            self.acquire_many(1)
        }

        /// See [`crate::Semaphore::acquire_many_within`].
        pub fn acquire_many_within(&self, permits: u32, patience: Duration) -> Result<Guard> {
            block_on(self.0.acquire_many_within(permits, patience)).map(Guard::from)
        }

        /// See [`crate::Semaphore::acquire_within`].
        pub fn acquire_within(&self, patience: Duration) -> Result<Guard> {
            self.acquire_many_within(1, patience)
        }

        /// See [`crate::Semaphore::try_acquire_many`].
        pub fn try_acquire_many(&self, permits: u32) -> Result<Option<Guard>> {
            Ok(block_on(self.0.try_acquire_many(permits))?.map(Guard::from))
        }

        /// See [`crate::Semaphore::try_acquire`].
        pub fn try_acquire(&self) -> Result<Option<Guard>> {
            self.try_acquire_many(1)
        }
    }
}

wrapper! {
    /// See [`crate::Multi`].
    ///
    /// ```
    /// # use lockfast::blocking::Locks;
    /// # let locks = Locks::from(lockfast::Locks::in_memory());
    /// let both = locks.multi(["account:1", "account:2"]).lock()?;
    /// # Ok::<(), lockfast::Error>(())
    /// ```
    Multi {
        /// See [`crate::Multi::lock`].
        pub fn lock(&self) -> Result<Guard> {
            block_on(self.0.lock()).map(Guard::from)
        }

        /// See [`crate::Multi::lock_within`].
        pub fn lock_within(&self, patience: Duration) -> Result<Guard> {
            block_on(self.0.lock_within(patience)).map(Guard::from)
        }

        /// See [`crate::Multi::try_lock`].
        pub fn try_lock(&self) -> Result<Option<Guard>> {
            Ok(block_on(self.0.try_lock())?.map(Guard::from))
        }

        /// See [`crate::Multi::with`], and [`Mutex::with`] for what differs.
        pub fn with<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T> {
            run_and_release(self.lock()?, work)
        }
    }
}

wrapper! {
    /// See [`crate::Once`].
    ///
    /// ```
    /// # use lockfast::{Error, Outcome, blocking::Locks};
    /// # let locks = Locks::from(lockfast::Locks::in_memory());
    /// let done = locks.once("webhook:42").run(|_| Ok::<_, Error>("paid"))?;
    /// assert_eq!(done, Outcome::Ran("paid".into()));
    /// # Ok::<(), lockfast::Error>(())
    /// ```
    Once {
        /// See [`crate::Once::run`]. Blocking work cannot be stopped. If the lock was lost meanwhile, nothing is remembered.
        pub fn run<V, E>(&self, work: impl FnOnce(&crate::client::Guard) -> Result<V, E>) -> Result<Outcome<Bytes>, E>
        where
            V: Into<Bytes>,
            E: From<Error>,
        {
            block_on(self.0.run(async |guard: &crate::client::Guard| work(guard)))
        }

        /// See [`crate::Once::try_run`].
        pub fn try_run<V, E>(&self, work: impl FnOnce(&crate::client::Guard) -> Result<V, E>) -> Result<Outcome<Bytes>, E>
        where
            V: Into<Bytes>,
            E: From<Error>,
        {
            block_on(self.0.try_run(async |guard: &crate::client::Guard| work(guard)))
        }

        /// See [`crate::Once::result`].
        pub fn result(&self) -> Result<Option<Bytes>> {
            block_on(self.0.result())
        }
    }
}

wrapper! {
    /// See [`crate::Cron`].
    ///
    /// ```
    /// # use lockfast::{Error, blocking::Locks};
    /// # use std::time::Duration;
    /// # let locks = Locks::from(lockfast::Locks::in_memory());
    /// let tidy = locks.cron("tidy").options(|cron| cron.at_least(Duration::from_secs(30)));
    /// assert_eq!(tidy.run(|_| Ok::<_, Error>("done"))?, Some("done"));
    /// assert_eq!(tidy.run(|_| Ok::<_, Error>("done"))?, None);
    /// # Ok::<(), lockfast::Error>(())
    /// ```
    Cron {
        /// See [`crate::Cron::run`].
        pub fn run<T, E: From<Error>>(
            &self,
            work: impl FnOnce(&crate::client::Guard) -> Result<T, E>,
        ) -> Result<Option<T>, E> {
            block_on(self.0.run(async |guard: &crate::client::Guard| work(guard)))
        }

        /// See [`crate::Cron::run_for`].
        pub fn run_for<E: From<Error>>(
            &self,
            slot: impl AsRef<str>,
            work: impl FnOnce(&crate::client::Guard) -> Result<(), E>,
        ) -> Result<Outcome<()>, E> {
            block_on(self.0.run_for(slot, async |guard: &crate::client::Guard| work(guard)))
        }
    }
}

wrapper! {
    /// See [`crate::Election`].
    ///
    /// ```
    /// # use lockfast::blocking::Locks;
    /// # let locks = Locks::from(lockfast::Locks::in_memory());
    /// let leadership = locks.election("scheduler").campaign()?;
    /// assert!(locks.election("scheduler").leader()?.is_some());
    /// leadership.step_down()?;
    /// # Ok::<(), lockfast::Error>(())
    /// ```
    Election {
        /// See [`crate::Election::campaign`].
        pub fn campaign(&self) -> Result<Leadership> {
            block_on(self.0.campaign()).map(Leadership)
        }

        /// See [`crate::Election::leader`].
        pub fn leader(&self) -> Result<Option<primitives::Leader>> {
            block_on(self.0.leader())
        }
    }
}

/// See [`crate::Leadership`]; everything that does not wait is as on [`crate::Guard`].
///
/// ```
/// # use lockfast::blocking::Locks;
/// # let locks = Locks::from(lockfast::Locks::in_memory());
/// let leadership = locks.election("scheduler").campaign()?;
/// leadership.check()?;
/// leadership.step_down()?;
/// # Ok::<(), lockfast::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "leadership ends as soon as this is dropped"]
pub struct Leadership(primitives::Leadership);

impl Leadership {
    /// See [`crate::Guard::extend`].
    pub fn extend(&self, span: Duration) -> Result<()> {
        block_on(self.0.extend(span))
    }

    /// See [`crate::Leadership::step_down`].
    pub fn step_down(self) -> Result<()> {
        block_on(self.0.step_down())
    }
}

impl Deref for Leadership {
    type Target = crate::client::Guard;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
