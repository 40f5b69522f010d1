//! The documents show the real output: every `console` block of `README.md` and `docs/` is typed into a shell, and its output
//! is compared with the document.
//!
//! Lines that begin with `$ ` are commands, lines that begin with `> ` continue them. The lines after a command are its whole
//! standard output and standard error, and a line like `? 75` is its exit code, if that is not 0. The blocks of one document
//! go into one shell with a home of its own; if one of them names `redis://localhost`, that is a server which was started for
//! the document. Text that differs between runs is written as an example; `compare.rs` says how examples are compared.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod compare;
mod shell;

use std::path::{Path, PathBuf};

use compare::Bindings;
use shell::Shell;

/// A command with its output and exit code in a document.
#[derive(Debug, Default)]
struct Step {
    line: usize,
    command: String,
    output: Vec<String>,
    code: i32,
}

/// The blocks of a document, each with its steps.
fn blocks(text: &str) -> Result<Vec<Vec<Step>>, String> {
    let mut blocks: Vec<Vec<Step>> = Vec::new();
    let mut is_inside = false;
    for (number, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line)) {
        if !is_inside {
            if line == "```console" {
                is_inside = true;
                blocks.push(Vec::new());
            }
            continue;
        }
        if line == "```" {
            is_inside = false;
            continue;
        }
        let steps = blocks.last_mut().ok_or("a line outside of a block")?;
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { line: number, command: command.to_owned(), ..Step::default() });
            continue;
        }
        let step = steps.last_mut().ok_or_else(|| format!("line {number}: a block begins with a command"))?;
        if let Some(rest) = line.strip_prefix("> ") {
            step.command += &format!("\n{rest}");
        } else if let Some(code) = line.strip_prefix("? ") {
            step.code = code.parse().map_err(|_| format!("line {number}: {code:?} is no exit code"))?;
        } else {
            step.output.push(line.to_owned());
        }
    }
    if is_inside || blocks.iter().any(Vec::is_empty) {
        return Err("a block without a command, or without an end".to_owned());
    }
    Ok(blocks)
}

/// Types a document into a shell. Returns how many blocks it has, or where it is wrong.
fn run(text: &str) -> Result<usize, String> {
    let blocks = blocks(text)?;
    let needs_redis = blocks.iter().flatten().any(|step| step.command.contains("redis://"));
    let mut shell = Shell::open(needs_redis.then(servers::Redis::start));
    let mut bindings = Bindings::default();
    for step in blocks.iter().flatten() {
        let (actual, code) = shell.enter(&bindings.apply(&step.command));
        let is_right = bindings.is_match(&step.output, &actual) && code == step.code;
        if !is_right {
            return Err(format!(
                "line {}: {}\nwritten:\n{}\n(exit code {})\nsaid:\n{}\n(exit code {code})\n",
                step.line,
                step.command,
                step.output.join("\n"),
                step.code,
                actual.join("\n"),
            ));
        }
    }
    Ok(blocks.len())
}

fn documents(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            documents(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

#[test]
fn the_documents_show_the_real_output() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = vec![root.join("README.md")];
    documents(&root.join("docs"), &mut found);
    let (mut count, mut wrong) = (0, Vec::new());
    for path in &found {
        match run(&std::fs::read_to_string(path).unwrap()) {
            Ok(blocks) => count += blocks,
            Err(error) => wrong.push(format!("{}, {error}", path.strip_prefix(root).unwrap().display())),
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    // A search that finds no blocks proves nothing.
    assert!(count >= 25, "only {count} blocks were found in {} documents", found.len());
}

fn block(lines: &str) -> String {
    format!("text\n\n```console\n{lines}\n```\n")
}

#[test]
fn a_block_with_the_real_output_is_accepted() {
    for right in [
        "$ echo a  b\na b",
        "$ echo one; echo two >&2\none\ntwo",
        "$ sh -c 'exit 3'\n? 3",
        "$ name=lock\n$ echo $name\nlock",
        "$ echo one\\\n> two\nonetwo",
        "$ printf 'a\\nb\\nc\\n'\n...\nc",
        "$ echo 'pid 17 for 1m2s, 00112233445566778899'\npid 812 for 3m12s, 1790000000000041",
        "$ echo some words\nsome [..]",
        "$ lockfast run a -- sh -c 'echo $LOCKFAST_FENCE'\n1790000000000041\n$ test 1790000000000041 -gt 1790000000000041\n? 1",
        "$ lockfast run a -- sleep 600 &\n$ lockfast run --skip a -- true\nlockfast: skipped: held by web-1 (pid 812) for 2s",
    ] {
        assert_eq!(run(&block(right)), Ok(1), "{right}");
    }
}

#[test]
fn a_block_with_another_output_is_refused() {
    for wrong in [
        "$ echo one\ntwo",
        "$ echo one",
        "$ true\none",
        "$ echo one\none\ntwo",
        "$ false",
        "$ sh -c 'exit 3'\n? 4",
        "$ echo 17 for 1m2s\n18 for 1m2s",
        "$ echo 1m2s\nsoon",
        "$ echo 1790000000000001 1790000000000002\n1790000000000041 1790000000000041",
        "$ echo 1790000000000001 1790000000000001\n1790000000000041 1790000000000042",
        "one\n$ echo one",
    ] {
        assert!(run(&block(wrong)).is_err(), "{wrong}");
    }
    assert!(run("```console\n$ true\n").is_err(), "a block without an end");
    assert!(run("```console\n```\n").is_err(), "a block without a command");
}
