//! They hold it, and we want it.

use std::time::Duration;

use lockfast::Error;

use crate::scene::{SOON, Scene, now, soon_after, until_waiting};

pub async fn what_they_hold_is_refused_to_us(mut scene: Scene) {
    let (locks, peer) = (&scene.locks, &mut scene.peer);
    assert!(peer.gets("a").await);
    assert!(locks.mutex("a").try_lock().await.unwrap().is_none());
    assert!(locks.rwlock("a").try_read().await.unwrap().is_none());
    assert!(locks.rwlock("a").try_write().await.unwrap().is_none());
    assert!(locks.multi(["free", "a"]).try_lock().await.unwrap().is_none());
    let busy = locks.mutex("a").lock_within(Duration::from_millis(400)).await;
    assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
    assert!(locks.mutex("a").is_locked().await.unwrap());
    // Nothing was taken, and nothing is left of having asked; who ran out of patience leaves the line a moment later.
    peer.releases().await;
    for name in ["a", "free"] {
        locks.mutex(name).lock_within(SOON).await.unwrap().release().await.unwrap();
    }
}

pub async fn who_waits_gets_it_soon_after_their_release(mut scene: Scene) {
    assert!(scene.peer.gets("a").await);
    let mutex = scene.locks.mutex("a");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&scene.locks, "a", 1).await;
    assert!(!waiter.is_finished());
    let released = now();
    scene.peer.releases().await;
    let guard = waiter.await.unwrap().unwrap();
    soon_after(released);
    assert!(!scene.peer.gets("a").await);
    guard.release().await.unwrap();
    assert!(scene.peer.gets("a").await);
}

pub async fn a_reader_waits_for_them_too(mut scene: Scene) {
    assert!(scene.peer.gets("a").await);
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let lock = scene.locks.rwlock("a");
            tokio::spawn(async move { lock.read().await })
        })
        .collect();
    until_waiting(&scene.locks, "a", 3).await;
    let released = now();
    scene.peer.releases().await;
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(reader.await.unwrap().unwrap());
        soon_after(released);
    }
    // They read together, and the other library sees that somebody does until the last one leaves.
    for guard in guards {
        assert!(!scene.peer.gets("a").await);
        guard.check().unwrap();
        guard.release().await.unwrap();
    }
    assert!(scene.peer.gets("a").await);
}

pub async fn several_names_wait_for_one_of_theirs(mut scene: Scene) {
    assert!(scene.peer.gets("b").await);
    let multi = scene.locks.multi(["a", "b", "c"]);
    let waiter = tokio::spawn(async move { multi.lock().await });
    until_waiting(&scene.locks, "b", 1).await;
    // Keys are set when the whole claim holds, not one by one.
    assert_eq!([scene.key("a"), scene.key("c")], [(None, -2), (None, -2)]);
    let mut other = scene.another_peer().await;
    assert!(other.gets("a").await, "nobody holds it, and others are not in our line");
    scene.peer.releases().await;
    other.releases().await;
    let released = now();
    let guard = waiter.await.unwrap().unwrap();
    soon_after(released);
    for name in ["a", "b", "c"] {
        assert!(!scene.peer.gets(name).await, "{name}");
    }
    guard.release().await.unwrap();
    for name in ["a", "b", "c"] {
        assert!(scene.peer.gets(name).await, "{name}");
    }
}

pub async fn when_their_lease_ends_we_get_it_and_they_cannot_touch_it(mut scene: Scene) {
    assert_eq!(scene.peer.ask("try a 1000").await, "yes");
    let taken = now();
    let guard = scene.locks.mutex("a").lock().await.unwrap();
    let passed = now().since(taken);
    assert!(passed > Duration::from_millis(900), "their lease was for a second, and we got in after {passed:?}");
    assert!(passed < Duration::from_secs(1) + SOON, "it took {passed:?}");
    let (value, left) = scene.key("a");
    scene.peer.cannot_touch_it().await;
    let (now_value, now_left) = scene.key("a");
    assert!(now_value == value && now_left <= left, "{now_left} ms are left of {left} ms");
    guard.check().unwrap();
    guard.release().await.unwrap();
}

pub async fn a_lock_without_a_lease_is_waited_for(mut scene: Scene) {
    assert_eq!(scene.peer.ask("try a 0").await, "yes");
    assert_eq!(scene.key("a").1, -1, "nothing but a release ends this");
    assert!(scene.locks.mutex("a").try_lock().await.unwrap().is_none());
    let (mutex, lock) = (scene.locks.mutex("a"), scene.another_client().await.rwlock("a"));
    let writer = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&scene.locks, "a", 1).await;
    let reader = tokio::spawn(async move { lock.read().await });
    until_waiting(&scene.locks, "a", 2).await;
    let impatient = scene.locks.mutex("a").lock_within(Duration::from_millis(700)).await;
    assert!(matches!(impatient, Err(Error::Busy { .. })), "{impatient:?}");
    let released = now();
    scene.peer.releases().await;
    let guard = writer.await.unwrap().unwrap();
    soon_after(released);
    assert!(!reader.is_finished());
    assert!(scene.key("a").1 > 0, "ours has a lease");
    guard.release().await.unwrap();
    reader.await.unwrap().unwrap().release().await.unwrap();
    assert!(scene.peer.gets("a").await);
}

pub async fn a_line_behind_them_moves_on_in_order(mut scene: Scene) {
    assert!(scene.peer.gets("a").await);
    let clients = [scene.another_client().await, scene.another_client().await, scene.another_client().await];
    let (say, mut said) = tokio::sync::mpsc::unbounded_channel();
    for (place, client) in clients.iter().enumerate() {
        let (mutex, say) = (client.mutex("a"), say.clone());
        tokio::spawn(async move {
            let guard = mutex.lock().await.unwrap();
            say.send((place, guard.fence().unwrap())).unwrap();
            guard.release().await.unwrap();
        });
        until_waiting(&scene.locks, "a", place + 1).await;
    }
    let released = now();
    scene.peer.releases().await;
    // The key is free, and the first in line has perhaps not found out yet: a newcomer comes last all the same.
    let newcomer = scene.locks.mutex("a").lock().await.unwrap();
    say.send((clients.len(), newcomer.fence().unwrap())).unwrap();
    let mut fences = Vec::new();
    for place in 0..=clients.len() {
        let (came, fence) = said.recv().await.unwrap();
        // Only the first had to find out by asking; the others were handed the lock.
        soon_after(released);
        assert_eq!(came, place);
        fences.push(fence);
    }
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
}
