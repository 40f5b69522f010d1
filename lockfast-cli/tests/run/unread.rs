//! Standard error that is full and never read: no message of lockfast may delay a release, a signal or an exit.

use std::io::{PipeReader, Read};
use std::time::Duration;

use rustix::process::Signal;
use servers::Redis;

use crate::fixture::{full_pipe, now, until};
use crate::processes::{Running, SharedStore, is_alive};

/// The lease is 30 s and the commands run for 10 min: a lock that is free and a process that has ended before this have not
/// waited for either.
const SOON: Duration = Duration::from_secs(15);

/// Starts lockfast with a standard error that is full from the beginning, and returns its reader.
fn start(shared: &SharedStore, line: &[&str]) -> (Running, PipeReader) {
    let (reader, writer) = full_pipe();
    let mut command = shared.lockfast(line);
    command.stderr(writer);
    (Running::start(command), reader)
}

/// Lockfast ends, and the lock is free, before any lease has ended.
fn assert_ends_soon(shared: &SharedStore, mut running: Running, code: i32) {
    let began_at = now();
    until("lockfast has ended", || running.has_ended());
    assert_eq!(running.end().code, Some(code));
    let next = shared.run(&["run", "-n", "k", "--", "true"]);
    assert_eq!(next.code, Some(0), "{}", next.stderr);
    assert!(now().since(began_at) < SOON, "{:?}", now().since(began_at));
}

#[test]
fn the_end_of_a_command_waits_for_no_reader() {
    let redis = Redis::start();
    for shared in [SharedStore::new(), SharedStore::on(redis.url())] {
        for verbosity in [&[][..], &["-v"], &["-vv"], &["--log-format", "json"]] {
            let line = [verbosity, &["run", "--at-most", "1s", "k", "--", "sleep", "600"]].concat();
            let (running, _unread) = start(&shared, &line);
            assert_ends_soon(&shared, running, 124);
        }
    }
}

#[test]
fn a_signal_waits_for_no_reader() {
    let shared = SharedStore::new();
    for command in ["run", "elect"] {
        for verbosity in [&[][..], &["-v"]] {
            let line = [verbosity, &[command, "k", "--", "sh", "-c", "echo ready; exec sleep 600"]].concat();
            let (running, _unread) = start(&shared, &line);
            assert_eq!(running.read_line(), "ready");
            running.signal(Signal::TERM);
            assert_ends_soon(&shared, running, 143);
        }
    }
}

#[test]
fn a_signal_to_a_waiter_waits_for_no_reader() {
    let shared = SharedStore::new();
    let (mut holder, _) = shared.hold(&["k"]);
    for line in [["-v", "run", "k", "--", "true"], ["-v", "elect", "k", "--", "true"]] {
        let (mut waiter, _unread) = start(&shared, &line);
        shared.wait_for_queue_len("k", 2);
        waiter.signal(Signal::TERM);
        until("the waiter has ended", || waiter.has_ended());
        shared.wait_for_queue_len("k", 1);
    }
    holder.write("done\n");
    assert_eq!(holder.end().code, Some(0));
}

#[test]
fn a_broken_lock_waits_for_no_reader() {
    let shared = SharedStore::new();
    let (running, _unread) = start(&shared, &["run", "k", "--", "sh", "-c", "echo ready; exec sleep 600"]);
    assert_eq!(running.read_line(), "ready");
    assert_eq!(shared.run(&["break", "k", "--fence", &shared.fence_of("k")]).code, Some(0));
    assert_ends_soon(&shared, running, 79);
}

#[test]
fn the_guardian_of_a_killed_lockfast_waits_for_no_reader() {
    let shared = SharedStore::new();
    for command in ["run", "elect"] {
        let script = "trap '' TERM; echo $$; while :; do sleep 1; done";
        let (mut running, _unread) = start(&shared, &["-vv", command, "-k", "0.2", "k", "--", "sh", "-c", script]);
        let command = running.read_pid();
        let guardian = running.guardian();
        let killed_at = now();
        running.signal(Signal::KILL);
        until("the command is dead", || !is_alive(command));
        until("the guardian has left", || !is_alive(guardian));
        assert!(now().since(killed_at) < SOON, "{:?}", now().since(killed_at));
        assert_ends_soon(&shared, running, -9);
    }
}

#[test]
fn a_reader_that_comes_late_reads_every_message_in_order() {
    let shared = SharedStore::new();
    let line = ["elect", "--ttl", "30s", "k", "--", "sh", "-c", "echo ready; exec sleep 600"];
    let (mut running, mut unread) = start(&shared, &line);
    assert_eq!(running.read_line(), "ready");
    assert_eq!(shared.run(&["break", "k", "--fence", &shared.fence_of("k")]).code, Some(0));
    assert_eq!(running.read_line(), "ready", "it leads again");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        unread.read_to_string(&mut text).unwrap();
        text
    });
    running.signal(Signal::TERM);
    until("lockfast has ended", || running.has_ended());
    drop(running);
    let text = reader.join().unwrap();
    let output: Vec<&str> = text.trim_start_matches('.').lines().collect();
    let begins = ["leading k", "the lock on k was lost", "campaigning again for k", "leading k"];
    assert_eq!(output.len(), begins.len(), "{output:?}");
    for (line, begins) in output.iter().zip(begins) {
        assert!(line.starts_with(&format!("lockfast: {begins}")), "{output:?}");
    }
}
