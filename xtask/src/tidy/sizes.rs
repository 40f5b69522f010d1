//! No source file is longer than a person reads in one sitting. Tests count: they are read too.

use super::Finding;
use crate::tree::Tree;

pub(super) const LIMIT: usize = 400;

const EXTENSIONS: &[&str] = &[".rs", ".lua", ".sql", ".js"];

/// A path that may be longer, and why it cannot be split.
pub(super) type Allowed = (&'static str, &'static str);

pub(super) const ALLOWED: &[Allowed] = &[];

pub(super) fn check(path: &str, text: &str, allowed: &[Allowed]) -> Vec<Finding> {
    let lines = text.lines().count();
    let is_source = EXTENSIONS.iter().any(|extension| path.ends_with(extension));
    if !is_source || lines <= LIMIT || allowed.iter().any(|(listed, _)| *listed == path) {
        return Vec::new();
    }
    let what = format!("{lines} lines, more than {LIMIT}: move one of its ideas into a file of its own");
    vec![Finding::new(path, LIMIT + 1, what)]
}

/// Entries of the list that no file needs any more.
pub(super) fn stale_rows(allowed: &[Allowed], tree: &Tree) -> Vec<Finding> {
    let is_needed = |path: &str| tree.text(path).is_some_and(|text| text.lines().count() > LIMIT);
    let stale = allowed.iter().filter(|(path, _)| !is_needed(path));
    stale.map(|(path, _)| Finding::new(path, 1, "no longer too long: take it off the list in sizes.rs")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &[Allowed] = &[("a.rs", "a table that is one thing")];

    fn lines(count: usize) -> String {
        "x\n".repeat(count)
    }

    #[test]
    fn a_file_over_the_limit_is_found_at_the_line_that_is_too_much() {
        for path in ["a.rs", "a.lua", "a.sql", "a.js"] {
            let findings = check(path, &lines(LIMIT + 1), &[]);
            assert_eq!(findings.len(), 1, "{path}");
            assert_eq!(findings[0].line, LIMIT + 1);
        }
    }

    #[test]
    fn a_file_at_the_limit_or_of_another_kind_passes() {
        assert!(check("a.rs", &lines(LIMIT), &[]).is_empty());
        assert!(check("Cargo.lock", &lines(LIMIT * 3), &[]).is_empty());
    }

    #[test]
    fn a_listed_file_passes_for_as_long_as_it_needs_to() {
        assert!(check("a.rs", &lines(LIMIT + 1), LISTED).is_empty());
        assert!(stale_rows(LISTED, &Tree::of(&[("a.rs", &lines(LIMIT + 1))])).is_empty());
        assert_eq!(stale_rows(LISTED, &Tree::of(&[("a.rs", "short")])).len(), 1);
        assert_eq!(stale_rows(LISTED, &Tree::of(&[])).len(), 1);
    }
}
