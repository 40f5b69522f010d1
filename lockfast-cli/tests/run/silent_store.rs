//! A store that stops answering while a waiter is in the queue: one message reports it, and one that the store answers again.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use servers::Redis;

use crate::fixture::{now, until};
use crate::processes::{Running, SharedStore, kill};

const SILENT_MESSAGE: &str = "lockfast: the store does not answer: ";
const RETURN_MESSAGE: &str = "lockfast: the store answers again";

/// A waiter whose lease is so short that it soon notices a silent store.
fn waiter(shared: &SharedStore, line: &[&str], command: &[&str]) -> Running {
    let mut command = shared.lockfast(&[line, &["--ttl", "6s", "k"], command].concat());
    command.stdin(Stdio::piped());
    Running::start(command)
}

/// A waiter of each command that waits, and one with `-q`.
fn waiters(shared: &SharedStore) -> ([Running; 3], Running) {
    let command = ["--", "sh", "-c", "echo mine; read line"];
    let lines = [(&["run"], &command[..]), (&["elect"], &command), (&["acquire"], &[])];
    let reporting = lines.map(|(line, command)| waiter(shared, line, command));
    let quiet = waiter(shared, &["-q", "run"], &command);
    shared.wait_for_queue_len("k", 5);
    (reporting, quiet)
}

fn assert_each_reports(waiters: &[Running], begins: &str) {
    for waiter in waiters {
        let line = waiter.read_error_line();
        assert!(line.starts_with(begins), "{line}");
        assert!(begins == RETURN_MESSAGE || line.ends_with("; still waiting for k"), "{line}");
    }
}

/// All waiters with a command get the lock in the end, and the only other message is that `elect` leads.
fn assert_all_acquire(mut holder: Running, ([run, elect, acquire], quiet): ([Running; 3], Running)) {
    acquire.signal(Signal::TERM);
    let end = acquire.end();
    assert_eq!((end.code, end.stderr.as_str()), (Some(143), ""));
    holder.write("done\n");
    assert_eq!(holder.end().code, Some(0));
    let mut left = vec![(run, ""), (elect, "lockfast: leading k\n"), (quiet, "")];
    // After an expired lease the order is that of joining the queue anew.
    while !left.is_empty() {
        let mut next = None;
        until("a waiter holds the lock", || {
            next = left.iter().position(|(waiter, _)| waiter.try_read_line().is_some());
            next.is_some()
        });
        let (mut waiter, messages) = left.remove(next.unwrap());
        waiter.write("done\n");
        let end = waiter.end();
        assert_eq!((end.code, end.stderr.as_str()), (Some(0), messages));
    }
}

#[test]
fn a_silent_server_is_reported_once_and_so_is_its_return() {
    let redis = Redis::start();
    let shared = SharedStore::on(redis.url());
    let (holder, _) = shared.hold(&["--ttl", "10m", "k"]);
    let (reporting, quiet) = waiters(&shared);
    // For less than a lease, and for longer: then the waiters have to join the queue anew.
    for stopped_for in [Duration::ZERO, Duration::from_secs(7)] {
        kill(redis.pid(), Signal::STOP);
        let stopped_at = now();
        assert_each_reports(&reporting, SILENT_MESSAGE);
        until("it was silent for long enough", || now().since(stopped_at) >= stopped_for);
        kill(redis.pid(), Signal::CONT);
        assert_each_reports(&reporting, RETURN_MESSAGE);
    }
    assert_all_acquire(holder, (reporting, quiet));
}

#[test]
fn a_locked_file_is_reported_once_and_so_is_its_release() {
    let shared = SharedStore::new();
    let (holder, _) = shared.hold(&["--ttl", "10m", "k"]);
    let (reporting, quiet) = waiters(&shared);
    let file = rusqlite::Connection::open(shared.path().join("locks.db")).unwrap();
    file.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_each_reports(&reporting, SILENT_MESSAGE);
    file.execute_batch("ROLLBACK").unwrap();
    assert_each_reports(&reporting, RETURN_MESSAGE);
    assert_all_acquire(holder, (reporting, quiet));
}
