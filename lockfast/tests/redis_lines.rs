//! Lines in Redis that once stood still, marks that outlived their readers, and faults that reached the wrong claim.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use lockfast::Redis;
use lockfast::store::{Admission, Busy, Change, Lease, Leaving, Scope, Standing, Store, Why};
use lockfast::store::{Claim, ClientId, Demand, Demands, Name};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(500);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn writer(text: &str) -> Demand {
    Demand::exclusive(name(text))
}

fn reader(text: &str) -> Demand {
    Demand::shared(name(text))
}

fn claim(ttl: Duration, demands: impl IntoIterator<Item = Demand>) -> Arc<Claim> {
    Arc::new(Claim::new(Demands::of(demands.into_iter().collect()).unwrap(), ttl).unwrap())
}

async fn open() -> (servers::Redis, Arc<Redis>) {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    (server, store)
}

async fn acquire(store: &Redis, claim: &Arc<Claim>) -> Admission {
    store.acquire(claim, Busy::Wait).await.unwrap()
}

async fn is_held(store: &Redis, claim: &Arc<Claim>) -> bool {
    matches!(acquire(store, claim).await, Admission::Held(_))
}

async fn waits(store: &Redis, claim: &Arc<Claim>) -> bool {
    matches!(acquire(store, claim).await, Admission::Queued { .. })
}

async fn renew(store: &Redis, claims: &[&Arc<Claim>]) -> lockfast::Result<Vec<Standing>> {
    let leases: Vec<_> = claims.iter().map(|&claim| Lease { claim: Arc::clone(claim), ttl: claim.ttl }).collect();
    store.renew(&leases).await
}

async fn done(store: &Redis, claim: &Arc<Claim>) -> Standing {
    store.release(&[Leaving::Done(Arc::clone(claim))]).await.unwrap().remove(0)
}

/// One command, as an administrator would type it; the first line of the answer.
fn type_in(server: &servers::Redis, command: &str) -> String {
    let mut socket = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    write!(socket, "{command}\r\n").unwrap();
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Leases of [`SHORT`] have run out after this.
async fn outlive_the_short() {
    tokio::time::sleep(SHORT + Duration::from_millis(100)).await;
}

#[tokio::test]
async fn a_writer_that_died_waiting_does_not_keep_readers_from_readers() {
    let (_server, store) = open().await;
    let (reads, dies, comes) = (claim(LONG, [reader("a")]), claim(SHORT, [writer("a")]), claim(LONG, [reader("a")]));
    assert!(is_held(&store, &reads).await);
    assert!(waits(&store, &dies).await);
    assert!(waits(&store, &comes).await);
    outlive_the_short().await;
    assert!(matches!(renew(&store, &[&comes]).await.unwrap()[..], [Standing::Held(_)]));
}

#[tokio::test]
async fn permits_behind_a_heavy_claim_that_died_are_handed_out() {
    let (_server, store) = open().await;
    let permits = |ttl, weight| claim(ttl, [Demand::permits(name("p"), weight, 3).unwrap()]);
    let (holds, dies, comes) = (permits(LONG, 2), permits(SHORT, 2), permits(LONG, 1));
    assert!(is_held(&store, &holds).await);
    assert!(waits(&store, &dies).await);
    outlive_the_short().await;
    assert!(is_held(&store, &comes).await);
}

#[tokio::test]
async fn a_claim_that_waits_elsewhere_leaves_no_mark_of_readers_behind() {
    let (_server, store) = open().await;
    let (reads, holds_b) = (claim(LONG, [reader("a")]), claim(LONG, [writer("b")]));
    let (both, writes) = (claim(LONG, [reader("a"), writer("b")]), claim(LONG, [writer("a")]));
    assert!(is_held(&store, &reads).await);
    assert!(is_held(&store, &holds_b).await);
    assert!(waits(&store, &both).await);
    done(&store, &reads).await;
    assert!(waits(&store, &writes).await);
    done(&store, &both).await;
    assert!(matches!(renew(&store, &[&writes]).await.unwrap()[..], [Standing::Held(_)]));
}

#[tokio::test]
async fn the_last_reader_takes_the_mark_along_however_its_lease_was_rounded() {
    let (server, store) = open().await;
    for _ in 0..20 {
        let reads = claim(LONG, [reader("a")]);
        assert!(is_held(&store, &reads).await);
        // As it happens when a millisecond ends between two commands of a renewal.
        type_in(&server, "PEXPIRE a 60005");
        done(&store, &reads).await;
        assert_eq!(type_in(&server, "EXISTS a"), ":0");
    }
}

#[tokio::test]
async fn something_else_at_one_name_does_no_harm_to_those_on_others() {
    let (server, store) = open().await;
    let permit = |ttl| claim(ttl, [Demand::permits(name("p"), 1, 3).unwrap()]);
    let (holds, holds_w) = (permit(LONG), claim(LONG, [writer("w")]));
    let both = claim(LONG, [Demand::permits(name("p"), 1, 3).unwrap(), writer("w")]);
    assert!(is_held(&store, &holds).await);
    assert!(is_held(&store, &holds_w).await);
    assert!(waits(&store, &both).await);
    type_in(&server, "DEL w");
    type_in(&server, "HSET w field value");
    assert!(matches!(renew(&store, &[&holds]).await.unwrap()[..], [Standing::Held(_)]));
    assert!(is_held(&store, &permit(LONG)).await);
}

#[tokio::test]
async fn who_is_marked_gone_after_it_died_does_not_keep_a_claim_on_several_names_waiting() {
    let (_server, store) = open().await;
    let (holds_a, reads_b, dies) =
        (claim(LONG, [writer("a")]), claim(LONG, [reader("b")]), claim(SHORT, [writer("b")]));
    let both = claim(LONG, [writer("a"), reader("b")]);
    assert!(is_held(&store, &holds_a).await);
    assert!(is_held(&store, &reads_b).await);
    assert!(waits(&store, &dies).await);
    assert!(waits(&store, &both).await);
    outlive_the_short().await;
    store.release(&[Leaving::Unknown(Arc::clone(&dies))]).await.unwrap();
    done(&store, &holds_a).await;
    let other = claim(LONG, [writer("a")]);
    let Admission::Refused(busy) = store.acquire(&other, Busy::Refuse).await.unwrap() else { panic!("it is taken") };
    assert_eq!(busy.holder.map(|holder| holder.owner), Some(both.id.hash()));
}

#[tokio::test]
async fn readers_behind_a_waiter_do_not_delay_its_recheck() {
    let (_server, store) = open().await;
    let permits = |weight| Demand::permits(name("p"), weight, 3).unwrap();
    let (holds, reads) = (claim(SHORT, [permits(3)]), claim(LONG, [reader("a")]));
    let both = claim(LONG, [reader("a"), permits(1)]);
    // A client without a subscription would poll.
    let _pushes = store.watch(Scope::Client(both.client));
    assert!(is_held(&store, &holds).await);
    assert!(waits(&store, &both).await);
    assert!(is_held(&store, &reads).await);
    let standings = renew(&store, &[&both]).await.unwrap();
    let [Standing::Waiting { recheck_in, .. }] = standings[..] else { panic!("{standings:?}") };
    assert!(recheck_in <= SHORT, "{recheck_in:?}");
}

#[tokio::test]
async fn what_is_sealed_for_ever_is_sealed() {
    let (_server, store) = open().await;
    let seals = claim(LONG, [writer("a")]);
    assert!(is_held(&store, &seals).await);
    let sealing = Leaving::Seal { claim: seals, value: Bytes::from_static(b"done"), keep: Duration::MAX };
    assert_eq!(store.release(&[sealing]).await.unwrap(), [Standing::Gone(Why::Left)]);
    assert!(matches!(acquire(&store, &claim(LONG, [writer("a")])).await, Admission::Sealed(_)));
    let lingers = claim(LONG, [writer("b")]);
    assert!(is_held(&store, &lingers).await);
    store.release(&[Leaving::Linger(lingers, Duration::MAX)]).await.unwrap();
    assert!(waits(&store, &claim(LONG, [writer("b")])).await);
}

#[tokio::test]
async fn a_full_redis_hands_on_to_those_who_wait_already() {
    let (server, store) = open().await;
    let (dies, waiting, holds) = (claim(SHORT, [writer("a")]), claim(LONG, [writer("a")]), claim(LONG, [writer("b")]));
    assert!(is_held(&store, &dies).await);
    assert!(waits(&store, &waiting).await);
    assert!(is_held(&store, &holds).await);
    type_in(&server, "CONFIG SET maxmemory 1mb");
    outlive_the_short().await;
    let standings = renew(&store, &[&waiting, &holds]).await.unwrap();
    assert!(matches!(standings[..], [Standing::Held(_), Standing::Held(_)]), "{standings:?}");
}

#[tokio::test]
async fn a_hundred_readers_renew_for_the_price_of_their_own_records() {
    let (server, store) = open().await;
    let readers: Vec<_> = (0..300).map(|_| claim(LONG, [reader("a")])).collect();
    for one in &readers {
        assert!(is_held(&store, one).await);
    }
    type_in(&server, "CONFIG RESETSTAT");
    renew(&store, &[&readers[299]]).await.unwrap();
    let mut socket = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    write!(socket, "INFO commandstats\r\nQUIT\r\n").unwrap();
    let gets = BufReader::new(socket).lines().map_while(Result::ok).find(|line| line.starts_with("cmdstat_get:"));
    let calls: u32 =
        gets.map_or(0, |line| line["cmdstat_get:calls=".len()..].split(',').next().unwrap().parse().unwrap());
    assert!(calls < 10, "{calls} records were read to renew one");
}

#[tokio::test]
async fn one_watch_that_ends_does_not_silence_another() {
    let (_server, store) = open().await;
    let first = store.watch(Scope::Queues(String::new()));
    let mut second = store.watch(Scope::Queues(String::new()));
    assert_eq!(hear(&mut second).await, Change::Resync, "it begins with that when it is subscribed");
    drop(first);
    // That the first unsubscribes cannot be seen from outside; it has done so long before the last of these.
    for turn in 0..20 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let takes = claim(LONG, [writer(&format!("a{turn}"))]);
        assert!(is_held(&store, &takes).await);
        while hear(&mut second).await != Change::Resource(name(&format!("a{turn}"))) {}
    }
}

async fn hear(watch: &mut (impl futures::Stream<Item = Change> + Unpin)) -> Change {
    tokio::time::timeout(Duration::from_secs(3), watch.next()).await.expect("it is told").expect("it goes on")
}

#[tokio::test]
async fn a_server_that_became_a_replica_is_left_by_renewals_too() {
    let (server, store) = open().await;
    let primary = servers::Redis::start();
    let holds = claim(LONG, [writer("a")]);
    assert!(is_held(&store, &holds).await);
    type_in(&server, "CONFIG SET replica-serve-stale-data yes");
    type_in(&server, "SET keep 1");
    type_in(&server, &format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    let mut said = String::new();
    for _ in 0..3 {
        said = match renew(&store, &[&holds]).await {
            Err(error) => error.to_string(),
            Ok(standings) => format!("{standings:?}"),
        };
    }
    assert!(said.contains("locks are taken at its primary"), "{said}");
}

#[tokio::test]
async fn a_password_with_a_question_mark_is_not_repeated_in_the_error() {
    let refused = Redis::open("redis://me:very?s3cret@db").await.unwrap_err();
    assert!(!format!("{refused} {refused:?}").contains("s3cret"), "{refused}");
}

#[tokio::test]
async fn who_is_handed_a_lock_by_a_call_that_fails_is_told() {
    let (server, store) = open().await;
    let waiting = {
        let mut waiting = (*claim(LONG, [writer("z")])).clone();
        waiting.client = ClientId(77);
        Arc::new(waiting)
    };
    let mut pushes = store.watch(Scope::Client(waiting.client));
    let dies = claim(SHORT, [writer("z")]);
    assert!(is_held(&store, &dies).await);
    assert!(waits(&store, &waiting).await);
    type_in(&server, "HSET b field value");
    outlive_the_short().await;
    let failed = store.acquire(&claim(LONG, [writer("b"), writer("z")]), Busy::Wait).await;
    assert!(failed.is_err(), "{failed:?}");
    if type_in(&server, "EXISTS z") == ":1" {
        assert!(matches!(hear(&mut pushes).await, Change::Held(owner, _) if owner == waiting.id.hash()));
    }
}

#[tokio::test]
async fn of_many_who_leave_together_each_next_one_is_told() {
    let (_server, store) = open().await;
    // As many as need two scripts, the second of which has one left.
    let of_client = |text: &str| Arc::new(Claim { client: ClientId(77), ..(*claim(LONG, [writer(text)])).clone() });
    let holders: Vec<_> = (0..95).map(|number| of_client(&format!("n{number}"))).collect();
    let waiting = of_client("n94");
    let mut pushes = store.watch(Scope::Client(ClientId(77)));
    for holder in &holders {
        assert!(is_held(&store, holder).await);
    }
    assert!(waits(&store, &waiting).await);
    let leaving: Vec<_> = holders.into_iter().map(Leaving::Done).collect();
    let left = store.release(&leaving).await.unwrap();
    assert!(left.iter().all(|standing| *standing == Standing::Gone(Why::Left)), "{:?}", left.last());
    assert!(matches!(hear(&mut pushes).await, Change::Held(owner, _) if owner == waiting.id.hash()));
}
