//! How long a lease is does not decide how often the store is asked: long leases and short periods make no storms.

use std::pin::pin;
use std::time::Duration;

use futures::{FutureExt, poll};
use lockfast::store::{Admission, Leaving, Standing};
use lockfast::{Ticket, Tickets};

use crate::script::{Call, Director};
use crate::stage::{hold, renewed, settle, wait};
use crate::steps::{millis, secs, waits};

/// An hour, a day and the longest there is.
const LONG: [Duration; 3] = [secs(3600), secs(24 * 3600), secs(7 * 24 * 3600)];

fn held(ticket: u64) -> Tickets {
    Tickets::new(Ticket(ticket), 1)
}

#[tokio::test]
async fn a_long_lease_with_a_short_period_is_renewed_once_a_period() {
    for (ttl, period) in [(LONG[0], secs(1)), (LONG[1], secs(10)), (LONG[2], millis(50))] {
        let mut store = Director::new();
        let mutex = store.locks.mutex("a").ttl(ttl).renew_every(period);
        let (guard, _) = hold(&mut store, &mutex, 7).await;
        for _ in 0..5 {
            assert!(settle(&mut store).await.is_empty(), "{ttl:?}: nothing is due yet");
            store.hand.advance(period * 9 / 10);
            assert!(settle(&mut store).await.is_empty(), "{ttl:?}: nothing is due yet");
            store.hand.advance(period / 10);
            renewed(&mut store, 7).await;
        }
        guard.check().unwrap();
    }
}

#[tokio::test]
async fn a_place_in_line_with_a_long_lease_and_a_short_period_is_renewed_once_a_period() {
    for (ttl, period) in [(LONG[0], secs(1)), (LONG[2], secs(10))] {
        let mut store = Director::new();
        let mutex = store.locks.mutex("a").ttl(ttl).renew_every(period);
        let (waiter, _) = wait(&mut store, mutex, 7).await;
        for _ in 0..5 {
            assert!(settle(&mut store).await.is_empty(), "{ttl:?}: nothing is due yet");
            store.hand.advance(period * 9 / 10);
            assert!(settle(&mut store).await.is_empty(), "{ttl:?}: nothing is due yet");
            store.hand.advance(period / 10);
            store.renew().await.1.give(vec![waits(7, LONG[2])]);
        }
        assert!(!waiter.is_finished());
    }
}

#[tokio::test]
async fn a_task_that_is_passed_a_lock_with_a_long_lease_has_time_to_pick_it_up() {
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
        assert!(settle(&mut store).await.is_empty(), "{ttl:?}: it stays passed");
        store.hand.advance(millis(1900));
        assert!(settle(&mut store).await.is_empty(), "{ttl:?}: it stays passed");
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
        store.hand.advance(millis(9900));
        let questions = settle(&mut store).await;
        let is_question = |call: &Call| matches!(call, Call::Renew { leases, .. } if leases[0].ttl.is_zero());
        assert!(questions.iter().all(is_question), "{ttl:?}: it is not withdrawn: {questions:?}");
        answer.give(Admission::Held(held(7)));
        let guard = asks.now_or_never().expect("it is there").unwrap();
        assert_eq!(guard.fence().unwrap(), 7);
    }
}
