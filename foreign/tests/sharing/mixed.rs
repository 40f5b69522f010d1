//! Both libraries at once.

use crate::fixture::Fixture;

/// How often each lockfast client adds one to the counter.
const OUR_ADDITIONS: u64 = 60;
/// How often each process of the other library adds one to the counter. Fewer, because most
/// libraries poll, which takes long.
const THEIR_ADDITIONS: u64 = 12;

pub async fn no_update_of_either_library_is_lost(mut fixture: Fixture) {
    let mut other_peer = fixture.another_peer().await;
    let other_client = fixture.another_client().await;
    let count = format!("count a counter {THEIR_ADDITIONS}");
    fixture.peer.send(&count);
    other_peer.send(&count);
    tokio::join!(add_repeatedly(&fixture, &fixture.locks), add_repeatedly(&fixture, &other_client));
    assert_eq!(fixture.peer.answer().await, "done");
    assert_eq!(other_peer.answer().await, "done");
    assert_eq!(fixture.number("counter"), Some(2 * OUR_ADDITIONS + 2 * THEIR_ADDITIONS));
}

async fn add_repeatedly(fixture: &Fixture, locks: &lockfast::Locks) {
    for _ in 0..OUR_ADDITIONS {
        let guard = locks.mutex("a").lock().await.unwrap();
        let seen = fixture.number("counter").unwrap_or(0);
        tokio::task::yield_now().await;
        fixture.set_number("counter", seen + 1);
        guard.release().await.unwrap();
    }
}
