//! What a command finds in its environment, and what it does not; and how a `run` inside a `run` notices.

use std::ffi::OsString;

use lockfast::{Guard, Locks, Result, TraceId};

use crate::settings::Settings;

/// What this process and those around it hold: `owner=key`, a space between two. Owners are labels, not the right to
/// anything.
const HOLDS: &str = "LOCKFAST_HOLDS";
/// Says nothing about the store.
const HARMLESS: [&str; 3] = ["LOCKFAST_LOG_FORMAT", "LOCKFAST_NAME", "LOCKFAST_LABELS"];

/// What the command is told about the lock it runs under.
pub(crate) fn of(guard: &Guard, key: &str, ttl: std::time::Duration, trace: TraceId) -> Vec<(&'static str, String)> {
    let owner = guard.owner().to_string();
    let mut holds = std::env::var(HOLDS).unwrap_or_default();
    for name in guard.names() {
        if !holds.is_empty() {
            holds.push(' ');
        }
        holds += &format!("{owner}={}", escaped(name));
    }
    let mut variables = vec![
        ("LOCKFAST_HELD", "1".to_owned()),
        ("LOCKFAST_KEY", key.to_owned()),
        ("LOCKFAST_OWNER", owner),
        ("LOCKFAST_TTL_MS", ttl.as_millis().to_string()),
        ("TRACEPARENT", traceparent(trace)),
        (HOLDS, holds),
    ];
    if let Ok(fence) = guard.fence_of(key) {
        variables.push(("LOCKFAST_FENCE", fence.to_string()));
    }
    variables
}

/// How a `lockfast` inside the command finds the same store, however this one was told.
pub(crate) fn store(settings: &Settings) -> Vec<(&'static str, String)> {
    let store = match settings.store.split_once(':') {
        // The command may be somewhere else by then.
        Some(("sqlite", path)) if !path.is_empty() && !path.starts_with('/') => {
            let whole = std::path::absolute(path).map_or_else(|_| path.to_owned(), |path| path.display().to_string());
            format!("sqlite:{whole}")
        }
        _ => settings.store.clone(),
    };
    let prefix = settings.prefix.clone().map(|prefix| ("LOCKFAST_PREFIX", prefix));
    [("LOCKFAST_URL", store)].into_iter().chain(prefix).collect()
}

/// What a command with a clean environment does not see: everything that says where the store is and how to get in.
pub(crate) fn credentials() -> Vec<OsString> {
    let is_ours =
        |key: &OsString| key.to_str().is_some_and(|key| key.starts_with("LOCKFAST_") && !HARMLESS.contains(&key));
    std::env::vars_os().map(|(key, _)| key).filter(is_ours).collect()
}

/// The first of `keys` that a `run` around this one holds. The store is asked: who has inherited an old environment, as a
/// daemon does, is not kept out.
pub(crate) async fn held_around_us(locks: &Locks, keys: impl Iterator<Item = &str>) -> Result<Option<String>> {
    let Ok(holds) = std::env::var(HOLDS) else { return Ok(None) };
    for key in keys {
        let suffix = format!("={}", escaped(key));
        let owners: Vec<&str> = holds.split(' ').filter_map(|hold| hold.strip_suffix(&suffix)).collect();
        if owners.is_empty() {
            continue;
        }
        let resource = locks.mutex(key).info().await?;
        let mut holders = resource.iter().flat_map(|resource| resource.holders()).filter(|entry| !entry.lingers);
        if holders.any(|entry| owners.contains(&entry.owner.to_string().as_str())) {
            return Ok(Some(key.to_owned()));
        }
    }
    Ok(None)
}

/// The trace that this process belongs to, or a new one.
pub(crate) fn trace() -> TraceId {
    let around = std::env::var("TRACEPARENT").ok().and_then(|header| header.parse().ok());
    around.unwrap_or_else(|| TraceId(fastrand::u128(1..)))
}

/// A step of its own in the trace; whether the trace is recorded stays as it was.
fn traceparent(trace: TraceId) -> String {
    let around = std::env::var("TRACEPARENT").unwrap_or_default();
    let flags = around.rsplit('-').next().filter(|flags| is_two_digits(flags)).unwrap_or("01");
    format!("00-{trace}-{:016x}-{flags}", fastrand::u64(1..))
}

fn is_two_digits(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Without the signs that separate.
fn escaped(key: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%' && byte != b'=';
    key.bytes().map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_keys_are_written_the_same() {
        let keys = ["a b", "a%20b", "a=b", "a", "ключ", "a\nb", "%", "%25"];
        let written: std::collections::HashSet<_> = keys.iter().map(|key| escaped(key)).collect();
        assert_eq!(written.len(), keys.len());
        assert!(written.iter().all(|key| !key.contains([' ', '='])));
    }
}
