//! `watch`: what happens, as JSON lines.

use rustix::process::Signal;

use crate::stage::Stage;

#[test]
fn everything_that_happens_to_a_line_is_told_in_order() {
    let stage = Stage::new();
    stage.acquire("there:before");
    let mut watch = stage.start(&["watch"]);
    let first = watch.event();
    assert_eq!((&first["event"], &first["lines"]), (&"watching".into(), &1.into()));
    let token = stage.acquire("deploy");
    let mut next = || {
        let event = watch.event();
        assert!(event["at"].as_str().unwrap().ends_with('Z') && event["key"] == "deploy", "{event}");
        (event["event"].as_str().unwrap().to_owned(), event["fence"].as_u64().unwrap())
    };
    let fence = stage.fence("deploy");
    assert_eq!([next(), next()], [("joined".to_owned(), fence), ("held".to_owned(), fence)]);
    let waits = stage.start(&["acquire", "deploy"]);
    let (joined, behind) = next();
    assert!(joined == "joined" && behind > fence);
    stage.run(&["break", "deploy", "--fence", &fence.to_string()]).yes();
    assert_eq!(next(), ("broken".to_owned(), fence));
    stage.run_with(&["release"], &token);
    assert_eq!([next(), next()], [("left".to_owned(), fence), ("held".to_owned(), behind)]);
    let token = waits.end().yes();
    stage.run_with(&["release"], &token).yes();
    assert_eq!(next(), ("left".to_owned(), behind));
    watch.signal(Signal::TERM);
    assert_eq!(watch.end().code, Some(0));
}

#[test]
fn only_keys_that_match_are_told() {
    let stage = Stage::new();
    let mut watch = stage.start(&["watch", "cron:*ly"]);
    assert_eq!(watch.event()["event"], "watching");
    for key in ["account:1", "cron:now", "cron:daily"] {
        stage.acquire(key);
    }
    assert_eq!(watch.event()["key"], "cron:daily");
}

#[test]
fn a_lease_that_ends_is_told_though_nobody_says_a_word() {
    let stage = Stage::new();
    let mut watch = stage.start(&["watch"]);
    watch.event();
    stage.run(&["acquire", "short", "--ttl", "1s"]).yes();
    let events = [watch.event(), watch.event(), watch.event()].map(|event| event["event"].clone());
    assert_eq!(events, ["joined", "held", "left"]);
}
