//! We hold it, and they want it.

use std::time::Duration;

use lockfast::{Error, Guard};

use crate::scene::{SOON, Scene, now, until_waiting};

pub async fn a_mutex_is_refused_to_them_until_it_is_released(mut scene: Scene) {
    for _ in 0..3 {
        let guard = scene.locks.mutex("a").lock().await.unwrap();
        assert!(!scene.peer.gets("a").await);
        guard.check().unwrap();
        guard.release().await.unwrap();
        assert!(scene.peer.gets("a").await);
        scene.peer.releases().await;
    }
}

pub async fn a_reader_is_refused_to_them_until_the_last_one_leaves(mut scene: Scene) {
    let other = scene.another_client().await;
    let long = scene.locks.rwlock("a").ttl(Duration::from_secs(60)).read().await.unwrap();
    let short = other.rwlock("a").ttl(Duration::from_secs(5)).read().await.unwrap();
    assert!(!scene.peer.gets("a").await);
    // What they see lasts as long as the longest reader, and no longer once that one has left.
    assert!(scene.key("a").1 > 50_000);
    long.release().await.unwrap();
    assert!((1..=5_000).contains(&scene.key("a").1), "{} ms", scene.key("a").1);
    assert!(!scene.peer.gets("a").await);
    let third = scene.locks.rwlock("a").try_read().await.unwrap().expect("readers share");
    short.release().await.unwrap();
    assert!(!scene.peer.gets("a").await);
    third.release().await.unwrap();
    assert!(scene.peer.gets("a").await);
}

pub async fn each_of_several_names_is_refused_to_them(mut scene: Scene) {
    let guard = scene.locks.multi(["a", "b", "c"]).lock().await.unwrap();
    for name in ["a", "b", "c"] {
        assert!(!scene.peer.gets(name).await, "{name}");
    }
    guard.release().await.unwrap();
    for name in ["a", "b", "c"] {
        assert!(scene.peer.gets(name).await, "{name}");
    }
}

pub async fn a_renewed_lock_is_never_theirs(mut scene: Scene) {
    let ttl = Duration::from_millis(500);
    let mutex = scene.locks.mutex("a").ttl(ttl).lock().await.unwrap();
    let reader = scene.locks.rwlock("b").ttl(ttl).read().await.unwrap();
    let begun = now();
    while now().since(begun) < ttl * 3 {
        assert_eq!(scene.peer.ask("hammer a 10").await, "0");
        assert_eq!(scene.peer.ask("hammer b 10").await, "0");
    }
    mutex.release().await.unwrap();
    reader.release().await.unwrap();
}

/// There is always somebody in line when one of ours leaves, so the key is never free, however often they try.
pub async fn a_lock_that_is_handed_over_is_never_theirs(mut scene: Scene) {
    let clients = [scene.another_client().await, scene.another_client().await];
    let mut guard = clients[0].mutex("a").lock().await.unwrap();
    scene.peer.tell("hammer a 200");
    let mut passed = 0;
    let won = loop {
        if passed >= 30
            && let Some(won) = scene.peer.has_answered()
        {
            break won;
        }
        let next = joined(&scene, &clients[(passed + 1) % 2], passed).await;
        guard.check().unwrap();
        guard.release().await.unwrap();
        guard = next.await.unwrap().unwrap();
        passed += 1;
    };
    assert_eq!(won, "0", "of 200 attempts, while we handed it over {passed} times");
    guard.release().await.unwrap();
    assert!(scene.peer.gets("a").await);
}

/// The next one of ours, in line: a mutex, a reader or one with several names, in turn.
async fn joined(
    scene: &Scene,
    client: &lockfast::Locks,
    number: usize,
) -> tokio::task::JoinHandle<lockfast::Result<Guard>> {
    let client = client.clone();
    let next = tokio::spawn(async move {
        match number % 3 {
            0 => client.mutex("a").lock().await,
            1 => client.multi(["a", "b"]).lock().await,
            _ => client.rwlock("a").write().await,
        }
    });
    until_waiting(&scene.locks, "a", 1).await;
    next
}

pub async fn they_get_it_by_waiting_in_their_own_way(mut scene: Scene) {
    let guard = scene.locks.mutex("a").lock().await.unwrap();
    // python-redis-lock waits for a signal that only its own release sends, or for the time of its lease; the others ask
    // now and then. So the lease is short.
    scene.peer.tell("lock a 1000");
    let mut other = scene.another_peer().await;
    assert!(!other.gets("a").await);
    assert_eq!(scene.peer.has_answered(), None, "it waits");
    guard.release().await.unwrap();
    assert_eq!(scene.peer.hear().await, "yes");
    assert!(scene.locks.mutex("a").try_lock().await.unwrap().is_none());
    scene.peer.releases().await;
}

pub async fn a_lock_that_lingers_is_not_theirs_yet(mut scene: Scene) {
    let begun = now();
    let span = Duration::from_secs(1);
    let guard = scene.locks.mutex("a").hold_at_least(span).lock().await.unwrap();
    guard.release().await.unwrap();
    assert!(!scene.peer.gets("a").await);
    while !scene.peer.gets("a").await {
        assert!(now().since(begun) < span + SOON);
    }
    assert!(now().since(begun) >= span, "it was to be held for {span:?}");
}

/// Whatever ours still believe, what is theirs now is neither renewed nor released by them, and they hear that it is lost.
pub async fn what_they_took_when_ours_was_deleted_is_theirs(mut scene: Scene) {
    let ttl = Duration::from_millis(600);
    let lost = [
        scene.locks.mutex("a").ttl(ttl).lock().await.unwrap(),
        scene.locks.rwlock("b").ttl(ttl).read().await.unwrap(),
        scene.locks.multi(["c", "d"]).ttl(ttl).lock().await.unwrap(),
    ];
    let mut theirs = Vec::new();
    for name in ["a", "b", "c"] {
        scene.delete(name);
        assert!(scene.peer.gets(name).await);
        theirs.push((name, scene.key(name)));
    }
    for guard in &lost {
        guard.lost().await;
    }
    for guard in lost {
        let released = guard.release().await;
        assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
    }
    for (name, (value, left)) in theirs {
        let (now_value, now_left) = scene.key(name);
        assert!(
            now_value == value && (1..=left).contains(&now_left),
            "{now_left} ms are left of {name}, before {left}"
        );
    }
    // Nothing is left of ours in the other one's way.
    assert!(scene.peer.gets("d").await);
    scene.peer.releases().await;
    scene.locks.mutex("d").try_lock().await.unwrap().expect("it is free").release().await.unwrap();
}

pub async fn they_cannot_release_or_extend_a_mutex(mut scene: Scene) {
    let guard = scene.locks.mutex("a").lock().await.unwrap();
    cannot_touch(&mut scene, &guard).await;
    guard.release().await.unwrap();
}

pub async fn they_cannot_release_or_extend_a_readers_lock(mut scene: Scene) {
    let guard = scene.locks.rwlock("a").read().await.unwrap();
    cannot_touch(&mut scene, &guard).await;
    guard.release().await.unwrap();
}

async fn cannot_touch(scene: &mut Scene, guard: &Guard) {
    let (value, left) = scene.key("a");
    assert!(value.is_some() && left > 0);
    assert_eq!(scene.peer.ask("forge a").await, "forged");
    scene.peer.cannot_touch_it().await;
    let (now_value, now_left) = scene.key("a");
    // Should we have renewed it meanwhile, that is for 30 s; they would have extended it to 40.
    assert!(now_value == value && now_left <= 30_000, "{now_left} ms are left");
    guard.check().unwrap();
    guard.extend(Duration::from_secs(30)).await.unwrap();
    assert!(!scene.peer.gets("a").await);
}
