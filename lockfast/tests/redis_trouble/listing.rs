//! Listings show exactly the claims that exist: also detached ones, and names of any bytes.

use std::sync::Arc;
use std::time::Duration;

use lockfast::Redis;
use lockfast::store::{Admission, Busy, Counters, Lease, Leaving, Names, Query, Report, Store};
use lockfast::store::{Claim, ClientId, Demand, Demands, Name};

use crate::fixture::{self, Admin, claim, claim_with_demands, millis, secs, until};

fn detached(demands: impl Into<Demands>, ttl: Duration) -> Arc<Claim> {
    Arc::new(Claim { detached: true, ..Claim::new(demands.into(), ttl).unwrap() })
}

/// Acquires the claim, and detaches it if it asks for that.
async fn hold(store: &Redis, claim: &Arc<Claim>) {
    fixture::hold(store, claim).await;
    if claim.detached {
        store.renew(&[Lease { claim: Arc::clone(claim), ttl: claim.ttl }]).await.unwrap();
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// All names in use with this beginning, in pages of this size.
async fn listed(store: &Redis, beginning: &str, limit: usize) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let query = Query { names: Names::Beginning(beginning.to_owned()), after, limit, entries: usize::MAX };
        let page = store.inspect(&query).await.unwrap();
        all.extend(page.resources.iter().map(|resource| resource.name.as_str().to_owned()));
        if page.next.is_none() {
            return all;
        }
        after = page.next;
    }
}

#[tokio::test]
async fn detached_claims_are_listed_for_as_long_as_they_are_renewed() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let mut admin = Admin::of(&server.url());
    let claims = [
        detached(Demand::exclusive(name("lock:a")), millis(500)),
        detached(Demand::shared(name("lock:b")), millis(500)),
        detached(Demand::permits(name("lock:c"), 1, 3).unwrap(), millis(500)),
        detached(
            Demands::of(vec![Demand::exclusive(name("lock:d")), Demand::exclusive(name("lock:e"))]).unwrap(),
            millis(500),
        ),
    ];
    for claim in &claims {
        hold(&store, claim).await;
    }
    hold(&store, &claim("lock:probe", millis(500))).await;
    let leases: Vec<_> = claims.iter().map(|claim| Lease { claim: Arc::clone(claim), ttl: secs(60) }).collect();
    store.renew(&leases).await.unwrap();
    until("the first leases end", async || admin.number("EXISTS lock:probe") == 0).await;
    assert_eq!(listed(&store, "", 10).await, ["lock:a", "lock:b", "lock:c", "lock:d", "lock:e"]);
    for key in ["lockfast:listing:detached", "lockfast:leases:detached"] {
        assert!(admin.number(&format!("PTTL {key}")) > 0, "{key} has an end");
    }
}

#[tokio::test]
async fn detached_claims_that_ended_leave_the_listing() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let mut admin = Admin::of(&server.url());
    hold(&store, &detached(Demand::exclusive(name("lock:long")), secs(60))).await;
    for number in 0..50 {
        hold(&store, &detached(Demand::exclusive(name(&format!("lock:{number}"))), millis(300))).await;
    }
    until("they are over", async || admin.number("EXISTS lock:49") == 0).await;
    hold(&store, &detached(Demand::exclusive(name("lock:next")), secs(60))).await;
    assert_eq!(admin.list("ZRANGE lockfast:listing:detached 0 -1").len(), 2);
    assert_eq!(admin.list("ZRANGE lockfast:leases:detached 0 -1").len(), 2);
}

#[tokio::test]
async fn names_with_any_bytes_are_listed_each_once_and_in_order() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let names = ["a", "a\0", "a\0\0", "a\0b", "a\0b\0c", "a\0g", "a\0ÿ", "a\u{1}", "a\u{1}\0", "ab", "b", "b\0"];
    let mut entered = Vec::new();
    // Several claims on each name, since the digits of their owners follow the name in the stored listing.
    for (text, _) in names.iter().flat_map(|text| [(text, 1), (text, 2), (text, 3)]) {
        let demands = Demands::from(Demand::shared(name(text)));
        let (reads, detached) = (claim_with_demands(demands.clone(), secs(60)), detached(demands.clone(), secs(60)));
        for claim in [&reads, &detached] {
            hold(&store, claim).await;
        }
        entered.push((reads.id.hash(), demands));
    }
    let report =
        |entered, left| Report { client: ClientId(7), counters: Counters::default(), entered, left, keep: secs(60) };
    store.record(&report(entered.clone(), Vec::new())).await.unwrap();
    for limit in [1, 2, 5, 100] {
        assert_eq!(listed(&store, "", limit).await, names, "{limit} a page");
        assert_eq!(listed(&store, "a\0b", limit).await, ["a\0b", "a\0b\0c"], "{limit} a page");
    }
    store.record(&report(Vec::new(), entered.into_iter().map(|(owner, _)| owner).collect())).await.unwrap();
    let mut admin = Admin::of(&server.url());
    assert_eq!(admin.number("EXISTS lockfast:listing:0000000000000007"), 0, "what was listed is removed again");
}

#[tokio::test]
async fn a_long_report_is_sent_in_pieces_and_counted_once() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let mut admin = Admin::of(&server.url());
    let mut claims = Vec::new();
    for number in 0..1_000 {
        let claim = claim(&format!("lock:{number:04}"), secs(20));
        hold(&store, &claim).await;
        claims.push(claim);
    }
    let counters = Counters { acquired: 1_000, ..Counters::default() };
    let entered = claims.iter().map(|claim| (claim.id.hash(), claim.demands.clone())).collect();
    let report = Report { client: ClientId(1), counters, entered, left: Vec::new(), keep: secs(20) };
    let calls = admin.calls("evalsha");
    store.record(&report).await.unwrap();
    assert!(admin.calls("evalsha") - calls > 10, "no script handles all of them");
    let listed = listed(&store, "lock:", 300).await;
    assert_eq!(listed, claims.iter().map(|claim| claim.demands[0].name.as_str()).collect::<Vec<_>>());
    let query = Query { names: Names::Beginning(String::new()), after: None, limit: 1, entries: usize::MAX };
    assert_eq!(store.inspect(&query).await.unwrap().fleet.acquired, 1_000);
    let left = claims.iter().map(|claim| claim.id.hash()).collect();
    let report = Report { client: ClientId(1), counters, entered: Vec::new(), left, keep: secs(20) };
    store.record(&report).await.unwrap();
    assert_eq!(admin.number("EXISTS lockfast:listing:0000000000000001"), 0, "all have left");
    assert_eq!(store.inspect(&query).await.unwrap().fleet.acquired, 2_000);
}

#[tokio::test]
async fn long_queues_are_read_in_pieces_and_shown_whole() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let mut admin = Admin::of(&server.url());
    let mut queues = Vec::new();
    for (text, length) in [("lock:a", 450), ("lock:b", 3), ("lock:c", 199), ("lock:d", 200), ("lock:e", 1)] {
        let claims: Vec<_> = (0..length).map(|_| detached(Demand::exclusive(name(text)), secs(60))).collect();
        for claim in &claims {
            store.acquire(claim, Busy::Wait).await.unwrap();
        }
        store.renew(&[Lease { claim: Arc::clone(&claims[0]), ttl: secs(60) }]).await.unwrap();
        queues.push((text, claims));
    }
    // A dead claim is skipped, wherever a piece ends. A name that another program holds is shown with the claim behind it.
    admin.run("SET lock:f foreign PX 60000");
    let behind = detached(Demand::exclusive(name("lock:f")), secs(60));
    assert!(matches!(store.acquire(&behind, Busy::Wait).await.unwrap(), Admission::Queued { .. }));
    store.renew(&[Lease { claim: Arc::clone(&behind), ttl: secs(60) }]).await.unwrap();
    let dead = queues[0].1.remove(200).id.hash();
    let record = admin.list("KEYS lockfast:*").into_iter().find(|key| key.ends_with(&dead.to_string())).unwrap();
    admin.run_words(&["DEL", &record]);
    let requests = admin.requests();
    let query = Query { names: Names::Beginning("lock:".to_owned()), after: None, limit: 10, entries: usize::MAX };
    let page = store.inspect(&query).await.unwrap();
    let pieces = admin.requests() - requests;
    assert!((8..=16).contains(&pieces), "{pieces} calls");
    assert_eq!(page.resources.len(), 6);
    for ((text, claims), resource) in queues.iter().zip(&page.resources) {
        assert_eq!((resource.name.as_str(), resource.more, resource.capacity), (*text, 0, Demand::ALL));
        let owners: Vec<_> = resource.queue.iter().map(|entry| entry.owner).collect();
        assert_eq!(owners, claims.iter().map(|claim| claim.id.hash()).collect::<Vec<_>>(), "{text}");
        assert_eq!(resource.holders().count(), 1, "{text}");
    }
    let last = &page.resources[5].queue;
    assert!(last.len() == 2 && last[0].holds && last[1].owner == behind.id.hash(), "{last:?}");
}

#[tokio::test]
async fn a_released_claim_is_listed_under_none_of_its_names() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let mut admin = Admin::of(&server.url());
    let several = || {
        let names = ["lock:a", "lock:b", "lock:c"].map(|text| Demand::shared(name(text)));
        Demands::of(names.to_vec()).unwrap()
    };
    // This claim keeps the names in use, and no client lists it: a name that is shown is listed for another claim.
    let stays = claim_with_demands(several(), secs(60));
    assert!(matches!(store.acquire(&stays, Busy::Refuse).await.unwrap(), Admission::Held(_)));
    assert!(listed(&store, "", 10).await.is_empty());

    let (kept, alone) = (claim_with_demands(several(), secs(60)), detached(several(), secs(60)));
    let report =
        |entered, left| Report { client: ClientId(7), counters: Counters::default(), entered, left, keep: secs(60) };
    hold(&store, &kept).await;
    store.record(&report(vec![(kept.id.hash(), several())], Vec::new())).await.unwrap();
    assert_eq!(listed(&store, "", 10).await, ["lock:a", "lock:b", "lock:c"]);
    store.release(&[Leaving::Done(Arc::clone(&kept))]).await.unwrap();
    store.record(&report(Vec::new(), vec![kept.id.hash()])).await.unwrap();
    assert!(listed(&store, "", 10).await.is_empty());

    hold(&store, &alone).await;
    assert_eq!(listed(&store, "", 10).await, ["lock:a", "lock:b", "lock:c"]);
    store.release(&[Leaving::Done(alone)]).await.unwrap();
    assert!(listed(&store, "", 10).await.is_empty());
    assert!(admin.list("KEYS lockfast:listing:*").is_empty() && admin.list("KEYS lockfast:leases:*").is_empty());
}
