//! `watch`: events as JSON lines.

use rustix::process::Signal;

use crate::processes::Fixture;

#[test]
fn watch_prints_every_event_of_a_queue_in_order() {
    let fixture = Fixture::new();
    fixture.acquire("there:before");
    let mut watch = fixture.start(&["watch"]);
    let first = watch.event();
    assert_eq!((&first["event"], &first["lines"]), (&"watching".into(), &1.into()));
    let token = fixture.acquire("deploy");
    let mut next = || {
        let event = watch.event();
        assert!(event["at"].as_str().unwrap().ends_with('Z') && event["key"] == "deploy", "{event}");
        (event["event"].as_str().unwrap().to_owned(), event["fence"].as_u64().unwrap())
    };
    let fence = fixture.fence("deploy");
    assert_eq!([next(), next()], [("joined".to_owned(), fence), ("held".to_owned(), fence)]);
    let waits = fixture.start(&["acquire", "deploy"]);
    let (joined, behind) = next();
    assert!(joined == "joined" && behind > fence);
    fixture.run(&["break", "deploy", "--fence", &fence.to_string()]).yes();
    assert_eq!(next(), ("broken".to_owned(), fence));
    fixture.run_with(&["release"], &token);
    assert_eq!([next(), next()], [("left".to_owned(), fence), ("held".to_owned(), behind)]);
    let token = waits.end().yes();
    fixture.run_with(&["release"], &token).yes();
    assert_eq!(next(), ("left".to_owned(), behind));
    watch.signal(Signal::TERM);
    assert_eq!(watch.end().code, Some(0));
}

#[test]
fn watch_prints_only_matching_keys() {
    let fixture = Fixture::new();
    let mut watch = fixture.start(&["watch", "cron:*ly"]);
    assert_eq!(watch.event()["event"], "watching");
    for key in ["account:1", "cron:now", "cron:daily"] {
        fixture.acquire(key);
    }
    assert_eq!(watch.event()["key"], "cron:daily");
}

#[test]
fn watch_prints_an_expired_lease() {
    let fixture = Fixture::new();
    let mut watch = fixture.start(&["watch"]);
    watch.event();
    fixture.run(&["acquire", "short", "--ttl", "1s"]).yes();
    let events = [watch.event(), watch.event(), watch.event()].map(|event| event["event"].clone());
    assert_eq!(events, ["joined", "held", "left"]);
}
