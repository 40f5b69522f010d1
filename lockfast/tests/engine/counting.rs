//! The in-process store, with counts of its calls.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::stream::BoxStream;
use lockfast::store::{Admission, Busy, Change, Lease, Leaving, Page, Query, Report, Scope, Standing, Store};
use lockfast::store::{Claim, Moment};
use lockfast::{Clock, Guarantees, Locks, ManualClock, Memory, Result};
use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct Counting {
    memory: Memory,
    clock: Clock,
    /// How many leases each renewal had.
    pub(crate) renewals: watch::Sender<Vec<usize>>,
    /// How many claims each release had.
    pub(crate) releases: Mutex<Vec<usize>>,
    pub(crate) reports: watch::Sender<Vec<(Moment, Report)>>,
}

impl Counting {
    pub(crate) fn new() -> (Arc<Self>, Locks, ManualClock) {
        let manual_clock = ManualClock::new();
        let store = Arc::new(Self {
            memory: Memory::with_clock(manual_clock.clock()),
            clock: manual_clock.clock(),
            renewals: watch::Sender::default(),
            releases: Mutex::default(),
            reports: watch::Sender::default(),
        });
        let locks = Locks::builder().clock(manual_clock.clock()).build(store.clone()).unwrap();
        (store, locks, manual_clock)
    }
}

#[async_trait]
impl Store for Counting {
    fn guarantees(&self) -> Guarantees {
        self.memory.guarantees()
    }

    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission> {
        self.memory.acquire(claim, busy).await
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        let standings = self.memory.renew(leases).await;
        self.renewals.send_modify(|renewals| renewals.push(leases.len()));
        standings
    }

    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        self.releases.lock().unwrap().push(leaving.len());
        self.memory.release(leaving).await
    }

    async fn inspect(&self, query: &Query) -> Result<Page> {
        self.memory.inspect(query).await
    }

    async fn record(&self, report: &Report) -> Result<()> {
        self.reports.send_modify(|reports| reports.push((self.clock.now(), report.clone())));
        self.memory.record(report).await
    }

    fn watch(&self, scope: Scope) -> BoxStream<'static, Change> {
        self.memory.watch(scope)
    }
}
