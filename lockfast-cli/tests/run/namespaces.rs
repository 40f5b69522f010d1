//! Processes in other time namespaces, whose clocks since boot differ.

use std::process::{Command, Stdio};

use crate::fixture::{Outcome, now};
use crate::processes::{Running, SharedStore, outcome};

/// A command line of lockfast in a time namespace whose clock is ahead by this many seconds.
fn ahead_by(seconds: i64, shared: &SharedStore, args: &[&str]) -> Command {
    let plain = shared.lockfast(args);
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--time", "--boottime", &seconds.to_string(), "--fork", "--"]);
    command.arg(plain.get_program()).args(args).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("LOCKFAST_URL", shared.url()).env("HOME", shared.path()).current_dir(shared.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn assert_refused(output: &Outcome) {
    assert_eq!((output.code, output.stdout.as_str()), (Some(75), ""), "{}", output.stderr);
}

/// Of two processes with clocks apart by `seconds`, each holds the lock with a lease of 10 s while the other is refused.
fn assert_exclusion(seconds: i64) {
    let shared = SharedStore::new();
    let attempt = ["run", "-n", "k", "--", "echo", "never"];
    let (mut here, _) = shared.hold(&["--ttl", "10", "k"]);
    assert_refused(&outcome(ahead_by(seconds, &shared, &attempt)));
    assert_refused(&outcome(ahead_by(seconds, &shared, &attempt)));
    here.write("\n");
    assert_eq!(here.end().code, Some(0), "it kept the lock to the end");
    let hold = ["run", "--ttl", "10", "k", "--", "sh", "-c", "echo $$; read line"];
    let mut holding = ahead_by(seconds, &shared, &hold);
    holding.stdin(Stdio::piped());
    let mut there = Running::start(holding);
    there.read_pid();
    assert_refused(&shared.run(&attempt));
    assert_refused(&shared.run(&attempt));
    there.write("\n");
    assert_eq!(there.end().code, Some(0), "it kept the lock to the end");
}

#[test]
fn a_clock_that_is_ahead_in_its_namespace_ends_no_lease_early() {
    assert_exclusion(100_000);
}

#[test]
fn a_clock_that_is_behind_in_its_namespace_ends_no_lease_early() {
    // The kernel refuses an offset that makes the clock negative.
    let since_boot = i64::try_from(now().as_nanos() / 1_000_000_000).unwrap();
    assert_exclusion(-since_boot / 2);
}
