//! `doctor` on Redis servers that are fine, and on servers with a fault.

use serde_json::Value;
use servers::{Redis, RedisOptions};

use crate::fixture::until;
use crate::processes::Fixture;

/// The verdict and text of one check of `doctor`, and its exit code.
fn doctor_check(url: &str, check: &str) -> (String, String, Option<i32>) {
    let ended = Fixture::on(url).run(&["doctor", "-o", "json"]);
    let findings: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let one = findings["checks"].as_array().unwrap().iter().find(|it| it["name"] == check);
    let one = one.unwrap_or_else(|| panic!("{check} is not in {findings:#}"));
    let text = |key: &str| one[key].as_str().unwrap().to_owned();
    (text("verdict"), text("text"), ended.code)
}

/// Starts a server and asserts the verdict of one check, the exit code that follows from it, and parts of its text.
fn assert_found(options: RedisOptions, check: &str, verdict: &str, parts: &[&str]) {
    let redis = options.start();
    let (found_verdict, text, code) = doctor_check(&redis.url(), check);
    assert_eq!((found_verdict.as_str(), code), (verdict, Some(i32::from(verdict == "wrong"))), "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

#[test]
fn a_healthy_server_is_fine_and_stays_as_it_was() {
    let redis = Redis::options().setting("appendonly yes").start();
    let fixture = Fixture::on(redis.url());
    fixture.acquire("nightly");
    let text = fixture.run(&["doctor"]).expect_success();
    for part in [
        "answers; queues in use: 1",
        "lock and release in",
        "by a notification",
        "all processes that can connect",
        "ok     server        Redis ",
        "ok     role          primary",
        "ok     memory        nothing is evicted",
        "ok     persistence   append-only file",
        "ok     rights        this user may do all",
        "ok     connection    connect_timeout 3s, response_timeout 5s, heartbeat 10s, keepalive 15s, reconnect_cap 2s",
        "ok     round trip    ",
        "ok     server time   ",
        "only the server's clock judges leases",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains("WRONG"), "{text}");
    assert_eq!(fixture.run(&["ls", "-o", "name"]).expect_success(), "nightly\n", "nothing of its own is left");
}

#[test]
fn the_settings_of_a_connection_that_are_in_force_are_shown() {
    let redis = Redis::start();
    let fixture = Fixture::on(format!("{}?connect_timeout=1s", redis.url()));
    std::fs::write(fixture.path("lockfast.toml"), "[redis]\nconnect_timeout = 9\nheartbeat = \"2.5s\"\n").unwrap();
    let text = fixture.run(&["doctor"]).expect_success();
    assert!(text.contains("connect_timeout 1s, response_timeout 5s, heartbeat 2.5s, "), "{text}");
    std::fs::write(fixture.path("lockfast.toml"), "[redis]\nresponse_timeout = 6\n").unwrap();
    let refused = fixture.run(&["ls"]);
    let says = "response_timeout is 6s; it may be from 100ms to 5s";
    assert!(refused.code == Some(78) && refused.stderr.contains(says), "{refused:?}");
}

#[test]
fn a_policy_that_throws_locks_away_is_wrong() {
    let limited =
        |policy: &str| Redis::options().setting("maxmemory 100mb").setting(format!("maxmemory-policy {policy}"));
    assert_found(limited("volatile-lru"), "memory", "wrong", &["100 MB", "volatile-lru", "noeviction"]);
    assert_found(limited("allkeys-random"), "memory", "wrong", &["noeviction"]);
    assert_found(limited("noeviction"), "memory", "fine", &["100 MB"]);
    let unlimited = Redis::options().setting("maxmemory-policy allkeys-lru");
    assert_found(unlimited, "memory", "note", &["allkeys-lru", "noeviction"]);
}

#[test]
fn persistence_shows_what_a_restart_loses() {
    assert_found(Redis::options(), "persistence", "note", &["none", "forgets all locks"]);
    let snapshots = Redis::options().setting("save 3600 1");
    assert_found(snapshots, "persistence", "note", &["snapshots only (3600 1)"]);
    let always = Redis::options().setting("appendonly yes").setting("appendfsync always");
    assert_found(always, "persistence", "fine", &["loses nothing"]);
}

#[test]
fn a_server_that_cannot_write_to_its_disk_is_wrong() {
    let redis = Redis::start();
    std::fs::remove_dir_all(redis.folder()).unwrap();
    assert!(redis.command("SAVE").starts_with("-ERR"), "there is nowhere to write to");
    redis.command("BGSAVE");
    until("the attempt has failed", || doctor_check(&redis.url(), "persistence").0 == "wrong");
}

#[test]
fn replicas_are_counted_and_a_replica_is_wrong() {
    let primary = Redis::start();
    let replica = Redis::options().setting(format!("replicaof 127.0.0.1 {}", primary.port())).start();
    assert_eq!(doctor_check(&Redis::start().url(), "replicas").0, "note");
    until("the replica is connected", || doctor_check(&primary.url(), "replicas").1.starts_with("1 connected"));
    let (verdict, text, _) = doctor_check(&primary.url(), "replicas");
    assert!(verdict == "note" && text.contains("?replicas=1"), "{text}");
    let (verdict, text, code) = doctor_check(&format!("{}?replicas=2", primary.url()), "replicas");
    assert!(verdict == "wrong" && text.contains("?replicas=2") && code != Some(0), "{code:?} {text}");
    let (verdict, text, code) = doctor_check(&replica.url(), "role");
    assert!(verdict == "wrong" && code == Some(69), "{code:?} {text}");
}

#[test]
fn the_documented_user_has_all_rights_that_locks_need() {
    let redis = Redis::start();
    let documents = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/stores/redis.md")).unwrap();
    let line =
        documents.lines().find_map(|line| line.split_once("ACL SETUSER ").map(|(_, rest)| rest.replace('\'', "")));
    assert_eq!(redis.command(&format!("ACL SETUSER {}", line.expect("the documents have the line"))), "+OK");
    let fixture = Fixture::on(format!("redis://locks:secret@127.0.0.1:{}", redis.port()));
    let token = fixture.acquire("nightly");
    let waiter = fixture.start(&["acquire", "nightly"]);
    fixture.wait_for_waiters("nightly", 1);
    fixture.run_with_input(&["release"], &token).expect_success();
    waiter.end().expect_success();
    for args in [
        &["ls"][..],
        &["inspect", "nightly"],
        &["stats"],
        &["run", "--once", "1h", "a", "--", "true"],
        &["run", "-s", "b", "--", "true"],
        &["run", "-j", "2", "c", "--", "true"],
        &["run", "--also", "e", "--at-least", "1", "d", "--", "true"],
    ] {
        fixture.run(args).expect_success();
    }
    assert_eq!(redis.command("ACL LOG 1"), "*0", "nothing was refused");
    let (verdict, text, code) = doctor_check(&fixture.url(), "rights");
    assert_eq!((verdict.as_str(), code), ("fine", Some(0)), "{text}");
}

#[test]
fn missing_rights_are_named_without_being_tried() {
    let redis = Redis::start();
    redis.command("ACL SETUSER poor on >secret ~* &* +@all -zadd -pubsub -config");
    let url = format!("redis://poor:secret@127.0.0.1:{}", redis.port());
    let (verdict, text, _) = doctor_check(&url, "rights");
    assert!(verdict == "wrong" && text.contains("ZADD") && text.contains("PUBSUB NUMSUB"), "{text}");
    redis.command("ACL SETUSER hasty on >secret ~* &* +@all -wait");
    let url = format!("redis://hasty:secret@127.0.0.1:{}", redis.port());
    assert_eq!(doctor_check(&url, "rights").0, "fine");
    let (verdict, text, _) = doctor_check(&format!("{url}?replicas=1"), "rights");
    assert!(verdict == "wrong" && text.contains("WAIT"), "{text}");
    redis.command("ACL SETUSER elsewhere on >secret ~team:* ~lockfast:* &* +@all");
    let url = format!("redis://elsewhere:secret@127.0.0.1:{}", redis.port());
    let (verdict, text, _) = doctor_check(&url, "rights");
    assert!(verdict == "wrong" && text.contains("GET lock:"), "{text}");
    assert_eq!(doctor_check(&format!("{url}?prefix=team:"), "rights").0, "fine");
}

#[test]
fn an_unreachable_server_is_69_and_a_wrong_password_78() {
    let mut redis = Redis::options().setting("requirepass r1ghtcanary").start();
    let url = format!("redis://:wr0ngcanary@127.0.0.1:{}", redis.port());
    let fixture = Fixture::on(&*url);
    let wrong = fixture.run(&["doctor"]);
    assert_eq!(wrong.code, Some(78), "{wrong:?}");
    assert!(wrong.stdout.contains("WRONG  store") && !format!("{wrong:?}").contains("canary"), "{wrong:?}");
    redis.kill();
    let away = fixture.run(&["doctor"]);
    assert_eq!(away.code, Some(69), "{away:?}");
    assert!(away.stdout.contains("WRONG  store") && !format!("{away:?}").contains("canary"), "{away:?}");
}
