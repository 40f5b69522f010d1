//! A store that does nothing by itself: every call arrives at the test, which answers it, late or never, and sends pushes.
//! So a test states an interleaving step by step and does not depend on timing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt};
use lockfast::store::{Admission, Busy, Change, Lease, Leaving, Page, Query, Report, Scope, Standing, Store, Why};
use lockfast::store::{Claim, Name, Ticket, Tickets};
use lockfast::{Error, Guarantees, Locks, ManualClock, Result};
use tokio::sync::{mpsc, oneshot};

/// One call that the client made and that waits for the test's answer.
#[derive(Debug)]
pub(crate) enum Call {
    Acquire { claim: Arc<Claim>, busy: Busy, answer: Answer<Admission> },
    Renew { leases: Vec<Lease>, answer: Answer<Vec<Standing>> },
    Release { leaving: Vec<Leaving>, answer: Answer<Vec<Standing>> },
}

#[derive(Debug)]
pub(crate) struct Answer<T>(oneshot::Sender<Reply<T>>);

/// `None` is a panic.
type Reply<T> = Option<Result<T>>;

impl<T> Answer<T> {
    pub(crate) fn give(self, value: T) {
        // A caller that was cancelled does not receive it; that is often the point of a test.
        let _ = self.0.send(Some(Ok(value)));
    }

    /// The reply got lost, or never came: the outcome is unknown.
    pub(crate) fn lose(self) {
        self.fail(Error::unavailable("testing", "the reply was lost"));
    }

    pub(crate) fn fail(self, error: Error) {
        let _ = self.0.send(Some(Err(error)));
    }

    /// The store's own code panics, in the middle of the call.
    pub(crate) fn panic(self) {
        let _ = self.0.send(None);
    }
}

#[derive(Debug)]
struct Script {
    calls: mpsc::UnboundedSender<Call>,
    pushes: Arc<Mutex<Option<mpsc::UnboundedSender<Change>>>>,
    watched: mpsc::UnboundedSender<()>,
    push_counts: Arc<PushCounts>,
    reports: Arc<AtomicU64>,
}

/// How many pushes the keeper has received, and how many it had received when it last found the stream empty.
#[derive(Debug, Default)]
struct PushCounts {
    received: AtomicU64,
    drained: AtomicU64,
}

impl Script {
    async fn ask<T>(&self, call: impl FnOnce(Answer<T>) -> Call) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let _ = self.calls.send(call(Answer(answer)));
        // A test that drops the call never answers it.
        match answered.await {
            Ok(reply) => reply.expect("the test wants a panic here"),
            Err(_) => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Store for Script {
    fn guarantees(&self) -> Guarantees {
        Guarantees::in_process()
    }

    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission> {
        let claim = Arc::clone(claim);
        self.ask(|answer| Call::Acquire { claim, busy, answer }).await
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        let leases = leases.to_vec();
        self.ask(|answer| Call::Renew { leases, answer }).await
    }

    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        let leaving = leaving.to_vec();
        self.ask(|answer| Call::Release { leaving, answer }).await
    }

    async fn inspect(&self, _query: &Query) -> Result<Page> {
        // A lookup of the holder is never answered.
        std::future::pending().await
    }

    async fn record(&self, _report: &Report) -> Result<()> {
        self.reports.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn watch(&self, _scope: Scope) -> BoxStream<'static, Change> {
        let (push, mut pushed) = mpsc::unbounded_channel();
        *self.pushes.lock().unwrap() = Some(push);
        let _ = self.watched.send(());
        let counts = Arc::clone(&self.push_counts);
        futures::stream::poll_fn(move |cx| {
            let change = pushed.poll_recv(cx);
            match &change {
                Poll::Ready(_) => drop(counts.received.fetch_add(1, Ordering::SeqCst)),
                Poll::Pending => counts.drained.store(counts.received.load(Ordering::SeqCst), Ordering::SeqCst),
            }
            change
        })
        .boxed()
    }
}

/// The test's end of the script.
#[derive(Debug)]
pub(crate) struct Director {
    pub(crate) locks: Locks,
    pub(crate) manual_clock: ManualClock,
    calls: mpsc::UnboundedReceiver<Call>,
    pushes: Arc<Mutex<Option<mpsc::UnboundedSender<Change>>>>,
    watched: mpsc::UnboundedReceiver<()>,
    push_counts: Arc<PushCounts>,
    reports: Arc<AtomicU64>,
}

/// How long a test waits for a call that must come; only a failing test waits that long.
const SOON: Duration = Duration::from_secs(10);

impl Director {
    /// A client of a scripted store, on a clock that the test moves.
    pub(crate) fn new() -> Self {
        let manual_clock = ManualClock::new();
        let (call, calls) = mpsc::unbounded_channel();
        let (watch, watched) = mpsc::unbounded_channel();
        let (pushes, push_counts) = (Arc::new(Mutex::new(None)), Arc::<PushCounts>::default());
        let reports = Arc::<AtomicU64>::default();
        let store = Script {
            calls: call,
            pushes: Arc::clone(&pushes),
            watched: watch,
            push_counts: Arc::clone(&push_counts),
            reports: Arc::clone(&reports),
        };
        let locks = Locks::builder().clock(manual_clock.clock()).build(Arc::new(store)).unwrap();
        Self { locks, manual_clock, calls, pushes, watched, push_counts, reports }
    }

    /// The next call, whatever it is.
    pub(crate) async fn call(&mut self) -> Call {
        tokio::time::timeout(SOON, self.calls.recv()).await.expect("the client asks the store").unwrap()
    }

    /// A call that has been made already, if any.
    pub(crate) fn call_now(&mut self) -> Option<Call> {
        self.calls.try_recv().ok()
    }

    pub(crate) async fn acquire(&mut self) -> (Arc<Claim>, Busy, Answer<Admission>) {
        match self.call().await {
            Call::Acquire { claim, busy, answer } => (claim, busy, answer),
            other => panic!("expected an acquire, got {other:?}"),
        }
    }

    pub(crate) async fn renew(&mut self) -> (Vec<Lease>, Answer<Vec<Standing>>) {
        match self.call().await {
            Call::Renew { leases, answer } => (leases, answer),
            other => panic!("expected a renewal, got {other:?}"),
        }
    }

    pub(crate) async fn release(&mut self) -> (Vec<Leaving>, Answer<Vec<Standing>>) {
        match self.call().await {
            Call::Release { leaving, answer } => (leaving, answer),
            other => panic!("expected a release, got {other:?}"),
        }
    }

    /// Answers the next acquire with the lock, and returns its claim.
    pub(crate) async fn grant(&mut self, ticket: u64) -> Arc<Claim> {
        let (claim, _, answer) = self.acquire().await;
        answer.give(Admission::Held(Tickets::new(Ticket(ticket), claim.block)));
        claim
    }

    /// Answers the next acquire with an entry in the queue.
    pub(crate) async fn queue(&mut self, ticket: u64, recheck_in: Duration) -> Arc<Claim> {
        let (claim, _, answer) = self.acquire().await;
        answer.give(Admission::Queued { ticket: Ticket(ticket), position: 1, recheck_in });
        claim
    }

    /// Answers the next release: all its claims have left.
    pub(crate) async fn let_go(&mut self) -> Vec<Leaving> {
        let (leaving, answer) = self.release().await;
        answer.give(vec![Standing::Gone(Why::Left); leaving.len()]);
        leaving
    }

    pub(crate) fn push(&self, change: Change) {
        self.pushes.lock().unwrap().as_ref().expect("the client watches").send(change).expect("the keeper listens");
    }

    /// Whether the client has a keeper that listens for pushes.
    pub(crate) fn is_watched(&self) -> bool {
        self.pushes.lock().unwrap().as_ref().is_some_and(|pushes| !pushes.is_closed())
    }

    /// How many reports the client has made.
    pub(crate) fn reports(&self) -> u64 {
        self.reports.load(Ordering::SeqCst)
    }

    /// Waits until the keeper has nothing left to do and sleeps: before it sleeps, it looks for pushes last.
    pub(crate) async fn keeper_sleeps(&self) {
        let before = self.push_counts.received.load(Ordering::SeqCst);
        self.push(Change::Resource(Name::new("nothing").unwrap()));
        let sleeps = async {
            while self.push_counts.drained.load(Ordering::SeqCst) <= before {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, sleeps).await.expect("the keeper has nothing to do");
    }

    /// Ends the stream of pushes, and waits until the client has asked for a new one.
    pub(crate) async fn cut_pushes(&mut self) {
        while self.watched.try_recv().is_ok() {}
        drop(self.pushes.lock().unwrap().take());
        // The client waits a moment on its own clock before it asks again.
        loop {
            self.manual_clock.advance(Duration::from_millis(20));
            if tokio::time::timeout(Duration::from_millis(5), self.watched.recv()).await.is_ok() {
                return;
            }
        }
    }
}
