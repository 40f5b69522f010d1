//! Output to a terminal: colours and redrawing.

use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use crate::fixture::{PATIENCE, open_terminal, terminal_output};
use crate::processes::{Fixture, Running};

/// The text until `is_enough`, or until the program has ended.
fn read_until(texts: &Receiver<String>, is_enough: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    while !is_enough(&text) {
        match texts.recv_timeout(PATIENCE) {
            Ok(more) => text += &more,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => panic!("waited too long after {text:?}"),
        }
    }
    text
}

/// Runs a command line with its standard output on a terminal, and returns what it wrote.
fn run_on_terminal(fixture: &Fixture, args: &[&str], env: &[(&str, &str)]) -> String {
    let (ours, theirs) = open_terminal();
    let mut command = fixture.command(args);
    command.envs(env.iter().copied()).stdout(Stdio::from(theirs));
    let running = Running::start(&mut command);
    drop(command);
    // Nothing is enough: up to the end of the program.
    let text = read_until(&terminal_output(ours), |_| false);
    assert_eq!(running.end().code, Some(0));
    text
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let fixture = Fixture::new();
    fixture.acquire("a");
    assert!(run_on_terminal(&fixture, &["ls"], &[]).starts_with("\u{1b}[1mKEY"));
    for env in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let text = run_on_terminal(&fixture, &["ls"], &[env]);
        assert!(text.contains("KEY") && !text.contains('\u{1b}'), "{env:?} {text:?}");
    }
}

#[test]
fn ls_watch_draws_over_what_it_drew() {
    let fixture = Fixture::new();
    fixture.acquire("first");
    let (ours, theirs) = open_terminal();
    let mut command = fixture.command(&["ls", "--watch"]);
    let watch = Running::start(command.stdout(Stdio::from(theirs)));
    drop(command);
    let texts = terminal_output(ours);
    let clear = "\u{1b}[H\u{1b}[2J";
    let drawn = read_until(&texts, |text| text.contains("first"));
    assert!(drawn.starts_with(clear), "{drawn:?}");
    fixture.acquire("second");
    let drawn = read_until(&texts, |text| text.contains("second"));
    assert!(drawn.contains(clear), "{drawn:?}");
    watch.signal(rustix::process::Signal::INT);
    assert_eq!(watch.end().code, Some(0));
}
