//! Interleavings that are known to break locks, each written down step by step.

use lockfast::Error;
use lockfast::store::{Admission, Change, Leaving, Standing, Why};
use lockfast::store::{Ticket, Tickets};

use crate::script::Director;
use crate::steps::{
    PushBarrier, done, entered, gone, is_same, millis, secs, soon, unknown, until_waiting, waits, wants,
};

#[tokio::test]
async fn a_stale_push_for_an_earlier_claim_grants_nothing() {
    let mut store = Director::new();
    let waiter = wants(store.locks.mutex("a"));
    let first = store.queue(7, secs(3600)).await;
    until_waiting(&store.locks, 1).await;
    store.push(Change::Resync);
    store.renew().await.1.give(gone(1));
    let second = store.queue(9, secs(3600)).await;
    assert!(!is_same(&first, &second), "an id that is gone is not used again");
    let barrier = PushBarrier::join(&mut store).await;

    store.push(Change::Held(first.id.hash(), Ticket(7)));
    store.push(Change::Held(first.id.hash(), Ticket(9)));
    store.push(Change::Held(second.id.hash(), Ticket(7)));
    let _barrier = barrier.pass(&store).await;
    assert!(!waiter.is_finished());

    store.push(Change::Held(second.id.hash(), Ticket(9)));
    assert_eq!(entered(waiter).await.fence().unwrap(), 9);
}

#[tokio::test]
async fn a_late_short_renewal_does_not_shorten_an_extension() {
    let mut store = Director::new();
    let holder = wants(store.locks.mutex("a"));
    store.grant(7).await;
    let guard = entered(holder).await;
    store.manual_clock.advance(secs(10));
    let (_, late) = store.renew().await;
    let ((), extended) = tokio::join!(
        async {
            let (leases, answer) = store.renew().await;
            assert!(leases[0].ttl >= secs(300));
            answer.give(vec![Standing::Held(Tickets::new(Ticket(7), 1))]);
        },
        guard.extend(secs(300)),
    );
    extended.unwrap();
    assert!(guard.remaining() >= secs(300), "{guard:?}");

    let barrier = PushBarrier::join(&mut store).await;
    late.give(vec![Standing::Held(Tickets::new(Ticket(7), 1))]);
    let _barrier = barrier.pass(&store).await;
    assert!(guard.remaining() >= secs(300), "{guard:?}");
    store.manual_clock.advance(secs(299));
    guard.check().unwrap();
}

#[tokio::test]
async fn an_acquire_without_an_answer_is_repeated_with_its_id() {
    // And validity counts from the last send.
    let mut store = Director::new();
    let holder = wants(store.locks.mutex("a").ttl(secs(30)));
    let (first, _, answer) = store.acquire().await;
    answer.lose();
    let (repeat, _, answer) = store.acquire().await;
    assert!(is_same(&first, &repeat), "it asks again at once: a closed connection is found only by using it");
    answer.lose();
    let barrier = PushBarrier::join(&mut store).await;
    let _barrier = barrier.pass(&store).await;
    assert!(store.call_now().is_none(), "it pauses before it asks again");
    store.manual_clock.advance(millis(150));
    let (second, _, answer) = store.acquire().await;
    assert!(is_same(&first, &second), "the first acquire may have run: another id would be queued behind it");
    // The store renewed the claim when it ran the second time, and that was after it was sent.
    store.manual_clock.advance(secs(5));
    answer.give(Admission::Held(Tickets::new(Ticket(7), 1)));
    let left = entered(holder).await.remaining();
    assert!(left < secs(25) && left > secs(24), "{left:?}");
}

#[tokio::test]
async fn local_hand_offs_use_only_tickets_reserved_when_joining() {
    let mut store = Director::new();
    let locks = store.locks.clone();
    let holder = wants(locks.mutex("a"));
    assert_eq!(store.grant(10).await.block, 1, "no other request waits here");
    let guard = entered(holder).await;
    let mut requests: Vec<_> = (0..3).map(|_| wants(locks.mutex("a"))).collect();
    until_waiting(&locks, 3).await;

    let (released, ()) = tokio::join!(guard.release(), async {
        let (leaving, answer) = store.release().await;
        assert!(matches!(leaving[..], [Leaving::UnlessAlone { block: 3, floor: Ticket(10), .. }]), "{leaving:?}");
        answer.give(vec![Standing::Gone(Why::Left)]);
    });
    released.unwrap();
    let (claim, _, answer) = store.acquire().await;
    assert_eq!((claim.block, claim.floor), (3, Ticket(10)));
    // Requests that come after the block was reserved get none of its tickets.
    requests.extend((0..2).map(|_| wants(locks.mutex("a"))));
    until_waiting(&locks, 5).await;
    answer.give(Admission::Held(Tickets::new(Ticket(20), 3)));

    let mut requests = requests.into_iter();
    for fence in 20..22 {
        let guard = entered(requests.next().unwrap()).await;
        assert_eq!(guard.fence().unwrap(), fence);
        guard.release().await.unwrap();
    }
    let guard = entered(requests.next().unwrap()).await;
    assert_eq!(guard.fence().unwrap(), 22);
    let (released, ()) = tokio::join!(guard.release(), async {
        let (leaving, answer) = store.release().await;
        assert!(matches!(leaving[..], [Leaving::UnlessAlone { block: 2, floor: Ticket(22), .. }]), "{leaving:?}");
        answer.give(vec![Standing::Held(Tickets::new(Ticket(40), 2))]);
    });
    released.unwrap();
    for fence in 40..42 {
        let guard = entered(requests.next().unwrap()).await;
        assert_eq!(guard.fence().unwrap(), fence);
        if fence == 40 { guard.release().await.unwrap() } else { drop(guard) }
    }
    assert!(done(&store.let_go().await).is_some_and(|left| is_same(left, &claim)));
}

#[tokio::test]
async fn an_acquire_dropped_in_flight_is_withdrawn_as_unknown() {
    let mut store = Director::new();
    let request = wants(store.locks.mutex("a"));
    let (claim, _, _late) = store.acquire().await;
    request.abort();
    assert!(unknown(&store.let_go().await).is_some_and(|left| is_same(left, &claim)));
    assert!(soon(request).await.unwrap_err().is_cancelled());
    assert!(store.call_now().is_none());
}

#[tokio::test]
async fn a_cancelled_rejoin_is_withdrawn_once_its_outcome_is_known() {
    for outcome in ["held", "queued", "lost"] {
        let mut store = Director::new();
        let request = wants(store.locks.mutex("a"));
        store.queue(7, secs(3600)).await;
        until_waiting(&store.locks, 1).await;
        store.push(Change::Resync);
        store.renew().await.1.give(gone(1));
        let (claim, _, answer) = store.acquire().await;
        let barrier = PushBarrier::join(&mut store).await;
        request.abort();
        assert!(soon(request).await.unwrap_err().is_cancelled());
        let _barrier = barrier.pass(&store).await;
        // A release now could overtake the acquire, and leave a ghost.
        assert!(store.call_now().is_none(), "{outcome}");

        match outcome {
            "held" => answer.give(Admission::Held(Tickets::new(Ticket(9), 1))),
            "queued" => answer.give(Admission::Queued { ticket: Ticket(9), position: 1, recheck_in: secs(3600) }),
            _ => answer.lose(),
        }
        let leaving = store.let_go().await;
        let left = if outcome == "lost" { unknown(&leaving) } else { done(&leaving) };
        assert!(left.is_some_and(|left| is_same(left, &claim)), "{outcome}: {leaving:?}");
    }
}

#[tokio::test]
async fn a_lock_handed_to_a_withdrawn_claim_is_given_back_again() {
    let mut store = Director::new();
    let request = wants(store.locks.mutex("a"));
    let (claim, _, _late) = store.acquire().await;
    request.abort();
    assert!(unknown(&store.let_go().await).is_some());
    // The store ran the acquire after the release, and has granted the lock to a claim without a request.
    store.push(Change::Held(claim.id.hash(), Ticket(7)));
    assert!(unknown(&store.let_go().await).is_some_and(|left| is_same(left, &claim)));
}

#[tokio::test]
async fn a_waiter_asks_without_a_push_when_all_leases_ahead_ended() {
    let mut store = Director::new();
    let request = wants(store.locks.mutex("a").ttl(secs(30)));
    let claim = store.queue(7, secs(2)).await;
    until_waiting(&store.locks, 1).await;
    let barrier = PushBarrier::join(&mut store).await;
    store.manual_clock.advance(millis(1999));
    let _barrier = barrier.pass(&store).await;
    assert!(store.call_now().is_none(), "its lease is not due for renewal for ten seconds");
    store.manual_clock.advance(millis(10));
    let (leases, answer) = store.renew().await;
    assert!(is_same(&leases[0].claim, &claim));
    answer.give(vec![waits(7, secs(3))]);
    let barrier = PushBarrier::join(&mut store).await;
    let _barrier = barrier.pass(&store).await;
    store.manual_clock.advance(millis(3010));
    store.renew().await.1.give(vec![Standing::Held(Tickets::new(Ticket(7), 1))]);
    assert_eq!(entered(request).await.fence().unwrap(), 7);
}

#[tokio::test]
async fn a_waiter_evicted_by_a_seal_asks_anew_and_does_not_enter() {
    let mut store = Director::new();
    let request = wants(store.locks.mutex("a"));
    let first = store.queue(7, secs(3600)).await;
    until_waiting(&store.locks, 1).await;
    store.push(Change::Gone(first.id.hash()));
    let (leases, answer) = store.renew().await;
    assert!(is_same(&leases[0].claim, &first), "a push is a hint: it asks before it believes");
    answer.give(vec![Standing::Gone(Why::Sealed)]);
    let (second, _, answer) = store.acquire().await;
    assert!(!is_same(&first, &second));
    answer.give(Admission::Sealed(Default::default()));
    let refused = soon(request).await.unwrap().unwrap_err();
    assert!(matches!(&refused, Error::Invalid(text) if text.contains("runs once")), "{refused}");
    assert!(store.call_now().is_none());
}
