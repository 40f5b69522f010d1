//! Disks that are full or read-only: small file systems in memory, mounted in a namespace of the test.

use std::process::Command;

use crate::fixture::{Directory, Outcome};
use crate::processes::outcome;

/// Runs a script that has a disk of its own in `$D`, the store there in `$LOCKFAST_URL`, and lockfast as `$L`.
fn on_a_disk_of(size: &str, script: &str) -> Outcome {
    let directory = Directory::new();
    let mounted = format!("mount -t tmpfs -o size={size} none $D && {script}");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &mounted]);
    let lockfast = crate::processes::lockfast(&[]);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("L", lockfast.get_program());
    command.env("D", directory.path()).env("LOCKFAST_URL", format!("sqlite:{}/locks.db", directory.path().display()));
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    outcome(command)
}

#[test]
fn a_disk_without_room_for_the_file_is_69_and_says_so() {
    let output = on_a_disk_of("40k", "$L run k -- echo never");
    assert_eq!((output.code, output.stdout.as_str()), (Some(69), ""), "{}", output.stderr);
    assert!(output.stderr.contains("no space is left on the disk"), "{}", output.stderr);
}

#[test]
fn a_disk_that_cannot_be_written_to_is_69_and_says_so() {
    let output = on_a_disk_of("1m", "$L run k -- true && mount -o remount,ro $D && $L run k -- echo never");
    assert_eq!((output.code, output.stdout.as_str()), (Some(69), ""), "{}", output.stderr);
    assert!(output.stderr.contains("cannot be written to") && output.stderr.contains("locks.db"), "{}", output.stderr);
}

#[test]
fn a_disk_that_fills_up_loses_no_exit_code_and_is_usable_again() {
    let fill = "dd if=/dev/zero of=$D/fill bs=1k 2>/dev/null; exit 5";
    let script = format!("$L run --ttl 3 k -- sh -c '{fill}'; echo $?; rm $D/fill; $L run -n k -- echo again");
    let output = on_a_disk_of("1m", &script);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "5\nagain\n"), "{}", output.stderr);
    // The release may still fit into pages that were written before; if not, a message says so.
    let is_reported = output.stderr.contains("releasing k") && output.stderr.contains("no space is left");
    assert!(output.stderr.is_empty() || is_reported, "{}", output.stderr);
}

#[test]
fn a_command_ends_in_time_when_renewals_fail() {
    let fill = "dd if=/dev/zero of=$D/fill bs=1k 2>/dev/null; echo full; sleep 100; echo never";
    let output = on_a_disk_of("1m", &format!("$L run --ttl 3 k -- sh -c '{fill}'"));
    assert_eq!((output.code, output.stdout.as_str()), (Some(79), "full\n"), "{}", output.stderr);
}
