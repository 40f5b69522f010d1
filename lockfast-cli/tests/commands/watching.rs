//! `watch`: events as JSON lines.

use rustix::process::Signal;

use crate::processes::Fixture;

#[test]
fn watch_prints_every_event_of_a_queue_in_order() {
    let fixture = Fixture::new();
    fixture.acquire("there:before");
    let mut watch = fixture.start(&["watch"]);
    let first = watch.read_event();
    assert_eq!((&first["event"], &first["queues"]), (&"watching".into(), &1.into()));
    let token = fixture.acquire("deploy");
    let mut next = || {
        let event = watch.read_event();
        assert!(event["at"].as_str().unwrap().ends_with('Z') && event["key"] == "deploy", "{event}");
        (event["event"].as_str().unwrap().to_owned(), event["fence"].as_u64().unwrap())
    };
    let fence = fixture.fence("deploy");
    assert_eq!([next(), next()], [("joined".to_owned(), fence), ("held".to_owned(), fence)]);
    let waiter = fixture.start(&["acquire", "deploy"]);
    let (joined, behind) = next();
    assert!(joined == "joined" && behind > fence);
    fixture.run(&["break", "deploy", "--fence", &fence.to_string()]).expect_success();
    assert_eq!(next(), ("broken".to_owned(), fence));
    fixture.run_with_input(&["release"], &token);
    assert_eq!([next(), next()], [("left".to_owned(), fence), ("held".to_owned(), behind)]);
    let token = waiter.end().expect_success();
    fixture.run_with_input(&["release"], &token).expect_success();
    assert_eq!(next(), ("left".to_owned(), behind));
    watch.signal(Signal::TERM);
    assert_eq!(watch.end().code, Some(0));
}

#[test]
fn watch_prints_only_matching_keys() {
    let fixture = Fixture::new();
    let mut watch = fixture.start(&["watch", "cron:*ly"]);
    assert_eq!(watch.read_event()["event"], "watching");
    for key in ["account:1", "cron:now", "cron:daily"] {
        fixture.acquire(key);
    }
    assert_eq!(watch.read_event()["key"], "cron:daily");
}

#[test]
fn watch_prints_an_expired_lease() {
    let fixture = Fixture::new();
    let mut watch = fixture.start(&["watch"]);
    watch.read_event();
    fixture.run(&["acquire", "short", "--ttl", "1s"]).expect_success();
    let events = [watch.read_event(), watch.read_event(), watch.read_event()].map(|event| event["event"].clone());
    assert_eq!(events, ["joined", "held", "left"]);
}
