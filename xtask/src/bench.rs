//! `cargo xtask bench`: measurements, always in release mode; numbers from a debug build mislead.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::invocation::Invocation;

/// The benchmarks of the `bench` crate, to be listed; the crate itself decides what a name means.
const BENCHMARKS: &[(&str, &str)] = &[
    ("core", "the library over the in-process store: the cost of lockfast itself, without a network"),
    ("sqlite", "the store in one file and `lockfast run`, beside bare SQLite transactions and flock"),
    ("redis", "the Redis store, beside bare commands, BLPOP and other lock libraries; see `redis --help`"),
    ("compare", "the Redis store of this tree and of another one in turn: compare OTHER-TREE [SECTION..] [--rounds N]"),
];

pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    if words.is_empty() {
        println!("Choose one: cargo xtask bench NAME");
        for (name, measures) in BENCHMARKS {
            println!("    {name:<8} {measures}");
        }
        return Ok(());
    }
    if let ["compare", rest @ ..] = words {
        return compare(root, rest);
    }
    if words[0] == "sqlite" {
        // This benchmark starts `lockfast` too.
        Invocation::new("cargo build --release -p lockfast-cli").run(root)?;
    }
    invocation(words).run(root)
}

/// The other tree is a second checkout, for example one made with `git worktree add ../before COMMIT`.
fn compare(root: &Path, words: &[&str]) -> Result<()> {
    let [other, rest @ ..] = words else { bail!("`compare` needs the path of the tree to compare with") };
    let other = Path::new(other).canonicalize().with_context(|| format!("there is no tree at {other}"))?;
    let build = Invocation::new("cargo build --release -p bench --features redis");
    build.run(&other)?;
    build.run(root)?;
    let bench = other.join("target/release/bench");
    Invocation::new("target/release/bench redis-compare")
        .with_args(&[&bench.to_string_lossy()])
        .with_args(rest)
        .run(root)
}

fn invocation(words: &[&str]) -> Invocation {
    // Only this benchmark needs the other libraries, so only it compiles them.
    let features = if words[0] == "redis" { "--features redis " } else { "" };
    Invocation::new(&format!("cargo run --release -p bench {features}--")).with_args(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_after_the_name_go_to_the_benchmark() {
        let command = invocation(&["core", "--help"]).to_string();
        assert_eq!(command, "cargo run --release -p bench -- core --help");
    }

    #[test]
    fn other_libraries_are_compiled_only_to_be_compared_with() {
        let command = invocation(&["redis", "uncontended"]).to_string();
        assert_eq!(command, "cargo run --release -p bench --features redis -- redis uncontended");
    }
}
