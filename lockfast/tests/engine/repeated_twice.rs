//! Requests that are repeated, and whose claims are lost, withdrawn or closed meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt};
use lockfast::store::Claim;
use lockfast::store::{Admission, Busy, Change, Lease, Leaving, Page, Query, Report, Scope, Standing, Store, Why};
use lockfast::{Error, Guarantees, Locks, Memory, Result};

use crate::flaky::{Flaky, Loss};
use crate::steps::{millis, secs, soon};

/// Forgets the claim (as a store that lost its data) before the first release runs, and loses answers as the test says.
#[derive(Debug)]
struct Forgetful {
    memory: Memory,
    lose_acquire: AtomicBool,
    lose_release: AtomicBool,
    /// Break softly instead of forgetting.
    breaks: bool,
}

#[async_trait]
impl Store for Forgetful {
    fn guarantees(&self) -> Guarantees {
        self.memory.guarantees()
    }
    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission> {
        if self.lose_acquire.swap(false, Ordering::SeqCst) {
            return Err(Error::unavailable("testing", "eof"));
        }
        self.memory.acquire(claim, busy).await
    }
    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        self.memory.renew(leases).await
    }
    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        if self.lose_release.swap(false, Ordering::SeqCst) {
            let (Leaving::Done(claim) | Leaving::Unknown(claim)) = &leaving[0] else { panic!("{leaving:?}") };
            if self.breaks {
                let name = claim.demands[0].name.clone();
                let page = self
                    .memory
                    .inspect(&Query {
                        names: lockfast::store::Names::One(name.clone()),
                        after: None,
                        limit: 1,
                        entries: 9,
                    })
                    .await?;
                let ticket = page.resources[0].queue[0].tickets.first;
                self.memory.release(&[Leaving::Break { name, ticket, at_once: false }]).await?;
            } else {
                // FLUSHALL, failover, eviction: the claim is not there any more, and leaves no trace.
                self.memory.release(&[Leaving::Done(claim.clone())]).await?;
            }
            let first = self.memory.release(leaving).await?;
            assert!(matches!(first[0], Standing::Gone(Why::Unknown | Why::Broken)), "{first:?}");
            return Err(Error::unavailable("testing", "eof"));
        }
        self.memory.release(leaving).await
    }
    async fn inspect(&self, query: &Query) -> Result<Page> {
        self.memory.inspect(query).await
    }
    async fn record(&self, report: &Report) -> Result<()> {
        self.memory.record(report).await
    }
    fn watch(&self, _: Scope) -> BoxStream<'static, Change> {
        futures::stream::pending().boxed()
    }
}

#[tokio::test]
async fn releasing_a_lost_lock_of_a_repeated_acquire_is_an_error() {
    for breaks in [false, true] {
        for unsure in [false, true] {
            let store = Arc::new(Forgetful {
                memory: Memory::new(),
                lose_acquire: AtomicBool::new(unsure),
                lose_release: AtomicBool::new(true),
                breaks,
            });
            let locks = Locks::builder().build(store).unwrap();
            let guard = locks.mutex("a").try_lock().await.unwrap().unwrap();
            let released = guard.release().await;
            assert!(released.is_err(), "breaks {breaks}, unsure {unsure}: success, but the lock was lost");
        }
    }
}

#[tokio::test]
async fn releasing_a_lost_token_of_a_repeated_acquire_is_an_error() {
    let store = Arc::new(Forgetful {
        memory: Memory::new(),
        lose_acquire: AtomicBool::new(true),
        lose_release: AtomicBool::new(false),
        breaks: false,
    });
    let locks = Locks::builder().build(store.clone()).unwrap();
    let token = locks.mutex("a").detached().try_lock().await.unwrap().unwrap().into_token().await.unwrap();
    store.lose_release.store(true, Ordering::SeqCst);
    assert!(locks.release_token(&token).await.is_err(), "success, but the token's lock was lost");
}

#[tokio::test]
async fn a_try_that_a_shutdown_ends_fails_as_closed() {
    let (store, locks, _hand) = Flaky::new();
    let mutex = locks.mutex("a");
    store.lose(&[Loss::Answer, Loss::Request]);
    let caller = tokio::spawn(async move { mutex.try_lock().await.map(drop) });
    let granted = async {
        while store.queue("a").await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    soon(granted).await;
    locks.shutdown(secs(5)).await.unwrap();
    let tried = soon(caller).await.unwrap();
    assert!(matches!(tried, Err(Error::Closed(_))), "{tried:?}");
}

#[tokio::test]
async fn a_pause_between_repeats_is_no_unpolled_future() {
    let tries = (0..20).map(|_| async {
        let store = Arc::new(Timed { memory: Memory::new(), calls: Default::default() });
        let locks = Locks::builder().build(store).unwrap();
        locks.mutex("a").ttl(millis(1000)).try_lock().await.map(|guard| guard.is_some())
    });
    for tried in futures::future::join_all(tries).await {
        assert!(tried.unwrap());
    }
}

/// Loses the answers to the first four acquires, in real time.
#[derive(Debug)]
struct Timed {
    memory: Memory,
    calls: std::sync::atomic::AtomicUsize,
}

#[async_trait]
impl Store for Timed {
    fn guarantees(&self) -> Guarantees {
        self.memory.guarantees()
    }
    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission> {
        let answer = self.memory.acquire(claim, busy).await;
        if self.calls.fetch_add(1, Ordering::SeqCst) < 4 {
            return Err(Error::unavailable("testing", "eof"));
        }
        answer
    }
    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        self.memory.renew(leases).await
    }
    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        self.memory.release(leaving).await
    }
    async fn inspect(&self, query: &Query) -> Result<Page> {
        self.memory.inspect(query).await
    }
    async fn record(&self, report: &Report) -> Result<()> {
        self.memory.record(report).await
    }
    fn watch(&self, scope: Scope) -> BoxStream<'static, Change> {
        self.memory.watch(scope)
    }
}
