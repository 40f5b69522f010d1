//! The files of the repository, read once, for `tidy`.
//!
//! A file belongs to it when git tracks it or would offer to. Paths are relative to the root, with `/`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::invocation::Invocation;

#[derive(Debug, Default)]
pub(crate) struct Tree {
    texts: BTreeMap<String, String>,
    /// Every file, also those that are not text, and every folder with a file in it.
    paths: BTreeSet<String>,
}

impl Tree {
    /// Reads the repository at `root`.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        for path in list(root)? {
            let bytes = match fs::read(root.join(&path)) {
                Ok(bytes) => bytes,
                // Deleted but not yet committed, or a link to a folder: there is no text to check.
                Err(_) => continue,
            };
            tree.add(&path, String::from_utf8(bytes).ok());
        }
        Ok(tree)
    }

    /// A tree of these files, for tests of the checks.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        files.iter().for_each(|(path, text)| tree.add(path, Some(text.to_string())));
        tree
    }

    fn add(&mut self, path: &str, text: Option<String>) {
        self.paths.insert(path.to_string());
        self.paths.extend(path.match_indices('/').map(|(end, _)| path[..end].to_string()));
        if let Some(text) = text {
            self.texts.insert(path.to_string(), text);
        }
    }

    /// Path and text of every text file.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// The file or folder that `path` means when it is read in `folder`, if there is one.
    pub(crate) fn find(&self, folder: &str, path: &str) -> Option<&str> {
        let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop()?;
                }
                name => parts.push(name),
            }
        }
        if parts.is_empty() {
            return Some("");
        }
        self.paths.get(&parts.join("/")).map(String::as_str)
    }
}

fn list(root: &Path) -> Result<Vec<String>> {
    // In a container the repository often belongs to another user; git then needs this setting.
    let trusted = format!("safe.directory={}", root.display());
    let git = Invocation::new("git").with_args(&["-c", &trusted, "ls-files", "-z"]);
    let listed = git.with_args(&["--cached", "--others", "--exclude-standard"]).read(root).unwrap_or_default();
    let mut paths: Vec<String> = listed.split_terminator('\0').map(str::to_string).collect();
    if paths.is_empty() {
        // An unpacked archive without git: all files except build output.
        walk(root, "", &mut paths)?;
    }
    Ok(paths)
}

fn walk(root: &Path, folder: &str, paths: &mut Vec<String>) -> Result<()> {
    let entries = fs::read_dir(root.join(folder)).with_context(|| format!("could not list {folder:?}"))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("could not list {folder:?}"))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if name == ".git" || name == "target" {
            continue;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(root, &path, paths)?;
        } else {
            paths.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_from_the_folder_they_are_read_in() {
        let tree = Tree::of(&[("docs/adr/one.md", ""), ("README.md", "")]);
        assert_eq!(tree.find("", "docs/adr/one.md"), Some("docs/adr/one.md"));
        assert_eq!(tree.find("docs/adr", "../../README.md"), Some("README.md"));
        assert_eq!(tree.find("docs", "adr/"), Some("docs/adr"));
        assert_eq!(tree.find("", "docs/two.md"), None);
    }

    #[test]
    fn a_path_that_leaves_the_repository_is_not_found() {
        assert_eq!(Tree::of(&[("README.md", "")]).find("", "../README.md"), None);
    }

    #[test]
    fn git_and_a_plain_walk_both_see_this_file_and_no_build_output() {
        let root = crate::root();
        let mut walked = Vec::new();
        walk(&root, "", &mut walked).unwrap();
        for paths in [list(&root).unwrap(), walked] {
            assert!(paths.contains(&"xtask/src/tree.rs".to_string()));
            assert!(!paths.iter().any(|path| path.starts_with("target/") || path.starts_with(".git/")));
        }
    }
}
