//! The promises of `lockfast run` in numbers: many kills, many breaks, many at once. A few of each here;
//! `cargo xtask soak` does all of them and prints what it did.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(dead_code, reason = "the stage is shared with other tests")]

#[path = "../run/stage.rs"]
mod stage;

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use stage::{Running, Shared, now, pid, until};

/// How many: the first number usually, the second when everything is asked for.
fn times(few: usize, all: usize) -> usize {
    if std::env::var_os("LOCKFAST_SOAK").is_some() { all } else { few }
}

/// A command that ignores being asked to end. Its number, too.
fn stubborn(shared: &Shared, key: &str, options: &[&str]) -> (Running, u32) {
    let script = "trap '' TERM; echo $$; while :; do sleep 1; done";
    let line: Vec<&str> = [&["run"], options, &[key, "--", "sh", "-c", script]].concat();
    let mut running = Running::start(shared.lockfast(&line));
    let command = running.line_pid();
    (running, command)
}

/// Waits for the lock, and then says whether `command` is there.
fn next_one(shared: &Shared, key: &str, command: u32) -> Running {
    // One that is dead and not waited for yet is dead.
    let state = format!("$(cut -d' ' -f3 /proc/{command}/stat 2>/dev/null)");
    let script = format!("case \"{state}\" in ''|Z|X) echo alone;; *) echo two at once;; esac");
    let mut line = shared.lockfast(&["run", key, "--", "sh", "-c", &script]);
    line.stdin(Stdio::null());
    let waiter = Running::start(line);
    shared.until_in_line(key, 2);
    waiter
}

fn fence_of(shared: &Shared, key: &str) -> String {
    let shown = shared.run(&["inspect", "-o", "json", key]).stdout;
    let fence = shown.split("\"fence\":").nth(1).unwrap().trim_start();
    fence.chars().take_while(char::is_ascii_digit).collect()
}

#[test]
fn the_next_command_never_meets_the_old_one_after_a_kill_of_lockfast() {
    let (shared, kills) = (Shared::new(), times(5, 200));
    for _ in 0..kills {
        let (holder, command) = stubborn(&shared, "k", &["-k", "0.1"]);
        let waiter = next_one(&shared, "k", command);
        holder.signal(Signal::KILL);
        assert_eq!(waiter.line(), "alone");
        assert_eq!(waiter.end().code, Some(0));
    }
    eprintln!("{kills} kills -9 of lockfast: the next command never met the old one");
}

#[test]
fn who_waits_starts_at_once_after_a_kill_of_lockfast_and_its_command() {
    let (shared, kills) = (Shared::new(), times(5, 100));
    let mut took = Vec::new();
    for _ in 0..kills {
        let sleeper = shared.lockfast(&["run", "k", "--", "sh", "-c", "echo $$; exec sleep 600"]);
        let mut holder = Running::start(sleeper);
        let command = holder.line_pid();
        let waiter = next_one(&shared, "k", command);
        let killed = now();
        holder.signal(Signal::KILL);
        // The guardian may have been quicker.
        let _ = rustix::process::kill_process(pid(command), Signal::KILL);
        assert_eq!(waiter.line(), "alone");
        took.push(now().since(killed));
        assert_eq!(waiter.end().code, Some(0));
    }
    took.sort_unstable();
    let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
    eprintln!("{kills} kills -9 of lockfast and its command: the next began after {median:?}, {longest:?} at most");
    assert!(median < Duration::from_millis(100), "{took:?}");
}

#[test]
fn the_command_is_dead_before_a_broken_lock_passes_on() {
    let (shared, breaks) = (Shared::new(), times(3, 100));
    for _ in 0..breaks {
        let (holder, command) = stubborn(&shared, "k", &["-k", "0.1"]);
        let waiter = next_one(&shared, "k", command);
        assert_eq!(shared.run(&["break", "k", "--fence", &fence_of(&shared, "k")]).code, Some(0));
        assert_eq!(waiter.line(), "alone");
        assert_eq!(waiter.end().code, Some(0));
        assert_eq!(holder.end().code, Some(79));
    }
    eprintln!("{breaks} breaks: the command was dead before the next one began, and lockfast ended with 79");
}

#[test]
fn the_command_is_dead_before_the_lease_of_a_stopped_lockfast_ends() {
    let (shared, stops) = (Shared::new(), times(4, 100));
    let stop_one = |key: &str| {
        let (holder, command) = stubborn(&shared, key, &["--ttl", "1.5", "-k", "0.1"]);
        let waiter = next_one(&shared, key, command);
        holder.stop();
        assert_eq!(waiter.line(), "alone");
        assert_eq!(waiter.end().code, Some(0));
        assert_eq!(holder.end().code, Some(79));
    };
    let at_a_time = 4;
    std::thread::scope(|scope| {
        for worker in 0..at_a_time {
            let stop_one = &stop_one;
            scope.spawn(move || (0..stops / at_a_time).for_each(|_| stop_one(&format!("k{worker}"))));
        }
    });
    eprintln!("{stops} times lockfast was stopped: the command was dead before its lease had ended");
}

#[test]
fn many_run_one_at_a_time_in_the_order_they_came() {
    let (processes, runs) = (times(10, 50), times(5, 100));
    let shared = Shared::new();
    let (flag, log) = (shared.path().join("inside"), shared.path().join("log"));
    // Fails if somebody else is inside.
    let script = format!(
        "set -C; : > {0} || exit 9; set +C; echo $LOCKFAST_FENCE >> {1}; rm {0}",
        flag.display(),
        log.display()
    );
    let began = now();
    std::thread::scope(|scope| {
        for _ in 0..processes {
            scope.spawn(|| {
                for _ in 0..runs {
                    let mut running = Running::start(shared.lockfast(&["run", "k", "--", "sh", "-c", &script]));
                    while !running.has_ended() {
                        assert!(now().since(began) < Duration::from_secs(1200), "somebody is stuck");
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    let said = running.end();
                    assert_eq!(said.code, Some(0), "{}", said.stderr);
                }
            });
        }
    });
    let log = std::fs::read_to_string(log).unwrap();
    let fences: Vec<u64> = log.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(fences.len(), processes * runs, "all finish");
    // A fence is the place in line, given on arrival.
    assert!(fences.is_sorted_by(|before, after| before < after), "in the order they came");
    let took = now().since(began);
    eprintln!("{processes} processes, {runs} runs each: one at a time, in the order they came, in {took:.1?}");
    until("nothing is left in line", || shared.run(&["status", "k"]).code == Some(1));
}
