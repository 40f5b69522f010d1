//! A store that pushes nothing, and says in the answer to a release who holds now.

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
    /// The next release is done, and its answer gets lost.
    loses_answers: AtomicBool,
    /// The next release is not done before the second, and its answer gets lost.
    is_late: AtomicBool,
    late: Mutex<Option<Leaving>>,
    lost_one: Notify,
    /// The next acquire is done, and its answer comes when it is let go.
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
            // Whoever was to ask because of the lost answer has asked by now.
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

/// One that holds, and one behind it, who would ask by itself in ten seconds.
async fn one_behind_another() -> (Arc<Answering>, Guard, JoinHandle<Result<Guard>>) {
    let (store, locks) = answering();
    let guard = locks.mutex("a").lock().await.unwrap();
    let mutex = locks.mutex("a");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    while locks.stats().waiting == 0 {
        tokio::task::yield_now().await;
    }
    (store, guard, waiting)
}

/// Its release reaches the store, and is dropped before the answer comes.
async fn given_back_unheard(store: &Answering, guard: Guard) {
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
async fn the_answer_to_a_release_says_who_of_the_same_client_holds_now() {
    let (_store, guard, waiting) = one_behind_another().await;
    guard.release().await.unwrap();
    enters_soon(waiting).await;
}

#[tokio::test]
async fn a_guard_that_is_dropped_is_given_back_by_the_keeper_who_hears_it_too() {
    let (_store, guard, waiting) = one_behind_another().await;
    drop(guard);
    enters_soon(waiting).await;
}

#[tokio::test]
async fn who_waits_asks_when_an_answer_that_may_have_named_it_was_not_heard() {
    let (store, guard, waiting) = one_behind_another().await;
    store.loses_answers.store(true, Ordering::SeqCst);
    given_back_unheard(&store, guard).await;
    enters_soon(waiting).await;
}

#[tokio::test]
async fn who_is_still_asking_when_an_answer_that_may_have_named_it_was_not_heard_asks_again() {
    let (store, locks) = answering();
    let guard = locks.mutex("a").lock().await.unwrap();
    store.holds_answer.store(true, Ordering::SeqCst);
    let mutex = locks.mutex("a");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    store.asked.notified().await;
    store.loses_answers.store(true, Ordering::SeqCst);
    given_back_unheard(&store, guard).await;
    // The keeper tells the store by itself, after it has noticed that an answer was lost.
    while store.releases.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    store.let_go.notify_one();
    enters_soon(waiting).await;
}

#[tokio::test]
async fn who_waits_asks_again_when_a_release_ran_after_all_that_was_asked_because_of_it() {
    let (store, guard, waiting) = one_behind_another().await;
    store.is_late.store(true, Ordering::SeqCst);
    given_back_unheard(&store, guard).await;
    enters_soon(waiting).await;
}
