//! `cargo xtask tidy`: the rules that neither the compiler nor clippy knows.
//!
//! Each check is a function from a path and a text to findings and touches nothing, so that its tests can show it
//! failing. This file reads the tree, asks every check, and prints.

mod dependencies;
mod documents;
mod layers;
mod leftovers;
mod lengths;
mod map;
mod paths;
mod purity;
mod sizes;
mod source;
mod words;

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

use crate::tree::Tree;

/// Something to put right, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    /// What is wrong and what to do about it.
    problem: String,
}

impl Finding {
    fn new(path: &str, line: usize, problem: impl Into<String>) -> Self {
        Self { path: path.to_string(), line, problem: problem.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.problem)
    }
}

pub(crate) fn run(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    let mut findings = check_files(&tree);
    findings.extend(words::stale_rows(&tree));
    let lock = tree.text("Cargo.lock").unwrap_or_default();
    findings.extend(dependencies::check(&dependencies::listing().read(root)?, lock));
    findings.sort();
    findings.iter().for_each(|finding| println!("{finding}"));
    match findings.len() {
        0 => println!("tidy: {} files, nothing to put right", tree.texts().count()),
        1 => bail!("tidy has one finding, see above"),
        many => bail!("tidy has {many} findings, see above"),
    }
    Ok(())
}

fn check_files(tree: &Tree) -> Vec<Finding> {
    let exports = layers::Exports::read(tree.text(layers::LIB).unwrap_or_default());
    let check = |(path, text)| {
        [
            layers::check(path, text, &exports),
            purity::check(path, text),
            sizes::check(path, text, sizes::ALLOWED),
            documents::check(path, text, tree),
            leftovers::check(path, text),
            lengths::check(path, text),
            words::check(path, text),
        ]
    };
    let mut findings: Vec<Finding> = tree.texts().flat_map(check).flatten().collect();
    findings.extend(sizes::stale_rows(sizes::ALLOWED, tree));
    findings.extend(map::check(tree));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_of_files_is_asked() {
        let long = "\n".repeat(sizes::LIMIT + 1);
        let tree = Tree::of(&[
            ("README.md", "`docs/missing.md`"),
            ("bench/src/main.rs", concat!("fn main() { todo", "!() }")),
            ("bench/src/long.rs", &long),
            ("bench/src/name.rs", &format!("fn {}() {{}}", "a".repeat(lengths::MAX_NAME_LEN + 1))),
            ("bench/src/word.rs", concat!("// some", "body")),
            ("lockfast/src/engine/mod.rs", "use std::sync::Mutex;"),
            ("lockfast/src/store.rs", "use crate::client::Locks;"),
        ]);
        let mut paths: Vec<String> = check_files(&tree).into_iter().map(|finding| finding.path).collect();
        paths.sort();
        assert_eq!(
            paths,
            [
                "README.md",
                "bench/src/long.rs",
                "bench/src/main.rs",
                "bench/src/name.rs",
                "bench/src/word.rs",
                "lockfast/src/engine/mod.rs",
                "lockfast/src/engine/mod.rs",
                "lockfast/src/store.rs",
                "lockfast/src/store.rs"
            ]
        );
    }

    #[test]
    fn a_finding_reads_like_a_compiler_message() {
        assert_eq!(Finding::new("a/b.rs", 7, "too long").to_string(), "a/b.rs:7: too long");
    }
}
