//! `LOCKFAST_RECORD`: what a command did, in a file that can be replayed.

use std::process::Command;

use replay::{Chosen, Found};

use crate::stage::{Running, Stage, end, until};

fn recorded(stage: &Stage, args: &[&str]) -> Command {
    let mut command = stage.command(args);
    command.env("LOCKFAST_RECORD", stage.path("recording.jsonl"));
    command
}

fn replayed(stage: &Stage) -> (Found, String) {
    let recording = std::fs::read(stage.path("recording.jsonl")).unwrap();
    let mut out = Vec::new();
    let found = replay::replay(&recording[..], &Chosen::default(), &mut out).unwrap();
    (found, String::from_utf8(out).unwrap())
}

#[test]
fn two_runs_that_share_a_recording_are_replayed_without_a_difference() {
    let stage = Stage::new();
    let gate = stage.path("gate");
    let holds = format!("while test ! -e {}; do sleep 0.01; done", gate.display());
    let holder = Running::start(&mut recorded(&stage, &["run", "nightly", "--", "sh", "-c", &holds]));
    until("it holds", || stage.run(&["status", "nightly"]).code == Some(0));
    let waiter = Running::start(&mut recorded(&stage, &["run", "nightly", "--", "true"]));
    stage.wait_for_waiters("nightly", 1);
    std::fs::write(&gate, "").unwrap();
    holder.end().yes();
    waiter.end().yes();
    let (found, said) = replayed(&stage);
    assert!(found.is_same() && found.requests == 2 && said.ends_with(&format!("{found}\n")), "{said}");
    assert!(said.contains("-> Waiting") && said.contains("lock:nightly"), "{said}");
}

#[test]
fn a_recording_of_a_process_that_was_killed_is_replayed() {
    let stage = Stage::new();
    let holder = Running::start(&mut recorded(&stage, &["run", "nightly", "--", "sleep", "600"]));
    until("it holds", || stage.run(&["status", "nightly"]).code == Some(0));
    holder.signal(rustix::process::Signal::KILL);
    drop(holder.end());
    let (found, said) = replayed(&stage);
    assert!(found.is_same() && found.requests == 1, "{said}");
}

#[test]
fn a_recording_that_cannot_be_written_is_78_before_the_store_is_opened() {
    let stage = Stage::new();
    let file = stage.path("no/such/directory/recording");
    let mut command = stage.command(&["run", "nightly", "--", "true"]);
    command.env("LOCKFAST_RECORD", &file);
    let refused = end(command);
    assert_eq!((refused.code, refused.err.lines().count()), (Some(78), 1), "{refused:?}");
    let expected = format!("lockfast: reading LOCKFAST_RECORD: cannot write to {}: No such file", file.display());
    assert!(refused.err.starts_with(&expected), "{refused:?}");
    assert!(!stage.path("locks.db").exists());
}

#[test]
fn an_empty_variable_records_nothing() {
    let stage = Stage::new();
    let mut command = stage.command(&["run", "nightly", "--", "true"]);
    command.env("LOCKFAST_RECORD", "");
    end(command).yes();
}

#[test]
fn the_help_says_what_is_recorded() {
    let help = Stage::new().run(&["--help"]).yes();
    assert!(help.contains("LOCKFAST_RECORD=FILE") && help.contains("names of locks"), "{help}");
}
