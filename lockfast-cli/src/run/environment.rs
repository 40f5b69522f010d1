//! The environment of a command: the variables about its lock, the store settings that are hidden from it, and how a nested
//! `run` finds out what an outer one holds.

use std::ffi::OsString;

use lockfast::{Guard, Locks, Result, TraceId};

use crate::settings::Settings;

/// The variable with the locks of this process and of the `run`s around it: `owner=key`, separated by spaces. An owner is a
/// label, not the right to release.
const HOLDS_VAR: &str = "LOCKFAST_HOLDS";
/// Variables that contain nothing about the store.
const HARMLESS_VARS: [&str; 3] = ["LOCKFAST_LOG_FORMAT", "LOCKFAST_NAME", "LOCKFAST_LABELS"];

/// The variables about the lock that the command runs under.
pub(crate) fn lock_variables(
    guard: &Guard,
    key: &str,
    ttl: std::time::Duration,
    trace: TraceId,
) -> Vec<(&'static str, String)> {
    let owner = guard.owner().to_string();
    let mut holds = std::env::var(HOLDS_VAR).unwrap_or_default();
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
        (HOLDS_VAR, holds),
    ];
    if let Ok(fence) = guard.fence_of(key) {
        variables.push(("LOCKFAST_FENCE", fence.to_string()));
    }
    variables
}

/// The variables by which a `lockfast` inside the command finds the same store, whether this process has it from a flag, a
/// variable or a file.
pub(crate) fn store_variables(settings: &Settings) -> Vec<(&'static str, String)> {
    let store = match settings.store.split_once(':') {
        // The command may change its directory.
        Some(("sqlite", path)) if !path.is_empty() && !path.starts_with('/') => {
            let path = std::path::absolute(path).map_or_else(|_| path.to_owned(), |path| path.display().to_string());
            format!("sqlite:{path}")
        }
        _ => settings.store.clone(),
    };
    let prefix = settings.prefix.clone().map(|prefix| ("LOCKFAST_PREFIX", prefix));
    [("LOCKFAST_URL", store)].into_iter().chain(prefix).collect()
}

/// The variables that `--clean-env` removes: the store's URL and credentials.
pub(crate) fn credential_variables() -> Vec<OsString> {
    let is_hidden =
        |key: &OsString| key.to_str().is_some_and(|key| key.starts_with("LOCKFAST_") && !HARMLESS_VARS.contains(&key));
    std::env::vars_os().map(|(key, _)| key).filter(is_hidden).collect()
}

/// The first of `keys` that a `run` around this one holds. The store decides, so that a process with an old environment, like
/// a daemon, is not refused.
pub(crate) async fn held_by_outer_run(locks: &Locks, keys: impl Iterator<Item = &str>) -> Result<Option<String>> {
    let Ok(holds) = std::env::var(HOLDS_VAR) else { return Ok(None) };
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

/// The trace from the environment, or a new one.
pub(crate) fn trace_id() -> TraceId {
    let outer = std::env::var("TRACEPARENT").ok().and_then(|header| header.parse().ok());
    outer.unwrap_or_else(|| TraceId(fastrand::u128(1..)))
}

/// A new span in the trace. The flags, which say whether the trace is recorded, stay as they were; without any it is recorded
/// (`01`).
fn traceparent(trace: TraceId) -> String {
    let outer = std::env::var("TRACEPARENT").unwrap_or_default();
    let flags = outer.rsplit('-').next().filter(|flags| is_two_hex_digits(flags)).unwrap_or("01");
    format!("00-{trace}-{:016x}-{flags}", fastrand::u64(1..))
}

fn is_two_hex_digits(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Escapes the separators, and everything that is not visible ASCII.
fn escaped(key: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%' && byte != b'=';
    key.bytes().map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_keys_are_escaped_the_same() {
        let keys = ["a b", "a%20b", "a=b", "a", "ключ", "a\nb", "%", "%25"];
        let written: std::collections::HashSet<_> = keys.iter().map(|key| escaped(key)).collect();
        assert_eq!(written.len(), keys.len());
        assert!(written.iter().all(|key| !key.contains([' ', '='])));
    }
}
