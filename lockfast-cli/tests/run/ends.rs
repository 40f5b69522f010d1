//! Commands that have to end: the cap, a lock that is lost, lockfast or its guardian stopped or killed.

use std::time::Duration;

use rustix::process::Signal;

use crate::fixture::{now, until};
use crate::processes::{Running, is_alive, kill, lockfast, run};

/// A command that ignores SIGTERM, with a child in its group and a grandchild outside of it. Prints all three process ids.
const STUBBORN: &str = r#"
    trap '' TERM
    sh -c 'trap "" TERM; echo $$; while :; do sleep 1; done' &
    setsid sh -c 'trap "" TERM; (trap "" TERM; while :; do sleep 1; done) & echo $!; wait' &
    sleep 0.1; echo $$
    while :; do sleep 1; done
"#;

fn start_stubborn(options: &[&str]) -> (Running, [u32; 3]) {
    let line: Vec<&str> =
        ["run"].into_iter().chain(options.iter().copied()).chain(["k", "--", "sh", "-c", STUBBORN]).collect();
    let mut running = Running::start(lockfast(&line));
    let tree = [(); 3].map(|()| running.read_pid());
    assert!(tree.iter().all(|pid| is_alive(*pid)));
    (running, tree)
}

/// A guardian that did not notice lockfast's death would act only at its deadline, just before a lease of 30 s ends.
const BEFORE_THE_DEADLINE: Duration = Duration::from_secs(15);

fn until_dead(tree: &[u32]) {
    until("the tree is dead", || !tree.iter().any(|pid| is_alive(*pid)));
}

#[test]
fn a_command_that_takes_too_long_is_asked_to_end() {
    let script = "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.01; done";
    let output = run(&["run", "--at-most", "0.3", "k", "--", "sh", "-c", script]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(124), "ready\nasked\n"));
    assert!(output.stderr.contains("--at-most"), "{}", output.stderr);
}

#[test]
fn the_ending_signal_can_be_chosen() {
    let script = "trap 'echo asked; exit 3' USR2; echo ready; while :; do sleep 0.01; done";
    let output = run(&["run", "--at-most", "0.3", "--signal", "usr2", "k", "--", "sh", "-c", script]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(124), "ready\nasked\n"));
}

#[test]
fn a_command_that_ignores_the_signal_is_killed_with_its_tree() {
    let began_at = now();
    let (running, tree) = start_stubborn(&["--at-most", "0.5", "-k", "0.2"]);
    let output = running.end();
    assert_eq!(output.code, Some(124));
    // When lockfast has ended, no descendant may be left.
    assert!(!tree.iter().any(|pid| is_alive(*pid)));
    // By the guardian: lockfast itself would kill the tree 10 s later, with a message.
    assert!(now().since(began_at) < Duration::from_secs(9), "killed only {:?} after the start", now().since(began_at));
    assert!(!output.stderr.contains("guardian"), "{}", output.stderr);
}

#[test]
fn the_time_to_clean_up_is_the_same_after_many_renewals() {
    // The guardian's first deadline has passed when the cap is reached: only the last one counts.
    let script = "trap 'sleep 0.3; echo cleaned up; exit 3' TERM; echo ready; while :; do sleep 0.01; done";
    let output = run(&["run", "--ttl", "6", "--at-most", "7", "-k", "2", "k", "--", "sh", "-c", script]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(124), "ready\ncleaned up\n"), "{}", output.stderr);
}

#[test]
fn a_command_that_ends_in_time_is_not_touched() {
    let output = run(&["run", "--at-most", "20", "k", "--", "sh", "-c", "exit 4"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(4), ""));
}

#[test]
fn background_processes_outlive_a_command_that_exits() {
    let mut running = Running::start(lockfast(&["run", "k", "--", "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"]));
    let left = running.read_pid();
    until("lockfast has ended", || running.has_ended());
    assert!(is_alive(left));
}

#[test]
fn a_stopped_lockfast_loses_the_command_before_the_lease_ends() {
    let ttl = Duration::from_secs(2);
    let (running, tree) = start_stubborn(&["--ttl", "2", "-k", "0.3"]);
    running.stop();
    // The last renewal was before this, so the lease ends before `stopped_at + ttl`.
    let stopped_at = now();
    until_dead(&tree);
    assert!(now() < stopped_at + ttl, "dead only {:?} after the stop", now().since(stopped_at));
    // The guardian continues it.
    let output = running.end();
    assert_eq!(output.code, Some(79), "{}", output.stderr);
    assert!(output.stderr.contains("the lock on k"), "{}", output.stderr);
}

#[test]
fn a_lockfast_that_is_stopped_briefly_loses_nothing() {
    let mut command = lockfast(&["run", "--ttl", "3", "k", "--", "sh", "-c", "echo ready; read line; exit 6"]);
    command.stdin(std::process::Stdio::piped());
    let mut running = Running::start(command);
    assert_eq!(running.read_line(), "ready");
    running.stop();
    let stopped_at = now();
    until("a third of the lease has passed", || now() >= stopped_at + Duration::from_secs(1));
    running.signal(Signal::CONT);
    running.write("on\n");
    assert_eq!(running.end().code, Some(6));
}

#[test]
fn the_command_dies_with_a_killed_lockfast() {
    let (running, tree) = start_stubborn(&["-k", "0.3"]);
    let killed_at = now();
    running.signal(Signal::KILL);
    until_dead(&tree);
    assert!(now().since(killed_at) < BEFORE_THE_DEADLINE, "dead only {:?} after lockfast", now().since(killed_at));
    let output = running.end();
    assert_eq!(output.code, Some(-9));
}

#[test]
fn a_command_is_asked_before_it_dies_with_a_killed_lockfast() {
    let script = "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.01; done";
    let running = Running::start(lockfast(&["run", "k", "--", "sh", "-c", script]));
    assert_eq!(running.read_line(), "ready");
    let killed_at = now();
    running.signal(Signal::KILL);
    assert_eq!(running.read_line(), "asked");
    assert!(
        now().since(killed_at) < BEFORE_THE_DEADLINE,
        "asked only {:?} after lockfast died",
        now().since(killed_at)
    );
}

#[test]
fn the_guardian_leaves_with_the_last_of_the_tree() {
    let (mut running, tree) = start_stubborn(&["-k", "0.3"]);
    let guardian = running.guardian();
    running.signal(Signal::KILL);
    until_dead(&tree);
    until("the guardian has left", || !is_alive(guardian));
}

#[test]
fn the_command_dies_with_a_killed_guardian() {
    let (mut running, tree) = start_stubborn(&[]);
    let guardian = running.guardian();
    kill(guardian, Signal::KILL);
    let output = running.end();
    assert_eq!(output.code, Some(125));
    assert!(output.stderr.contains("guardian"), "{}", output.stderr);
    assert!(!tree.iter().any(|pid| is_alive(*pid)));
}

#[test]
fn ordinary_signals_do_not_end_the_guardian() {
    let mut command = lockfast(&["run", "k", "--", "sh", "-c", "echo ready; read line; exit 6"]);
    command.stdin(std::process::Stdio::piped());
    let mut running = Running::start(command);
    assert_eq!(running.read_line(), "ready");
    let guardian = running.guardian();
    let signals = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];
    for signal in signals.into_iter().chain([Signal::TSTP, Signal::TTIN, Signal::TTOU, Signal::PIPE]) {
        kill(guardian, signal);
    }
    running.write("on\n");
    assert_eq!(running.end().code, Some(6));
}

#[test]
fn a_stopped_guardian_does_not_keep_the_command_alive() {
    let (mut running, tree) = start_stubborn(&["--ttl", "2", "-k", "0.3"]);
    let guardian = running.guardian();
    running.stop();
    let stopped_at = now();
    kill(guardian, Signal::STOP);
    until("the lease has ended", || now() >= stopped_at + Duration::from_secs(2));
    assert!(tree.iter().all(|pid| is_alive(*pid)), "neither lockfast nor its guardian could end it");
    running.signal(Signal::CONT);
    let output = running.end();
    assert_eq!(output.code, Some(79), "{}", output.stderr);
    assert!(!tree.iter().any(|pid| is_alive(*pid)));
}

#[test]
fn a_cap_that_a_stopped_guardian_missed_is_still_a_cap() {
    let (mut running, tree) = start_stubborn(&["--at-most", "0.5", "-k", "0"]);
    let guardian = running.guardian();
    kill(guardian, Signal::STOP);
    let output = running.end();
    assert_eq!(output.code, Some(124), "{}", output.stderr);
    assert!(!tree.iter().any(|pid| is_alive(*pid)));
}

#[test]
fn on_lost_warn_lets_the_command_go_on() {
    let mut command =
        lockfast(&["run", "--ttl", "1", "--on-lost", "warn", "k", "--", "sh", "-c", "echo ready; read line; exit 6"]);
    command.stdin(std::process::Stdio::piped());
    let mut running = Running::start(command);
    assert_eq!(running.read_line(), "ready");
    running.stop();
    let stopped_at = now();
    until("the lease has ended", || now() >= stopped_at + Duration::from_millis(1200));
    running.signal(Signal::CONT);
    assert!(running.read_error_line().contains("goes on without it"));
    running.write("on\n");
    assert_eq!(running.end().code, Some(6));
}

#[test]
fn a_stopped_command_is_let_go_on_to_end_itself() {
    let script = "trap 'echo asked; exit 3' TERM; echo ready; kill -STOP $$; echo never";
    let output = run(&["run", "--at-most", "0.4", "k", "--", "sh", "-c", script]);
    assert_eq!(output.code, Some(124));
    assert!(output.stdout.contains("asked"), "{}", output.stdout);
}
