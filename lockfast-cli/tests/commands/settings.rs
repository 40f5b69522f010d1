//! Where settings come from, and what is said about wrong ones.

use std::io::Write;
use std::process::Stdio;

use crate::stage::{Running, Stage, end};

#[test]
fn without_any_setting_the_locks_are_in_the_users_state_directory() {
    let stage = Stage::new();
    let run = |args: &[&str]| {
        let mut command = stage.bare_command(args);
        command.env("XDG_STATE_HOME", stage.path("state"));
        end(command)
    };
    run(&["acquire", "-n", "nightly"]).yes();
    run(&["status", "nightly"]).yes();
    assert!(stage.path("state/lockfast/locks.db").exists());
}

#[test]
fn a_flag_goes_before_the_environment_and_that_before_the_files() {
    let stage = Stage::new();
    let url = |name: &str| format!("sqlite:{}", stage.path(name).display());
    std::fs::create_dir_all(stage.path(".config/lockfast")).unwrap();
    std::fs::write(stage.path(".config/lockfast/config.toml"), format!("store = {:?}\n", url("user.db"))).unwrap();
    end(stage.bare_command(&["ls"])).yes();
    assert!(stage.path("user.db").exists());
    std::fs::write(stage.path("lockfast.toml"), format!("store = {:?}\n", url("here.db"))).unwrap();
    end(stage.bare_command(&["ls"])).yes();
    assert!(stage.path("here.db").exists());
    let mut command = stage.bare_command(&["ls"]);
    command.env("LOCKFAST_URL", url("env.db"));
    end(command).yes();
    assert!(stage.path("env.db").exists() && !stage.path("flag.db").exists());
    stage.run(&["--store", &url("flag.db"), "ls"]).yes();
    assert!(stage.path("flag.db").exists());
    stage.run(&["ls", "--store", &url("after.db")]).yes();
    assert!(stage.path("after.db").exists() && !stage.path("locks.db").exists());
}

#[test]
fn the_stores_url_can_come_from_standard_input() {
    let stage = Stage::new();
    let mut command = stage.bare_command(&["ls", "--store", "-"]);
    let mut running = Running::start(command.stdin(Stdio::piped()));
    writeln!(running.child.stdin.take().unwrap(), "{}", stage.url()).unwrap();
    running.end().yes();
    assert!(stage.path("locks.db").exists());
}

#[test]
fn a_wrong_setting_is_78_with_its_place_and_what_is_allowed() {
    let stage = Stage::new();
    std::fs::write(stage.path("lockfast.toml"), "ttl = 5\nstor = \"memory:\"\n").unwrap();
    let wrong = stage.run(&["ls"]);
    assert_eq!((wrong.code, wrong.err.lines().count()), (Some(78), 1), "{wrong:?}");
    assert!(wrong.err.starts_with("lockfast: lockfast.toml:2: unknown field `stor`"), "{wrong:?}");
    assert!(wrong.err.contains("`store_file`"), "{wrong:?}");
    std::fs::remove_file(stage.path("lockfast.toml")).unwrap();
    let mut command = stage.command(&["ls"]);
    command.env("LOCKFAST_TTL", "soon");
    let wrong = end(command);
    assert!(wrong.code == Some(78) && wrong.err.contains("LOCKFAST_TTL"), "{wrong:?}");
    let wrong = stage.run(&["ls", "--store", "redis+mysql://me:s3cret@db/x?password=t0psecret"]);
    assert_eq!((wrong.code, wrong.err.lines().count()), (Some(78), 1), "{wrong:?}");
    assert!(!wrong.err.contains("s3cret") && !wrong.err.contains("t0psecret"), "{wrong:?}");
}

#[test]
fn a_store_that_cannot_be_opened_is_69_for_every_command() {
    let stage = Stage::new();
    let url = format!("sqlite:{}", stage.path("no/such/dir/locks.db").display());
    let token = stage.acquire("a");
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
        let failed = stage.run(&[args, &["--store", &url]].concat());
        assert_eq!((failed.code, failed.err.lines().count()), (Some(69), 1), "{args:?} {failed:?}");
        assert!(failed.err.starts_with("lockfast: opening the store sqlite:"), "{failed:?}");
    }
    for command in ["renew", "release"] {
        assert_eq!(stage.run_with(&[command, "--store", &url], &token).code, Some(69), "{command}");
    }
}

#[test]
fn a_variable_that_cannot_be_read_does_not_count_as_unset() {
    use std::os::unix::ffi::OsStrExt;
    let stage = Stage::new();
    for key in ["LOCKFAST_URL", "LOCKFAST_PREFIX", "LOCKFAST_CONFIG"] {
        let mut command = stage.bare_command(&["ls"]);
        command.env("XDG_STATE_HOME", stage.path("state")).env(key, std::ffi::OsStr::from_bytes(b"sqlite:/\xff"));
        let refused = end(command);
        assert_eq!(refused.code, Some(78), "{refused:?}");
        assert!(refused.err.contains(key), "{refused:?}");
    }
    assert!(!stage.path("state").exists(), "nothing was opened instead");
}

#[test]
fn the_prefix_keeps_teams_apart() {
    let stage = Stage::new();
    stage.run(&["acquire", "nightly", "--prefix", "billing:"]).yes();
    assert_eq!(stage.run(&["status", "nightly"]).code, Some(1));
    assert_eq!(stage.run(&["status", "nightly", "--prefix", "billing:"]).code, Some(0));
    assert_eq!(stage.run(&["ls", "-o", "name", "--prefix", ""]).yes(), "billing:nightly\n");
}

#[test]
fn messages_are_quiet_or_json_when_asked_for() {
    let stage = Stage::new();
    assert_eq!(stage.run(&["acquire", "-q", "a"]).err, "");
    let refused = stage.run(&["acquire", "-n", "-q", "a"]);
    assert!(refused.err.contains("is held by"), "errors are said all the same: {refused:?}");
    let refused = stage.run(&["acquire", "-n", "a", "--log-format", "json"]);
    let line: serde_json::Value = serde_json::from_str(&refused.err).unwrap();
    assert_eq!(line["level"], "ERROR");
    assert!(
        line["message"].as_str().unwrap().contains("is held by") && line["timestamp"].as_str().unwrap().ends_with('Z')
    );
}
