//! On a real terminal, with a shell that has job control: Ctrl-C, Ctrl-Z, `fg`, and the terminal's foreground group.

use std::fs::File;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use rustix::process::Signal;

use crate::fixture::{Directory, PATIENCE, now, open_terminal, terminal_output, until};
use crate::processes::{descendants_of, is_alive, pid};

/// A terminal with an interactive shell on it.
struct Terminal {
    shell: Child,
    keyboard: File,
    screen: Receiver<String>,
    /// Read from the screen, and not yet waited for.
    unmatched: String,
    directory: Directory,
}

impl Terminal {
    fn open() -> Self {
        let (ours, theirs) = open_terminal();
        let directory = Directory::new();
        let stream = || Stdio::from(theirs.try_clone().unwrap());
        // `setsid -c` makes the terminal the controlling one of a new session.
        let mut command = Command::new("setsid");
        command.args(["-c", "bash", "--norc", "--noprofile", "--noediting", "-i"]).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("PS1", "prompt> ").env("HOME", directory.path());
        command.env("LOCKFAST_URL", "memory:").env("L", env!("CARGO_BIN_EXE_lockfast")).current_dir(directory.path());
        let shell = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();
        let screen = terminal_output(ours.try_clone().unwrap());
        let mut terminal = Self { shell, keyboard: ours, screen, unmatched: String::new(), directory };
        terminal.wait_for("prompt> ");
        // Typed text is not echoed: the screen shows only what programs write.
        terminal.type_text("stty -echo\n");
        terminal.wait_for("prompt> ");
        terminal
    }

    fn type_text(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until `text` is on the screen, and drops everything up to its end. Returns the text before it.
    fn wait_for(&mut self, text: &str) -> String {
        let patience = now() + PATIENCE;
        loop {
            if let Some(at) = self.unmatched.find(text) {
                let before = self.unmatched[..at].to_owned();
                self.unmatched.drain(..at + text.len());
                return before;
            }
            match self.screen.recv_timeout(Duration::from_millis(100)) {
                Ok(more) => self.unmatched += &more,
                Err(_) => assert!(now() < patience, "waited too long for {text:?} in {:?}", self.unmatched),
            }
        }
    }

    /// Asks the shell for the exit code of its last command.
    fn exit_code(&mut self) -> String {
        self.type_text("echo code=$?.\n");
        self.wait_for("code=");
        self.wait_for(".")
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

#[test]
fn the_command_has_the_terminal_and_the_shell_gets_it_back() {
    let mut terminal = Terminal::open();
    terminal.type_text("$L run k -- sh -c 'echo ready; read name; echo hello $name; exit 5'\n");
    terminal.wait_for("ready");
    terminal.type_text("me\n");
    terminal.wait_for("hello me");
    terminal.wait_for("prompt> ");
    assert_eq!(terminal.exit_code(), "5");
}

#[test]
fn ctrl_c_reaches_the_command_once() {
    let mut terminal = Terminal::open();
    let script = "trap \"echo caught\" INT; echo ready; i=0; while [ $i -lt 100000 ]; do read -r line || :; i=$((i+1)); \
                  [ \"$line\" = end ] && exit 7; done";
    terminal.type_text(&format!("$L run k -- sh -c '{script}'\n"));
    terminal.wait_for("ready");
    terminal.type_text("\x03");
    terminal.wait_for("caught");
    terminal.type_text("end\n");
    let rest = terminal.wait_for("prompt> ");
    assert!(!rest.contains("caught"), "{rest}");
    assert_eq!(terminal.exit_code(), "7");
}

#[test]
fn ctrl_c_ends_a_plain_command_as_its_signal_does() {
    let mut terminal = Terminal::open();
    terminal.type_text("$L run k -- sh -c 'echo ready; exec sleep 600'\n");
    terminal.wait_for("ready");
    terminal.type_text("\x03");
    terminal.wait_for("prompt> ");
    assert_eq!(terminal.exit_code(), "130");
}

#[test]
fn ctrl_c_reaches_a_command_behind_a_pipe_too() {
    let mut terminal = Terminal::open();
    terminal.type_text("$L run k -- sh -c 'trap \"echo caught; exit 3\" INT; echo ready; while :; do sleep 0.05; done' | (trap '' INT; cat)\n");
    terminal.wait_for("ready");
    terminal.type_text("\x03");
    terminal.wait_for("caught");
    terminal.wait_for("prompt> ");
}

#[test]
fn ctrl_z_stops_it_and_fg_lets_it_go_on() {
    let mut terminal = Terminal::open();
    terminal.type_text("$L run k -- sh -c 'echo ready $$.; read name; echo hello $name; exit 5'\n");
    terminal.wait_for("ready ");
    let command: u32 = terminal.wait_for(".").parse().unwrap();
    terminal.type_text("\x1a");
    terminal.wait_for("Stopped");
    terminal.wait_for("prompt> ");
    until("the command is stopped", || crate::processes::state_of(command) == Some('T'));
    terminal.type_text("echo the shell is here\n");
    terminal.wait_for("the shell is here");
    terminal.type_text("fg\n");
    until("the command goes on", || crate::processes::state_of(command) == Some('S'));
    terminal.type_text("me\n");
    terminal.wait_for("hello me");
    terminal.wait_for("prompt> ");
    assert_eq!(terminal.exit_code(), "5");
}

#[test]
fn a_job_stopped_for_longer_than_its_lease_ends_with_79() {
    let mut terminal = Terminal::open();
    terminal.type_text("$L run --ttl 1 k -- sh -c 'echo ready $$.; read name; echo never'\n");
    terminal.wait_for("ready ");
    let command: u32 = terminal.wait_for(".").parse().unwrap();
    terminal.type_text("\x1a");
    terminal.wait_for("Stopped");
    until("the command is dead", || !is_alive(command));
    // The guardian continues lockfast, which reports the loss.
    terminal.wait_for("the lock on k");
    terminal.type_text("wait %1; echo it was $?.\n");
    terminal.wait_for("it was 79.");
}

#[test]
fn a_command_in_the_background_waits_for_the_terminal() {
    let mut terminal = Terminal::open();
    terminal.type_text("$L run k -- sh -c 'echo ready; read name; echo hello $name; exit 5' &\n");
    terminal.wait_for("ready");
    // The shell reports the state of its jobs at the next command.
    until("the job has stopped", || {
        terminal.type_text("jobs\n");
        terminal.wait_for("[1]+  ");
        terminal.wait_for("prompt> ").starts_with("Stopped")
    });
    terminal.type_text("fg\n");
    // Text that is typed before the job is in the foreground is kept for it.
    terminal.type_text("me\n");
    terminal.wait_for("hello me");
    terminal.wait_for("prompt> ");
    assert_eq!(terminal.exit_code(), "5");
}

#[test]
fn the_terminal_returns_after_a_foreground_job_was_killed() {
    let mut terminal = Terminal::open();
    // The inner shell gives the terminal to its job; the script around lockfast has no job control and would not take it back.
    let command = "bash --norc -i -c \"set -m; sleep 600; :\"";
    let run = format!("$L run --at-most 1 -k 0 k -- {command}");
    terminal.type_text(&format!("sh -c '{run}; echo over; read name; echo hello $name.'\n"));
    terminal.wait_for("over");
    terminal.type_text("me\n");
    terminal.wait_for("hello ");
    assert_eq!(terminal.wait_for("."), "me");
}
