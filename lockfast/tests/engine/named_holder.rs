//! A store without pushes that names the next holder in the answer to a release.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt};
use lockfast::store::Claim;
use lockfast::store::{
    Admission, Busy, Change, Lease, Leaving, Names, Page, Query, Report, Scope, Standing, Store, Why,
};
use lockfast::{Guarantees, Guard, Locks, Memory, Result};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

#[derive(Debug, Default)]
struct Answering {
    store: Memory,
    /// The next release runs, and its answer is lost.
    loses_answers: AtomicBool,
    /// The next release runs only when the second arrives, and its answer is lost.
    is_late: AtomicBool,
    late: Mutex<Option<Leaving>>,
    lost_one: Notify,
    /// The next acquire runs, and its answer waits for `let_go`.
    holds_answer: AtomicBool,
    let_go: Notify,
    asked: Notify,
    renewed: Notify,
    releases: AtomicUsize,
}

#[async_trait]
impl Store for Answering {
    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission> {
        let answer = self.store.acquire(claim, busy).await;
        if self.holds_answer.swap(false, Ordering::SeqCst) {
            self.asked.notify_one();
            self.let_go.notified().await;
        }
        answer
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        let answer = self.store.renew(leases).await;
        self.renewed.notify_one();
        answer
    }

    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        if self.is_late.swap(false, Ordering::SeqCst) {
            *self.late.lock().unwrap() = Some(leaving[0].clone());
            self.lost_one.notify_one();
            pending::<()>().await;
        }
        let late = self.late.lock().unwrap().take();
        if let Some(late) = late {
            // All waiters that ask because of the lost answer have asked by now.
            self.renewed.notified().await;
            self.store.release(&[late]).await?;
        }
        let mut standings = self.store.release(leaving).await?;
        self.releases.fetch_add(1, Ordering::SeqCst);
        if self.loses_answers.swap(false, Ordering::SeqCst) {
            self.lost_one.notify_one();
            pending::<()>().await;
        }
        for (standing, leaving) in standings.iter_mut().zip(leaving) {
            let Leaving::Done(claim) = leaving else { continue };
            let names = Names::One(claim.demands[0].name.clone());
            let page = self.store.inspect(&Query { names, after: None, limit: 1, entries: usize::MAX }).await?;
            let holder = page.resources.first().and_then(|resource| resource.holders().next());
            if let (Standing::Gone(Why::Left), Some(holder)) = (&standing, holder) {
                *standing = Standing::Gone(Why::PassedOn(holder.owner, holder.tickets.first));
            }
        }
        Ok(standings)
    }

    async fn inspect(&self, query: &Query) -> Result<Page> {
        self.store.inspect(query).await
    }

    async fn record(&self, report: &Report) -> Result<()> {
        self.store.record(report).await
    }

    fn watch(&self, _: Scope) -> BoxStream<'static, Change> {
        stream::pending().boxed()
    }
}

fn answering() -> (Arc<Answering>, Locks) {
    let store = Arc::new(Answering::default());
    let locks = Locks::builder().ttl(Duration::from_secs(30)).local_handoff(false).build(store.clone()).unwrap();
    (store, locks)
}

/// A holder, and a waiter behind it that would ask by itself in ten seconds.
async fn holder_and_waiter() -> (Arc<Answering>, Guard, JoinHandle<Result<Guard>>) {
    let (store, locks) = answering();
    let guard = locks.mutex("a").lock().await.unwrap();
    let mutex = locks.mutex("a");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    while locks.stats().waiting == 0 {
        tokio::task::yield_now().await;
    }
    (store, guard, waiting)
}

/// The release reaches the store, and its future is dropped before the answer comes.
async fn release_with_lost_reply(store: &Answering, guard: Guard) {
    tokio::select! {
        released = guard.release() => panic!("its answer is lost: {released:?}"),
        () = store.lost_one.notified() => {}
    }
}

async fn enters_soon(waiting: JoinHandle<Result<Guard>>) {
    let entered = tokio::time::timeout(Duration::from_secs(5), waiting).await;
    drop(entered.expect("it does not wait for its renewal").unwrap().unwrap());
}

#[tokio::test]
async fn the_answer_to_a_release_grants_to_a_waiter_of_this_client() {
    let (_store, guard, waiting) = holder_and_waiter().await;
    guard.release().await.unwrap();
    enters_soon(waiting).await;
}

#[tokio::test]
async fn the_answer_to_a_release_of_the_keeper_grants_too() {
    let (_store, guard, waiting) = holder_and_waiter().await;
    drop(guard);
    enters_soon(waiting).await;
}

#[tokio::test]
async fn a_waiter_asks_when_a_release_reply_was_lost() {
    let (store, guard, waiting) = holder_and_waiter().await;
    store.loses_answers.store(true, Ordering::SeqCst);
    release_with_lost_reply(&store, guard).await;
    enters_soon(waiting).await;
}

#[tokio::test]
async fn an_in_flight_acquire_asks_again_after_a_lost_release_reply() {
    let (store, locks) = answering();
    let guard = locks.mutex("a").lock().await.unwrap();
    store.holds_answer.store(true, Ordering::SeqCst);
    let mutex = locks.mutex("a");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    store.asked.notified().await;
    store.loses_answers.store(true, Ordering::SeqCst);
    release_with_lost_reply(&store, guard).await;
    // The keeper repeats the release after it has noticed that an answer was lost.
    while store.releases.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    store.let_go.notify_one();
    enters_soon(waiting).await;
}

#[tokio::test]
async fn a_waiter_asks_again_when_the_lost_release_ran_late() {
    let (store, guard, waiting) = holder_and_waiter().await;
    store.is_late.store(true, Ordering::SeqCst);
    release_with_lost_reply(&store, guard).await;
    enters_soon(waiting).await;
}
