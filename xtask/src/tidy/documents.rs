//! What the documents name exists: files, folders, link targets, tests.
//!
//! A promise that points to a test is worth something only while the test is there.

use super::Finding;
use crate::tree::Tree;

/// A word in backticks with a `/` is taken for a path when it ends in one of these, or in `/`.
const EXTENSIONS: &[&str] = &[
    "css", "html", "js", "json", "lock", "lua", "md", "png", "proto", "rs", "service", "sh", "sql", "svg", "toml",
    "txt", "yaml", "yml",
];

/// The folders in which a path in backticks may begin: documents leave out the part that every reader knows.
const BEGINNINGS: &[&str] = &["", "lockfast/src"];

pub(super) fn check(path: &str, text: &str, tree: &Tree) -> Vec<Finding> {
    if !path.ends_with(".md") {
        return Vec::new();
    }
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let text = without_fences(text);
    let (spans, prose) = code_spans(&text);
    let mut findings = Vec::new();
    for (line, span) in spans {
        for word in span.split_whitespace() {
            findings.extend(problem_with_word(word, folder, tree).map(|what| Finding::new(path, line, what)));
        }
    }
    for (line, target) in links(&prose) {
        if tree.find(folder, &target).is_none() {
            let what = format!("the link to `{target}` leads nowhere: links are read from the document's own folder");
            findings.push(Finding::new(path, line, what));
        }
    }
    findings
}

fn problem_with_word(word: &str, folder: &str, tree: &Tree) -> Option<String> {
    let (path, test) = match word.split_once(".rs::") {
        Some((stem, test)) => (format!("{stem}.rs"), Some(test)),
        None => (word.to_string(), None),
    };
    if !is_path(&path) {
        return None;
    }
    let found = BEGINNINGS.iter().chain([&folder]).find_map(|beginning| tree.find(beginning, &path));
    let Some(found) = found else {
        return Some(format!("`{path}` does not exist: write the path from the top of the repository"));
    };
    let test = test?.rsplit("::").next().unwrap_or_default().trim_end_matches("()");
    let is_there = tree.text(found).is_some_and(|source| declares(source, test));
    (!is_there).then(|| format!("there is no `fn {test}` in {found}: name a test that is there"))
}

/// Whether a word is a path of the repository, and not a pattern, an address, a place on a machine or the output of a build.
fn is_path(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    let ends_like_one =
        word.ends_with('/') || word.rsplit_once('.').is_some_and(|(_, extension)| EXTENSIONS.contains(&extension));
    word.contains('/')
        && ends_like_one
        && word.chars().all(is_plain)
        && !word.starts_with(['/', '-'])
        && !word.starts_with("target/")
}

/// Whether a source has a function of this name.
fn declares(source: &str, test: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let declaration = format!("fn {test}");
    source.match_indices(&declaration).any(|(at, _)| !source[at + declaration.len()..].starts_with(is_word))
}

/// The text with fenced blocks emptied, line for line: they show commands and output.
fn without_fences(text: &str) -> String {
    let mut fence: Option<&str> = None;
    let mut kept = String::with_capacity(text.len());
    for line in text.lines() {
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (fence, mark) {
            (None, None) => kept.push_str(line),
            (None, Some(_)) => fence = mark,
            (Some(open), Some(close)) if open == close => fence = None,
            (Some(_), _) => {}
        }
        kept.push('\n');
    }
    kept
}

/// Each code span with its line, and the text with the code spans blanked.
fn code_spans(text: &str) -> (Vec<(usize, &str)>, String) {
    let mut spans = Vec::new();
    let mut prose = String::with_capacity(text.len());
    let mut line = 1;
    let mut rest = text;
    while let Some(at) = rest.find('`') {
        let marks = rest[at..].len() - rest[at..].trim_start_matches('`').len();
        let (before, after) = (&rest[..at], &rest[at + marks..]);
        prose.push_str(before);
        line += before.matches('\n').count();
        let Some(len) = span_len(after, marks) else {
            rest = after;
            continue;
        };
        let span = &after[..len];
        spans.push((line, span));
        prose.extend(span.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        line += span.matches('\n').count();
        rest = &after[len + marks..];
    }
    prose.push_str(rest);
    (spans, prose)
}

/// The length of a code span, which ends with the same number of backticks in the same paragraph.
fn span_len(after: &str, marks: usize) -> Option<usize> {
    let paragraph = after.find("\n\n").map_or(after, |end| &after[..end]);
    let mut at = 0;
    while let Some(next) = paragraph[at..].find('`') {
        let start = at + next;
        let run = paragraph[start..].len() - paragraph[start..].trim_start_matches('`').len();
        if run == marks {
            return Some(start);
        }
        at = start + run;
    }
    None
}

/// The targets of links that stay within the repository, without their anchor.
fn links(prose: &str) -> Vec<(usize, String)> {
    let mut targets = Vec::new();
    for (line, content) in (1..).zip(prose.lines()) {
        let inline = content.match_indices("](").map(|(at, _)| content[at + 2..].split(')').next());
        let is_definition = content.starts_with('[');
        let definition = content.split_once("]:").filter(|_| is_definition).map(|(_, target)| Some(target.trim()));
        for target in inline.chain(definition).flatten() {
            // What follows a blank is the link's title.
            let target = target.split_whitespace().next().unwrap_or_default().trim_matches(['<', '>']);
            let file = target.split('#').next().unwrap_or_default();
            let is_elsewhere = target.contains("://") || target.starts_with("mailto:");
            if !file.is_empty() && !is_elsewhere {
                targets.push((line, file.to_string()));
            }
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines found in a document of a small repository.
    fn lines_in(path: &str, text: &str) -> Vec<usize> {
        let tree = Tree::of(&[
            ("README.md", ""),
            ("docs/operating.md", ""),
            ("docs/adr/one.md", ""),
            ("lockfast/src/client/keeper.rs", "async fn a_lost_lease_is_told() {}\nfn renewals() {}"),
        ]);
        check(path, text, &tree).iter().map(|finding| finding.line).collect()
    }

    fn lines(text: &str) -> Vec<usize> {
        lines_in("README.md", text)
    }

    #[test]
    fn a_path_in_backticks_must_exist() {
        assert!(lines("see `docs/operating.md`, `docs/adr/` and `client/keeper.rs`").is_empty());
        assert_eq!(lines("one\n`docs/missing.md` and\n`docs/stores/`"), [2, 3]);
        assert_eq!(lines("run `cat docs/missing.md`"), [1]);
    }

    #[test]
    fn a_named_test_must_exist() {
        assert!(lines("`lockfast/src/client/keeper.rs::a_lost_lease_is_told`").is_empty());
        assert!(lines("`lockfast/src/client/keeper.rs::tests::renewals()`").is_empty());
        assert_eq!(lines("`lockfast/src/client/keeper.rs::renewal`"), [1]);
        assert_eq!(lines("`lockfast/src/client/gone.rs::renewals`"), [1]);
    }

    #[test]
    fn what_only_looks_like_a_path_passes() {
        let text =
            "`I/O` `redis://host/` `/etc/lockfast.toml` `docs/*.md` `lock:a/` `tokio/time` `target/doc/` `a{b}/c.rs`";
        assert!(lines(text).is_empty());
    }

    #[test]
    fn a_relative_link_must_lead_somewhere() {
        assert!(
            lines("[a](docs/operating.md#top) [b](https://example.org/x.md) [c](#here) [d](mailto:a@b)").is_empty()
        );
        assert_eq!(lines("\n[a](docs/missing.md \"title\")"), [2]);
        assert_eq!(lines("[a]: docs/missing.md"), [1]);
    }

    #[test]
    fn links_are_read_from_the_folder_of_the_document() {
        assert!(lines_in("docs/adr/one.md", "[a](../operating.md) [b](../../README.md)").is_empty());
        assert_eq!(lines_in("docs/adr/one.md", "[a](docs/operating.md)"), [1]);
        assert_eq!(lines_in("README.md", "[a](../outside.md)"), [1]);
    }

    #[test]
    fn fenced_blocks_and_other_files_are_left_alone() {
        assert!(lines("```sh\ncat `docs/missing.md` [a](missing.md)\n```\n").is_empty());
        assert!(lines_in("lockfast/src/lib.rs", "`docs/missing.md`").is_empty());
        assert_eq!(lines("```\n```\n`docs/missing.md`"), [3]);
    }

    #[test]
    fn a_link_inside_code_is_code_and_an_odd_backtick_is_a_letter() {
        assert!(lines("`[a](missing.md)`").is_empty());
        assert_eq!(lines("an odd ` here\n\n`docs/missing.md`"), [3]);
        assert_eq!(lines("``a ` b`` then\n`docs/missing.md`"), [2]);
    }
}
