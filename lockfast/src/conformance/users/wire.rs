//! The way from one user to the store: it counts what is asked and remembers the names, and it can be cut.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::Notify;

use crate::claim::Claim;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::store::{Admission, Busy, Change, Guarantees, Lease, Leaving, Page, Query, Report, Scope, Standing, Store};

#[derive(Debug)]
pub(super) struct Wire {
    store: Arc<dyn Store>,
    is_cut: AtomicBool,
    cut: Arc<Notify>,
    questions: AtomicUsize,
    names: Mutex<BTreeSet<Name>>,
}

impl Wire {
    pub(super) fn to(store: Arc<dyn Store>) -> Self {
        let (is_cut, cut, questions, names) = Default::default();
        Self { store, is_cut, cut, questions, names }
    }

    /// Nothing gets through any more, in either direction.
    pub(super) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        self.cut.notify_waiters();
    }

    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }

    /// How often the user's client asked where it stands.
    pub(super) fn questions(&self) -> usize {
        self.questions.load(Ordering::SeqCst)
    }

    /// What the user's client ever asked for.
    pub(super) fn names(&self) -> BTreeSet<Name> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn passes(&self, doing: &str) -> Result<()> {
        match self.is_cut() {
            true => Err(Error::unavailable(doing, "the wire is cut")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Store for Wire {
    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission> {
        self.passes("acquiring")?;
        self.questions.fetch_add(1, Ordering::SeqCst);
        let names = claim.demands.iter().map(|demand| demand.name.clone());
        self.names.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
        self.store.acquire(claim, busy).await
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        self.passes("renewing")?;
        self.questions.fetch_add(1, Ordering::SeqCst);
        self.store.renew(leases).await
    }

    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        self.passes("releasing")?;
        self.store.release(leaving).await
    }

    async fn inspect(&self, query: &Query) -> Result<Page> {
        self.passes("inspecting")?;
        self.store.inspect(query).await
    }

    async fn record(&self, report: &Report) -> Result<()> {
        self.passes("recording")?;
        self.store.record(report).await
    }

    fn watch(&self, scope: Scope) -> BoxStream<'static, Change> {
        let cut = Arc::clone(&self.cut).notified_owned();
        if self.is_cut() {
            return futures::stream::pending().boxed();
        }
        // The store's own stream is dropped with the cut, as a connection is when its process dies; the client hears nothing.
        self.store.watch(scope).take_until(cut).chain(futures::stream::pending()).boxed()
    }
}
