//! `ls`, `inspect`, `status` and `stats`.

use std::io::Read;
use std::process::Stdio;

use serde_json::Value;

use crate::stage::{Running, Stage};

#[test]
fn a_held_lock_is_listed_with_its_holder_and_its_waiters() {
    let stage = Stage::new();
    stage.run(&["acquire", "nightly", "--name", "reports", "--label", "team=a"]).yes();
    let _waits = stage.start(&["acquire", "nightly"]);
    stage.wait_for_waiters("nightly", 1);
    let table = stage.run(&["ls"]).yes();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["KEY", "MODE", "HOLDER", "HELD", "TTL", "FENCE", "WAITERS"]);
    assert_eq!((rows[1][0], rows[1][1], rows[1].last()), ("nightly", "exclusive", Some(&"1")), "{table}");
    assert!(table.contains("reports on ") && !table.contains('\u{1b}'), "{table}");
    assert!(stage.run(&["ls", "-o", "wide"]).yes().contains("team=a"));
    assert_eq!(stage.run(&["ls", "-o", "name"]).yes(), "nightly\n");
    let line: Value = serde_json::from_str(&stage.run(&["ls", "-o", "jsonl"]).yes()).unwrap();
    assert_eq!(
        (line["holders"][0]["name"].as_str(), &line["holders"][0]["labels"]["team"]),
        (Some("reports"), &"a".into())
    );
    let all: Vec<Value> = serde_json::from_str(&stage.run(&["ls", "-o", "json"]).yes()).unwrap();
    assert_eq!(all[0]["waiters"][0]["position"], 1);
}

#[test]
fn a_pattern_chooses_what_is_listed() {
    let stage = Stage::new();
    for key in ["cron:daily", "cron:weekly", "account:1"] {
        stage.acquire(key);
    }
    let names = |pattern: &str| stage.run(&["ls", "-o", "name", pattern]).yes();
    assert_eq!(names("cron:"), "cron:daily\ncron:weekly\n");
    assert_eq!(names("*ly"), "cron:daily\ncron:weekly\n");
    assert_eq!(names("?ron:d*"), "cron:daily\n");
    assert_eq!(names("nothing"), "");
}

#[test]
fn a_name_with_control_characters_does_not_reach_the_terminal() {
    let stage = Stage::new();
    let evil = "a\u{1b}[2J\r\nb\u{9b}31m";
    stage.run(&["acquire", evil, "--name", evil, "--label", "x=\u{1b}]0;title\u{7}"]).yes();
    for args in
        [&["ls", "-o", "wide"][..], &["ls", "-o", "name"], &["ls", "-o", "json"], &["inspect", evil], &["status", evil]]
    {
        let said = stage.run(args).yes();
        assert!(!said.contains(['\u{1b}', '\r', '\u{9b}', '\u{7}']), "{args:?} {said:?}");
    }
    let refused = stage.run(&["acquire", "-n", evil]);
    assert!(!refused.err.contains(['\u{1b}', '\r', '\u{9b}']), "{refused:?}");
}

#[test]
fn inspect_shows_who_holds_and_who_waits_in_order() {
    let stage = Stage::new();
    stage.acquire("deploy");
    let _first = stage.start(&["acquire", "deploy", "--name", "first"]);
    stage.wait_for_waiters("deploy", 1);
    let _second = stage.start(&["acquire", "deploy", "--name", "second"]);
    stage.wait_for_waiters("deploy", 2);
    let text = stage.run(&["inspect", "deploy"]).yes();
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part:?} is not in\n{text}"));
    assert!(
        at("program  lockfast") < at("waiter 1   first on") && at("waiter 1   first on") < at("waiter 2   second on")
    );
    let line = stage.line("deploy");
    assert!(line["holders"][0]["expires"].as_str().unwrap().ends_with('Z'));
    assert!(line["holders"][0]["expires_in_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(stage.run(&["inspect", "free"]).code, Some(1));
}

#[test]
fn status_says_yes_when_held_and_no_when_free() {
    let stage = Stage::new();
    stage.acquire("nightly");
    let held = stage.run(&["status", "nightly"]);
    assert_eq!(held.code, Some(0));
    assert!(held.out.starts_with("nightly: held by ") && held.out.lines().count() == 1, "{held:?}");
    let free = stage.run(&["status", "other"]);
    assert_eq!((free.code, free.out.as_str()), (Some(1), "other: free\n"));
}

#[test]
fn stats_count_over_all_processes_and_show_where_they_wait() {
    let stage = Stage::new();
    let token = stage.acquire("quiet");
    stage.run_with(&["release"], &token).yes();
    stage.acquire("hot");
    assert_eq!(stage.run(&["acquire", "-n", "hot"]).code, Some(1));
    let _waits = stage.start(&["acquire", "hot"]);
    stage.wait_for_waiters("hot", 1);
    let stats: Value = serde_json::from_str(&stage.run(&["stats", "-o", "json"]).yes()).unwrap();
    assert_eq!((&stats["counters"]["acquired"], &stats["counters"]["released"]), (&2.into(), &1.into()), "{stats}");
    assert!(stats["counters"]["contended"].as_u64().unwrap() >= 1);
    assert_eq!((&stats["hottest"][0]["key"], &stats["hottest"][0]["waiters"]), (&"hot".into(), &1.into()));
    assert!(stage.run(&["stats"]).yes().contains("acquired 2, released 1"));
}

#[test]
fn ls_watch_shows_lines_again_when_they_change_and_ends_when_interrupted() {
    let stage = Stage::new();
    stage.acquire("a");
    let mut watch = stage.start(&["ls", "--watch", "-o", "jsonl"]);
    assert_eq!(watch.event()["key"], "a");
    stage.acquire("b");
    assert_eq!((watch.event()["key"].clone(), watch.event()["key"].clone()), ("a".into(), "b".into()));
    watch.signal(rustix::process::Signal::INT);
    assert_eq!(watch.end().code, Some(0));
}

#[test]
fn a_reader_that_leaves_ends_the_program_quietly() {
    let stage = Stage::new();
    stage.acquire("a");
    let (ours, theirs) = std::io::pipe().unwrap();
    drop(ours);
    for args in [&["ls"][..], &["watch"], &["completions", "bash"], &["man"]] {
        let mut command = stage.command(args);
        command.stdout(Stdio::from(theirs.try_clone().unwrap()));
        let ended = Running::start(&mut command).end();
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{args:?}");
    }
    let (mut ours, theirs) = std::io::pipe().unwrap();
    let mut command = stage.command(&["watch"]);
    let watch = Running::start(command.stdout(Stdio::from(theirs)));
    drop(command);
    let mut first = [0; 1];
    ours.read_exact(&mut first).unwrap();
    drop(ours);
    stage.acquire("b");
    assert_eq!(watch.end().code, Some(0), "at its next word");
}
