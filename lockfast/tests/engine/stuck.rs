//! No request waits for ever behind one that is lost, not polled any more, or being released.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::poll;
use lockfast::store::{Admission, Change, Leaving, Standing, Why};
use lockfast::store::{Claim, Ticket, Tickets};
use lockfast::{Error, LostWhy};

use crate::fixture::{GRAIN, NEVER, hold, push, released_and_asked_anew, settle, soon, stop_keeper, wait};
use crate::script::Director;
use crate::steps::{Request, done, entered, gone, is_same, millis, secs, unknown, until_waiting, waits, wants};

/// How long a caller may take to receive the store's answer, and then to pick up its grant.
const UNPOLLED: Duration = secs(10 + 2);

#[tokio::test]
async fn a_kept_guard_of_a_lost_lock_blocks_no_waiter() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").hold_at_most(secs(1));
    let (kept, claim) = hold(&mut store, &mutex, 7).await;
    let next = wants(store.locks.mutex("a"));
    until_waiting(&store.locks, 1).await;
    store.manual_clock.advance(secs(1) + GRAIN);
    assert_eq!(soon(kept.lost()).await, LostWhy::HeldAtMost);
    store.grant(8).await;
    let next = entered(next).await;
    // The late release of the lost hold does not end the new hold.
    drop(kept);
    assert!(done(&store.let_go().await).is_some_and(|left| is_same(left, &claim)));
    next.check().unwrap();
}

#[tokio::test]
async fn an_unanswered_release_blocks_no_local_waiter_for_long() {
    let mut store = Director::new();
    // So long that no renewal is due, whose answer would show the same.
    let mutex = store.locks.mutex("a").ttl(secs(3600));
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    let next = wants(mutex);
    until_waiting(&store.locks, 1).await;
    let mut releasing = pin!(guard.release());
    assert!(poll!(releasing.as_mut()).is_pending());
    let (_, answer) = store.release().await;
    store.manual_clock.advance(millis(100) + GRAIN);
    let (again, _unanswered) = store.release().await;
    assert!(matches!(&again[..], [Leaving::UnlessAlone { .. }]), "the keeper repeats it: {again:?}");

    store.manual_clock.advance(UNPOLLED);
    released_and_asked_anew(&mut store, &claim, 8).await;
    let next = entered(next).await;
    // The late answer does not end the new hold.
    answer.give(vec![Standing::Gone(Why::Left)]);
    soon(releasing).await.unwrap();
    next.check().unwrap();
    assert!(settle(&mut store).await.is_empty());
}

#[tokio::test]
async fn an_unpolled_acquire_blocks_no_local_waiter() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    let mut idle = pin!(mutex.lock());
    assert!(poll!(idle.as_mut()).is_pending());
    let (claim, _, _unread) = store.acquire().await;
    let next = wants(mutex.clone());
    until_waiting(&store.locks, 1).await;
    store.manual_clock.advance(UNPOLLED + GRAIN);
    released_and_asked_anew(&mut store, &claim, 8).await;
    let next = entered(next).await;

    // Polled at last, the future gives its old acquire up, and joins the local queue behind the other.
    assert!(poll!(idle.as_mut()).is_pending());
    assert!(unknown(&store.let_go().await).is_some_and(|left| is_same(left, &claim)));
    until_waiting(&store.locks, 1).await;
    next.check().unwrap();
}

#[tokio::test]
async fn a_grant_by_answer_that_is_not_picked_up_is_given_back() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    let mut idle = pin!(mutex.lock());
    assert!(poll!(idle.as_mut()).is_pending());
    let (claim, _, answer) = store.acquire().await;
    answer.give(Admission::Held(Tickets::new(Ticket(7), 1)));
    store.manual_clock.advance(millis(1500));
    let (leases, answer) = store.renew().await;
    assert!(is_same(&leases[0].claim, &claim) && leases[0].ttl.is_zero(), "a question: {leases:?}");
    answer.give(vec![Standing::Held(Tickets::new(Ticket(7), 1))]);
    assert!(settle(&mut store).await.is_empty(), "the future may be polled in this moment");
    store.manual_clock.advance(millis(500) + GRAIN);
    assert!(unknown(&store.let_go().await).is_some_and(|left| is_same(left, &claim)));

    // Polled at last, it asks anew.
    assert!(poll!(idle.as_mut()).is_pending());
    let again = released_and_asked_anew(&mut store, &claim, 8).await;
    assert!(!is_same(&again, &claim));
    assert_eq!(soon(idle).await.unwrap().fence().unwrap(), 8);
}

#[tokio::test]
async fn a_second_grant_not_picked_up_is_given_back_as_soon() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    let mut idle = pin!(mutex.lock());
    assert!(poll!(idle.as_mut()).is_pending());
    let (claim, _, _unread) = store.acquire().await;
    store.manual_clock.advance(millis(1500));
    // This question is still with the store when the claim is given up.
    let _unanswered = store.renew().await;
    store.manual_clock.advance(UNPOLLED);
    assert!(unknown(&store.let_go().await).is_some_and(|left| is_same(left, &claim)));

    // Polled once, it asks anew, and is not polled again.
    assert!(poll!(idle.as_mut()).is_pending());
    let again = released_and_asked_anew(&mut store, &claim, 8).await;
    store.manual_clock.advance(millis(1500));
    let (leases, answer) = store.renew().await;
    assert!(is_same(&leases[0].claim, &again), "{leases:?}");
    answer.give(vec![Standing::Held(Tickets::new(Ticket(8), 1))]);
    assert!(settle(&mut store).await.is_empty());
    store.manual_clock.advance(millis(500) + GRAIN);
    assert!(unknown(&store.let_go().await).is_some_and(|left| is_same(left, &again)));
}

#[tokio::test]
async fn an_acquire_that_is_answered_late_is_waited_for() {
    for said in [Standing::Gone(Why::Unknown), waits(7, NEVER)] {
        let mut store = Director::new();
        let mutex = store.locks.mutex("a");
        let mut asks = pin!(mutex.lock());
        assert!(poll!(asks.as_mut()).is_pending());
        let (_, _, answer) = store.acquire().await;
        store.manual_clock.advance(millis(1500));
        let (_, question) = store.renew().await;
        // The lock is granted, and the store had run the question of the keeper before that.
        answer.give(Admission::Held(Tickets::new(Ticket(7), 1)));
        let guard = soon(asks).await.unwrap();
        question.give(vec![said]);
        assert!(settle(&mut store).await.is_empty());
        guard.check().unwrap();
    }
}

#[tokio::test]
async fn a_claim_found_holding_enters_when_polled_in_time() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    let mut asks = pin!(mutex.lock());
    assert!(poll!(asks.as_mut()).is_pending());
    let (claim, _, answer) = store.acquire().await;
    // The claim waited when the acquire ran, and was granted the lock since.
    answer.give(Admission::Queued { ticket: Ticket(7), position: 1, recheck_in: NEVER });
    store.manual_clock.advance(millis(1500));
    store.renew().await.1.give(vec![Standing::Held(Tickets::new(Ticket(7), 1))]);
    assert!(settle(&mut store).await.is_empty());
    assert!(poll!(asks.as_mut()).is_pending());
    let (leases, answer) = store.renew().await;
    assert!(is_same(&leases[0].claim, &claim));
    answer.give(vec![Standing::Held(Tickets::new(Ticket(7), 1))]);
    assert_eq!(soon(asks).await.unwrap().fence().unwrap(), 7);
}

#[tokio::test]
async fn a_refused_release_keeps_no_other_claim_of_its_batch_queued() {
    let mut store = Director::new();
    let (one, other) = (store.locks.mutex("a"), store.locks.mutex("b"));
    let guards = (hold(&mut store, &one, 7).await.0, hold(&mut store, &other, 8).await.0);
    let stopped = stop_keeper(&mut store).await;
    drop(guards);
    let _kept = stopped.go_on();
    let (batch, answer) = store.release().await;
    assert_eq!(batch.len(), 2);
    let refusal = || Error::Unsupported("one of them".into());
    answer.fail(refusal());

    assert!(settle(&mut store).await.is_empty());
    store.manual_clock.advance(secs(1));
    let (refused, answer) = store.release().await;
    assert_eq!(refused.len(), 1);
    answer.fail(refusal());
    assert!(done(&store.let_go().await).is_some(), "the other leaves");
    // A release that is refused in a batch of its own is refused for good.
    assert!(settle(&mut store).await.is_empty());
    store.manual_clock.advance(secs(1));
    assert!(settle(&mut store).await.is_empty());
}

#[tokio::test]
async fn a_rejoin_waits_250_ms_at_most_for_answers_about_others() {
    let mut store = Director::new();
    let (one, other) = (store.locks.mutex("a"), store.locks.mutex("b"));
    let (_one, first) = wait(&mut store, one, 8).await;
    let (_other, second) = wait(&mut store, other, 9).await;
    store.push(Change::Gone(second.id.hash()));
    let _unanswered = store.renew().await;
    store.push(Change::Gone(first.id.hash()));
    let (leases, answer) = store.renew().await;
    assert!(is_same(&leases[0].claim, &first));
    answer.give(gone(1));

    assert!(settle(&mut store).await.is_empty(), "the other may have been ahead of it");
    store.manual_clock.advance(millis(250) + GRAIN);
    // Sooner than the keeper stops waiting for the other answer, so the rejoin does not depend on it.
    let (again, ..) = tokio::time::timeout(secs(3), store.acquire()).await.expect("it goes back");
    assert_eq!(again.demands, first.demands);
}

#[tokio::test]
async fn waiters_of_different_queues_with_equal_tickets_all_rejoin() {
    let mut store = Director::new();
    let (one, other) = (store.locks.mutex("a"), store.locks.mutex("b"));
    let (_one, first) = wait(&mut store, one, 8).await;
    let (_other, second) = wait(&mut store, other, 8).await;
    store.push(Change::Resync);
    let (leases, answer) = store.renew().await;
    answer.give(vec![Standing::Gone(Why::Unknown); leases.len()]);
    let back = [store.queue(20, secs(3600)).await, store.queue(21, secs(3600)).await];
    for old in [first, second] {
        assert!(back.iter().any(|new| new.demands == old.demands), "{old:?}");
    }
}

/// A waiter with another request of this process behind it is granted the lock, and then the other is.
async fn one_after_the_other(store: &mut Director, (first, claim): (Request, Arc<Claim>), second: Request) {
    store.push(Change::Held(claim.id.hash(), Ticket(8)));
    let first = entered(first).await;
    let (released, left) = tokio::join!(first.release(), store.let_go());
    released.unwrap();
    assert!(matches!(left[..], [Leaving::UnlessAlone { .. }]), "the other is known to be behind: {left:?}");
    store.grant(9).await;
    entered(second).await.check().unwrap();
}

#[tokio::test]
async fn a_late_drop_of_a_lost_guard_ends_no_later_local_queue() {
    let mut store = Director::new();
    let capped = store.locks.mutex("a").hold_at_most(secs(1));
    let (kept, old) = hold(&mut store, &capped, 7).await;
    let other = store.locks.mutex("b");
    let (other, _) = hold(&mut store, &other, 1).await;
    store.manual_clock.advance(secs(1) + GRAIN);
    assert_eq!(soon(kept.lost()).await, LostWhy::HeldAtMost);
    assert!(settle(&mut store).await.is_empty(), "the keeper has seen the loss too");
    // The local queue of `b` ends last, so that the next requests reuse its number, not that of the old queue of `a`.
    let (released, _) = tokio::join!(other.release(), store.let_go());
    released.unwrap();

    let mutex = store.locks.mutex("a");
    let first = wait(&mut store, mutex.clone(), 8).await;
    let second = wants(mutex);
    until_waiting(&store.locks, 2).await;
    drop(kept);
    assert!(done(&store.let_go().await).is_some_and(|left| is_same(left, &old)));
    one_after_the_other(&mut store, first, second).await;
}

#[tokio::test]
async fn a_late_drop_of_an_unpolled_future_ends_no_later_local_queue() {
    let mut store = Director::new();
    let (mutex, other) = (store.locks.mutex("a"), store.locks.mutex("b"));
    let (other, _) = hold(&mut store, &other, 1).await;
    let mut idle = Box::pin(mutex.lock());
    assert!(poll!(idle.as_mut()).is_pending());
    let old = store.queue(7, NEVER).await;
    assert!(poll!(idle.as_mut()).is_pending());
    push(&mut store, Change::Held(old.id.hash(), Ticket(7))).await;
    store.manual_clock.advance(secs(2) + GRAIN);
    assert!(done(&store.let_go().await).is_some_and(|left| is_same(left, &old)));
    // The local queue of `b` ends last, as above.
    let (released, _) = tokio::join!(other.release(), store.let_go());
    released.unwrap();

    let first = wait(&mut store, mutex.clone(), 8).await;
    let second = wants(mutex.clone());
    until_waiting(&store.locks, 3).await;
    drop(idle);
    until_waiting(&store.locks, 2).await;
    one_after_the_other(&mut store, first, second).await;
}

#[tokio::test]
async fn a_failed_unpolled_future_blocks_no_local_waiter() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    let mut idle = pin!(mutex.lock());
    assert!(poll!(idle.as_mut()).is_pending());
    let (claim, _, answer) = store.acquire().await;
    answer.lose();
    assert!(poll!(idle.as_mut()).is_pending());
    store.acquire().await.2.lose();
    assert!(poll!(idle.as_mut()).is_pending());
    let next = wants(mutex.clone());
    until_waiting(&store.locks, 1).await;
    store.manual_clock.advance(millis(100) + GRAIN);
    let (again, _, answer) = store.acquire().await;
    assert!(is_same(&claim, &again));
    answer.fail(Error::Unsupported("not any more".into()));
    // The first acquire may still run, so its id is kept out.
    let other = released_and_asked_anew(&mut store, &claim, 8).await;
    assert!(!is_same(&claim, &other));
    assert_eq!(entered(next).await.fence().unwrap(), 8);
    assert!(matches!(soon(idle).await, Err(Error::Unsupported(_))));
}
