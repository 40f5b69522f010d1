//! Real processes that end with the test, also when it fails: lockfast, its guardian, the command and its descendants are
//! killed by number.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::fixture::{Directory, Outcome, PATIENCE, until};

pub(crate) fn pid(number: u32) -> Pid {
    Pid::from_raw(number as i32).unwrap()
}

pub(crate) fn kill(number: u32, signal: Signal) {
    rustix::process::kill_process(pid(number), signal).unwrap();
}

/// Whether a process runs; a zombie does not.
pub(crate) fn is_alive(number: u32) -> bool {
    !matches!(state_of(number), None | Some('Z' | 'X'))
}

/// The third column of `/proc/N/stat`.
pub(crate) fn state_of(number: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

pub(crate) fn children_of(number: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{number}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()).collect()
}

/// Parents before their children.
pub(crate) fn descendants_of(number: u32) -> Vec<u32> {
    let mut all = vec![number];
    let mut at = 0;
    while at < all.len() {
        all.extend(children_of(all[at]));
        at += 1;
    }
    all.split_off(1)
}

/// A command line of lockfast whose environment has only the path and the store.
pub(crate) fn lockfast(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockfast"));
    command.args(args).env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("LOCKFAST_URL", "memory:");
    command.current_dir(std::env::temp_dir()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command line that ends by itself.
pub(crate) fn run(args: &[&str]) -> Outcome {
    outcome(lockfast(args))
}

pub(crate) fn outcome(command: Command) -> Outcome {
    Running::start(command).end()
}

/// A program that runs, and its descendants.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
    /// Process ids that the test has learned, killed at the end.
    known_pids: Vec<u32>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        // Without a pipe here, the test reads standard error itself.
        let errors = child.stderr.take().map_or_else(|| channel().1, lines_of);
        Self { child, lines, errors, known_pids: Vec::new() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The guardian: the one child of lockfast.
    pub(crate) fn guardian(&mut self) -> u32 {
        until("there is a guardian", || !children_of(self.child.id()).is_empty());
        let guardian = children_of(self.child.id())[0];
        self.known_pids.push(guardian);
        guardian
    }

    /// Waits for the next line of standard output.
    pub(crate) fn read_line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| {
            panic!("the command wrote no line within the time: {error}; {}", rest_of(&self.errors))
        })
    }

    /// The next line, if it was written already.
    pub(crate) fn try_read_line(&self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Waits for the next line of standard error.
    pub(crate) fn read_error_line(&self) -> String {
        self.errors.recv_timeout(PATIENCE).expect("lockfast writes a message within the time")
    }

    /// Waits for the next line, which is a process id.
    pub(crate) fn read_pid(&mut self) -> u32 {
        let number = self.read_line().trim().parse().unwrap();
        self.known_pids.push(number);
        number
    }

    pub(crate) fn write(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    /// Stops lockfast, and returns when it is stopped.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        until("lockfast is stopped", || state_of(self.pid()) == Some('T'));
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Outcome {
        drop(self.child.stdin.take());
        let mut status = None;
        until("the program has ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let status = status.unwrap();
        // A program that died of signal n has the code -n.
        let code = status.code().or(status.signal().map(|signal| -signal));
        Outcome { code, stdout: rest_of(&self.lines), stderr: rest_of(&self.errors) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The guardian before lockfast: it would first wait for the command to end.
        for number in descendants_of(self.child.id()).into_iter().chain(self.known_pids.drain(..)) {
            let _ = rustix::process::kill_process(pid(number), Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines that are left to read. A command that lives on may keep the pipe open, so reading ends after 300 ms without a
/// line; lockfast has written its lines before it ended.
fn rest_of(lines: &Receiver<String>) -> String {
    let mut text = String::new();
    while let Ok(line) = lines.recv_timeout(Duration::from_millis(300)) {
        text += &line;
        text.push('\n');
    }
    text
}

fn lines_of(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// A store that several processes share, removed after the test.
pub(crate) struct SharedStore {
    directory: Directory,
    url: String,
}

impl SharedStore {
    pub(crate) fn new() -> Self {
        let directory = Directory::new();
        let url = format!("sqlite:{}", directory.path().join("locks.db").display());
        Self { directory, url }
    }

    pub(crate) fn on(url: String) -> Self {
        Self { directory: Directory::new(), url }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// A command line of lockfast that uses this store.
    pub(crate) fn lockfast(&self, args: &[&str]) -> Command {
        let mut command = lockfast(args);
        command.env("LOCKFAST_URL", self.url()).env("HOME", self.path());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Outcome {
        outcome(self.lockfast(args))
    }

    /// Starts a command that holds the lock until a line is written to it. Returns it with its process id.
    pub(crate) fn hold(&self, options: &[&str]) -> (Running, u32) {
        let line = ["run"].into_iter().chain(options.iter().copied()).chain(["--", "sh", "-c", "echo $$; read line"]);
        let mut command = self.lockfast(&line.collect::<Vec<_>>());
        command.stdin(Stdio::piped());
        let mut running = Running::start(command);
        let pid = running.read_pid();
        (running, pid)
    }

    /// Waits until the queue of `key` has this many entries, holders included.
    pub(crate) fn wait_for_queue_len(&self, key: &str, count: usize) {
        until("the queue has this many entries", || {
            let queue_json = self.run(&["inspect", "-o", "json", key]).stdout;
            queue_json.matches("\"owner\"").count() == count
        });
    }

    /// Starts a command that holds `key` and ignores the ending signal. Returns it with its process id.
    pub(crate) fn hold_stubbornly(&self, key: &str, options: &[&str]) -> (Running, u32) {
        let script = "trap '' TERM; echo $$; while :; do sleep 1; done";
        let line: Vec<&str> = [&["run"], options, &[key, "--", "sh", "-c", script]].concat();
        let mut running = Running::start(self.lockfast(&line));
        let command = running.read_pid();
        (running, command)
    }

    /// Starts a waiter for `key` that prints, once it holds the lock, whether `command` is still alive: `alone` or `two at once`.
    pub(crate) fn start_next_waiter(&self, key: &str, command: u32) -> Running {
        // A zombie counts as dead.
        let state = format!("$(cut -d' ' -f3 /proc/{command}/stat 2>/dev/null)");
        let script = format!("case \"{state}\" in ''|Z|X) echo alone;; *) echo two at once;; esac");
        let mut line = self.lockfast(&["run", key, "--", "sh", "-c", &script]);
        line.stdin(Stdio::null());
        let waiter = Running::start(line);
        self.wait_for_queue_len(key, 2);
        waiter
    }

    /// The fencing token of the holder.
    pub(crate) fn fence_of(&self, key: &str) -> String {
        let queue_json = self.run(&["inspect", "-o", "json", key]).stdout;
        let queue: serde_json::Value = serde_json::from_str(&queue_json).unwrap();
        queue["holders"][0]["fence"].to_string()
    }
}
