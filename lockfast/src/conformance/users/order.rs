//! The order of grants, and locks on several names.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::super::fixture::{Fixture, expect_supported};
use super::user::{join_all, soon};

/// A claim that joined before another is granted before it, whichever clients they belong to.
pub async fn waiters_of_all_clients_are_granted_in_order(fixture: &Fixture) {
    fixture.require(fixture.guarantees().fair, "order of arrival");
    let users = fixture.three_users().await;
    let entered = Arc::new(Mutex::new(Vec::new()));
    let holder = expect_supported(users[0].mutex("a").lock().await);
    let mut queue = Vec::new();
    for number in 0..7 {
        let (user, entered) = (users[number % 3].clone(), Arc::clone(&entered));
        let lock = user.mutex("a").local_handoff(false);
        let request = async move {
            let guard = lock.lock().await?;
            entered.lock().unwrap_or_else(PoisonError::into_inner).push(number);
            Ok(guard)
        };
        queue.push(user.enqueue(request).await);
    }
    users[0].release(holder).await;
    for (number, request) in queue.into_iter().enumerate() {
        users[number % 3].release(request.expect_held().await).await;
    }
    assert_eq!(*entered.lock().unwrap_or_else(PoisonError::into_inner), [0, 1, 2, 3, 4, 5, 6]);
}

/// Tasks of one client hand a lock off among themselves at most 64 times while another client waits.
pub async fn a_local_hand_off_ends_when_another_client_waits(fixture: &Fixture) {
    const MAX_LOCAL_HAND_OFFS: usize = 64;
    let [one, two, _] = fixture.three_users().await;
    let (count, other_client_holds) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let first = expect_supported(one.mutex("a").lock().await);
    let lock = two.mutex("a");
    let elsewhere = two.enqueue(async move { lock.lock().await }).await;
    let contenders = (0..4).map(|_| {
        let (user, count, other_client_holds) = (one.clone(), Arc::clone(&count), Arc::clone(&other_client_holds));
        async move {
            while !other_client_holds.load(Ordering::SeqCst) {
                let guard = expect_supported(user.mutex("a").lock().await);
                count.fetch_add(1, Ordering::SeqCst);
                user.release(guard).await;
            }
        }
    });
    let here = join_all(contenders.collect::<Vec<_>>());
    let there = async {
        one.release(first).await;
        let guard = elsewhere.expect_held().await;
        let overtaken = count.load(Ordering::SeqCst);
        other_client_holds.store(true, Ordering::SeqCst);
        two.release(guard).await;
        assert!(overtaken <= MAX_LOCAL_HAND_OFFS, "overtaken {overtaken} times");
    };
    futures::join!(here, there);
}

/// A waiting writer is not passed by readers that came later.
pub async fn a_reader_behind_a_writer_waits_for_it(fixture: &Fixture) {
    fixture.require(fixture.guarantees().fair, "order of arrival");
    let [one, two, three] = fixture.three_users().await;
    let reading = expect_supported(one.rwlock("a").read().await);
    let lock = two.rwlock("a");
    let writer = two.enqueue(async move { lock.write().await }).await;
    assert!(three.retry(async || three.rwlock("a").try_read().await).await.is_none());
    let lock = three.rwlock("a");
    let reader = three.enqueue(async move { lock.read().await }).await;
    one.release(reading).await;
    let writing = writer.expect_held().await;
    assert!(!reader.is_over());
    two.release(writing).await;
    three.release(reader.expect_held().await).await;
}

/// Clients that lock the same names in different orders never deadlock.
pub async fn opposite_orders_do_not_deadlock(fixture: &Fixture) {
    let rounds = fixture.rounds(9);
    let users = fixture.three_users().await;
    let orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]];
    let tasks = users.into_iter().zip(orders).map(|(user, names)| async move {
        for _ in 0..rounds {
            let guard = expect_supported(user.multi(names).lock().await);
            assert_eq!(guard.names().collect::<Vec<_>>(), ["a", "b", "c"]);
            user.release(guard).await;
        }
    });
    join_all(tasks).await;
}

/// A lock on several names takes all of them or none.
pub async fn a_multi_is_all_or_nothing(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let b = expect_supported(one.mutex("b").lock().await);
    assert!(two.retry(async || two.multi(["a", "b"]).try_lock().await).await.is_none());
    let a = expect_supported(soon(three.mutex("a").lock()).await);
    three.release(a).await;
    let both = two.multi(["a", "b"]);
    let both = two.enqueue(async move { both.lock().await }).await;
    assert!(!both.is_over());
    one.release(b).await;
    let both = both.expect_held().await;
    for name in ["a", "b"] {
        assert!(three.retry(async || three.mutex(name).try_lock().await).await.is_none());
        assert!(both.fence_of(name).is_ok());
    }
    two.release(both).await;
    for name in ["a", "b"] {
        let free = expect_supported(soon(three.mutex(name).lock()).await);
        three.release(free).await;
    }
}

/// A cancelled acquisition of several names leaves all of its queues.
pub async fn a_multi_that_gives_up_leaves_every_queue(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let b = expect_supported(one.mutex("b").lock().await);
    let both = two.multi(["a", "b"]);
    let both = two.enqueue(async move { both.lock().await }).await;
    both.cancel().await;
    let a = expect_supported(soon(three.mutex("a").lock()).await);
    one.release(b).await;
    let b = expect_supported(soon(three.mutex("b").lock()).await);
    three.release(a).await;
    three.release(b).await;
}
