//! A semaphore: a number of permits for one name.

use std::time::Duration;

use crate::claim::{Demand, Demands};
use crate::client::Guard;
use crate::error::Result;
use crate::name::Name;
use crate::store::Resource;

use super::requester::{Requester, detachable, options};

/// A number of permits, shared by all processes that use the same store. All of them have to name the same number: a request with
/// another number is refused while the semaphore is in use; an unused semaphore adopts the new number.
///
/// ```
/// # use lockfast::Locks;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// let api = locks.semaphore("external-api", 2);
/// let (one, two) = (api.acquire().await?, api.acquire().await?);
/// assert!(api.try_acquire().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    pub(super) requester: Requester,
    pub(super) name: Result<Name>,
    pub(super) permits: u32,
}

options!(Semaphore);
detachable!(Semaphore);

impl Semaphore {
    /// Waits in the queue for one permit.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future leaves the queue. If the permit had just been granted, it passes to the next waiter.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let permit = locks.semaphore("external-api", 5).acquire().await?;
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self) -> Result<Guard> {
        self.acquire_many(1).await
    }

    /// As [`acquire`](Self::acquire), for at most `patience`.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, patience: Duration) -> Result<Guard> {
        self.acquire_many_within(1, patience).await
    }

    /// One attempt: `None` if no permit is free, or a claim waits for one. Leaves no entry in the queue.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.try_acquire_many(1).await
    }

    /// Waits in the queue for several permits at once.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let api = locks.semaphore("external-api", 5);
    /// let four = api.acquire_many(4).await?;
    /// assert!(api.try_acquire_many(2).await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn acquire_many(&self, permits: u32) -> Result<Guard> {
        let demands = self.demands(permits)?;
        self.requester.acquire(demands, None).await
    }

    /// As [`acquire_many`](Self::acquire_many), for at most `patience`.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    pub async fn acquire_many_within(&self, permits: u32, patience: Duration) -> Result<Guard> {
        let demands = self.demands(permits)?;
        self.requester.acquire(demands, Some(patience)).await
    }

    /// One attempt for several permits.
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<Guard>> {
        let demands = self.demands(permits)?;
        self.requester.try_acquire(demands).await
    }

    /// Its queue, with holders and waiters; `None` if it is empty.
    pub async fn info(&self) -> Result<Option<Resource>> {
        self.requester.inspect(&self.demands(1)).await
    }

    fn demands(&self, weight: u32) -> Result<Demands> {
        Ok(Demand::permits(self.name.clone()?, weight, self.permits)?.into())
    }
}
