//! How long a hold is valid: on the client's clock, from before the call was sent, and compared with the clock at each check.

use std::pin::pin;
use std::time::Duration;

use futures::{FutureExt, poll};
use lockfast::store::{Admission, Change, Standing};
use lockfast::store::{Ticket, Tickets};
use lockfast::{Error, LostWhy};

use crate::fixture::{
    GRAIN, NEVER, TTL, VALID, hold, on_lost, push, released_and_asked_anew, renewed, settle, soon, stop_keeper, wait,
};
use crate::script::{Call, Director};

const SECOND: Duration = Duration::from_secs(1);

fn held(ticket: u64) -> Admission {
    Admission::Held(Tickets::new(Ticket(ticket), 1))
}

fn still_held(ticket: u64) -> Vec<Standing> {
    vec![Standing::Held(Tickets::new(Ticket(ticket), 1))]
}

#[tokio::test]
async fn validity_is_counted_from_before_the_call_was_sent() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let late = async {
        let (_, _, answer) = store.acquire().await;
        store.manual_clock.advance(5 * SECOND);
        let _question_of_the_keeper = store.renew().await;
        answer.give(held(7));
    };
    let (guard, ()) = tokio::join!(mutex.lock(), late);
    let guard = guard.unwrap();
    assert_eq!(guard.remaining(), VALID - 5 * SECOND);

    store.manual_clock.advance(5 * SECOND);
    let (_, answer) = store.renew().await;
    store.manual_clock.advance(3 * SECOND);
    answer.give(still_held(7));
    settle(&mut store).await;
    assert_eq!(guard.remaining(), VALID - 3 * SECOND);
}

#[tokio::test]
async fn a_grant_that_arrives_after_its_validity_is_released() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(5 * SECOND);
    let asking = tokio::spawn(async move { mutex.lock().await });
    let (first, _, answer) = store.acquire().await;
    store.manual_clock.advance(5 * SECOND);
    answer.give(held(7));
    let second = released_and_asked_anew(&mut store, &first, 8).await;
    assert_ne!(second.id.hash(), first.id.hash());
    assert_eq!(asking.await.unwrap().unwrap().remaining(), Duration::from_millis(4_948));
}

#[tokio::test]
async fn a_lock_granted_by_push_is_valid_from_its_acquire() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (waiter, claim) = wait(&mut store, mutex, 7).await;
    store.manual_clock.advance(5 * SECOND);
    store.push(Change::Held(claim.id.hash(), Ticket(7)));
    assert_eq!(soon(waiter).await.unwrap().unwrap().remaining(), VALID - 5 * SECOND);
}

#[tokio::test]
async fn a_lock_granted_by_push_is_valid_from_its_last_renewal() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (waiter, claim) = wait(&mut store, mutex, 7).await;
    store.manual_clock.advance(10 * SECOND);
    let (_, answer) = store.renew().await;
    store.manual_clock.advance(2 * SECOND);
    answer.give(vec![Standing::Waiting { ticket: Ticket(7), recheck_in: NEVER }]);
    settle(&mut store).await;
    store.manual_clock.advance(2 * SECOND);
    store.push(Change::Held(claim.id.hash(), Ticket(7)));
    assert_eq!(soon(waiter).await.unwrap().unwrap().remaining(), VALID - 4 * SECOND);
}

#[tokio::test]
async fn a_push_with_less_than_half_a_lease_left_is_renewed_first() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (mut waiter, claim) = wait(&mut store, mutex, 7).await;
    store.manual_clock.advance(16 * SECOND);
    store.renew().await.1.lose();
    settle(&mut store).await;

    store.push(Change::Held(claim.id.hash(), Ticket(7)));
    let (leases, answer) = store.renew().await;
    assert_eq!(leases[0].claim.id.hash(), claim.id.hash());
    settle(&mut store).await;
    assert!(poll!(&mut waiter).is_pending());
    answer.give(still_held(7));
    assert_eq!(soon(waiter).await.unwrap().unwrap().remaining(), VALID);
}

#[tokio::test]
async fn an_answer_from_before_the_hand_off_undoes_no_grant() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (waiter, claim) = wait(&mut store, mutex, 7).await;
    store.manual_clock.advance(16 * SECOND);
    let (_, answer) = store.renew().await;
    push(&mut store, Change::Held(claim.id.hash(), Ticket(7))).await;
    // The renewal ran first, then the hand-off; the push was quicker than the answer.
    answer.give(vec![Standing::Waiting { ticket: Ticket(7), recheck_in: NEVER }]);
    renewed(&mut store, 7).await;
    assert_eq!(soon(waiter).await.unwrap().unwrap().remaining(), VALID);
}

#[tokio::test]
async fn a_push_with_no_lease_left_leads_to_a_new_claim() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(5 * SECOND);
    let (mut waiter, claim) = wait(&mut store, mutex, 7).await;
    store.manual_clock.advance(6 * SECOND);
    store.renew().await.1.lose();
    settle(&mut store).await;

    // The push alone does not let it enter, and the answer that would comes too late as well.
    store.push(Change::Held(claim.id.hash(), Ticket(7)));
    let (_, answer) = store.renew().await;
    assert!(poll!(&mut waiter).is_pending());
    store.manual_clock.advance(5 * SECOND);
    answer.give(still_held(7));
    let second = released_and_asked_anew(&mut store, &claim, 8).await;
    assert_ne!(second.id.hash(), claim.id.hash());
    soon(waiter).await.unwrap().unwrap().check().unwrap();
}

#[tokio::test]
async fn validity_is_judged_by_the_clock_with_a_stuck_keeper() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    let stopped = stop_keeper(&mut store).await;
    store.manual_clock.advance(VALID - GRAIN - Duration::from_nanos(1));
    guard.check().unwrap();
    assert_eq!(guard.remaining(), Duration::from_nanos(1));
    store.manual_clock.advance(Duration::from_nanos(1));
    assert!(matches!(guard.check(), Err(Error::Lost { why: LostWhy::Expired, .. })));
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert!(poll!(pin!(guard.lost())).is_ready());
    drop(stopped.go_on());
}

#[tokio::test]
async fn after_a_suspend_longer_than_the_lease_locks_are_lost() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    let called = on_lost(&guard);
    store.manual_clock.advance(3600 * SECOND);
    assert!(guard.check().is_err());
    assert_eq!(soon(called).await.unwrap(), LostWhy::Expired);
    assert!(settle(&mut store).await.is_empty(), "a lost hold is not renewed");
}

#[tokio::test]
async fn a_renewal_answered_after_the_deadline_does_not_revive() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    store.manual_clock.advance(10 * SECOND);
    let (_, answer) = store.renew().await;
    let stopped = stop_keeper(&mut store).await;
    store.manual_clock.advance(20 * SECOND);
    // The keeper will find the answer before it finds the deadline.
    answer.give(still_held(7));
    let other = stopped.go_on();
    settle(&mut store).await;
    assert!(matches!(guard.check(), Err(Error::Lost { why: LostWhy::Expired, .. })));
    drop(other);
}

#[tokio::test]
async fn an_extension_counts_from_the_call_and_is_not_shortened() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    store.manual_clock.advance(5 * SECOND);
    let late = async {
        let (leases, answer) = store.renew().await;
        assert!(leases[0].ttl > 60 * SECOND);
        store.manual_clock.advance(2 * SECOND);
        answer.give(still_held(7));
    };
    let (extended, ()) = tokio::join!(guard.extend(60 * SECOND), late);
    extended.unwrap();
    let remaining = guard.remaining();
    assert!(remaining >= 58 * SECOND && remaining < 60 * SECOND, "{remaining:?}");

    store.manual_clock.advance(8 * SECOND);
    renewed(&mut store, 7).await;
    settle(&mut store).await;
    assert_eq!(guard.remaining(), remaining - 8 * SECOND);
    // Not lost either at the end of a lease that began with that renewal.
    for _ in 0..4 {
        store.manual_clock.advance(8 * SECOND);
        for call in settle(&mut store).await {
            assert!(matches!(call, Call::Renew { .. }));
        }
        guard.check().unwrap();
    }
}

#[tokio::test]
async fn hold_at_most_ends_a_hold_on_time_and_stops_its_renewal() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL).hold_at_most(40 * SECOND);
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    store.manual_clock.advance(10 * SECOND);
    renewed(&mut store, 7).await;
    settle(&mut store).await;
    store.manual_clock.advance(10 * SECOND);
    renewed(&mut store, 7).await;
    settle(&mut store).await;
    // The lease reaches beyond the end now.
    store.manual_clock.advance(20 * SECOND - Duration::from_nanos(1));
    assert!(settle(&mut store).await.is_empty());
    guard.check().unwrap();
    store.manual_clock.advance(GRAIN);
    assert_eq!(soon(guard.lost()).await, LostWhy::HeldAtMost);
    store.manual_clock.advance(3600 * SECOND);
    assert!(settle(&mut store).await.is_empty());
    assert!(matches!(guard.check(), Err(Error::Lost { why: LostWhy::HeldAtMost, .. })));
}

#[tokio::test]
async fn an_extension_beyond_hold_at_most_is_refused() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL).hold_at_most(60 * SECOND);
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    store.manual_clock.advance(5 * SECOND);
    let refused = guard.extend(56 * SECOND).now_or_never();
    assert!(matches!(refused, Some(Err(Error::Invalid(_)))), "{refused:?}");
    assert!(settle(&mut store).await.is_empty(), "a refused extension makes no call");
    assert_eq!(guard.remaining(), VALID - 5 * SECOND);

    let (extended, ()) = tokio::join!(guard.extend(54 * SECOND), renewed(&mut store, 7));
    extended.unwrap();
    assert!(guard.remaining() >= 54 * SECOND, "{guard:?}");
}

#[tokio::test]
async fn without_renewal_a_hold_is_lost_on_time() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL).no_renewal();
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    let called = on_lost(&guard);
    for _ in 0..29 {
        store.manual_clock.advance(SECOND);
        assert!(settle(&mut store).await.is_empty());
    }
    guard.check().unwrap();
    store.manual_clock.advance(SECOND);
    assert_eq!(soon(called).await.unwrap(), LostWhy::Expired);
    assert!(settle(&mut store).await.is_empty());
}

#[tokio::test]
async fn a_lock_without_renewal_begins_whole_after_a_wait() {
    // The second has had a renewal fail, so that two thirds of its lease are gone.
    for (waited, fails) in [(9 * SECOND, 0), (20 * SECOND, 1)] {
        let mut store = Director::new();
        let mutex = store.locks.mutex("a").ttl(TTL).no_renewal();
        let (mut waiter, claim) = wait(&mut store, mutex, 7).await;
        store.manual_clock.advance(waited);
        for _ in 0..fails {
            store.renew().await.1.lose();
        }
        settle(&mut store).await;
        store.push(Change::Held(claim.id.hash(), Ticket(7)));
        let (leases, answer) = store.renew().await;
        assert_eq!((leases[0].claim.id.hash(), leases[0].ttl), (claim.id.hash(), TTL));
        settle(&mut store).await;
        assert!(poll!(&mut waiter).is_pending());
        answer.give(still_held(7));
        let guard = soon(waiter).await.unwrap().unwrap();
        assert_eq!(guard.remaining(), VALID);
        assert!(settle(&mut store).await.is_empty(), "it is not renewed again");
    }
}

#[tokio::test]
async fn a_quick_grant_without_renewal_is_not_renewed_first() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL).no_renewal();
    let (waiter, claim) = wait(&mut store, mutex, 7).await;
    store.manual_clock.advance(2 * SECOND);
    store.push(Change::Held(claim.id.hash(), Ticket(7)));
    let guard = soon(waiter).await.unwrap().unwrap();
    assert_eq!(guard.remaining(), VALID - 2 * SECOND);
    assert!(settle(&mut store).await.is_empty());
}

#[tokio::test]
async fn a_lock_without_renewal_that_is_picked_up_late_begins_whole() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(5 * SECOND).no_renewal();
    let mut waiter = pin!(mutex.lock());
    assert!(poll!(waiter.as_mut()).is_pending());
    let claim = store.queue(7, NEVER).await;
    assert!(poll!(waiter.as_mut()).is_pending());
    push(&mut store, Change::Held(claim.id.hash(), Ticket(7))).await;
    store.manual_clock.advance(SECOND);
    assert!(settle(&mut store).await.is_empty());
    // The keeper is woken for it.
    store.keeper_sleeps().await;
    assert!(poll!(waiter.as_mut()).is_pending());
    renewed(&mut store, 7).await;
    assert_eq!(soon(waiter).await.unwrap().remaining(), Duration::from_millis(4_948));
}

#[tokio::test]
async fn hold_at_most_counts_from_the_grant() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL).hold_at_most(20 * SECOND);
    let (waiter, claim) = wait(&mut store, mutex, 7).await;
    store.manual_clock.advance(5 * SECOND);
    store.push(Change::Held(claim.id.hash(), Ticket(7)));
    assert_eq!(soon(waiter).await.unwrap().unwrap().remaining(), 20 * SECOND);
}
