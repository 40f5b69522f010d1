//! Both libraries at once.

use crate::fixture::Fixture;

/// How often each client of ours, and each of theirs, reads a number and writes it back with one more.
const OURS: u64 = 60;
const THEIRS: u64 = 12;

pub async fn no_update_of_either_library_is_lost(mut fixture: Fixture) {
    let mut other_peer = fixture.another_peer().await;
    let other_client = fixture.another_client().await;
    let count = format!("count a counter {THEIRS}");
    fixture.peer.send(&count);
    other_peer.send(&count);
    tokio::join!(add(&fixture, &fixture.locks), add(&fixture, &other_client));
    assert_eq!(fixture.peer.answer().await, "done");
    assert_eq!(other_peer.answer().await, "done");
    assert_eq!(fixture.number("counter"), Some(2 * OURS + 2 * THEIRS));
}

async fn add(fixture: &Fixture, locks: &lockfast::Locks) {
    for _ in 0..OURS {
        let guard = locks.mutex("a").lock().await.unwrap();
        let seen = fixture.number("counter").unwrap_or(0);
        tokio::task::yield_now().await;
        fixture.set_number("counter", seen + 1);
        guard.release().await.unwrap();
    }
}
