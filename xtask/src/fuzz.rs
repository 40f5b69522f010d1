//! `cargo xtask fuzz`: compares our parser of Redis replies with that of the `redis` crate, for as long as is wanted.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::invocation::Invocation;

const DEFAULT_SECONDS: u64 = 60;
const TEST: &str = "stores::redis::connection::parser::fuzz::the_parser_reads_what_the_crate_reads";
/// The beginning of the line that ends the report.
const VERDICT: &str = "violations: ";

pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    let invocation = invocation(words)?;
    println!("fuzz: {invocation}");
    let (is_success, output) = invocation.run_and_read_stdout(root)?;
    // If the test was renamed, cargo runs no test and succeeds.
    let Some(verdict) = output.lines().rfind(|line| line.starts_with(VERDICT)) else {
        bail!("`{invocation}` compared nothing")
    };
    if !is_success {
        bail!("{verdict}");
    }
    println!("{verdict}");
    Ok(())
}

fn invocation(words: &[&str]) -> Result<Invocation> {
    let (mut seconds, mut seed) = (DEFAULT_SECONDS, None);
    for pair in words.chunks(2) {
        let number = || -> Result<u64> {
            let Some(text) = pair.get(1) else { bail!("`{}` needs a number; see `cargo xtask help`", pair[0]) };
            text.parse().with_context(|| format!("`{text}` is not a number"))
        };
        match pair[0] {
            "--seconds" => seconds = number()?,
            "--seed" => seed = Some(number()?),
            unknown => bail!("`fuzz` takes `--seconds N` and `--seed S`, but was given {unknown:?}"),
        }
    }
    let line = format!("cargo test --release -p lockfast --features redis --lib -- --exact {TEST} --nocapture");
    let invocation = Invocation::new(&line).with_variable("LOCKFAST_FUZZ_SECONDS", &seconds.to_string());
    Ok(match seed {
        Some(seed) => invocation.with_variable("LOCKFAST_FUZZ_SEED", &seed.to_string()),
        None => invocation,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_seed_reach_the_test() {
        let command = invocation(&["--seed", "7", "--seconds", "5"]).unwrap().to_string();
        assert!(command.starts_with("LOCKFAST_FUZZ_SECONDS=5 LOCKFAST_FUZZ_SEED=7 cargo test --release"), "{command}");
        assert!(!invocation(&[]).unwrap().to_string().contains("SEED"));
    }

    #[test]
    fn an_unknown_or_incomplete_option_is_refused() {
        for (words, part) in [(["--seed", "x"], "`x`"), (["--fast", "1"], "--fast"), (["7", "--seed"], "\"7\"")] {
            assert!(format!("{:#}", invocation(&words).unwrap_err()).contains(part), "{words:?}");
        }
        assert!(invocation(&["--seconds"]).unwrap_err().to_string().contains("needs a number"));
    }
}
