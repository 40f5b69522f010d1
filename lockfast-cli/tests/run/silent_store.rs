//! A store that stops answering while a waiter is in the queue: it is said once, and once more when the store is back.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use servers::Redis;

use crate::fixture::{now, until};
use crate::processes::{Running, SharedStore, kill};

const SILENT: &str = "lockfast: the store does not answer: ";
const BACK: &str = "lockfast: the store answers again";

/// A waiter whose lease is so short that it soon notices.
fn waiter(shared: &SharedStore, line: &[&str], command: &[&str]) -> Running {
    let mut command = shared.lockfast(&[line, &["--ttl", "6s", "k"], command].concat());
    command.stdin(Stdio::piped());
    Running::start(command)
}

/// Waiters of all commands that wait, and one that wants to hear of nothing.
fn waiters(shared: &SharedStore) -> ([Running; 3], Running) {
    let command = ["--", "sh", "-c", "echo mine; read line"];
    let told = [(&["run"], &command[..]), (&["elect"], &command), (&["acquire"], &[])];
    let told = told.map(|(line, command)| waiter(shared, line, command));
    let quiet = waiter(shared, &["-q", "run"], &command);
    shared.until_queued("k", 5);
    (told, quiet)
}

fn each_says(waiters: &[Running], begins: &str) {
    for waiter in waiters {
        let line = waiter.error_line();
        assert!(line.starts_with(begins), "{line}");
        assert!(begins == BACK || line.ends_with("; still waiting for k"), "{line}");
    }
}

/// All that want a command run get the lock in the end, and nothing more was said but that one leads.
fn all_enter(mut holder: Running, ([run, elect, acquire], quiet): ([Running; 3], Running)) {
    acquire.signal(Signal::TERM);
    let end = acquire.end();
    assert_eq!((end.code, end.stderr.as_str()), (Some(143), ""));
    holder.write("done\n");
    assert_eq!(holder.end().code, Some(0));
    let mut left = vec![(run, ""), (elect, "lockfast: leading k\n"), (quiet, "")];
    // After an expired lease the order is that of coming back.
    while !left.is_empty() {
        let mut next = None;
        until("a waiter has entered", || {
            next = left.iter().position(|(waiter, _)| waiter.line_if_any().is_some());
            next.is_some()
        });
        let (mut waiter, said) = left.remove(next.unwrap());
        waiter.write("done\n");
        let end = waiter.end();
        assert_eq!((end.code, end.stderr.as_str()), (Some(0), said));
    }
}

#[test]
fn a_silent_server_is_reported_once_and_so_is_its_return() {
    let redis = Redis::start();
    let shared = SharedStore::on(redis.url());
    let (holder, _) = shared.hold(&["--ttl", "10m", "k"]);
    let (told, quiet) = waiters(&shared);
    // For less than a lease, and for longer: then the waiters have to join the queue anew.
    for stopped_for in [Duration::ZERO, Duration::from_secs(7)] {
        kill(redis.pid(), Signal::STOP);
        let stopped = now();
        each_says(&told, SILENT);
        until("it was away for long enough", || now().since(stopped) >= stopped_for);
        kill(redis.pid(), Signal::CONT);
        each_says(&told, BACK);
    }
    all_enter(holder, (told, quiet));
}

#[test]
fn a_locked_file_is_reported_once_and_so_is_its_release() {
    let shared = SharedStore::new();
    let (holder, _) = shared.hold(&["--ttl", "10m", "k"]);
    let (told, quiet) = waiters(&shared);
    let file = rusqlite::Connection::open(shared.path().join("locks.db")).unwrap();
    file.execute_batch("BEGIN IMMEDIATE").unwrap();
    each_says(&told, SILENT);
    file.execute_batch("ROLLBACK").unwrap();
    each_says(&told, BACK);
    all_enter(holder, (told, quiet));
}
