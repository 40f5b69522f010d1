//! Detached locks: a guard becomes a token, and any client renews and releases it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in what its tests share too")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use lockfast::store::{Admission, Busy, Change, Lease, Leaving, Page, Query, Report, Scope, Standing};
use lockfast::store::{Claim, ClaimHash, Store};
use lockfast::{Error, Guarantees, Locks, LostWhy, ManualClock, Memory, Result, Token};

const TTL: Duration = Duration::from_secs(30);

/// Two clients of one store, as two processes would be, and the clock of all three.
fn fixture() -> (Locks, Locks, ManualClock) {
    let manual_clock = ManualClock::new();
    let store = Arc::new(Memory::with_clock(manual_clock.clock()));
    let client = || Locks::builder().clock(manual_clock.clock()).build(store.clone()).unwrap();
    (client(), client(), manual_clock)
}

async fn token(locks: &Locks, name: &str) -> Token {
    locks.mutex(name).detached().ttl(TTL).lock().await.unwrap().into_token().await.unwrap()
}

/// Waits until the queue has `count` waiters.
async fn wait_for_waiters(locks: &Locks, name: &str, count: usize) {
    let enough = async {
        while locks.mutex(name).info().await.unwrap().unwrap().waiters().count() < count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), enough).await.expect("all waiters are in the queue");
}

#[tokio::test]
async fn a_token_outlives_its_client_and_another_client_releases_it() {
    let (ours, theirs, _) = fixture();
    let text = token(&ours, "deploy").await.to_string();
    ours.shutdown(TTL).await.unwrap();
    drop(ours);
    assert!(theirs.mutex("deploy").is_locked().await.unwrap());
    theirs.release_token(&text.parse().unwrap()).await.unwrap();
    assert!(!theirs.mutex("deploy").is_locked().await.unwrap());
}

#[tokio::test]
async fn only_the_owner_of_a_token_renews_it() {
    let (ours, theirs, manual_clock) = fixture();
    let token = token(&ours, "deploy").await;
    // Both clients have enough time to renew claims that they consider their own.
    for _ in 0..3 {
        manual_clock.advance(TTL / 4);
        assert!(theirs.mutex("deploy").is_locked().await.unwrap());
        ours.fleet_stats().await.unwrap();
    }
    theirs.renew_token(&token, TTL).await.unwrap();
    manual_clock.advance(TTL * 3 / 4);
    assert!(theirs.mutex("deploy").is_locked().await.unwrap(), "renewed, for a whole lease");
    manual_clock.advance(TTL / 4);
    assert!(!theirs.mutex("deploy").is_locked().await.unwrap());
    assert!(matches!(theirs.renew_token(&token, TTL).await, Err(Error::Lost { .. })));
    assert!(matches!(theirs.release_token(&token).await, Err(Error::Lost { .. })));
}

#[tokio::test]
async fn releasing_a_token_grants_the_next_waiter() {
    let (ours, theirs, _) = fixture();
    let token = token(&ours, "deploy").await;
    let next = theirs.mutex("deploy");
    let waiting = tokio::spawn(async move { next.lock().await });
    wait_for_waiters(&ours, "deploy", 1).await;
    ours.release_token(&token).await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.fence().unwrap() > token.fence());
}

#[tokio::test]
async fn a_token_releases_all_its_names_or_permits() {
    let (ours, theirs, _) = fixture();
    let both = ours.multi(["a", "b"]).detached().lock().await.unwrap().into_token().await.unwrap();
    let permit = ours.semaphore("api", 1).detached().acquire().await.unwrap().into_token().await.unwrap();
    let reader = ours.rwlock("catalog").detached().read().await.unwrap().into_token().await.unwrap();
    assert!(theirs.mutex("b").try_lock().await.unwrap().is_none());
    assert!(theirs.semaphore("api", 1).try_acquire().await.unwrap().is_none());
    assert!(theirs.rwlock("catalog").try_write().await.unwrap().is_none());
    for token in [both, permit, reader] {
        theirs.renew_token(&token.to_string().parse().unwrap(), TTL).await.unwrap();
        theirs.release_token(&token.to_string().parse().unwrap()).await.unwrap();
    }
    assert!(theirs.inspect("").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_token_works_under_any_prefix() {
    let store = Arc::new(Memory::new());
    let client = |prefix: &str| Locks::builder().prefix(prefix).build(store.clone()).unwrap();
    let token = token(&client("billing:"), "deploy").await;
    client("billing:").release_token(&token).await.unwrap();
    let lost = client("other:").release_token(&token).await.unwrap_err();
    assert!(matches!(&lost, Error::Lost { name, why: LostWhy::Evicted, .. } if name == "billing:deploy"), "{lost}");
    let lost = client("billing:").renew_token(&token, TTL).await.unwrap_err();
    assert!(matches!(&lost, Error::Lost { name, .. } if name == "deploy"), "{lost}");
}

#[tokio::test]
async fn only_a_detached_lock_becomes_a_token() {
    let (ours, theirs, _) = fixture();
    let refused = ours.mutex("a").lock().await.unwrap().into_token().await.unwrap_err();
    assert!(matches!(&refused, Error::Invalid(what) if what.contains("detached")), "{refused}");
    drop(theirs.mutex("a").lock_within(TTL).await.unwrap());
}

#[tokio::test]
async fn a_lock_that_is_lost_does_not_become_a_token() {
    let (ours, _, manual_clock) = fixture();
    let guard = ours.mutex("a").detached().ttl(TTL).no_renewal().lock().await.unwrap();
    manual_clock.advance(TTL);
    assert!(matches!(guard.into_token().await, Err(Error::Lost { why: LostWhy::Expired, .. })));
}

#[tokio::test]
async fn a_detached_lock_has_no_cap_and_does_not_linger() {
    let (ours, ..) = fixture();
    assert!(matches!(ours.mutex("a").detached().hold_at_most(TTL).lock().await, Err(Error::Invalid(_))));
    assert!(matches!(ours.mutex("a").detached().hold_at_least(TTL).lock().await, Err(Error::Invalid(_))));
}

#[tokio::test]
async fn a_closed_client_does_nothing_with_a_token() {
    let (ours, theirs, _) = fixture();
    let token = token(&ours, "a").await;
    theirs.shutdown(TTL).await.unwrap();
    assert!(matches!(theirs.renew_token(&token, TTL).await, Err(Error::Closed(_))));
    assert!(matches!(theirs.release_token(&token).await, Err(Error::Closed(_))));
    assert!(ours.mutex("a").is_locked().await.unwrap());
}

#[tokio::test]
async fn the_counters_of_all_clients_add_up_over_a_token() {
    let (ours, theirs, _) = fixture();
    let token = token(&ours, "a").await;
    assert_eq!((ours.stats().acquired, ours.stats().held, ours.stats().released), (1, 0, 0));
    ours.fleet_stats().await.unwrap();
    theirs.release_token(&token).await.unwrap();
    let fleet = theirs.fleet_stats().await.unwrap();
    assert_eq!((fleet.acquired, fleet.released, fleet.lost), (1, 1, 0));
}

/// A store that records how claims join and are detached, and fails to detach them if `fails_to_detach` is set.
#[derive(Debug, Default)]
struct RecordingStore {
    store: Memory,
    /// Of each acquire: whether the claim was detached, and the length of its block.
    acquires: Mutex<Vec<(bool, u32)>>,
    /// The owner of each claim that was renewed as detached.
    detached: Mutex<Vec<ClaimHash>>,
    fails_to_detach: bool,
}

#[async_trait]
impl Store for RecordingStore {
    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission> {
        self.acquires.lock().unwrap().push((claim.detached, claim.block));
        self.store.acquire(claim, busy).await
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        for lease in leases.iter().filter(|lease| lease.claim.detached) {
            assert_eq!(lease.ttl, lease.claim.ttl, "with a whole lease");
            self.detached.lock().unwrap().push(lease.claim.id.hash());
            if self.fails_to_detach {
                return Err(Error::unavailable("renewing", "on purpose"));
            }
        }
        self.store.renew(leases).await
    }

    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        self.store.release(leaving).await
    }

    async fn inspect(&self, query: &Query) -> Result<Page> {
        self.store.inspect(query).await
    }

    async fn record(&self, report: &Report) -> Result<()> {
        self.store.record(report).await
    }

    fn watch(&self, scope: Scope) -> BoxStream<'static, Change> {
        self.store.watch(scope)
    }
}

#[tokio::test]
async fn a_claim_is_exempt_from_liveness_only_once_it_is_detached() {
    let store = Arc::new(RecordingStore::default());
    let locks = Locks::new(store.clone()).unwrap();
    let guard = locks.mutex("a").detached().ttl(TTL).lock().await.unwrap();
    let token = guard.token().unwrap();
    guard.extend(TTL).await.unwrap();
    assert_eq!(*store.acquires.lock().unwrap(), [(false, 1)]);
    assert!(store.detached.lock().unwrap().is_empty(), "not before its token was delivered");
    guard.detach().await.unwrap();
    assert_eq!(*store.detached.lock().unwrap(), [token.owner()]);
    locks.release_token(&token).await.unwrap();
}

#[tokio::test]
async fn a_lock_that_cannot_be_detached_is_released() {
    let store = Arc::new(RecordingStore { fails_to_detach: true, ..RecordingStore::default() });
    let locks = Locks::new(store.clone()).unwrap();
    let failed = locks.mutex("a").detached().ttl(TTL).lock().await.unwrap().into_token().await.unwrap_err();
    assert!(matches!(failed, Error::Unavailable { .. }), "{failed}");
    drop(locks.mutex("a").lock_within(TTL).await.unwrap());
}

#[tokio::test]
async fn a_token_is_void_if_its_guard_is_dropped_before_detaching() {
    let (ours, theirs, _) = fixture();
    let guard = ours.mutex("a").detached().ttl(TTL).lock().await.unwrap();
    let token = guard.token().unwrap();
    drop(guard);
    drop(theirs.mutex("a").lock_within(TTL).await.unwrap());
    assert!(matches!(theirs.release_token(&token).await, Err(Error::Lost { .. })));
}

#[tokio::test]
async fn a_detachable_claim_has_no_local_handoff() {
    let store = Arc::new(RecordingStore::default());
    let locks = Locks::new(store.clone()).unwrap();
    let first = locks.mutex("a").detached().lock().await.unwrap();
    let owner = first.owner();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let mutex = locks.mutex("a").detached();
            tokio::spawn(async move { mutex.lock().await.unwrap().into_token().await.unwrap() })
        })
        .collect();
    wait_for_waiters(&locks, "a", 3).await;
    assert_eq!(*store.acquires.lock().unwrap(), [(false, 1); 4], "each with an entry of its own");
    first.release().await.unwrap();
    let mut owners = vec![owner];
    for waiting in waiting {
        let token = waiting.await.unwrap();
        assert!(!owners.contains(&token.owner()));
        owners.push(token.owner());
        locks.release_token(&token).await.unwrap();
    }
}
