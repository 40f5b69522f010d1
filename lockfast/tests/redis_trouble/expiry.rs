//! How long keys live: as long as the longest lease that needs them, and tombstones no longer than an acquire can be late.

use std::sync::Arc;
use std::time::Duration;

use lockfast::store::{Leaving, Standing, Store, Why};
use lockfast::{Claim, Redis, Ticket};

use crate::stage::{Admin, claim, hold, millis, queue, secs};

const WEEK: Duration = secs(7 * 24 * 3600);

async fn leave(store: &Redis, leaving: Leaving) -> Standing {
    store.release(&[leaving]).await.unwrap().remove(0)
}

/// For how much longer the record of a claim, or its tombstone, lives.
fn record_lives_for(admin: &mut Admin, claim: &Claim) -> Duration {
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
        let left = record_lives_for(&mut admin, &claim);
        assert!(left <= secs(60) && left > secs(50), "{left:?}");
        // A second release of unknown outcome does not lengthen it beyond that.
        leave(&store, Leaving::Unknown(Arc::clone(&claim))).await;
        assert!(record_lives_for(&mut admin, &claim) <= secs(60));
    }
}

#[tokio::test]
async fn a_tombstone_outlives_twice_what_the_connection_holds_back() {
    let server = servers::Redis::start();
    let store = Redis::open(&server.url()).await.unwrap();
    let mut admin = Admin::of(&server.url());
    let brief = claim("lock:a", millis(500));
    leave(&store, Leaving::Unknown(Arc::clone(&brief))).await;
    let left = record_lives_for(&mut admin, &brief);
    // A connection that is silent for five seconds is given up.
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
    let left = record_lives_for(&mut admin, &broken);
    assert!(left <= secs(120) && left > secs(60), "{left:?}");
    assert_eq!(leave(&store, Leaving::Unknown(Arc::clone(&broken))).await, Standing::Gone(Why::Broken));
    let left = record_lives_for(&mut admin, &broken);
    assert!(left > secs(60), "its own release does not shorten it: {left:?}");
}
