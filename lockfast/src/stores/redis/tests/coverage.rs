//! Coverage of the scripts' blocks: the code behind each `then`, `else`, `do` and `function (..)`.
//!
//! Unit tests run every script with a counter at the beginning of each block. The scripts that are shipped have no counters.

use std::collections::BTreeMap;

use super::super::format::{self, Limits, Part};

/// The key of a Redis hash: the label of each block, and how often the block was entered.
pub(super) const BLOCK_COUNTS_KEY: &str = "lockfast:test:block_counts";

/// The limits of a run in tests, as Lua expressions: the value of a key that a test sets, or the shipped limit.
const LIMITS: Limits<'static> = Limits {
    max_evicted: "tonumber(redis.call('GET', 'lockfast:test:max_evicted') or '20000')",
    max_shown: "tonumber(redis.call('GET', 'lockfast:test:max_shown') or '200')",
};

/// As [`format::assemble`], with counters. Unit tests call it instead, so it has the same parameters; the limits of tests are used
/// in place of the shipped ones.
pub(in super::super) fn assemble(parts: &[Part], _shipped_limits: &Limits<'_>) -> String {
    let instrumented: Vec<_> = parts.iter().map(|(file, text)| (*file, with_counters(file, text))).collect();
    let parts: Vec<Part> = instrumented.iter().map(|(file, text)| (*file, text.as_str())).collect();
    format::assemble(&parts, &LIMITS)
}

/// The text with a counter at the beginning of each block, on the same line.
fn with_counters(file: &str, text: &str) -> String {
    let mut instrumented = String::new();
    for piece in split_at_blocks(file, text) {
        instrumented += piece.code;
        if let Some(label) = piece.next_block {
            instrumented += &format!(" redis.call('HINCRBY', '{BLOCK_COUNTS_KEY}', '{label}', 1)");
        }
    }
    instrumented
}

/// The label of every block of a file, with the text of the line on which the block begins.
pub(super) fn block_labels(file: &str, text: &str) -> BTreeMap<String, String> {
    let lines: Vec<_> = text.lines().collect();
    let labelled = |piece: Piece<'_>| Some((piece.next_block?, lines[piece.last_line - 1].trim().to_owned()));
    split_at_blocks(file, text).into_iter().filter_map(labelled).collect()
}

/// The code between the beginnings of two blocks.
struct Piece<'t> {
    code: &'t str,
    /// The number of the line on which `code` ends, from 1.
    last_line: usize,
    /// The label of the block that begins behind `code`, like `rule.lua:12`; `None` at the end of the file.
    next_block: Option<String>,
}

/// Splits the text at the beginnings of blocks.
fn split_at_blocks<'t>(file: &str, text: &'t str) -> Vec<Piece<'t>> {
    let (mut pieces, mut begin, mut line, mut at) = (Vec::new(), 0, 1, 0);
    let mut awaits_parameters = false;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let (length, begins_block) = if rest.starts_with("--") {
            (rest.find('\n').unwrap_or(rest.len()), false)
        } else if rest.starts_with('\'') {
            (quoted_length(rest), false)
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
        if begins_block {
            let next_block = Some(format!("{file}.lua:{line}"));
            pieces.push(Piece { code: &text[begin..at], last_line: line, next_block });
            begin = at;
        }
    }
    pieces.push(Piece { code: &text[begin..], last_line: line, next_block: None });
    pieces
}

/// The length of the quoted string at the beginning. Scripts use single quotes only.
fn quoted_length(text: &str) -> usize {
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
    // `+2` stands for the counter of a block that begins on line 2.
    let counter = |line| format!(" redis.call('HINCRBY', '{BLOCK_COUNTS_KEY}', 'x.lua:{line}', 1)");
    assert_eq!(
        with_counters("x", text),
        [2, 3, 5]
            .iter()
            .fold(expected.to_owned(), |text, line| { text.replace(&format!(" +{line}"), &counter(*line)) })
    );
    assert_eq!(block_labels("x", text)["x.lua:5"], "else e() end");
}
