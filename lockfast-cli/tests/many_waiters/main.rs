//! The promises of `lockfast run` in large numbers: many kills, many breaks, many waiters. `cargo xtask test` does a few of
//! each; `cargo xtask soak` does all of them and prints what it did.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(dead_code, reason = "the fixture is shared with other tests")]

#[path = "../fixture/mod.rs"]
mod fixture;
#[path = "../run/processes.rs"]
mod processes;

use std::time::Duration;

use rustix::process::Signal;

use fixture::{now, until};
use processes::{Running, SharedStore, pid};

/// How many: `few` by default, `all` under `cargo xtask soak`.
fn times(few: usize, all: usize) -> usize {
    if std::env::var_os("LOCKFAST_SOAK").is_some() { all } else { few }
}

#[test]
fn after_a_kill_the_next_command_never_meets_the_old_one() {
    let (shared, kills) = (SharedStore::new(), times(5, 200));
    for _ in 0..kills {
        let (holder, command) = shared.hold_stubbornly("k", &["-k", "0.1"]);
        let waiter = shared.start_next_waiter("k", command);
        holder.signal(Signal::KILL);
        assert_eq!(waiter.read_line(), "alone");
        assert_eq!(waiter.end().code, Some(0));
    }
    eprintln!("{kills} kills -9 of lockfast: the next command never met the old one");
}

#[test]
fn a_waiter_starts_at_once_after_its_holder_was_killed() {
    let (shared, kills) = (SharedStore::new(), times(5, 100));
    let mut took = Vec::new();
    for _ in 0..kills {
        let sleeper = shared.lockfast(&["run", "k", "--", "sh", "-c", "echo $$; exec sleep 600"]);
        let mut holder = Running::start(sleeper);
        let command = holder.read_pid();
        let waiter = shared.start_next_waiter("k", command);
        let killed_at = now();
        holder.signal(Signal::KILL);
        // The guardian may have been quicker.
        let _ = rustix::process::kill_process(pid(command), Signal::KILL);
        assert_eq!(waiter.read_line(), "alone");
        took.push(now().since(killed_at));
        assert_eq!(waiter.end().code, Some(0));
    }
    took.sort_unstable();
    let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
    eprintln!("{kills} kills -9 of lockfast and its command: the next began after {median:?}, {longest:?} at most");
    assert!(median < Duration::from_millis(100), "{took:?}");
}

#[test]
fn a_broken_lock_ends_its_command_before_the_hand_off() {
    let (shared, breaks) = (SharedStore::new(), times(3, 100));
    for _ in 0..breaks {
        let (holder, command) = shared.hold_stubbornly("k", &["-k", "0.1"]);
        let waiter = shared.start_next_waiter("k", command);
        assert_eq!(shared.run(&["break", "k", "--fence", &shared.fence_of("k")]).code, Some(0));
        assert_eq!(waiter.read_line(), "alone");
        assert_eq!(waiter.end().code, Some(0));
        assert_eq!(holder.end().code, Some(79));
    }
    eprintln!("{breaks} breaks: the command was dead before the next one began, and lockfast ended with 79");
}

#[test]
fn a_stopped_lockfast_loses_its_command_within_its_lease() {
    let (shared, stops) = (SharedStore::new(), times(4, 100));
    let stop_one = |key: &str| {
        let (holder, command) = shared.hold_stubbornly(key, &["--ttl", "1.5", "-k", "0.1"]);
        let waiter = shared.start_next_waiter(key, command);
        holder.stop();
        assert_eq!(waiter.read_line(), "alone");
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
fn many_waiters_run_one_at_a_time_in_queue_order() {
    let (processes, runs) = (times(10, 50), times(5, 100));
    let shared = SharedStore::new();
    let (flag, log) = (shared.path().join("inside"), shared.path().join("log"));
    // Fails if another command runs at the same time.
    let script = format!(
        "set -C; : > {0} || exit 9; set +C; echo $LOCKFAST_FENCE >> {1}; rm {0}",
        flag.display(),
        log.display()
    );
    let began_at = now();
    std::thread::scope(|scope| {
        for _ in 0..processes {
            scope.spawn(|| {
                for _ in 0..runs {
                    let mut running = Running::start(shared.lockfast(&["run", "k", "--", "sh", "-c", &script]));
                    while !running.has_ended() {
                        assert!(now().since(began_at) < Duration::from_secs(1200), "a waiter is stuck");
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    let output = running.end();
                    assert_eq!(output.code, Some(0), "{}", output.stderr);
                }
            });
        }
    });
    let log = std::fs::read_to_string(log).unwrap();
    let fences: Vec<u64> = log.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(fences.len(), processes * runs, "all finish");
    // A fence is the position in the queue, drawn on joining.
    assert!(fences.is_sorted_by(|before, after| before < after), "in the order they came");
    let took = now().since(began_at);
    eprintln!("{processes} processes, {runs} runs each: one at a time, in the order they came, in {took:.1?}");
    until("the queue is empty", || shared.run(&["status", "k"]).code == Some(1));
}
