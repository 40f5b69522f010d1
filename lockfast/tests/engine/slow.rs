//! The in-process store, slowly: every verb takes several polls before it runs and several after, so that a caller can be
//! cancelled before its call has run, and before it has the answer.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use futures::stream::BoxStream;
use lockfast::store::Claim;
use lockfast::store::{Admission, Busy, Change, Lease, Leaving, Page, Query, Report, Scope, Standing, Store};
use lockfast::{Guarantees, Memory, Result};

#[derive(Debug)]
pub(crate) struct Slow {
    pub(crate) store: Arc<Memory>,
    /// How often each verb is pending, before it runs and again after.
    pub(crate) polls: usize,
}

impl Slow {
    async fn in_flight(&self) {
        let mut left = self.polls;
        poll_fn(|cx| match left {
            0 => Poll::Ready(()),
            _ => {
                left -= 1;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await;
    }

    async fn slowly<T>(&self, verb: impl Future<Output = T>) -> T {
        self.in_flight().await;
        let answer = verb.await;
        self.in_flight().await;
        answer
    }
}

#[async_trait]
impl Store for Slow {
    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission> {
        self.slowly(self.store.acquire(claim, busy)).await
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        self.slowly(self.store.renew(leases)).await
    }

    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        self.slowly(self.store.release(leaving)).await
    }

    async fn inspect(&self, query: &Query) -> Result<Page> {
        self.slowly(self.store.inspect(query)).await
    }

    async fn record(&self, report: &Report) -> Result<()> {
        self.slowly(self.store.record(report)).await
    }

    fn watch(&self, scope: Scope) -> BoxStream<'static, Change> {
        self.store.watch(scope)
    }
}
