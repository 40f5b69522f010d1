//! What a server is like, for people who want to know whether locks are safe there. Only asks; changes nothing.

use std::time::{Duration, UNIX_EPOCH};

use redis::{RedisResult, Value};

use crate::clock::Clock;
use crate::error::{Error, Result};

use super::connection::{IoThread, Server, Timing};
use super::failure::explain;
use super::{Multiplexer, Redis};

/// Everything together takes no longer than this.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// How often the way there and back is measured.
const ROUND_TRIPS: usize = 20;
/// What names begin with if nobody says anything else.
const USUAL_PREFIX: &str = "lock:";

/// What a server says about itself: see [`Redis::checkup`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Checkup {
    /// Whose server it is: `Redis` or `Valkey`.
    pub product: String,
    /// Of that product, like `7.0.15`.
    pub version: String,
    /// Whether locks can be taken there. A replica only has copies.
    pub is_primary: bool,
    /// How many replicas are connected and up to date enough to be sent writes.
    pub replicas: u32,
    /// How many of them the URL asks to have each lock.
    pub replicas_wanted: u32,
    /// In bytes; 0 is no limit.
    pub maxmemory: u64,
    /// What the server does when it is reached. Anything but `noeviction` may take locks away.
    pub eviction: String,
    /// How often the append-only file reaches the disk, like `everysec`, if there is one; empty if that may not be asked.
    pub append_only: Option<String>,
    /// When a snapshot is written, like `3600 1`, if ever; empty if that may not be asked.
    pub snapshots: Option<String>,
    /// Whether the last attempt to write to the disk failed.
    pub cannot_write: bool,
    /// There and back: half of the questions were answered sooner.
    pub round_trip: Duration,
    /// The longest of them.
    pub slowest_trip: Duration,
    /// How many milliseconds the server's clock is ahead of this machine's; negative when it is behind.
    pub clock_ahead: i64,
    /// The commands that locks need and this user may not use; `None` when the server cannot be asked, before Redis 7.
    pub missing_rights: Option<Vec<String>>,
    /// The limits of a connection, as the URL sets them: see [`RedisOptions`](crate::RedisOptions).
    pub connect_timeout: Duration,
    /// See [`connect_timeout`](Self::connect_timeout).
    pub response_timeout: Duration,
    /// See [`connect_timeout`](Self::connect_timeout).
    pub heartbeat: Duration,
    /// See [`connect_timeout`](Self::connect_timeout).
    pub keepalive: Duration,
    /// See [`connect_timeout`](Self::connect_timeout).
    pub reconnect_cap: Duration,
}

impl Redis {
    /// Looks at the server of a URL: also at one that locks cannot be taken at, as long as it answers. `prefix` is what names
    /// begin with, if it is not said by the URL; the user may have rights to some names only.
    ///
    /// ```no_run
    /// # use lockfast::Redis;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// let found = Redis::checkup("redis://cache.internal", None).await?;
    /// assert_eq!(found.eviction, "noeviction", "locks would be thrown away");
    /// # Ok(()) }
    /// ```
    pub async fn checkup(url: &str, prefix: Option<&str>) -> Result<Checkup> {
        let server = Server::of_url(url)?;
        let doing = format!("looking at Redis at {server:?}");
        let prefix = prefix.or(server.prefix.as_deref()).unwrap_or(USUAL_PREFIX);
        let prefix = prefix.to_owned();
        // The caller may have no runtime that could drive a connection.
        let thread = IoThread::default();
        let looked =
            thread.runtime()?.spawn(async move { tokio::time::timeout(ENDS_WITHIN, look(&server, &prefix)).await });
        let found = looked.await.map_err(|error| Error::unavailable(&doing, error))?;
        found
            .map_err(|_| Error::unavailable(&doing, format!("no answer within {ENDS_WITHIN:?}")))?
            .map_err(|error| explain(&doing, &error))
    }
}

async fn look(server: &Server, prefix: &str) -> RedisResult<Checkup> {
    let mut multiplexer = server.open(std::sync::Arc::new(drop)).await?;
    let missing_rights = rights(&mut multiplexer, prefix, server.replicas).await?;
    let mut found = read(&redis::cmd("INFO").query_async::<String>(&mut multiplexer).await?);
    found.replicas_wanted = server.replicas;
    found.missing_rights = missing_rights;
    let Timing { connect_timeout, response_timeout, heartbeat, keepalive, reconnect_cap } = server.timing;
    found = Checkup { connect_timeout, response_timeout, heartbeat, keepalive, reconnect_cap, ..found };
    measure(&mut multiplexer, &mut found).await?;
    // Refused to whoever has no more rights than locks need.
    let mut setting = async |name: &str| {
        let mut asked = redis::cmd("CONFIG");
        asked.arg("GET").arg(name);
        let pairs: Vec<(String, String)> = asked.query_async(&mut multiplexer).await.unwrap_or_default();
        pairs.into_iter().next().map(|(_, value)| value)
    };
    if found.append_only.is_some() {
        found.append_only = setting("appendfsync").await.or(found.append_only);
    }
    found.snapshots = match setting("save").await {
        Some(never) if never.is_empty() => None,
        often => Some(often.unwrap_or_default()),
    };
    Ok(found)
}

async fn rights(multiplexer: &mut Multiplexer, prefix: &str, replicas: u32) -> RedisResult<Option<Vec<String>>> {
    let mut asked = redis::cmd("EVAL");
    asked.arg(include_str!("lua/rights.lua")).arg(0).arg(format!("{prefix}lockfast-doctor")).arg(replicas);
    match asked.query_async(multiplexer).await {
        Ok(Value::Array(missing)) => {
            Ok(Some(missing.into_iter().filter_map(|one| redis::from_redis_value(one).ok()).collect()))
        }
        Ok(_) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The quickest answer says most about the clock: the server read it half way there and back, give or take.
async fn measure(multiplexer: &mut Multiplexer, found: &mut Checkup) -> RedisResult<()> {
    let clock = Clock::boot();
    let mut trips = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let (asked, here) = (clock.now(), clock.wall());
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(multiplexer).await?;
        let trip = clock.now().since(asked);
        let here = here.duration_since(UNIX_EPOCH).unwrap_or_default() + trip / 2;
        let there = Duration::from_secs(seconds) + Duration::from_micros(micros);
        trips.push((trip, there.as_millis() as i64 - here.as_millis() as i64));
    }
    trips.sort_unstable();
    found.round_trip = trips[ROUND_TRIPS / 2].0;
    found.slowest_trip = trips[ROUND_TRIPS - 1].0;
    found.clock_ahead = trips[0].1;
    Ok(())
}

/// What the answer to INFO has of it.
fn read(info: &str) -> Checkup {
    let field =
        |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
    let valkey = field("valkey_version");
    let (product, version) = if valkey.is_empty() { ("Redis", field("redis_version")) } else { ("Valkey", valkey) };
    let is_online = |line: &&str| {
        let replica = line.strip_prefix("slave").and_then(|rest| rest.split_once(':'));
        replica.is_some_and(|(number, state)| number.parse::<u32>().is_ok() && state.contains("state=online"))
    };
    Checkup {
        product: product.to_owned(),
        version: version.to_owned(),
        is_primary: field("role") == "master",
        replicas: info.lines().filter(is_online).count() as u32,
        maxmemory: field("maxmemory").parse().unwrap_or(0),
        eviction: field("maxmemory_policy").to_owned(),
        append_only: (field("aof_enabled") == "1").then(String::new),
        cannot_write: field("rdb_last_bgsave_status") == "err" || field("aof_last_write_status") == "err",
        ..Checkup::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_is_decoded_for_redis_and_valkey() {
        let redis = "# Server\r\nredis_version:7.0.15\r\nrole:master\r\nconnected_slaves:2\r\nslave0:ip=a,state=online,lag=0\r\n\
                     slave1:ip=b,state=wait_bgsave\r\nslave_expires_tracked_keys:0\r\nmaxmemory:0\r\n\
                     maxmemory_policy:volatile-lru\r\naof_enabled:1\r\naof_last_write_status:err\r\n";
        let found = read(redis);
        assert_eq!((&*found.product, &*found.version, found.is_primary, found.replicas), ("Redis", "7.0.15", true, 1));
        assert_eq!((found.maxmemory, &*found.eviction), (0, "volatile-lru"));
        assert!(found.append_only.is_some() && found.cannot_write);
        let valkey = read(
            "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\nrole:slave\r\naof_enabled:0\r\n",
        );
        assert_eq!((&*valkey.product, &*valkey.version, valkey.is_primary), ("Valkey", "8.0.1", false));
        assert!(valkey.append_only.is_none() && !valkey.cannot_write);
    }
}
