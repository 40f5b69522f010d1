//! Queues in Redis: what once blocked a queue, let a reader marker outlive its readers, or made a fault reach another claim.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in its fixture too")]

#[allow(dead_code, reason = "other test binaries use the rest of it")]
#[path = "fixtures/redis.rs"]
mod fixture;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use lockfast::Redis;
use lockfast::store::{Admission, Busy, Change, Lease, Leaving, Scope, Standing, Store, Why};
use lockfast::store::{Claim, ClientId, Demand, Demands, Name};

use fixture::{Admin, claim_of_client, claim_with_demands, hold, queue};

const LONG_TTL: Duration = Duration::from_secs(60);
const SHORT_TTL: Duration = Duration::from_millis(500);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn exclusive(text: &str) -> Demand {
    Demand::exclusive(name(text))
}

fn shared(text: &str) -> Demand {
    Demand::shared(name(text))
}

fn claim(ttl: Duration, demands: impl IntoIterator<Item = Demand>) -> Arc<Claim> {
    claim_with_demands(Demands::of(demands.into_iter().collect()).unwrap(), ttl)
}

async fn open() -> (servers::Redis, Arc<Redis>) {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    (server, store)
}

async fn renew(store: &Redis, claims: &[&Arc<Claim>]) -> lockfast::Result<Vec<Standing>> {
    let leases: Vec<_> = claims.iter().map(|&claim| Lease { claim: Arc::clone(claim), ttl: claim.ttl }).collect();
    store.renew(&leases).await
}

async fn release(store: &Redis, claim: &Arc<Claim>) -> Standing {
    store.release(&[Leaving::Done(Arc::clone(claim))]).await.unwrap().remove(0)
}

/// Sleeps until leases of [`SHORT_TTL`] have ended.
async fn sleep_past_short_ttl() {
    tokio::time::sleep(SHORT_TTL + Duration::from_millis(100)).await;
}

#[tokio::test]
async fn a_writer_that_died_waiting_does_not_block_readers() {
    let (_server, store) = open().await;
    let (reader, dead, newcomer) =
        (claim(LONG_TTL, [shared("a")]), claim(SHORT_TTL, [exclusive("a")]), claim(LONG_TTL, [shared("a")]));
    hold(&store, &reader).await;
    queue(&store, &dead).await;
    queue(&store, &newcomer).await;
    sleep_past_short_ttl().await;
    assert!(matches!(renew(&store, &[&newcomer]).await.unwrap()[..], [Standing::Held(_)]));
}

#[tokio::test]
async fn permits_behind_a_dead_claim_of_large_weight_are_granted() {
    let (_server, store) = open().await;
    let permits = |ttl, weight| claim(ttl, [Demand::permits(name("p"), weight, 3).unwrap()]);
    let (holder, dead, newcomer) = (permits(LONG_TTL, 2), permits(SHORT_TTL, 2), permits(LONG_TTL, 1));
    hold(&store, &holder).await;
    queue(&store, &dead).await;
    sleep_past_short_ttl().await;
    hold(&store, &newcomer).await;
}

#[tokio::test]
async fn a_claim_that_waits_for_another_name_leaves_no_reader_marker() {
    let (_server, store) = open().await;
    let (reader, holder_b) = (claim(LONG_TTL, [shared("a")]), claim(LONG_TTL, [exclusive("b")]));
    let (both, writer) = (claim(LONG_TTL, [shared("a"), exclusive("b")]), claim(LONG_TTL, [exclusive("a")]));
    hold(&store, &reader).await;
    hold(&store, &holder_b).await;
    queue(&store, &both).await;
    release(&store, &reader).await;
    queue(&store, &writer).await;
    release(&store, &both).await;
    assert!(matches!(renew(&store, &[&writer]).await.unwrap()[..], [Standing::Held(_)]));
}

#[tokio::test]
async fn the_last_reader_removes_the_marker_however_its_ttl_was_rounded() {
    let (server, store) = open().await;
    for _ in 0..20 {
        let reader = claim(LONG_TTL, [shared("a")]);
        hold(&store, &reader).await;
        // Five milliseconds too long, as if the clock had gone on between two commands of a renewal.
        server.command("PEXPIRE a 60005");
        release(&store, &reader).await;
        assert_eq!(server.command("EXISTS a"), ":0");
    }
}

#[tokio::test]
async fn a_key_of_another_type_harms_no_claims_on_other_names() {
    let (server, store) = open().await;
    let permit = |ttl| claim(ttl, [Demand::permits(name("p"), 1, 3).unwrap()]);
    let (holder, holder_w) = (permit(LONG_TTL), claim(LONG_TTL, [exclusive("w")]));
    let both = claim(LONG_TTL, [Demand::permits(name("p"), 1, 3).unwrap(), exclusive("w")]);
    hold(&store, &holder).await;
    hold(&store, &holder_w).await;
    queue(&store, &both).await;
    server.command("DEL w");
    server.command("HSET w field value");
    assert!(matches!(renew(&store, &[&holder]).await.unwrap()[..], [Standing::Held(_)]));
    hold(&store, &permit(LONG_TTL)).await;
}

#[tokio::test]
async fn the_tombstone_of_a_dead_waiter_blocks_no_multi() {
    let (_server, store) = open().await;
    let (holder_a, reader_b, dead) =
        (claim(LONG_TTL, [exclusive("a")]), claim(LONG_TTL, [shared("b")]), claim(SHORT_TTL, [exclusive("b")]));
    let both = claim(LONG_TTL, [exclusive("a"), shared("b")]);
    hold(&store, &holder_a).await;
    hold(&store, &reader_b).await;
    queue(&store, &dead).await;
    queue(&store, &both).await;
    sleep_past_short_ttl().await;
    store.release(&[Leaving::Unknown(Arc::clone(&dead))]).await.unwrap();
    release(&store, &holder_a).await;
    let other = claim(LONG_TTL, [exclusive("a")]);
    let Admission::Refused(busy) = store.acquire(&other, Busy::Refuse).await.unwrap() else { panic!("it is taken") };
    assert_eq!(busy.holder.map(|holder| holder.owner), Some(both.id.hash()));
}

#[tokio::test]
async fn readers_behind_a_waiter_do_not_delay_its_recheck() {
    let (_server, store) = open().await;
    let permits = |weight| Demand::permits(name("p"), weight, 3).unwrap();
    let (holder, reader) = (claim(SHORT_TTL, [permits(3)]), claim(LONG_TTL, [shared("a")]));
    let both = claim(LONG_TTL, [shared("a"), permits(1)]);
    // A client without a subscription would poll.
    let _pushes = store.watch(Scope::Client(both.client));
    hold(&store, &holder).await;
    queue(&store, &both).await;
    hold(&store, &reader).await;
    let standings = renew(&store, &[&both]).await.unwrap();
    let [Standing::Waiting { recheck_in, .. }] = standings[..] else { panic!("{standings:?}") };
    assert!(recheck_in <= SHORT_TTL, "{recheck_in:?}");
}

#[tokio::test]
async fn a_seal_without_an_end_stays() {
    let (_server, store) = open().await;
    let sealer = claim(LONG_TTL, [exclusive("a")]);
    hold(&store, &sealer).await;
    let sealing = Leaving::Seal { claim: sealer, value: Bytes::from_static(b"done"), keep: Duration::MAX };
    assert_eq!(store.release(&[sealing]).await.unwrap(), [Standing::Gone(Why::Left)]);
    let sealed = store.acquire(&claim(LONG_TTL, [exclusive("a")]), Busy::Wait).await.unwrap();
    assert!(matches!(sealed, Admission::Sealed(_)), "{sealed:?}");
    let lingerer = claim(LONG_TTL, [exclusive("b")]);
    hold(&store, &lingerer).await;
    store.release(&[Leaving::Linger(lingerer, Duration::MAX)]).await.unwrap();
    queue(&store, &claim(LONG_TTL, [exclusive("b")])).await;
}

#[tokio::test]
async fn a_full_redis_grants_locks_to_claims_that_wait_already() {
    let (server, store) = open().await;
    let (dead, waiter, holder) =
        (claim(SHORT_TTL, [exclusive("a")]), claim(LONG_TTL, [exclusive("a")]), claim(LONG_TTL, [exclusive("b")]));
    hold(&store, &dead).await;
    queue(&store, &waiter).await;
    hold(&store, &holder).await;
    server.command("CONFIG SET maxmemory 1mb");
    sleep_past_short_ttl().await;
    let standings = renew(&store, &[&waiter, &holder]).await.unwrap();
    assert!(matches!(standings[..], [Standing::Held(_), Standing::Held(_)]), "{standings:?}");
}

#[tokio::test]
async fn a_renewal_among_300_readers_reads_fewer_than_ten_records() {
    let (server, store) = open().await;
    let readers: Vec<_> = (0..300).map(|_| claim(LONG_TTL, [shared("a")])).collect();
    for one in &readers {
        hold(&store, one).await;
    }
    server.command("CONFIG RESETSTAT");
    renew(&store, &[&readers[299]]).await.unwrap();
    let calls = Admin::of(&server.url()).calls("get");
    assert!(calls < 10, "{calls} records were read to renew one");
}

#[tokio::test]
async fn one_watch_that_ends_does_not_silence_another() {
    let (_server, store) = open().await;
    let first = store.watch(Scope::Queues(String::new()));
    let mut second = store.watch(Scope::Queues(String::new()));
    assert_eq!(next_change(&mut second).await, Change::Resync, "a watch begins with it once it is subscribed");
    drop(first);
    // When the first has unsubscribed cannot be observed. It has done so long before the last of these rounds.
    for round in 0..20 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let holder = claim(LONG_TTL, [exclusive(&format!("a{round}"))]);
        hold(&store, &holder).await;
        while next_change(&mut second).await != Change::Resource(name(&format!("a{round}"))) {}
    }
}

async fn next_change(watch: &mut (impl futures::Stream<Item = Change> + Unpin)) -> Change {
    tokio::time::timeout(Duration::from_secs(3), watch.next())
        .await
        .expect("a push arrives")
        .expect("the watch goes on")
}

#[tokio::test]
async fn a_renewal_on_a_server_that_became_a_replica_fails() {
    let (server, store) = open().await;
    let primary = servers::Redis::start();
    let holder = claim(LONG_TTL, [exclusive("a")]);
    hold(&store, &holder).await;
    server.command("CONFIG SET replica-serve-stale-data yes");
    server.command("SET keep 1");
    server.command(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    let mut answer = String::new();
    for _ in 0..3 {
        answer = match renew(&store, &[&holder]).await {
            Err(error) => error.to_string(),
            Ok(standings) => format!("{standings:?}"),
        };
    }
    assert!(answer.contains("locks are taken at its primary"), "{answer}");
}

#[tokio::test]
async fn a_password_with_a_question_mark_is_not_shown_in_the_error() {
    let refused = Redis::open("redis://me:very?s3cret@db").await.unwrap_err();
    assert!(!format!("{refused} {refused:?}").contains("s3cret"), "{refused}");
}

#[tokio::test]
async fn a_waiter_granted_by_a_call_that_fails_is_notified() {
    let (server, store) = open().await;
    let waiter = claim_of_client(77, "z", LONG_TTL);
    let mut pushes = store.watch(Scope::Client(waiter.client));
    let dead = claim(SHORT_TTL, [exclusive("z")]);
    hold(&store, &dead).await;
    queue(&store, &waiter).await;
    server.command("HSET b field value");
    sleep_past_short_ttl().await;
    let failed = store.acquire(&claim(LONG_TTL, [exclusive("b"), exclusive("z")]), Busy::Wait).await;
    assert!(failed.is_err(), "{failed:?}");
    if server.command("EXISTS z") == ":1" {
        assert!(matches!(next_change(&mut pushes).await, Change::Held(owner, _) if owner == waiter.id.hash()));
    }
}

#[tokio::test]
async fn a_release_of_many_claims_notifies_every_next_waiter() {
    let (_server, store) = open().await;
    // 95 claims need two scripts, the second of which has one claim.
    let of_client = |text: &str| claim_of_client(77, text, LONG_TTL);
    let holders: Vec<_> = (0..95).map(|number| of_client(&format!("n{number}"))).collect();
    let waiter = of_client("n94");
    let mut pushes = store.watch(Scope::Client(ClientId(77)));
    for holder in &holders {
        hold(&store, holder).await;
    }
    queue(&store, &waiter).await;
    let leaving: Vec<_> = holders.into_iter().map(Leaving::Done).collect();
    let left = store.release(&leaving).await.unwrap();
    assert!(left.iter().all(|standing| *standing == Standing::Gone(Why::Left)), "{:?}", left.last());
    assert!(matches!(next_change(&mut pushes).await, Change::Held(owner, _) if owner == waiter.id.hash()));
}
