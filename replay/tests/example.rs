//! A recording that is checked in, as it is and with faults planted in copies of it.
//!
//! It was made by two processes that share a file, one of which waits for the other. When a change of the engine is meant
//! to do something else, make a new one, and mend the numbers below:
//!
//! ```sh
//! export LOCKFAST_URL=sqlite:/tmp/example.db LOCKFAST_RECORD=example.jsonl
//! lockfast run nightly -- sleep 1 & lockfast run nightly -- true; wait
//! ```
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in what its tests share too")]

use std::path::PathBuf;
use std::process::Command;

use replay::{Selection, Summary};

const EXAMPLE: &str = include_str!("example.jsonl");
/// The client that holds first, and the client that waits.
const CLIENTS: [&str; 2] = ["41bd56ad6db3d046", "e01faeb769c7fea0"];

fn replayed_as(recording: &[u8], chosen: &Selection) -> (Summary, String) {
    let mut out = Vec::new();
    let found = replay::replay(recording, chosen, &mut out).unwrap();
    let said = String::from_utf8(out).unwrap();
    assert_eq!(said.lines().last().unwrap(), found.to_string());
    (found, said)
}

fn replayed(recording: &str) -> (Summary, String) {
    replayed_as(recording.as_bytes(), &Selection::default())
}

/// The beginning of a step's line.
fn line_of(client: usize, step: u64) -> String {
    format!("{{\"step\":{step},\"client\":\"{}\"", CLIENTS[client])
}

/// The example with something else in one of its lines.
fn with(client: usize, step: u64, from: &str, to: &str) -> String {
    let begins = line_of(client, step);
    let changed = |line: &str| match line.starts_with(&begins) {
        true if line.contains(from) => line.replace(from, to),
        true => panic!("{from} is not in {line}"),
        false => line.to_owned(),
    };
    EXAMPLE.lines().map(|line| changed(line) + "\n").collect()
}

/// The program itself: its exit code, and its last line.
fn run(recording: &str, args: &[&str]) -> (Option<i32>, String) {
    let name = format!("lockfast-replay-example-{}-{:08x}.jsonl", std::process::id(), fastrand::u32(..));
    let file: PathBuf = std::env::temp_dir().join(name);
    std::fs::write(&file, recording).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_replay")).arg(&file).args(args).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), said.lines().last().unwrap_or_default().to_owned())
}

#[test]
fn the_example_is_replayed_without_a_difference() {
    let (found, said) = replayed(EXAMPLE);
    assert!(found.is_same(), "{said}");
    assert_eq!(found.to_string(), "30 steps, 2 requests, 0 differences");
    for part in [
        "#3 Enter \"lock:nightly\" exclusive, ttl 30s, renewed every 10s, with local hand-off\n    request 0.0: none -> Lead\n",
        "#4 Admitted 0.0 claim 77bc742c sent +0.126973s: Queued with ticket 1794986170112500, 1 ahead",
        "    request 0.0: Waiting with ticket 1794986170112500 -> Granted ticket 1794986170112500 at +0.720623s\n",
        "    next    Enter 0.0 with fence 1794986170112500 until +29.824973s (Expired)\n",
        "    effect  Wake 0.0\n",
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    assert_eq!(run(EXAMPLE, &[]), (Some(0), "30 steps, 2 requests, 0 differences".to_owned()));
}

#[test]
fn an_input_that_was_changed_is_a_difference_where_it_shows() {
    // The fence is first shown when the guard is made, a step later.
    let fault = with(0, 6, "\"first\":1794986170112499", "\"first\":1794986170112498");
    let (found, said) = replayed(&fault);
    assert_eq!(found.differences, 1, "{said}");
    assert_eq!(found.first.as_deref(), Some("step 7 of client 41bd56ad6db3d046"));
    assert!(
        said.contains("DIFFERENCE at step 7 of client 41bd56ad6db3d046:\n    recorded Enter +Emit +keeper #"),
        "{said}"
    );
    let last = "30 steps, 2 requests, 1 differences; the first at step 7 of client 41bd56ad6db3d046";
    assert_eq!(run(&fault, &[]), (Some(1), last.to_owned()));
}

#[test]
fn an_outcome_that_was_changed_is_a_difference_at_its_step() {
    let (found, said) = replayed(&with(1, 5, "\"led\":\"Wait #", "\"led\":\"Mine #"));
    assert_eq!((found.differences, found.panics, found.gaps), (1, 0, 0), "{said}");
    assert_eq!(found.first.as_deref(), Some("step 5 of client e01faeb769c7fea0"));
}

#[test]
fn a_panic_of_the_engine_is_reported_with_its_step() {
    // There is no such request, and never was.
    let fault = with(1, 10, "\"key\":\"0.0\"", "\"key\":\"4000000000.0\"");
    let (found, said) = replayed(&fault);
    assert_eq!(found.panics, 1, "{said}");
    assert!(said.contains("PANIC at step 10 of client e01faeb769c7fea0: index out of bounds"), "{said}");
    assert!(run(&fault, &[]).0 == Some(1) && found.to_string().contains(", 1 panics; the first at step 10"), "{found}");
    // A panic that was recorded is one all the same.
    let recorded = fault.lines().map(|line| match line.starts_with(&line_of(1, 10)) {
        true => format!("{},\"led\":\"panicked\"}}\n", line.split_once(",\"led\":").unwrap().0),
        false => format!("{line}\n"),
    });
    let only: String = recorded.take_while(|line| !line.starts_with(&line_of(1, 11))).collect();
    let (found, said) = replayed(&only);
    assert_eq!((found.differences, found.panics, found.is_same()), (0, 1, false), "{said}");
}

#[test]
fn a_cut_off_last_line_is_reported_and_is_no_error() {
    for cut in [2, 30] {
        let (found, said) = replayed(&EXAMPLE[..EXAMPLE.len() - cut]);
        assert!(found.is_same() && found.steps == 29, "{said}");
        assert!(said.contains("line 32, the last one, is cut off"), "{said}");
        assert_eq!(run(&EXAMPLE[..EXAMPLE.len() - cut], &[]).0, Some(0));
    }
    let (found, said) = replayed(EXAMPLE.trim_end());
    assert!(found.is_same() && found.steps == 30 && !said.contains("cut off"), "{said}");
}

#[test]
fn another_process_goes_on_after_a_cut_off_line() {
    // The first client is killed in the middle of its ninth step.
    let mut text = String::new();
    for line in EXAMPLE.lines() {
        if line.starts_with(&line_of(0, 9)) {
            text += &line[..line.len() / 2];
        } else if !(10..=14).any(|step| line.starts_with(&line_of(0, step))) {
            text = text + line + "\n";
        }
    }
    let (found, said) = replayed(&text);
    assert!(found.is_same() && found.steps == 24, "{said}");
    assert!(said.contains("begins with one that is cut off"), "{said}");
}

#[test]
fn a_step_that_is_missing_or_cannot_be_read_is_an_error() {
    let missing: String =
        EXAMPLE.lines().filter(|line| !line.starts_with(&line_of(0, 5))).map(|line| line.to_owned() + "\n").collect();
    let (found, said) = replayed(&missing);
    assert!(said.contains("GAP: step 6 of client 41bd56ad6db3d046 comes, and step 5 is missing"), "{said}");
    // The other client is replayed all the same.
    assert_eq!((found.steps, found.gaps, found.differences), (4 + 16, 1, 0), "{said}");
    assert_eq!(run(&missing, &[]).0, Some(1));
    let (found, said) = replayed(&with(0, 14, "KeeperPanicked", "KeeperSlept"));
    assert!(said.contains("cannot be read: line.input: Input::Close.why: there is no Closing::KeeperSlept"), "{said}");
    assert_eq!((found.steps, found.gaps), (29, 1), "{said}");
    let (found, said) = replayed(&EXAMPLE.replace("\"format\":1", "\"format\":9"));
    assert!(said.contains("it has format 9") && !found.is_same() && found.steps == 0, "{said}");
}

#[test]
fn a_client_and_its_steps_can_be_chosen() {
    let chosen = Selection { client: CLIENTS[1][..4].to_owned(), from: 3, to: 4 };
    let (found, said) = replayed_as(EXAMPLE.as_bytes(), &chosen);
    assert!(found.is_same() && found.steps == 4, "{said}");
    let shown: Vec<_> = said.lines().filter_map(|line| line.split_once(" #")).map(|(_, step)| &step[..1]).collect();
    assert_eq!(shown, ["3", "4"], "{said}");
    assert!(!said.contains(CLIENTS[0]), "{said}");
    let args = ["--client", "41BD", "--from", "8", "--to", "9"];
    assert_eq!(run(EXAMPLE, &args), (Some(0), "9 steps, 1 requests, 0 differences".to_owned()));
    for wrong in [&["--client", "0000"][..], &["--form", "8"], &["--to"], &["--from", "x"], &["another"]] {
        assert_eq!(run(EXAMPLE, wrong).0, Some(1), "{wrong:?}");
    }
}
