//! lockfast holds the lock, and the other library wants it.

use std::time::Duration;

use lockfast::{Error, Guard};

use crate::fixture::{Fixture, SOON, now, until_waiting};

pub async fn a_mutex_is_refused_to_them_until_it_is_released(mut fixture: Fixture) {
    for _ in 0..3 {
        let guard = fixture.locks.mutex("a").lock().await.unwrap();
        assert!(!fixture.peer.try_lock("a").await);
        guard.check().unwrap();
        guard.release().await.unwrap();
        assert!(fixture.peer.try_lock("a").await);
        fixture.peer.release().await;
    }
}

pub async fn a_reader_is_refused_to_them_until_the_last_one_leaves(mut fixture: Fixture) {
    let other = fixture.another_client().await;
    let long = fixture.locks.rwlock("a").ttl(Duration::from_secs(60)).read().await.unwrap();
    let short = other.rwlock("a").ttl(Duration::from_secs(5)).read().await.unwrap();
    assert!(!fixture.peer.try_lock("a").await);
    // The key lives as long as the longest lease of a reader, also after a reader has left.
    assert!(fixture.key("a").1 > 50_000);
    long.release().await.unwrap();
    assert!((1..=5_000).contains(&fixture.key("a").1), "{} ms", fixture.key("a").1);
    assert!(!fixture.peer.try_lock("a").await);
    let third = fixture.locks.rwlock("a").try_read().await.unwrap().expect("readers share");
    short.release().await.unwrap();
    assert!(!fixture.peer.try_lock("a").await);
    third.release().await.unwrap();
    assert!(fixture.peer.try_lock("a").await);
}

pub async fn each_of_several_names_is_refused_to_them(mut fixture: Fixture) {
    let guard = fixture.locks.multi(["a", "b", "c"]).lock().await.unwrap();
    for name in ["a", "b", "c"] {
        assert!(!fixture.peer.try_lock(name).await, "{name}");
    }
    guard.release().await.unwrap();
    for name in ["a", "b", "c"] {
        assert!(fixture.peer.try_lock(name).await, "{name}");
    }
}

pub async fn a_renewed_lock_is_never_theirs(mut fixture: Fixture) {
    let ttl = Duration::from_millis(500);
    let mutex = fixture.locks.mutex("a").ttl(ttl).lock().await.unwrap();
    let reader = fixture.locks.rwlock("b").ttl(ttl).read().await.unwrap();
    let started_at = now();
    while now().since(started_at) < ttl * 3 {
        assert_eq!(fixture.peer.ask("hammer a 10").await, "0");
        assert_eq!(fixture.peer.ask("hammer b 10").await, "0");
    }
    mutex.release().await.unwrap();
    reader.release().await.unwrap();
}

/// A claim of ours always waits when another is released, so that the key is never free, however often they try.
pub async fn a_lock_that_is_handed_off_is_never_theirs(mut fixture: Fixture) {
    let clients = [fixture.another_client().await, fixture.another_client().await];
    let mut guard = clients[0].mutex("a").lock().await.unwrap();
    fixture.peer.send("hammer a 200");
    let mut handoffs = 0;
    let won = loop {
        if handoffs >= 30
            && let Some(won) = fixture.peer.try_answer()
        {
            break won;
        }
        let next = spawn_waiter(&fixture, &clients[(handoffs + 1) % 2], handoffs).await;
        guard.check().unwrap();
        guard.release().await.unwrap();
        guard = next.await.unwrap().unwrap();
        handoffs += 1;
    };
    assert_eq!(won, "0", "of 200 attempts, during {handoffs} hand-offs");
    guard.release().await.unwrap();
    assert!(fixture.peer.try_lock("a").await);
}

/// Spawns the next waiter of ours, and returns when it has joined the queue. Its number decides between a mutex, a multi and a
/// writer.
async fn spawn_waiter(
    fixture: &Fixture,
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
    until_waiting(&fixture.locks, "a", 1).await;
    next
}

pub async fn they_get_it_by_waiting_in_their_own_way(mut fixture: Fixture) {
    let guard = fixture.locks.mutex("a").lock().await.unwrap();
    // The lease is short, because python-redis-lock waits for a signal that only its own release sends, or for the time of its
    // lease. The others poll.
    fixture.peer.send("lock a 1000");
    let mut other = fixture.another_peer().await;
    assert!(!other.try_lock("a").await);
    assert_eq!(fixture.peer.try_answer(), None, "it waits");
    guard.release().await.unwrap();
    assert_eq!(fixture.peer.answer().await, "yes");
    assert!(fixture.locks.mutex("a").try_lock().await.unwrap().is_none());
    fixture.peer.release().await;
}

pub async fn a_lock_that_lingers_is_not_theirs_yet(mut fixture: Fixture) {
    let started_at = now();
    let span = Duration::from_secs(1);
    let guard = fixture.locks.mutex("a").hold_at_least(span).lock().await.unwrap();
    guard.release().await.unwrap();
    assert!(!fixture.peer.try_lock("a").await);
    while !fixture.peer.try_lock("a").await {
        assert!(now().since(started_at) < span + SOON);
    }
    assert!(now().since(started_at) >= span, "it was to be held for {span:?}");
}

/// Our guards neither renew nor release a key that another library took meanwhile. They are reported lost.
pub async fn a_lock_they_took_after_ours_was_deleted_is_theirs(mut fixture: Fixture) {
    let ttl = Duration::from_millis(600);
    let lost = [
        fixture.locks.mutex("a").ttl(ttl).lock().await.unwrap(),
        fixture.locks.rwlock("b").ttl(ttl).read().await.unwrap(),
        fixture.locks.multi(["c", "d"]).ttl(ttl).lock().await.unwrap(),
    ];
    let mut theirs = Vec::new();
    for name in ["a", "b", "c"] {
        fixture.delete(name);
        assert!(fixture.peer.try_lock(name).await);
        theirs.push((name, fixture.key(name)));
    }
    for guard in &lost {
        guard.lost().await;
    }
    for guard in lost {
        let released = guard.release().await;
        assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
    }
    for (name, (value, left)) in theirs {
        let (now_value, now_left) = fixture.key(name);
        assert!(
            now_value == value && (1..=left).contains(&now_left),
            "{now_left} ms are left of {name}, before {left}"
        );
    }
    // Our multi leaves nothing at its other name.
    assert!(fixture.peer.try_lock("d").await);
    fixture.peer.release().await;
    fixture.locks.mutex("d").try_lock().await.unwrap().expect("it is free").release().await.unwrap();
}

pub async fn they_cannot_release_or_extend_a_mutex(mut fixture: Fixture) {
    let guard = fixture.locks.mutex("a").lock().await.unwrap();
    cannot_touch(&mut fixture, &guard).await;
    guard.release().await.unwrap();
}

pub async fn they_cannot_release_or_extend_a_readers_lock(mut fixture: Fixture) {
    let guard = fixture.locks.rwlock("a").read().await.unwrap();
    cannot_touch(&mut fixture, &guard).await;
    guard.release().await.unwrap();
}

async fn cannot_touch(fixture: &mut Fixture, guard: &Guard) {
    let (value, left) = fixture.key("a");
    assert!(value.is_some() && left > 0);
    assert_eq!(fixture.peer.ask("forge a").await, "forged");
    fixture.peer.expect_no_access().await;
    let (now_value, now_left) = fixture.key("a");
    // A renewal of ours sets 30 s. An extension of theirs would have set 40 s.
    assert!(now_value == value && now_left <= 30_000, "{now_left} ms are left");
    guard.check().unwrap();
    guard.extend(Duration::from_secs(30)).await.unwrap();
    assert!(!fixture.peer.try_lock("a").await);
}
