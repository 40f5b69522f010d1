//! `acquire`, `renew` and `release`.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{full_pipe, until};
use crate::processes::{Fixture, Running};

#[test]
fn a_lock_spans_several_commands() {
    let fixture = Fixture::new();
    let token = fixture.acquire("deploy");
    assert_eq!(token.lines().count(), 1);
    let refused = fixture.run(&["acquire", "-n", "deploy"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
    assert!(
        refused.stderr.starts_with("lockfast: ") && refused.stderr.contains("\"deploy\" is held by "),
        "{refused:?}"
    );
    fixture.run_with_input(&["renew", "--ttl", "1h"], &token).expect_success();
    assert!(fixture.queue("deploy")["holders"][0]["expires_in_seconds"].as_f64().unwrap() > 3500.0);
    fixture.run_with_input(&["release"], &token).expect_success();
    assert_eq!(fixture.run(&["status", "deploy"]).code, Some(1));
    for command in ["renew", "release"] {
        let lost = fixture.run_with_input(&[command], &token);
        assert_eq!(lost.code, Some(1), "{lost:?}");
        assert!(lost.stderr.contains("lost"), "{lost:?}");
    }
}

#[test]
fn a_token_file_is_its_owners_alone_and_goes_with_the_lock() {
    let fixture = Fixture::new();
    let file = fixture.path("deploy.token");
    let name = file.to_str().unwrap();
    assert_eq!(
        fixture.run(&["acquire", "deploy", "--token-file", name]).expect_success(),
        "",
        "the secret is in the file alone"
    );
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let kept = std::fs::read_to_string(&file).unwrap();
    let again = fixture.run(&["acquire", "other", "--token-file", name]);
    assert_eq!((again.code, std::fs::read_to_string(&file).unwrap()), (Some(1), kept), "never over another token");
    assert_eq!(fixture.run(&["status", "other"]).code, Some(1), "and nothing was taken");
    fixture.run(&["renew", "--token-file", name]).expect_success();
    fixture.run(&["release", "--token-file", name]).expect_success();
    assert!(!file.exists());
    fixture.acquire("busy");
    assert_eq!(fixture.run(&["acquire", "-n", "busy", "--token-file", name]).code, Some(1));
    assert!(!file.exists(), "no file without a lock");
}

#[test]
fn json_has_the_fence_and_the_token_unless_that_is_in_a_file() {
    let fixture = Fixture::new();
    let object = |args: &[&str]| serde_json::from_str::<Value>(&fixture.run(args).expect_success()).unwrap();
    let one = object(&["acquire", "a", "--ttl", "90", "-o", "json"]);
    assert_eq!((&one["key"], &one["ttl_seconds"]), (&"a".into(), &90.0.into()));
    assert_eq!(one["fence"].as_u64(), Some(fixture.fence("a")));
    fixture.run_with_input(&["release"], one["token"].as_str().unwrap()).expect_success();
    let file = fixture.path("token");
    let two = object(&["acquire", "a", "-o", "json", "--token-file", file.to_str().unwrap()]);
    assert!(two.get("token").is_none() && two["fence"].as_u64() > one["fence"].as_u64());
}

#[test]
fn a_waiter_gets_a_released_lock_with_a_whole_lease() {
    let fixture = Fixture::new();
    let token = fixture.acquire("deploy");
    let waiter = fixture.start(&["acquire", "deploy", "--ttl", "20s"]);
    fixture.wait_for_waiters("deploy", 1);
    fixture.run_with_input(&["release"], &token).expect_success();
    let next = waiter.end().expect_success();
    assert!(fixture.queue("deploy")["holders"][0]["expires_in_seconds"].as_f64().unwrap() > 15.0);
    fixture.run_with_input(&["release"], &next).expect_success();
}

#[test]
fn patience_ends_with_a_message_that_names_the_holder() {
    let fixture = Fixture::new();
    fixture.acquire("deploy");
    for args in
        [&["acquire", "-w", "100ms", "deploy"][..], &["acquire", "-w", "0", "deploy"], &["acquire", "-n", "deploy"]]
    {
        let gave_up = fixture.run(args);
        assert_eq!((gave_up.code, gave_up.stdout.as_str()), (Some(1), ""), "{args:?}");
        assert!(gave_up.stderr.contains("is held by "), "{gave_up:?}");
    }
    assert_eq!(fixture.queue("deploy")["waiters"].as_array().unwrap().len(), 0);
}

#[test]
fn a_lock_is_shared_counted_or_several_as_the_flags_say() {
    let fixture = Fixture::new();
    let take = |args: &[&str]| fixture.run(&[&["acquire", "-n"], args].concat());
    take(&["-s", "catalog"]).expect_success();
    take(&["-s", "catalog"]).expect_success();
    assert_eq!(take(&["catalog"]).code, Some(1));
    take(&["-j", "2", "api"]).expect_success();
    take(&["-j", "2", "api"]).expect_success();
    assert_eq!(take(&["-j", "2", "api"]).code, Some(1));
    assert_eq!(take(&["-j", "3", "api"]).code, Some(2), "disagreement on N is an error");
    let both = take(&["a", "--also", "b"]).expect_success();
    assert_eq!((take(&["b"]).code, take(&["-x", "a"]).code), (Some(1), Some(1)));
    fixture.run_with_input(&["release"], &both).expect_success();
    take(&["b"]).expect_success();
    assert_eq!(fixture.run(&["acquire", "-s", "-j", "2", "x"]).code, Some(2));
}

#[test]
fn an_interrupted_waiter_leaves_the_queue_at_once() {
    let fixture = Fixture::new();
    let file = fixture.path("token");
    fixture.acquire("deploy");
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let waiter = fixture.start(&["acquire", "deploy", "--ttl", "1h", "--token-file", file.to_str().unwrap()]);
        fixture.wait_for_waiters("deploy", 1);
        waiter.signal(signal);
        assert_eq!(waiter.end().code, Some(code));
        assert_eq!(fixture.queue("deploy")["waiters"].as_array().unwrap().len(), 0);
        assert!(!file.exists());
    }
}

/// The next waiter must not wait for the lease of one that died while it waited.
fn assert_killed_waiter_is_skipped(fixture: &Fixture) {
    let token = fixture.acquire("deploy");
    let killed = fixture.start(&["acquire", "deploy", "--ttl", "1h"]);
    fixture.wait_for_waiters("deploy", 1);
    let next = fixture.start(&["acquire", "deploy", "--ttl", "1m"]);
    fixture.wait_for_waiters("deploy", 2);
    killed.signal(Signal::KILL);
    assert_eq!(killed.end().code, None);
    fixture.run_with_input(&["release"], &token).expect_success();
    fixture.run_with_input(&["release"], &next.end().expect_success()).expect_success();
}

#[test]
fn a_killed_acquire_that_only_waited_is_skipped_in_a_file() {
    assert_killed_waiter_is_skipped(&Fixture::new());
}

#[test]
fn a_killed_acquire_that_only_waited_is_skipped_on_redis() {
    let server = servers::Redis::start();
    assert_killed_waiter_is_skipped(&Fixture::on(server.url()));
}

#[test]
fn a_lock_whose_token_was_not_written_ends_with_its_process() {
    let fixture = Fixture::new();
    // The pipe is full, so that the token cannot be written.
    let (ours, theirs) = full_pipe();
    let mut command = fixture.command(&["acquire", "deploy", "--ttl", "1h"]);
    let holder = Running::start(command.stdout(Stdio::from(theirs)));
    until("it holds", || fixture.run(&["status", "deploy"]).code == Some(0));
    holder.signal(Signal::KILL);
    until("the lock is free", || fixture.run(&["status", "deploy"]).code == Some(1));
    drop((holder, ours));
}

#[test]
fn a_detached_lock_outlives_its_process_and_ends_with_its_lease() {
    let fixture = Fixture::new();
    fixture.run(&["acquire", "short", "--ttl", "1500ms"]).expect_success();
    assert_eq!(fixture.run(&["status", "short"]).code, Some(0), "though its process is gone");
    until("its lease has ended", || fixture.run(&["status", "short"]).code == Some(1));
}

#[test]
fn a_lock_whose_token_is_not_read_is_released() {
    let fixture = Fixture::new();
    let (ours, theirs) = std::io::pipe().unwrap();
    drop(ours);
    let mut command = fixture.command(&["acquire", "deploy"]);
    let ended = Running::start(command.stdout(Stdio::from(theirs))).end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(fixture.run(&["status", "deploy"]).code, Some(1));
}

#[test]
fn a_token_is_in_no_message_at_any_level() {
    let fixture = Fixture::new();
    let taken = fixture.run(&["acquire", "-vv", "deploy"]);
    let token = taken.stdout.trim().to_owned();
    let secret = &token["lockfast1.".len()..][..32];
    let renewed = fixture.run_with_input(&["renew", "-vv"], &token);
    let damaged = fixture.run_with_input(&["renew", "-vv"], &token[..token.len() - 3]);
    assert_eq!((taken.code, renewed.code, damaged.code), (Some(0), Some(0), Some(2)), "{damaged:?}");
    let listed = fixture.run(&["inspect", "-vv", "-o", "json", "deploy"]);
    let output = [&taken.stderr, &renewed.stderr, &renewed.stdout, &damaged.stderr, &listed.stderr, &listed.stdout]
        .map(String::as_str)
        .concat();
    assert!(output.contains("acquired") && !output.contains(secret), "{output}");
}
