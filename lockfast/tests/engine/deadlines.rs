//! The keeper notices deadlines, also while it means to sleep for longer. The tests observe them by a callback or a waker, which
//! read no clock; `lost()` and `check()` would read it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures::poll;
use lockfast::store::Ticket;
use lockfast::store::{Admission, BusyWith, Change, Standing, Why};
use lockfast::{Error, Locks, LostWhy};

use crate::fixture::{GRAIN, NEVER, TTL, VALID, hold, on_lost, push, renewed, settle, soon, until};
use crate::script::Director;
use crate::steps::{done, is_same, millis, secs, until_waiting, wants};

/// The keeper has nothing to do, and means to sleep for a second, until its report. So only an explicit wake-up wakes it sooner,
/// and a report that is due already causes none.
async fn asleep(store: &mut Director) {
    assert!(settle(store).await.is_empty());
    store.keeper_sleeps().await;
}

#[tokio::test]
async fn a_renewal_failing_before_the_deadline_does_not_delay_the_loss() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    let mut called = on_lost(&guard);
    store.manual_clock.advance(secs(10));
    let (_, answer) = store.renew().await;
    store.manual_clock.advance(VALID - secs(10) - millis(3));
    answer.lose();
    asleep(&mut store).await;
    assert!(poll!(&mut called).is_pending());
    guard.check().unwrap();
    // Less than the pause before a renewal is tried again.
    store.manual_clock.advance(millis(3) + GRAIN);
    assert_eq!(soon(called).await.unwrap(), LostWhy::Expired);
}

#[tokio::test]
async fn a_callback_for_hold_at_most_runs_on_time() {
    // Before the first renewal, after one, and after two.
    for (most, renewals) in [(secs(5), 0), (secs(35), 1), (secs(45), 2)] {
        let mut store = Director::new();
        let mutex = store.locks.mutex("a").ttl(TTL).hold_at_most(most);
        let (guard, _) = hold(&mut store, &mutex, 7).await;
        let mut called = on_lost(&guard);
        for _ in 0..renewals {
            store.manual_clock.advance(secs(10));
            renewed(&mut store, 7).await;
            asleep(&mut store).await;
        }
        store.manual_clock.advance(most - renewals * secs(10) - millis(3));
        asleep(&mut store).await;
        let polled = poll!(&mut called);
        assert!(polled.is_pending(), "{polled:?} at {most:?}");
        guard.check().unwrap();
        store.manual_clock.advance(millis(3) + GRAIN);
        assert_eq!(soon(called).await.unwrap(), LostWhy::HeldAtMost);
    }
}

#[tokio::test]
async fn a_question_in_flight_does_not_delay_hold_at_most() {
    for fails in [false, true] {
        let mut store = Director::new();
        let mutex = store.locks.mutex("a").ttl(TTL).hold_at_most(secs(5));
        let (guard, claim) = hold(&mut store, &mutex, 7).await;
        let called = on_lost(&guard);
        store.manual_clock.advance(secs(5) - millis(3));
        store.push(Change::Gone(claim.id.hash()));
        let (_, answer) = store.renew().await;
        let _unanswered = if fails {
            answer.lose();
            None
        } else {
            Some(answer)
        };
        asleep(&mut store).await;
        guard.check().unwrap();
        store.manual_clock.advance(millis(3) + GRAIN);
        // Sooner than the keeper stops waiting for the answer, so the wake-up comes from the deadline.
        let why = tokio::time::timeout(secs(3), called).await.expect("the deadline is kept");
        assert_eq!(why.unwrap(), LostWhy::HeldAtMost);
    }
}

/// Whether a future was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn an_earlier_deadline_wakes_the_keeper() {
    let mut store = Director::new();
    asleep(&mut store).await;
    let mutex = store.locks.mutex("a").hold_at_most(millis(100));
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    // Not polled again, which would read the clock, and without a callback, which wakes the keeper when it is set.
    let mut lost = pin!(guard.lost());
    let woken = Arc::new(Woken::default());
    assert!(lost.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&woken)))).is_pending());
    store.manual_clock.advance(millis(100) + GRAIN);
    until(|| woken.0.load(Ordering::SeqCst)).await;
    assert_eq!(lost.await, LostWhy::HeldAtMost);
}

#[tokio::test]
async fn an_earlier_recheck_wakes_the_keeper() {
    let mut store = Director::new();
    asleep(&mut store).await;
    let _waiter = wants(store.locks.mutex("a"));
    let claim = store.queue(7, millis(100)).await;
    until_waiting(&store.locks, 1).await;
    store.manual_clock.advance(millis(101) + GRAIN);
    assert!(is_same(&store.renew().await.0[0].claim, &claim));
}

#[tokio::test]
async fn an_earlier_end_of_patience_wakes_the_keeper() {
    let mut store = Director::new();
    asleep(&mut store).await;
    let mutex = store.locks.mutex("a");
    let caller = tokio::spawn(async move { mutex.lock_within(Duration::ZERO).await });
    let _silent = store.acquire().await;
    store.manual_clock.advance(millis(800));
    let error = soon(caller).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn an_overdue_release_wakes_the_keeper() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    asleep(&mut store).await;
    let mut releasing = pin!(guard.release());
    assert!(poll!(releasing.as_mut()).is_pending());
    let _unanswered = store.release().await;
    store.manual_clock.advance(millis(100) + GRAIN);
    assert!(done(&store.let_go().await).is_some_and(|left| is_same(left, &claim)), "the keeper repeats it");
}

#[tokio::test]
async fn an_id_that_is_out_is_replaced_at_once() {
    let mut store = Director::new();
    asleep(&mut store).await;
    let _caller = wants(store.locks.mutex("a"));
    let (first, _, answer) = store.acquire().await;
    answer.give(Admission::Gone(Why::Unknown));
    let (second, ..) = store.acquire().await;
    assert!(!is_same(&first, &second));
}

#[tokio::test]
async fn a_question_that_failed_is_repeated_after_a_pause() {
    let mut store = Director::new();
    asleep(&mut store).await;
    let mutex = store.locks.mutex("a");
    let mut caller = pin!(mutex.lock());
    assert!(poll!(caller.as_mut()).is_pending());
    let (first, _, answer) = store.acquire().await;
    answer.lose();
    assert!(poll!(caller.as_mut()).is_pending());
    store.manual_clock.advance(millis(100) + GRAIN);
    assert!(is_same(&store.acquire().await.0, &first));
}

#[tokio::test]
async fn an_early_push_with_little_lease_left_is_settled_at_once() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(secs(10));
    let mut caller = pin!(mutex.lock());
    assert!(poll!(caller.as_mut()).is_pending());
    let (claim, _, answer) = store.acquire().await;
    push(&mut store, Change::Held(claim.id.hash(), Ticket(7))).await;
    store.manual_clock.advance(secs(6));
    let _question_of_the_keeper = store.renew().await;
    asleep(&mut store).await;
    answer.give(Admission::Queued { ticket: Ticket(7), position: 1, recheck_in: NEVER });
    assert!(poll!(caller.as_mut()).is_pending());
    renewed(&mut store, 7).await;
    assert_eq!(soon(caller).await.unwrap().fence().unwrap(), 7);
}

#[tokio::test]
async fn a_callback_for_a_lock_that_is_lost_already_runs_at_once() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").hold_at_most(millis(10));
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    let first = on_lost(&guard);
    store.manual_clock.advance(millis(10) + GRAIN);
    assert_eq!(soon(first).await.unwrap(), LostWhy::HeldAtMost);
    asleep(&mut store).await;
    assert_eq!(soon(on_lost(&guard)).await.unwrap(), LostWhy::HeldAtMost);
}

#[tokio::test]
async fn a_loss_that_the_caller_finds_runs_callbacks_at_once() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    let called = on_lost(&guard);
    asleep(&mut store).await;
    let broken = async { store.renew().await.1.give(vec![Standing::Gone(Why::Broken)]) };
    let (extended, ()) = tokio::join!(guard.extend(secs(60)), broken);
    assert!(matches!(extended, Err(Error::Lost { why: LostWhy::Broken, .. })), "{extended:?}");
    assert_eq!(soon(called).await.unwrap(), LostWhy::Broken);
}

#[tokio::test]
async fn an_earlier_report_wakes_the_keeper() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    let caller = tokio::spawn(async move { mutex.try_lock().await });
    let (_, _, answer) = store.acquire().await;
    // It means to sleep until it would ask about the acquire, for longer than a second.
    store.keeper_sleeps().await;
    answer.give(Admission::Refused(BusyWith::default()));
    assert!(soon(caller).await.unwrap().unwrap().is_none());
    store.manual_clock.advance(secs(1) + GRAIN);
    until(|| store.reports() > 0).await;
}

#[tokio::test]
async fn shutting_down_wakes_the_keeper() {
    let mut store = Director::new();
    asleep(&mut store).await;
    soon(store.locks.shutdown(secs(5))).await.unwrap();
}

#[tokio::test]
async fn the_end_of_the_last_handle_wakes_the_keeper() {
    let mut store = Director::new();
    store.keeper_sleeps().await;
    drop(std::mem::replace(&mut store.locks, Locks::in_memory()));
    until(|| !store.is_watched()).await;
}

#[tokio::test]
async fn a_future_that_is_dropped_leaves_no_alarm_behind() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    {
        let mut waits = pin!(mutex.lock_within(secs(60)));
        // First the alarm of its acquire, then that of its patience.
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        store.queue(7, NEVER).await;
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drop(waker);
    assert_eq!(Arc::strong_count(&woken), 1);
}
