//! Nobody waits for ever behind a party that is lost, not polled any more, or on its way out.

use std::pin::pin;
use std::time::Duration;

use futures::poll;
use lockfast::store::{Change, Leaving, Standing, Why};
use lockfast::{Error, LostWhy};

use crate::script::Director;
use crate::stage::{GRAIN, hold, released_and_asked_anew, settle, soon, stop_keeper, wait};
use crate::steps::{done, entered, gone, is_same, millis, secs, unknown, until_waiting, wants};

/// How long a caller may take to hear the store's answer, and then to pick up what came of it.
const UNPOLLED: Duration = secs(10 + 2);

#[tokio::test]
async fn nobody_waits_behind_a_lost_lock_whose_guard_is_kept() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").hold_at_most(secs(1));
    let (kept, claim) = hold(&mut store, &mutex, 7).await;
    let next = wants(store.locks.mutex("a"));
    until_waiting(&store.locks, 1).await;
    store.hand.advance(secs(1) + GRAIN);
    assert_eq!(soon(kept.lost()).await, LostWhy::HeldAtMost);
    store.grant(8).await;
    let next = entered(next).await;
    // Given back at last, what was lost takes nothing from the others.
    drop(kept);
    assert!(done(&store.let_go().await).is_some_and(|left| is_same(left, &claim)));
    next.check().unwrap();
}

#[tokio::test]
async fn nobody_waits_behind_a_release_that_is_not_polled_again() {
    let mut store = Director::new();
    // So long that no renewal, which it might be found at, is due.
    let mutex = store.locks.mutex("a").ttl(secs(3600));
    let (guard, claim) = hold(&mut store, &mutex, 7).await;
    let next = wants(mutex);
    until_waiting(&store.locks, 1).await;
    let mut releasing = pin!(guard.release());
    assert!(poll!(releasing.as_mut()).is_pending());
    assert!(matches!(&store.let_go().await[..], [Leaving::UnlessAlone { .. }]));

    store.hand.advance(UNPOLLED + GRAIN);
    released_and_asked_anew(&mut store, &claim, 8).await;
    let next = entered(next).await;
    // Polled at last, it hears the old answer, and takes nothing from the others.
    soon(releasing).await.unwrap();
    next.check().unwrap();
    assert!(settle(&mut store).await.is_empty());
}

#[tokio::test]
async fn nobody_waits_behind_a_question_that_is_not_polled_again() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    let mut idle = pin!(mutex.lock());
    assert!(poll!(idle.as_mut()).is_pending());
    let (claim, _, _unheard) = store.acquire().await;
    let next = wants(mutex.clone());
    until_waiting(&store.locks, 1).await;
    store.hand.advance(UNPOLLED + GRAIN);
    released_and_asked_anew(&mut store, &claim, 8).await;
    let next = entered(next).await;

    // Polled at last, it gives its old question up, and lines up behind the other.
    assert!(poll!(idle.as_mut()).is_pending());
    assert!(unknown(&store.let_go().await).is_some_and(|left| is_same(left, &claim)));
    until_waiting(&store.locks, 1).await;
    next.check().unwrap();
}

#[tokio::test]
async fn a_departure_that_the_store_refuses_keeps_no_other_of_its_batch_in_line() {
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
    store.hand.advance(secs(1));
    let (refused, answer) = store.release().await;
    assert_eq!(refused.len(), 1);
    answer.fail(refusal());
    assert!(done(&store.let_go().await).is_some(), "the other leaves");
    // What is refused by itself is refused for good.
    assert!(settle(&mut store).await.is_empty());
    store.hand.advance(secs(1));
    assert!(settle(&mut store).await.is_empty());
}

#[tokio::test]
async fn who_fell_out_of_the_line_does_not_wait_long_for_an_answer_about_others() {
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

    assert!(settle(&mut store).await.is_empty(), "the other may have stood before it");
    store.hand.advance(millis(250) + GRAIN);
    // Sooner than the keeper stops waiting for the other answer: it is not that which lets it go on.
    let (again, ..) = tokio::time::timeout(secs(3), store.acquire()).await.expect("it goes back");
    assert_eq!(again.demands, first.demands);
}

#[tokio::test]
async fn those_who_fell_out_of_different_lines_with_the_same_ticket_all_go_back() {
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
