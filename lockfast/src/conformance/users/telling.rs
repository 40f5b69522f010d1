//! What people are told, and the end of a client.

use std::time::Duration;

use futures::StreamExt;

use crate::error::{Error, LostWhy};
use crate::event::{EventKind, TraceId};
use crate::store::Counters;

use super::super::Time;
use super::super::place::{Place, promised};
use super::user::soon;

/// Waiting, acquired, released: in this order, with the fence and the trace.
pub async fn events_tell_what_happened(place: &Place) {
    let [one, two, _] = place.three().await;
    let held = promised(one.mutex("a").lock().await);
    let mut events = two.events();
    let (lock, trace) = (two.mutex("a").trace_id(TraceId(42)), TraceId(42));
    let waiter = two.in_line(async move { lock.lock().await }).await;
    one.let_go(held).await;
    let next = waiter.held().await;
    let (fence, owner) = (promised(next.fence()), next.owner());
    two.let_go(next).await;
    let mut told = Vec::new();
    while told.len() < 3 {
        let event = soon(events.next()).await.expect("the client lives");
        if matches!(event.kind, EventKind::Renewed { .. } | EventKind::AtRisk { .. }) {
            continue;
        }
        assert_eq!((event.trace, event.demands[0].name.clone()), (trace, place.name("a")));
        told.push(event);
    }
    assert_eq!(told[0].kind, EventKind::Waiting);
    assert!(matches!(told[1].kind, EventKind::Acquired { .. }), "{:?}", told[1]);
    assert!(matches!(told[2].kind, EventKind::Released { .. }), "{:?}", told[2]);
    for event in &told[1..] {
        assert_eq!((event.fence.map(|it| it.0), event.owner), (Some(fence), Some(owner)));
    }
}

/// Lost, given up, cancelled: each has an event of its own.
pub async fn events_tell_what_went_wrong(place: &Place) {
    let [one, two, _] = place.three().await;
    let mut events = one.events();
    let held = promised(one.mutex("a").hold_at_most(place.brief().mul_f64(0.1)).lock().await);
    place.pass(0.11).await;
    assert_eq!(soon(held.lost()).await, LostWhy::HeldAtMost);
    let mut told = Vec::new();
    while told.len() < 2 {
        told.push(soon(events.next()).await.expect("the client lives").kind);
    }
    assert!(matches!(told[0], EventKind::Acquired { .. }), "{told:?}");
    assert_eq!(told[1], EventKind::Lost { why: LostWhy::HeldAtMost });
    drop(held);

    let held = promised(soon(one.mutex("a").lock()).await);
    let mut events = two.events();
    let lock = two.mutex("a");
    two.in_line(async move { lock.lock().await }).await.cancel().await;
    assert_eq!(soon(events.next()).await.expect("the client lives").kind, EventKind::Waiting);
    while soon(events.next()).await.expect("the client lives").kind != EventKind::Cancelled {}
    one.let_go(held).await;
}

/// A client's own figures.
pub async fn stats_count(place: &Place) {
    let [one, two, _] = place.three().await;
    let held = promised(one.mutex("a").lock().await);
    let lock = two.mutex("a");
    let waiter = two.in_line(async move { lock.lock().await }).await;
    assert_eq!((one.stats().held, one.stats().acquired, two.stats().waiting, two.stats().contended), (1, 1, 1, 1));
    place.pass(0.1).await;
    one.let_go(held).await;
    let next = waiter.held().await;
    let stats = two.stats();
    assert_eq!((stats.held, stats.waiting, stats.acquired, stats.released), (1, 0, 1, 0));
    assert!(stats.wait.max >= place.brief().mul_f64(0.09), "{:?}", stats.wait);
    two.let_go(next).await;
    let lost = promised(two.mutex("b").hold_at_most(place.brief().mul_f64(0.1)).lock().await);
    place.pass(0.11).await;
    soon(lost.lost()).await;
    drop(lost);
    let stats = two.stats();
    assert_eq!((stats.held, stats.acquired, stats.released, stats.lost), (0, 2, 1, 1));
    assert_eq!((one.stats().held, one.stats().released), (0, 1));
}

/// The figures of all clients, added up by the store.
pub async fn fleet_stats_add_up(place: &Place) {
    let [one, two, watcher] = place.three().await;
    let before = watcher.surely(async || watcher.fleet_stats().await).await;
    for (user, times) in [(&one, 2), (&two, 3)] {
        for _ in 0..times {
            let held = promised(user.mutex("a").lock().await);
            user.let_go(held).await;
        }
    }
    for user in [&one, &two] {
        user.surely(async || user.fleet_stats().await).await;
    }
    let after = watcher.surely(async || watcher.fleet_stats().await).await;
    let since = Counters {
        acquired: after.acquired - before.acquired,
        released: after.released - before.released,
        contended: after.contended - before.contended,
        lost: after.lost - before.lost,
    };
    match place.time() {
        Time::Set => assert_eq!((since.acquired, since.released, since.lost), (5, 5, 0)),
        // Others may use the same server.
        Time::Real => assert!(since.acquired >= 5 && since.released >= 5, "{since:?}"),
    }
}

/// A client that is shut down gives back what it has, leaves every line, and lets nobody in.
pub async fn a_shutdown_leaves_nothing(place: &Place) {
    let [one, two, three] = place.three().await;
    let a = promised(one.mutex("a").lock().await);
    let b = promised(two.mutex("b").lock().await);
    let lock = one.mutex("b");
    let waiter = one.in_line(async move { lock.lock().await }).await;
    let (lock, also) = (three.mutex("a"), three.mutex("b"));
    let gets_a = three.in_line(async move { lock.lock().await }).await;
    let gets_b = three.in_line(async move { also.lock().await }).await;
    let limit = Duration::from_secs(20);
    promised(soon(one.shutdown(limit)).await);
    assert_eq!(soon(a.lost()).await, LostWhy::Shutdown);
    assert!(matches!(waiter.ended().await, Err(Error::Closed(_))));
    assert!(matches!(one.mutex("c").lock().await, Err(Error::Closed(_))));
    assert!(matches!(one.mutex("c").try_lock().await, Err(Error::Closed(_))));
    three.let_go(gets_a.held().await).await;
    two.let_go(b).await;
    three.let_go(gets_b.held().await).await;
    drop(a);
    // Said twice, it is done already.
    promised(soon(one.shutdown(limit)).await);
}

/// When the last handle is dropped, what is still held goes on until its guard is dropped, and then nothing is left.
pub async fn a_guard_outlives_the_last_handle(place: &Place) {
    let [one, two, _] = place.three().await;
    let held = promised(two.mutex("a").ttl(place.brief()).lock().await);
    let mut events = two.events();
    place.dismiss(two);
    place.pass(0.4).await;
    while !matches!(soon(events.next()).await.expect("the guard keeps it").kind, EventKind::Renewed { .. }) {}
    assert!(held.check().is_ok());
    assert!(one.surely(async || one.mutex("a").try_lock().await).await.is_none());
    drop(held);
    let next = promised(soon(one.mutex("a").lock()).await);
    one.let_go(next).await;
}
