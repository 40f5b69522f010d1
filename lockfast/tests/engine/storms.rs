//! The length of a lease does not decide how often the store is asked: long leases and short periods make no storms.

use std::pin::pin;
use std::time::Duration;

use futures::{FutureExt, poll};
use lockfast::store::{Admission, Change, Leaving, Standing};
use lockfast::store::{Ticket, Tickets};

use crate::fixture::{hold, renewed, settle, wait};
use crate::script::{Call, Director};
use crate::steps::{gone, is_same, millis, secs, waits};

/// An hour, a day and the longest there is.
const LONG: [Duration; 3] = [secs(3600), secs(24 * 3600), secs(7 * 24 * 3600)];

fn held(ticket: u64) -> Tickets {
    Tickets::new(Ticket(ticket), 1)
}

#[tokio::test]
async fn a_holder_with_a_long_lease_is_renewed_once_a_period() {
    for (ttl, period) in [(LONG[0], secs(1)), (LONG[1], secs(10)), (LONG[2], millis(50))] {
        let mut store = Director::new();
        let mutex = store.locks.mutex("a").ttl(ttl).renew_every(period);
        let (guard, _) = hold(&mut store, &mutex, 7).await;
        for _ in 0..5 {
            assert!(settle(&mut store).await.is_empty(), "{ttl:?}: nothing is due yet");
            store.manual_clock.advance(period * 9 / 10);
            assert!(settle(&mut store).await.is_empty(), "{ttl:?}: nothing is due yet");
            store.manual_clock.advance(period / 10);
            renewed(&mut store, 7).await;
        }
        guard.check().unwrap();
    }
}

#[tokio::test]
async fn a_waiter_with_a_long_lease_is_renewed_once_a_period() {
    for (ttl, period) in [(LONG[0], secs(1)), (LONG[2], secs(10))] {
        let mut store = Director::new();
        let mutex = store.locks.mutex("a").ttl(ttl).renew_every(period);
        let (waiter, _) = wait(&mut store, mutex, 7).await;
        for _ in 0..5 {
            assert!(settle(&mut store).await.is_empty(), "{ttl:?}: nothing is due yet");
            store.manual_clock.advance(period * 9 / 10);
            assert!(settle(&mut store).await.is_empty(), "{ttl:?}: nothing is due yet");
            store.manual_clock.advance(period / 10);
            store.renew().await.1.give(vec![waits(7, LONG[2])]);
        }
        assert!(!waiter.is_finished());
    }
}

#[tokio::test]
async fn a_hand_off_with_a_long_lease_leaves_time_to_pick_it_up() {
    for ttl in LONG {
        let mut store = Director::new();
        let mutex = store.locks.mutex("a").ttl(ttl);
        let (guard, _) = hold(&mut store, &mutex, 7).await;
        let mut busy = pin!(mutex.lock());
        assert!(poll!(busy.as_mut()).is_pending());
        drop(guard);
        let (leaving, answer) = store.release().await;
        assert!(matches!(leaving[..], [Leaving::UnlessAlone { .. }]), "{leaving:?}");
        answer.give(vec![Standing::Held(held(8))]);
        assert!(settle(&mut store).await.is_empty(), "{ttl:?}: it stays handed off");
        store.manual_clock.advance(millis(1900));
        assert!(settle(&mut store).await.is_empty(), "{ttl:?}: it stays handed off");
        let guard = busy.now_or_never().expect("it is there").unwrap();
        assert_eq!(guard.fence().unwrap(), 8);
    }
}

#[tokio::test]
async fn a_question_about_a_long_lease_has_time_to_be_answered() {
    for ttl in LONG {
        let mut store = Director::new();
        let mutex = store.locks.mutex("a").ttl(ttl);
        let mut asks = pin!(mutex.lock());
        assert!(poll!(asks.as_mut()).is_pending());
        let (_, _, answer) = store.acquire().await;
        assert!(settle(&mut store).await.is_empty(), "{ttl:?}: it is not withdrawn");
        store.manual_clock.advance(millis(9900));
        let questions = settle(&mut store).await;
        let is_question = |call: &Call| matches!(call, Call::Renew { leases, .. } if leases[0].ttl.is_zero());
        assert!(questions.iter().all(is_question), "{ttl:?}: it is not withdrawn: {questions:?}");
        answer.give(Admission::Held(held(7)));
        let guard = asks.now_or_never().expect("it is there").unwrap();
        assert_eq!(guard.fence().unwrap(), 7);
    }
}

#[tokio::test]
async fn an_acquire_and_its_questions_are_at_most_five_calls_a_second() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(millis(500));
    let mut asks = pin!(mutex.lock());
    assert!(poll!(asks.as_mut()).is_pending());
    let _unanswered = store.acquire().await;
    let mut requests = vec![0];
    for at in (10..3000).step_by(10) {
        store.manual_clock.advance(millis(10));
        for call in settle(&mut store).await {
            let Call::Renew { answer, .. } = call else { panic!("{call:?}") };
            answer.give(gone(1));
            requests.push(at);
        }
    }
    assert!(requests.len() > 5, "the keeper asks: {requests:?}");
    let is_slow = |six: &[u64]| six[5] - six[0] >= 990;
    assert!(requests.windows(6).all(is_slow), "{requests:?}");
}

#[tokio::test]
async fn requests_that_fell_out_rejoin_in_order_and_pipelined() {
    let mut store = Director::new();
    let mut waiters = Vec::new();
    for ticket in [12, 10, 14, 11, 13] {
        // Two names: the order of each is kept, and neither waits for the other.
        let mutex = store.locks.mutex(format!("name {}", ticket % 2)).local_handoff(false);
        waiters.push((ticket, wait(&mut store, mutex, ticket).await));
    }
    store.push(Change::Resync);
    let (leases, answer) = store.renew().await;
    assert_eq!(leases.len(), 5);
    answer.give(gone(5));
    let name_of = |ticket: u64| format!("lock:name {}", ticket % 2);
    let (first, _, answer) = store.acquire().await;
    assert_eq!(first.demands[0].name.as_str(), name_of(10));
    assert!(settle(&mut store).await.is_empty(), "the first goes alone: the store may be in trouble");
    answer.give(Admission::Queued { ticket: Ticket(20), position: 1, recheck_in: secs(3600) });
    let mut unanswered = Vec::new();
    for ticket in 11..15 {
        let (claim, _, answer) = store.acquire().await;
        assert_eq!(claim.demands[0].name.as_str(), name_of(ticket), "in the order of the old tickets");
        unanswered.push(answer);
    }
    // A later answer does not wait for the earlier ones.
    unanswered.pop().unwrap().give(Admission::Held(held(24)));
    let (_, (entered, _)) = waiters.into_iter().find(|(ticket, _)| *ticket == 14).unwrap();
    assert_eq!(entered.await.unwrap().unwrap().fence().unwrap(), 24);
}

#[tokio::test]
async fn many_rejoins_are_sent_without_waiting_for_answers() {
    let mut store = Director::new();
    let mut waiters = Vec::new();
    for ticket in 0..100 {
        let mutex = store.locks.mutex(format!("name {ticket}"));
        waiters.push(wait(&mut store, mutex, 10 + ticket).await);
    }
    store.push(Change::Resync);
    let (leases, answer) = store.renew().await;
    assert_eq!(leases.len(), 100);
    answer.give(gone(100));
    store.queue(200, LONG[0]).await;
    let mut unanswered = Vec::new();
    for _ in 1..100 {
        unanswered.push(store.acquire().await);
    }
}

#[tokio::test]
async fn after_a_failed_rejoin_the_next_one_goes_alone() {
    let mut store = Director::new();
    let mut waiters = Vec::new();
    for ticket in 10..15 {
        let mutex = store.locks.mutex(format!("name {ticket}"));
        waiters.push(wait(&mut store, mutex, ticket).await);
    }
    store.push(Change::Resync);
    let (leases, answer) = store.renew().await;
    answer.give(gone(leases.len()));
    let (_, _, answer) = store.acquire().await;
    answer.lose();
    let (_, _, _unanswered) = store.acquire().await;
    assert!(settle(&mut store).await.is_empty(), "one at a time");
}

#[tokio::test]
async fn rejoins_that_failed_together_are_repeated_in_order() {
    let mut store = Director::new();
    let mut waiters = Vec::new();
    for ticket in 10..19 {
        let mutex = store.locks.mutex("a").local_handoff(false);
        waiters.push(wait(&mut store, mutex, ticket).await);
    }
    store.push(Change::Resync);
    let (leases, answer) = store.renew().await;
    answer.give(gone(leases.len()));
    store.queue(20, LONG[0]).await;
    let mut burst = Vec::new();
    for _ in 11..19 {
        let (claim, _, answer) = store.acquire().await;
        burst.push((claim, answer));
    }
    let claims: Vec<_> = burst
        .into_iter()
        .map(|(claim, answer)| {
            answer.lose();
            claim
        })
        .collect();
    assert!(settle(&mut store).await.is_empty(), "they are repeated after a pause");
    for claim in claims {
        // Only the first goes alone; each of them may have to wait for its own pause.
        store.manual_clock.advance(millis(200));
        assert!(is_same(&store.queue(30, LONG[0]).await, &claim), "in the order of the old tickets");
    }
}
