//! The commands beside `run`, over Redis.

use serde_json::Value;
use servers::{Certificates, Redis};

use crate::fixture::until;
use crate::processes::Fixture;

fn start() -> (Redis, Fixture) {
    let redis = Redis::start();
    let fixture = Fixture::on(redis.url());
    (redis, fixture)
}

#[test]
fn a_token_outlives_its_process_until_it_is_released() {
    let (_redis, fixture) = start();
    let token = fixture.acquire("deploy");
    assert_eq!(fixture.run(&["ls", "-o", "name"]).expect_success(), "deploy\n", "its process has ended");
    assert_eq!(fixture.run(&["acquire", "-n", "deploy"]).code, Some(1));
    fixture.run_with_input(&["renew"], &token).expect_success();
    fixture.run_with_input(&["release"], &token).expect_success();
    assert_eq!(fixture.run(&["ls", "-o", "name"]).expect_success(), "");
    assert_eq!(fixture.run_with_input(&["renew"], &token).code, Some(1));
}

#[test]
fn the_holder_and_the_waiters_are_shown() {
    let (_redis, fixture) = start();
    fixture.run(&["acquire", "nightly", "--name", "reports", "--label", "team=a b"]).expect_success();
    let _first = fixture.start(&["acquire", "nightly", "--name", "first"]);
    fixture.wait_for_waiters("nightly", 1);
    let _second = fixture.start(&["acquire", "nightly", "--name", "second"]);
    fixture.wait_for_waiters("nightly", 2);
    let text = fixture.run(&["inspect", "nightly"]).expect_success();
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part:?} is not in\n{text}"));
    assert!(at("reports on ") < at("waiter 1   first on") && at("waiter 1   first on") < at("waiter 2   second on"));
    let wide = fixture.run(&["ls", "-o", "wide"]).expect_success();
    assert!(wide.contains("reports on ") && wide.contains("team=a b"), "{wide}");
    let held = fixture.run(&["status", "nightly"]);
    assert!(held.code == Some(0) && held.stdout.starts_with("nightly: held by "), "{held:?}");
    assert_eq!(fixture.run(&["status", "other"]).code, Some(1));
    let queue = fixture.queue("nightly");
    let lease = queue["holders"][0]["expires_in_seconds"].as_f64().unwrap();
    // `acquire` asks for its 30 s anew once it holds the lock, plus the client's margin.
    assert!(lease > 0.0 && lease <= 30.604, "{queue}");
    assert!(queue["holders"][0]["since_seconds"].as_f64().unwrap() < 30.0, "{queue}");
}

#[test]
fn names_and_notes_survive_a_round_trip() {
    let (_redis, fixture) = start();
    let odd = "a{b}c = 100 %\u{1b}[2J ключ\n🔒";
    fixture.run(&["acquire", odd, "--name", odd, "--label", &format!("x={odd}")]).expect_success();
    let queue = fixture.queue(odd);
    assert_eq!((&queue["key"], &queue["holders"][0]["name"]), (&odd.into(), &odd.into()), "{queue}");
    assert_eq!(queue["holders"][0]["labels"]["x"], odd, "{queue}");
    assert!(!fixture.run(&["ls"]).expect_success().contains('\u{1b}'));
}

#[test]
fn a_break_reaches_its_owner_and_now_hands_off_at_once() {
    let (_redis, fixture) = start();
    let token = fixture.acquire("deploy");
    let waiter = fixture.start(&["acquire", "deploy"]);
    fixture.wait_for_waiters("deploy", 1);
    let fence = fixture.fence("deploy").to_string();
    assert_eq!(fixture.run(&["break", "deploy", "--fence", "7"]).code, Some(1));
    fixture.run(&["break", "deploy", "--fence", &fence]).expect_success();
    assert_eq!(fixture.queue("deploy")["holders"][0]["broken"], true, "it stays in the queue until it has left");
    let lost = fixture.run_with_input(&["renew"], &token);
    assert!(lost.code == Some(1) && lost.stderr.contains("an operator broke it"), "{lost:?}");
    fixture.run(&["break", "deploy", "--fence", &fence, "--now"]).expect_success();
    waiter.end().expect_success();
    assert!(fixture.fence("deploy").to_string() > fence);
}

#[test]
fn watch_prints_changes_by_other_processes() {
    let (_redis, fixture) = start();
    let mut watch = fixture.start(&["watch"]);
    assert_eq!(watch.read_event()["event"], "watching");
    let token = fixture.acquire("deploy");
    let fence = fixture.fence("deploy");
    let mut next = || {
        let event = watch.read_event();
        assert_eq!(event["key"], "deploy", "{event}");
        (event["event"].as_str().unwrap().to_owned(), event["fence"].as_u64().unwrap())
    };
    assert_eq!([next(), next()], [("joined".to_owned(), fence), ("held".to_owned(), fence)]);
    let waiter = fixture.start(&["acquire", "deploy"]);
    let (joined, behind) = next();
    assert!(joined == "joined" && behind > fence);
    fixture.run_with_input(&["release"], &token).expect_success();
    assert_eq!([next(), next()], [("left".to_owned(), fence), ("held".to_owned(), behind)]);
    waiter.end().expect_success();
}

#[test]
fn stats_count_over_all_processes() {
    let (_redis, fixture) = start();
    let token = fixture.acquire("quiet");
    fixture.run_with_input(&["release"], &token).expect_success();
    fixture.acquire("hot");
    assert_eq!(fixture.run(&["acquire", "-n", "hot"]).code, Some(1));
    let stats = || serde_json::from_str::<Value>(&fixture.run(&["stats", "-o", "json"]).expect_success()).unwrap();
    until("all have reported", || stats()["counters"]["acquired"] == 2);
    assert_eq!(stats()["counters"]["released"], 1, "{}", stats());
}

#[test]
fn the_prefix_of_the_url_is_where_other_programs_see_the_lock() {
    let redis = Redis::start();
    let bare = Fixture::on(format!("{}?prefix=", redis.url()));
    bare.acquire("nightly");
    assert_eq!(redis.command("EXISTS nightly"), ":1");
    assert_eq!(redis.command("SET another token NX PX 60000"), "+OK");
    let refused = bare.run(&["acquire", "-n", "another"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let usual = Fixture::on(redis.url());
    assert_eq!(usual.run(&["status", "nightly"]).code, Some(1));
    usual.acquire("nightly");
    assert_eq!(redis.command("EXISTS lock:nightly"), ":1");
    let flag = bare.run(&["ls", "-o", "name", "--prefix", "lock:"]);
    assert_eq!(flag.stdout, "nightly\n", "the flag goes before the URL: {flag:?}");
}

#[test]
fn another_programs_lock_is_shown_as_far_as_it_is_known() {
    let (redis, fixture) = start();
    redis.command("SET lock:report token NX PX 60000");
    redis.command("SET lock:forever token NX");
    assert_eq!(fixture.run(&["status", "report"]).expect_success(), "report: held by another program\n");
    let text = fixture.run(&["inspect", "report"]).expect_success();
    assert!(text.contains("holder   another program\n  expires  20") && !text.contains("pid"), "{text}");
    assert!(fixture.run(&["inspect", "forever"]).expect_success().contains("expires  never"));
    let queue = fixture.queue("forever");
    assert!(queue["holders"][0]["fence"].is_null() && queue["holders"][0]["expires"].is_null(), "{queue}");
    let refused = fixture.run(&["acquire", "-w", "1", "report"]);
    let says = "is held by another program; gave up";
    assert!(refused.code == Some(1) && refused.stderr.contains(says), "{refused:?}");
    redis.command("DEL lock:report");
    fixture.acquire("report");
}

const ALL: [&[&str]; 7] = [
    &["ls"],
    &["inspect", "a"],
    &["status", "a"],
    &["acquire", "a"],
    &["break", "a", "--fence", "1"],
    &["watch"],
    &["stats"],
];

#[test]
fn every_command_ends_with_69_or_78_and_one_line() {
    let mut redis = Redis::options().setting("requirepass r1ghtcanary").start();
    let fixture = Fixture::new();
    let wrong = format!("redis://me:wr0ngcanary@127.0.0.1:{}/3", redis.port());
    let without = redis.url();
    for (url, says) in [(&wrong, "does not accept the user or password"), (&without, "does not accept")] {
        for args in ALL {
            let failed = fixture.run(&[args, &["--store", url]].concat());
            assert_eq!((failed.code, failed.stderr.lines().count()), (Some(78), 1), "{args:?} {failed:?}");
            assert!(failed.stderr.contains(says) && !format!("{failed:?}").contains("canary"), "{failed:?}");
        }
    }
    redis.kill();
    for args in ALL {
        let failed = fixture.run(&[args, &["--store", &wrong]].concat());
        assert_eq!((failed.code, failed.stderr.lines().count()), (Some(69), 1), "{args:?} {failed:?}");
        let beginning = format!("lockfast: opening the store redis://me:***@127.0.0.1:{}/3: ", redis.port());
        assert!(failed.stderr.starts_with(&beginning) && !failed.stderr.contains("canary"), "{failed:?}");
    }
}

#[test]
fn no_command_shows_the_password_however_much_it_says() {
    let redis = Redis::options().setting("requirepass r1ghtcanary").start();
    let fixture = Fixture::on(format!("redis://:r1ghtcanary@127.0.0.1:{}/0?prefix=team:", redis.port()));
    let token = fixture.run(&["-vv", "acquire", "-n", "a"]);
    let mut output = format!("{token:?}");
    for args in [&["ls"][..], &["inspect", "a"], &["status", "a"], &["stats"], &["doctor"], &["doctor", "-o", "json"]] {
        let ended = fixture.run(&[&["-vv"], args].concat());
        assert_eq!(ended.code, Some(0), "{args:?} {ended:?}");
        output += &format!("{ended:?}");
    }
    output += &format!("{:?}", fixture.run_with_input(&["-vv", "release"], &token.stdout));
    assert!(output.contains("redis://:***@127.0.0.1") && !output.contains("canary"), "{output}");
}

#[test]
fn a_client_certificate_is_sent_and_its_absence_refused() {
    let certificates = Certificates::new();
    certificates.sign("client");
    let redis = Redis::options().mutual_tls(&certificates).start();
    let file = |name: &str| certificates.file(name);
    let trusting = format!("{}?ca={}", redis.tls_url(), file("ca.pem"));
    let known = Fixture::on(format!("{trusting}&cert={}&key={}", file("client.pem"), file("client.key")));
    let token = known.acquire("deploy");
    assert_eq!(known.run(&["ls", "-o", "name"]).expect_success(), "deploy\n");
    known.run_with_input(&["release"], &token).expect_success();
    let doctor = known.run(&["doctor"]).expect_success();
    assert!(doctor.contains(&format!("&key={}\n", file("client.key"))), "{doctor}");
    let refused = known.run(&["ls", "--store", &trusting]);
    assert!(refused.code == Some(78) && refused.stderr.contains("demands a certificate"), "{refused:?}");
    let half = known.run(&["ls", "--store", &format!("{trusting}&cert={}", file("client.pem"))]);
    assert!(half.code == Some(78) && half.stderr.contains("belong together"), "{half:?}");
    assert_eq!(half.stderr.lines().count(), 1, "{half:?}");
}

#[test]
fn errors_show_names_as_they_were_written() {
    let redis = Redis::start();
    let fixture = Fixture::on(format!("{}?prefix=pre:fix:", redis.url()));
    let token = fixture.acquire("deploy");
    let fence = fixture.fence("deploy").to_string();
    // Every command can connect, but has no right to the key.
    assert_eq!(redis.command("ACL SETUSER default resetkeys ~lockfast:*"), "+OK");
    let refused = [
        fixture.run(&["acquire", "-n", "deploy"]),
        fixture.run_with_input(&["renew"], &token),
        fixture.run_with_input(&["release"], &token),
        fixture.run(&["break", "deploy", "--fence", &fence]),
        fixture.run(&["inspect", "deploy"]),
        fixture.run(&["status", "deploy"]),
    ];
    for ended in refused {
        assert!(ended.stderr.contains("ing \"deploy\";") && !ended.stderr.contains("pre:fix:"), "{ended:?}");
    }
}
