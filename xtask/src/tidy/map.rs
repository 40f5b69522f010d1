//! The map is complete: a newcomer finds every module in `ARCHITECTURE.md`, or in the header of the module that it is part of.

use super::Finding;
use crate::tree::Tree;

const MAP: &str = "ARCHITECTURE.md";
/// The sources whose modules have to be named.
const FOLDERS: &[&str] = &["lockfast/src/", "lockfast-cli/src/"];
/// The files in which the module of a folder may be written.
const ROOT_FILES: &[&str] = &["lib.rs", "main.rs", "mod.rs"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let map = tree.text(MAP).unwrap_or_default();
    let modules = tree.texts().map(|(path, _)| path).filter(|path| is_module(path));
    let unnamed =
        modules.filter(|path| !names(map, path) && !parent(path, tree).is_some_and(|it| names(&header(it), path)));
    let what = format!("neither {MAP} nor the header of its parent names this module: say there what it is for");
    unnamed.map(|path| Finding::new(path, 1, what.clone())).collect()
}

fn is_module(path: &str) -> bool {
    let Some(inside) = FOLDERS.iter().find_map(|folder| path.strip_prefix(folder)) else { return false };
    let is_test = inside.split(['/', '.']).any(|part| part == "tests");
    inside.ends_with(".rs") && !is_test && !matches!(inside, "lib.rs" | "main.rs")
}

/// `a/b.rs` and `a/b/mod.rs` are the module `b`.
fn stem(path: &str) -> &str {
    let path = path.strip_suffix("/mod.rs").unwrap_or(path.strip_suffix(".rs").unwrap_or(path));
    path.rsplit('/').next().unwrap_or(path)
}

/// The text of the module that this one is part of.
fn parent<'a>(path: &str, tree: &'a Tree) -> Option<&'a str> {
    let path = path.strip_suffix("/mod.rs").unwrap_or(path);
    let (folder, _) = path.rsplit_once('/')?;
    let inside = ROOT_FILES.iter().map(|root| format!("{folder}/{root}"));
    inside.chain([format!("{folder}.rs")]).find_map(|file| tree.text(&file))
}

/// The `//!` lines at the beginning of a file.
fn header(text: &str) -> String {
    text.lines().take_while(|line| line.starts_with("//!")).collect::<Vec<_>>().join("\n")
}

/// Whether a text names the module at `path`: in backticks, or in a drawing as a file, a folder or a path.
fn names(text: &str, path: &str) -> bool {
    let stem = stem(path);
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(stem).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + stem.len()..]);
        let is_whole = !before.ends_with(is_word);
        let is_file = after.starts_with(".rs") || after.starts_with('/');
        is_whole && (is_file || (after.starts_with('`') && (before.ends_with('`') || before.ends_with("::"))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unnamed(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn a_module_is_named_in_the_map_or_by_its_parent() {
        let table = "lockfast/src/table.rs";
        assert_eq!(unnamed(&[(MAP, "the table"), (table, "")]), [table]);
        assert_eq!(unnamed(&[(MAP, "`table.rs`: the rule"), (table, "")]), [""; 0]);
        assert_eq!(unnamed(&[("lockfast/src/lib.rs", "//! `table`: the rule\n"), (table, "")]), [""; 0]);
    }

    #[test]
    fn a_folder_is_a_module_and_its_files_are_named_in_its_header() {
        let files = [
            (MAP, "`engine/`"),
            ("lockfast/src/engine/mod.rs", "//! | `phase.rs` | the table |\nmod due;"),
            ("lockfast/src/engine/phase.rs", ""),
            ("lockfast/src/engine/due.rs", ""),
        ];
        assert_eq!(unnamed(&files), ["lockfast/src/engine/due.rs"]);
    }

    #[test]
    fn tests_and_other_crates_need_no_entry() {
        let files =
            [("lockfast/src/table/tests.rs", ""), ("lockfast/src/table/tests/laws.rs", ""), ("sim/src/a.rs", "")];
        assert_eq!(unnamed(&files), [""; 0]);
    }
}
