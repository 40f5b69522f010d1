//! Events, counters, and the end of a client.

use std::time::Duration;

use futures::StreamExt;

use crate::error::{Error, LostWhy};
use crate::event::{EventKind, TraceId};
use crate::store::Counters;

use super::super::Time;
use super::super::fixture::{Fixture, expect_supported};
use super::user::soon;

/// Waiting, acquired and released are reported in this order, with the fence and the trace.
pub async fn events_of_a_lock_come_in_order(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").lock().await);
    let mut events = two.events();
    let (lock, trace) = (two.mutex("a").trace_id(TraceId(42)), TraceId(42));
    let waiter = two.enqueue(async move { lock.lock().await }).await;
    one.release(held).await;
    let next = waiter.expect_held().await;
    let (fence, owner) = (expect_supported(next.fence()), next.owner());
    two.release(next).await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let event = soon(events.next()).await.expect("the client lives");
        if matches!(event.kind, EventKind::Renewed { .. } | EventKind::AtRisk { .. }) {
            continue;
        }
        assert_eq!((event.trace, event.demands[0].name.clone()), (trace, fixture.name("a")));
        seen.push(event);
    }
    assert_eq!(seen[0].kind, EventKind::Waiting);
    assert!(matches!(seen[1].kind, EventKind::Acquired { .. }), "{:?}", seen[1]);
    assert!(matches!(seen[2].kind, EventKind::Released { .. }), "{:?}", seen[2]);
    for event in &seen[1..] {
        assert_eq!((event.fence.map(|it| it.0), event.owner), (Some(fence), Some(owner)));
    }
}

/// A loss and a cancellation each have an event of their own.
pub async fn losses_and_cancellations_have_events(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let mut events = one.events();
    let held = expect_supported(one.mutex("a").hold_at_most(fixture.brief_ttl().mul_f64(0.1)).lock().await);
    fixture.advance_brief_ttls(0.11).await;
    assert_eq!(soon(held.lost()).await, LostWhy::HeldAtMost);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.push(soon(events.next()).await.expect("the client lives").kind);
    }
    assert!(matches!(seen[0], EventKind::Acquired { .. }), "{seen:?}");
    assert_eq!(seen[1], EventKind::Lost { why: LostWhy::HeldAtMost });
    drop(held);

    let held = expect_supported(soon(one.mutex("a").lock()).await);
    let mut events = two.events();
    let lock = two.mutex("a");
    two.enqueue(async move { lock.lock().await }).await.cancel().await;
    assert_eq!(soon(events.next()).await.expect("the client lives").kind, EventKind::Waiting);
    while soon(events.next()).await.expect("the client lives").kind != EventKind::Cancelled {}
    one.release(held).await;
}

/// A client counts its own holders, waiters, acquisitions, releases, contention and losses.
pub async fn stats_count(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").lock().await);
    let lock = two.mutex("a");
    let waiter = two.enqueue(async move { lock.lock().await }).await;
    assert_eq!((one.stats().held, one.stats().acquired, two.stats().waiting, two.stats().contended), (1, 1, 1, 1));
    fixture.advance_brief_ttls(0.1).await;
    one.release(held).await;
    let next = waiter.expect_held().await;
    let stats = two.stats();
    assert_eq!((stats.held, stats.waiting, stats.acquired, stats.released), (1, 0, 1, 0));
    assert!(stats.wait.max >= fixture.brief_ttl().mul_f64(0.09), "{:?}", stats.wait);
    two.release(next).await;
    let lost = expect_supported(two.mutex("b").hold_at_most(fixture.brief_ttl().mul_f64(0.1)).lock().await);
    fixture.advance_brief_ttls(0.11).await;
    soon(lost.lost()).await;
    drop(lost);
    let stats = two.stats();
    assert_eq!((stats.held, stats.acquired, stats.released, stats.lost), (0, 2, 1, 1));
    assert_eq!((one.stats().held, one.stats().released), (0, 1));
}

/// The store adds up the counters of all clients.
pub async fn fleet_stats_add_up(fixture: &Fixture) {
    let [one, two, watcher] = fixture.three_users().await;
    let before = watcher.retry(async || watcher.fleet_stats().await).await;
    for (user, times) in [(&one, 2), (&two, 3)] {
        for _ in 0..times {
            let held = expect_supported(user.mutex("a").lock().await);
            user.release(held).await;
        }
    }
    for user in [&one, &two] {
        user.retry(async || user.fleet_stats().await).await;
    }
    let after = watcher.retry(async || watcher.fleet_stats().await).await;
    let since = Counters {
        acquired: after.acquired - before.acquired,
        released: after.released - before.released,
        contended: after.contended - before.contended,
        lost: after.lost - before.lost,
    };
    match fixture.time() {
        Time::Set => assert_eq!((since.acquired, since.released, since.lost), (5, 5, 0)),
        // Other tests may use the same server.
        Time::Real => assert!(since.acquired >= 5 && since.released >= 5, "{since:?}"),
    }
}

/// A client that is shut down releases its locks, leaves every queue, and refuses new acquisitions.
pub async fn a_shutdown_leaves_nothing(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let a = expect_supported(one.mutex("a").lock().await);
    let b = expect_supported(two.mutex("b").lock().await);
    let lock = one.mutex("b");
    let waiter = one.enqueue(async move { lock.lock().await }).await;
    let (lock, also) = (three.mutex("a"), three.mutex("b"));
    let gets_a = three.enqueue(async move { lock.lock().await }).await;
    let gets_b = three.enqueue(async move { also.lock().await }).await;
    let limit = Duration::from_secs(20);
    expect_supported(soon(one.shutdown(limit)).await);
    assert_eq!(soon(a.lost()).await, LostWhy::Shutdown);
    assert!(matches!(waiter.result().await, Err(Error::Closed(_))));
    assert!(matches!(one.mutex("c").lock().await, Err(Error::Closed(_))));
    assert!(matches!(one.mutex("c").try_lock().await, Err(Error::Closed(_))));
    three.release(gets_a.expect_held().await).await;
    two.release(b).await;
    three.release(gets_b.expect_held().await).await;
    drop(a);
    // A second shutdown finds nothing to do.
    expect_supported(soon(one.shutdown(limit)).await);
}

/// When the last handle is dropped, a guard stays held and renewed until it is dropped, and then nothing is left.
pub async fn a_guard_outlives_the_last_handle(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let held = expect_supported(two.mutex("a").ttl(fixture.brief_ttl()).lock().await);
    let mut events = two.events();
    fixture.drop_user(two);
    fixture.advance_brief_ttls(0.4).await;
    while !matches!(soon(events.next()).await.expect("the guard keeps it").kind, EventKind::Renewed { .. }) {}
    assert!(held.check().is_ok());
    assert!(one.retry(async || one.mutex("a").try_lock().await).await.is_none());
    drop(held);
    let next = expect_supported(soon(one.mutex("a").lock()).await);
    one.release(next).await;
}
