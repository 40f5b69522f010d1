//! Calls whose outcome is unknown, and only those, are sent again: with the same claim, soon, and not often.

use std::pin::pin;
use std::time::Duration;

use futures::poll;
use lockfast::store::{Admission, BusyWith, Why};
use lockfast::store::{Ticket, Tickets};
use lockfast::{Error, OnceState, Outcome};

use crate::fixture::{GRAIN, VALID, hold, settle};
use crate::flaky::{Flaky, LOSSES, Loss};
use crate::script::{Call, Director};
use crate::steps::{is_same, millis, secs, soon, unknown};
use crate::stub::{Fault, Stub};

fn held(ticket: u64) -> Admission {
    Admission::Held(Tickets::new(Ticket(ticket), 1))
}

pub(crate) fn is_lost<T: std::fmt::Debug>(answer: &lockfast::Result<T>) -> bool {
    matches!(answer, Err(error @ Error::Unavailable { .. }) if error.to_string().contains("the answer was lost"))
}

#[tokio::test]
async fn a_try_gets_its_lock_once_whether_the_lost_request_ran_or_not() {
    for loss in LOSSES {
        let (store, locks, _hand) = Flaky::new();
        store.lose(&[loss]);
        let guard = locks.mutex("a").try_lock().await.unwrap().expect("it is free");
        let owner = guard.owner();
        assert_eq!(store.requests(), vec![format!("acquire {owner}"); 2], "{loss:?}: the same claim");
        let queue = store.queue("a").await;
        assert_eq!(queue.len(), 1, "{loss:?}: {queue:?}");
        assert_eq!((queue[0].owner, queue[0].tickets.first.0), (owner, guard.fence().unwrap()));
        assert!(locks.mutex("a").try_lock().await.unwrap().is_none(), "{loss:?}");
        store.lose(&[]);
        guard.release().await.unwrap();
        // Its first acquire may still run: the id is kept out.
        assert_eq!(store.requests(), [format!("release unknown {owner}")], "{loss:?}");
        assert!(store.queue("a").await.is_empty(), "{loss:?}");
    }
}

#[tokio::test]
async fn a_lock_that_is_waited_for_is_asked_for_again_at_once() {
    for loss in LOSSES {
        let (store, locks, _hand) = Flaky::new();
        store.lose(&[loss]);
        // The clock stands still: there is no pause.
        let guard = soon(locks.mutex("a").lock()).await.unwrap();
        assert_eq!(store.requests(), vec![format!("acquire {}", guard.owner()); 2], "{loss:?}");
        store.lose(&[loss]);
        let mutex = locks.mutex("b");
        drop(soon(mutex.lock_within(Duration::from_nanos(1))).await.unwrap());
    }
}

#[tokio::test]
async fn a_repeated_try_counts_from_when_the_repeat_was_sent() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    let caller = tokio::spawn(async move { mutex.try_lock().await });
    let (first, _, answer) = store.acquire().await;
    store.manual_clock.advance(millis(900));
    answer.lose();
    let (second, _, answer) = store.acquire().await;
    assert!(is_same(&first, &second));
    store.manual_clock.advance(millis(500));
    answer.give(held(7));
    let guard = soon(caller).await.unwrap().unwrap().unwrap();
    // The store renewed the claim when it ran the second, and that was after it was sent.
    assert_eq!(guard.remaining(), VALID - millis(500));
}

#[tokio::test]
async fn a_repeated_try_that_is_refused_leaves_a_tombstone() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    let caller = tokio::spawn(async move { mutex.try_lock().await });
    let (claim, _, answer) = store.acquire().await;
    answer.lose();
    store.acquire().await.2.give(Admission::Refused(BusyWith::default()));
    assert!(soon(caller).await.unwrap().unwrap().is_none());
    // The first acquire may still be in flight, and the lock may be free when it arrives.
    assert!(unknown(&store.let_go().await).is_some_and(|left| is_same(left, &claim)));
    assert!(settle(&mut store).await.is_empty());
}

#[tokio::test]
async fn a_repeat_that_finds_a_seal_or_a_tombstone_leaves_a_tombstone() {
    for admission in [Admission::Sealed("done".into()), Admission::Gone(Why::Broken)] {
        for tries in [true, false] {
            let mut store = Director::new();
            let once = store.locks.once("a");
            let work = async |_: &lockfast::Guard| Err::<&str, _>(Error::invalid("it must not run"));
            let caller = tokio::spawn(async move {
                let outcome = if tries { once.try_run(work).await } else { once.run(work).await };
                outcome.map(drop)
            });
            let (claim, _, answer) = store.acquire().await;
            answer.lose();
            store.acquire().await.2.give(admission.clone());
            let left = loop {
                match store.call().await {
                    Call::Release { leaving, .. } => break leaving,
                    Call::Acquire { .. } => {}
                    other => panic!("{other:?}"),
                }
            };
            assert!(unknown(&left).is_some_and(|left| is_same(left, &claim)), "{admission:?}: {left:?}");
            caller.abort();
        }
    }
}

#[tokio::test]
async fn a_try_that_is_dropped_between_two_requests_leaves_no_claim() {
    let (store, locks, manual_clock) = Flaky::new();
    let mutex = locks.mutex("a");
    // The first has run; the second has failed; the third waits for its moment.
    store.lose(&[Loss::Answer, Loss::Request]);
    {
        let mut trying = pin!(mutex.try_lock());
        assert!(poll!(trying.as_mut()).is_pending());
        assert_eq!(store.queue("a").await.len(), 1);
        assert_eq!(store.requests().len(), 2);
    }
    // The clock stands still, so the third was never sent; the keeper withdraws the claim.
    soon(async {
        while !store.queue("a").await.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    manual_clock.advance(secs(1));
    let requests = store.requests();
    assert!(requests[2].starts_with("release unknown"), "{requests:?}");
    assert_eq!(requests.iter().filter(|request| request.starts_with("acquire")).count(), 2, "{requests:?}");
}

#[tokio::test]
async fn a_shutdown_between_two_requests_ends_the_try() {
    let (store, locks, _hand) = Flaky::new();
    let mutex = locks.mutex("a");
    store.lose(&[Loss::Answer, Loss::Request]);
    let caller = tokio::spawn(async move { mutex.try_lock().await.map(drop) });
    soon(async {
        while store.queue("a").await.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    locks.shutdown(secs(5)).await.unwrap();
    assert!(soon(caller).await.unwrap().is_err());
    assert!(store.queue("a").await.is_empty());
}

#[tokio::test]
async fn only_an_unknown_outcome_is_repeated() {
    let mut store = Director::new();
    for error in [Error::invalid("no"), Error::unsupported("no"), Error::Closed("no")] {
        let mutex = store.locks.mutex("a");
        let caller = tokio::spawn(async move { mutex.try_lock().await.map(drop) });
        store.acquire().await.2.fail(error.clone());
        let got = soon(caller).await.unwrap().unwrap_err();
        assert_eq!(got.to_string(), error.to_string());
        assert!(settle(&mut store).await.is_empty(), "{error}");
    }
}

#[tokio::test]
async fn no_try_is_repeated_after_two_seconds_or_a_lease() {
    for (ttl, late) in [(secs(30), secs(2)), (millis(500), millis(493))] {
        let mut store = Director::new();
        let mutex = store.locks.mutex("a").ttl(ttl);
        let caller = tokio::spawn(async move { mutex.try_lock().await.map(drop) });
        let (_, _, answer) = store.acquire().await;
        store.manual_clock.advance(late);
        answer.lose();
        let error = soon(caller).await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{ttl:?}: {error}");
        loop {
            match store.call().await {
                Call::Acquire { .. } => panic!("{ttl:?}: it was repeated"),
                // The keeper asks about an acquire that takes long.
                Call::Renew { .. } => {}
                Call::Release { .. } => break,
            }
        }
    }
}

#[tokio::test]
async fn the_answer_to_a_repeat_is_awaited_for_three_seconds_in_all() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    let caller = tokio::spawn(async move { mutex.try_lock().await.map(drop) });
    store.acquire().await.2.lose();
    let (claim, _, _never) = store.acquire().await;
    store.manual_clock.advance(secs(3) + GRAIN);
    let error = soon(caller).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("the reply was lost"), "the last error is returned: {error}");
    let left = loop {
        match store.call().await {
            Call::Release { leaving, .. } => break leaving,
            // The keeper asks about an acquire that takes long.
            Call::Renew { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(unknown(&left).is_some_and(|left| is_same(left, &claim)));
}

#[tokio::test]
async fn without_patience_repeats_are_over_within_a_second() {
    let (stub, locks, manual_clock) = Stub::new(Fault::Fails);
    let (mutex, began) = (locks.mutex("a"), manual_clock.clock().now());
    let caller = tokio::spawn(async move { mutex.lock_within(Duration::ZERO).await });
    while !caller.is_finished() {
        manual_clock.advance(millis(10));
        stub.wait_until_settled().await;
    }
    assert!(matches!(soon(caller).await.unwrap(), Err(Error::Unavailable { .. })));
    assert_eq!(stub.times().into_values().next().unwrap().len(), 5);
    assert!(manual_clock.clock().now().since(began) < secs(1));
}

#[tokio::test]
async fn a_release_is_repeated_by_the_keeper_alone() {
    for loss in LOSSES {
        let (store, locks, _hand) = Flaky::new();
        let guard = locks.mutex("a").lock().await.unwrap();
        let owner = guard.owner();
        store.lose(&[loss]);
        let released = soon(guard.release()).await;
        assert_eq!(store.requests(), vec![format!("release done {owner}"); 2], "{loss:?}");
        assert!(store.queue("a").await.is_empty(), "{loss:?}");
        match loss {
            Loss::Request => released.unwrap(),
            // The repeat finds no claim: given back by the first, or lost before it.
            Loss::Answer => assert!(is_lost(&released), "{released:?}"),
        }
    }
}

#[tokio::test]
async fn a_repeated_release_is_recognised_by_its_tombstone() {
    let (store, locks, _hand) = Flaky::new();
    store.lose(&[Loss::Request]);
    let guard = locks.mutex("a").try_lock().await.unwrap().unwrap();
    store.lose(&[Loss::Answer]);
    soon(guard.release()).await.unwrap();
    assert_eq!(store.requests().len(), 2);
}

#[tokio::test]
async fn a_failing_release_ends_for_its_caller_and_goes_on() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(secs(30));
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    let began = store.manual_clock.clock().now();
    let releasing = tokio::spawn(guard.release());
    let mut sent = 0;
    while !releasing.is_finished() {
        store.keeper_sleeps().await;
        tokio::task::yield_now().await;
        match store.call_now() {
            Some(Call::Release { answer, .. }) => {
                sent += 1;
                answer.fail(Error::unavailable("testing", format!("trouble number {sent}")));
            }
            Some(other) => panic!("{other:?}"),
            None => store.manual_clock.advance(millis(5)),
        }
    }
    let error = soon(releasing).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("trouble number 5") && sent == 5, "{sent}: {error}");
    assert!(store.manual_clock.clock().now().since(began) < secs(3));
    store.manual_clock.advance(secs(2));
    store.let_go().await;
}

#[tokio::test]
async fn once_runs_once_whatever_is_lost() {
    // The acquire, or the seal.
    for (before, losses) in [(0, LOSSES), (1, LOSSES)] {
        for loss in losses {
            let (store, locks, _hand) = Flaky::new();
            let (mut runs, once) = (0, locks.once("a"));
            if before == 0 {
                store.lose(&[loss]);
            }
            let first = once.run(async |_: &lockfast::Guard| {
                runs += 1;
                if before == 1 {
                    store.lose(&[loss]);
                }
                Ok::<_, Error>("done")
            });
            let first = soon(first).await;
            match (before, loss) {
                // The first call sealed, as the check below shows; the answer to the repeat does not show it.
                (1, Loss::Answer) => assert!(is_lost(&first), "{first:?}"),
                _ => assert_eq!(first.unwrap(), Outcome::Ran("done".into())),
            }
            let again = once.run(async |_: &lockfast::Guard| Ok::<_, Error>("twice")).await.unwrap();
            assert_eq!(again, Outcome::AlreadyDone("done".into()), "{before} {loss:?}");
            assert_eq!(runs, 1);
        }
    }
    let (store, locks, _hand) = Flaky::new();
    store.lose(&[Loss::Request]);
    assert!(matches!(locks.once("a").begin().await.unwrap(), OnceState::Ours(_)));
}

#[tokio::test]
async fn a_thousand_tries_at_a_failing_store_send_five_thousand_calls() {
    let (stub, locks, manual_clock) = Stub::new(Fault::Fails);
    let callers: Vec<_> = (0..1000)
        .map(|number| {
            let mutex = locks.mutex(number.to_string());
            tokio::spawn(async move { mutex.try_lock().await.map(drop) })
        })
        .collect();
    while !callers.iter().all(tokio::task::JoinHandle::is_finished) {
        manual_clock.advance(millis(10));
        stub.wait_until_settled().await;
    }
    let times = stub.times();
    assert_eq!(times.len(), 1000);
    assert!(times.values().all(|times| times.len() == 5), "{:?}", times.values().map(Vec::len).max());
}
