//! A shell with a home of its own and the `lockfast` that was just built. Its processes and its Redis server end with it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use lockfast::Clock;
use rustix::process::{Pid, Signal};

/// Longer than anything in these tests takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Printed before the exit code of each command.
const END: &str = "----- the command has ended with";

pub(crate) struct Shell {
    home: PathBuf,
    process: Child,
    lines: Receiver<String>,
    /// The server behind `localhost`, if the document needs one.
    redis: Option<servers::Redis>,
}

impl Shell {
    pub(crate) fn open(redis: Option<servers::Redis>) -> Self {
        let home =
            std::env::temp_dir().join(format!("lockfast-documents-{}-{:08x}", std::process::id(), fastrand::u32(..)));
        fs::create_dir(&home).unwrap();
        let home = fs::canonicalize(home).unwrap();
        let built = PathBuf::from(env!("CARGO_BIN_EXE_lockfast"));
        let path = std::env::var_os("PATH").unwrap();
        let path =
            std::env::join_paths([built.parent().unwrap().to_owned()].into_iter().chain(std::env::split_paths(&path)));
        let mut process = Command::new("sh")
            .env_clear()
            .env("PATH", path.unwrap())
            .env("HOME", &home)
            .current_dir(&home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut shell = Self { home, process, lines, redis };
        shell.write("exec 2>&1");
        shell
    }

    /// The output of a command, and its exit code. A command in the background has no output here, and this waits until it
    /// holds or waits in a queue.
    pub(crate) fn enter(&mut self, command: &str) -> (Vec<String>, i32) {
        if !command.ends_with('&') {
            return self.run(command);
        }
        let started = self.run(&format!("{{ {command}\n}} >/dev/null 2>&1"));
        let entry = format!("\"pid\": {},", self.run("echo $!").0.concat());
        let clock = Clock::boot();
        let patience = clock.now() + PATIENCE;
        while !self.run("lockfast ls -o json").0.concat().contains(&entry) {
            assert!(clock.now() < patience, "{command} neither holds nor waits");
        }
        started
    }

    fn run(&mut self, command: &str) -> (Vec<String>, i32) {
        let redis = self.redis.as_ref().map(|redis| format!("127.0.0.1:{}", redis.port()));
        let command = redis.as_ref().map_or(command.to_owned(), |redis| command.replace("localhost", redis));
        // The shell reads the next commands from its own input, so this one gets another. The leading newline separates output
        // without an end of line from the exit code.
        self.write(&format!("{{ {command}\n}} </dev/null\nprintf '\\n{END} %d\\n' $?"));
        let mut output = Vec::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("{command} has not ended; its output is {output:?}"));
            match line.strip_prefix(END) {
                None => {
                    let line = line.replace(self.home.to_str().unwrap(), "/home/ann");
                    output.push(redis.as_ref().map_or(line.clone(), |redis| line.replace(redis, "localhost")));
                }
                Some(code) => {
                    if output.last().is_some_and(String::is_empty) {
                        output.pop();
                    }
                    return (output, code.trim().parse().unwrap());
                }
            }
        }
    }

    fn write(&mut self, text: &str) {
        let input = self.process.stdin.as_mut().expect("standard input is taken only when the shell is dropped");
        writeln!(input, "{text}").unwrap();
    }

    fn children(&self) -> Vec<Pid> {
        let id = self.process.id();
        let list = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Each lockfast forwards the signal to its command and ends after it; the shell reaps them.
        for child in self.children() {
            let _ = rustix::process::kill_process(child, Signal::TERM);
        }
        if let Some(mut input) = self.process.stdin.take() {
            let _ = writeln!(input, "wait");
        }
        let clock = Clock::boot();
        let patience = clock.now() + Duration::from_secs(10);
        while self.process.try_wait().is_ok_and(|ended| ended.is_none()) && clock.now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        for child in self.children() {
            let _ = rustix::process::kill_process(child, Signal::KILL);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.home);
    }
}
