//! What users come for, in numbers: a thousand deliveries, a hundred dead leaders.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in what its tests share too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use futures::stream::{BoxStream, StreamExt};
use lockfast::store::{Admission, Busy, Change, Lease, Leaving, Names, Page, Query, Report, Scope, Standing, Store};
use lockfast::{Claim, Error, Guarantees, Leadership, Locks, ManualClock, Memory, Name, Outcome, Result};

/// A way to a store that can be cut, as the death of its client would.
#[derive(Debug)]
struct Wire {
    store: Arc<Memory>,
    is_cut: Arc<AtomicBool>,
}

impl Wire {
    fn check(&self) -> Result<()> {
        match self.is_cut.load(Ordering::SeqCst) {
            true => Err(Error::unavailable("testing", "the wire is cut")),
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
        self.check()?;
        self.store.acquire(claim, busy).await
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        self.check()?;
        self.store.renew(leases).await
    }

    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        self.check()?;
        self.store.release(leaving).await
    }

    async fn inspect(&self, query: &Query) -> Result<Page> {
        self.check()?;
        self.store.inspect(query).await
    }

    async fn record(&self, report: &Report) -> Result<()> {
        self.check()?;
        self.store.record(report).await
    }

    fn watch(&self, scope: Scope) -> BoxStream<'static, Change> {
        let is_cut = Arc::clone(&self.is_cut);
        self.store.watch(scope).filter(move |_| std::future::ready(!is_cut.load(Ordering::SeqCst))).boxed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_thousand_deliveries_one_runs_and_999_get_its_result() {
    let memory = Arc::new(Memory::new());
    let servers = [(); 2].map(|()| Locks::new(Arc::clone(&memory) as Arc<dyn Store>).unwrap());
    let ran = Arc::new(AtomicU32::new(0));
    let tasks = (0..20).map(|task| {
        let (locks, ran) = (servers[task % 2].clone(), Arc::clone(&ran));
        tokio::spawn(async move {
            let deliver = async || {
                let webhook = locks.once("webhook:42");
                let work = webhook.run(async |_| {
                    let nth = ran.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    Ok::<_, Error>(format!("handled by run {nth}"))
                });
                work.await.unwrap()
            };
            join_all((0..50).map(|_| deliver())).await
        })
    });
    let outcomes = join_all(tasks).await.into_iter().flat_map(std::result::Result::unwrap);
    let (here, before): (Vec<_>, Vec<_>) = outcomes.partition(|outcome| matches!(outcome, Outcome::Ran(_)));
    assert_eq!((ran.load(Ordering::SeqCst), here.len(), before.len()), (1, 1, 999));
    assert!(before.iter().all(|outcome| *outcome == Outcome::AlreadyDone("handled by run 0".into())));
}

const TTL: Duration = Duration::from_secs(3);

/// One server of those that would lead.
struct Server {
    locks: Locks,
    is_cut: Arc<AtomicBool>,
}

impl Server {
    fn start(store: &Arc<Memory>, hand: &ManualClock) -> Self {
        let is_cut = Arc::new(AtomicBool::new(false));
        let wire = Wire { store: Arc::clone(store), is_cut: Arc::clone(&is_cut) };
        Self { locks: Locks::builder().ttl(TTL).clock(hand.clock()).build(Arc::new(wire)).unwrap(), is_cut }
    }
}

/// Waits, in real time, until something about the line is true.
async fn until(store: &Memory, is_true: impl Fn(&Page) -> bool) {
    let query = Query { names: Names::One(Name::new("lock:scheduler").unwrap()), after: None, limit: 1 };
    let look = async {
        while !is_true(&store.inspect(&query).await.unwrap()) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), look).await.expect("the keepers do their work");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_dead_leaders_have_a_hundred_successors_in_time_and_never_two_lead() {
    let hand = ManualClock::new();
    let store = Arc::new(Memory::with_clock(hand.clock()));
    let mut leader = Server::start(&store, &hand);
    let mut leadership: Leadership = leader.locks.election("scheduler").campaign().await.unwrap();
    for _ in 0..100 {
        let next = Server::start(&store, &hand);
        let election = next.locks.election("scheduler");
        let campaign = tokio::spawn(async move { election.campaign().await });
        until(&store, |page| page.resources[0].line.len() == 2).await;

        leader.is_cut.store(true, Ordering::SeqCst);
        let died = hand.clock().now();
        // The candidate's place is renewed on the way, as long as somebody stands before it.
        for _ in 0..5 {
            hand.advance(TTL / 5);
            let candidate_lives = |page: &Page| {
                let candidate = page.resources.iter().flat_map(|resource| &resource.line).next_back();
                candidate.is_some_and(|seat| seat.holds || seat.expires_in > TTL / 2)
            };
            until(&store, candidate_lives).await;
        }
        // Whatever the last renewal before the death was, the lease has ended now.
        hand.advance(Duration::from_millis(50));
        let successor = tokio::time::timeout(Duration::from_secs(20), campaign).await.expect("it takes over");
        let successor = successor.unwrap().unwrap();
        assert!(hand.clock().now().since(died) <= TTL + Duration::from_millis(100));
        assert!(leadership.check().is_err(), "two lead");
        successor.check().unwrap();
        assert!(successor.fence().unwrap() > leadership.fence().unwrap());
        (leader, leadership) = (next, successor);
    }
}
