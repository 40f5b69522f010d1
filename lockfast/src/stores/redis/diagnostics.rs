//! [`Redis::checkup`]: reads the properties of a server that decide whether locks are safe there. It never writes.

use std::time::{Duration, UNIX_EPOCH};

use redis::{RedisResult, Value};

use crate::clock::Clock;
use crate::error::{Error, Result};

use super::connection::{IoThread, Server, Timing, info_field};
use super::failure::explain;
use super::{Multiplexer, Redis};

/// The limit of the whole checkup.
const CHECKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// How many round trips are measured.
const ROUND_TRIPS: usize = 20;
/// The default prefix of names.
const DEFAULT_PREFIX: &str = "lock:";

/// The properties of a server that decide whether locks are safe there; the result of [`Redis::checkup`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Checkup {
    /// `Redis` or `Valkey`.
    pub product: String,
    /// The version of the product, like `7.0.15`.
    pub version: String,
    /// Whether the server is a primary. Locks cannot be taken at a replica.
    pub is_primary: bool,
    /// The number of replicas that are connected and online.
    pub replicas: u32,
    /// The number of replicas that must have each lock: `replicas=N` of the URL.
    pub replicas_wanted: u32,
    /// The memory limit of the server in bytes; 0 is no limit.
    pub maxmemory: u64,
    /// The eviction policy at the memory limit. Any policy but `noeviction` may delete locks.
    pub eviction: String,
    /// How often the append-only file is flushed to the disk, like `everysec`; `None` without such a file; empty if the user may
    /// not read the setting.
    pub append_only: Option<String>,
    /// When a snapshot is written, like `3600 1`; `None` if never; empty if the user may not read the setting.
    pub snapshots: Option<String>,
    /// Whether the last attempt to write to the disk failed.
    pub cannot_write: bool,
    /// The median of the measured round trips.
    pub round_trip: Duration,
    /// The longest of the measured round trips.
    pub slowest_trip: Duration,
    /// How many milliseconds the server's clock is ahead of this machine's; negative if it is behind.
    pub clock_ahead: i64,
    /// The commands that locks need and this user may not run; `None` before Redis 7, where a server cannot be asked for them.
    pub missing_rights: Option<Vec<String>>,
    /// The limits of a connection that are in force: see [`RedisOptions`](crate::RedisOptions).
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
    /// Checks the server of a URL, and changes nothing there. It also works for a server that locks cannot be taken at, as long
    /// as it answers. `prefix` is the prefix of names, instead of the one of the URL: the user may have rights to some names only.
    ///
    /// ```no_run
    /// # use lockfast::Redis;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// let found = Redis::checkup("redis://cache.internal", None).await?;
    /// assert_eq!(found.eviction, "noeviction", "locks could be evicted");
    /// # Ok(()) }
    /// ```
    pub async fn checkup(url: &str, prefix: Option<&str>) -> Result<Checkup> {
        let server = Server::of_url(url)?;
        let doing = format!("checking Redis at {server:?}");
        let prefix = prefix.or(server.prefix.as_deref()).unwrap_or(DEFAULT_PREFIX);
        let prefix = prefix.to_owned();
        // The caller may have no runtime that can drive a connection.
        let thread = IoThread::default();
        let check = thread
            .runtime()?
            .spawn(async move { tokio::time::timeout(CHECKUP_TIMEOUT, check(&server, &prefix)).await });
        let found = check.await.map_err(|error| Error::unavailable(&doing, error))?;
        found
            .map_err(|_| Error::unavailable(&doing, format!("no reply within {CHECKUP_TIMEOUT:?}")))?
            .map_err(|error| explain(&doing, &error))
    }
}

async fn check(server: &Server, prefix: &str) -> RedisResult<Checkup> {
    let mut multiplexer = server.open(std::sync::Arc::new(drop)).await?;
    let missing_rights = missing_rights(&mut multiplexer, prefix, server.replicas).await?;
    let mut found = decode_info(&redis::cmd("INFO").query_async::<String>(&mut multiplexer).await?);
    found.replicas_wanted = server.replicas;
    found.missing_rights = missing_rights;
    let Timing { connect_timeout, response_timeout, heartbeat, keepalive, reconnect_cap } = server.timing;
    found = Checkup { connect_timeout, response_timeout, heartbeat, keepalive, reconnect_cap, ..found };
    measure_round_trips(&mut multiplexer, &mut found).await?;
    // CONFIG is refused to a user that has only the rights that locks need.
    let mut setting = async |name: &str| {
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg(name);
        let pairs: Vec<(String, String)> = command.query_async(&mut multiplexer).await.unwrap_or_default();
        pairs.into_iter().next().map(|(_, value)| value)
    };
    if found.append_only.is_some() {
        found.append_only = setting("appendfsync").await.or(found.append_only);
    }
    found.snapshots = match setting("save").await {
        Some(rules) if rules.is_empty() => None,
        rules => Some(rules.unwrap_or_default()),
    };
    Ok(found)
}

/// The commands that this user may not run; see `rights.lua`.
async fn missing_rights(
    multiplexer: &mut Multiplexer,
    prefix: &str,
    replicas: u32,
) -> RedisResult<Option<Vec<String>>> {
    let mut command = redis::cmd("EVAL");
    command.arg(include_str!("lua/rights.lua")).arg(0).arg(format!("{prefix}lockfast-doctor")).arg(replicas);
    match command.query_async(multiplexer).await {
        Ok(Value::Array(missing)) => {
            Ok(Some(missing.into_iter().filter_map(|one| redis::from_redis_value(one).ok()).collect()))
        }
        Ok(_) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Measures round trips and the server's clock. The quickest round trip is the most exact about the clock: the server is assumed
/// to have read it half way.
async fn measure_round_trips(multiplexer: &mut Multiplexer, found: &mut Checkup) -> RedisResult<()> {
    let clock = Clock::boot();
    // Each round trip, and how many milliseconds the server's clock was ahead.
    let mut trips = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let (sent_at, local_time) = (clock.now(), clock.wall());
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(multiplexer).await?;
        let trip = clock.now().since(sent_at);
        let local_time = local_time.duration_since(UNIX_EPOCH).unwrap_or_default() + trip / 2;
        let server_time = Duration::from_secs(seconds) + Duration::from_micros(micros);
        trips.push((trip, server_time.as_millis() as i64 - local_time.as_millis() as i64));
    }
    trips.sort_unstable();
    found.round_trip = trips[ROUND_TRIPS / 2].0;
    found.slowest_trip = trips[ROUND_TRIPS - 1].0;
    found.clock_ahead = trips[0].1;
    Ok(())
}

/// The properties that the reply to INFO has.
fn decode_info(info: &str) -> Checkup {
    let field = |name: &str| info_field(info, name).unwrap_or_default();
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
        let found = decode_info(redis);
        assert_eq!((&*found.product, &*found.version, found.is_primary, found.replicas), ("Redis", "7.0.15", true, 1));
        assert_eq!((found.maxmemory, &*found.eviction), (0, "volatile-lru"));
        assert!(found.append_only.is_some() && found.cannot_write);
        let valkey = decode_info(
            "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\nrole:slave\r\naof_enabled:0\r\n",
        );
        assert_eq!((&*valkey.product, &*valkey.version, valkey.is_primary), ("Valkey", "8.0.1", false));
        assert!(valkey.append_only.is_none() && !valkey.cannot_write);
    }
}
