//! What a client can inspect, what an operator can break, and what is refused.

use std::time::Duration;

use crate::error::{Error, LostWhy};
use crate::name::Name;
use crate::store::Resource;

use super::super::fixture::{Fixture, expect_supported};
use super::user::{User, soon};

/// A listing of at least `min_count` names: claims are listed only after they have been held for a while.
async fn wait_until_listed(fixture: &Fixture, user: &User, prefix: &str, min_count: usize) -> Vec<Resource> {
    for _ in 0..100 {
        let resources = user.retry(async || user.inspect(prefix).await).await;
        if resources.len() >= min_count {
            return resources;
        }
        fixture.advance(Duration::from_millis(100)).await;
        fixture.let_clients_settle().await;
    }
    panic!("a lock that is held for seconds is not listed");
}

/// Any client can read the holder, the number of waiters, and since when the lock is held.
pub async fn a_queue_can_be_inspected(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    assert!(!three.retry(async || three.mutex("a").is_locked().await).await);
    assert_eq!(three.retry(async || three.mutex("a").info().await).await, None);
    let held = expect_supported(one.mutex("a").label("job", "42").lock().await);
    let lock = two.mutex("a");
    let waiter = two.enqueue(async move { lock.lock().await }).await;
    assert!(three.retry(async || three.mutex("a").is_locked().await).await);
    let seen = three.retry(async || three.mutex("a").info().await).await.expect("one claim holds");
    assert_eq!(seen.name.as_str(), "a");
    let holder = seen.holders().next().expect("one holds");
    assert_eq!((holder.owner, holder.tickets.first.0), (held.owner(), expect_supported(held.fence())));
    assert_eq!(holder.note.labels, [("job".to_owned(), "42".to_owned())]);
    assert_eq!((holder.note.pid, seen.waiters().count()), (std::process::id(), 1));
    one.release(held).await;
    let next = waiter.expect_held().await;
    assert_eq!(
        wait_until_listed(fixture, &three, "", 1).await[0].holders().next().map(|it| it.owner),
        Some(next.owner())
    );
    two.release(next).await;
}

/// Names under different prefixes are independent, and are shown as they were written under the prefix.
pub async fn prefixes_keep_names_apart(fixture: &Fixture) {
    let within = |room: &str| format!("{}{room}", fixture.prefix());
    let one = fixture.user_with(|builder| builder.prefix(within("one:"))).await;
    let two = fixture.user_with(|builder| builder.prefix(within("two:"))).await;
    let all = fixture.user().await;
    let (in_one, in_two) =
        (expect_supported(one.mutex("a").lock().await), expect_supported(two.mutex("a").lock().await));
    assert_eq!(in_one.names().collect::<Vec<_>>(), ["a"]);
    let shown = |resources: Vec<Resource>| resources.iter().map(|it| it.name.to_string()).collect::<Vec<_>>();
    assert_eq!(shown(wait_until_listed(fixture, &one, "", 1).await), ["a"]);
    assert_eq!(shown(wait_until_listed(fixture, &all, "", 2).await), ["one:a", "two:a"]);
    assert_eq!(shown(wait_until_listed(fixture, &all, "two", 1).await), ["two:a"]);
    assert!(all.retry(async || all.mutex("one:a").try_lock().await).await.is_none());
    one.release(in_one).await;
    let same = expect_supported(soon(all.mutex("one:a").lock()).await);
    assert!(one.retry(async || one.mutex("a").is_locked().await).await);
    all.release(same).await;
    two.release(in_two).await;
}

/// Any text up to the maximum length is a name, and is shown as it was written.
pub async fn odd_names_are_locked_and_shown(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let (long, wide) = ("n".repeat(Name::LONGEST), "🔒".repeat(Name::LONGEST / 4));
    let names = ["a}b", "{}x", "{a}", "a/b", "a/", "/", " ", "*", "'", "\\", "é", "钥匙", "\0", "\r\n", &long, &wide];
    let mut guards = Vec::new();
    for name in names {
        let guard = expect_supported(soon(one.mutex(name).lock()).await);
        assert_eq!(guard.names().collect::<Vec<_>>(), [name]);
        guards.push(guard);
    }
    for (name, guard) in names.iter().zip(guards) {
        assert!(two.retry(async || two.mutex(name).try_lock().await).await.is_none());
        let seen = two.retry(async || two.mutex(name).info().await).await.expect("it is held");
        assert_eq!(seen.name.as_str(), *name);
        one.release(guard).await;
    }
    for name in ["", &"n".repeat(Name::LONGEST + 1)] {
        assert!(matches!(one.mutex(name).lock().await, Err(Error::Invalid(_))));
    }
}

/// A broken holder is notified, and keeps its entry until it has left.
pub async fn a_broken_lock_is_handed_off_once_its_holder_left(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").lock().await);
    let fence = expect_supported(held.fence());
    let lock = two.mutex("a");
    let waiter = two.enqueue(async move { lock.lock().await }).await;
    assert!(three.retry(async || three.break_lock("a", fence).await).await);
    assert_eq!(soon(held.lost()).await, LostWhy::Broken);
    assert!(matches!(held.check(), Err(Error::Lost { why: LostWhy::Broken, .. })));
    let seen = three.retry(async || three.mutex("a").info().await).await.expect("two claims are in the queue");
    let holder = seen.holders().next().expect("its entry is kept");
    assert!(holder.broken && holder.tickets.first.0 == fence && !waiter.is_over(), "{seen:?}");
    drop(held);
    two.release(waiter.expect_held().await).await;
}

/// A lock that is broken at once is handed off while its old holder still has a guard.
pub async fn a_lock_broken_at_once_is_handed_off(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").lock().await);
    let fence = expect_supported(held.fence());
    let lock = two.mutex("a");
    let waiter = two.enqueue(async move { lock.lock().await }).await;
    let was_there = three.retry(async || three.break_lock_now("a", fence).await).await;
    // A repeated break finds no claim any more.
    assert!(was_there || !fixture.is_reliable());
    let next = waiter.expect_held().await;
    assert!(expect_supported(next.fence()) > fence);
    assert_eq!(soon(held.lost()).await, LostWhy::Broken);
    drop(held);
    assert!(next.check().is_ok());
    assert!(three.retry(async || three.mutex("a").try_lock().await).await.is_none());
    two.release(next).await;
}

/// A break with another fence than the holder's has no effect.
pub async fn a_wrong_fence_breaks_nothing(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").lock().await);
    let fence = expect_supported(held.fence());
    for wrong in [0, 1, fence - 1, fence + 1, u64::MAX] {
        assert!(!two.retry(async || two.break_lock("a", wrong).await).await);
        assert!(!two.retry(async || two.break_lock_now("a", wrong).await).await);
    }
    assert!(!two.retry(async || two.break_lock_now("b", fence).await).await);
    assert!(two.retry(async || two.mutex("a").is_locked().await).await);
    one.retry(async || held.extend(fixture.brief_ttl()).await).await;
    one.release(held).await;
}

/// A claim with another number of permits is refused and leaves nothing behind; once the queue is empty, the number may
/// change.
pub async fn disagreement_about_permits_is_refused(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let held = expect_supported(one.semaphore("a", 3).acquire().await);
    for permits in [1, 2, 4] {
        let refused = soon(two.semaphore("a", permits).acquire()).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    assert!(matches!(soon(two.mutex("a").lock()).await, Err(Error::Invalid(_))));
    assert!(matches!(two.semaphore("a", 3).acquire_many(4).await, Err(Error::Invalid(_))));
    let seen = two.retry(async || two.semaphore("a", 3).info().await).await.expect("one permit is taken");
    assert_eq!((seen.capacity, seen.queue.len()), (3, 1));
    one.release(held).await;
    // A release whose reply got lost may still be in flight.
    while !fixture.is_reliable() && fixture.inspect(&fixture.name("a")).await.is_some() {
        tokio::task::yield_now().await;
    }
    let five = expect_supported(soon(two.semaphore("a", 5).acquire_many(5)).await);
    two.release(five).await;
}
