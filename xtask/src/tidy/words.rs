//! The words of the glossary, and none of those that they replaced.
//!
//! 1. Sentences have a noun as their subject: the phrases in [`RETIRED`] stand nowhere but in quoted output.
//! 2. Product code says the mechanism: the pictures in [`PICTURES`] stand nowhere in it.
//! 3. A queue is called queue and a tombstone tombstone: `line` and `mark` are parts of names only where a line of text, or another
//!    kind of mark, is meant, and those files are listed.

use super::Finding;
use super::source::{tokens, without_comments_and_strings};
use crate::tree::Tree;

/// Put together from halves, so that this file passes its own check.
const RETIRED: &[&[&str]] = &[
    &[concat!("who", "ever")],
    &[concat!("some", "body")],
    &[concat!("no", "body")],
    &["those", concat!("wh", "o")],
    &["who", concat!("wait", "s")],
    &["who", concat!("hold", "s")],
];

/// Words that stand for a mechanism without naming it.
const PICTURES: &[&str] = &["seat", "lane", "desk", "ears", "lookout", "letter"];

/// Words that the glossary replaced, but that have other meanings too.
const RESTRICTED_PARTS: &[&str] = &["line", "mark"];

/// Names of the standard library and of tokio.
const FOREIGN_NAMES: &[&str] = &["lines", "read_line", "next_line", "mark_unchanged"];

/// How the path of a file begins, a part that names in it may have, and what the part means there.
const NAMES_ALLOWED: &[(&str, &str, &str)] = &[
    ("bench/", "line", "a line of output"),
    ("foreign/", "line", "a line of output"),
    ("lockfast-cli/src/args.rs", "line", "a line of a help text"),
    ("lockfast-cli/src/cmd/elect.rs", "line", "the command line"),
    ("lockfast-cli/src/cmd/ls.rs", "line", "a line of output"),
    ("lockfast-cli/src/cmd/run.rs", "line", "the command line"),
    ("lockfast-cli/src/cmd/watch.rs", "line", "a line of output"),
    ("lockfast-cli/src/guardian/", "line", "a line on the pipe to the guardian"),
    ("lockfast-cli/src/log.rs", "line", "a line of the log"),
    ("lockfast-cli/src/run/guardian_connection.rs", "line", "a line on the pipe to the guardian"),
    ("lockfast-cli/src/run/signals.rs", "line", "a line of /proc"),
    ("lockfast-cli/src/settings", "line", "a line of a config file"),
    ("lockfast-cli/src/show/", "line", "a line of output"),
    ("lockfast/src/client/events.rs", "line", "a line of the log"),
    ("lockfast/src/client/recorder.rs", "line", "a line of a recording"),
    ("lockfast/src/conformance/", "line", "a line of this source, which lists the cases"),
    ("lockfast/src/engine/record", "line", "a line of a recording"),
    ("lockfast/src/stores/redis/connection/parser", "line", "a line of the protocol"),
    ("lockfast/src/stores/redis/connection/server.rs", "line", "a line of an answer to INFO"),
    ("lockfast/src/stores/redis/decode.rs", "line", "a line of an answer"),
    ("lockfast/src/stores/redis/diagnostics.rs", "line", "a line of an answer to INFO"),
    ("lockfast/src/stores/redis/failure.rs", "line", "a line of an error"),
    ("lockfast/src/stores/redis/note.rs", "line", "a line of a stored note"),
    ("lockfast/src/stores/redis/subscriptions.rs", "line", "a line of a push"),
    ("lockfast/src/stores/redis/tests/", "line", "a line of a script"),
    ("lockfast/src/stores/sqlite/boot_time.rs", "line", "a line of /proc"),
    ("lockfast-cli/tests/", "line", "a line of output"),
    ("lockfast/tests/", "line", "a line of output"),
    ("replay/", "line", "a line of a recording"),
    ("servers/", "line", "a line of output"),
    ("sim/src/", "line", "a line of a trace"),
    ("xtask/", "line", "a line of a source"),
    ("xtask/", "mark", "a mark in a source"),
];

const PRODUCT_FOLDERS: &[&str] = &["lockfast/src/", "lockfast-cli/src/"];
const CHECKED_EXTENSIONS: &[&str] = &[".rs", ".lua", ".sql", ".md", ".toml", ".js", ".py", ".sh"];

pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    if !CHECKED_EXTENSIONS.iter().any(|extension| path.ends_with(extension)) {
        return Vec::new();
    }
    let words = words(text, path.ends_with(".md"));
    let mut findings = check_phrases(path, &words);
    findings.extend(check_pictures(path, &words));
    findings.extend(check_names(path, text));
    findings
}

/// Rows of the list that no file needs any more.
pub(super) fn stale_rows(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (beginning, part, _) in NAMES_ALLOWED {
        let mut texts = tree.texts().filter(|(path, _)| path.starts_with(beginning));
        if !texts.any(|(path, text)| !names_with(path, text, part).is_empty()) {
            findings.push(Finding::new(
                beginning,
                1,
                format!("no name has the part `{part}`: take it off the list in words.rs"),
            ));
        }
    }
    findings
}

fn check_phrases(path: &str, words: &[Word]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for at in 0..words.len() {
        for phrase in RETIRED {
            let found = words[at..].iter().take(phrase.len());
            let is_there = found.clone().map(|word| word.text.as_str()).eq(phrase.iter().copied())
                && found.skip(1).all(|word| word.is_adjacent);
            if is_there {
                let phrase = phrase.join(" ");
                let what = format!("\"{phrase}\": name the holder, the waiter, the claim or the process instead");
                findings.push(Finding::new(path, words[at].line, what));
            }
        }
    }
    findings
}

fn check_pictures(path: &str, words: &[Word]) -> Vec<Finding> {
    if !PRODUCT_FOLDERS.iter().any(|folder| path.starts_with(folder)) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for word in words {
        let picture = PICTURES.iter().find(|picture| is_form_of(&word.text, picture));
        if let Some(picture) = picture {
            findings.push(Finding::new(path, word.line, format!("`{picture}` is a picture: say the mechanism")));
        }
    }
    findings
}

fn check_names(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for part in RESTRICTED_PARTS {
        if NAMES_ALLOWED.iter().any(|(beginning, allowed, _)| path.starts_with(beginning) && allowed == part) {
            continue;
        }
        for (line, name) in names_with(path, text, part) {
            let what = format!(
                "`{name}` has the part `{part}`: a lock has a queue and tombstones; for other meanings list the file in words.rs"
            );
            findings.push(Finding::new(path, line, what));
        }
    }
    findings
}

/// The names in a Rust file, and of the file itself, that have this part.
fn names_with(path: &str, text: &str, part: &str) -> Vec<(usize, String)> {
    let file = path.rsplit('/').next().unwrap_or(path);
    let mut names = Vec::new();
    if pieces(file).any(|piece| is_form_of(&piece, part)) {
        names.push((1, file.to_string()));
    }
    if path.ends_with(".rs") {
        let blanked = without_comments_and_strings(text);
        let is_ours = |name: &str| !FOREIGN_NAMES.contains(&name) && !name.contains("question_mark");
        let in_code = tokens(&blanked).into_iter().filter(|token| is_ours(token.text));
        let with_part = in_code.filter(|token| pieces(token.text).any(|piece| is_form_of(&piece, part)));
        names.extend(with_part.map(|token| (token.line, token.text.to_string())));
    }
    names
}

/// A word of a text, in small letters.
#[derive(Debug, PartialEq, Eq)]
struct Word {
    text: String,
    line: usize,
    /// Whether only blanks, line ends and signs of comments are between it and the word before.
    is_adjacent: bool,
}

/// The words of a text. Names are taken apart; the fenced blocks of a document, which quote output, are left out.
fn words(text: &str, is_document: bool) -> Vec<Word> {
    let (mut words, mut is_adjacent, mut is_quoted) = (Vec::new(), false, false);
    for (line, content) in (1..).zip(text.lines()) {
        if is_document && content.trim_start().starts_with("```") {
            is_quoted = !is_quoted;
            is_adjacent = false;
            continue;
        }
        if is_quoted {
            continue;
        }
        let mut rest = content;
        while let Some(first) = rest.chars().next() {
            if first.is_ascii_alphabetic() {
                let len = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
                for piece in pieces(&rest[..len]) {
                    words.push(Word { text: piece, line, is_adjacent });
                    is_adjacent = true;
                }
                rest = &rest[len..];
            } else {
                is_adjacent &= first.is_whitespace() || "_/!#*-".contains(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    words
}

/// `LineUp_now` is `line`, `up`, `now`.
fn pieces(name: &str) -> impl Iterator<Item = String> {
    let mut pieces = vec![String::new()];
    let mut was_small = false;
    for c in name.chars() {
        if !c.is_ascii_alphabetic() || (c.is_ascii_uppercase() && was_small) {
            pieces.push(String::new());
        }
        if c.is_ascii_alphabetic() {
            pieces.last_mut().expect("there is always one").push(c.to_ascii_lowercase());
        }
        was_small = c.is_ascii_lowercase();
    }
    pieces.into_iter().filter(|piece| !piece.is_empty())
}

/// Whether a word is `root` itself, its plural, or its past tense: `mark`, `marks`, `marked`.
fn is_form_of(word: &str, root: &str) -> bool {
    word.strip_prefix(root).is_some_and(|ending| matches!(ending, "" | "s" | "ed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        check(path, text).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn each_retired_phrase_is_found_in_prose_code_and_names() {
        for phrase in RETIRED {
            let (spoken, name) = (phrase.join(" "), phrase.join("_"));
            assert_eq!(found("docs/a.md", &format!("One.\nThen {spoken} more.")), [2], "{spoken}");
            assert_eq!(found("a.rs", &format!("fn {name}_more() {{}}")), [1], "{spoken}");
            assert_eq!(found("a.lua", &format!("-- {spoken}")), [1], "{spoken}");
        }
    }

    #[test]
    fn a_phrase_is_found_over_the_end_of_a_line() {
        let (one, other) = (RETIRED[3][0], RETIRED[3][1]);
        assert_eq!(found("a.rs", &format!("/// {one}\n/// {other} wait")), [1]);
        assert_eq!(found("a.rs", &format!("/// {one}. {other} is it")), [0; 0]);
    }

    #[test]
    fn quoted_output_is_free() {
        assert_eq!(found("docs/a.md", &format!("```text\n{}\n```\n", RETIRED[0][0])), [0; 0]);
    }

    #[test]
    fn pictures_are_found_in_product_code_alone() {
        for picture in PICTURES {
            let text = format!("// a {picture}\nfn a_{picture}() {{}}");
            assert_eq!(found("lockfast/src/a.rs", &text), [1, 2], "{picture}");
            assert_eq!(found("lockfast/tests/a.rs", &text), [0; 0], "{picture}");
        }
        assert_eq!(found("lockfast/src/a.rs", "// appears, clears, a planet"), [0; 0]);
    }

    #[test]
    fn line_and_mark_are_found_as_parts_of_names() {
        assert_eq!(found("a.rs", "struct LineUp;\nfn in_line() {}\nlet marks = 1; // line"), [1, 2, 3]);
        assert_eq!(found("a.rs", "deadline inline \"line\" pipeline benchmark text.lines() question_mark"), [0; 0]);
        assert_eq!(found("lockfast/src/table/line.rs", ""), [1]);
    }

    #[test]
    fn a_row_that_no_file_needs_is_stale() {
        assert_eq!(stale_rows(&Tree::of(&[])).len(), NAMES_ALLOWED.len());
    }
}
