//! Both at once.

use crate::scene::Scene;

/// Each of ours and of theirs reads a number and writes it back with one more, so often.
const OURS: u64 = 60;
const THEIRS: u64 = 12;

pub async fn nobody_loses_an_update_of_the_other(mut scene: Scene) {
    let mut other_peer = scene.another_peer().await;
    let other_client = scene.another_client().await;
    let count = format!("count a counter {THEIRS}");
    scene.peer.tell(&count);
    other_peer.tell(&count);
    tokio::join!(add(&scene, &scene.locks), add(&scene, &other_client));
    assert_eq!(scene.peer.hear().await, "done");
    assert_eq!(other_peer.hear().await, "done");
    assert_eq!(scene.number("counter"), Some(2 * OURS + 2 * THEIRS));
}

async fn add(scene: &Scene, locks: &lockfast::Locks) {
    for _ in 0..OURS {
        let guard = locks.mutex("a").lock().await.unwrap();
        let seen = scene.number("counter").unwrap_or(0);
        tokio::task::yield_now().await;
        scene.set_number("counter", seen + 1);
        guard.release().await.unwrap();
    }
}
