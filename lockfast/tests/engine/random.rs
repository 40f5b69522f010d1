//! All ways to use a lock at once, at random, with futures dropped at any point: the guarantees hold.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use fastrand::Rng;
use lockfast::store::{Names, Query, Store};
use lockfast::{Clock, Guard, Locks, Memory};

use crate::cancelling::{Cut, cut_off};
use crate::slow::Slow;
use crate::steps::{secs, soon};

/// One client for each: how many polls a call to the store takes.
const POLLS: [usize; 3] = [0, 1, 3];
const TASKS: usize = 24;
const STEPS: usize = 60;
const NAMES: [&str; 2] = ["a", "b"];
/// How long the test goes on beginning new rounds.
const SPAN: Duration = secs(5);

/// The critical section of one name.
#[derive(Default)]
struct CriticalSection {
    inside: AtomicU64,
    /// The highest fence that was seen here.
    fence: AtomicU64,
}

impl CriticalSection {
    /// A holder whose lock is valid before and after was alone in between, and its fence is above all earlier ones.
    async fn visit(&self, guard: &Guard, stays: bool) {
        if guard.check().is_err() {
            return;
        }
        let fence = guard.fence().unwrap();
        let last = self.fence.fetch_max(fence, SeqCst);
        let before = self.inside.fetch_add(1, SeqCst);
        if stays {
            tokio::task::yield_now().await;
        }
        let after = self.inside.fetch_sub(1, SeqCst);
        if guard.check().is_ok() {
            assert!(last < fence, "fence {fence} after {last}");
            assert_eq!((before, after), (0, 1), "another holder is inside");
        }
    }
}

/// Where a future is dropped, if it gets that far.
fn cut(rng: &mut Rng) -> Cut {
    let polls = rng.usize(..10);
    if rng.bool() { Cut::AfterPoll(polls) } else { Cut::AtWake(polls) }
}

/// Asks for a lock in one of several ways, and sometimes stops asking.
async fn enter(locks: &Locks, name: &str, rng: &mut Rng) -> Option<Guard> {
    let mutex = locks.mutex(name);
    let mutex = match rng.u8(..8) {
        0 => mutex.hold_at_most(Duration::from_micros(200)),
        1 => mutex.local_handoff(false),
        _ => mutex,
    };
    let patience = Duration::from_micros(rng.u64(..3000));
    match rng.u8(..10) {
        0..=5 => Some(mutex.lock().await.unwrap()),
        6 | 7 => cut_off(pin!(mutex.lock()), cut(rng)).await.map(Result::unwrap),
        8 => mutex.lock_within(patience).await.ok(),
        _ => mutex.try_lock().await.unwrap(),
    }
}

/// Releases a lock in one of several ways, and sometimes does not wait for the end. A lost lock is released too.
async fn leave(guard: Guard, rng: &mut Rng) {
    match rng.u8(..3) {
        0 => drop(guard),
        1 => drop(guard.release().await),
        _ => drop(cut_off(pin!(guard.release()), cut(rng)).await),
    }
}

async fn round(seed: u64) {
    let store = Arc::new(Memory::new());
    let clients = POLLS.map(|polls| {
        let slow = Slow { store: Arc::clone(&store), polls };
        // So long that no lease ends in time to hide a claim that was never released.
        Locks::builder().ttl(secs(3600)).build(Arc::new(slow)).unwrap()
    });
    let sections: Arc<[CriticalSection; NAMES.len()]> = Arc::default();
    let mut rng = Rng::with_seed(seed);
    let task = |nth: usize| {
        let (locks, sections, mut rng) = (clients[nth % clients.len()].clone(), Arc::clone(&sections), rng.fork());
        tokio::spawn(async move {
            for _ in 0..STEPS {
                let name = rng.usize(..NAMES.len());
                let Some(guard) = enter(&locks, NAMES[name], &mut rng).await else { continue };
                sections[name].visit(&guard, rng.u8(..4) == 0).await;
                leave(guard, &mut rng).await;
            }
        })
    };
    for task in (0..TASKS).map(task).collect::<Vec<_>>() {
        soon(task).await.unwrap();
    }
    for locks in clients {
        let stats = locks.stats();
        assert_eq!((stats.held, stats.waiting), (0, 0), "{stats:?}");
        assert_eq!(stats.acquired, stats.released + stats.lost, "{stats:?}");
        locks.shutdown(secs(10)).await.unwrap();
    }
    let everything = Query { names: Names::Beginning(String::new()), after: None, limit: 10, entries: usize::MAX };
    let left = store.inspect(&everything).await.unwrap().resources;
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_use_keeps_the_promises() {
    let clock = Clock::boot();
    let end = clock.now() + SPAN;
    let given = std::env::var("LOCKFAST_RANDOM_SEED").ok().and_then(|text| text.parse().ok());
    let mut seed = given.unwrap_or_else(|| fastrand::u64(..));
    while clock.now() < end {
        // Seen when the test fails. Threads run as they like, so the same seed makes the same choices, not the same history.
        eprintln!("LOCKFAST_RANDOM_SEED={seed}");
        round(seed).await;
        seed = seed.wrapping_add(1);
    }
}
