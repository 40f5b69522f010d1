//! Writes that refuse whoever is late: what a lease alone cannot promise.

use std::time::Duration;

use redis::Value;

use crate::error::{Error, LostWhy, Result};
use crate::name::Name;

use super::scripts::{self, Call};
use super::{Redis, decode, keys};

/// For how long a fence is remembered without another write. A writer that slept for longer is not refused by it.
const REMEMBERED: Duration = Duration::from_secs(90 * 24 * 3600);

impl Redis {
    /// Sets `key` to `value`, unless it was written under a later fence: then nothing is written, and the error is
    /// [`Lost`](Error::Lost). So a holder that was stopped for longer than its lease, and does not know yet that somebody
    /// else holds the lock, does no harm.
    ///
    /// All who write the key must write it this way. It is for exclusive locks: the fences of readers and permits say
    /// nothing about who was first. In another language or with another command, the same is a few lines of Lua; see
    /// `docs/stores/redis.md`.
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
        keys::check(&name)?;
        let mut call = Call::of(&scripts::FENCED_SET, 2);
        call.text(key).text(&format!("lockfast:{{{}}}:fence:{key}", keys::tag(&name)));
        call.number(fence).bytes(value.as_ref());
        call.number(REMEMBERED.as_millis() as u64);
        match self.inside.pool.call(|| format!("writing {key:?}"), &call).await? {
            Value::BulkString(said) if said == b"written" => Ok(()),
            Value::BulkString(_) => Err(Error::Lost { name: key.to_owned(), why: LostWhy::Overtaken }),
            other => Err(decode::odd(&other)),
        }
    }
}
