//! A store with one answer to every call, which notes when each name was asked for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt};
use lockfast::store::{
    Admission, Busy, BusyWith, Change, Lease, Leaving, Page, Query, Report, Scope, Standing, Store, Why,
};
use lockfast::store::{Claim, Moment, Name, Ticket};
use lockfast::{Clock, Error, Guarantees, Locks, ManualClock, Result};
use tokio::sync::mpsc;

/// The fault of a store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// Every call fails.
    Fails,
    /// Acquires are queued, and every other call fails.
    FailsOnceQueued,
    /// Every claim is gone.
    Forgets,
    /// Acquires are queued, and every renewal finds its claim gone.
    ForgetsOnceQueued,
    /// The first acquire of a name is queued, then its claim is gone, and later acquires fail.
    ForgetsThenFails,
    /// Every answer asks for a recheck at once.
    Hurries,
    /// None, but every lock is held by another claim.
    Refuses,
}

#[derive(Debug)]
pub(crate) struct Stub {
    fault: Fault,
    clock: Clock,
    asked: Mutex<BTreeMap<Name, Vec<Moment>>>,
    pushes: Mutex<Option<mpsc::Sender<Change>>>,
}

impl Stub {
    pub(crate) fn new(fault: Fault) -> (Arc<Self>, Locks, ManualClock) {
        let manual_clock = ManualClock::new();
        let stub = Self { fault, clock: manual_clock.clock(), asked: Mutex::default(), pushes: Mutex::default() };
        let stub = Arc::new(stub);
        let locks = Locks::builder().clock(manual_clock.clock()).prefix("").build(stub.clone()).unwrap();
        (stub, locks, manual_clock)
    }

    fn asked(&self, claim: &Claim) {
        self.asked.lock().unwrap().entry(claim.demands[0].name.clone()).or_default().push(self.clock.now());
    }

    /// The moments at which each name was requested, by an acquire or a renewal.
    pub(crate) fn times(&self) -> BTreeMap<Name, Vec<Moment>> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) async fn push(&self, change: Change) {
        let pushes = self.pushes.lock().unwrap().clone().expect("the client watches");
        pushes.send(change).await.expect("the keeper listens");
    }

    /// Waits until the keeper has done everything that is due now. The stream has room for one push, and the keeper takes one push
    /// per round, after all other work: once a few pushes were taken, a whole round is over.
    pub(crate) async fn wait_until_settled(&self) {
        for _ in 0..4 {
            self.push(Change::Resource(Name::new("nothing").unwrap())).await;
            tokio::task::yield_now().await;
        }
    }

    fn trouble<T>(&self) -> Result<T> {
        Err(Error::unavailable("testing", "the store is on fire"))
    }
}

#[async_trait]
impl Store for Stub {
    fn guarantees(&self) -> Guarantees {
        Guarantees::in_process()
    }

    async fn acquire(&self, claim: &Arc<Claim>, _busy: Busy) -> Result<Admission> {
        let is_first = !self.times().contains_key(&claim.demands[0].name);
        self.asked(claim);
        let recheck_in = if self.fault == Fault::Hurries { Duration::ZERO } else { Duration::from_secs(3600) };
        match self.fault {
            Fault::Fails => self.trouble(),
            Fault::ForgetsThenFails if !is_first => self.trouble(),
            Fault::Forgets => Ok(Admission::Gone(Why::Unknown)),
            Fault::Refuses => Ok(Admission::Refused(BusyWith::default())),
            Fault::ForgetsOnceQueued | Fault::ForgetsThenFails => {
                Ok(Admission::Queued { ticket: Ticket(7), position: 1, recheck_in: Duration::ZERO })
            }
            Fault::FailsOnceQueued | Fault::Hurries => {
                Ok(Admission::Queued { ticket: Ticket(7), position: 1, recheck_in })
            }
        }
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        leases.iter().for_each(|lease| self.asked(&lease.claim));
        let standing = match self.fault {
            Fault::Fails | Fault::FailsOnceQueued => return self.trouble(),
            Fault::Forgets | Fault::ForgetsOnceQueued | Fault::ForgetsThenFails | Fault::Refuses => {
                Standing::Gone(Why::Unknown)
            }
            Fault::Hurries => Standing::Waiting { ticket: Ticket(7), recheck_in: Duration::ZERO },
        };
        Ok(vec![standing; leases.len()])
    }

    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        Ok(vec![Standing::Gone(Why::Left); leaving.len()])
    }

    async fn inspect(&self, _query: &Query) -> Result<Page> {
        self.trouble()
    }

    async fn record(&self, _report: &Report) -> Result<()> {
        Ok(())
    }

    fn watch(&self, _scope: Scope) -> BoxStream<'static, Change> {
        let (push, pushed) = mpsc::channel(1);
        *self.pushes.lock().unwrap() = Some(push);
        futures::stream::unfold(pushed, |mut pushed| async move { Some((pushed.recv().await?, pushed)) }).boxed()
    }
}
