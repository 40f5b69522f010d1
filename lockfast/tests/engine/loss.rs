//! When a lock is lost, how guard and callbacks learn of it, and how soon. An unknown outcome is no loss; the deadline and the
//! store's own answer are.

use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures::{StreamExt, poll};
use lockfast::store::{Change, Leaving, Standing, Why};
use lockfast::store::{Ticket, Tickets};
use lockfast::{Error, EventKind, Events, Guard, LostWhy};
use tokio::sync::oneshot;

use crate::fixture::{
    GRAIN, TTL, VALID, hold, must_not_block, on_lost, push, renewed, settle, soon, stop_keeper, until,
};
use crate::script::{Call, Director};

const SECOND: Duration = Duration::from_secs(1);

async fn next(events: &mut Events) -> EventKind {
    soon(events.next()).await.unwrap().kind
}

#[tokio::test]
async fn a_renewal_that_failed_is_tried_again_and_nothing_is_lost() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    let mut events = store.locks.events();
    let mut lost = pin!(guard.lost());
    assert!(poll!(lost.as_mut()).is_pending());
    store.manual_clock.advance(10 * SECOND);
    for _ in 0..5 {
        let (leases, answer) = store.renew().await;
        assert_eq!(leases[0].claim.id.hash(), claim.id.hash());
        let remaining = guard.remaining();
        answer.lose();
        let EventKind::AtRisk { remaining: said, cause } = next(&mut events).await else { panic!("it is at risk") };
        assert_eq!(said, remaining);
        assert!(!cause.is_empty());
        assert!(poll!(lost.as_mut()).is_pending());
        guard.check().unwrap();
        store.manual_clock.advance(3 * SECOND);
    }
    renewed(&mut store, 7).await;
    assert!(matches!(next(&mut events).await, EventKind::Renewed { .. }));
    assert!(poll!(lost.as_mut()).is_pending());
    assert_eq!(guard.remaining(), VALID);
}

#[tokio::test]
async fn a_renewal_that_never_returns_loses_the_lock_at_the_deadline() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    let mut called = on_lost(&guard);
    store.manual_clock.advance(10 * SECOND);
    let never = store.renew().await;
    store.manual_clock.advance(VALID - 10 * SECOND - Duration::from_nanos(1));
    settle(&mut store).await;
    assert!(poll!(&mut called).is_pending());
    guard.check().unwrap();
    store.manual_clock.advance(GRAIN);
    // Sooner than the keeper stops waiting for the answer, so the wake-up comes from the deadline.
    let why = tokio::time::timeout(Duration::from_secs(3), called).await.expect("the deadline is kept");
    assert_eq!(why.unwrap(), LostWhy::Expired);
    assert_eq!(store.locks.stats().lost, 1);
    drop(never);
}

#[tokio::test]
async fn a_claim_that_the_store_says_is_gone_is_lost_at_once() {
    let reasons = [
        (Why::Unknown, LostWhy::Evicted),
        (Why::Left, LostWhy::Evicted),
        (Why::Broken, LostWhy::Broken),
        (Why::Expired, LostWhy::Expired),
    ];
    for (gone, why) in reasons {
        let mut store = Director::new();
        let mutex = store.locks.mutex("a").ttl(TTL);
        let (guard, _) = hold(&mut store, &mutex, 7).await;
        let called = on_lost(&guard);
        store.manual_clock.advance(10 * SECOND);
        store.renew().await.1.give(vec![Standing::Gone(gone)]);
        assert_eq!(soon(guard.lost()).await, why);
        assert_eq!(soon(called).await.unwrap(), why);
        assert!(matches!(guard.check(), Err(Error::Lost { why: said, .. }) if said == why));
    }
}

#[tokio::test]
async fn a_push_that_a_claim_is_gone_is_a_hint_to_ask() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    let mut called = on_lost(&guard);
    store.push(Change::Gone(claim.id.hash()));
    guard.check().unwrap();
    renewed(&mut store, 7).await;
    settle(&mut store).await;
    guard.check().unwrap();
    assert!(poll!(&mut called).is_pending());

    store.push(Change::Gone(claim.id.hash()));
    store.renew().await.1.give(vec![Standing::Gone(Why::Broken)]);
    assert_eq!(soon(called).await.unwrap(), LostWhy::Broken);
}

#[tokio::test]
async fn a_hint_during_a_renewal_leads_to_another_renewal() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    store.manual_clock.advance(10 * SECOND);
    let (_, answer) = store.renew().await;
    push(&mut store, Change::Gone(claim.id.hash())).await;
    answer.give(vec![Standing::Held(Tickets::new(Ticket(7), 1))]);
    store.renew().await.1.give(vec![Standing::Gone(Why::Broken)]);
    assert_eq!(soon(guard.lost()).await, LostWhy::Broken);
}

#[tokio::test]
async fn a_panic_in_a_callback_stops_no_renewals() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL).hold_at_most(SECOND);
    let (short, _) = hold(&mut store, &mutex, 7).await;
    let mutex = store.locks.mutex("b").ttl(TTL);
    let (long, claim) = hold(&mut store, &mutex, 8).await;
    short.on_lost(|_| panic!("a user's callback"));
    let called = on_lost(&short);
    store.manual_clock.advance(2 * SECOND);
    assert_eq!(soon(called).await.unwrap(), LostWhy::HeldAtMost);
    store.manual_clock.advance(8 * SECOND);
    let (leases, _) = store.renew().await;
    assert_eq!(leases[0].claim.id.hash(), claim.id.hash());
    long.check().unwrap();
}

/// A waker that owns a guard.
struct Owns(#[expect(dead_code, reason = "only its drop matters")] Mutex<Option<Guard>>);

impl Wake for Owns {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn callbacks_and_wakers_may_drop_guards_inside_the_client() {
    must_not_block(async {
        let mut store = Director::new();
        let mut guards = Vec::new();
        for number in 0..6 {
            let mutex = store.locks.mutex(number.to_string()).ttl(TTL);
            guards.push(hold(&mut store, &mutex, 7 + number).await.0);
        }
        let mut take = || guards.pop().unwrap();
        let owning = |guard| Waker::from(Arc::new(Owns(Mutex::new(Some(guard)))));
        // A callback that is dropped unused, with its guard.
        let (released, in_callback) = (take(), take());
        released.on_lost(move |_| drop(in_callback));
        drop(released);
        // The waker of a dropped `lost()`.
        let (watched, waker) = (take(), owning(take()));
        assert!(pin!(watched.lost()).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        drop(watched);
        // The waker of a waiting `lock()`, replaced by another.
        let waker = owning(take());
        let mutex = store.locks.mutex("0").ttl(TTL);
        let mut waits = pin!(mutex.lock());
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let mut left = 0;
        while left < 5 {
            left += store.let_go().await.len();
        }
    });
}

#[tokio::test]
async fn waiting_for_the_loss_again_and_again_leaves_nothing_behind() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    let watcher = Arc::new(Owns(Mutex::new(None)));
    for _ in 0..100 {
        let waker = Waker::from(Arc::clone(&watcher));
        assert!(pin!(guard.lost()).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(Arc::strong_count(&watcher), 1, "the waker of a dropped future is not kept");
}

#[tokio::test]
async fn work_is_stopped_when_the_lock_is_lost() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (began, begins) = oneshot::channel();
    let (stopped, stops) = oneshot::channel::<()>();
    let work = tokio::spawn(async move {
        let work = async |_: &Guard| {
            let _stopped_with_this = stopped;
            began.send(()).unwrap();
            std::future::pending::<()>().await;
        };
        mutex.with(work).await
    });
    let claim = store.grant(7).await;
    soon(begins).await.unwrap();
    store.manual_clock.advance(TTL);
    assert!(soon(stops).await.is_err());
    let left = store.let_go().await;
    assert!(matches!(&left[..], [Leaving::Done(gone)] if gone.id.hash() == claim.id.hash()));
    assert!(matches!(soon(work).await.unwrap(), Err(Error::Lost { why: LostWhy::Expired, .. })));
}

#[tokio::test]
async fn releasing_a_lost_lock_is_an_error_and_still_reaches_the_store() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    store.manual_clock.advance(TTL);
    let (released, left) = tokio::join!(guard.release(), store.let_go());
    assert!(matches!(released, Err(Error::Lost { why: LostWhy::Expired, .. })));
    assert!(matches!(&left[..], [Leaving::Done(gone)] if gone.id.hash() == claim.id.hash()));
}

#[tokio::test]
async fn releasing_a_claim_unknown_to_the_store_is_a_loss() {
    let reasons = [(Why::Broken, LostWhy::Broken), (Why::Expired, LostWhy::Expired), (Why::Unknown, LostWhy::Evicted)];
    for (gone, why) in reasons {
        let mut store = Director::new();
        let mutex = store.locks.mutex("a").ttl(TTL);
        let (guard, _) = hold(&mut store, &mutex, 7).await;
        let answer = async { store.release().await.1.give(vec![Standing::Gone(gone)]) };
        let (released, ()) = tokio::join!(guard.release(), answer);
        assert!(matches!(released, Err(Error::Lost { why: said, .. }) if said == why));
    }
}

#[tokio::test]
async fn renewals_go_on_while_the_runtime_is_blocked() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (go_on, blocked) = mpsc::channel::<()>();
    let user = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let guard = mutex.lock().await.unwrap();
            blocked.recv().unwrap();
            guard.check()
        })
    });
    store.grant(7).await;
    // Until it has entered, the clock stands still: the holder gets the whole lease.
    until(|| store.locks.stats().held == 1).await;
    for _ in 0..5 {
        store.manual_clock.advance(10 * SECOND);
        renewed(&mut store, 7).await;
        assert!(!settle(&mut store).await.iter().any(|call| matches!(call, Call::Release { .. })));
    }
    go_on.send(()).unwrap();
    user.join().unwrap().unwrap();
}

#[tokio::test]
async fn a_failed_question_about_an_unrenewed_lease_is_repeated() {
    let mut store = Director::new();
    let mutex = |name| store.locks.mutex(name).ttl(TTL);
    for mutex in [mutex("a").no_renewal(), mutex("b").hold_at_most(20 * SECOND)] {
        let (guard, claim) = hold(&mut store, &mutex, 7).await;
        store.push(Change::Gone(claim.id.hash()));
        for _ in 0..3 {
            let (leases, answer) = store.renew().await;
            assert_eq!((leases[0].claim.id.hash(), leases[0].ttl), (claim.id.hash(), Duration::ZERO));
            answer.lose();
            assert!(settle(&mut store).await.is_empty(), "it is asked again, but not at once");
            store.manual_clock.advance(SECOND);
        }
        guard.check().unwrap();
        store.renew().await.1.give(vec![Standing::Gone(Why::Broken)]);
        assert_eq!(soon(guard.lost()).await, LostWhy::Broken);
        drop(guard);
        store.let_go().await;
    }
}

#[tokio::test]
async fn a_callback_may_not_wait_for_a_lock() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL).hold_at_most(SECOND);
    let (short, _) = hold(&mut store, &mutex, 7).await;
    let mutex = store.locks.mutex("b").ttl(TTL);
    let (long, claim) = hold(&mut store, &mutex, 8).await;
    let blocking = lockfast::blocking::Locks::from(store.locks.clone());
    let (send, results) = oneshot::channel();
    short.on_lost(move |_| {
        let mutex = blocking.mutex("c");
        let tried = mutex.try_lock().map(drop);
        send.send([mutex.lock().map(drop), mutex.lock_within(SECOND).map(drop), tried]).unwrap();
    });
    store.manual_clock.advance(2 * SECOND);
    for refused in soon(results).await.unwrap() {
        assert!(matches!(&refused, Err(Error::Invalid(why)) if why.contains("on_lost")), "{refused:?}");
    }
    store.manual_clock.advance(8 * SECOND);
    let (leases, _) = store.renew().await;
    assert_eq!(leases[0].claim.id.hash(), claim.id.hash());
    long.check().unwrap();
}

#[tokio::test]
async fn a_lost_lock_does_not_linger() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL).hold_at_least(3600 * SECOND);
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    store.manual_clock.advance(TTL);
    drop(guard);
    let left = store.let_go().await;
    assert!(matches!(&left[..], [Leaving::Done(gone)] if gone.id.hash() == claim.id.hash()), "{left:?}");
}

#[tokio::test]
async fn a_renewal_that_hangs_is_given_up_in_time_for_another() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(2 * SECOND);
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    let mut events = store.locks.events();
    store.manual_clock.advance(SECOND);
    let _hangs = store.renew().await;
    // A quarter of the lease, by the keeper's own timer; a call may take ten seconds otherwise.
    let event = tokio::time::timeout(5 * SECOND, next(&mut events)).await.expect("it is given up in time");
    assert!(matches!(event, EventKind::AtRisk { .. }), "{event:?}");
    store.manual_clock.advance(SECOND / 2);
    let (leases, answer) = store.renew().await;
    assert_eq!(leases[0].claim.id.hash(), claim.id.hash());
    answer.give(vec![Standing::Held(Tickets::new(Ticket(7), 1))]);
    settle(&mut store).await;
    guard.check().unwrap();
}

#[tokio::test]
async fn a_callback_runs_when_the_guard_ends_before_the_keeper_looks() {
    let mut store = Director::new();
    let mutexes = ["a", "b"].map(|name| store.locks.mutex(name).hold_at_most(SECOND));
    let (dropped, _) = hold(&mut store, &mutexes[0], 7).await;
    let (released, _) = hold(&mut store, &mutexes[1], 8).await;
    let calls = [on_lost(&dropped), on_lost(&released)];
    let stopped = stop_keeper(&mut store).await;
    store.manual_clock.advance(SECOND);
    drop(dropped);
    let (lost, _) = tokio::join!(released.release(), store.let_go());
    assert!(matches!(lost, Err(Error::Lost { why: LostWhy::HeldAtMost, .. })), "{lost:?}");
    let _stop = stopped.go_on();
    for call in calls {
        assert_eq!(soon(call).await, Ok(LostWhy::HeldAtMost));
    }
}
