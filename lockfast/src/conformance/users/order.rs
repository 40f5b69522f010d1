//! Who is next: the order of arrival, and several names at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::super::place::{Place, promised};
use super::user::{soon, together};

/// Whoever was in line before another asked enters before it, whichever clients they belong to.
pub async fn who_was_in_line_first_enters_first(place: &Place) {
    place.needs(place.guarantees().fair, "order of arrival");
    let users = place.three().await;
    let entered = Arc::new(Mutex::new(Vec::new()));
    let holder = promised(users[0].mutex("a").lock().await);
    let mut line = Vec::new();
    for number in 0..7 {
        let (user, entered) = (users[number % 3].clone(), Arc::clone(&entered));
        let lock = user.mutex("a").local_handoff(false);
        let asking = async move {
            let guard = lock.lock().await?;
            entered.lock().unwrap_or_else(PoisonError::into_inner).push(number);
            Ok(guard)
        };
        line.push(user.in_line(asking).await);
    }
    users[0].let_go(holder).await;
    for (number, asking) in line.into_iter().enumerate() {
        users[number % 3].let_go(asking.held().await).await;
    }
    assert_eq!(*entered.lock().unwrap_or_else(PoisonError::into_inner), [0, 1, 2, 3, 4, 5, 6]);
}

/// Tasks of one client pass the lock among themselves for one turn at most while somebody waits elsewhere.
pub async fn a_turn_ends_when_another_client_waits(place: &Place) {
    const LONGEST_TURN: usize = 64;
    let [one, two, _] = place.three().await;
    let (count, is_in) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let first = promised(one.mutex("a").lock().await);
    let lock = two.mutex("a");
    let elsewhere = two.in_line(async move { lock.lock().await }).await;
    let again_and_again = (0..4).map(|_| {
        let (user, count, is_in) = (one.clone(), Arc::clone(&count), Arc::clone(&is_in));
        async move {
            while !is_in.load(Ordering::SeqCst) {
                let guard = promised(user.mutex("a").lock().await);
                count.fetch_add(1, Ordering::SeqCst);
                user.let_go(guard).await;
            }
        }
    });
    let here = together(again_and_again.collect::<Vec<_>>());
    let there = async {
        one.let_go(first).await;
        let guard = elsewhere.held().await;
        let overtaken = count.load(Ordering::SeqCst);
        is_in.store(true, Ordering::SeqCst);
        two.let_go(guard).await;
        assert!(overtaken <= LONGEST_TURN, "overtaken {overtaken} times");
    };
    futures::join!(here, there);
}

/// A writer that waits is not passed by readers who came later.
pub async fn a_reader_behind_a_writer_waits_for_it(place: &Place) {
    place.needs(place.guarantees().fair, "order of arrival");
    let [one, two, three] = place.three().await;
    let reading = promised(one.rwlock("a").read().await);
    let lock = two.rwlock("a");
    let writer = two.in_line(async move { lock.write().await }).await;
    assert!(three.surely(async || three.rwlock("a").try_read().await).await.is_none());
    let lock = three.rwlock("a");
    let reader = three.in_line(async move { lock.read().await }).await;
    one.let_go(reading).await;
    let writing = writer.held().await;
    assert!(!reader.is_over());
    two.let_go(writing).await;
    three.let_go(reader.held().await).await;
}

/// Two who take the same names in opposite orders get through, again and again.
pub async fn opposite_orders_do_not_deadlock(place: &Place) {
    let rounds = place.rounds(9);
    let users = place.three().await;
    let orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]];
    let tasks = users.into_iter().zip(orders).map(|(user, names)| async move {
        for _ in 0..rounds {
            let guard = promised(user.multi(names).lock().await);
            assert_eq!(guard.names().collect::<Vec<_>>(), ["a", "b", "c"]);
            user.let_go(guard).await;
        }
    });
    together(tasks).await;
}

/// All of the names, or none of them.
pub async fn a_multi_is_all_or_nothing(place: &Place) {
    let [one, two, three] = place.three().await;
    let b = promised(one.mutex("b").lock().await);
    assert!(two.surely(async || two.multi(["a", "b"]).try_lock().await).await.is_none());
    let a = promised(soon(three.mutex("a").lock()).await);
    three.let_go(a).await;
    let both = two.multi(["a", "b"]);
    let both = two.in_line(async move { both.lock().await }).await;
    assert!(!both.is_over());
    one.let_go(b).await;
    let both = both.held().await;
    for name in ["a", "b"] {
        assert!(three.surely(async || three.mutex(name).try_lock().await).await.is_none());
        assert!(both.fence_of(name).is_ok());
    }
    two.let_go(both).await;
    for name in ["a", "b"] {
        let free = promised(soon(three.mutex(name).lock()).await);
        three.let_go(free).await;
    }
}

/// A multi that gives up leaves every line it stood in.
pub async fn a_multi_that_gives_up_leaves_every_line(place: &Place) {
    let [one, two, three] = place.three().await;
    let b = promised(one.mutex("b").lock().await);
    let both = two.multi(["a", "b"]);
    let both = two.in_line(async move { both.lock().await }).await;
    both.cancel().await;
    let a = promised(soon(three.mutex("a").lock()).await);
    one.let_go(b).await;
    let b = promised(soon(three.mutex("b").lock()).await);
    three.let_go(a).await;
    three.let_go(b).await;
}
