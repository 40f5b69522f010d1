//! On what terms a lock is held, and what somebody hears who does not get it.

use std::time::Duration;

use futures::StreamExt;

use crate::client::Retry;
use crate::error::{Error, LostWhy};
use crate::event::EventKind;

use super::super::place::{Place, promised};
use super::user::soon;

/// A lock is renewed for as long as it is held.
pub async fn a_held_lock_outlives_its_lease(place: &Place) {
    let [one, two, _] = place.three().await;
    let held = promised(one.mutex("a").ttl(place.brief()).lock().await);
    let mut events = one.events();
    for _ in 0..4 {
        place.pass(0.4).await;
        while !matches!(soon(events.next()).await.expect("the client lives").kind, EventKind::Renewed { .. }) {}
    }
    assert!(held.check().is_ok());
    assert!(two.surely(async || two.mutex("a").try_lock().await).await.is_none());
    one.let_go(held).await;
}

/// Without renewal it is lost when the lease ends.
pub async fn without_renewal_a_lock_ends_with_its_lease(place: &Place) {
    let [one, two, _] = place.three().await;
    let held = promised(one.mutex("a").ttl(place.brief()).no_renewal().lock().await);
    assert!(held.remaining() <= place.brief());
    place.pass(1.0).await;
    assert_eq!(soon(held.lost()).await, LostWhy::Expired);
    assert_eq!(held.remaining(), Duration::ZERO);
    let next = promised(soon(two.mutex("a").lock()).await);
    assert!(matches!(held.release().await, Err(Error::Lost { why: LostWhy::Expired, .. })));
    two.let_go(next).await;
}

/// What a guard believes, the store believes for longer.
pub async fn a_guard_trusts_its_lease_less_than_the_store_does(place: &Place) {
    let [one, two, _] = place.three().await;
    let held = promised(one.mutex("a").ttl(place.brief()).lock().await);
    let mut events = one.events();
    for _ in 0..3 {
        // Order matters: the lease may be renewed in between, and then the store's end of it moves on.
        let believed = place.clock().now() + held.remaining();
        let seen = two.surely(async || two.mutex("a").info().await).await.expect("it is held");
        let kept = place.clock().now() + seen.holders().next().expect("it is held").expires_in;
        assert!(believed < kept, "{believed:?} is not before {kept:?}");
        place.pass(0.4).await;
        while !matches!(soon(events.next()).await.expect("the client lives").kind, EventKind::Renewed { .. }) {}
    }
    one.let_go(held).await;
}

/// The lock does not stand free until the waiter's next renewal.
pub async fn a_waiter_enters_when_a_lingering_lock_ends(place: &Place) {
    let [one, two, _] = place.three().await;
    let ttl = place.brief() * 60;
    let held = promised(one.mutex("a").ttl(ttl).hold_at_least(place.brief()).lock().await);
    let waiter = two.mutex("a").ttl(ttl);
    let entering = two.in_line(async move { waiter.lock().await }).await;
    one.let_go(held).await;
    // Its renewal would come after 20.
    let entered = place.held_within(10.0, entering).await;
    two.let_go(entered).await;
}

/// Extending makes sure of at least so much, and takes nothing away.
pub async fn an_extended_lock_lasts(place: &Place) {
    let [one, two, _] = place.three().await;
    let held = promised(one.mutex("a").ttl(place.brief()).no_renewal().lock().await);
    let until = place.clock().now() + place.brief() * 3;
    one.surely(async || held.extend(place.brief() * 3).await).await;
    assert!(place.clock().now() + held.remaining() >= until, "{:?}", held.remaining());
    one.surely(async || held.extend(Duration::from_millis(1)).await).await;
    assert!(place.clock().now() + held.remaining() >= until, "{:?}", held.remaining());
    place.pass(1.5).await;
    assert!(held.check().is_ok());
    assert!(two.surely(async || two.mutex("a").try_lock().await).await.is_none());
    assert!(matches!(held.extend(Duration::ZERO).await, Err(Error::Invalid(_))));
    one.let_go(held).await;
}

/// Released early, it stays locked for as long as was asked for, and is free then.
pub async fn hold_at_least_lingers(place: &Place) {
    let [one, two, _] = place.three().await;
    let lock = one.mutex("a").hold_at_least(place.brief());
    let held = promised(lock.lock().await);
    one.let_go(held).await;
    assert!(two.surely(async || two.mutex("a").try_lock().await).await.is_none());
    place.pass(1.1).await;
    let next = promised(soon(two.mutex("a").lock()).await);
    two.let_go(next).await;
}

/// Held for longer than was asked for, it does not linger.
pub async fn what_was_held_long_enough_does_not_linger(place: &Place) {
    let [one, two, _] = place.three().await;
    let held = promised(one.mutex("a").hold_at_least(place.brief().mul_f64(0.2)).lock().await);
    place.pass(0.3).await;
    one.let_go(held).await;
    let next = promised(soon(two.mutex("a").lock()).await);
    two.let_go(next).await;
}

/// It is lost after so long, renewed or not.
pub async fn hold_at_most_loses(place: &Place) {
    let [one, two, _] = place.three().await;
    let held = promised(one.mutex("a").hold_at_most(place.brief().mul_f64(0.3)).lock().await);
    assert!(held.check().is_ok());
    place.pass(0.31).await;
    assert_eq!(soon(held.lost()).await, LostWhy::HeldAtMost);
    assert!(matches!(held.check(), Err(Error::Lost { why: LostWhy::HeldAtMost, .. })));
    drop(held);
    let next = promised(soon(two.mutex("a").lock()).await);
    two.let_go(next).await;
}

/// Work under a lock is stopped when the lock is lost, and whoever asked to be told is told.
pub async fn work_stops_when_its_lock_is_lost(place: &Place) {
    let [one, two, _] = place.three().await;
    let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let lock = one.mutex("a").hold_at_most(place.brief().mul_f64(0.2));
    let work = lock.with(async |held| {
        held.on_lost(move |why| told.send(why).expect("the case listens"));
        place.pass(0.21).await;
        std::future::pending::<()>().await;
    });
    assert!(matches!(soon(work).await, Err(Error::Lost { why: LostWhy::HeldAtMost, .. })));
    assert_eq!(soon(hears.recv()).await, Some(LostWhy::HeldAtMost));
    match soon(two.mutex("a").with(async |held| held.check().is_ok())).await {
        // The departure was sent twice, and the answer to the second time is that there is nobody.
        Err(Error::Lost { .. }) if !place.is_exact() => {}
        done => assert!(promised(done)),
    }
}

/// Asked once, a lock is there or it is not.
pub async fn try_lock_says_no_at_once(place: &Place) {
    let [one, two, _] = place.three().await;
    let held = promised(one.mutex("a").try_lock().await).expect("it is free");
    for _ in 0..3 {
        assert!(promised(two.mutex("a").try_lock().await).is_none());
        assert!(promised(two.rwlock("a").try_read().await).is_none());
    }
    one.let_go(held).await;
    let next = promised(two.mutex("a").try_lock().await).expect("nobody is in line");
    assert!(promised(one.mutex("a").try_lock().await).is_none());
    two.let_go(next).await;
}

/// Whoever gave up waiting hears who has it, for how long already, and how many were ahead.
pub async fn giving_up_names_the_holder(place: &Place) {
    let one = place.user_with(|builder| builder.note("the first").label("job", "42")).await;
    let (two, three) = (place.user().await, place.user().await);
    let held = promised(one.mutex("a").lock().await);
    place.pass(0.5).await;
    let lock = two.mutex("a");
    let second = two.in_line(async move { lock.lock().await }).await;
    let (lock, patience) = (three.mutex("a"), place.brief().mul_f64(0.2));
    let third = three.in_line(async move { lock.lock_within(patience).await }).await;
    place.pass(0.21).await;
    match third.ended().await {
        Err(Error::Busy { name, holder, held_for, position, waited, attempts, .. }) => {
            let holder = holder.expect("the store knows who holds");
            assert_eq!((name.as_str(), holder.fence.0, holder.owner), ("a", promised(held.fence()), held.owner()));
            assert_eq!(holder.note.text.as_deref(), Some("the first"));
            assert_eq!(holder.note.labels, [("job".to_owned(), "42".to_owned())]);
            assert!(held_for.is_some_and(|span| span >= place.brief().mul_f64(0.6)), "{held_for:?}");
            assert_eq!((position, attempts), (Some(2), 1));
            assert!(waited >= patience, "{waited:?}");
        }
        other => panic!("patience ended, and the answer was {other:?}"),
    }
    one.let_go(held).await;
    two.let_go(second.held().await).await;
}

/// A caller with a retry policy makes a whole pause before each attempt, is told how many it made, and has no entry in the queue in
/// between.
pub async fn attempts_are_counted(place: &Place) {
    let [one, two, _] = place.three().await;
    let held = promised(one.mutex("a").lock().await);
    let pause = Duration::from_millis(20);
    let lock = two.mutex("a").retry(Retry { count: Some(2), base: pause, max: pause, jitter: false });
    let asking = two.asking(async move { lock.lock().await });
    while !asking.is_over() {
        place.pass_time(pause).await;
        place.let_others_work().await;
    }
    match asking.ended().await {
        Err(Error::Busy { attempts: 3, holder: Some(holder), waited, .. }) => {
            assert_eq!(holder.owner, held.owner());
            assert!(waited >= pause * 2, "two pauses took {waited:?}");
        }
        other => panic!("three attempts, and the answer was {other:?}"),
    }
    one.let_go(held).await;
}
