//! How long a caller waits for the store's answer: one question is always sent and its answer awaited, and the call is over
//! within a second of its patience.

use std::time::Duration;

use lockfast::store::{Admission, Busy, BusyWith};
use lockfast::store::{Ticket, Tickets};
use lockfast::{Error, Guard, Mutex, Retry};
use tokio::task::JoinHandle;

use crate::fixture::{GRAIN, NEVER, hold, settle, soon};
use crate::script::{Call, Director};
use crate::steps::{done, is_same, millis, secs, unknown, until_waiting, wants};

/// How long an answer takes: more than the patience of these callers.
const SLOW: Duration = millis(20);

fn within(mutex: Mutex, patience: Duration) -> JoinHandle<lockfast::Result<Guard>> {
    tokio::spawn(async move { mutex.lock_within(patience).await })
}

/// Lets the time of a slow answer pass, in which the caller neither gives up nor asks again.
async fn awaits_the_answer(store: &mut Director, caller: &JoinHandle<lockfast::Result<Guard>>, span: Duration) {
    store.manual_clock.advance(span);
    // In the first round the keeper wakes the caller, if at all; by the second round the caller has acted on that.
    for _ in 0..2 {
        assert!(settle(store).await.is_empty(), "the answer is awaited");
    }
    assert!(!caller.is_finished(), "the answer is awaited");
}

fn held(ticket: u64) -> Admission {
    Admission::Held(Tickets::new(Ticket(ticket), 1))
}

#[tokio::test]
async fn a_free_lock_is_acquired_however_short_patience_is() {
    for patience in [Duration::ZERO, Duration::from_nanos(1), millis(1)] {
        let mut store = Director::new();
        let caller = within(store.locks.mutex("a"), patience);
        let (_, _, answer) = store.acquire().await;
        awaits_the_answer(&mut store, &caller, SLOW).await;
        answer.give(held(7));
        assert_eq!(soon(caller).await.unwrap().unwrap().fence().unwrap(), 7);
    }
}

#[tokio::test]
async fn without_patience_a_taken_lock_is_busy_and_no_entry_is_left() {
    let mut store = Director::new();
    let caller = within(store.locks.mutex("a"), Duration::ZERO);
    let (_, busy, answer) = store.acquire().await;
    assert_eq!(busy, Busy::Refuse, "it joins no queue");
    awaits_the_answer(&mut store, &caller, SLOW).await;
    answer.give(Admission::Refused(BusyWith { held_for: Some(secs(8)), ..BusyWith::default() }));
    let error = soon(caller).await.unwrap().unwrap_err();
    let Error::Busy { held_for, position, waited, attempts, .. } = &error else { panic!("{error}") };
    assert_eq!((*held_for, *position, *waited, *attempts), (Some(secs(8)), None, SLOW, 1));
    assert!(settle(&mut store).await.is_empty(), "there is nothing to withdraw");
    // Nor does the keeper have anything left to do for it.
    store.manual_clock.advance(secs(20));
    assert!(settle(&mut store).await.is_empty(), "it is forgotten");
}

#[tokio::test]
async fn without_patience_a_lock_held_by_this_process_is_busy() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    let (_held, _) = hold(&mut store, &mutex, 7).await;
    let caller = within(mutex, Duration::ZERO);
    let (_, busy, answer) = store.acquire().await;
    assert_eq!(busy, Busy::Refuse);
    answer.give(Admission::Refused(BusyWith::default()));
    let error = soon(caller).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
}

#[tokio::test]
async fn with_little_patience_the_entry_of_a_busy_lock_is_withdrawn() {
    let mut store = Director::new();
    let caller = within(store.locks.mutex("a"), millis(1));
    let (claim, _, answer) = store.acquire().await;
    awaits_the_answer(&mut store, &caller, SLOW).await;
    answer.give(Admission::Queued { ticket: Ticket(7), position: 1, recheck_in: NEVER });
    until_waiting(&store.locks, 1).await;
    // The scripted store names no holder; the last look ends after a tenth of a second.
    store.manual_clock.advance(millis(100));
    let error = soon(caller).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    assert!(done(&store.let_go().await).is_some_and(|left| is_same(left, &claim)));
}

#[tokio::test]
async fn a_silent_store_is_unavailable_within_a_second_of_patience() {
    for patience in [Duration::ZERO, Duration::from_nanos(1), millis(1), millis(400)] {
        let mut store = Director::new();
        let caller = within(store.locks.mutex("a"), patience);
        let (claim, _, _never) = store.acquire().await;
        let awaited = patience.max(millis(700));
        awaits_the_answer(&mut store, &caller, awaited - GRAIN).await;
        store.manual_clock.advance(patience + secs(1) + GRAIN - awaited);
        let error = soon(caller).await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{patience:?}: {error}");
        assert!(unknown(&store.let_go().await).is_some_and(|left| is_same(left, &claim)), "it may run after all");
    }
}

#[tokio::test]
async fn the_answer_to_the_last_attempt_is_awaited_beyond_patience() {
    let mut store = Director::new();
    let steady = Retry { count: None, base: millis(100), max: millis(100), jitter: false };
    let caller = within(store.locks.mutex("a").retry(steady), millis(110));
    store.acquire().await.2.give(Admission::Refused(BusyWith::default()));
    settle(&mut store).await;
    store.manual_clock.advance(millis(100) + GRAIN);
    let (_, _, answer) = store.acquire().await;
    awaits_the_answer(&mut store, &caller, SLOW).await;
    answer.give(Admission::Refused(BusyWith::default()));
    let error = soon(caller).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Busy { attempts: 2, .. }), "{error}");
}

#[tokio::test]
async fn a_task_that_asks_at_the_end_of_its_patience_gets_the_answer() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    let leads = wants(mutex.clone());
    let (first, _, _never) = store.acquire().await;
    let caller = within(mutex, secs(5));
    until_waiting(&store.locks, 1).await;
    store.manual_clock.advance(secs(5) - millis(1));
    leads.abort();
    let mut answer = None;
    let mut left = false;
    while answer.is_none() || !left {
        match store.call().await {
            Call::Acquire { answer: asked, .. } => answer = Some(asked),
            Call::Release { leaving, .. } => {
                left |= unknown(&leaving).is_some_and(|gone| is_same(gone, &first));
            }
            // The keeper asks about an acquire that takes long.
            Call::Renew { .. } => {}
        }
    }
    awaits_the_answer(&mut store, &caller, SLOW).await;
    answer.unwrap().give(held(8));
    assert_eq!(soon(caller).await.unwrap().unwrap().fence().unwrap(), 8);
}

#[tokio::test]
async fn a_question_repeated_after_patience_ended_adds_no_time() {
    let mut store = Director::new();
    let caller = within(store.locks.mutex("a").ttl(millis(500)), Duration::ZERO);
    let (_, _, answer) = store.acquire().await;
    store.manual_clock.advance(millis(700));
    // Too late to be of use: the lease is over.
    answer.give(held(7));
    let mut unanswered = Vec::new();
    while !unanswered.iter().any(|call| matches!(call, Call::Acquire { .. })) {
        unanswered.push(store.call().await);
    }
    store.manual_clock.advance(millis(300));
    let error = soon(caller).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}
