//! `acquire`, `renew` and `release`.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::stage::{Running, Stage, until};

#[test]
fn a_lock_spans_several_commands() {
    let stage = Stage::new();
    let token = stage.acquire("deploy");
    assert_eq!(token.lines().count(), 1);
    let refused = stage.run(&["acquire", "-n", "deploy"]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""));
    assert!(refused.err.starts_with("lockfast: ") && refused.err.contains("\"deploy\" is held by "), "{refused:?}");
    stage.run_with(&["renew", "--ttl", "1h"], &token).yes();
    assert!(stage.line("deploy")["holders"][0]["expires_in_seconds"].as_f64().unwrap() > 3500.0);
    stage.run_with(&["release"], &token).yes();
    assert_eq!(stage.run(&["status", "deploy"]).code, Some(1));
    for command in ["renew", "release"] {
        let lost = stage.run_with(&[command], &token);
        assert_eq!(lost.code, Some(1), "{lost:?}");
        assert!(lost.err.contains("lost"), "{lost:?}");
    }
}

#[test]
fn a_token_file_is_its_owners_alone_and_goes_with_the_lock() {
    let stage = Stage::new();
    let file = stage.path("deploy.token");
    let name = file.to_str().unwrap();
    assert_eq!(stage.run(&["acquire", "deploy", "--token-file", name]).yes(), "", "the secret is in the file alone");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let kept = std::fs::read_to_string(&file).unwrap();
    let again = stage.run(&["acquire", "other", "--token-file", name]);
    assert_eq!((again.code, std::fs::read_to_string(&file).unwrap()), (Some(1), kept), "never over another token");
    assert_eq!(stage.run(&["status", "other"]).code, Some(1), "and nothing was taken");
    stage.run(&["renew", "--token-file", name]).yes();
    stage.run(&["release", "--token-file", name]).yes();
    assert!(!file.exists());
    stage.acquire("busy");
    assert_eq!(stage.run(&["acquire", "-n", "busy", "--token-file", name]).code, Some(1));
    assert!(!file.exists(), "no file without a lock");
}

#[test]
fn json_has_the_fence_and_the_token_unless_that_is_in_a_file() {
    let stage = Stage::new();
    let object = |args: &[&str]| serde_json::from_str::<Value>(&stage.run(args).yes()).unwrap();
    let one = object(&["acquire", "a", "--ttl", "90", "-o", "json"]);
    assert_eq!((&one["key"], &one["ttl_seconds"]), (&"a".into(), &90.0.into()));
    assert_eq!(one["fence"].as_u64(), Some(stage.fence("a")));
    stage.run_with(&["release"], one["token"].as_str().unwrap()).yes();
    let file = stage.path("token");
    let two = object(&["acquire", "a", "-o", "json", "--token-file", file.to_str().unwrap()]);
    assert!(two.get("token").is_none() && two["fence"].as_u64() > one["fence"].as_u64());
}

#[test]
fn who_waits_gets_it_when_it_is_released_and_with_a_whole_lease() {
    let stage = Stage::new();
    let token = stage.acquire("deploy");
    let waits = stage.start(&["acquire", "deploy", "--ttl", "20s"]);
    stage.wait_for_waiters("deploy", 1);
    stage.run_with(&["release"], &token).yes();
    let next = waits.end().yes();
    assert!(stage.line("deploy")["holders"][0]["expires_in_seconds"].as_f64().unwrap() > 15.0);
    stage.run_with(&["release"], &next).yes();
}

#[test]
fn patience_ends_with_a_word_about_who_has_it() {
    let stage = Stage::new();
    stage.acquire("deploy");
    for args in
        [&["acquire", "-w", "100ms", "deploy"][..], &["acquire", "-w", "0", "deploy"], &["acquire", "-n", "deploy"]]
    {
        let gave_up = stage.run(args);
        assert_eq!((gave_up.code, gave_up.out.as_str()), (Some(1), ""), "{args:?}");
        assert!(gave_up.err.contains("is held by "), "{gave_up:?}");
    }
    assert_eq!(stage.line("deploy")["waiters"].as_array().unwrap().len(), 0);
}

#[test]
fn a_lock_is_shared_counted_or_several_as_the_flags_say() {
    let stage = Stage::new();
    let take = |args: &[&str]| stage.run(&[&["acquire", "-n"], args].concat());
    take(&["-s", "catalog"]).yes();
    take(&["-s", "catalog"]).yes();
    assert_eq!(take(&["catalog"]).code, Some(1));
    take(&["-j", "2", "api"]).yes();
    take(&["-j", "2", "api"]).yes();
    assert_eq!(take(&["-j", "2", "api"]).code, Some(1));
    assert_eq!(take(&["-j", "3", "api"]).code, Some(2), "disagreement on N is an error");
    let both = take(&["a", "--also", "b"]).yes();
    assert_eq!((take(&["b"]).code, take(&["-x", "a"]).code), (Some(1), Some(1)));
    stage.run_with(&["release"], &both).yes();
    take(&["b"]).yes();
    assert_eq!(stage.run(&["acquire", "-s", "-j", "2", "x"]).code, Some(2));
}

#[test]
fn who_is_interrupted_while_it_waits_leaves_the_line_at_once() {
    let stage = Stage::new();
    let file = stage.path("token");
    stage.acquire("deploy");
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let waits = stage.start(&["acquire", "deploy", "--ttl", "1h", "--token-file", file.to_str().unwrap()]);
        stage.wait_for_waiters("deploy", 1);
        waits.signal(signal);
        assert_eq!(waits.end().code, Some(code));
        assert_eq!(stage.line("deploy")["waiters"].as_array().unwrap().len(), 0);
        assert!(!file.exists());
    }
}

/// The next waiter must not wait for the lease of one that died while it waited.
fn skips_a_killed_waiter(stage: &Stage) {
    let token = stage.acquire("deploy");
    let killed = stage.start(&["acquire", "deploy", "--ttl", "1h"]);
    stage.wait_for_waiters("deploy", 1);
    let next = stage.start(&["acquire", "deploy", "--ttl", "1m"]);
    stage.wait_for_waiters("deploy", 2);
    killed.signal(Signal::KILL);
    assert_eq!(killed.end().code, None);
    stage.run_with(&["release"], &token).yes();
    stage.run_with(&["release"], &next.end().yes()).yes();
}

#[test]
fn a_killed_acquire_that_only_waited_is_skipped_in_a_file() {
    skips_a_killed_waiter(&Stage::new());
}

#[test]
fn a_killed_acquire_that_only_waited_is_skipped_on_redis() {
    let server = servers::Redis::start();
    skips_a_killed_waiter(&Stage::on(server.url()));
}

#[test]
fn a_lock_whose_token_was_not_written_ends_with_its_process() {
    let stage = Stage::new();
    let (ours, mut theirs) = std::io::pipe().unwrap();
    // Full, so that the token stays on its way.
    rustix::io::ioctl_fionbio(&theirs, true).unwrap();
    while theirs.write(&[b' '; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&theirs, false).unwrap();
    let mut command = stage.command(&["acquire", "deploy", "--ttl", "1h"]);
    let holder = Running::start(command.stdout(Stdio::from(theirs)));
    until("it holds", || stage.run(&["status", "deploy"]).code == Some(0));
    holder.signal(Signal::KILL);
    until("the lock is free", || stage.run(&["status", "deploy"]).code == Some(1));
    drop((holder, ours));
}

#[test]
fn a_detached_lock_outlives_its_process_and_ends_with_its_lease() {
    let stage = Stage::new();
    stage.run(&["acquire", "short", "--ttl", "1500ms"]).yes();
    assert_eq!(stage.run(&["status", "short"]).code, Some(0), "though its process is gone");
    until("its lease has ended", || stage.run(&["status", "short"]).code == Some(1));
}

#[test]
fn a_token_that_nobody_reads_is_given_back() {
    let stage = Stage::new();
    let (ours, theirs) = std::io::pipe().unwrap();
    drop(ours);
    let mut command = stage.command(&["acquire", "deploy"]);
    let ended = Running::start(command.stdout(Stdio::from(theirs))).end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(stage.run(&["status", "deploy"]).code, Some(1));
}

#[test]
fn a_token_is_in_no_message_at_any_level() {
    let stage = Stage::new();
    let taken = stage.run(&["acquire", "-vv", "deploy"]);
    let token = taken.out.trim().to_owned();
    let secret = &token["lockfast1.".len()..][..32];
    let renewed = stage.run_with(&["renew", "-vv"], &token);
    let damaged = stage.run_with(&["renew", "-vv"], &token[..token.len() - 3]);
    assert_eq!((taken.code, renewed.code, damaged.code), (Some(0), Some(0), Some(2)), "{damaged:?}");
    let listed = stage.run(&["inspect", "-vv", "-o", "json", "deploy"]);
    let said =
        [&taken.err, &renewed.err, &renewed.out, &damaged.err, &listed.err, &listed.out].map(String::as_str).concat();
    assert!(said.contains("acquired") && !said.contains(secret), "{said}");
}
