//! Queues as JSON: durations are numbers with `_seconds` in their name, times are RFC 3339 in UTC.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use lockfast::{Entry, Mode, Resource};
use serde::Serialize;

use super::is_foreign;
use crate::out::escape_controls_in_json;

/// One resource and its queue.
#[derive(Serialize)]
pub(crate) struct Queue<'a> {
    key: &'a str,
    mode: Option<&'static str>,
    /// The number of permits, if it is a semaphore.
    #[serde(skip_serializing_if = "Option::is_none")]
    slots: Option<u32>,
    /// How much longer it is remembered as done.
    #[serde(skip_serializing_if = "Option::is_none")]
    sealed_for_seconds: Option<f64>,
    holders: Vec<Claim<'a>>,
    waiters: Vec<Claim<'a>>,
}

/// One claim in the queue.
#[derive(Serialize)]
pub(crate) struct Claim<'a> {
    /// The position among the waiters, counted from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
    /// A lock of a program that does not use lockfast has no fence, and its `since` is unknown.
    fence: Option<u64>,
    owner: String,
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
    host: &'a str,
    pid: u32,
    program: &'a str,
    name: Option<&'a str>,
    labels: BTreeMap<&'a str, &'a str>,
    /// When it began to hold, or to wait.
    since: Option<String>,
    since_seconds: Option<f64>,
    expires: Option<String>,
    expires_in_seconds: Option<f64>,
    lingers: bool,
    broken: bool,
}

impl<'a> Queue<'a> {
    pub(crate) fn of(resource: &'a Resource, now: SystemTime) -> Self {
        let first = resource.queue.first();
        Self {
            key: resource.name.as_str(),
            mode: first.map(|entry| mode(entry.mode)),
            slots: first.filter(|entry| entry.mode == Mode::Permits).map(|_| resource.capacity),
            sealed_for_seconds: resource.sealed_for.map(seconds),
            holders: resource.holders().map(|entry| Claim::of(entry, None, now)).collect(),
            waiters: resource
                .waiters()
                .enumerate()
                .map(|(ahead, entry)| Claim::of(entry, Some(ahead + 1), now))
                .collect(),
        }
    }
}

impl<'a> Claim<'a> {
    pub(crate) fn of(entry: &'a Entry, position: Option<usize>, now: SystemTime) -> Self {
        let known = |entry: &&Entry| !is_foreign(entry);
        let ends = (entry.expires_in != Duration::MAX).then_some(entry.expires_in);
        Self {
            position,
            fence: Some(entry).filter(known).map(|entry| entry.tickets.first.0),
            owner: entry.owner.to_string(),
            mode: mode(entry.mode),
            permits: (entry.mode == Mode::Permits).then_some(entry.weight),
            host: &entry.note.host,
            pid: entry.note.pid,
            program: &entry.note.program,
            name: entry.note.text.as_deref(),
            labels: entry.note.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect(),
            since: Some(entry)
                .filter(known)
                .map(|entry| time(now.checked_sub(entry.since).unwrap_or(SystemTime::UNIX_EPOCH))),
            since_seconds: Some(entry).filter(known).map(|entry| seconds(entry.since)),
            expires: ends.map(|left| time(now.checked_add(left).unwrap_or(now))),
            expires_in_seconds: ends.map(seconds),
            lingers: entry.lingers,
            broken: entry.broken,
        }
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        _ => "permits",
    }
}

/// To the millisecond.
pub(crate) fn seconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 1000.0).round() / 1000.0
}

/// A time of day as `2026-11-16T00:41:54.123Z`.
pub(crate) fn time(at: SystemTime) -> String {
    format!("{:.3}", Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// As text over several lines, for one result.
pub(crate) fn pretty(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value).expect("all keys are text and all numbers are finite");
    escape_controls_in_json(&text) + "\n"
}

/// As one line, for one of many results.
pub(crate) fn line(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("all keys are text and all numbers are finite");
    escape_controls_in_json(&text) + "\n"
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockfast::Note;
    use serde_json::{Value, json};

    use super::super::tests::{holder, resource, waiter};
    use super::*;

    #[test]
    fn json_has_durations_in_seconds_and_times_in_utc() {
        let note = Note {
            text: Some("reports".into()),
            labels: vec![("team".into(), "a".into())],
            ..Note::clone(&holder(1).note)
        };
        let held = Entry { note: Arc::new(note), ..holder(1) };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let resource = resource("nightly", vec![held, waiter(2)]);
        let shown: Value = serde_json::from_str(&pretty(&Queue::of(&resource, now))).unwrap();
        assert_eq!(shown["key"], "nightly");
        assert_eq!(shown["holders"][0]["since"], "2027-01-15T07:56:48.000Z");
        assert_eq!(shown["holders"][0]["since_seconds"], 192.0);
        assert_eq!(shown["holders"][0]["expires"], "2027-01-15T08:00:17.000Z");
        assert_eq!(
            (&shown["holders"][0]["name"], &shown["holders"][0]["labels"]),
            (&json!("reports"), &json!({"team": "a"}))
        );
        assert_eq!((&shown["waiters"][0]["position"], &shown["waiters"][0]["fence"]), (&json!(1), &json!(42)));
        assert!(shown["holders"][0].get("position").is_none() && shown.get("slots").is_none());
    }

    #[test]
    fn a_queue_in_json_is_one_line_whatever_its_name() {
        let text = line(&Queue::of(&resource("a\n\u{1b}[2J\u{9b}", vec![]), SystemTime::UNIX_EPOCH));
        assert_eq!(text.lines().count(), 1);
        assert!(text.is_ascii() && !text.contains('\u{1b}'), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["key"], "a\n\u{1b}[2J\u{9b}");
    }
}
