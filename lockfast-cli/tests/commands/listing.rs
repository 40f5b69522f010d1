//! `ls`, `inspect`, `status` and `stats`.

use std::io::Read;
use std::process::Stdio;

use serde_json::Value;

use crate::processes::{Fixture, Running};

#[test]
fn a_held_lock_is_listed_with_its_holder_and_its_waiters() {
    let fixture = Fixture::new();
    fixture.run(&["acquire", "nightly", "--name", "reports", "--label", "team=a"]).expect_success();
    let _waiter = fixture.start(&["acquire", "nightly"]);
    fixture.wait_for_waiters("nightly", 1);
    let table = fixture.run(&["ls"]).expect_success();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["KEY", "MODE", "HOLDER", "HELD", "TTL", "FENCE", "WAITERS"]);
    assert_eq!((rows[1][0], rows[1][1], rows[1].last()), ("nightly", "exclusive", Some(&"1")), "{table}");
    assert!(table.contains("reports on ") && !table.contains('\u{1b}'), "{table}");
    assert!(fixture.run(&["ls", "-o", "wide"]).expect_success().contains("team=a"));
    assert_eq!(fixture.run(&["ls", "-o", "name"]).expect_success(), "nightly\n");
    let queue: Value = serde_json::from_str(&fixture.run(&["ls", "-o", "jsonl"]).expect_success()).unwrap();
    assert_eq!(
        (queue["holders"][0]["name"].as_str(), &queue["holders"][0]["labels"]["team"]),
        (Some("reports"), &"a".into())
    );
    let all: Vec<Value> = serde_json::from_str(&fixture.run(&["ls", "-o", "json"]).expect_success()).unwrap();
    assert_eq!(all[0]["waiters"][0]["position"], 1);
}

#[test]
fn a_pattern_chooses_what_is_listed() {
    let fixture = Fixture::new();
    for key in ["cron:daily", "cron:weekly", "account:1"] {
        fixture.acquire(key);
    }
    let names = |pattern: &str| fixture.run(&["ls", "-o", "name", pattern]).expect_success();
    assert_eq!(names("cron:"), "cron:daily\ncron:weekly\n");
    assert_eq!(names("*ly"), "cron:daily\ncron:weekly\n");
    assert_eq!(names("?ron:d*"), "cron:daily\n");
    assert_eq!(names("nothing"), "");
}

#[test]
fn a_name_with_control_characters_does_not_reach_the_terminal() {
    let fixture = Fixture::new();
    let evil = "a\u{1b}[2J\r\nb\u{9b}31m";
    fixture.run(&["acquire", evil, "--name", evil, "--label", "x=\u{1b}]0;title\u{7}"]).expect_success();
    for args in
        [&["ls", "-o", "wide"][..], &["ls", "-o", "name"], &["ls", "-o", "json"], &["inspect", evil], &["status", evil]]
    {
        let output = fixture.run(args).expect_success();
        assert!(!output.contains(['\u{1b}', '\r', '\u{9b}', '\u{7}']), "{args:?} {output:?}");
    }
    let refused = fixture.run(&["acquire", "-n", evil]);
    assert!(!refused.stderr.contains(['\u{1b}', '\r', '\u{9b}']), "{refused:?}");
}

#[test]
fn inspect_shows_the_holder_and_the_waiters_in_order() {
    let fixture = Fixture::new();
    fixture.acquire("deploy");
    let _first = fixture.start(&["acquire", "deploy", "--name", "first"]);
    fixture.wait_for_waiters("deploy", 1);
    let _second = fixture.start(&["acquire", "deploy", "--name", "second"]);
    fixture.wait_for_waiters("deploy", 2);
    let text = fixture.run(&["inspect", "deploy"]).expect_success();
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part:?} is not in\n{text}"));
    assert!(
        at("program  lockfast") < at("waiter 1   first on") && at("waiter 1   first on") < at("waiter 2   second on")
    );
    let queue = fixture.queue("deploy");
    assert!(queue["holders"][0]["expires"].as_str().unwrap().ends_with('Z'));
    assert!(queue["holders"][0]["expires_in_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(fixture.run(&["inspect", "free"]).code, Some(1));
}

#[test]
fn status_says_yes_when_held_and_no_when_free() {
    let fixture = Fixture::new();
    fixture.acquire("nightly");
    let held = fixture.run(&["status", "nightly"]);
    assert_eq!(held.code, Some(0));
    assert!(held.stdout.starts_with("nightly: held by ") && held.stdout.lines().count() == 1, "{held:?}");
    let free = fixture.run(&["status", "other"]);
    assert_eq!((free.code, free.stdout.as_str()), (Some(1), "other: free\n"));
}

#[test]
fn stats_count_over_all_processes_and_show_where_they_wait() {
    let fixture = Fixture::new();
    let token = fixture.acquire("quiet");
    fixture.run_with_input(&["release"], &token).expect_success();
    fixture.acquire("hot");
    assert_eq!(fixture.run(&["acquire", "-n", "hot"]).code, Some(1));
    let _waiter = fixture.start(&["acquire", "hot"]);
    fixture.wait_for_waiters("hot", 1);
    let stats: Value = serde_json::from_str(&fixture.run(&["stats", "-o", "json"]).expect_success()).unwrap();
    assert_eq!((&stats["counters"]["acquired"], &stats["counters"]["released"]), (&2.into(), &1.into()), "{stats}");
    assert!(stats["counters"]["contended"].as_u64().unwrap() >= 1);
    assert_eq!((&stats["hottest"][0]["key"], &stats["hottest"][0]["waiters"]), (&"hot".into(), &1.into()));
    assert!(fixture.run(&["stats"]).expect_success().contains("acquired 2, released 1"));
}

#[test]
fn ls_watch_repeats_on_change_and_ends_when_interrupted() {
    let fixture = Fixture::new();
    fixture.acquire("a");
    let mut watch = fixture.start(&["ls", "--watch", "-o", "jsonl"]);
    assert_eq!(watch.read_event()["key"], "a");
    fixture.acquire("b");
    assert_eq!((watch.read_event()["key"].clone(), watch.read_event()["key"].clone()), ("a".into(), "b".into()));
    watch.signal(rustix::process::Signal::INT);
    assert_eq!(watch.end().code, Some(0));
}

#[test]
fn a_reader_that_leaves_ends_the_program_quietly() {
    let fixture = Fixture::new();
    fixture.acquire("a");
    let (ours, theirs) = std::io::pipe().unwrap();
    drop(ours);
    for args in [&["ls"][..], &["watch"], &["completions", "bash"], &["man"]] {
        let mut command = fixture.command(args);
        command.stdout(Stdio::from(theirs.try_clone().unwrap()));
        let ended = Running::start(&mut command).end();
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{args:?}");
    }
    let (mut ours, theirs) = std::io::pipe().unwrap();
    let mut command = fixture.command(&["watch"]);
    let watch = Running::start(command.stdout(Stdio::from(theirs)));
    drop(command);
    let mut first = [0; 1];
    ours.read_exact(&mut first).unwrap();
    drop(ours);
    fixture.acquire("b");
    assert_eq!(watch.end().code, Some(0), "at its next event");
}
