//! The other library holds the lock, and lockfast wants it.

use std::time::Duration;

use lockfast::Error;

use crate::fixture::{Fixture, SOON, assert_soon_after, now, until_waiting};

pub async fn their_locks_are_refused_to_us(mut fixture: Fixture) {
    let (locks, peer) = (&fixture.locks, &mut fixture.peer);
    assert!(peer.try_lock("a").await);
    assert!(locks.mutex("a").try_lock().await.unwrap().is_none());
    assert!(locks.rwlock("a").try_read().await.unwrap().is_none());
    assert!(locks.rwlock("a").try_write().await.unwrap().is_none());
    assert!(locks.multi(["free", "a"]).try_lock().await.unwrap().is_none());
    let busy = locks.mutex("a").lock_within(Duration::from_millis(400)).await;
    assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
    assert!(locks.mutex("a").is_locked().await.unwrap());
    // No name was taken and no entry is left. A caller that timed out withdraws its entry a moment later.
    peer.release().await;
    for name in ["a", "free"] {
        locks.mutex(name).lock_within(SOON).await.unwrap().release().await.unwrap();
    }
}

pub async fn a_waiter_enters_soon_after_their_release(mut fixture: Fixture) {
    assert!(fixture.peer.try_lock("a").await);
    let mutex = fixture.locks.mutex("a");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&fixture.locks, "a", 1).await;
    assert!(!waiter.is_finished());
    let released = now();
    fixture.peer.release().await;
    let guard = waiter.await.unwrap().unwrap();
    assert_soon_after(released);
    assert!(!fixture.peer.try_lock("a").await);
    guard.release().await.unwrap();
    assert!(fixture.peer.try_lock("a").await);
}

pub async fn a_reader_waits_for_them_too(mut fixture: Fixture) {
    assert!(fixture.peer.try_lock("a").await);
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let lock = fixture.locks.rwlock("a");
            tokio::spawn(async move { lock.read().await })
        })
        .collect();
    until_waiting(&fixture.locks, "a", 3).await;
    let released = now();
    fixture.peer.release().await;
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(reader.await.unwrap().unwrap());
        assert_soon_after(released);
    }
    // They read together, and the key is taken for the other library until the last reader leaves.
    for guard in guards {
        assert!(!fixture.peer.try_lock("a").await);
        guard.check().unwrap();
        guard.release().await.unwrap();
    }
    assert!(fixture.peer.try_lock("a").await);
}

pub async fn several_names_wait_for_one_of_theirs(mut fixture: Fixture) {
    assert!(fixture.peer.try_lock("b").await);
    let multi = fixture.locks.multi(["a", "b", "c"]);
    let waiter = tokio::spawn(async move { multi.lock().await });
    until_waiting(&fixture.locks, "b", 1).await;
    // Keys are set when the whole claim holds, not one by one.
    assert_eq!([fixture.key("a"), fixture.key("c")], [(None, -2), (None, -2)]);
    let mut other = fixture.another_peer().await;
    assert!(other.try_lock("a").await, "the name is free, and the other library does not know our queue");
    fixture.peer.release().await;
    other.release().await;
    let released = now();
    let guard = waiter.await.unwrap().unwrap();
    assert_soon_after(released);
    for name in ["a", "b", "c"] {
        assert!(!fixture.peer.try_lock(name).await, "{name}");
    }
    guard.release().await.unwrap();
    for name in ["a", "b", "c"] {
        assert!(fixture.peer.try_lock(name).await, "{name}");
    }
}

pub async fn when_their_lease_ends_we_get_it_and_they_cannot_touch_it(mut fixture: Fixture) {
    assert_eq!(fixture.peer.ask("try a 1000").await, "yes");
    let taken = now();
    let guard = fixture.locks.mutex("a").lock().await.unwrap();
    let passed = now().since(taken);
    assert!(passed > Duration::from_millis(900), "their lease was for a second, and we got in after {passed:?}");
    assert!(passed < Duration::from_secs(1) + SOON, "it took {passed:?}");
    let (value, left) = fixture.key("a");
    fixture.peer.expect_no_access().await;
    let (now_value, now_left) = fixture.key("a");
    assert!(now_value == value && now_left <= left, "{now_left} ms are left of {left} ms");
    guard.check().unwrap();
    guard.release().await.unwrap();
}

pub async fn a_lock_without_a_lease_is_waited_for(mut fixture: Fixture) {
    assert_eq!(fixture.peer.ask("try a 0").await, "yes");
    assert_eq!(fixture.key("a").1, -1, "nothing but a release ends this");
    assert!(fixture.locks.mutex("a").try_lock().await.unwrap().is_none());
    let (mutex, lock) = (fixture.locks.mutex("a"), fixture.another_client().await.rwlock("a"));
    let writer = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&fixture.locks, "a", 1).await;
    let reader = tokio::spawn(async move { lock.read().await });
    until_waiting(&fixture.locks, "a", 2).await;
    let impatient = fixture.locks.mutex("a").lock_within(Duration::from_millis(700)).await;
    assert!(matches!(impatient, Err(Error::Busy { .. })), "{impatient:?}");
    let released = now();
    fixture.peer.release().await;
    let guard = writer.await.unwrap().unwrap();
    assert_soon_after(released);
    assert!(!reader.is_finished());
    assert!(fixture.key("a").1 > 0, "ours has a lease");
    guard.release().await.unwrap();
    reader.await.unwrap().unwrap().release().await.unwrap();
    assert!(fixture.peer.try_lock("a").await);
}

pub async fn waiters_behind_them_enter_in_order(mut fixture: Fixture) {
    assert!(fixture.peer.try_lock("a").await);
    let clients = [fixture.another_client().await, fixture.another_client().await, fixture.another_client().await];
    let (send, mut entered) = tokio::sync::mpsc::unbounded_channel();
    for (position, client) in clients.iter().enumerate() {
        let (mutex, send) = (client.mutex("a"), send.clone());
        tokio::spawn(async move {
            let guard = mutex.lock().await.unwrap();
            send.send((position, guard.fence().unwrap())).unwrap();
            guard.release().await.unwrap();
        });
        until_waiting(&fixture.locks, "a", position + 1).await;
    }
    let released = now();
    fixture.peer.release().await;
    // The key is free, and the first waiter has perhaps not noticed yet. A new claim enters last all the same.
    let newcomer = fixture.locks.mutex("a").lock().await.unwrap();
    send.send((clients.len(), newcomer.fence().unwrap())).unwrap();
    let mut fences = Vec::new();
    for position in 0..=clients.len() {
        let (number, fence) = entered.recv().await.unwrap();
        // Only the first waiter had to poll. The others were handed the lock.
        assert_soon_after(released);
        assert_eq!(number, position);
        fences.push(fence);
    }
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
}
