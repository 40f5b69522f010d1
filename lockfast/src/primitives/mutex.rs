//! Exclusive access to one name.

use std::time::Duration;

use crate::claim::Demands;
use crate::client::Guard;
use crate::error::Result;
use crate::store::Resource;

use super::requester::{Requester, detachable, options, run_and_release};

/// Exclusive access to one name, across all processes that use the same store. The same as the write half of a
/// [`RwLock`](crate::RwLock) with that name.
///
/// ```
/// # use lockfast::Locks;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// let guard = locks.mutex("account:123").lock().await?;
/// // .. no other process has account 123 ..
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Mutex {
    pub(super) requester: Requester,
    pub(super) demands: Result<Demands>,
}

options!(Mutex);
detachable!(Mutex);

impl Mutex {
    /// Waits in the queue until it holds, first come, first served.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future leaves the queue. If the lock had just been granted, it passes to the next waiter.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let guard = locks.mutex("account:123").lock().await?;
    /// assert!(guard.fence()? > 0);
    /// # Ok(()) }
    /// ```
    pub async fn lock(&self) -> Result<Guard> {
        let demands = self.demands.clone()?;
        self.requester.acquire(demands, None).await
    }

    /// Waits in the queue for at most `patience`, then fails as [`Busy`](crate::Error::Busy), which names the holder. One
    /// request is always sent and its answer awaited, so a free lock is acquired however short `patience` is. If the store does not
    /// answer, the error is [`Unavailable`](crate::Error::Unavailable), less than a second after `patience` has ended. With a
    /// patience of zero it makes one attempt and leaves no entry in the queue.
    ///
    /// # Cancel safety
    ///
    /// As for [`lock`](Self::lock).
    ///
    /// ```
    /// # use lockfast::{Error, Locks};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let held = locks.mutex("account:123").lock().await?;
    /// let busy = locks.mutex("account:123").lock_within(Duration::from_millis(20)).await.unwrap_err();
    /// assert!(matches!(busy, Error::Busy { position: Some(1), .. }), "{busy}");
    /// # Ok(()) }
    /// ```
    pub async fn lock_within(&self, patience: Duration) -> Result<Guard> {
        let demands = self.demands.clone()?;
        self.requester.acquire(demands, Some(patience)).await
    }

    /// One attempt: `None` if another claim holds it or waits for it. Leaves no entry in the queue.
    ///
    /// # Cancel safety
    ///
    /// As for [`lock`](Self::lock).
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let first = locks.mutex("cron:daily").try_lock().await?;
    /// let second = locks.mutex("cron:daily").try_lock().await?;
    /// assert!(first.is_some() && second.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        let demands = self.demands.clone()?;
        self.requester.try_acquire(demands).await
    }

    /// Runs `work` while holding the lock, and stops it (drops its future) when the lock is lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future drops the work and releases the lock.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let fence = locks.mutex("account:123").with(async |held| held.fence()).await??;
    /// assert!(fence > 0);
    /// # Ok(()) }
    /// ```
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
        run_and_release(self.lock().await?, work).await
    }

    /// Whether it is held now.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// assert!(!locks.mutex("account:123").is_locked().await?);
    /// # Ok(()) }
    /// ```
    pub async fn is_locked(&self) -> Result<bool> {
        Ok(self
            .requester
            .inspect_front(&self.demands)
            .await?
            .is_some_and(|resource| resource.holders().next().is_some()))
    }

    /// Its queue, with holder and waiters; `None` if it is empty.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let guard = locks.mutex("account:123").label("job", "42").lock().await?;
    /// let info = locks.mutex("account:123").info().await?.unwrap();
    /// let holder = info.holders().next().unwrap();
    /// assert_eq!(holder.tickets.first.0, guard.fence()?);
    /// assert_eq!(holder.note.pid, std::process::id());
    /// # Ok(()) }
    /// ```
    pub async fn info(&self) -> Result<Option<Resource>> {
        self.requester.inspect(&self.demands).await
    }
}
