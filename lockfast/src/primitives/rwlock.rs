//! Many readers or one writer of one name.

use std::time::Duration;

use crate::claim::{Demand, Demands};
use crate::client::Guard;
use crate::error::Result;
use crate::name::Name;
use crate::store::Resource;

use super::requester::{Requester, detachable, options};

/// Many readers or one writer of one name. First come, first served: a reader behind a waiting writer waits too, so writers
/// do not starve.
///
/// ```
/// # use lockfast::Locks;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// let catalog = locks.rwlock("catalog");
/// let (one, two) = (catalog.read().await?, catalog.read().await?);
/// assert!(catalog.try_write().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    pub(super) requester: Requester,
    pub(super) name: Result<Name>,
}

options!(RwLock);
detachable!(RwLock);

impl RwLock {
    /// Waits in the queue until it holds, together with other readers.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future leaves the queue. If the lock had just been granted, it passes to the next waiter.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let reading = locks.rwlock("catalog").read().await?;
    /// # Ok(()) }
    /// ```
    pub async fn read(&self) -> Result<Guard> {
        let demands = self.shared()?;
        self.requester.acquire(demands, None).await
    }

    /// As [`read`](Self::read), for at most `patience`.
    ///
    /// # Cancel safety
    ///
    /// As for [`read`](Self::read).
    pub async fn read_within(&self, patience: Duration) -> Result<Guard> {
        let demands = self.shared()?;
        self.requester.acquire(demands, Some(patience)).await
    }

    /// One attempt: `None` if a writer holds it or waits for it. Leaves no entry in the queue.
    ///
    /// # Cancel safety
    ///
    /// As for [`read`](Self::read).
    pub async fn try_read(&self) -> Result<Option<Guard>> {
        let demands = self.shared()?;
        self.requester.try_acquire(demands).await
    }

    /// Waits in the queue until it holds alone. The same as [`Mutex::lock`](crate::Mutex::lock) on that name.
    ///
    /// # Cancel safety
    ///
    /// As for [`read`](Self::read).
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let writing = locks.rwlock("catalog").write().await?;
    /// assert!(locks.rwlock("catalog").try_read().await?.is_none());
    /// assert!(locks.mutex("catalog").is_locked().await?);
    /// # Ok(()) }
    /// ```
    pub async fn write(&self) -> Result<Guard> {
        let demands = self.exclusive()?;
        self.requester.acquire(demands, None).await
    }

    /// As [`write`](Self::write), for at most `patience`.
    ///
    /// # Cancel safety
    ///
    /// As for [`read`](Self::read).
    pub async fn write_within(&self, patience: Duration) -> Result<Guard> {
        let demands = self.exclusive()?;
        self.requester.acquire(demands, Some(patience)).await
    }

    /// One attempt: `None` if another claim holds it or waits for it. Leaves no entry in the queue.
    ///
    /// # Cancel safety
    ///
    /// As for [`read`](Self::read).
    pub async fn try_write(&self) -> Result<Option<Guard>> {
        let demands = self.exclusive()?;
        self.requester.try_acquire(demands).await
    }

    /// Its queue, with readers, writers and waiters; `None` if it is empty.
    pub async fn info(&self) -> Result<Option<Resource>> {
        self.requester.inspect(&self.shared()).await
    }

    fn shared(&self) -> Result<Demands> {
        Ok(Demand::shared(self.name.clone()?).into())
    }

    fn exclusive(&self) -> Result<Demands> {
        Ok(Demand::exclusive(self.name.clone()?).into())
    }
}
