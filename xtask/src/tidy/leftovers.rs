//! Nothing unfinished is left in the tree, and nothing points out of it.

use super::Finding;

/// What must not be there, in which files, and what to do. The words are put together from halves so that this file
/// passes its own check.
const LEFTOVERS: &[(&str, &str, &str)] = &[
    (concat!("..", "/shared"), "", "points out of the repository: say it here instead"),
    (concat!("todo", "!("), ".rs", "unfinished code: finish it, or take it out"),
    (concat!("unimplemented", "!("), ".rs", "unfinished code: finish it, or answer with an error that says so"),
    (concat!("#[", "ignore"), ".rs", "a test that never runs: make it run, or take it out"),
];

pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        for (word, extension, what) in LEFTOVERS {
            if path.ends_with(extension) && content.contains(word) {
                findings.push(Finding::new(path, line, format!("`{word}`: {what}")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_leftover_is_found_with_its_line() {
        for (word, ..) in LEFTOVERS {
            let findings = check("src/a.rs", &format!("fn a() {{\n    {word} }}\n"));
            assert_eq!(findings.len(), 1, "{word}");
            assert_eq!(findings[0].line, 2);
        }
    }

    #[test]
    fn finished_code_passes() {
        assert!(check("src/a.rs", "/// Shared by all; ignores nothing.\nfn a() { done!() }\n").is_empty());
    }

    #[test]
    fn documents_may_speak_about_skipped_tests() {
        assert!(check("CONTRIBUTING.md", concat!("no `#[", "ignore]` here")).is_empty());
    }
}
