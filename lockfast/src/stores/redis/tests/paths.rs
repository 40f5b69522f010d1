//! Branch coverage of the scripts. Unit tests run every script with a counter at the beginning of each block; the scripts that
//! are shipped have none.

use std::collections::BTreeMap;

use super::super::format::{self, Limits, Part};

/// A hash in the database of the script: from a label to how often that block was entered.
#[cfg(feature = "conformance")]
pub(super) const TAKEN: &str = "lockfast:test:paths";

/// The limits of a run in tests: the usual ones, unless a key of the database overrides them.
const LIMITS: Limits<'static> = Limits {
    most_evicted: "tonumber(redis.call('GET', 'lockfast:test:most_evicted') or '20000')",
    most_shown: "tonumber(redis.call('GET', 'lockfast:test:most_shown') or '200')",
};

/// As [`format::assembled`], with counters.
pub(in super::super) fn assembled(parts: &[Part], _usual: &Limits<'_>) -> String {
    let counted: Vec<_> = parts.iter().map(|(file, text)| (*file, counted(file, text))).collect();
    let parts: Vec<Part> = counted.iter().map(|(file, text)| (*file, text.as_str())).collect();
    format::assembled(&parts, &LIMITS)
}

/// The text with a counter behind each `then`, `else`, `do` and `function (..)`, on the same line.
fn counted(file: &str, text: &str) -> String {
    let mut counted = String::new();
    for (label, block) in blocks(file, text) {
        counted += block.code;
        if let Some(label) = label {
            counted += &format!(" redis.call('HINCRBY', 'lockfast:test:paths', '{label}', 1)");
        }
    }
    counted
}

/// Every label of a file, with the text of its line.
pub(super) fn labels(file: &str, text: &str) -> BTreeMap<String, String> {
    let lines: Vec<_> = text.lines().collect();
    let labelled =
        |(label, block): (Option<String>, Block<'_>)| Some((label?, lines[block.line - 1].trim().to_owned()));
    blocks(file, text).into_iter().filter_map(labelled).collect()
}

/// Code up to where a block begins.
struct Block<'t> {
    code: &'t str,
    line: usize,
}

/// Splits the text at the beginnings of blocks. Each piece has the label of the block that begins behind it.
fn blocks<'t>(file: &str, text: &'t str) -> Vec<(Option<String>, Block<'t>)> {
    let (mut blocks, mut begin, mut line, mut at) = (Vec::new(), 0, 1, 0);
    let mut awaits_parameters = false;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let (length, begins) = if rest.starts_with("--") {
            (rest.find('\n').unwrap_or(rest.len()), false)
        } else if rest.starts_with('\'') {
            (quoted(rest), false)
        } else {
            let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
            let length = rest.find(|character| !is_word(character)).unwrap_or(rest.len()).max(1);
            let word = &rest[..length];
            awaits_parameters |= word == "function";
            let ends_parameters = awaits_parameters && word == ")";
            awaits_parameters &= !ends_parameters;
            (length, ends_parameters || ["then", "else", "do"].contains(&word))
        };
        line += rest[..length].matches('\n').count();
        at += length;
        if begins {
            blocks.push((Some(format!("{file}.lua:{line}")), Block { code: &text[begin..at], line }));
            begin = at;
        }
    }
    blocks.push((None, Block { code: &text[begin..], line }));
    blocks
}

/// The length of the quoted string at the beginning. Scripts use single quotes only.
fn quoted(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '\'' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[test]
fn a_counter_is_put_into_each_block() {
    let text = "-- if then\nlocal f = function(a) return 'do' end\nif a then b() elseif c then\n  d()\nelse e() end";
    let expected = "-- if then\nlocal f = function(a) +2 return 'do' end\nif a then +3 b() elseif c then +3\n  d()\nelse +5 e() end";
    let counter = |line| format!(" redis.call('HINCRBY', 'lockfast:test:paths', 'x.lua:{line}', 1)");
    assert_eq!(
        counted("x", text),
        [2, 3, 5]
            .iter()
            .fold(expected.to_owned(), |text, line| { text.replace(&format!(" +{line}"), &counter(*line)) })
    );
    assert_eq!(labels("x", text)["x.lua:5"], "else e() end");
}
