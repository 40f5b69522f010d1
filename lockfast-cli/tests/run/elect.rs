//! `lockfast elect`: one leader at a time, and the next one when it has ended.

use std::process::Stdio;

use rustix::process::Signal;

use crate::fixture::until;
use crate::processes::{Running, SharedStore, is_alive, kill, run};

fn candidate(shared: &SharedStore, name: &str, options: &[&str]) -> Running {
    let script = format!("echo {name} leads $$; read line; exit 6");
    let line: Vec<&str> = [&["elect"], options, &["post", "--", "sh", "-c", &script]].concat();
    let mut command = shared.lockfast(&line);
    command.stdin(Stdio::piped());
    Running::start(command)
}

#[test]
fn one_leads_and_the_next_one_follows() {
    let shared = SharedStore::new();
    let mut first = candidate(&shared, "first", &[]);
    assert!(first.read_line().starts_with("first leads"));
    let mut second = candidate(&shared, "second", &[]);
    shared.wait_for_queue_len("post", 2);
    assert!(!second.has_ended());
    first.write("enough\n");
    assert_eq!(first.end().code, Some(6));
    assert!(second.read_line().starts_with("second leads"));
    second.write("enough\n");
    assert_eq!(second.end().code, Some(6));
}

#[test]
fn a_leader_that_loses_the_lead_campaigns_again() {
    let shared = SharedStore::new();
    let first = candidate(&shared, "first", &[]);
    let command: u32 = first.read_line().rsplit(' ').next().unwrap().parse().unwrap();
    let mut second = candidate(&shared, "second", &[]);
    shared.wait_for_queue_len("post", 2);
    assert_eq!(shared.run(&["break", "post", "--fence", &shared.fence_of("post")]).code, Some(0));
    assert!(second.read_line().starts_with("second leads"));
    assert!(!is_alive(command));
    shared.wait_for_queue_len("post", 2);
    second.write("enough\n");
    assert!(first.read_line().starts_with("first leads"), "it had campaigned again");
}

#[test]
fn a_signal_ends_the_campaign_or_goes_to_the_command() {
    let shared = SharedStore::new();
    let mut first = candidate(&shared, "first", &[]);
    assert!(first.read_line().starts_with("first leads"));
    let second = candidate(&shared, "second", &[]);
    shared.wait_for_queue_len("post", 2);
    second.signal(Signal::TERM);
    assert_eq!(second.end().code, Some(143));
    first.signal(Signal::TERM);
    until("lockfast has ended", || first.has_ended());
    assert_eq!(first.end().code, Some(143));
}

#[test]
fn a_terminated_leader_does_not_campaign_again() {
    let shared = SharedStore::new();
    let script = "trap 'echo ending' TERM; echo up; while :; do sleep 0.01; done";
    let line = ["elect", "--ttl", "3s", "-k", "0.2", "post", "--", "sh", "-c", script];
    let leader = Running::start(shared.lockfast(&line));
    assert_eq!(leader.read_line(), "up");
    leader.signal(Signal::TERM);
    assert_eq!(leader.read_line(), "ending");
    assert_eq!(shared.run(&["break", "post", "--fence", &shared.fence_of("post")]).code, Some(0));
    let output = leader.end();
    assert_eq!(output.code, Some(79), "{output:?}");
    assert!(!output.stdout.contains("up"), "it led once more: {output:?}");
}

#[test]
fn a_command_that_cannot_be_run_is_no_leader() {
    assert_eq!(run(&["elect", "k", "--", "/nowhere/at/all"]).code, Some(127));
    assert_eq!(run(&["elect", "k", "--", "sh", "-c", "exit 9"]).code, Some(9));
}

#[test]
fn a_leader_without_its_guardian_ends_with_125() {
    let shared = SharedStore::new();
    let mut leader = candidate(&shared, "first", &[]);
    let command: u32 = leader.read_line().strip_prefix("first leads ").unwrap().parse().unwrap();
    let guardian = leader.guardian();
    kill(guardian, Signal::KILL);
    until("lockfast has ended", || leader.has_ended());
    assert_eq!(leader.end().code, Some(125));
    assert!(!is_alive(command));
}
