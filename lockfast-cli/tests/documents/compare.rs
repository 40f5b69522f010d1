//! Compares output with a document, except for text that differs between runs:
//!
//! - a duration like `3m12s`, a time like `2027-01-15T08:00:00.000Z` and the number after `pid` match any other;
//! - a number or id of 15 digits or more matches any other, and the same one wherever it is written again, in commands too;
//! - `[..]` matches anything within a line, a line `...` any lines;
//! - `web-1` is this machine's name;
//! - any number of spaces matches any other.

use std::collections::BTreeMap;

/// The real ids behind the example ids of a document.
#[derive(Debug, Default)]
pub(crate) struct Bindings(BTreeMap<String, String>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Id(String),
    Span,
    Time,
    Host,
    Pid,
    Anything,
}

impl Bindings {
    /// Replaces the example ids in a command with the real ones.
    pub(crate) fn apply(&self, command: &str) -> String {
        self.0.iter().fold(command.to_owned(), |command, (example, actual)| command.replace(example, actual))
    }

    pub(crate) fn is_match(&mut self, expected: &[String], actual: &[String]) -> bool {
        match (expected, actual) {
            ([], []) => true,
            ([any, rest @ ..], actual) if any == "..." => {
                (0..=actual.len()).any(|skipped| self.is_match(rest, &actual[skipped..]))
            }
            ([expected, more @ ..], [actual, rest @ ..]) => {
                self.is_same(&parts(expected), &parts(actual)) && self.is_match(more, rest)
            }
            _ => false,
        }
    }

    fn is_same(&mut self, expected: &[Part], actual: &[Part]) -> bool {
        match (expected, actual) {
            ([], []) => true,
            ([Part::Anything, rest @ ..], actual) => {
                (0..=actual.len()).any(|skipped| self.is_same(rest, &actual[skipped..]))
            }
            ([Part::Id(example), more @ ..], [Part::Id(id), rest @ ..]) => {
                self.bind(example, id) && self.is_same(more, rest)
            }
            ([expected, more @ ..], [actual, rest @ ..]) => expected == actual && self.is_same(more, rest),
            _ => false,
        }
    }

    /// Each example id has one real id, and two examples never have the same.
    fn bind(&mut self, example: &str, id: &str) -> bool {
        if let Some(bound) = self.0.get(example) {
            return bound == id;
        }
        let is_new = !self.0.values().any(|bound| bound == id);
        if is_new {
            self.0.insert(example.to_owned(), id.to_owned());
        }
        is_new
    }
}

fn parts(line: &str) -> Vec<Part> {
    let host = rustix::system::uname();
    let host = host.nodename().to_str().unwrap_or_default();
    let mut parts = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("[..]") {
            4
        } else if first.is_alphanumeric() {
            rest.find(|sign: char| !sign.is_alphanumeric() && !":.-".contains(sign)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let word = &rest[..length];
        let word = if first.is_alphanumeric() { word.trim_end_matches([':', '.', '-']) } else { word };
        let follows_pid = parts.last() == Some(&Part::Text("pid".to_owned()));
        parts.push(match word {
            "[..]" => Part::Anything,
            word if word == "web-1" || word == host => Part::Host,
            word if word.len() >= 15 && word.bytes().all(|byte| byte.is_ascii_hexdigit()) => Part::Id(word.to_owned()),
            word if is_time(word) => Part::Time,
            word if is_span(word) => Part::Span,
            word if follows_pid && word.bytes().all(|byte| byte.is_ascii_digit()) => Part::Pid,
            word => Part::Text(word.to_owned()),
        });
        rest = rest[word.len()..].trim_start();
    }
    parts
}

/// As in RFC 3339.
fn is_time(word: &str) -> bool {
    word.len() >= 20
        && word.ends_with('Z')
        && word.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            10 => byte == b'T',
            13 | 16 => byte == b':',
            _ => byte.is_ascii_digit() || at >= 19,
        })
}

/// Numbers, each with a unit.
fn is_span(word: &str) -> bool {
    let mut rest = word;
    let mut is_span = false;
    while !rest.is_empty() {
        let unit = rest.trim_start_matches(|sign: char| sign.is_ascii_digit() || sign == '.');
        let Some(after) = ["ms", "us", "µs", "ns", "s", "m", "h", "d"].iter().find_map(|name| unit.strip_prefix(name))
        else {
            return false;
        };
        if unit.len() == rest.len() {
            return false;
        }
        (rest, is_span) = (after, true);
    }
    is_span
}
