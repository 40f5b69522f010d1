//! The terms of a lock (TTL, `hold_at_least`, `hold_at_most`, patience, attempts), and the errors of acquisitions that
//! fail.

use std::time::Duration;

use futures::StreamExt;

use crate::client::Retry;
use crate::error::{Error, LostWhy};
use crate::event::EventKind;

use super::super::fixture::{Fixture, expect_supported};
use super::user::soon;

/// A lock is renewed for as long as it is held.
pub async fn a_held_lock_outlives_its_lease(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").ttl(fixture.brief_ttl()).lock().await);
    let mut events = one.events();
    for _ in 0..4 {
        fixture.advance_brief_ttls(0.4).await;
        while !matches!(soon(events.next()).await.expect("the client lives").kind, EventKind::Renewed { .. }) {}
    }
    assert!(held.check().is_ok());
    assert!(two.retry(async || two.mutex("a").try_lock().await).await.is_none());
    one.release(held).await;
}

/// Without renewal, a lock is lost when its lease ends.
pub async fn without_renewal_a_lock_ends_with_its_lease(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").ttl(fixture.brief_ttl()).no_renewal().lock().await);
    assert!(held.remaining() <= fixture.brief_ttl());
    fixture.advance_brief_ttls(1.0).await;
    assert_eq!(soon(held.lost()).await, LostWhy::Expired);
    assert_eq!(held.remaining(), Duration::ZERO);
    let next = expect_supported(soon(two.mutex("a").lock()).await);
    assert!(matches!(held.release().await, Err(Error::Lost { why: LostWhy::Expired, .. })));
    two.release(next).await;
}

/// A guard takes its lease for over before the store does.
pub async fn a_guard_ends_before_its_lease_in_the_store(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").ttl(fixture.brief_ttl()).lock().await);
    let mut events = one.events();
    for _ in 0..3 {
        // Order matters: the lease may be renewed in between, which moves its end in the store.
        let believed = fixture.clock().now() + held.remaining();
        let seen = two.retry(async || two.mutex("a").info().await).await.expect("it is held");
        let kept = fixture.clock().now() + seen.holders().next().expect("it is held").expires_in;
        assert!(believed < kept, "{believed:?} is not before {kept:?}");
        fixture.advance_brief_ttls(0.4).await;
        while !matches!(soon(events.next()).await.expect("the client lives").kind, EventKind::Renewed { .. }) {}
    }
    one.release(held).await;
}

/// A waiter is granted when a lingering lock ends, not at its next renewal.
pub async fn a_waiter_enters_when_a_lingering_lock_ends(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let ttl = fixture.brief_ttl() * 60;
    let held = expect_supported(one.mutex("a").ttl(ttl).hold_at_least(fixture.brief_ttl()).lock().await);
    let waiter = two.mutex("a").ttl(ttl);
    let entering = two.enqueue(async move { waiter.lock().await }).await;
    one.release(held).await;
    // Its next renewal is due after 20 brief TTLs.
    let entered = fixture.held_within(10.0, entering).await;
    two.release(entered).await;
}

/// `extend` ensures at least the given time, and never shortens the lease.
pub async fn an_extended_lock_lasts(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").ttl(fixture.brief_ttl()).no_renewal().lock().await);
    let until = fixture.clock().now() + fixture.brief_ttl() * 3;
    one.retry(async || held.extend(fixture.brief_ttl() * 3).await).await;
    assert!(fixture.clock().now() + held.remaining() >= until, "{:?}", held.remaining());
    one.retry(async || held.extend(Duration::from_millis(1)).await).await;
    assert!(fixture.clock().now() + held.remaining() >= until, "{:?}", held.remaining());
    fixture.advance_brief_ttls(1.5).await;
    assert!(held.check().is_ok());
    assert!(two.retry(async || two.mutex("a").try_lock().await).await.is_none());
    assert!(matches!(held.extend(Duration::ZERO).await, Err(Error::Invalid(_))));
    one.release(held).await;
}

/// A lock that is released before `hold_at_least` stays locked until then, and is free after it.
pub async fn hold_at_least_lingers(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let lock = one.mutex("a").hold_at_least(fixture.brief_ttl());
    let held = expect_supported(lock.lock().await);
    one.release(held).await;
    assert!(two.retry(async || two.mutex("a").try_lock().await).await.is_none());
    fixture.advance_brief_ttls(1.1).await;
    let next = expect_supported(soon(two.mutex("a").lock()).await);
    two.release(next).await;
}

/// A lock that was held for longer than `hold_at_least` does not linger.
pub async fn a_lock_held_long_enough_does_not_linger(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").hold_at_least(fixture.brief_ttl().mul_f64(0.2)).lock().await);
    fixture.advance_brief_ttls(0.3).await;
    one.release(held).await;
    let next = expect_supported(soon(two.mutex("a").lock()).await);
    two.release(next).await;
}

/// A lock is lost after `hold_at_most`, renewed or not.
pub async fn hold_at_most_loses(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").hold_at_most(fixture.brief_ttl().mul_f64(0.3)).lock().await);
    assert!(held.check().is_ok());
    fixture.advance_brief_ttls(0.31).await;
    assert_eq!(soon(held.lost()).await, LostWhy::HeldAtMost);
    assert!(matches!(held.check(), Err(Error::Lost { why: LostWhy::HeldAtMost, .. })));
    drop(held);
    let next = expect_supported(soon(two.mutex("a").lock()).await);
    two.release(next).await;
}

/// Work under a lock is stopped when the lock is lost, and `on_lost` is called.
pub async fn work_stops_when_its_lock_is_lost(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let (sender, mut lost) = tokio::sync::mpsc::unbounded_channel();
    let lock = one.mutex("a").hold_at_most(fixture.brief_ttl().mul_f64(0.2));
    let work = lock.with(async |held| {
        held.on_lost(move |why| sender.send(why).expect("the case receives"));
        fixture.advance_brief_ttls(0.21).await;
        std::future::pending::<()>().await;
    });
    assert!(matches!(soon(work).await, Err(Error::Lost { why: LostWhy::HeldAtMost, .. })));
    assert_eq!(soon(lost.recv()).await, Some(LostWhy::HeldAtMost));
    match soon(two.mutex("a").with(async |held| held.check().is_ok())).await {
        // The release was sent twice, and the second reply is that there is no claim.
        Err(Error::Lost { .. }) if !fixture.is_reliable() => {}
        done => assert!(expect_supported(done)),
    }
}

/// `try_lock` returns at once, with a guard or without.
pub async fn try_lock_says_no_at_once(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").try_lock().await).expect("it is free");
    for _ in 0..3 {
        assert!(expect_supported(two.mutex("a").try_lock().await).is_none());
        assert!(expect_supported(two.rwlock("a").try_read().await).is_none());
    }
    one.release(held).await;
    let next = expect_supported(two.mutex("a").try_lock().await).expect("the queue is empty");
    assert!(expect_supported(one.mutex("a").try_lock().await).is_none());
    two.release(next).await;
}

/// The error of a waiter that gave up names the holder, for how long it has held, and the number of claims ahead.
pub async fn giving_up_names_the_holder(fixture: &Fixture) {
    let one = fixture.user_with(|builder| builder.note("the first").label("job", "42")).await;
    let (two, three) = (fixture.user().await, fixture.user().await);
    let held = expect_supported(one.mutex("a").lock().await);
    fixture.advance_brief_ttls(0.5).await;
    let lock = two.mutex("a");
    let second = two.enqueue(async move { lock.lock().await }).await;
    let (lock, patience) = (three.mutex("a"), fixture.brief_ttl().mul_f64(0.2));
    let third = three.enqueue(async move { lock.lock_within(patience).await }).await;
    fixture.advance_brief_ttls(0.21).await;
    match third.result().await {
        Err(Error::Busy { name, holder, held_for, position, waited, attempts, .. }) => {
            let holder = holder.expect("the store knows the holder");
            assert_eq!(
                (name.as_str(), holder.fence.0, holder.owner),
                ("a", expect_supported(held.fence()), held.owner())
            );
            assert_eq!(holder.note.text.as_deref(), Some("the first"));
            assert_eq!(holder.note.labels, [("job".to_owned(), "42".to_owned())]);
            assert!(held_for.is_some_and(|span| span >= fixture.brief_ttl().mul_f64(0.6)), "{held_for:?}");
            assert_eq!((position, attempts), (Some(2), 1));
            assert!(waited >= patience, "{waited:?}");
        }
        other => panic!("patience ended, and the result was {other:?}"),
    }
    one.release(held).await;
    two.release(second.expect_held().await).await;
}

/// An acquisition with a retry policy makes a whole pause before each attempt, reports the number of attempts, and has
/// no entry in the queue in between.
pub async fn attempts_are_counted(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").lock().await);
    let pause = Duration::from_millis(20);
    let lock = two.mutex("a").retry(Retry { count: Some(2), base: pause, max: pause, jitter: false });
    let request = two.request(async move { lock.lock().await });
    while !request.is_over() {
        fixture.advance(pause).await;
        fixture.let_clients_settle().await;
    }
    match request.result().await {
        Err(Error::Busy { attempts: 3, holder: Some(holder), waited, .. }) => {
            assert_eq!(holder.owner, held.owner());
            assert!(waited >= pause * 2, "two pauses took {waited:?}");
        }
        other => panic!("three attempts, and the reply was {other:?}"),
    }
    one.release(held).await;
}
