//! `LOCKFAST_RECORD`: a recording of a command that can be replayed.

use std::process::Command;

use replay::{Selection, Summary};

use crate::fixture::until;
use crate::processes::{Fixture, Running, end};

fn recording_command(fixture: &Fixture, args: &[&str]) -> Command {
    let mut command = fixture.command(args);
    command.env("LOCKFAST_RECORD", fixture.path("recording.jsonl"));
    command
}

fn replay_recording(fixture: &Fixture) -> (Summary, String) {
    let recording = std::fs::read(fixture.path("recording.jsonl")).unwrap();
    let mut out = Vec::new();
    let found = replay::replay(&recording[..], &Selection::default(), &mut out).unwrap();
    (found, String::from_utf8(out).unwrap())
}

#[test]
fn a_recording_shared_by_two_runs_replays_the_same() {
    let fixture = Fixture::new();
    let gate = fixture.path("gate");
    let script = format!("while test ! -e {}; do sleep 0.01; done", gate.display());
    let holder = Running::start(&mut recording_command(&fixture, &["run", "nightly", "--", "sh", "-c", &script]));
    until("it holds", || fixture.run(&["status", "nightly"]).code == Some(0));
    let waiter = Running::start(&mut recording_command(&fixture, &["run", "nightly", "--", "true"]));
    fixture.wait_for_waiters("nightly", 1);
    std::fs::write(&gate, "").unwrap();
    holder.end().expect_success();
    waiter.end().expect_success();
    let (found, output) = replay_recording(&fixture);
    assert!(found.is_same() && found.requests == 2 && output.ends_with(&format!("{found}\n")), "{output}");
    assert!(output.contains("-> Waiting") && output.contains("lock:nightly"), "{output}");
}

#[test]
fn a_recording_of_a_process_that_was_killed_is_replayed() {
    let fixture = Fixture::new();
    let holder = Running::start(&mut recording_command(&fixture, &["run", "nightly", "--", "sleep", "600"]));
    until("it holds", || fixture.run(&["status", "nightly"]).code == Some(0));
    holder.signal(rustix::process::Signal::KILL);
    drop(holder.end());
    let (found, output) = replay_recording(&fixture);
    assert!(found.is_same() && found.requests == 1, "{output}");
}

#[test]
fn an_unwritable_recording_is_78_before_the_store_opens() {
    let fixture = Fixture::new();
    let file = fixture.path("no/such/directory/recording");
    let mut command = fixture.command(&["run", "nightly", "--", "true"]);
    command.env("LOCKFAST_RECORD", &file);
    let refused = end(command);
    assert_eq!((refused.code, refused.stderr.lines().count()), (Some(78), 1), "{refused:?}");
    let expected = format!("lockfast: reading LOCKFAST_RECORD: cannot write to {}: No such file", file.display());
    assert!(refused.stderr.starts_with(&expected), "{refused:?}");
    assert!(!fixture.path("locks.db").exists());
}

#[test]
fn an_empty_variable_is_ignored() {
    let fixture = Fixture::new();
    let mut command = fixture.command(&["run", "nightly", "--", "true"]);
    command.env("LOCKFAST_RECORD", "");
    end(command).expect_success();
}

#[test]
fn the_help_says_what_is_recorded() {
    let help = Fixture::new().run(&["--help"]).expect_success();
    assert!(help.contains("LOCKFAST_RECORD=FILE") && help.contains("names of locks"), "{help}");
}
