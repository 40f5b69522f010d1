//! How long each test binary may take on two cores that do nothing else: about twice its usual time.
//!
//! A suite grows a little with every change, until it is too slow to be run before a commit. A binary over its budget fails
//! the run: make it faster, move its long parts to a task of their own, or raise the budget here, knowingly.

use std::fmt::Write;

use anyhow::{Result, bail};

/// The budget, in seconds, of a binary that is not listed.
const DEFAULT_BUDGET: f64 = 60.0;

/// The name of a binary, and its budget in seconds.
const BUDGETS: &[(&str, f64)] = &[
    ("conformance_chaos", 120.0),
    ("conformance_redis", 100.0),
    ("processes", 180.0),
    ("redis_suites", 180.0),
    ("redis_trouble", 260.0),
    ("run", 130.0),
    ("worlds", 40.0),
];

/// A test binary that ran.
#[derive(Debug, PartialEq)]
struct BinaryRun {
    name: String,
    tests: u32,
    seconds: f64,
}

/// Prints how long each binary took by the output of `cargo test`, and fails if one took too long.
pub(crate) fn check(output: &str) -> Result<()> {
    let mut runs = parse_output(output);
    runs.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    let (mut table, mut over) = (String::from("\nseconds  budget  tests  binary\n"), Vec::new());
    for BinaryRun { name, tests, seconds } in &runs {
        let budget = budget(name);
        let _ = writeln!(table, "{seconds:7.1}  {budget:6.0}  {tests:5}  {name}");
        if *seconds > budget {
            over.push(name.as_str());
        }
    }
    println!("{table}");
    if !over.is_empty() {
        bail!("over budget: {}; the budgets are in xtask/src/budgets.rs", over.join(", "));
    }
    Ok(())
}

fn budget(name: &str) -> f64 {
    BUDGETS.iter().find(|(listed, _)| *listed == name).map_or(DEFAULT_BUDGET, |(_, seconds)| *seconds)
}

/// Cargo prints the name of a binary before it runs it, and the binary prints its time at the end.
fn parse_output(output: &str) -> Vec<BinaryRun> {
    let (mut runs, mut name) = (Vec::new(), None);
    for line in output.lines() {
        let line = line.trim();
        if let Some(program) = line.strip_prefix("Running ").and_then(|rest| rest.split(['(', ')']).nth(1)) {
            let file = program.rsplit('/').next().unwrap_or(program);
            name = Some(file.rsplit_once('-').map_or(file, |(stem, _)| stem).to_string());
        } else if let Some(package) = line.strip_prefix("Doc-tests ") {
            name = Some(format!("examples in the documentation of {package}"));
        } else if let Some((tests, seconds)) = parse_result(line) {
            let name = name.clone().unwrap_or_default();
            runs.push(BinaryRun { name, tests, seconds });
        }
    }
    runs
}

/// The number of tests and the seconds in `test result: ok. 3 passed; 0 failed; ..; finished in 0.12s`.
fn parse_result(line: &str) -> Option<(u32, f64)> {
    let rest = line.strip_prefix("test result: ")?;
    let passed = rest.split(". ").nth(1)?.split(' ').next()?.parse().ok()?;
    let seconds = rest.rsplit_once("finished in ")?.1.strip_suffix('s')?.parse().ok()?;
    Some((passed, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
     Running unittests src/lib.rs (target/debug/deps/lockfast-0123456789abcdef)
running 2 tests
test a ... ok
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.52s

     Running tests/redis_trouble/main.rs (target/debug/deps/redis_trouble-fedcba9876543210)
test result: ok. 30 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 3600.00s

   Doc-tests lockfast
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 7.00s
";

    #[test]
    fn each_binary_is_read_with_its_tests_and_seconds() {
        let run = |name: &str, tests, seconds| BinaryRun { name: name.to_string(), tests, seconds };
        let documentation = "examples in the documentation of lockfast";
        let expected = [run("lockfast", 2, 0.52), run("redis_trouble", 30, 3600.0), run(documentation, 1, 7.0)];
        assert_eq!(parse_output(OUTPUT), expected);
    }

    #[test]
    fn a_binary_over_its_budget_fails_the_run_by_name() {
        let refused = check(OUTPUT).unwrap_err().to_string();
        assert!(refused.contains("redis_trouble") && !refused.contains("documentation"), "{refused}");
        assert!(check(&OUTPUT.replace("3600.00", "1.00")).is_ok());
    }
}
