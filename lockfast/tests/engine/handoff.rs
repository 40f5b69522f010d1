//! Local hand-off between the tasks of one process, as other clients see it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use lockfast::{Locks, Memory};

use crate::counting::Counting;
use crate::steps::{Request, entered, millis, secs, soon, until_waiting, wants};

/// Clients of one store.
fn clients<const N: usize>() -> [Locks; N] {
    let memory = Arc::new(Memory::new());
    std::array::from_fn(|_| Locks::new(memory.clone()).unwrap())
}

/// Fails when two tasks are inside at once, and records which client entered with which fence.
#[derive(Default)]
struct CriticalSection {
    taken: AtomicBool,
    visits: Mutex<Vec<(usize, u64)>>,
}

impl CriticalSection {
    async fn visit(&self, client: usize, fence: u64) {
        assert!(!self.taken.swap(true, Ordering::SeqCst), "another task is inside");
        self.visits.lock().unwrap().push((client, fence));
        tokio::task::yield_now().await;
        self.taken.store(false, Ordering::SeqCst);
    }
}

/// The client of each visit in order, until one of the two clients was finished.
async fn two_clients_hammer_one_name() -> Vec<usize> {
    const TASKS: usize = 50;
    const ROUNDS: usize = 20;
    let section = Arc::new(CriticalSection::default());
    let mut tasks = Vec::new();
    for (client, locks) in clients::<2>().into_iter().enumerate() {
        for _ in 0..TASKS {
            let (locks, section) = (locks.clone(), section.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = locks.mutex("hot").lock().await.unwrap();
                    section.visit(client, guard.fence().unwrap()).await;
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    for task in tasks {
        soon(task).await.unwrap();
    }
    let visits = section.visits.lock().unwrap();
    assert_eq!(visits.len(), 2 * TASKS * ROUNDS);
    assert!(visits.windows(2).all(|two| two[0].1 < two[1].1), "fences strictly rise");
    let finished = (0..2).map(|client| visits.iter().rposition(|visit| visit.0 == client).unwrap()).min().unwrap();
    visits[..finished].iter().map(|visit| visit.0).collect()
}

#[tokio::test]
async fn another_client_waits_for_two_runs_of_hand_offs_at_most() {
    let visits = two_clients_hammer_one_name().await;
    let longest = visits.chunk_by(|one, next| one == next).map(<[_]>::len).max().unwrap_or(0);
    assert!(longest <= 2 * 65, "one client was inside {longest} times in a row");
    assert!(longest > 1, "tasks of one client hand the lock off to each other");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hand_off_keeps_exclusion_on_several_threads() {
    two_clients_hammer_one_name().await;
}

#[tokio::test]
async fn without_hand_off_the_order_is_strict_across_clients() {
    let locks = clients::<3>();
    let held = locks[0].mutex("a").lock().await.unwrap();
    let (order, mut tasks) = (Arc::new(Mutex::new(Vec::new())), Vec::new());
    for nth in 0..60_usize {
        let locks = &locks[nth * 7 % 3];
        let (mutex, order) = (locks.mutex("a").local_handoff(false), order.clone());
        let waiting = locks.stats().waiting;
        tasks.push(tokio::spawn(async move {
            let guard = mutex.lock().await.unwrap();
            order.lock().unwrap().push(nth);
            guard.release().await.unwrap();
        }));
        until_waiting(locks, waiting + 1).await;
    }
    drop(held);
    for task in tasks {
        soon(task).await.unwrap();
    }
    assert!(order.lock().unwrap().iter().copied().eq(0..60));
}

/// How many claims are in the queue of `name`, and how many of them hold.
async fn entries(locks: &Locks, name: &str) -> (usize, usize) {
    let found = locks.inspect(name).await.unwrap();
    found.first().map_or((0, 0), |resource| (resource.queue.len(), resource.holders().count()))
}

#[tokio::test]
async fn local_waiters_share_one_entry_in_the_queue() {
    let [locks] = clients();
    let held = locks.mutex("a").lock().await.unwrap();
    let requests: Vec<_> = (0..5).map(|_| wants(locks.mutex("a"))).collect();
    until_waiting(&locks, 5).await;
    assert_eq!(entries(&locks, "a").await, (1, 1));
    drop(held);
    for request in requests {
        drop(entered(request).await);
    }
}

#[tokio::test]
async fn readers_and_small_permits_each_have_a_claim_of_their_own() {
    let [locks] = clients();
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(soon(locks.rwlock("shelf").read()).await.unwrap());
        held.push(soon(locks.semaphore("api", 6).acquire_many(2)).await.unwrap());
    }
    assert_eq!(entries(&locks, "shelf").await, (3, 3));
    assert_eq!(entries(&locks, "api").await, (3, 3));
    let semaphore = locks.semaphore("api", 6);
    let waiting: Vec<Request> = (0..2)
        .map(|_| {
            let semaphore = semaphore.clone();
            tokio::spawn(async move { semaphore.acquire_many(3).await })
        })
        .collect();
    until_waiting(&locks, 2).await;
    assert_eq!(entries(&locks, "api").await, (5, 3), "half of the permits is not more than half");
    drop(held);
    // Both fit: a queue of this process's own would let in one after the other.
    let mut both = Vec::new();
    for request in waiting {
        both.push(entered(request).await);
    }
    assert_eq!(entries(&locks, "api").await, (2, 2));
}

#[tokio::test]
async fn a_hold_with_hold_at_least_is_not_handed_off_locally() {
    let (store, locks, manual_clock) = Counting::new();
    let mutex = locks.mutex("cron").hold_at_least(secs(100));
    let first = soon(mutex.lock()).await.unwrap();
    let second = wants(mutex.clone());
    until_waiting(&locks, 1).await;
    let fence = first.fence().unwrap();
    first.release().await.unwrap();
    let seen = locks.mutex("cron").info().await.unwrap().unwrap();
    assert!(seen.queue[0].lingers && seen.queue[0].tickets.first.0 == fence, "{seen:?}");
    assert_eq!(seen.queue[0].expires_in, secs(100));
    assert!(locks.mutex("cron").try_lock().await.unwrap().is_none());
    let mut renewals = store.renewals.subscribe();
    for _ in 0..9 {
        renewals.mark_unchanged();
        manual_clock.advance(secs(10));
        // The waiter's own lease must not run out while the test hurries through the time.
        soon(renewals.changed()).await.unwrap();
        assert!(locks.mutex("cron").is_locked().await.unwrap());
        assert!(!second.is_finished());
    }
    // A little more, since a waiter asks a moment after the lease ahead of it has ended.
    manual_clock.advance(secs(10) + millis(5));
    assert!(entered(second).await.fence().unwrap() > fence);
}

#[tokio::test]
async fn requests_with_different_terms_do_not_share_a_local_queue() {
    let [locks] = clients();
    let held = locks.mutex("a").lock().await.unwrap();
    let requests = [
        wants(locks.mutex("a").ttl(secs(20))),
        wants(locks.mutex("a").no_renewal()),
        wants(locks.mutex("a").hold_at_least(secs(1))),
        wants(locks.mutex("a").local_handoff(false)),
    ];
    until_waiting(&locks, 4).await;
    assert_eq!(entries(&locks, "a").await, (5, 1));
    requests.iter().for_each(Request::abort);
    drop(held);
}

#[tokio::test]
async fn a_cancelled_local_waiter_is_skipped() {
    let [locks] = clients();
    let held = locks.mutex("a").lock().await.unwrap();
    let requests: Vec<_> = (0..40).map(|_| wants(locks.mutex("a"))).collect();
    until_waiting(&locks, 40).await;
    for request in requests.iter().step_by(2) {
        request.abort();
    }
    until_waiting(&locks, 20).await;
    held.release().await.unwrap();
    for request in requests.into_iter().skip(1).step_by(2) {
        entered(request).await.release().await.unwrap();
    }
    assert!(locks.inspect("").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_holder_is_shown_with_its_own_note_and_labels() {
    let locks = Locks::in_memory();
    let noted = |text: &str| locks.mutex("noted").note(text);
    let labelled = |text: &str| locks.mutex("labelled").label("holder", text);
    for (first, second) in [(noted("first"), noted("second")), (labelled("first"), labelled("second"))] {
        let guard = first.lock().await.unwrap();
        let next = wants(second);
        until_waiting(&locks, 1).await;
        guard.release().await.unwrap();
        let next = entered(next).await;
        let shown = first.info().await.unwrap().unwrap();
        let holder = shown.holders().next().unwrap();
        assert_eq!(holder.tickets.first.0, next.fence().unwrap());
        let said = holder.note.labels.first().map(|(_, text)| text).or(holder.note.text.as_ref());
        assert_eq!(said.unwrap(), "second");
    }
}
