//! Locks as a table, one in each row.

use std::time::Duration;

use comfy_table::{Table, presets};
use lockfast::Resource;

use super::{bold, describe, is_foreign, mode, remark};
use crate::duration::brief;
use crate::out::escape_controls;

/// A table with the columns KEY MODE HOLDER HELD TTL FENCE WAITERS; with `is_wide` also the holder's program, labels and owner.
pub(crate) fn queues(resources: &[Resource], is_wide: bool, with_colours: bool) -> String {
    let mut header = vec!["KEY", "MODE", "HOLDER", "HELD", "TTL", "FENCE", "WAITERS"];
    if is_wide {
        header.extend(["PROGRAM", "LABELS", "OWNER"]);
    }
    columns(&header, resources.iter().map(|resource| row(resource, is_wide)), with_colours)
}

fn row(resource: &Resource, is_wide: bool) -> Vec<String> {
    let dash = || "-".to_owned();
    let first = resource.holders().next();
    let holder = first.map_or_else(dash, |entry| {
        let more = resource.holders().count() - 1;
        let more = if more == 0 { String::new() } else { format!(" +{more}") };
        format!("{}{}{more}", describe(&entry.note), remark(entry))
    });
    let left = resource.sealed_for.or_else(|| resource.holders().map(|entry| entry.expires_in).max());
    let left = left.filter(|span| *span != Duration::MAX);
    let known = first.filter(|entry| !is_foreign(entry));
    let mut row = vec![
        escape_controls(resource.name.as_str()),
        mode(resource),
        holder,
        known.map_or_else(dash, |entry| brief(round_down(entry.since))),
        left.map_or_else(dash, |span| brief(round_down(span))),
        known.map_or_else(dash, |entry| entry.tickets.first.to_string()),
        resource.waiters().count().to_string(),
    ];
    if is_wide {
        let labels = |entry: &lockfast::Entry| {
            let labels: Vec<_> = entry.note.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            escape_controls(&labels.join(","))
        };
        let or_dash = |text: String| if text.is_empty() { dash() } else { text };
        row.push(first.map_or_else(dash, |entry| or_dash(escape_controls(&entry.note.program))));
        row.push(first.map_or_else(dash, |entry| or_dash(labels(entry))));
        row.push(first.map_or_else(dash, |entry| entry.owner.to_string()));
    }
    row
}

/// Rounded down to the second, unless it is shorter than one.
fn round_down(span: Duration) -> Duration {
    if span.as_secs() == 0 { span } else { Duration::from_secs(span.as_secs()) }
}

/// Aligned columns, two spaces apart, with a header in bold.
pub(crate) fn columns(header: &[&str], rows: impl Iterator<Item = Vec<String>>, with_colours: bool) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec());
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = String::new();
    for (number, line) in table.lines().enumerate() {
        let line = line.trim_end();
        text += &if number == 0 { bold(line, with_colours) } else { line.to_owned() };
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockfast::{Entry, Note};

    use super::super::tests::{holder, resource, waiter};
    use super::*;

    const NARROW: bool = false;
    const WIDE: bool = true;
    const WITHOUT_COLOURS: bool = false;
    const WITH_COLOURS: bool = true;

    #[test]
    fn a_row_has_the_first_holder_and_the_number_of_waiters() {
        let busy = resource("nightly", vec![holder(1), waiter(2), waiter(3)]);
        let readers =
            resource("catalog", vec![Entry { weight: 1, mode: lockfast::Mode::Shared, ..holder(4) }, holder(5)]);
        let text = queues(&[busy, readers], NARROW, WITHOUT_COLOURS);
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split("  ").map(str::trim).filter(|it| !it.is_empty()).collect()).collect();
        assert_eq!(rows[0], ["KEY", "MODE", "HOLDER", "HELD", "TTL", "FENCE", "WAITERS"]);
        assert_eq!(rows[1], ["nightly", "exclusive", "web-1 (pid 812)", "3m12s", "17s", "41", "2"]);
        assert_eq!(rows[2], ["catalog", "shared", "web-4 (pid 815) +1", "3m12s", "17s", "44", "0"]);
        let starts: Vec<_> = text.lines().map(|line| line.find("web").or(line.find("HOLDER"))).collect();
        assert_eq!(starts[0], starts[1], "columns are aligned");
    }

    #[test]
    fn sealed_broken_and_lingering_are_shown() {
        let sealed = Resource { sealed_for: Some(Duration::from_secs(3600)), ..resource("webhook", vec![]) };
        let broken = resource("a", vec![Entry { broken: true, ..holder(1) }]);
        let lingers = resource("b", vec![Entry { lingers: true, ..holder(1) }]);
        let text = queues(&[sealed, broken, lingers], NARROW, WITHOUT_COLOURS);
        assert!(text.contains("sealed") && text.contains("1h"), "{text}");
        assert!(text.contains("(pid 812), broken") && text.contains("(pid 812), lingers"), "{text}");
    }

    #[test]
    fn a_note_cannot_control_the_terminal() {
        let evil = "\u{1b}[2J\r\n\u{9b}31m";
        let note = Note {
            host: evil.into(),
            program: evil.into(),
            text: Some(evil.into()),
            labels: vec![(evil.into(), evil.into())],
            ..Note::default()
        };
        let text = queues(&[resource(evil, vec![Entry { note: Arc::new(note), ..holder(1) }])], WIDE, WITHOUT_COLOURS);
        assert_eq!(text.lines().count(), 2);
        assert!(!text.contains(['\u{1b}', '\r', '\u{9b}']), "{text:?}");
    }

    #[test]
    fn colours_are_only_in_the_header_and_only_when_wanted() {
        assert!(!queues(&[], NARROW, WITHOUT_COLOURS).contains('\u{1b}'));
        assert!(queues(&[], NARROW, WITH_COLOURS).starts_with("\u{1b}[1mKEY"));
    }
}
