//! Signals to lockfast: forwarded to the command's whole group, once each.

use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::fixture::until;
use crate::processes::{Running, is_alive, lockfast, outcome, run};

const FORWARDED: [(&str, Signal); 6] = [
    ("INT", Signal::INT),
    ("TERM", Signal::TERM),
    ("HUP", Signal::HUP),
    ("QUIT", Signal::QUIT),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
];

#[test]
fn each_signal_reaches_the_command_once() {
    let trap = r#"trap "echo NAME" NAME; "#;
    let traps: String = FORWARDED.iter().map(|(name, _)| trap.replace("NAME", name)).collect();
    let script = format!("{traps} echo ready; i=0; while [ $i -lt 100000 ]; do sleep 0.01; i=$((i+1)); done");
    let running = Running::start(lockfast(&["run", "k", "--", "sh", "-c", &script]));
    assert_eq!(running.read_line(), "ready");
    for (name, signal) in FORWARDED {
        running.signal(signal);
        assert_eq!(running.read_line(), name);
    }
    running.signal(Signal::USR1);
    assert_eq!(running.read_line(), "USR1", "no signal came twice in between");
}

#[test]
fn a_signal_reaches_the_whole_group_and_leaves_no_orphan() {
    for (name, signal) in FORWARDED {
        // Without job control the shell starts a background process with INT and QUIT ignored; a foreground child has neither.
        let script = "sh -c 'echo $$; exec sleep 600'; echo not reached";
        let mut running = Running::start(lockfast(&["run", "k", "--", "sh", "-c", script]));
        let grandchild = running.read_pid();
        until("the grandchild sleeps", || {
            std::fs::read_to_string(format!("/proc/{grandchild}/comm")).is_ok_and(|name| name.trim() == "sleep")
        });
        running.signal(signal);
        until("the grandchild has ended", || !is_alive(grandchild));
        let output = running.end();
        assert_eq!(output.code, Some(128 + signal.as_raw()), "{name}");
    }
}

#[test]
fn a_command_may_take_its_time_after_a_signal() {
    let script = "trap 'echo cleaning; sleep 0.2; echo clean; exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    let running = Running::start(lockfast(&["run", "k", "--", "sh", "-c", script]));
    assert_eq!(running.read_line(), "ready");
    running.signal(Signal::TERM);
    let output = running.end();
    assert_eq!((output.code, output.stdout.as_str()), (Some(5), "cleaning\nclean\n"));
}

#[test]
fn an_ignored_signal_stays_ignored_in_the_command() {
    let inner = "kill -HUP $$; echo alive";
    let lockfast = env!("CARGO_BIN_EXE_lockfast");
    let line = format!("trap '' HUP; exec {lockfast} --store memory: run k -- sh -c '{inner}'");
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    assert_eq!(outcome(shell).stdout, "alive\n");
    assert_eq!(run(&["run", "k", "--", "sh", "-c", inner]).code, Some(129));
}
