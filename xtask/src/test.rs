//! `cargo xtask test`: every check, cheapest first, up to the first that fails.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::invocation::Invocation;
use crate::redis::Server;
use crate::{budgets, features, setup, tidy};

struct Step {
    name: String,
    /// The command that repeats this step.
    command: Invocation,
    check: Check,
}

#[derive(Debug, PartialEq, Eq)]
enum Check {
    /// Run `command` itself.
    Command,
    /// Run `command` itself, and hold its test binaries to their budgets.
    Tests,
    /// Call `tidy` here instead of starting another xtask.
    Tidy,
}

pub(crate) fn run(root: &Path, server: &Server) -> Result<()> {
    let started = now();
    setup::run(root)?;
    let version = server.version()?;
    println!("test: Redis tests run with {version}");
    let manifest = root.join("lockfast/Cargo.toml");
    let manifest = fs::read_to_string(&manifest).with_context(|| format!("could not read {}", manifest.display()))?;
    let steps = steps(&features::declared(&manifest), server);
    run_in_order(&steps, |step| match step.check {
        Check::Command => step.command.run(root),
        Check::Tests => budgets::check(&step.command.run_and_read(root)?),
        Check::Tidy => tidy::run(root),
    })?;
    println!("\nAll {} steps passed in {:.1} s, with {version}.", steps.len(), started.elapsed().as_secs_f64());
    Ok(())
}

fn steps(features: &[String], server: &Server) -> Vec<Step> {
    let command_step = |name: &str, command| Step { name: name.to_string(), command, check: Check::Command };
    let mut steps = vec![
        command_step("fmt", Invocation::new("cargo fmt --all --check")),
        command_step("clippy", Invocation::new("cargo clippy --workspace --all-targets --all-features -- -D warnings")),
        command_step(
            "doc",
            Invocation::new("cargo doc --workspace --no-deps --all-features")
                .with_variable("RUSTDOCFLAGS", "-D warnings"),
        ),
        Step { name: "tidy".to_string(), command: Invocation::new("cargo xtask tidy"), check: Check::Tidy },
        // No `--all-targets` here: with it cargo leaves out the doctests.
        Step {
            name: "tests and doctests".to_string(),
            command: server.configure(Invocation::new("cargo test --workspace --all-features")),
            check: Check::Tests,
        },
        command_step("lockfast without features", Invocation::new("cargo check -p lockfast --no-default-features")),
    ];
    for feature in features {
        let alone = Invocation::new("cargo check -p lockfast --no-default-features --features").with_args(&[feature]);
        steps.push(command_step(&format!("lockfast with {feature} alone"), alone));
    }
    steps
}

fn run_in_order(steps: &[Step], mut check: impl FnMut(&Step) -> Result<()>) -> Result<()> {
    for (index, step) in steps.iter().enumerate() {
        println!("\n[{}/{}] {}: {}", index + 1, steps.len(), step.name, step.command);
        let started = now();
        let outcome = check(step);
        let seconds = started.elapsed().as_secs_f64();
        outcome.with_context(|| {
            format!("step `{}` failed after {seconds:.1} s; repeat it with: {}", step.name, step.command)
        })?;
        println!("[{}/{}] {}: ok, {seconds:.1} s", index + 1, steps.len(), step.name);
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "how long a step took is for people to read; no lease depends on it")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    fn names(steps: &[Step]) -> Vec<&str> {
        steps.iter().map(|step| step.name.as_str()).collect()
    }

    #[test]
    fn cheap_checks_come_first_and_each_feature_is_checked_alone() {
        let steps = steps(&["redis".to_string(), "etcd".to_string()], &Server::default());
        let expected = [
            "fmt",
            "clippy",
            "doc",
            "tidy",
            "tests and doctests",
            "lockfast without features",
            "lockfast with redis alone",
            "lockfast with etcd alone",
        ];
        assert_eq!(names(&steps), expected);
        let last = steps.last().unwrap().command.to_string();
        assert_eq!(last, "cargo check -p lockfast --no-default-features --features etcd");
    }

    #[test]
    fn doctests_run_exactly_once() {
        let steps = steps(&["redis".to_string()], &Server::default());
        let commands: Vec<String> = steps.iter().map(|step| step.command.to_string()).collect();
        let tests: Vec<&String> = commands.iter().filter(|line| line.starts_with("cargo test")).collect();
        assert_eq!(tests, ["cargo test --workspace --all-features"]);
    }

    #[test]
    fn the_first_failure_ends_the_run_and_says_how_to_repeat_it() {
        let steps = steps(&[], &Server::default());
        let mut ran = Vec::new();
        let error = run_in_order(&steps, |step| {
            ran.push(step.name.clone());
            if step.name == "clippy" { bail!("two warnings") } else { Ok(()) }
        })
        .unwrap_err();
        assert_eq!(ran, ["fmt", "clippy"]);
        let message = format!("{error:#}");
        assert!(message.contains("step `clippy` failed"), "{message}");
        assert!(message.contains("cargo clippy --workspace --all-targets --all-features -- -D warnings"), "{message}");
        assert!(message.contains("two warnings"), "{message}");
    }
}
