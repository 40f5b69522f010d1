//! Exclusive access to several names at once.

use std::time::Duration;

use crate::claim::Demands;
use crate::client::Guard;
use crate::error::Result;

use super::requester::{Requester, detachable, options, run_and_release};

/// Exclusive access to several names, all or nothing, in one step. Claims on several names cannot deadlock, in whatever order the
/// names are written. The price: while a claim on `a` and `b` waits for `b`, the claims behind it wait for `a` too.
///
/// ```
/// # use lockfast::Locks;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// let transfer = locks.multi(["account:1", "account:2"]).lock().await?;
/// assert!(locks.mutex("account:2").is_locked().await?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Multi {
    pub(super) requester: Requester,
    pub(super) demands: Result<Demands>,
}

options!(Multi);
detachable!(Multi);

impl Multi {
    /// Waits in the queues of all names until it holds them all.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future leaves all queues. If the locks had just been granted, they pass to the next waiters.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let both = locks.multi(["b", "a"]).lock().await?;
    /// assert_eq!(both.names().collect::<Vec<_>>(), ["a", "b"]);
    /// # Ok(()) }
    /// ```
    pub async fn lock(&self) -> Result<Guard> {
        let demands = self.demands.clone()?;
        self.requester.acquire(demands, None).await
    }

    /// As [`lock`](Self::lock), for at most `patience`.
    ///
    /// # Cancel safety
    ///
    /// As for [`lock`](Self::lock).
    pub async fn lock_within(&self, patience: Duration) -> Result<Guard> {
        let demands = self.demands.clone()?;
        self.requester.acquire(demands, Some(patience)).await
    }

    /// One attempt: `None` if another claim holds one of the names or waits for it. Leaves no entry in the queues.
    ///
    /// # Cancel safety
    ///
    /// As for [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        let demands = self.demands.clone()?;
        self.requester.try_acquire(demands).await
    }

    /// Runs `work` while holding them all, and stops it (drops its future) when they are lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future drops the work and releases the locks.
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
        run_and_release(self.lock().await?, work).await
    }
}
