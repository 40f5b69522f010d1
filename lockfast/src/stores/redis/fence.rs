//! Writes that a stale fencing token cannot overwrite: what a lease alone cannot promise.

use std::time::Duration;

use redis::Value;

use crate::error::{Error, LostWhy, Result};
use crate::name::Name;

use super::scripts::{self, Call};
use super::{Redis, decode, keys};

/// How long the highest fence of a key is kept after the last write. A stale writer that was stopped for longer is not refused.
const HIGHEST_FENCE_TTL: Duration = Duration::from_secs(90 * 24 * 3600);

impl Redis {
    /// Sets `key` to `value`, unless the key was written under a later fencing token: then nothing is written, and the error is
    /// [`Lost`](Error::Lost). So a stale holder, which was stopped for longer than its lease and does not know yet that it has
    /// lost the lock, overwrites nothing.
    ///
    /// All writers of the key must use this method. It is for exclusive locks: the fences of readers and permits do not order
    /// their writes. In another language or with another command, the same is a few lines of Lua; see `docs/stores/redis.md`.
    ///
    /// ```no_run
    /// # use lockfast::{Locks, Redis};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// let redis = Redis::open("redis://localhost").await?;
    /// let locks = Locks::new(redis.clone())?;
    /// let guard = locks.mutex("account:123").lock().await?;
    /// redis.set_fenced("balance:123", "70.00", guard.fence()?).await?;
    /// # Ok(()) }
    /// ```
    pub async fn set_fenced(&self, key: &str, value: impl AsRef<[u8]>, fence: u64) -> Result<()> {
        let name = Name::new(key)?;
        keys::check_unreserved(&name)?;
        let mut call = Call::of(&scripts::FENCED_SET, 2);
        call.text(key).text(&format!("lockfast:{{{}}}:fence:{key}", keys::tag(&name)));
        call.number(fence).bytes(value.as_ref());
        call.number(HIGHEST_FENCE_TTL.as_millis() as u64);
        match self.inner.pool.call(|| format!("writing {key:?}"), &call).await? {
            Value::BulkString(text) if text == b"written" => Ok(()),
            Value::BulkString(_) => Err(Error::Lost { name: key.to_owned(), why: LostWhy::Overtaken }),
            other => Err(decode::unexpected(&other)),
        }
    }
}
