//! `cargo xtask bench`: measurements, always in release mode; numbers from a debug build mislead.

use std::path::Path;

use anyhow::Result;

use crate::invocation::Invocation;

/// What the `bench` crate can measure, for people who ask; the crate itself decides what a name means.
const BENCHMARKS: &[(&str, &str)] = &[
    ("core", "the library over the in-process store: the cost of lockfast itself, without a network"),
    ("sqlite", "the store in one file and `lockfast run`, beside bare SQLite transactions and flock"),
    ("redis", "the Redis store, beside bare commands, BLPOP and other lock libraries; `redis --help` says more"),
];

pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    if words.is_empty() {
        println!("Say which: cargo xtask bench NAME");
        for (name, measures) in BENCHMARKS {
            println!("    {name:<8} {measures}");
        }
        return Ok(());
    }
    if words[0] == "sqlite" {
        // It starts the command line too.
        Invocation::new("cargo build --release -p lockfast-cli").run(root)?;
    }
    invocation(words).run(root)
}

fn invocation(words: &[&str]) -> Invocation {
    // Only this one is compared with other libraries, and only for it are they compiled.
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
