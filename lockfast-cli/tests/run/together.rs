//! Several processes that want the same lock.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use crate::stage::{Running, Shared, is_alive, kill, now, state_of, until};

#[test]
fn who_does_not_wait_is_told_who_has_it() {
    let shared = Shared::new();
    let (holder, _) = shared.hold(&["--name", "the night shift", "nightly"]);
    let refused = shared.run(&["run", "-n", "nightly", "--", "echo", "never"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(75), ""));
    let host = rustix::system::uname();
    let who = format!("the night shift on {} (pid {}) for ", host.nodename().to_str().unwrap(), holder.pid());
    assert!(refused.stderr.starts_with(&format!("lockfast: nightly is held by {who}")), "{}", refused.stderr);
    assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    assert!(!refused.stderr.contains("gave up"), "who asks once has waited for nobody: {}", refused.stderr);

    for no_patience in [&["-n", "-E", "3"][..], &["-w", "0", "-E", "3"]] {
        let line: Vec<&str> = [&["run"], no_patience, &["nightly", "--", "true"]].concat();
        assert_eq!(shared.run(&line).code, Some(3));
    }
    let skipped = shared.run(&["run", "--skip", "nightly", "--", "echo", "never"]);
    assert_eq!((skipped.code, skipped.stdout.as_str()), (Some(0), ""));
    assert!(skipped.stderr.contains(&format!("skipped: held by {who}")), "{}", skipped.stderr);
}

#[test]
fn patience_ends() {
    let shared = Shared::new();
    let (_holder, _) = shared.hold(&["k"]);
    let began = now();
    let refused = shared.run(&["run", "-w", "300ms", "k", "--", "true"]);
    assert_eq!(refused.code, Some(75));
    assert!(now().since(began) >= Duration::from_millis(300));
    assert!(refused.stderr.contains("gave up after"), "{}", refused.stderr);
}

#[test]
fn who_waits_is_told_who_is_in_the_way_and_gets_it_next() {
    let shared = Shared::new();
    let (mut holder, _) = shared.hold(&["k"]);
    let mut waiter = Running::start(shared.lockfast(&["-v", "run", "k", "--", "echo", "mine"]));
    until("it is said", || {
        let line = waiter.error_line();
        line.contains("waiting for k, held by") && line.ends_with("next in line")
    });
    assert!(!waiter.has_ended());
    holder.write("done\n");
    assert_eq!(waiter.line(), "mine");
    assert_eq!(waiter.end().code, Some(0));
}

#[test]
fn each_signal_ends_the_wait_and_gives_the_place_up() {
    let shared = Shared::new();
    let (mut holder, _) = shared.hold(&["k"]);
    let signals = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];
    for signal in signals {
        let waiter = Running::start(shared.lockfast(&["run", "k", "--", "echo", "never"]));
        shared.until_in_line("k", 2);
        waiter.signal(signal);
        let said = waiter.end();
        assert_eq!((said.code, said.stdout.as_str()), (Some(128 + signal.as_raw()), ""));
        shared.until_in_line("k", 1);
    }
    holder.write("done\n");
    assert_eq!(holder.end().code, Some(0));
}

#[test]
fn a_signal_ends_the_wait_for_a_file_that_somebody_keeps_locked() {
    let shared = Shared::new();
    assert_eq!(shared.run(&["run", "k", "--", "true"]).code, Some(0));
    let file = rusqlite::Connection::open(shared.path().join("locks.db")).unwrap();
    file.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiter = Running::start(shared.lockfast(&["run", "k", "--", "echo", "never"]));
    until("it listens to signals", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", waiter.pid())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default().trim();
        u64::from_str_radix(caught, 16).is_ok_and(|caught| caught & (1 << (Signal::TERM.as_raw() - 1)) != 0)
    });
    let asked = now();
    waiter.signal(Signal::TERM);
    assert_eq!(waiter.end().code, Some(128 + Signal::TERM.as_raw()));
    assert!(now().since(asked) < Duration::from_secs(3), "{:?}", now().since(asked));
}

#[test]
fn readers_share_and_writers_do_not() {
    let shared = Shared::new();
    let (_reader, _) = shared.hold(&["-s", "k"]);
    assert_eq!(shared.run(&["run", "-s", "-n", "k", "--", "true"]).code, Some(0));
    assert_eq!(shared.run(&["run", "-x", "-n", "k", "--", "true"]).code, Some(75));
    assert_eq!(shared.run(&["run", "-n", "k", "--", "true"]).code, Some(75));
}

#[test]
fn there_are_as_many_slots_as_everybody_says() {
    let shared = Shared::new();
    let (_one, _) = shared.hold(&["-j", "2", "k"]);
    assert_eq!(shared.run(&["run", "-j", "2", "-n", "k", "--", "true"]).code, Some(0));
    let (_two, _) = shared.hold(&["-j", "2", "k"]);
    assert_eq!(shared.run(&["run", "-j", "2", "-n", "k", "--", "true"]).code, Some(75));
    assert_eq!(shared.run(&["run", "-j", "3", "-n", "k", "--", "true"]).code, Some(64));
}

#[test]
fn several_are_taken_together_or_not_at_all() {
    let shared = Shared::new();
    let (_holder, _) = shared.hold(&["--also", "b", "--also", "c", "a"]);
    for key in ["a", "b", "c"] {
        assert_eq!(shared.run(&["run", "-n", key, "--", "true"]).code, Some(75), "{key}");
    }
    assert_eq!(shared.run(&["run", "-n", "--also", "c", "d", "--", "true"]).code, Some(75));
    assert_eq!(shared.run(&["run", "-n", "d", "--", "true"]).code, Some(0));
}

#[test]
fn a_run_inside_a_run_of_the_same_key_is_refused_at_once() {
    let shared = Shared::new();
    let lockfast = env!("CARGO_BIN_EXE_lockfast");
    let inner = format!("{lockfast} run k -- echo never");
    let through = format!("{lockfast} run other -c '{inner}'");
    let lines: [&[&str]; 4] = [
        &["run", "k", "-c", &inner],
        &["run", "k", "-c", &through],
        &["run", "--also", "k", "l", "-c", &inner],
        &["elect", "k", "-c", &inner],
    ];
    for line in lines {
        let refused = shared.run(line);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(64), ""), "{line:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("k is held by a lockfast around this one"), "{}", refused.stderr);
    }
    let both = format!("{lockfast} run --also k m -- echo never");
    assert_eq!(shared.run(&["run", "k", "-c", &both]).code, Some(64));
    let another = format!("{lockfast} run 'k ' -- echo fine");
    assert_eq!(shared.run(&["run", "k", "-c", &another]).stdout, "fine\n");
}

#[test]
fn a_run_inside_a_run_finds_the_same_store_however_the_outer_one_was_told() {
    let shared = Shared::new();
    let inner = format!("cd / && {} run -n k -- echo never", env!("CARGO_BIN_EXE_lockfast"));
    for outer in [&["run", "--store", "sqlite:other.db", "k", "-c", &inner][..], &["run", "k", "-c", &inner]] {
        let mut command = shared.lockfast(outer);
        command.current_dir(shared.path());
        let said = crate::stage::outcome(command);
        assert_eq!((said.code, said.stdout.as_str()), (Some(64), ""), "{outer:?}: {}", said.stderr);
    }
}

#[test]
fn an_old_environment_keeps_nobody_out() {
    let shared = Shared::new();
    let said = shared.run(&["run", "k", "--", "env"]).stdout;
    let holds = said.lines().find_map(|line| line.strip_prefix("LOCKFAST_HOLDS=")).unwrap();
    let mut command = shared.lockfast(&["run", "k", "--", "echo", "fine"]);
    command.env("LOCKFAST_HOLDS", holds);
    assert_eq!(crate::stage::outcome(command).stdout, "fine\n");
}

#[test]
fn what_was_done_once_is_not_done_again() {
    let shared = Shared::new();
    let once = ["run", "--once", "1h", "order:7"];
    let with = |command: &[&'static str]| [&once[..], command].concat();
    assert_eq!(shared.run(&with(&["--", "sh", "-c", "exit 3"])).code, Some(3), "which is not done");
    let first = shared.run(&with(&["--", "echo", "shipped"]));
    assert_eq!((first.code, first.stdout.as_str()), (Some(0), "shipped\n"));
    let again = shared.run(&with(&["--", "echo", "shipped"]));
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), ""));
    assert!(again.stderr.contains("order:7 was done already") && again.stderr.lines().count() == 1, "{}", again.stderr);
}

#[test]
fn a_crash_is_not_done() {
    let shared = Shared::new();
    let (crashing, command) = shared.hold(&["--once", "1h", "order:7"]);
    let refused = shared.run(&["run", "-n", "--once", "1h", "order:7", "--", "echo", "never"]);
    assert_eq!(refused.code, Some(75), "{}", refused.stderr);
    crashing.signal(Signal::KILL);
    until("the command is dead", || !is_alive(command));
    assert_eq!(shared.run(&["run", "--once", "1h", "order:7", "--", "echo", "shipped"]).stdout, "shipped\n");
}

#[test]
fn a_command_that_died_of_a_signal_is_not_done() {
    let shared = Shared::new();
    for (signal, code) in [("KILL", 137), ("TERM", 143)] {
        let killed = shared.run(&["run", "--once", "1h", "order:7", "-c", &format!("kill -{signal} $$")]);
        assert_eq!(killed.code, Some(code), "{}", killed.stderr);
    }
    assert_eq!(shared.run(&["run", "--once", "1h", "order:7", "--", "echo", "shipped"]).stdout, "shipped\n");
}

#[test]
fn a_quick_command_keeps_the_lock_without_being_kept() {
    let shared = Shared::new();
    let began = now();
    assert_eq!(shared.run(&["run", "--at-least", "20", "k", "--", "true"]).code, Some(0));
    assert!(now().since(began) < Duration::from_secs(15), "lockfast does not wait for it");
    assert_eq!(shared.run(&["run", "-n", "k", "--", "true"]).code, Some(75));
}

#[test]
fn a_store_that_cannot_be_opened_is_69() {
    let nowhere = crate::stage::run(&["run", "--store", "sqlite:/nowhere/at/all/x.db", "k", "--", "true"]);
    assert_eq!(nowhere.code, Some(69), "{}", nowhere.stderr);
}

/// A command that ignores being asked to end, and keeps a file that says it runs.
pub(crate) fn stubborn(shared: &Shared, options: &[&str]) -> (Running, u32) {
    let script = "trap '' TERM; echo $$; while :; do sleep 1; done";
    let line: Vec<&str> = [&["run"], options, &["k", "--", "sh", "-c", script]].concat();
    let mut running = Running::start(shared.lockfast(&line));
    let command = running.line_pid();
    (running, command)
}

/// The fencing token of the holder.
pub(crate) fn fence_of(shared: &Shared, key: &str) -> String {
    let line = shared.run(&["inspect", "-o", "json", key]).stdout;
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    line["holders"][0]["fence"].to_string()
}

/// Waits for the lock, and then says whether `command` is there.
pub(crate) fn next_one(shared: &Shared, command: u32) -> Running {
    // One that is dead and not waited for yet is dead.
    let state = format!("$(cut -d' ' -f3 /proc/{command}/stat 2>/dev/null)");
    let script = format!("case \"{state}\" in ''|Z|X) echo alone;; *) echo two at once;; esac");
    let mut line = shared.lockfast(&["run", "k", "--", "sh", "-c", &script]);
    line.stdin(Stdio::null());
    let waiter = Running::start(line);
    shared.until_in_line("k", 2);
    waiter
}

#[test]
fn the_command_is_dead_before_a_broken_lock_passes_on() {
    let shared = Shared::new();
    for _ in 0..3 {
        let (holder, command) = stubborn(&shared, &["-k", "0.2"]);
        let waiter = next_one(&shared, command);
        let broken = shared.run(&["break", "k", "--fence", &fence_of(&shared, "k")]);
        assert_eq!(broken.code, Some(0), "{}", broken.stderr);
        assert_eq!(waiter.line(), "alone");
        assert_eq!(waiter.end().code, Some(0));
        let said = holder.end();
        assert_eq!(said.code, Some(79));
        assert!(said.stderr.contains("an operator broke it"), "{}", said.stderr);
        assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
    }
}

#[test]
fn the_command_is_dead_before_the_lock_of_a_killed_lockfast_passes_on() {
    let shared = Shared::new();
    for _ in 0..5 {
        let (holder, command) = stubborn(&shared, &["-k", "0.1"]);
        let waiter = next_one(&shared, command);
        holder.signal(Signal::KILL);
        assert_eq!(waiter.line(), "alone");
        assert_eq!(waiter.end().code, Some(0));
    }
}

#[test]
fn the_command_is_dead_before_the_lock_of_a_stopped_lockfast_passes_on() {
    let shared = Shared::new();
    let (holder, command) = stubborn(&shared, &["--ttl", "2", "-k", "0.2"]);
    let waiter = next_one(&shared, command);
    holder.stop();
    assert_eq!(waiter.line(), "alone");
    assert_eq!(holder.end().code, Some(79));
}

#[test]
fn the_command_is_dead_before_a_lock_that_was_held_long_enough_passes_on() {
    let shared = Shared::new();
    let (holder, command) = stubborn(&shared, &["--at-most", "1", "-k", "0.2"]);
    let waiter = next_one(&shared, command);
    assert_eq!(waiter.line(), "alone");
    assert_eq!(holder.end().code, Some(124));
}

#[test]
fn never_two_at_once_and_all_get_their_turn() {
    let shared = Shared::new();
    let flag = shared.path().join("inside");
    let script = format!("mkdir {0} && sleep 0.01 && rmdir {0}", flag.display());
    let all: Vec<Running> =
        (0..12).map(|_| Running::start(shared.lockfast(&["run", "k", "--", "sh", "-c", &script]))).collect();
    for running in all {
        let said = running.end();
        assert_eq!(said.code, Some(0), "{}", said.stderr);
    }
}

#[test]
fn a_command_that_nobody_guards_any_more_keeps_the_lock() {
    let shared = Shared::new();
    let (mut holder, command) = shared.hold(&["--ttl", "10m", "k"]);
    let guardian = holder.guardian();
    // Neither may see the other die.
    kill(guardian, Signal::STOP);
    holder.stop();
    until("the guardian stands still", || state_of(guardian) == Some('T'));
    kill(guardian, Signal::KILL);
    holder.signal(Signal::KILL);
    until("both are dead", || !is_alive(guardian) && !is_alive(holder.pid()));
    assert!(is_alive(command));
    assert_eq!(shared.run(&["run", "-n", "k", "--", "true"]).code, Some(75));
    kill(command, Signal::KILL);
    until("the lock is free", || shared.run(&["run", "-n", "k", "--", "true"]).code == Some(0));
}
