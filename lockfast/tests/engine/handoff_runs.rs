//! A run of local hand-offs ends after 64 hand-offs or ten milliseconds, with one question to the store; and what follows.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures::poll;
use lockfast::store::{Admission, Change, Leaving, Standing, Why};
use lockfast::store::{Ticket, Tickets};
use lockfast::{Error, Guard, LostWhy};

use crate::fixture::{GRAIN, Stopped, released_and_asked_anew, settle, stop_keeper};
use crate::script::{Call, Director};
use crate::steps::{Request, done, entered, is_same, millis, secs, soon, until_waiting, wants};

/// Releases with a question to the store, which answers it.
async fn asks_whether_alone(store: &mut Director, guard: Guard, answer: Standing) -> u32 {
    let (released, block) = tokio::join!(guard.release(), async {
        let (leaving, reply) = store.release().await;
        let [Leaving::UnlessAlone { block, .. }] = leaving[..] else { panic!("the run is over: {leaving:?}") };
        reply.give(vec![answer]);
        block
    });
    released.unwrap();
    block
}

/// A holder, and so many tasks of the same process behind it.
async fn holder_and(store: &mut Director, count: u64) -> (Guard, impl Iterator<Item = Request> + use<>) {
    let locks = store.locks.clone();
    let holder = wants(locks.mutex("a"));
    store.grant(1).await;
    let guard = entered(holder).await;
    let requests: Vec<_> = (0..count).map(|_| wants(locks.mutex("a"))).collect();
    until_waiting(&locks, count).await;
    (guard, requests.into_iter())
}

fn block(first: u64, count: u32) -> Standing {
    Standing::Held(Tickets::new(Ticket(first), count))
}

#[tokio::test]
async fn a_run_ends_after_64_hand_offs_with_one_question() {
    let mut store = Director::new();
    let (guard, mut requests) = holder_and(&mut store, 70).await;
    assert_eq!(asks_whether_alone(&mut store, guard, block(100, 64)).await, 64);
    for fence in 100..163 {
        let guard = entered(requests.next().unwrap()).await;
        assert_eq!(guard.fence().unwrap(), fence);
        guard.release().await.unwrap();
        assert!(store.call_now().is_none(), "a local hand-off makes no call");
    }
    let last = entered(requests.next().unwrap()).await;
    assert_eq!(last.fence().unwrap(), 163);
    let old = last.owner();
    assert_eq!(asks_whether_alone(&mut store, last, Standing::Gone(Why::Left)).await, 6);
    let (claim, _, answer) = store.acquire().await;
    assert_ne!(claim.id.hash(), old);
    assert_eq!((claim.block, claim.floor), (6, Ticket(163)));
    answer.give(Admission::Held(Tickets::new(Ticket(500), 6)));
    assert_eq!(entered(requests.next().unwrap()).await.fence().unwrap(), 500);
}

#[tokio::test]
async fn with_fresh_tickets_the_same_claim_goes_on() {
    let mut store = Director::new();
    let (guard, mut requests) = holder_and(&mut store, 3).await;
    let owner = guard.owner();
    // The store has one ticket to spare: the second hand-off needs another question.
    asks_whether_alone(&mut store, guard, block(100, 1)).await;
    let guard = entered(requests.next().unwrap()).await;
    assert_eq!((guard.fence().unwrap(), guard.owner()), (100, owner));
    assert_eq!(asks_whether_alone(&mut store, guard, block(200, 2)).await, 2);
    let guard = entered(requests.next().unwrap()).await;
    assert_eq!((guard.fence().unwrap(), guard.owner()), (200, owner));
}

#[tokio::test]
async fn a_run_of_hand_offs_ends_after_ten_milliseconds() {
    let mut store = Director::new();
    let (guard, mut requests) = holder_and(&mut store, 4).await;
    asks_whether_alone(&mut store, guard, block(100, 4)).await;
    let guard = entered(requests.next().unwrap()).await;
    store.manual_clock.advance(millis(9));
    guard.release().await.unwrap();
    let guard = entered(requests.next().unwrap()).await;
    assert_eq!(guard.fence().unwrap(), 101);
    store.manual_clock.advance(millis(1));
    // Two tickets are left, and two tasks wait.
    assert_eq!(asks_whether_alone(&mut store, guard, block(200, 2)).await, 2);
    assert_eq!(entered(requests.next().unwrap()).await.fence().unwrap(), 200);
}

#[tokio::test]
async fn a_hand_off_needs_half_a_lease() {
    let mut store = Director::new();
    let locks = store.locks.clone();
    let mutex = || locks.mutex("a").ttl(secs(15)).renew_every(secs(7));
    let holder = wants(mutex());
    store.grant(1).await;
    let guard = entered(holder).await;
    let mut requests = (0..3).map(|_| wants(mutex())).collect::<Vec<_>>().into_iter();
    until_waiting(&locks, 3).await;
    asks_whether_alone(&mut store, guard, Standing::Gone(Why::Left)).await;
    let (_, _, answer) = store.acquire().await;
    // The answer takes so long that less than half of the lease is left when the run begins.
    store.manual_clock.advance(secs(9));
    let _question_of_the_keeper = store.renew().await;
    answer.give(Admission::Held(Tickets::new(Ticket(20), 3)));
    let guard = entered(requests.next().unwrap()).await;
    assert_eq!(guard.fence().unwrap(), 20);
    let _unanswered = store.renew().await;
    asks_whether_alone(&mut store, guard, block(30, 2)).await;
    // The question renewed the lease, so the next hand-off is allowed again.
    entered(requests.next().unwrap()).await.release().await.unwrap();
    assert_eq!(entered(requests.next().unwrap()).await.fence().unwrap(), 31);
}

#[tokio::test]
async fn fresh_tickets_with_less_than_half_a_lease_are_not_used() {
    let mut store = Director::new();
    let locks = store.locks.clone();
    let mutex = || locks.mutex("a").ttl(secs(15)).renew_every(secs(7));
    let holder = wants(mutex());
    let claim = store.grant(1).await;
    let guard = entered(holder).await;
    let next = wants(mutex());
    until_waiting(&locks, 1).await;
    let releasing = tokio::spawn(guard.release());
    let (_, first) = store.release().await;
    // The keeper repeats it; both answers take so long that less than half of the lease is left.
    store.manual_clock.advance(millis(100) + GRAIN);
    let (_, second) = store.release().await;
    store.manual_clock.advance(secs(9));
    second.give(vec![block(20, 1)]);
    released_and_asked_anew(&mut store, &claim, 30).await;
    first.give(vec![block(20, 1)]);
    soon(releasing).await.unwrap().unwrap();
    assert_eq!(entered(next).await.fence().unwrap(), 30);
}

#[tokio::test]
async fn the_end_of_a_run_reports_a_lock_that_the_store_took_away() {
    for (why, lost) in [(Why::Unknown, LostWhy::Evicted), (Why::Broken, LostWhy::Broken)] {
        let mut store = Director::new();
        let (guard, mut requests) = holder_and(&mut store, 1).await;
        let (released, claim) = tokio::join!(guard.release(), async {
            let (leaving, answer) = store.release().await;
            let [Leaving::UnlessAlone { claim, .. }] = &leaving[..] else { panic!("{leaving:?}") };
            answer.give(vec![Standing::Gone(why)]);
            Arc::clone(claim)
        });
        assert!(matches!(released, Err(Error::Lost { why, .. }) if why == lost), "{released:?}");
        // The request behind it asks all the same. A broken claim may still be in the queue, and is released.
        match why {
            Why::Broken => drop(released_and_asked_anew(&mut store, &claim, 20).await),
            _ => drop(store.grant(20).await),
        }
        assert_eq!(entered(requests.next().unwrap()).await.fence().unwrap(), 20);
    }
}

#[tokio::test]
async fn a_lock_without_renewal_is_not_handed_off_locally() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").no_renewal();
    let holder = wants(mutex.clone());
    let claim = store.grant(1).await;
    let guard = entered(holder).await;
    // The next request asks for itself, and so gets a whole lease of its own.
    let next = wants(mutex);
    let other = store.queue(2, secs(3600)).await;
    assert!(!is_same(&claim, &other));
    until_waiting(&store.locks, 1).await;
    let (released, left) = tokio::join!(guard.release(), store.let_go());
    released.unwrap();
    assert!(matches!(&left[..], [Leaving::Done(left)] if is_same(left, &claim)), "{left:?}");
    store.push(Change::Held(other.id.hash(), Ticket(2)));
    assert_eq!(entered(next).await.fence().unwrap(), 2);
}

#[tokio::test]
async fn hold_at_most_does_not_end_a_hold_between_two_holders() {
    // Whether or not the keeper looks at the hold before the next future is polled.
    for keeper_looks in [true, false] {
        let mut store = Director::new();
        let (guard, _) = holder_and(&mut store, 0).await;
        let capped = wants(store.locks.mutex("a").hold_at_most(millis(5)));
        until_waiting(&store.locks, 1).await;
        let mutex = store.locks.mutex("a");
        let mut next = pin!(mutex.lock());
        assert!(poll!(next.as_mut()).is_pending());
        asks_whether_alone(&mut store, guard, block(100, 2)).await;
        let capped = entered(capped).await;
        assert_eq!((capped.fence().unwrap(), capped.remaining()), (100, millis(5)));
        store.manual_clock.advance(millis(4));
        capped.release().await.unwrap();

        // The hold is between two requests when the cap of the last holder passes.
        let stopped = if keeper_looks { None } else { Some(stop_keeper(&mut store).await) };
        store.manual_clock.advance(millis(3));
        if keeper_looks {
            let calls = settle(&mut store).await;
            assert!(calls.iter().all(|call| matches!(call, Call::Renew { .. })), "{calls:?}");
        }
        let Poll::Ready(guard) = poll!(next.as_mut()) else { panic!("the hold was handed to it") };
        let guard = guard.unwrap();
        assert_eq!(guard.fence().unwrap(), 101);
        guard.check().unwrap();
        assert!(guard.remaining() > secs(20), "{guard:?}");
        drop(stopped.map(Stopped::go_on));
    }
}

#[tokio::test]
async fn a_hold_lost_between_two_holders_is_not_entered() {
    let mut store = Director::new();
    let (guard, _) = holder_and(&mut store, 0).await;
    let old = guard.owner();
    let mutex = store.locks.mutex("a");
    let mut next = pin!(mutex.lock());
    assert!(poll!(next.as_mut()).is_pending());
    let third = wants(mutex.clone());
    until_waiting(&store.locks, 2).await;
    asks_whether_alone(&mut store, guard, block(100, 2)).await;
    store.push(Change::Gone(old));
    store.renew().await.1.give(vec![Standing::Gone(Why::Broken)]);
    assert!(settle(&mut store).await.is_empty());

    // Its lease would go on for long, but the store has said that it is gone.
    assert!(poll!(next.as_mut()).is_pending());
    let (mut left, mut asked) = (false, None);
    while !left || asked.is_none() {
        match store.call().await {
            Call::Acquire { claim, answer, .. } => asked = Some((claim, answer)),
            Call::Release { leaving, .. } => left = done(&leaving).is_some_and(|claim| claim.id.hash() == old),
            other => panic!("{other:?}"),
        }
    }
    let (claim, answer) = asked.unwrap();
    assert_eq!(claim.block, 2, "the third task stays behind it");
    answer.give(Admission::Held(Tickets::new(Ticket(200), 2)));
    assert_eq!(soon(next).await.unwrap().fence().unwrap(), 200);
    assert!(!third.is_finished());
}
