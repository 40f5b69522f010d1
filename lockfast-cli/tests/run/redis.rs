//! The same over Redis: processes share a server, and only the end of a lease shows that a holder is dead.

use std::time::Duration;

use rustix::process::Signal;
use servers::Redis;

use crate::fixture::{handles_sigterm, now, until};
use crate::processes::{Running, SharedStore, is_alive, outcome};

/// Far below the lease of 30 s, for which a waiter without a notification would wait.
const AT_ONCE: Duration = Duration::from_secs(5);

fn start() -> (Redis, SharedStore) {
    let redis = Redis::start();
    let shared = SharedStore::on(redis.url());
    (redis, shared)
}

#[test]
fn two_processes_exclude_each_other_and_hand_off_at_once() {
    let (_redis, shared) = start();
    let (mut holder, _) = shared.hold(&["k"]);
    let refused = shared.run(&["run", "-n", "k", "--", "echo", "never"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(75), ""), "{}", refused.stderr);
    assert!(refused.stderr.contains(&format!("(pid {})", holder.pid())), "{}", refused.stderr);
    let waiter = Running::start(shared.lockfast(&["run", "k", "--", "echo", "mine"]));
    shared.wait_for_queue_len("k", 2);
    let released_at = now();
    holder.write("done\n");
    assert_eq!(waiter.read_line(), "mine");
    assert!(now().since(released_at) < AT_ONCE, "{:?}", now().since(released_at));
    assert_eq!((holder.end().code, waiter.end().code), (Some(0), Some(0)));
    assert_eq!(shared.run(&["status", "k"]).code, Some(1), "it is free");
}

#[test]
fn one_command_runs_at_a_time_and_all_run() {
    let (_redis, shared) = start();
    let flag = shared.path().join("inside");
    let script = format!("mkdir {0} && sleep 0.01 && rmdir {0}", flag.display());
    let all: Vec<Running> =
        (0..8).map(|_| Running::start(shared.lockfast(&["run", "k", "--", "sh", "-c", &script]))).collect();
    for running in all {
        let output = running.end();
        assert_eq!(output.code, Some(0), "{}", output.stderr);
    }
}

#[test]
fn after_a_kill_the_command_is_dead_before_the_lease_ends() {
    let (_redis, shared) = start();
    let (holder, command) = shared.hold_stubbornly("k", &["--ttl", "2", "-k", "0.2"]);
    let waiter = shared.start_next_waiter("k", command);
    let killed_at = now();
    holder.signal(Signal::KILL);
    assert_eq!(waiter.read_line(), "alone");
    assert!(now().since(killed_at) < Duration::from_secs(2) + AT_ONCE, "{:?}", now().since(killed_at));
    assert_eq!(waiter.end().code, Some(0));
}

#[test]
fn a_stopped_lockfast_loses_its_command_before_the_hand_off() {
    let (_redis, shared) = start();
    let (holder, command) = shared.hold_stubbornly("k", &["--ttl", "2", "-k", "0.2"]);
    let waiter = shared.start_next_waiter("k", command);
    holder.stop();
    assert_eq!(waiter.read_line(), "alone");
    assert_eq!(holder.end().code, Some(79));
}

#[test]
fn a_broken_lock_ends_its_command_before_the_hand_off() {
    let (_redis, shared) = start();
    let (holder, command) = shared.hold_stubbornly("k", &["-k", "0.2"]);
    let waiter = shared.start_next_waiter("k", command);
    let broken = shared.run(&["break", "k", "--fence", &shared.fence_of("k")]);
    assert_eq!(broken.code, Some(0), "{}", broken.stderr);
    assert_eq!(waiter.read_line(), "alone");
    let output = holder.end();
    assert_eq!(output.code, Some(79), "{}", output.stderr);
    assert!(output.stderr.contains("an operator broke it"), "{}", output.stderr);
}

#[test]
fn when_the_server_dies_the_command_ends_before_its_lease() {
    let (mut redis, shared) = start();
    let ttl = Duration::from_secs(4);
    let (holder, command) = shared.hold_stubbornly("k", &["--ttl", "4", "-k", "0.3"]);
    redis.kill();
    // The last renewal was before this, so the lease ends before `killed_at + ttl`.
    let killed_at = now();
    until("the command is dead", || !is_alive(command));
    assert!(now() < killed_at + ttl, "dead only {:?} after the server", now().since(killed_at));
    let output = holder.end();
    assert_eq!(output.code, Some(79), "{}", output.stderr);
    assert!(output.stderr.contains("the lock on k"), "{}", output.stderr);
}

#[test]
fn a_durable_server_restarted_within_a_lease_loses_no_lock() {
    let mut redis = Redis::options().setting("appendonly yes").setting("appendfsync always").start();
    let shared = SharedStore::on(redis.url());
    let (mut holder, _) = shared.hold(&["--ttl", "10", "k"]);
    redis.kill();
    redis.start_again();
    let began_at = now();
    until("a renewal was due", || now().since(began_at) > Duration::from_secs(4));
    assert_eq!(shared.run(&["run", "-n", "k", "--", "true"]).code, Some(75));
    holder.write("done\n");
    let output = holder.end();
    assert_eq!(output.code, Some(0), "{}", output.stderr);
}

#[test]
fn a_server_without_its_data_ends_the_command_at_renewal() {
    let (mut redis, shared) = start();
    let (holder, command) = shared.hold_stubbornly("k", &["--ttl", "6", "-k", "0.2"]);
    let old = shared.fence_of("k").parse::<u64>().unwrap();
    redis.kill();
    redis.start_again();
    until("the command is dead", || !is_alive(command));
    let output = holder.end();
    assert_eq!(output.code, Some(79), "{}", output.stderr);
    // By the reply to a renewal, not by the deadline at the end of the lease.
    assert!(output.stderr.contains("was lost: the store"), "{}", output.stderr);
    let next = shared.run(&["run", "k", "--", "sh", "-c", "echo $LOCKFAST_FENCE"]);
    assert!(next.stdout.trim().parse::<u64>().unwrap() > old, "fences go on: {} after {old}", next.stdout);
}

#[test]
fn a_loss_that_is_found_only_at_the_release_is_79() {
    let (redis, shared) = start();
    for line in [&["run"][..], &["run", "--once", "1h"], &["run", "-s"], &["elect"]] {
        let line = [line, &["k", "--", "sh", "-c", "echo ready; read line"]].concat();
        let mut command = shared.lockfast(&line);
        command.stdin(std::process::Stdio::piped());
        let mut holder = Running::start(command);
        assert_eq!(holder.read_line(), "ready");
        // The lease is 30 s: no renewal finds out before the command has ended.
        forget_everything(&redis);
        holder.write("done\n");
        let output = holder.end();
        assert_eq!(output.code, Some(79), "{line:?}: {}", output.stderr);
        assert!(output.stderr.contains("lost"), "{line:?}: {}", output.stderr);
    }
}

fn forget_everything(redis: &Redis) {
    assert_eq!(redis.command("FLUSHALL"), "+OK");
}

#[test]
fn a_completed_once_does_not_run_again() {
    let (_redis, shared) = start();
    let once = |command: &[&'static str]| shared.run(&[&["run", "--once", "1h", "order:7", "--"], command].concat());
    assert_eq!(once(&["sh", "-c", "exit 3"]).code, Some(3), "which is not done");
    assert_eq!(once(&["echo", "shipped"]).stdout, "shipped\n");
    let again = once(&["echo", "shipped"]);
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), ""));
    assert!(again.stderr.contains("order:7 was done already"), "{}", again.stderr);
}

#[test]
fn readers_slots_and_several_keys_work_over_redis() {
    let (_redis, shared) = start();
    let code = |args: &[&str]| shared.run(&[&["run", "-n"], args, &["--", "true"]].concat()).code;
    let (_reader, _) = shared.hold(&["-s", "catalog"]);
    assert_eq!((code(&["-s", "catalog"]), code(&["catalog"])), (Some(0), Some(75)));
    let (_slot, _) = shared.hold(&["-j", "2", "api"]);
    assert_eq!((code(&["-j", "2", "api"]), code(&["-j", "3", "api"])), (Some(0), Some(64)));
    let (_both, _) = shared.hold(&["--also", "b", "a"]);
    assert_eq!((code(&["a"]), code(&["b"]), code(&["--also", "b", "c"])), (Some(75), Some(75), Some(75)));
    assert_eq!(code(&["c"]), Some(0));
    assert_eq!(shared.run(&["run", "--at-least", "20", "quick", "--", "true"]).code, Some(0));
    assert_eq!(code(&["quick"]), Some(75), "it lingers");
}

#[test]
fn a_leader_that_ends_is_followed_by_the_next() {
    let (_redis, shared) = start();
    let elect = |script: &str| Running::start(shared.lockfast(&["elect", "k", "--", "sh", "-c", script]));
    let mut first = elect("echo $$; while :; do sleep 1; done");
    first.read_pid();
    let second = elect("echo leading; while :; do sleep 1; done");
    shared.wait_for_queue_len("k", 2);
    let asked_at = now();
    first.signal(Signal::TERM);
    assert_eq!(second.read_line(), "leading");
    assert!(now().since(asked_at) < AT_ONCE, "{:?}", now().since(asked_at));
}

#[test]
fn a_command_is_listed_as_soon_as_it_runs_until_it_has_ended() {
    let (_redis, shared) = start();
    let (mut holder, _) = shared.hold(&["nightly"]);
    let began_at = now();
    until("it is listed", || shared.run(&["ls", "-o", "name"]).stdout == "nightly\n");
    assert!(now().since(began_at) < AT_ONCE, "{:?}", now().since(began_at));
    holder.write("done\n");
    assert_eq!(holder.end().code, Some(0));
    assert_eq!(shared.run(&["ls", "-o", "name"]).stdout, "");
}

#[test]
fn a_signal_ends_the_wait_for_a_server_that_does_not_answer() {
    let (redis, shared) = start();
    let server = rustix::process::Pid::from_raw(redis.pid() as i32).unwrap();
    rustix::process::kill_process(server, Signal::STOP).unwrap();
    let waiter = Running::start(shared.lockfast(&["run", "k", "--", "echo", "never"]));
    until("it handles signals", || handles_sigterm(waiter.pid()));
    waiter.signal(Signal::TERM);
    assert_eq!(waiter.end().code, Some(128 + Signal::TERM.as_raw()));
}

#[test]
fn a_failed_connection_is_one_line_without_the_password() {
    let mut redis = Redis::options().setting("requirepass r1ghtcanary").start();
    let url = |password: &str| format!("redis://:{password}@127.0.0.1:{}", redis.port());
    let run = |url: &str| {
        let mut command = crate::processes::lockfast(&["-vv", "run", "k", "--", "echo", "ran"]);
        command.env("LOCKFAST_URL", url);
        outcome(command)
    };
    let right = run(&url("r1ghtcanary"));
    assert_eq!((right.code, right.stdout.as_str()), (Some(0), "ran\n"), "{}", right.stderr);
    let wrong = run(&url("wr0ngcanary"));
    assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(78), ""), "{}", wrong.stderr);
    assert!(wrong.stderr.lines().last().unwrap().contains("does not accept the user or password"), "{}", wrong.stderr);
    let right_url = url("r1ghtcanary");
    redis.kill();
    let away = run(&right_url);
    assert_eq!((away.code, away.stdout.as_str()), (Some(69), ""), "{}", away.stderr);
    assert!(away.stderr.contains("`lockfast doctor` looks for the cause"), "{}", away.stderr);
    for output in [&right, &wrong, &away] {
        assert!(!output.stderr.contains("canary"), "{}", output.stderr);
    }
    for output in [wrong, away] {
        let ours = output.stderr.lines().filter(|line| line.starts_with("lockfast: opening the store"));
        assert_eq!(ours.count(), 1, "{}", output.stderr);
    }
}
