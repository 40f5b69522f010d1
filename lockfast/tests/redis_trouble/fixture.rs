//! The fixture of these tests: the items of `fixtures/redis.rs`, and clients, many waiters of one name, and a primary with
//! its replica.

#[path = "../fixtures/redis.rs"]
mod shared;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast::store::Moment;
use lockfast::{Clock, Guard, Locks};
use tokio::task::JoinHandle;

pub(crate) use shared::{
    Admin, Monitor, PATIENCE, claim, claim_of_client, claim_with_demands, hold, millis, queue, secs, soon, until,
};

pub(crate) fn now() -> Moment {
    Clock::boot().now()
}

pub(crate) fn median(mut spans: Vec<Duration>) -> Duration {
    spans.sort_unstable();
    spans[spans.len() / 2]
}

/// A client whose tasks all join the queue in the store.
pub(crate) async fn connect(url: &str, ttl: Duration) -> Locks {
    Locks::builder().ttl(ttl).local_handoff(false).connect(url).await.unwrap()
}

/// The number of claims that wait for a name.
pub(crate) async fn count_waiters(locks: &Locks, name: &str) -> usize {
    let resource = locks.mutex(name).info().await.unwrap();
    resource.map_or(0, |resource| resource.waiters().count())
}

/// Tasks that wait for one name. A task that gets the lock records its number and its fence, and asserts that no other task
/// holds the lock.
pub(crate) struct Waiters {
    pub(crate) entered: Arc<Mutex<Vec<(usize, u64)>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Waiters {
    /// Starts `count` tasks, and returns when all of them are in the queue.
    pub(crate) async fn join(locks: &Locks, name: &str, count: usize) -> Self {
        let entered = Arc::new(Mutex::new(Vec::new()));
        let is_held = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for number in 0..count {
            let (entered, is_held) = (Arc::clone(&entered), Arc::clone(&is_held));
            let mutex = locks.mutex(name).label("number", number.to_string());
            let task = async move {
                let guard = mutex.lock().await.unwrap();
                assert!(!is_held.swap(true, Ordering::SeqCst), "two tasks hold the lock at once");
                entered.lock().unwrap().push((number, guard.fence().unwrap()));
                tokio::task::yield_now().await;
                is_held.store(false, Ordering::SeqCst);
                guard.release().await.unwrap();
            };
            tasks.push(tokio::spawn(task));
            // Up to ten tasks join one after the other, in the order of their numbers. More join in any order; see `queue_order`.
            if count <= 10 {
                until("one more waits", async || count_waiters(locks, name).await == number + 1).await;
            }
        }
        until("all wait", async || count_waiters(locks, name).await == count).await;
        Self { entered, tasks }
    }

    /// The numbers of the waiters, in the order of the queue.
    pub(crate) async fn queue_order(locks: &Locks, name: &str) -> Vec<usize> {
        let resource = locks.mutex(name).info().await.unwrap().unwrap();
        let number = |labels: &[(String, String)]| labels.first().map(|(_, number)| number.parse().unwrap());
        resource.waiters().filter_map(|entry| number(&entry.note.labels)).collect()
    }

    /// Waits until all tasks have entered and left. Returns their numbers and fences in the order of entering.
    pub(crate) async fn wait_until_all_entered(self) -> Vec<(usize, u64)> {
        for task in self.tasks {
            tokio::time::timeout(secs(60), task).await.expect("every waiter enters").unwrap();
        }
        self.entered.lock().unwrap().clone()
    }
}

/// Asserts that each number entered once, in this order, with fences that rise and are above `floor`.
pub(crate) fn assert_in_order(entered: &[(usize, u64)], order: impl IntoIterator<Item = usize>, floor: u64) {
    let numbers: Vec<_> = entered.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, order.into_iter().collect::<Vec<_>>(), "the order of the queue");
    assert_fences_rise(std::iter::once(floor).chain(entered.iter().map(|(_, fence)| *fence)));
}

pub(crate) fn assert_fences_rise(fences: impl IntoIterator<Item = u64>) {
    let fences: Vec<_> = fences.into_iter().collect();
    assert!(fences.is_sorted_by(|one, next| one < next), "fences rise: {fences:?}");
}

/// Spawns a task that keeps the guard until it is lost. The task returns why and when that was.
pub(crate) fn spawn_until_lost(guard: Guard) -> JoinHandle<(lockfast::LostWhy, Moment)> {
    tokio::spawn(async move {
        let why = guard.lost().await;
        (why, now())
    })
}

/// A primary and its replica, connected to each other.
pub(crate) struct Pair {
    pub(crate) primary: servers::Redis,
    pub(crate) replica: servers::Redis,
}

impl Pair {
    /// Returns when both servers report the replica as connected. The replica accepts `DEBUG`.
    pub(crate) async fn start() -> Self {
        let primary = servers::Redis::start();
        let replica = servers::Redis::options().replica_of(&primary).with_debug_commands().start();
        let (mut primary_admin, mut replica_admin) = (Admin::of(&primary.url()), Admin::of(&replica.url()));
        until("the replica follows", async || {
            primary_admin.text("INFO replication").contains("state=online")
                && replica_admin.text("INFO replication").contains("master_link_status:up")
        })
        .await;
        Self { primary, replica }
    }

    /// The URL of the primary, with `?replicas=1`.
    pub(crate) fn url(&self) -> String {
        format!("{}?replicas=1", self.primary.url())
    }

    pub(crate) async fn connect(&self) -> Locks {
        connect(&self.url(), secs(30)).await
    }
}
