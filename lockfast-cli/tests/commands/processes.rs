//! A directory with a file of locks for each test, and processes that end with the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use serde_json::Value;

use crate::fixture::{Directory, Outcome, PATIENCE, until};

/// A directory that is removed after the test, and a store: a file in it, unless another one is named.
pub(crate) struct Fixture {
    directory: Directory,
    url: String,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let directory = Directory::new();
        let url = format!("sqlite:{}", directory.path().join("locks.db").display());
        Self { directory, url }
    }

    pub(crate) fn on(url: impl Into<String>) -> Self {
        let mut fixture = Self::new();
        fixture.url = url.into();
        fixture
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// A command line of lockfast whose environment has only the directory and this fixture's store.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.bare_command(args);
        command.env("LOCKFAST_URL", self.url());
        command
    }

    /// The same without a store.
    pub(crate) fn bare_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockfast"));
        command.args(args).env_clear().env("HOME", self.directory.path()).current_dir(self.directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Outcome {
        end(self.command(args))
    }

    /// Runs a command line with `input` on its standard input.
    pub(crate) fn run_with_input(&self, args: &[&str], input: &str) -> Outcome {
        let mut child = Running::start(self.command(args).stdin(Stdio::piped()));
        child.child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.end()
    }

    pub(crate) fn start(&self, args: &[&str]) -> Running {
        Running::start(&mut self.command(args))
    }

    /// The output of `inspect` for a key; null when its queue is empty.
    pub(crate) fn queue(&self, key: &str) -> Value {
        serde_json::from_str(&self.run(&["inspect", key, "-o", "json"]).stdout).unwrap()
    }

    pub(crate) fn wait_for_waiters(&self, key: &str, count: usize) {
        until("the waiters are in the queue", || {
            self.queue(key)["waiters"].as_array().is_some_and(|waiters| waiters.len() == count)
        });
    }

    /// Takes a key for a minute, and returns its token.
    pub(crate) fn acquire(&self, key: &str) -> String {
        self.run(&["acquire", "-n", "--ttl", "1m", key]).expect_success()
    }

    pub(crate) fn fence(&self, key: &str) -> u64 {
        self.queue(key)["holders"][0]["fence"].as_u64().unwrap()
    }
}

pub(crate) fn end(mut command: Command) -> Outcome {
    Running::start(&mut command).end()
}

/// A program that runs; killed when it is not waited for.
pub(crate) struct Running {
    pub(crate) child: Child,
    lines: Option<Receiver<String>>,
    is_over: bool,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self { child: command.spawn().unwrap(), lines: None, is_over: false }
    }

    /// Waits for the next line of its standard output, and reads it as JSON.
    pub(crate) fn read_event(&mut self) -> Value {
        let lines = self.lines.get_or_insert_with(|| {
            let (sender, lines) = channel();
            let reader = BufReader::new(self.child.stdout.take().unwrap());
            std::thread::spawn(move || reader.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
            lines
        });
        let line = lines.recv_timeout(PATIENCE).expect("the program writes a line within the time");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits until it has ended by itself. Both pipes are read meanwhile: a program does not end while one of them is full.
    pub(crate) fn end(mut self) -> Outcome {
        let (stdout, stderr) = (read_to_end(self.child.stdout.take()), read_to_end(self.child.stderr.take()));
        until("a program ends", || self.child.try_wait().unwrap().is_some());
        self.is_over = true;
        let code = self.child.wait().unwrap().code();
        Outcome { code, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
    }
}

/// Reads a pipe on a thread of its own.
fn read_to_end(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_string(&mut text).unwrap();
        }
        text
    })
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
