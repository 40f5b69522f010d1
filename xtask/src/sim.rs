//! `cargo xtask sim`: simulates worlds of many engines in virtual time, for as long as is wanted.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::invocation::Invocation;

const DEFAULT_SECONDS: &str = "60";

pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    let invocation = invocation(words)?;
    println!("sim: {invocation}");
    let (is_success, output) = invocation.run_and_read_stdout(root)?;
    let verdict = output.lines().next_back().filter(|line| line.contains("violations"));
    match (is_success, verdict) {
        (true, Some(_)) => Ok(()),
        (false, Some(verdict)) => bail!("{verdict}"),
        (_, None) => bail!("`{invocation}` ended without a verdict"),
    }
}

fn invocation(words: &[&str]) -> Result<Invocation> {
    for pair in words.chunks(2) {
        let [name, number] = pair else { bail!("`{}` needs a number; see `cargo xtask help`", pair[0]) };
        if !["--seconds", "--seed", "--seeds"].contains(name) {
            bail!("`sim` takes `--seconds N`, `--seed S` and `--seeds COUNT`, but was given {name:?}");
        }
        number.parse::<u64>().with_context(|| format!("`{number}` is not a number"))?;
    }
    let invocation = Invocation::new("cargo run --release -p sim --").with_args(words);
    Ok(match words.contains(&"--seconds") {
        true => invocation,
        false => invocation.with_args(&["--seconds", DEFAULT_SECONDS]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_seed_reach_the_simulation() {
        let command = invocation(&["--seed", "7", "--seconds", "5"]).unwrap().to_string();
        assert_eq!(command, "cargo run --release -p sim -- --seed 7 --seconds 5");
        assert!(invocation(&[]).unwrap().to_string().ends_with("--seconds 60"));
    }

    #[test]
    fn an_unknown_or_incomplete_option_is_refused() {
        for (words, part) in [(["--seed", "x"], "`x`"), (["--fast", "1"], "--fast"), (["7", "--seed"], "\"7\"")] {
            assert!(format!("{:#}", invocation(&words).unwrap_err()).contains(part), "{words:?}");
        }
        assert!(invocation(&["--seconds"]).unwrap_err().to_string().contains("needs a number"));
    }
}
