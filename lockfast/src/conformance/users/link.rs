//! The link from one user to the store: it counts calls, remembers names, and can be cut.

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

/// A store around the store under test, for one user alone.
#[derive(Debug)]
pub(super) struct Link {
    store: Arc<dyn Store>,
    is_cut: AtomicBool,
    /// Wakes the subscriptions when the link is cut.
    on_cut: Arc<Notify>,
    /// How many `acquire` and `renew` calls were made.
    calls: AtomicUsize,
    /// All names that were acquired.
    names: Mutex<BTreeSet<Name>>,
}

impl Link {
    pub(super) fn to(store: Arc<dyn Store>) -> Self {
        let (is_cut, on_cut, calls, names) = Default::default();
        Self { store, is_cut, on_cut, calls, names }
    }

    /// From now on no call and no push gets through, in either direction.
    pub(super) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        self.on_cut.notify_waiters();
    }

    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }

    /// How many `acquire` and `renew` calls the user's client has made.
    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// All names the user's client has acquired.
    pub(super) fn names(&self) -> BTreeSet<Name> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An error if the link is cut.
    fn check_connected(&self, doing: &str) -> Result<()> {
        match self.is_cut() {
            true => Err(Error::unavailable(doing, "the link is cut")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Store for Link {
    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission> {
        self.check_connected("acquiring")?;
        self.calls.fetch_add(1, Ordering::SeqCst);
        let names = claim.demands.iter().map(|demand| demand.name.clone());
        self.names.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
        self.store.acquire(claim, busy).await
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        self.check_connected("renewing")?;
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.store.renew(leases).await
    }

    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        self.check_connected("releasing")?;
        self.store.release(leaving).await
    }

    async fn inspect(&self, query: &Query) -> Result<Page> {
        self.check_connected("inspecting")?;
        self.store.inspect(query).await
    }

    async fn record(&self, report: &Report) -> Result<()> {
        self.check_connected("recording")?;
        self.store.record(report).await
    }

    fn watch(&self, scope: Scope) -> BoxStream<'static, Change> {
        let cut = Arc::clone(&self.on_cut).notified_owned();
        if self.is_cut() {
            return futures::stream::pending().boxed();
        }
        // The store's stream is dropped with the cut, as a connection is when its process dies; the client receives no
        // end.
        self.store.watch(scope).take_until(cut).chain(futures::stream::pending()).boxed()
    }
}
