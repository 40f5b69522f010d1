//! Renewing and releasing detached locks.

use std::time::Duration;

use crate::claim::Token;
use crate::error::Result;

use super::Locks;

impl Locks {
    /// Renews the lock of a token for at least `ttl` from now. Never shortens its lease. Fails as [`Lost`](crate::Error::Lost) if it is
    /// not held any more: then stop the work that it protected.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future leaves the lock as it was, or renewed.
    ///
    /// ```
    /// # use lockfast::{Error, Locks};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let token = locks.mutex("deploy").detached().lock().await?.into_token().await?;
    /// locks.renew_token(&token, token.ttl()).await?;
    /// locks.break_lock("deploy", token.fence()).await?;
    /// assert!(matches!(locks.renew_token(&token, token.ttl()).await, Err(Error::Lost { .. })));
    /// # Ok(()) }
    /// ```
    pub async fn renew_token(&self, token: &Token, ttl: Duration) -> Result<()> {
        self.client().renew_token(token, ttl).await
    }

    /// Releases the lock of a token, and waits for the answer. Fails as [`Lost`](crate::Error::Lost) if it was not held to the end, or
    /// has been released already.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future leaves the lock as it was, or released.
    ///
    /// ```
    /// # use lockfast::{Error, Locks};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let token = locks.semaphore("external-api", 5).detached().acquire().await?.into_token().await?;
    /// locks.release_token(&token).await?;
    /// assert!(matches!(locks.release_token(&token).await, Err(Error::Lost { .. })));
    /// # Ok(()) }
    /// ```
    pub async fn release_token(&self, token: &Token) -> Result<()> {
        self.client().release_token(token).await
    }
}
