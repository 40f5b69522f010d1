//! The sources of settings, and the errors about wrong ones.

use std::io::Write;
use std::process::Stdio;

use crate::processes::{Fixture, Running, end};

#[test]
fn the_default_store_is_in_the_users_state_directory() {
    let fixture = Fixture::new();
    let run = |args: &[&str]| {
        let mut command = fixture.bare_command(args);
        command.env("XDG_STATE_HOME", fixture.path("state"));
        end(command)
    };
    run(&["acquire", "-n", "nightly"]).expect_success();
    run(&["status", "nightly"]).expect_success();
    assert!(fixture.path("state/lockfast/locks.db").exists());
}

#[test]
fn a_flag_goes_before_the_environment_and_that_before_the_files() {
    let fixture = Fixture::new();
    let url = |name: &str| format!("sqlite:{}", fixture.path(name).display());
    std::fs::create_dir_all(fixture.path(".config/lockfast")).unwrap();
    std::fs::write(fixture.path(".config/lockfast/config.toml"), format!("store = {:?}\n", url("user.db"))).unwrap();
    end(fixture.bare_command(&["ls"])).expect_success();
    assert!(fixture.path("user.db").exists());
    std::fs::write(fixture.path("lockfast.toml"), format!("store = {:?}\n", url("here.db"))).unwrap();
    end(fixture.bare_command(&["ls"])).expect_success();
    assert!(fixture.path("here.db").exists());
    let mut command = fixture.bare_command(&["ls"]);
    command.env("LOCKFAST_URL", url("env.db"));
    end(command).expect_success();
    assert!(fixture.path("env.db").exists() && !fixture.path("flag.db").exists());
    fixture.run(&["--store", &url("flag.db"), "ls"]).expect_success();
    assert!(fixture.path("flag.db").exists());
    fixture.run(&["ls", "--store", &url("after.db")]).expect_success();
    assert!(fixture.path("after.db").exists() && !fixture.path("locks.db").exists());
}

#[test]
fn the_stores_url_can_come_from_standard_input() {
    let fixture = Fixture::new();
    let mut command = fixture.bare_command(&["ls", "--store", "-"]);
    let mut running = Running::start(command.stdin(Stdio::piped()));
    writeln!(running.child.stdin.take().unwrap(), "{}", fixture.url()).unwrap();
    running.end().expect_success();
    assert!(fixture.path("locks.db").exists());
}

#[test]
fn a_wrong_setting_is_78_with_its_line_and_the_choices() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path("lockfast.toml"), "ttl = 5\nstor = \"memory:\"\n").unwrap();
    let wrong = fixture.run(&["ls"]);
    assert_eq!((wrong.code, wrong.stderr.lines().count()), (Some(78), 1), "{wrong:?}");
    assert!(wrong.stderr.starts_with("lockfast: lockfast.toml:2: unknown field `stor`"), "{wrong:?}");
    assert!(wrong.stderr.contains("`store_file`"), "{wrong:?}");
    std::fs::remove_file(fixture.path("lockfast.toml")).unwrap();
    let mut command = fixture.command(&["ls"]);
    command.env("LOCKFAST_TTL", "soon");
    let wrong = end(command);
    assert!(wrong.code == Some(78) && wrong.stderr.contains("LOCKFAST_TTL"), "{wrong:?}");
    let wrong = fixture.run(&["ls", "--store", "redis+mysql://me:s3cret@db/x?password=t0psecret"]);
    assert_eq!((wrong.code, wrong.stderr.lines().count()), (Some(78), 1), "{wrong:?}");
    assert!(!wrong.stderr.contains("s3cret") && !wrong.stderr.contains("t0psecret"), "{wrong:?}");
}

#[test]
fn a_store_that_cannot_be_opened_is_69_for_every_command() {
    let fixture = Fixture::new();
    let url = format!("sqlite:{}", fixture.path("no/such/dir/locks.db").display());
    let token = fixture.acquire("a");
    let all = [
        &["ls"][..],
        &["inspect", "a"],
        &["status", "a"],
        &["acquire", "a"],
        &["break", "a", "--fence", "1"],
        &["watch"],
        &["stats"],
    ];
    for args in all {
        let failed = fixture.run(&[args, &["--store", &url]].concat());
        assert_eq!((failed.code, failed.stderr.lines().count()), (Some(69), 1), "{args:?} {failed:?}");
        assert!(failed.stderr.starts_with("lockfast: opening the store sqlite:"), "{failed:?}");
    }
    for command in ["renew", "release"] {
        assert_eq!(fixture.run_with_input(&[command, "--store", &url], &token).code, Some(69), "{command}");
    }
}

#[test]
fn a_variable_that_cannot_be_read_does_not_count_as_unset() {
    use std::os::unix::ffi::OsStrExt;
    let fixture = Fixture::new();
    for key in ["LOCKFAST_URL", "LOCKFAST_PREFIX", "LOCKFAST_CONFIG"] {
        let mut command = fixture.bare_command(&["ls"]);
        command.env("XDG_STATE_HOME", fixture.path("state")).env(key, std::ffi::OsStr::from_bytes(b"sqlite:/\xff"));
        let refused = end(command);
        assert_eq!(refused.code, Some(78), "{refused:?}");
        assert!(refused.stderr.contains(key), "{refused:?}");
    }
    assert!(!fixture.path("state").exists(), "nothing was opened instead");
}

#[test]
fn the_prefix_keeps_teams_apart() {
    let fixture = Fixture::new();
    fixture.run(&["acquire", "nightly", "--prefix", "billing:"]).expect_success();
    assert_eq!(fixture.run(&["status", "nightly"]).code, Some(1));
    assert_eq!(fixture.run(&["status", "nightly", "--prefix", "billing:"]).code, Some(0));
    assert_eq!(fixture.run(&["ls", "-o", "name", "--prefix", ""]).expect_success(), "billing:nightly\n");
}

#[test]
fn messages_are_quiet_or_json_when_asked_for() {
    let fixture = Fixture::new();
    assert_eq!(fixture.run(&["acquire", "-q", "a"]).stderr, "");
    let refused = fixture.run(&["acquire", "-n", "-q", "a"]);
    assert!(refused.stderr.contains("is held by"), "errors are said all the same: {refused:?}");
    let refused = fixture.run(&["acquire", "-n", "a", "--log-format", "json"]);
    let line: serde_json::Value = serde_json::from_str(&refused.stderr).unwrap();
    assert_eq!(line["level"], "ERROR");
    assert!(
        line["message"].as_str().unwrap().contains("is held by") && line["timestamp"].as_str().unwrap().ends_with('Z')
    );
}
