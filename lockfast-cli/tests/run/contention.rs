//! Several processes that want the same lock.

use std::time::Duration;

use rustix::process::Signal;

use crate::fixture::{handles_sigterm, now, until};
use crate::processes::{Running, SharedStore, is_alive, kill, state_of};

#[test]
fn without_patience_the_refusal_names_the_holder() {
    let shared = SharedStore::new();
    let (holder, _) = shared.hold(&["--name", "the night shift", "nightly"]);
    let refused = shared.run(&["run", "-n", "nightly", "--", "echo", "never"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(75), ""));
    let host = rustix::system::uname();
    let note = format!("the night shift on {} (pid {}) for ", host.nodename().to_str().unwrap(), holder.pid());
    assert!(refused.stderr.starts_with(&format!("lockfast: nightly is held by {note}")), "{}", refused.stderr);
    assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    assert!(!refused.stderr.contains("gave up"), "a single attempt has not waited for the holder: {}", refused.stderr);

    for no_patience in [&["-n", "-E", "3"][..], &["-w", "0", "-E", "3"]] {
        let line: Vec<&str> = [&["run"], no_patience, &["nightly", "--", "true"]].concat();
        assert_eq!(shared.run(&line).code, Some(3));
    }
    let skipped = shared.run(&["run", "--skip", "nightly", "--", "echo", "never"]);
    assert_eq!((skipped.code, skipped.stdout.as_str()), (Some(0), ""));
    assert!(skipped.stderr.contains(&format!("skipped: held by {note}")), "{}", skipped.stderr);
}

#[test]
fn patience_ends() {
    let shared = SharedStore::new();
    let (_holder, _) = shared.hold(&["k"]);
    let began_at = now();
    let refused = shared.run(&["run", "-w", "300ms", "k", "--", "true"]);
    assert_eq!(refused.code, Some(75));
    assert!(now().since(began_at) >= Duration::from_millis(300));
    assert!(refused.stderr.contains("gave up after"), "{}", refused.stderr);
}

#[test]
fn a_waiter_is_shown_the_holder_and_gets_the_lock_next() {
    let shared = SharedStore::new();
    let (mut holder, _) = shared.hold(&["k"]);
    let mut waiter = Running::start(shared.lockfast(&["-v", "run", "k", "--", "echo", "mine"]));
    until("the message is written", || {
        let line = waiter.read_error_line();
        line.contains("waiting for k, held by") && line.ends_with("next in the queue")
    });
    assert!(!waiter.has_ended());
    holder.write("done\n");
    assert_eq!(waiter.read_line(), "mine");
    assert_eq!(waiter.end().code, Some(0));
}

#[test]
fn each_signal_ends_the_wait_and_leaves_the_queue() {
    let shared = SharedStore::new();
    let (mut holder, _) = shared.hold(&["k"]);
    let signals = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];
    for signal in signals {
        let waiter = Running::start(shared.lockfast(&["run", "k", "--", "echo", "never"]));
        shared.wait_for_queue_len("k", 2);
        waiter.signal(signal);
        let output = waiter.end();
        assert_eq!((output.code, output.stdout.as_str()), (Some(128 + signal.as_raw()), ""));
        shared.wait_for_queue_len("k", 1);
    }
    holder.write("done\n");
    assert_eq!(holder.end().code, Some(0));
}

#[test]
fn a_signal_ends_the_wait_for_a_locked_file() {
    let shared = SharedStore::new();
    assert_eq!(shared.run(&["run", "k", "--", "true"]).code, Some(0));
    let file = rusqlite::Connection::open(shared.path().join("locks.db")).unwrap();
    file.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiter = Running::start(shared.lockfast(&["run", "k", "--", "echo", "never"]));
    until("it handles signals", || handles_sigterm(waiter.pid()));
    let asked_at = now();
    waiter.signal(Signal::TERM);
    assert_eq!(waiter.end().code, Some(128 + Signal::TERM.as_raw()));
    assert!(now().since(asked_at) < Duration::from_secs(3), "{:?}", now().since(asked_at));
}

#[test]
fn readers_share_and_writers_do_not() {
    let shared = SharedStore::new();
    let (_reader, _) = shared.hold(&["-s", "k"]);
    assert_eq!(shared.run(&["run", "-s", "-n", "k", "--", "true"]).code, Some(0));
    assert_eq!(shared.run(&["run", "-x", "-n", "k", "--", "true"]).code, Some(75));
    assert_eq!(shared.run(&["run", "-n", "k", "--", "true"]).code, Some(75));
}

#[test]
fn slots_are_counted_and_must_agree() {
    let shared = SharedStore::new();
    let (_one, _) = shared.hold(&["-j", "2", "k"]);
    assert_eq!(shared.run(&["run", "-j", "2", "-n", "k", "--", "true"]).code, Some(0));
    let (_two, _) = shared.hold(&["-j", "2", "k"]);
    assert_eq!(shared.run(&["run", "-j", "2", "-n", "k", "--", "true"]).code, Some(75));
    assert_eq!(shared.run(&["run", "-j", "3", "-n", "k", "--", "true"]).code, Some(64));
}

#[test]
fn several_keys_are_taken_together_or_not_at_all() {
    let shared = SharedStore::new();
    let (_holder, _) = shared.hold(&["--also", "b", "--also", "c", "a"]);
    for key in ["a", "b", "c"] {
        assert_eq!(shared.run(&["run", "-n", key, "--", "true"]).code, Some(75), "{key}");
    }
    assert_eq!(shared.run(&["run", "-n", "--also", "c", "d", "--", "true"]).code, Some(75));
    assert_eq!(shared.run(&["run", "-n", "d", "--", "true"]).code, Some(0));
}

#[test]
fn a_nested_run_of_the_same_key_is_refused_at_once() {
    let shared = SharedStore::new();
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
fn a_nested_run_finds_the_store_of_the_outer_one() {
    let shared = SharedStore::new();
    let inner = format!("cd / && {} run -n k -- echo never", env!("CARGO_BIN_EXE_lockfast"));
    for outer in [&["run", "--store", "sqlite:other.db", "k", "-c", &inner][..], &["run", "k", "-c", &inner]] {
        let mut command = shared.lockfast(outer);
        command.current_dir(shared.path());
        let output = crate::processes::outcome(command);
        assert_eq!((output.code, output.stdout.as_str()), (Some(64), ""), "{outer:?}: {}", output.stderr);
    }
}

#[test]
fn an_old_environment_does_not_refuse_a_run() {
    let shared = SharedStore::new();
    let output = shared.run(&["run", "k", "--", "env"]).stdout;
    let holds = output.lines().find_map(|line| line.strip_prefix("LOCKFAST_HOLDS=")).unwrap();
    let mut command = shared.lockfast(&["run", "k", "--", "echo", "fine"]);
    command.env("LOCKFAST_HOLDS", holds);
    assert_eq!(crate::processes::outcome(command).stdout, "fine\n");
}

#[test]
fn a_completed_once_does_not_run_again() {
    let shared = SharedStore::new();
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
fn a_crashed_once_is_not_done() {
    let shared = SharedStore::new();
    let (crashing, command) = shared.hold(&["--once", "1h", "order:7"]);
    let refused = shared.run(&["run", "-n", "--once", "1h", "order:7", "--", "echo", "never"]);
    assert_eq!(refused.code, Some(75), "{}", refused.stderr);
    crashing.signal(Signal::KILL);
    until("the command is dead", || !is_alive(command));
    assert_eq!(shared.run(&["run", "--once", "1h", "order:7", "--", "echo", "shipped"]).stdout, "shipped\n");
}

#[test]
fn a_command_that_died_of_a_signal_is_not_done() {
    let shared = SharedStore::new();
    for (signal, code) in [("KILL", 137), ("TERM", 143)] {
        let killed = shared.run(&["run", "--once", "1h", "order:7", "-c", &format!("kill -{signal} $$")]);
        assert_eq!(killed.code, Some(code), "{}", killed.stderr);
    }
    assert_eq!(shared.run(&["run", "--once", "1h", "order:7", "--", "echo", "shipped"]).stdout, "shipped\n");
}

#[test]
fn at_least_keeps_the_lock_without_waiting() {
    let shared = SharedStore::new();
    let began_at = now();
    assert_eq!(shared.run(&["run", "--at-least", "20", "k", "--", "true"]).code, Some(0));
    assert!(now().since(began_at) < Duration::from_secs(15), "lockfast does not wait for it");
    assert_eq!(shared.run(&["run", "-n", "k", "--", "true"]).code, Some(75));
}

#[test]
fn a_store_that_cannot_be_opened_is_69() {
    let nowhere = crate::processes::run(&["run", "--store", "sqlite:/nowhere/at/all/x.db", "k", "--", "true"]);
    assert_eq!(nowhere.code, Some(69), "{}", nowhere.stderr);
}

#[test]
fn a_broken_lock_ends_its_command_before_the_hand_off() {
    let shared = SharedStore::new();
    for _ in 0..3 {
        let (holder, command) = shared.hold_stubbornly("k", &["-k", "0.2"]);
        let waiter = shared.start_next_waiter("k", command);
        let broken = shared.run(&["break", "k", "--fence", &shared.fence_of("k")]);
        assert_eq!(broken.code, Some(0), "{}", broken.stderr);
        assert_eq!(waiter.read_line(), "alone");
        assert_eq!(waiter.end().code, Some(0));
        let output = holder.end();
        assert_eq!(output.code, Some(79));
        assert!(output.stderr.contains("an operator broke it"), "{}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    }
}

#[test]
fn a_killed_lockfast_loses_its_command_before_the_hand_off() {
    let shared = SharedStore::new();
    for _ in 0..5 {
        let (holder, command) = shared.hold_stubbornly("k", &["-k", "0.1"]);
        let waiter = shared.start_next_waiter("k", command);
        holder.signal(Signal::KILL);
        assert_eq!(waiter.read_line(), "alone");
        assert_eq!(waiter.end().code, Some(0));
    }
}

#[test]
fn a_stopped_lockfast_loses_its_command_before_the_hand_off() {
    let shared = SharedStore::new();
    let (holder, command) = shared.hold_stubbornly("k", &["--ttl", "2", "-k", "0.2"]);
    let waiter = shared.start_next_waiter("k", command);
    holder.stop();
    assert_eq!(waiter.read_line(), "alone");
    assert_eq!(holder.end().code, Some(79));
}

#[test]
fn at_most_ends_the_command_before_the_hand_off() {
    let shared = SharedStore::new();
    let (holder, command) = shared.hold_stubbornly("k", &["--at-most", "1", "-k", "0.2"]);
    let waiter = shared.start_next_waiter("k", command);
    assert_eq!(waiter.read_line(), "alone");
    assert_eq!(holder.end().code, Some(124));
}

#[test]
fn one_command_runs_at_a_time_and_all_run() {
    let shared = SharedStore::new();
    let flag = shared.path().join("inside");
    let script = format!("mkdir {0} && sleep 0.01 && rmdir {0}", flag.display());
    let all: Vec<Running> =
        (0..12).map(|_| Running::start(shared.lockfast(&["run", "k", "--", "sh", "-c", &script]))).collect();
    for running in all {
        let output = running.end();
        assert_eq!(output.code, Some(0), "{}", output.stderr);
    }
}

#[test]
fn an_unguarded_command_keeps_the_lock() {
    let shared = SharedStore::new();
    let (mut holder, command) = shared.hold(&["--ttl", "10m", "k"]);
    let guardian = holder.guardian();
    // Both are stopped first, so that neither sees the other die.
    kill(guardian, Signal::STOP);
    holder.stop();
    until("the guardian is stopped", || state_of(guardian) == Some('T'));
    kill(guardian, Signal::KILL);
    holder.signal(Signal::KILL);
    until("both are dead", || !is_alive(guardian) && !is_alive(holder.pid()));
    assert!(is_alive(command));
    assert_eq!(shared.run(&["run", "-n", "k", "--", "true"]).code, Some(75));
    kill(command, Signal::KILL);
    until("the lock is free", || shared.run(&["run", "-n", "k", "--", "true"]).code == Some(0));
}
