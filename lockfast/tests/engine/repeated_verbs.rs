//! Every verb of a caller, with its request or its answer lost once.

use std::pin::pin;

use futures::poll;
use lockfast::Error;
use lockfast::store::Standing;
use lockfast::store::{Ticket, Tickets};

use crate::fixture::{GRAIN, hold};
use crate::flaky::{Flaky, LOSSES, Loss};
use crate::repeats::is_lost;
use crate::script::Director;
use crate::steps::{millis, secs, soon, until_waiting};

#[tokio::test]
async fn an_extension_is_repeated_and_counts_from_the_repeat() {
    for loss in LOSSES {
        let (store, locks, _hand) = Flaky::new();
        let guard = locks.mutex("a").lock().await.unwrap();
        store.lose(&[loss]);
        guard.extend(secs(600)).await.unwrap();
        assert_eq!(store.requests(), vec![format!("renew {}", guard.owner()); 2], "{loss:?}");
        assert!(guard.remaining() >= secs(600), "{loss:?}");
        assert!(store.queue("a").await[0].expires_in >= secs(600), "{loss:?}");
    }
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").no_renewal();
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    let mut extending = pin!(guard.extend(secs(60)));
    assert!(poll!(extending.as_mut()).is_pending());
    let (_, answer) = store.renew().await;
    store.manual_clock.advance(secs(1));
    answer.lose();
    assert!(poll!(extending.as_mut()).is_pending());
    let (leases, answer) = store.renew().await;
    store.manual_clock.advance(secs(1));
    answer.give(vec![Standing::Held(Tickets::new(Ticket(7), 1))]);
    soon(extending).await.unwrap();
    let ttl = leases[0].ttl;
    assert_eq!(guard.remaining(), ttl - ttl / 100 - millis(2) - secs(1), "from when the repeat was sent");
}

#[tokio::test]
async fn a_token_is_renewed_and_given_back_whatever_is_lost() {
    for loss in LOSSES {
        let (store, locks, _hand) = Flaky::new();
        let guard = locks.mutex("a").detached().lock().await.unwrap();
        store.lose(&[loss]);
        let token = guard.into_token().await.unwrap();
        assert_eq!(store.requests().len(), 2, "{loss:?}");
        store.lose(&[loss]);
        locks.renew_token(&token, secs(600)).await.unwrap();
        assert_eq!(store.requests().len(), 2, "{loss:?}");
        store.lose(&[loss]);
        let released = locks.release_token(&token).await;
        assert_eq!(store.requests().len(), 2, "{loss:?}");
        assert!(store.queue("a").await.is_empty(), "{loss:?}");
        match loss {
            Loss::Request => released.unwrap(),
            Loss::Answer => assert!(is_lost(&released), "{released:?}"),
        }
    }
}

#[tokio::test]
async fn a_break_is_repeated_and_its_answer_is_about_now() {
    for loss in LOSSES {
        let (store, locks, _hand) = Flaky::new();
        let guard = locks.mutex("a").lock().await.unwrap();
        store.lose(&[loss]);
        assert!(locks.break_lock("a", guard.fence().unwrap()).await.unwrap(), "{loss:?}: broken twice is broken");
        // The keeper has asked about the claim, and asks nothing more.
        soon(guard.lost()).await;
        let breaks = store.requests().iter().filter(|request| request.contains("Break")).count();
        assert_eq!(breaks, 2, "{loss:?}");
        store.lose(&[loss]);
        let now = locks.break_lock_now("a", guard.fence().unwrap()).await.unwrap();
        assert_eq!(now, loss == Loss::Request, "there is no such claim any more");
        assert!(store.queue("a").await.is_empty(), "{loss:?}");
    }
}

#[tokio::test]
async fn looking_is_repeated() {
    for loss in LOSSES {
        let (store, locks, _hand) = Flaky::new();
        let _guard = locks.mutex("a").lock().await.unwrap();
        store.lose(&[loss]);
        assert!(locks.mutex("a").is_locked().await.unwrap());
        assert_eq!(store.requests(), ["inspect"; 2]);
        store.lose(&[loss]);
        assert!(locks.mutex("a").info().await.unwrap().is_some());
        store.lose(&[loss]);
        locks.inspect("").await.unwrap();
        store.lose(&[loss]);
        locks.fleet_stats().await.unwrap();
        assert_eq!(store.requests(), ["inspect"; 2]);
    }
}

#[tokio::test]
async fn a_waiter_that_gives_up_looks_twice_at_the_holder() {
    let (store, locks, manual_clock) = Flaky::new();
    let held = locks.mutex("a").lock().await.unwrap();
    let mutex = locks.mutex("a");
    let caller = tokio::spawn(async move { mutex.lock_within(secs(1)).await });
    until_waiting(&locks, 1).await;
    store.lose(&[Loss::Request]);
    manual_clock.advance(secs(1) + GRAIN);
    let error = soon(caller).await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::Busy { holder: Some(holder), .. } if holder.owner == held.owner()), "{error}");
}
