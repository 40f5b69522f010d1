//! One lock as text for people: in full over several lines, or in short.

use std::time::{Duration, SystemTime};

use lockfast::{Entry, Resource};

use super::json::time;
use super::{describe, is_foreign, mode, remark};
use crate::duration::brief;
use crate::out::escape_controls;

/// Everything that is known about one resource.
pub(crate) fn in_full(resource: &Resource, now: SystemTime) -> String {
    let mut text = format!("key      {}\nmode     {}\n", escape_controls(resource.name.as_str()), mode(resource));
    if let Some(left) = resource.sealed_for {
        text += &format!("done     and remembered for {} more\n", brief(left));
    }
    for entry in resource.holders() {
        text += &holder(entry, now);
    }
    for (ahead, entry) in resource.waiters().enumerate() {
        text += &format!(
            "waiter {:<3} {}{}  waiting {}, fence {}\n",
            ahead + 1,
            describe(&entry.note),
            remark(entry),
            brief(entry.since),
            entry.tickets.first
        );
    }
    if resource.waiters().next().is_none() {
        text += "waiters  none\n";
    }
    text
}

fn holder(entry: &Entry, now: SystemTime) -> String {
    let note = &entry.note;
    let since = now.checked_sub(entry.since).unwrap_or(now);
    let expires = now.checked_add(entry.expires_in).unwrap_or(now);
    let fences = match entry.tickets.count {
        0 | 1 => entry.tickets.first.to_string(),
        _ => format!("{} to {}", entry.tickets.first, entry.tickets.last()),
    };
    let mut text = format!("holder   {}{}\n", describe(note), remark(entry));
    let mut row = |title: &str, value: String| text += &format!("  {title:<8} {value}\n");
    let ends = match entry.expires_in {
        Duration::MAX => "never".to_owned(),
        left => format!("{} (in {} unless renewed)", time(expires), brief(left)),
    };
    if is_foreign(entry) {
        row("expires", ends);
        return text;
    }
    row("host", escape_controls(&note.host));
    row("pid", note.pid.to_string());
    row("program", escape_controls(&note.program));
    if let Some(name) = &note.text {
        row("name", escape_controls(name));
    }
    for (key, value) in &note.labels {
        row("label", escape_controls(&format!("{key}={value}")));
    }
    row("fence", fences);
    row("since", format!("{} ({} ago)", time(since), brief(entry.since)));
    row("expires", ends);
    row("owner", entry.owner.to_string());
    text
}

/// The same in one line, for `status` and for messages: `held by web-2 (pid 812) for 3m12s, 2 waiting`.
pub(crate) fn in_short(resource: Option<&Resource>) -> String {
    let Some(resource) = resource else { return "free".to_owned() };
    let waiting = match resource.waiters().count() {
        0 => String::new(),
        many => format!(", {many} waiting"),
    };
    let mut holders = resource.holders();
    match (holders.next(), resource.sealed_for) {
        (Some(entry), _) if is_foreign(entry) => format!("held by {}{waiting}", describe(&entry.note)),
        (Some(entry), _) => {
            let more = match holders.count() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let since = brief(entry.since);
            let fence = entry.tickets.first;
            format!("held by {}{}{more} for {since}, fence {fence}{waiting}", describe(&entry.note), remark(entry))
        }
        (None, Some(left)) => format!("done, and remembered for {} more", brief(left)),
        (None, None) => format!("free{waiting}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockfast::Note;

    use super::super::tests::{holder, resource, waiter};
    use super::*;

    #[test]
    fn the_full_text_names_the_holder_and_waiters_in_order() {
        let note = Note { labels: vec![("team".into(), "a\u{1b}[2J".into())], ..Note::clone(&holder(1).note) };
        let queue = vec![Entry { note: Arc::new(note), ..holder(1) }, waiter(2), waiter(3)];
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let text = in_full(&resource("nightly", queue), now);
        for part in [
            "key      nightly",
            "holder   web-1 (pid 812)",
            "  program  job",
            "  label    team=a\\u{1b}[2J",
            "  fence    41",
            "  since    2027-01-15T07:56:48.000Z (3m12s ago)",
            "  expires  2027-01-15T08:00:17.000Z (in 17s unless renewed)",
            "waiter 1   web-2 (pid 813)  waiting 5s, fence 42",
            "waiter 2   web-3 (pid 814)",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }

    #[test]
    fn the_short_text_names_the_holder_and_since_when() {
        let held = resource("a", vec![holder(1), waiter(2)]);
        assert_eq!(in_short(Some(&held)), "held by web-1 (pid 812) for 3m12s, fence 41, 1 waiting");
        assert_eq!(in_short(None), "free");
        let sealed = Resource { sealed_for: Some(Duration::from_secs(60)), ..resource("a", vec![]) };
        assert_eq!(in_short(Some(&sealed)), "done, and remembered for 1m more");
    }
}
