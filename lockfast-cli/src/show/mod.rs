//! How locks are shown to people and programs: pure functions from resources to text.

pub(crate) mod json;
pub(crate) mod table;
pub(crate) mod text;

use lockfast::{Entry, Mode, Note, Resource};

use crate::out::escape_controls;

/// The mode of the resource's claims, in one word or two.
pub(crate) fn mode(resource: &Resource) -> String {
    if resource.sealed_for.is_some() {
        return "sealed".to_owned();
    }
    match resource.holders().chain(resource.waiters()).next().map(|entry| entry.mode) {
        Some(Mode::Permits) => {
            let taken: u64 = resource.holders().map(|entry| u64::from(entry.weight)).sum();
            format!("permits {taken}/{}", resource.capacity)
        }
        Some(mode) => mode.to_string(),
        None => "-".to_owned(),
    }
}

/// The holder or waiter behind a claim: `reports on web-2 (pid 812)`.
pub(crate) fn describe(note: &Note) -> String {
    escape_controls(&note.to_string())
}

/// Whether the entry stands for the lock of a program that does not use lockfast. It has drawn no ticket; only its existence and
/// perhaps its expiry are known.
pub(crate) fn is_foreign(entry: &Entry) -> bool {
    entry.tickets.first.0 == 0
}

/// The special state of an entry, if it has one.
pub(crate) fn remark(entry: &Entry) -> &'static str {
    match (entry.broken, entry.lingers) {
        (true, _) => ", broken",
        (_, true) => ", lingers",
        _ => "",
    }
}

/// Bold, if colours are wanted.
pub(crate) fn bold(text: &str, with_colours: bool) -> String {
    if with_colours { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_owned() }
}

/// Whether standard output is a terminal, and neither `NO_COLOR` nor `TERM` asks for plain text.
pub(crate) fn wants_colours() -> bool {
    use std::io::IsTerminal;
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stdout().is_terminal() && !is_unwanted && !is_dumb
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use lockfast::store::{ClaimId, Demand, Name, Ticket, Tickets};

    use super::*;

    /// A holder for 192 s with a lease of 17 s left, on the host `web-N`.
    pub(crate) fn holder(number: u8) -> Entry {
        entry(number, true)
    }

    /// A waiter for 5 s with a lease of 17 s left, on the host `web-N`.
    pub(crate) fn waiter(number: u8) -> Entry {
        entry(number, false)
    }

    fn entry(number: u8, holds: bool) -> Entry {
        let note = Note {
            host: format!("web-{number}"),
            pid: 811 + u32::from(number),
            program: "job".into(),
            ..Note::default()
        };
        Entry {
            owner: ClaimId::from_secret([number; 16]).hash(),
            tickets: Tickets::new(Ticket(40 + u64::from(number)), 1),
            mode: Mode::Exclusive,
            weight: Demand::ALL,
            holds,
            since: Duration::from_secs(if holds { 192 } else { 5 }),
            expires_in: Duration::from_secs(17),
            lingers: false,
            broken: false,
            note: Arc::new(note),
        }
    }

    pub(crate) fn resource(name: &str, queue: Vec<Entry>) -> Resource {
        Resource { name: Name::new(name).unwrap(), capacity: Demand::ALL, queue, more: 0, sealed_for: None }
    }

    #[test]
    fn permits_are_counted_by_weight() {
        let permits = |number, weight, holds| Entry { mode: Mode::Permits, weight, ..entry(number, holds) };
        let queue = vec![permits(1, 2, true), permits(2, 1, true), permits(3, 4, false)];
        assert_eq!(mode(&Resource { capacity: 5, ..resource("api", queue) }), "permits 3/5");
    }
}
