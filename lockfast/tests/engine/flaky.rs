//! A store that loses requests before they run, or answers after they ran, as the test says. It notes every request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::stream::BoxStream;
use lockfast::store::{
    Admission, Busy, Change, Entry, Lease, Leaving, Names, Page, Query, Report, Scope, Standing, Store,
};
use lockfast::store::{Claim, Name};
use lockfast::{Error, Guarantees, Locks, ManualClock, Memory, Result};

/// The part of a call that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The request, which does not run.
    Request,
    /// The answer to a request that has run.
    Answer,
}

pub(crate) const LOSSES: [Loss; 2] = [Loss::Request, Loss::Answer];

#[derive(Debug)]
pub(crate) struct Flaky {
    memory: Memory,
    losses: Mutex<VecDeque<Loss>>,
    requests: Mutex<Vec<String>>,
}

impl Flaky {
    pub(crate) fn new() -> (Arc<Self>, Locks, ManualClock) {
        let manual_clock = ManualClock::new();
        let memory = Memory::with_clock(manual_clock.clock());
        let store = Arc::new(Self { memory, losses: Mutex::default(), requests: Mutex::default() });
        let locks = Locks::builder().clock(manual_clock.clock()).local_handoff(false).build(store.clone()).unwrap();
        (store, locks, manual_clock)
    }

    /// From now on these are lost, one for each request; the list of requests begins anew.
    pub(crate) fn lose(&self, losses: &[Loss]) {
        self.losses.lock().unwrap().extend(losses);
        self.requests.lock().unwrap().clear();
    }

    /// The requests since then: the verb, and the owner of each claim.
    pub(crate) fn requests(&self) -> Vec<String> {
        assert!(self.losses.lock().unwrap().is_empty(), "all losses were used up");
        self.requests.lock().unwrap().clone()
    }

    /// The queue of a name.
    pub(crate) async fn queue(&self, name: &str) -> Vec<Entry> {
        let names = Names::One(Name::prefixed("lock:", name).unwrap());
        let page = self.memory.inspect(&Query { names, after: None, limit: 1, entries: usize::MAX }).await.unwrap();
        page.resources.into_iter().next().map_or_else(Vec::new, |resource| resource.queue)
    }

    async fn run<T>(&self, request: String, verb: impl Future<Output = Result<T>>) -> Result<T> {
        self.requests.lock().unwrap().push(request);
        let loss = self.losses.lock().unwrap().pop_front();
        let lost = || Err(Error::unavailable("testing", "unexpected end of file"));
        match loss {
            Some(Loss::Request) => lost(),
            Some(Loss::Answer) => verb.await.and_then(|_| lost()),
            None => verb.await,
        }
    }
}

fn owners<'a>(claims: impl Iterator<Item = &'a Arc<Claim>>) -> String {
    claims.map(|claim| format!(" {}", claim.id.hash())).collect()
}

#[async_trait]
impl Store for Flaky {
    fn guarantees(&self) -> Guarantees {
        self.memory.guarantees()
    }

    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission> {
        self.run(format!("acquire{}", owners([claim].into_iter())), self.memory.acquire(claim, busy)).await
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        let owners = owners(leases.iter().map(|lease| &lease.claim));
        self.run(format!("renew{owners}"), self.memory.renew(leases)).await
    }

    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        let describe = |leaving: &Leaving| match leaving {
            Leaving::Done(claim) => format!(" done {}", claim.id.hash()),
            Leaving::Unknown(claim) => format!(" unknown {}", claim.id.hash()),
            Leaving::Linger(claim, _) => format!(" linger {}", claim.id.hash()),
            Leaving::Seal { claim, .. } => format!(" seal {}", claim.id.hash()),
            other => format!(" {other:?}"),
        };
        let claims: String = leaving.iter().map(describe).collect();
        self.run(format!("release{claims}"), self.memory.release(leaving)).await
    }

    async fn inspect(&self, query: &Query) -> Result<Page> {
        self.run("inspect".to_owned(), self.memory.inspect(query)).await
    }

    async fn record(&self, report: &Report) -> Result<()> {
        self.memory.record(report).await
    }

    fn watch(&self, scope: Scope) -> BoxStream<'static, Change> {
        self.memory.watch(scope)
    }
}
