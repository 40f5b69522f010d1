//! The table of exit codes, and the environment of a command.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::fixture::Directory;
use crate::processes::{Running, SharedStore, lockfast, outcome, run};

#[test]
fn the_exit_code_is_the_commands_own() {
    for code in [0, 1, 2, 7, 75, 255] {
        assert_eq!(run(&["run", "k", "--", "sh", "-c", &format!("exit {code}")]).code, Some(code));
    }
}

#[test]
fn a_command_that_died_of_a_signal_is_128_and_its_number() {
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("SEGV", 139), ("USR1", 138)] {
        assert_eq!(run(&["run", "k", "--", "sh", "-c", &format!("kill -{signal} $$")]).code, Some(code), "{signal}");
    }
}

#[test]
fn a_missing_command_is_127_and_a_non_executable_one_126() {
    let directory = Directory::new();
    let file = directory.path().join("plain");
    std::fs::write(&file, "not a program").unwrap();
    let file = file.to_str().unwrap();
    let missing = run(&["run", "k", "--", "/nowhere/at/all", "x"]);
    assert_eq!(missing.code, Some(127));
    assert!(missing.stderr.contains("running /nowhere/at/all"), "{}", missing.stderr);
    assert_eq!(run(&["run", "k", "--", "no-such-program-in-the-path"]).code, Some(127));
    assert_eq!(run(&["run", "k", "--", file]).code, Some(126));
    assert_eq!(run(&["run", "k", "--", "/"]).code, Some(126));
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(run(&["run", "k", "--", file]).code, Some(126), "no format that the kernel knows");
}

#[test]
fn a_usage_error_is_64_with_a_hint() {
    let lines: &[(&[&str], &str)] = &[
        (&["run"], "KEY"),
        (&["run", "k"], "COMMAND"),
        (&["run", "k", "-c", "true", "--", "true"], "cannot be used with"),
        (&["run", "-n", "-w", "3", "k", "--", "true"], "cannot be used with"),
        (&["run", "-s", "-j", "2", "k", "--", "true"], "cannot be used with"),
        (&["run", "--once", "1d", "--also", "l", "k", "--", "true"], "cannot be used with"),
        (&["run", "-w", "soon", "k", "--", "true"], "1m30s"),
        (&["run", "--signal", "NOPE", "k", "--", "true"], "TERM"),
        (&["run", "--on-lost", "cry", "k", "--", "true"], "terminate"),
        (&["run", "-E", "256", "k", "--", "true"], "255"),
        (&["run", "--ttl", "9", "-k", "4", "k", "--", "true"], "at most 3s"),
        (&["run", "--ttl", "1ms", "k", "--", "true"], "ttl"),
        (&["run", "--at-least", "5", "--at-most", "4", "k", "--", "true"], "--at-least"),
        (&["run", "--also", "k", "k", "--", "true"], "twice"),
        (&["run", "-j", "0", "k", "--", "true"], "permits"),
        (&["run", "", "--", "true"], "name"),
        (&["elect", "k"], "COMMAND"),
        (&["elect", "--ttl", "9", "-k", "4", "k", "--", "true"], "at most 3s"),
    ];
    for (line, hint) in lines {
        let refused = run(line);
        assert_eq!(refused.code, Some(64), "{line:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(hint), "{line:?}: {}", refused.stderr);
        assert_eq!(refused.stdout, "", "{line:?}");
    }
}

#[test]
fn an_invalid_url_is_78_and_shows_no_password() {
    let refused = run(&["run", "--store", "mysql://root:s3cret@db", "k", "--", "true"]);
    assert_eq!(refused.code, Some(78));
    assert!(refused.stderr.contains("mysql") && !refused.stderr.contains("s3cret"), "{}", refused.stderr);
}

#[test]
fn standard_output_is_the_commands_alone() {
    let output = run(&["-vv", "run", "k", "--", "echo", "only", "this"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "only this\n"));
    assert!(!output.stderr.is_empty());
    let quiet = run(&["-q", "run", "--at-most", "0.2", "k", "--", "sleep", "600"]);
    assert_eq!((quiet.code, quiet.stdout.as_str()), (Some(124), ""));
}

#[test]
fn messages_without_a_reader_change_no_exit_code() {
    let shared = SharedStore::new();
    let (_holder, _) = shared.hold(&["held"]);
    let lines: &[(&[&str], i32)] = &[
        (&["run", "--skip", "held", "--", "true"], 0),
        (&["run", "-n", "held", "--", "true"], 75),
        (&["run", "--at-most", "0.2", "-k", "0.1", "k", "--", "sleep", "600"], 124),
        (&["run", "k", "--", "/nowhere/at/all"], 127),
    ];
    for (line, code) in lines {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let ended = shared.lockfast(line).stdout(Stdio::null()).stderr(full).status().unwrap();
        assert_eq!(ended.code(), Some(*code), "{line:?} on a full disk");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = shared.lockfast(line).stdout(Stdio::null()).stderr(writer).status().unwrap();
        assert_eq!(ended.code(), Some(*code), "{line:?} when the reader has left");
    }
}

#[test]
fn standard_input_goes_to_the_command() {
    let mut command = lockfast(&["run", "k", "--", "cat"]);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    running.write("one\n");
    assert_eq!(running.read_line(), "one");
    running.write("two");
    let output = running.end();
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "two\n"));
}

#[test]
fn nothing_after_the_two_dashes_is_parsed() {
    let output = run(&["run", "k", "--", "echo", "--store", "x", "-v", "--", "--help"]);
    assert_eq!(output.stdout, "--store x -v -- --help\n");
}

#[test]
fn a_shell_line_is_run_by_the_shell() {
    let output = run(&["run", "k", "-c", "echo a | tr a b; exit 3"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(3), "b\n"));
}

#[test]
fn the_command_finds_its_lock_in_the_environment() {
    let mut command = lockfast(&["run", "--ttl", "12s", "the key", "--", "env"]);
    command.env("TRACEPARENT", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00");
    let output = outcome(command).stdout;
    let value = |key: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(&format!("{key}=")));
        line.unwrap_or_else(|| panic!("no {key} in {output}")).to_owned()
    };
    assert_eq!(value("LOCKFAST_HELD"), "1");
    assert_eq!(value("LOCKFAST_KEY"), "the key");
    assert!(value("LOCKFAST_FENCE").parse::<u64>().unwrap() > 0);
    assert_eq!(value("LOCKFAST_TTL_MS"), "12000");
    assert_eq!(value("LOCKFAST_OWNER").len(), 32);
    assert_eq!(value("LOCKFAST_URL"), "memory:");
    let trace = value("TRACEPARENT");
    assert!(trace.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && trace.ends_with("-00"), "{trace}");
    assert!(!trace.contains("00f067aa0ba902b7"), "the command is a step of its own: {trace}");
}

#[test]
fn a_clean_environment_has_no_store_settings() {
    let mut command = lockfast(&["run", "--clean-env", "k", "--", "env"]);
    command.env("LOCKFAST_TOKEN", "s3cret").env("LOCKFAST_PREFIX", "s3cret").env("HOME", "/home/me");
    let output = outcome(command).stdout;
    assert!(!output.contains("s3cret") && !output.contains("LOCKFAST_URL"), "{output}");
    assert!(output.contains("LOCKFAST_FENCE") && output.contains("HOME=/home/me"), "{output}");
}

#[test]
fn json_lines_carry_the_trace() {
    let mut command = lockfast(&["--log-format", "json", "run", "k", "--", "/nowhere"]);
    command.env("TRACEPARENT", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let output = outcome(command).stderr;
    let line: serde_json::Value = serde_json::from_str(output.lines().next().unwrap()).unwrap();
    assert!(line["message"].as_str().unwrap().contains("/nowhere"), "{output}");
    assert!(output.contains("4bf92f3577b34da6a3ce929d0e0e4736"), "{output}");
}

#[test]
fn help_teaches_by_example() {
    for (command, example) in [("run", "--skip nightly"), ("elect", "elect scheduler")] {
        let output = run(&[command, "--help"]);
        assert_eq!(output.code, Some(0));
        assert!(output.stdout.contains(example) && output.stdout.contains("Exit codes"), "{}", output.stdout);
    }
}

#[test]
fn a_broken_trace_header_is_replaced_by_a_sound_one() {
    for header in ["garbage-zz", "", "-\n\n", "00-1-1-FF"] {
        let mut command = lockfast(&["run", "k", "--", "sh", "-c", "echo $TRACEPARENT"]);
        command.env("TRACEPARENT", header);
        let output = outcome(command).stdout;
        let parts: Vec<_> = output.trim_end().split('-').map(str::len).collect();
        assert_eq!(parts, [2, 32, 16, 2], "{header:?}: {output}");
        assert!(output.trim_end().ends_with("-01"), "{header:?}: {output}");
    }
}
