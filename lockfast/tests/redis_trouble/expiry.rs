//! How long keys live: as long as the longest lease that needs them, and tombstones no longer than an acquire can be late.

use std::sync::Arc;
use std::time::Duration;

use lockfast::Redis;
use lockfast::store::{Busy, Leaving, Scope, Standing, Store, Why};
use lockfast::store::{Claim, ClientId, Demand, Name, Ticket};

use crate::fixture::{Admin, claim, claim_of_client, claim_with_demands, hold, millis, queue, secs, until};

const WEEK: Duration = secs(7 * 24 * 3600);

fn reader(name: &str, ttl: Duration) -> Arc<Claim> {
    claim_with_demands(Demand::shared(Name::new(name).unwrap()).into(), ttl)
}

async fn leave(store: &Redis, leaving: Leaving) -> Standing {
    store.release(&[leaving]).await.unwrap().remove(0)
}

/// The time to live of a claim's record, or of its tombstone.
fn record_ttl(admin: &mut Admin, claim: &Claim) -> Duration {
    let owner = claim.id.hash().to_string();
    let key = admin.list("KEYS lockfast:*:claim:*").into_iter().find(|key| key.ends_with(&owner));
    let key = key.expect("there is a record, or a tombstone");
    millis(admin.number(&format!("PTTL {key}")).try_into().expect("it has an end"))
}

#[tokio::test]
async fn a_tombstone_of_a_long_lease_lives_for_a_minute() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let mut admin = Admin::of(&server.url());
    let [never, holds, waits] = ["lock:a", "lock:b", "lock:b"].map(|name| claim(name, WEEK));
    hold(&store, &holds).await;
    queue(&store, &waits).await;
    for claim in [never, waits, holds] {
        leave(&store, Leaving::Unknown(Arc::clone(&claim))).await;
        let left = record_ttl(&mut admin, &claim);
        assert!(left <= secs(60) && left > secs(50), "{left:?}");
        // A second release of unknown outcome does not lengthen it beyond that.
        leave(&store, Leaving::Unknown(Arc::clone(&claim))).await;
        assert!(record_ttl(&mut admin, &claim) <= secs(60));
    }
}

#[tokio::test]
async fn a_tombstone_outlives_twice_what_the_connection_holds_back() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let mut admin = Admin::of(&server.url());
    let brief = claim("lock:a", millis(500));
    leave(&store, Leaving::Unknown(Arc::clone(&brief))).await;
    let left = record_ttl(&mut admin, &brief);
    // A request may be late by five seconds: then its silent connection is given up. The tombstone lives for twice that time.
    assert!(left <= secs(10) && left > secs(7), "{left:?}");
}

#[tokio::test]
async fn the_tombstone_of_a_broken_claim_lives_for_one_lease() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let mut admin = Admin::of(&server.url());
    let broken = claim("lock:a", secs(120));
    let ticket = Ticket(hold(&store, &broken).await);
    let name = broken.demands[0].name.clone();
    let standing = leave(&store, Leaving::Break { name, ticket, at_once: true }).await;
    assert_eq!(standing, Standing::Gone(Why::Broken));
    let left = record_ttl(&mut admin, &broken);
    assert!(left <= secs(120) && left > secs(60), "{left:?}");
    assert_eq!(leave(&store, Leaving::Unknown(Arc::clone(&broken))).await, Standing::Gone(Why::Broken));
    let left = record_ttl(&mut admin, &broken);
    assert!(left > secs(60), "its own release does not shorten it: {left:?}");
}

#[tokio::test]
async fn the_reader_marker_lives_as_long_as_the_longest_lease_left() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let mut admin = Admin::of(&server.url());
    let readers = [60, 5, 600].map(|ttl| reader("lock:a", secs(ttl)));
    for reader in &readers {
        hold(&store, reader).await;
    }
    leave(&store, Leaving::Done(Arc::clone(&readers[2]))).await;
    let left = admin.number("PTTL lock:a");
    assert!((50_000..=60_000).contains(&left), "{left}");
    leave(&store, Leaving::Linger(Arc::clone(&readers[1]), millis(700))).await;
    let left = admin.number("PTTL lock:a");
    assert!((45_000..=60_000).contains(&left), "{left}");
}

#[tokio::test]
async fn a_queue_lives_longer_than_the_longest_lease_in_it() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let mut admin = Admin::of(&server.url());
    // A claim whose client has a live push subscription joins by the fast path, which has to set the TTL of the queue too.
    let client = ClientId(7);
    let _pushes = store.watch(Scope::Client(client));
    until("pushes are subscribed", async || admin.push_channels().len() == 1).await;
    for (name, client) in [("lock:a", 0), ("lock:b", client.0)] {
        hold(&store, &claim_of_client(client, name, secs(60))).await;
        for ttl in [1, 600] {
            queue(&store, &claim_of_client(client, name, secs(ttl))).await;
        }
        let key = admin.queue_key(name).unwrap();
        assert!(admin.number(&format!("PTTL {key}")) >= 590_000, "{name}");
    }
    let readers = [1, 600].map(|ttl| reader("lock:c", secs(ttl)));
    for reader in &readers {
        assert!(store.acquire(reader, Busy::Wait).await.is_ok());
    }
    let key = admin.queue_key("lock:c").unwrap();
    assert!(admin.number(&format!("PTTL {key}")) >= 590_000, "readers");
}

#[tokio::test]
async fn connecting_never_sets_the_ticket_counter_back() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    // The same server; and a server whose counter came from another one, whose clock was ahead.
    for (number, forget) in ["", "DEL lockfast:identity", "SET lockfast:identity another"].iter().enumerate() {
        let first = Redis::open(&server.url()).await.unwrap();
        let ticket = hold(&first, &claim(&format!("lock:{number}:a"), secs(30))).await;
        let ahead = ticket + 1_000_000_000_000;
        admin.run(&format!("SET lockfast:tickets {ahead}"));
        if !forget.is_empty() {
            admin.run(forget);
        }
        let second = Redis::open(&server.url()).await.unwrap();
        let next = hold(&second, &claim(&format!("lock:{number}:b"), secs(30))).await;
        assert!(next > ahead, "{forget:?}: {next} after {ahead}");
    }
}
