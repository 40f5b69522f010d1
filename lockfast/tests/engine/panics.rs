//! A store whose stream of pushes panics costs its users the pushes, and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt};
use lockfast::store::Claim;
use lockfast::store::{Admission, Busy, Change, Lease, Leaving, Page, Query, Report, Scope, Standing, Store};
use lockfast::{Error, Guarantees, Locks, LostWhy, ManualClock, Memory, Result};

use crate::fixture::{GRAIN, soon, until};
use crate::steps::{millis, secs, until_waiting};

/// Where the panic is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Panics {
    /// In `watch`, except for the first call, whose stream ends at once: a store whose first `watch` panics cannot be connected to.
    Watching,
    /// In the stream itself.
    Streaming,
}

/// The in-process store, without pushes.
#[derive(Debug)]
struct Shaky {
    memory: Memory,
    panics: Panics,
    watched: AtomicUsize,
    renewed: AtomicUsize,
}

impl Shaky {
    /// A client that has met several panics already.
    async fn new(panics: Panics) -> (Arc<Self>, Locks, ManualClock) {
        let manual_clock = ManualClock::new();
        let memory = Memory::with_clock(manual_clock.clock());
        let store = Arc::new(Self { memory, panics, watched: AtomicUsize::new(0), renewed: AtomicUsize::new(0) });
        let locks = Locks::builder().clock(manual_clock.clock()).build(store.clone()).unwrap();
        until(|| {
            manual_clock.advance(millis(1));
            store.watched.load(Ordering::SeqCst) > 3
        })
        .await;
        (store, locks, manual_clock)
    }
}

#[async_trait]
impl Store for Shaky {
    fn guarantees(&self) -> Guarantees {
        self.memory.guarantees()
    }

    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission> {
        self.memory.acquire(claim, busy).await
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        let standings = self.memory.renew(leases).await;
        self.renewed.fetch_add(1, Ordering::SeqCst);
        standings
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

    fn watch(&self, _scope: Scope) -> BoxStream<'static, Change> {
        let before = self.watched.fetch_add(1, Ordering::SeqCst);
        match self.panics {
            Panics::Watching if before == 0 => stream::empty().boxed(),
            Panics::Watching => panic!("the test wants a panic here"),
            Panics::Streaming => stream::poll_fn(|_| panic!("the test wants a panic here")).boxed(),
        }
    }
}

#[tokio::test]
async fn a_panic_in_the_stream_of_pushes_stops_no_renewals() {
    for panics in [Panics::Watching, Panics::Streaming] {
        let (store, locks, manual_clock) = Shaky::new(panics).await;
        let guard = locks.mutex("a").ttl(secs(30)).lock().await.unwrap();
        for _ in 0..6 {
            let renewed = store.renewed.load(Ordering::SeqCst);
            manual_clock.advance(secs(10));
            until(|| store.renewed.load(Ordering::SeqCst) > renewed).await;
        }
        guard.check().unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_panic_in_the_stream_of_pushes_delays_no_deadline() {
    for panics in [Panics::Watching, Panics::Streaming] {
        let (_, locks, manual_clock) = Shaky::new(panics).await;
        let capped = locks.mutex("a").hold_at_most(secs(1)).lock().await.unwrap();
        let _held = locks.mutex("b").lock().await.unwrap();
        let mutex = locks.mutex("b").local_handoff(false);
        let patient = tokio::spawn(async move { mutex.lock_within(secs(1)).await });
        until_waiting(&locks, 1).await;
        manual_clock.advance(secs(1) + GRAIN);
        assert_eq!(soon(capped.lost()).await, LostWhy::HeldAtMost);
        let gave_up = soon(patient).await.unwrap();
        assert!(matches!(gave_up, Err(Error::Busy { .. })), "{gave_up:?}");
    }
}
