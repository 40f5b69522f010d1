//! Checks of a Redis server: its version, role, replicas, eviction, persistence, this user's rights, and its clock.

use std::time::Duration;

use lockfast::{Redis, RedisCheckup};

use super::Check;
use super::measure::in_millis;

/// The major and minor version of the oldest Redis that works: older servers lack commands that the scripts need.
const OLDEST_REDIS: (u32, u32) = (6, 2);
/// A smaller difference between the server's clock and ours is fine; a larger one is noted.
const NOTABLE_DIFFERENCE: Duration = Duration::from_secs(1);

/// Empty when the server cannot be reached: the check of the store has reported that already.
pub(super) async fn checks(url: &str, prefix: Option<&str>) -> Vec<Check> {
    let Ok(checkup) = Redis::checkup(url, prefix).await else { return Vec::new() };
    vec![
        version(&checkup.product, &checkup.version),
        role(checkup.is_primary),
        replicas(checkup.replicas, checkup.replicas_wanted),
        memory(&checkup.eviction, checkup.maxmemory),
        persistence(&checkup),
        rights(checkup.missing_rights.as_deref()),
        limits(&checkup),
        Check::fine(
            "round trip",
            format!("{} (at most {})", in_millis(checkup.round_trip), in_millis(checkup.slowest_trip)),
        ),
        clock(checkup.clock_ahead),
    ]
}

fn version(product: &str, version: &str) -> Check {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let numbers = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match product == "Redis" && numbers < OLDEST_REDIS {
        true => Check::wrong("server", format!("Redis {version} is too old; use Redis 6.2 or later, or Valkey")),
        false => Check::fine("server", format!("{product} {version}")),
    }
}

fn role(is_primary: bool) -> Check {
    match is_primary {
        true => Check::fine("role", "primary"),
        false => Check::wrong("role", "a replica: locks are taken at its primary; write that one's address in the URL"),
    }
}

fn replicas(connected: u32, wanted: u32) -> Check {
    match (connected, wanted) {
        (0, 0) => Check::note("replicas", "none: if this server is lost, all its locks are lost"),
        (connected, 0) => Check::note(
            "replicas",
            format!(
                "{connected} connected, none waited for: a failover may lose the newest locks; ?replicas=1 waits for one"
            ),
        ),
        (connected, wanted) if connected < wanted => Check::wrong(
            "replicas",
            format!(
                "{connected} connected, but ?replicas={wanted} is asked for: no lock can be taken until there are more"
            ),
        ),
        _ => Check::fine("replicas", format!("{connected} connected; a lock counts when {wanted} of them have it")),
    }
}

/// Locks have an expiry, so the `volatile-` policies evict them first of all.
fn memory(eviction: &str, limit: u64) -> Check {
    let limited = format!("maxmemory is {} MB", limit.div_ceil(1 << 20));
    match (eviction, limit) {
        ("noeviction", 0) => Check::fine("memory", "nothing is evicted, and there is no limit"),
        ("noeviction", _) => Check::fine("memory", format!("nothing is evicted; {limited}")),
        (policy, 0) => Check::note(
            "memory",
            format!(
                "nothing is evicted while there is no limit, but maxmemory-policy is {policy}; set it to noeviction"
            ),
        ),
        (policy, _) => Check::wrong(
            "memory",
            format!("{limited} and then maxmemory-policy {policy} throws locks away; set it to noeviction"),
        ),
    }
}

fn persistence(checkup: &RedisCheckup) -> Check {
    const NAME: &str = "persistence";
    if checkup.cannot_write {
        return Check::wrong(NAME, "the server could not write to its disk; it may refuse all locks, see its log");
    }
    let forgets = "holders of forgotten locks lose them at their next renewal, and results of `once` are forgotten";
    match (checkup.append_only.as_deref(), checkup.snapshots.as_deref()) {
        (Some("always"), _) => {
            Check::fine(NAME, "append-only file, on the disk before the answer: a restart loses nothing")
        }
        (Some(_), _) => {
            Check::fine(NAME, "append-only file: a restart loses nothing, a power cut the last second or so")
        }
        (None, Some("")) => Check::note(
            NAME,
            format!(
                "no append-only file: a restart forgets all locks since the last snapshot, if there is one; {forgets}"
            ),
        ),
        (None, Some(when)) => Check::note(
            NAME,
            format!("snapshots only ({when}): a restart forgets all locks since the last one; {forgets}"),
        ),
        (None, None) => Check::note(NAME, format!("none: a restart forgets all locks; {forgets}")),
    }
}

fn rights(missing: Option<&[String]>) -> Check {
    match missing {
        Some([]) => Check::fine("rights", "this user may do all that locks need"),
        Some(missing) => Check::wrong(
            "rights",
            format!("this user may not: {}; docs/stores/redis.md has the line that it needs", missing.join(", ")),
        ),
        None => Check::note("rights", "not looked at: that needs Redis 7 or later"),
    }
}

/// The settings of a connection that are in force, defaults included.
fn limits(checkup: &RedisCheckup) -> Check {
    let text = format!(
        "connect_timeout {:?}, response_timeout {:?}, heartbeat {:?}, keepalive {:?}, reconnect_cap {:?}",
        checkup.connect_timeout, checkup.response_timeout, checkup.heartbeat, checkup.keepalive, checkup.reconnect_cap
    );
    Check::fine("connection", text)
}

/// `ahead_ms`: how far the server's clock is ahead of ours; negative when it is behind.
fn clock(ahead_ms: i64) -> Check {
    let judge = "only the server's clock judges leases";
    let difference = Duration::from_millis(ahead_ms.unsigned_abs());
    let side = if ahead_ms < 0 { "behind" } else { "ahead of" };
    let text = format!("{} {side} this machine's clock; {judge}", crate::duration::brief(difference));
    match difference < NOTABLE_DIFFERENCE {
        true => Check::fine("server time", text),
        false => Check::note("server time", format!("{text}, so nothing is wrong unless it is going to be set")),
    }
}

#[cfg(test)]
mod tests {
    use crate::doctor::Verdict;

    use super::*;

    #[test]
    fn an_old_server_is_wrong_and_valkey_is_named() {
        assert_eq!(version("Redis", "6.0.20").verdict, Verdict::Wrong);
        assert_eq!(version("Redis", "5.0.7").verdict, Verdict::Wrong);
        for fine in [version("Redis", "6.2.0"), version("Redis", "10.0.0"), version("Valkey", "8.0.1")] {
            assert_eq!(fine.verdict, Verdict::Fine, "{}", fine.text);
        }
        assert!(version("Valkey", "8.0.1").text.contains("Valkey 8.0.1"));
    }

    #[test]
    fn clocks_that_are_apart_are_a_note_and_say_which_one_counts() {
        let found = [clock(0), clock(-300), clock(61_000), clock(-61_000)];
        assert_eq!(found.each_ref().map(|it| it.verdict), [Verdict::Fine, Verdict::Fine, Verdict::Note, Verdict::Note]);
        assert!(found[2].text.contains("ahead") && found[3].text.contains("behind"), "{found:?}");
        assert!(found.iter().all(|it| it.text.contains("only the server's clock")));
    }

    #[test]
    fn a_server_that_cannot_be_asked_for_rights_is_a_note() {
        assert_eq!(rights(None).verdict, Verdict::Note);
    }
}
