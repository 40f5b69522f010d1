//! Standard output that is not read, or whose reader has left.

use std::process::Stdio;

use rustix::process::Signal;

use crate::fixture::{full_pipe, handles_sigterm, until};
use crate::processes::{Fixture, Running};

/// Whether a thread of this process blocks on a full pipe.
fn waits_for_a_reader(process: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    let mut functions = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("wchan")).ok());
    functions.any(|function| function.contains("pipe_write"))
}

#[test]
fn a_signal_ends_a_command_whose_output_is_not_read() {
    let fixture = Fixture::new();
    fixture.acquire("there");
    let lines: [(&[&str], i32); 4] =
        [(&["watch"], 0), (&["ls", "--watch"], 0), (&["acquire", "k"], 143), (&["acquire", "k", "-o", "json"], 143)];
    for (line, code) in lines {
        let (_unread, writer) = full_pipe();
        let command = Running::start(fixture.command(line).stdout(writer));
        until("it blocks on the pipe", || waits_for_a_reader(command.child.id()));
        command.signal(Signal::TERM);
        assert_eq!(command.end().code, Some(code), "{line:?}");
        assert_eq!(
            fixture.run(&["status", "k"]).code,
            Some(1),
            "{line:?}: a lock whose token was not read is released"
        );
    }
}

#[test]
fn a_closed_reader_does_not_change_the_exit_code() {
    let fixture = Fixture::new();
    fixture.acquire("held");
    let lines: [(&[&str], i32); 6] = [
        (&["status", "held"], 0),
        (&["status", "free"], 1),
        (&["inspect", "-o", "json", "free"], 1),
        (&["ls"], 0),
        (&["--store", "sqlite:/nowhere/at/all/x.db", "doctor"], 69),
        (&["watch"], 0),
    ];
    for (line, code) in lines {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = Running::start(fixture.command(line).stdout(writer).stdin(Stdio::null())).end();
        assert_eq!(ended.code, Some(code), "{line:?}: {}", ended.stderr);
    }
}

#[test]
fn a_signal_ends_the_wait_for_a_server_that_does_not_answer() {
    let redis = servers::Redis::start();
    let fixture = Fixture::on(redis.url());
    let server = rustix::process::Pid::from_raw(redis.pid() as i32).unwrap();
    rustix::process::kill_process(server, Signal::STOP).unwrap();
    for (line, code) in [(&["acquire", "k"][..], 143), (&["watch"], 0)] {
        let command = fixture.start(line);
        until("it handles signals", || handles_sigterm(command.child.id()));
        command.signal(Signal::TERM);
        assert_eq!(command.end().code, Some(code), "{line:?}");
    }
}
