//! Output to a terminal: colours and redrawing.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::fixture::PATIENCE;
use crate::processes::{Fixture, Running};

/// Both ends of a terminal: the test's and the program's.
fn terminal() -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    (ours.into(), theirs)
}

/// The text that is written to the terminal, until its last writer has closed it.
fn text_of(mut ours: File) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut some = [0; 4096];
        while let Ok(many) = ours.read(&mut some)
            && sender.send(String::from_utf8_lossy(&some[..many]).into_owned()).is_ok()
        {}
    });
    receiver
}

/// The text until `enough` is satisfied, or until the program has ended.
fn read_until(texts: &Receiver<String>, enough: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    while !enough(&text) {
        match texts.recv_timeout(PATIENCE) {
            Ok(more) => text += &more,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => panic!("waited too long after {text:?}"),
        }
    }
    text
}

fn on_terminal(fixture: &Fixture, args: &[&str], env: &[(&str, &str)]) -> String {
    let (ours, theirs) = terminal();
    let mut command = fixture.command(args);
    command.envs(env.iter().copied()).stdout(Stdio::from(theirs));
    let running = Running::start(&mut command);
    drop(command);
    let text = read_until(&text_of(ours), |_| false);
    assert_eq!(running.end().code, Some(0));
    text
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let fixture = Fixture::new();
    fixture.acquire("a");
    assert!(on_terminal(&fixture, &["ls"], &[]).starts_with("\u{1b}[1mKEY"));
    for env in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let text = on_terminal(&fixture, &["ls"], &[env]);
        assert!(text.contains("KEY") && !text.contains('\u{1b}'), "{env:?} {text:?}");
    }
}

#[test]
fn ls_watch_draws_over_what_it_drew() {
    let fixture = Fixture::new();
    fixture.acquire("first");
    let (ours, theirs) = terminal();
    let mut command = fixture.command(&["ls", "--watch"]);
    let watch = Running::start(command.stdout(Stdio::from(theirs)));
    drop(command);
    let texts = text_of(ours);
    let clear = "\u{1b}[H\u{1b}[2J";
    let drawn = read_until(&texts, |text| text.contains("first"));
    assert!(drawn.starts_with(clear), "{drawn:?}");
    fixture.acquire("second");
    let drawn = read_until(&texts, |text| text.contains("second"));
    assert!(drawn.contains(clear), "{drawn:?}");
    watch.signal(rustix::process::Signal::INT);
    assert_eq!(watch.end().code, Some(0));
}
