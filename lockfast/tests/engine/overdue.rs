//! A release whose caller is not polled again: the keeper repeats it, and a release that is sent twice takes effect once.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use futures::poll;
use lockfast::store::{Leaving, Standing, Why};
use lockfast::store::{Ticket, Tickets};
use lockfast::{Error, Locks};

use crate::fixture::{GRAIN, hold, must_not_block, released_and_asked_anew, settle, soon, until};
use crate::script::Director;
use crate::steps::{done, entered, is_same, millis, secs, until_waiting, wants};

const OVERDUE: std::time::Duration = millis(100);

#[tokio::test]
async fn a_release_without_an_answer_is_repeated_once() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(secs(3600));
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    let mut releasing = pin!(guard.release());
    assert!(poll!(releasing.as_mut()).is_pending());
    let (_, _unanswered) = store.release().await;
    store.manual_clock.advance(OVERDUE - GRAIN);
    assert!(settle(&mut store).await.is_empty(), "a slow answer is waited for");
    store.manual_clock.advance(2 * GRAIN);
    assert!(done(&store.let_go().await).is_some_and(|left| is_same(left, &claim)));
    store.manual_clock.advance(secs(5));
    assert!(settle(&mut store).await.is_empty(), "once is enough");
    drop(_unanswered);
}

#[tokio::test]
async fn a_release_that_was_answered_is_not_repeated() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(secs(3600));
    for ticket in 7..9 {
        let (guard, _) = hold(&mut store, &mutex, ticket).await;
        let (released, _) = tokio::join!(guard.release(), store.let_go());
        released.unwrap();
    }
    store.manual_clock.advance(OVERDUE + GRAIN);
    assert!(settle(&mut store).await.is_empty());
}

#[tokio::test]
async fn a_release_that_was_cancelled_is_sent_once_more_not_twice() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(secs(3600));
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    let mut releasing = Box::pin(guard.release());
    assert!(poll!(releasing.as_mut()).is_pending());
    let (_, _unanswered) = store.release().await;
    drop(releasing);
    assert!(done(&store.let_go().await).is_some_and(|left| is_same(left, &claim)));
    store.manual_clock.advance(OVERDUE + GRAIN);
    assert!(settle(&mut store).await.is_empty());
}

#[tokio::test]
async fn a_release_cancelled_after_its_repeat_is_not_sent_again() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(secs(3600));
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    let mut releasing = Box::pin(guard.release());
    assert!(poll!(releasing.as_mut()).is_pending());
    let (_, _unanswered) = store.release().await;
    store.manual_clock.advance(OVERDUE + GRAIN);
    store.let_go().await;
    drop(releasing);
    assert!(settle(&mut store).await.is_empty());
}

/// The caller is answered `own` after the keeper, which repeated the release, was answered `repeated`.
async fn answered_twice(own: Standing, repeated: Standing) -> lockfast::Result<()> {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(secs(3600));
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    let mut releasing = pin!(guard.release());
    assert!(poll!(releasing.as_mut()).is_pending());
    let (_, first) = store.release().await;
    store.manual_clock.advance(OVERDUE + GRAIN);
    let (_, second) = store.release().await;
    first.give(vec![own]);
    let (released, ()) = tokio::join!(releasing, async { second.give(vec![repeated]) });
    released
}

#[tokio::test]
async fn of_two_answers_the_one_that_found_the_claim_counts() {
    let (left, unknown) = (Standing::Gone(Why::Left), Standing::Gone(Why::Unknown));
    answered_twice(left.clone(), unknown.clone()).await.unwrap();
    answered_twice(unknown.clone(), left).await.unwrap();
    assert!(matches!(answered_twice(unknown.clone(), unknown.clone()).await, Err(Error::Lost { .. })));
    assert!(matches!(answered_twice(unknown.clone(), Standing::Gone(Why::Broken)).await, Err(Error::Lost { .. })));
    assert!(matches!(answered_twice(Standing::Gone(Why::Broken), unknown).await, Err(Error::Lost { .. })));
}

/// A waker that calls the client.
struct Calls {
    locks: Locks,
    is_woken: AtomicBool,
}

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.locks.stats();
        self.is_woken.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_caller_woken_with_an_outcome_may_call_the_client() {
    must_not_block(async {
        let mut store = Director::new();
        let mutex = store.locks.mutex("a").ttl(secs(3600));
        let (guard, _) = hold(&mut store, &mutex, 7).await;
        let mut releasing = pin!(guard.release());
        assert!(poll!(releasing.as_mut()).is_pending());
        let (_, first) = store.release().await;
        store.manual_clock.advance(OVERDUE + GRAIN);
        let (_, second) = store.release().await;
        first.give(vec![Standing::Gone(Why::Unknown)]);
        let calls = Arc::new(Calls { locks: store.locks.clone(), is_woken: AtomicBool::new(false) });
        let waker = Waker::from(Arc::clone(&calls));
        assert!(releasing.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        second.give(vec![Standing::Gone(Why::Left)]);
        until(|| calls.is_woken.load(Ordering::SeqCst)).await;
        releasing.await.unwrap();
    });
}

#[tokio::test]
async fn a_local_hand_off_goes_on_although_the_releaser_is_not_polled() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(secs(3600));
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    let (second, third) = (wants(mutex.clone()), wants(mutex));
    until_waiting(&store.locks, 2).await;
    let mut releasing = pin!(guard.release());
    assert!(poll!(releasing.as_mut()).is_pending());
    let (sent, answer) = store.release().await;
    store.manual_clock.advance(OVERDUE + GRAIN);
    let (again, repeated) = store.release().await;
    let floor = |leaving: &[Leaving]| match leaving {
        [Leaving::UnlessAlone { claim: it, floor, .. }] if is_same(it, &claim) => *floor,
        other => panic!("{other:?}"),
    };
    assert_eq!(floor(&sent), floor(&again), "the same release, so that the store recognises the repeat");
    // The store has run the first; its answer to the second is the present state.
    repeated.give(vec![Standing::Held(Tickets::new(Ticket(20), 2))]);
    let guard = entered(second).await;
    assert_eq!(guard.fence().unwrap(), 20);
    // The answer to the first comes late, and does not end the next hold.
    answer.give(vec![Standing::Held(Tickets::new(Ticket(20), 2))]);
    soon(releasing).await.unwrap();
    guard.check().unwrap();
    guard.release().await.unwrap();
    assert_eq!(entered(third).await.fence().unwrap(), 21);
}

#[tokio::test]
async fn a_release_whose_repeat_has_no_answer_is_not_called_lost() {
    let unknown = || vec![Standing::Gone(Why::Unknown)];
    for is_handed_off in [false, true] {
        let mut store = Director::new();
        let mutex = store.locks.mutex("a").ttl(secs(3600));
        let (guard, claim) = hold(&mut store, &mutex, 7).await;
        let _next = is_handed_off.then(|| wants(mutex));
        until_waiting(&store.locks, is_handed_off.into()).await;
        let mut releasing = pin!(guard.release());
        assert!(poll!(releasing.as_mut()).is_pending());
        let (_, first) = store.release().await;
        store.manual_clock.advance(OVERDUE + GRAIN);
        // This copy ran, and its answer is lost. All later ones find no claim.
        let (_, second) = store.release().await;
        second.lose();
        if is_handed_off {
            released_and_asked_anew(&mut store, &claim, 8).await;
        } else {
            assert!(settle(&mut store).await.is_empty());
            store.manual_clock.advance(secs(1));
            store.release().await.1.give(unknown());
        }
        first.give(unknown());
        let verdict = soon(releasing).await;
        assert!(
            matches!(verdict, Err(Error::Unavailable { .. })),
            "it may well have been held to the end: {verdict:?}"
        );
    }
}

#[tokio::test]
async fn a_local_hand_off_is_not_called_lost_by_a_later_break() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(secs(3600));
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    let next = wants(mutex);
    until_waiting(&store.locks, 1).await;
    let mut releasing = pin!(guard.release());
    assert!(poll!(releasing.as_mut()).is_pending());
    let (_, first) = store.release().await;
    store.manual_clock.advance(OVERDUE + GRAIN);
    store.release().await.1.give(vec![Standing::Held(Tickets::new(Ticket(20), 1))]);
    let _guard = entered(next).await;
    // The claim was broken while the next task held it.
    first.give(vec![Standing::Gone(Why::Broken)]);
    soon(releasing).await.unwrap();
}

#[tokio::test]
async fn the_release_of_a_lost_lock_does_not_wait_for_a_second_answer() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(secs(3600)).hold_at_most(secs(1));
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    store.manual_clock.advance(secs(1) + GRAIN);
    guard.check().unwrap_err();
    let mut releasing = pin!(guard.release());
    assert!(poll!(releasing.as_mut()).is_pending());
    let (_, first) = store.release().await;
    store.manual_clock.advance(OVERDUE + GRAIN);
    let _unanswered = store.release().await;
    first.give(vec![Standing::Gone(Why::Unknown)]);
    assert!(matches!(soon(releasing).await, Err(Error::Lost { .. })));
}

#[tokio::test]
async fn a_broken_claim_that_may_have_gone_on_is_released() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(secs(3600));
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    let next = wants(mutex);
    until_waiting(&store.locks, 1).await;
    let mut releasing = pin!(guard.release());
    assert!(poll!(releasing.as_mut()).is_pending());
    // By this copy the claim goes on, and is broken then.
    let (_, _unread) = store.release().await;
    store.manual_clock.advance(OVERDUE + GRAIN);
    store.release().await.1.give(vec![Standing::Gone(Why::Broken)]);
    released_and_asked_anew(&mut store, &claim, 8).await;
    assert_eq!(entered(next).await.fence().unwrap(), 8);
}
