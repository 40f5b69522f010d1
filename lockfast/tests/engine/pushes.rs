//! No grant by push is lost, and a push counts only for its own claim and ticket.

use std::sync::Arc;

use lockfast::store::{Admission, Change, Standing, Why};
use lockfast::store::{Claim, Ticket, Tickets};

use crate::fixture::{GRAIN, push, settle, wait};
use crate::script::{Call, Director};
use crate::steps::{PushBarrier, Request, done, entered, gone, is_same, millis, secs, until_waiting, waits, wants};

fn queued(ticket: u64) -> Admission {
    Admission::Queued { ticket: Ticket(ticket), position: 1, recheck_in: secs(3600) }
}

#[tokio::test]
async fn a_push_that_overtakes_the_answer_to_the_acquire_counts() {
    let mut store = Director::new();
    let barrier = PushBarrier::join(&mut store).await;
    let request = wants(store.locks.mutex("a"));
    let (claim, _, answer) = store.acquire().await;
    store.push(Change::Held(claim.id.hash(), Ticket(7)));
    let _barrier = barrier.pass(&store).await;
    answer.give(queued(7));
    assert_eq!(entered(request).await.fence().unwrap(), 7);
}

#[tokio::test]
async fn an_early_push_with_another_ticket_does_not_count() {
    let mut store = Director::new();
    let barrier = PushBarrier::join(&mut store).await;
    let request = wants(store.locks.mutex("a"));
    let (claim, _, answer) = store.acquire().await;
    store.push(Change::Held(claim.id.hash(), Ticket(6)));
    let _barrier = barrier.pass(&store).await;
    answer.give(queued(7));
    until_waiting(&store.locks, 1).await;
    let barrier = PushBarrier::join(&mut store).await;
    let _second = barrier.pass(&store).await;
    assert!(!request.is_finished());
    store.push(Change::Held(claim.id.hash(), Ticket(7)));
    assert_eq!(entered(request).await.fence().unwrap(), 7);
}

#[tokio::test]
async fn a_push_that_overtakes_the_answer_to_a_rejoin_counts() {
    let mut store = Director::new();
    let request = wants(store.locks.mutex("a"));
    let first = store.queue(7, secs(3600)).await;
    until_waiting(&store.locks, 1).await;
    let barrier = PushBarrier::join(&mut store).await;
    store.push(Change::Gone(first.id.hash()));
    store.renew().await.1.give(gone(1));
    let (second, _, answer) = store.acquire().await;
    assert!(!is_same(&first, &second));
    store.push(Change::Held(second.id.hash(), Ticket(9)));
    let _barrier = barrier.pass(&store).await;
    answer.give(queued(9));
    assert_eq!(entered(request).await.fence().unwrap(), 9);
}

#[tokio::test]
async fn a_resync_makes_up_for_a_lost_push() {
    let mut store = Director::new();
    let request = wants(store.locks.mutex("a"));
    let claim = store.queue(7, secs(3600)).await;
    until_waiting(&store.locks, 1).await;
    store.push(Change::Resync);
    let (leases, answer) = store.renew().await;
    assert!(is_same(&leases[0].claim, &claim));
    answer.give(vec![Standing::Held(Tickets::new(Ticket(7), 1))]);
    let guard = entered(request).await;
    assert!(store.call_now().is_none());
    assert_eq!(guard.fence().unwrap(), 7);
}

#[tokio::test]
async fn a_new_stream_makes_up_for_a_lost_push() {
    let mut store = Director::new();
    let request = wants(store.locks.mutex("a"));
    let claim = store.queue(7, secs(3600)).await;
    until_waiting(&store.locks, 1).await;
    store.cut_pushes().await;
    let (leases, answer) = store.renew().await;
    assert!(is_same(&leases[0].claim, &claim));
    answer.give(vec![waits(7, secs(3600))]);
    // The new stream is listened to.
    store.push(Change::Held(claim.id.hash(), Ticket(7)));
    assert_eq!(entered(request).await.fence().unwrap(), 7);
}

/// Waiters of one client, each with a claim of its own, and tickets in another order than they came in.
async fn waiters(store: &mut Director, count: u64) -> Vec<(u64, Arc<Claim>, Request)> {
    let mut waiters = Vec::new();
    for nth in 0..count {
        let ticket = 100 + nth * 7 % count;
        let request = wants(store.locks.mutex("a").local_handoff(false));
        waiters.push((ticket, store.queue(ticket, secs(3600)).await, request));
    }
    until_waiting(&store.locks, count).await;
    waiters
}

#[tokio::test]
async fn requests_that_fell_out_rejoin_in_order_with_new_ids() {
    const COUNT: u64 = 24;
    let mut store = Director::new();
    let waiters = waiters(&mut store, COUNT).await;
    let old: Vec<_> = waiters.iter().map(|(_, claim, _)| claim.id.hash()).collect();
    store.cut_pushes().await;
    let mut asked = 0;
    while asked < COUNT as usize {
        // Asking with an acquire would join again, at the back.
        let (leases, answer) = store.renew().await;
        asked += leases.len();
        answer.give(gone(leases.len()));
    }
    // The tickets that the test gives out identify the requests below.
    let mut new = Vec::new();
    for nth in 0..COUNT {
        let (claim, _, answer) = store.acquire().await;
        assert!(!old.contains(&claim.id.hash()));
        assert!(nth > 0 || store.call_now().is_none(), "the first goes alone");
        answer.give(queued(200 + nth));
        new.push(claim);
    }
    // Granted in the new order, the lock reaches the requests in their old order.
    let mut requests: Vec<_> = waiters.into_iter().map(|(ticket, _, request)| (ticket, request)).collect();
    requests.sort_by_key(|(ticket, _)| *ticket);
    for (nth, (_, request)) in requests.into_iter().enumerate() {
        store.push(Change::Held(new[nth].id.hash(), Ticket(200 + nth as u64)));
        let guard = entered(request).await;
        assert_eq!(guard.fence().unwrap(), 200 + nth as u64);
        drop(guard);
        store.let_go().await;
    }
}

#[tokio::test]
async fn no_request_rejoins_before_all_that_fell_out_are_known() {
    let mut store = Director::new();
    // More than fit into one call, so that the answers come one after the other.
    let waiters = waiters(&mut store, 300).await;
    store.push(Change::Resync);
    let (first, answer) = store.renew().await;
    let (second, later) = store.renew().await;
    assert_eq!(first.len() + second.len(), waiters.len());
    let barrier = PushBarrier::join(&mut store).await;
    answer.give(gone(first.len()));
    let _barrier = barrier.pass(&store).await;
    assert!(store.call_now().is_none(), "an older claim may be in the other call");
    later.give(gone(second.len()));
    assert!(matches!(store.call().await, Call::Acquire { .. }));
}

#[tokio::test]
async fn a_waiter_asks_when_the_shortened_lease_ahead_ends() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(secs(3600));
    let (waiter, claim) = wait(&mut store, mutex, 8).await;
    push(&mut store, Change::Recheck(claim.id.hash(), millis(2500))).await;
    store.manual_clock.advance(millis(2400));
    assert!(settle(&mut store).await.is_empty(), "the lease ahead goes on");
    store.manual_clock.advance(millis(101) + GRAIN);
    let (leases, answer) = store.renew().await;
    assert!(is_same(&leases[0].claim, &claim));
    answer.give(vec![Standing::Held(Tickets::new(Ticket(8), 1))]);
    drop(entered(waiter).await);
}

#[tokio::test]
async fn a_waiter_asks_again_when_a_lease_gets_shorter_while_it_asks() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(secs(3600));
    let (_waiter, claim) = wait(&mut store, mutex, 8).await;
    store.push(Change::Resync);
    let (_, answer) = store.renew().await;
    push(&mut store, Change::Recheck(claim.id.hash(), millis(2500))).await;
    // The answer is from before that.
    answer.give(vec![waits(8, secs(3600))]);
    let (leases, _) = store.renew().await;
    assert!(is_same(&leases[0].claim, &claim));
}

#[tokio::test]
async fn a_waiter_that_leaves_during_its_renewal_holds_up_no_rejoin() {
    for answered in [true, false] {
        let mut store = Director::new();
        let mut waiters = waiters(&mut store, 2).await;
        let (_, stays, _request) = waiters.pop().unwrap();
        let (_, leaves, request) = waiters.pop().unwrap();
        store.push(Change::Gone(leaves.id.hash()));
        let (_, answer) = store.renew().await;
        request.abort();
        assert!(done(&store.let_go().await).is_some_and(|left| is_same(left, &leaves)));
        if answered {
            answer.give(vec![waits(100, secs(3600))])
        } else {
            answer.lose()
        }
        store.keeper_sleeps().await;

        store.push(Change::Gone(stays.id.hash()));
        store.renew().await.1.give(gone(1));
        // Without any time passing: no answer is awaited that could name an older one.
        let (again, ..) = store.acquire().await;
        assert!(!is_same(&again, &stays) && again.demands == stays.demands);
    }
}

#[tokio::test]
async fn a_lease_ahead_that_gets_shorter_puts_no_question_off() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(secs(3600));
    let (_waiter, claim) = wait(&mut store, mutex, 8).await;
    store.push(Change::Resync);
    store.renew().await.1.lose();
    assert!(settle(&mut store).await.is_empty(), "it asks again in a moment");
    push(&mut store, Change::Recheck(claim.id.hash(), secs(20))).await;
    store.manual_clock.advance(secs(1));
    let (leases, _) = store.renew().await;
    assert!(is_same(&leases[0].claim, &claim));
}

#[tokio::test]
async fn an_early_push_for_one_claim_is_not_kept_for_the_next() {
    let mut store = Director::new();
    let request = wants(store.locks.mutex("a"));
    let (first, _, answer) = store.acquire().await;
    push(&mut store, Change::Held(first.id.hash(), Ticket(9))).await;
    answer.give(Admission::Gone(Why::Unknown));
    // A store that lost its data may draw the same ticket again.
    let second = store.queue(9, secs(3600)).await;
    assert!(!is_same(&first, &second));
    until_waiting(&store.locks, 1).await;
    assert!(settle(&mut store).await.is_empty());
    assert!(!request.is_finished(), "only the second claim's own push counts");
    store.push(Change::Held(second.id.hash(), Ticket(9)));
    assert_eq!(entered(request).await.fence().unwrap(), 9);
}
