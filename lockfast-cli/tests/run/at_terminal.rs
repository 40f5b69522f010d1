//! On a real terminal, with a shell that has job control: Ctrl-C, Ctrl-Z, `fg`, and the terminal's foreground group.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::fixture::{Directory, PATIENCE, now, until};
use crate::processes::{descendants_of, is_alive, pid};

/// A terminal with an interactive shell on it.
struct Terminal {
    shell: Child,
    keyboard: File,
    screen: Receiver<String>,
    seen: String,
    directory: Directory,
}

impl Terminal {
    fn open() -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let directory = Directory::new();
        // `setsid -c` makes the terminal the controlling one of a new session.
        let slave = || Stdio::from(File::options().read(true).write(true).open(&name).unwrap());
        let mut command = Command::new("setsid");
        command.args(["-c", "bash", "--norc", "--noprofile", "--noediting", "-i"]).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("PS1", "prompt> ").env("HOME", directory.path());
        command.env("LOCKFAST_URL", "memory:").env("L", env!("CARGO_BIN_EXE_lockfast")).current_dir(directory.path());
        let shell = command.stdin(slave()).stdout(slave()).stderr(slave()).spawn().unwrap();
        let screen = text_of(master.try_clone().unwrap());
        let mut terminal = Self { shell, keyboard: master.into(), screen, seen: String::new(), directory };
        terminal.shows("prompt> ");
        // Typed text is not echoed: the screen shows only what programs write.
        terminal.types("stty -echo\n");
        terminal.shows("prompt> ");
        terminal
    }

    fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until `text` is on the screen, and drops everything up to its end. Returns the text before it.
    fn shows(&mut self, text: &str) -> String {
        let patience = now() + PATIENCE;
        loop {
            if let Some(at) = self.seen.find(text) {
                let before = self.seen[..at].to_owned();
                self.seen.drain(..at + text.len());
                return before;
            }
            match self.screen.recv_timeout(Duration::from_millis(100)) {
                Ok(more) => self.seen += &more,
                Err(_) => assert!(now() < patience, "waited too long for {text:?} in {:?}", self.seen),
            }
        }
    }

    /// The exit code of the last command.
    fn code(&mut self) -> String {
        self.types("echo code=$?.\n");
        self.shows("code=");
        self.shows(".")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        for number in descendants_of(self.shell.id()) {
            let _ = rustix::process::kill_process(pid(number), Signal::KILL);
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
        let _ = self.directory.path();
    }
}

fn text_of(master: OwnedFd) -> Receiver<String> {
    let (say, text) = channel();
    std::thread::spawn(move || {
        let mut master = File::from(master);
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = master.read(&mut bytes) {
            if say.send(String::from_utf8_lossy(&bytes[..count]).into_owned()).is_err() {
                return;
            }
        }
    });
    text
}

#[test]
fn the_command_has_the_terminal_and_the_shell_gets_it_back() {
    let mut terminal = Terminal::open();
    terminal.types("$L run k -- sh -c 'echo ready; read name; echo hello $name; exit 5'\n");
    terminal.shows("ready");
    terminal.types("me\n");
    terminal.shows("hello me");
    terminal.shows("prompt> ");
    assert_eq!(terminal.code(), "5");
}

#[test]
fn ctrl_c_reaches_the_command_once() {
    let mut terminal = Terminal::open();
    let script = "trap \"echo caught\" INT; echo ready; i=0; while [ $i -lt 100000 ]; do read -r line || :; i=$((i+1)); \
                  [ \"$line\" = end ] && exit 7; done";
    terminal.types(&format!("$L run k -- sh -c '{script}'\n"));
    terminal.shows("ready");
    terminal.types("\x03");
    terminal.shows("caught");
    terminal.types("end\n");
    let rest = terminal.shows("prompt> ");
    assert!(!rest.contains("caught"), "{rest}");
    assert_eq!(terminal.code(), "7");
}

#[test]
fn ctrl_c_ends_a_plain_command_as_its_signal_does() {
    let mut terminal = Terminal::open();
    terminal.types("$L run k -- sh -c 'echo ready; exec sleep 600'\n");
    terminal.shows("ready");
    terminal.types("\x03");
    terminal.shows("prompt> ");
    assert_eq!(terminal.code(), "130");
}

#[test]
fn ctrl_c_reaches_a_command_behind_a_pipe_too() {
    let mut terminal = Terminal::open();
    terminal.types("$L run k -- sh -c 'trap \"echo caught; exit 3\" INT; echo ready; while :; do sleep 0.05; done' | (trap '' INT; cat)\n");
    terminal.shows("ready");
    terminal.types("\x03");
    terminal.shows("caught");
    terminal.shows("prompt> ");
}

#[test]
fn ctrl_z_stops_it_and_fg_lets_it_go_on() {
    let mut terminal = Terminal::open();
    terminal.types("$L run k -- sh -c 'echo ready $$.; read name; echo hello $name; exit 5'\n");
    terminal.shows("ready ");
    let command: u32 = terminal.shows(".").parse().unwrap();
    terminal.types("\x1a");
    terminal.shows("Stopped");
    terminal.shows("prompt> ");
    until("the command is stopped", || crate::processes::state_of(command) == Some('T'));
    terminal.types("echo the shell is here\n");
    terminal.shows("the shell is here");
    terminal.types("fg\n");
    until("the command goes on", || crate::processes::state_of(command) == Some('S'));
    terminal.types("me\n");
    terminal.shows("hello me");
    terminal.shows("prompt> ");
    assert_eq!(terminal.code(), "5");
}

#[test]
fn a_job_stopped_for_longer_than_its_lease_ends_with_79() {
    let mut terminal = Terminal::open();
    terminal.types("$L run --ttl 1 k -- sh -c 'echo ready $$.; read name; echo never'\n");
    terminal.shows("ready ");
    let command: u32 = terminal.shows(".").parse().unwrap();
    terminal.types("\x1a");
    terminal.shows("Stopped");
    until("the command is dead", || !is_alive(command));
    // The guardian continues lockfast, which reports the loss.
    terminal.shows("the lock on k");
    terminal.types("wait %1; echo it was $?.\n");
    terminal.shows("it was 79.");
}

#[test]
fn a_command_in_the_background_waits_for_the_terminal() {
    let mut terminal = Terminal::open();
    terminal.types("$L run k -- sh -c 'echo ready; read name; echo hello $name; exit 5' &\n");
    terminal.shows("ready");
    // The shell reports the state of its jobs at the next command.
    until("the job has stopped", || {
        terminal.types("jobs\n");
        terminal.shows("[1]+  ");
        terminal.shows("prompt> ").starts_with("Stopped")
    });
    terminal.types("fg\n");
    // Text that is typed before the job is in the foreground is kept for it.
    terminal.types("me\n");
    terminal.shows("hello me");
    terminal.shows("prompt> ");
    assert_eq!(terminal.code(), "5");
}

#[test]
fn the_terminal_returns_after_a_foreground_job_was_killed() {
    let mut terminal = Terminal::open();
    // The inner shell gives the terminal to its job; the script around lockfast has no job control and would not take it back.
    let command = "bash --norc -i -c \"set -m; sleep 600; :\"";
    let run = format!("$L run --at-most 1 -k 0 k -- {command}");
    terminal.types(&format!("sh -c '{run}; echo over; read name; echo hello $name.'\n"));
    terminal.shows("over");
    terminal.types("me\n");
    terminal.shows("hello ");
    assert_eq!(terminal.shows("."), "me");
}
