//! No entry is left in the queue without a request, and no hold goes on that the store does not count any more.

use std::pin::pin;
use std::sync::Arc;

use futures::{FutureExt, poll};
use lockfast::store::{Admission, Busy, Change, Leaving, Standing, Store, Why};
use lockfast::store::{Claim, Ticket, Tickets};
use lockfast::{Error, LostWhy, Memory};

use crate::fixture::{NEVER, hold, push, settle, soon, wait};
use crate::script::{Answer, Call, Director};
use crate::steps::{Request, entered, is_same, millis, secs, unknown, until_waiting, waits, wants};

/// A claim whose first acquires got no answer: the store may run them at any time, also after everything that follows. The
/// keeper has sent the acquire again.
async fn asked_again(store: &mut Director) -> (Request, Arc<Claim>, Answer<Admission>) {
    let request = wants(store.locks.mutex("a"));
    let (claim, _, late) = store.acquire().await;
    late.lose();
    // Repeated at once by its future, and then by the keeper.
    store.acquire().await.2.lose();
    assert!(settle(store).await.is_empty());
    store.manual_clock.advance(secs(1));
    let (again, _, answer) = store.acquire().await;
    assert!(is_same(&claim, &again));
    (request, claim, answer)
}

/// A store that has run all calls but the first acquire refuses that acquire.
async fn leaves_no_ghost(claim: &Arc<Claim>, left: &[Leaving]) {
    let store = Memory::new();
    store.acquire(claim, Busy::Wait).await.unwrap();
    store.release(left).await.unwrap();
    let late = store.acquire(claim, Busy::Wait).await.unwrap();
    assert!(matches!(late, Admission::Gone(_)), "after {left:?} the late acquire is {late:?}");
}

#[tokio::test]
async fn a_late_acquire_is_refused_after_the_release() {
    for waits_for_the_answer in [true, false] {
        let mut store = Director::new();
        let (request, claim, answer) = asked_again(&mut store).await;
        answer.give(Admission::Held(Tickets::new(Ticket(7), 1)));
        let guard = entered(request).await;
        let left = if waits_for_the_answer {
            let (released, left) = tokio::join!(guard.release(), store.let_go());
            released.unwrap();
            left
        } else {
            drop(guard);
            store.let_go().await
        };
        leaves_no_ghost(&claim, &left).await;
    }
}

#[tokio::test]
async fn a_late_acquire_is_refused_after_its_request_was_cancelled() {
    let mut store = Director::new();
    let (request, claim, answer) = asked_again(&mut store).await;
    answer.give(Admission::Queued { ticket: Ticket(7), position: 1, recheck_in: NEVER });
    until_waiting(&store.locks, 1).await;
    request.abort();
    leaves_no_ghost(&claim, &store.let_go().await).await;
}

#[tokio::test]
async fn a_claim_that_was_refused_for_good_has_nothing_to_withdraw() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    for tries in [true, false] {
        let asked = async { if tries { mutex.try_lock().await.map(drop) } else { mutex.lock().await.map(drop) } };
        let refused = async { store.acquire().await.2.fail(Error::invalid("another capacity")) };
        let (asked, ()) = tokio::join!(asked, refused);
        assert!(matches!(asked, Err(Error::Invalid(_))), "{asked:?}");
        assert!(settle(&mut store).await.is_empty());
    }
}

#[tokio::test]
async fn a_holder_that_the_store_finds_waiting_has_lost_the_lock() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    store.manual_clock.advance(secs(10));
    store.renew().await.1.give(vec![waits(7, secs(20))]);
    assert_eq!(soon(guard.lost()).await, LostWhy::Evicted);
    assert!(guard.check().is_err());
}

#[tokio::test]
async fn an_answer_from_before_the_hand_off_ends_no_hold() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    let (waiter, claim) = wait(&mut store, mutex, 7).await;
    store.manual_clock.advance(secs(10));
    let (_, answer) = store.renew().await;
    store.push(Change::Held(claim.id.hash(), Ticket(7)));
    let guard = entered(waiter).await;
    answer.give(vec![waits(7, NEVER)]);
    settle(&mut store).await;
    guard.check().unwrap();
}

#[tokio::test]
async fn a_hint_before_the_lock_is_picked_up_leads_to_a_question() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    let mut waiter = pin!(mutex.lock());
    assert!(poll!(waiter.as_mut()).is_pending());
    let claim = store.queue(7, NEVER).await;
    assert!(poll!(waiter.as_mut()).is_pending());
    push(&mut store, Change::Held(claim.id.hash(), Ticket(7))).await;
    push(&mut store, Change::Gone(claim.id.hash())).await;
    let guard = waiter.now_or_never().expect("it was handed the lock").unwrap();
    let (leases, answer) = store.renew().await;
    assert!(is_same(&leases[0].claim, &claim));
    answer.give(vec![Standing::Gone(Why::Broken)]);
    assert_eq!(soon(guard.lost()).await, LostWhy::Broken);
}

#[tokio::test]
async fn an_attempt_whose_answer_was_lost_is_withdrawn_as_unknown() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    let tried = tokio::spawn(async move { mutex.try_lock().await.map(drop) });
    let (claim, _, answer) = store.acquire().await;
    answer.lose();
    let left = loop {
        store.keeper_sleeps().await;
        tokio::task::yield_now().await;
        match store.call_now() {
            Some(Call::Acquire { answer, .. }) => answer.lose(),
            Some(Call::Release { leaving, .. }) => break leaving,
            Some(other) => panic!("expected the same question again, got {other:?}"),
            None => store.manual_clock.advance(millis(10)),
        }
    };
    let tried = tried.await.unwrap();
    assert!(matches!(tried, Err(Error::Unavailable { .. })), "{tried:?}");
    assert!(unknown(&left).is_some_and(|left| is_same(left, &claim)));
}

#[tokio::test]
async fn a_late_acquire_is_refused_after_a_run_of_hand_offs() {
    for waits_for_the_answer in [true, false] {
        let mut store = Director::new();
        let (request, claim, answer) = asked_again(&mut store).await;
        answer.give(Admission::Held(Tickets::new(Ticket(7), 1)));
        let guard = entered(request).await;
        let _next = wants(store.locks.mutex("a"));
        until_waiting(&store.locks, 1).await;
        let releasing = tokio::spawn(async move {
            if waits_for_the_answer {
                guard.release().await.unwrap();
            }
        });
        let mut left = store.let_go().await;
        assert!(matches!(left[..], [Leaving::UnlessAlone { .. }]), "{left:?}");
        // The claim has left, and yet another release is sent, before or after the acquire of the next request.
        left.extend(loop {
            match store.call().await {
                Call::Acquire { .. } => {}
                Call::Release { leaving, answer } => {
                    answer.give(vec![Standing::Gone(Why::Unknown)]);
                    break leaving;
                }
                other => panic!("expected a release, got {other:?}"),
            }
        });
        soon(releasing).await.unwrap();
        leaves_no_ghost(&claim, &left).await;
    }
}

#[tokio::test]
async fn a_late_acquire_is_refused_after_a_cancel_before_the_answer() {
    for is_held in [true, false] {
        let mut store = Director::new();
        let (request, claim, answer) = asked_again(&mut store).await;
        request.abort();
        assert!(soon(request).await.unwrap_err().is_cancelled());
        answer.give(match is_held {
            true => Admission::Held(Tickets::new(Ticket(7), 1)),
            false => Admission::Queued { ticket: Ticket(7), position: 1, recheck_in: NEVER },
        });
        let left = store.let_go().await;
        assert!(unknown(&left).is_some_and(|left| is_same(left, &claim)), "{left:?}");
        leaves_no_ghost(&claim, &left).await;
    }
}

#[tokio::test]
async fn a_late_acquire_is_refused_after_its_entry_was_lost() {
    let mut store = Director::new();
    let (_request, claim, answer) = asked_again(&mut store).await;
    answer.give(Admission::Queued { ticket: Ticket(7), position: 1, recheck_in: NEVER });
    until_waiting(&store.locks, 1).await;
    store.push(Change::Gone(claim.id.hash()));
    store.renew().await.1.give(vec![Standing::Gone(Why::Unknown)]);
    leaves_no_ghost(&claim, &left_as_unknown(&mut store, &claim).await).await;
}

#[tokio::test]
async fn a_late_acquire_is_refused_after_its_repeat_was_refused() {
    let mut store = Director::new();
    let (request, claim, answer) = asked_again(&mut store).await;
    answer.fail(Error::Unsupported("not any more".into()));
    assert!(matches!(soon(request).await.unwrap(), Err(Error::Unsupported(_))));
    leaves_no_ghost(&claim, &left_as_unknown(&mut store, &claim).await).await;
}

/// The release of a claim, before or after the next acquire.
async fn left_as_unknown(store: &mut Director, claim: &Arc<Claim>) -> Vec<Leaving> {
    loop {
        match store.call().await {
            Call::Acquire { .. } => {}
            Call::Release { leaving, .. } => {
                assert!(unknown(&leaving).is_some_and(|left| is_same(left, claim)), "{leaving:?}");
                return leaving;
            }
            other => panic!("expected a release, got {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_grant_taken_back_before_it_is_picked_up_is_not_entered() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    let mut waiter = pin!(mutex.lock());
    assert!(poll!(waiter.as_mut()).is_pending());
    let claim = store.queue(7, NEVER).await;
    assert!(poll!(waiter.as_mut()).is_pending());
    store.push(Change::Gone(claim.id.hash()));
    let (_, answer) = store.renew().await;
    push(&mut store, Change::Held(claim.id.hash(), Ticket(7))).await;
    answer.give(vec![Standing::Gone(Why::Broken)]);
    let (again, _, answer) = store.acquire().await;
    assert!(!is_same(&claim, &again));
    assert!(poll!(waiter.as_mut()).is_pending(), "the grant is void");
    answer.give(Admission::Held(Tickets::new(Ticket(9), 1)));
    assert_eq!(soon(waiter).await.unwrap().fence().unwrap(), 9);
}
