//! A directory with a file of locks for each test, and processes that end with it.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use lockfast::Clock;
use serde_json::Value;

/// Longer than anything here takes on a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `is_so`, and fails when it is not for too long.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = Clock::boot();
    let patience = clock.now() + PATIENCE;
    while !is_so() {
        assert!(clock.now() < patience, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A directory that is gone after the test, and a store: a file in it, unless another one is named.
pub(crate) struct Stage {
    place: PathBuf,
    url: String,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let name = format!("lockfast-commands-{}-{:08x}", std::process::id(), fastrand::u32(..));
        let place = std::env::temp_dir().join(name);
        std::fs::create_dir(&place).unwrap();
        let url = format!("sqlite:{}", place.join("locks.db").display());
        Self { place, url }
    }

    pub(crate) fn on(url: impl Into<String>) -> Self {
        let mut stage = Self::new();
        stage.url = url.into();
        stage
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// A command line of lockfast with nothing of the surroundings in it, on this stage's store.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.bare_command(args);
        command.env("LOCKFAST_URL", self.url());
        command
    }

    /// The same without a store.
    pub(crate) fn bare_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockfast"));
        command.args(args).env_clear().env("HOME", &self.place).current_dir(&self.place);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        end(self.command(args))
    }

    /// With this on its standard input.
    pub(crate) fn run_with(&self, args: &[&str], input: &str) -> Ended {
        let mut child = Running::start(self.command(args).stdin(Stdio::piped()));
        child.child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.end()
    }

    pub(crate) fn start(&self, args: &[&str]) -> Running {
        Running::start(&mut self.command(args))
    }

    /// What `inspect` says about a key; null when nobody is in its line.
    pub(crate) fn line(&self, key: &str) -> Value {
        serde_json::from_str(&self.run(&["inspect", key, "-o", "json"]).out).unwrap()
    }

    pub(crate) fn wait_for_waiters(&self, key: &str, many: usize) {
        until("they stand in line", || self.line(key)["waiters"].as_array().is_some_and(|line| line.len() == many));
    }

    /// Takes a key for a minute, and gives its token.
    pub(crate) fn acquire(&self, key: &str) -> String {
        self.run(&["acquire", "-n", "--ttl", "1m", key]).yes()
    }

    pub(crate) fn fence(&self, key: &str) -> u64 {
        self.line(key)["holders"][0]["fence"].as_u64().unwrap()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

/// How a program ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// Standard output of a program that said yes.
    pub(crate) fn yes(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }
}

pub(crate) fn end(mut command: Command) -> Ended {
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

    /// The next line of its standard output, as JSON.
    pub(crate) fn event(&mut self) -> Value {
        let lines = self.lines.get_or_insert_with(|| {
            let (tell, told) = channel();
            let reader = BufReader::new(self.child.stdout.take().unwrap());
            std::thread::spawn(move || reader.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
            told
        });
        let line = lines.recv_timeout(PATIENCE).expect("it says something within the time");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Until it has ended by itself. Both pipes are read meanwhile: a program does not end while one of them is full.
    pub(crate) fn end(mut self) -> Ended {
        let (out, err) = (read(self.child.stdout.take()), read(self.child.stderr.take()));
        until("a program ends", || self.child.try_wait().unwrap().is_some());
        self.is_over = true;
        let code = self.child.wait().unwrap().code();
        Ended { code, out: out.join().unwrap(), err: err.join().unwrap() }
    }
}

fn read(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
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
