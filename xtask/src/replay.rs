//! `cargo xtask replay`: steps through a recording of the inputs of a client's engine.

use std::path::Path;

use anyhow::{Result, bail};

use crate::invocation::Invocation;

pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    invocation(words)?.run(root)
}

fn invocation(words: &[&str]) -> Result<Invocation> {
    if words.is_empty() {
        bail!("`replay` needs a recording; see `cargo xtask replay --help`");
    }
    let mut words: Vec<String> = words.iter().map(ToString::to_string).collect();
    // The replay runs in the repository's root, but the path is relative to the caller's working directory.
    if let Some(file) = file_among(&words) {
        words[file] = std::path::absolute(&words[file])?.display().to_string();
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Ok(Invocation::new("cargo run --quiet -p replay --").with_args(&words))
}

/// The first word that is neither an option nor the value of one.
fn file_among(words: &[String]) -> Option<usize> {
    let mut at = 0;
    while words.get(at)?.starts_with('-') {
        at += if matches!(words[at].as_str(), "--client" | "--from" | "--to") { 2 } else { 1 };
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recording_is_named_from_where_xtask_was_called() {
        let here = std::env::current_dir().unwrap();
        let command = invocation(&["--from", "7", "a.jsonl", "--to", "9"]).unwrap().to_string();
        let expected = format!("cargo run --quiet -p replay -- --from 7 {} --to 9", here.join("a.jsonl").display());
        assert_eq!(command, expected);
    }

    #[test]
    fn without_a_recording_it_is_refused_and_help_is_passed_on() {
        assert!(invocation(&[]).unwrap_err().to_string().contains("needs a recording"));
        assert_eq!(invocation(&["--help"]).unwrap().to_string(), "cargo run --quiet -p replay -- --help");
    }
}
