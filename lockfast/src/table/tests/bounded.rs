//! One verb removes a bounded number of expired claims. Nothing is granted over an expired claim that is not removed yet.

use super::*;

/// More expired claims than one verb removes. All of them expire before the claims of the queues under test.
const MANY: u64 = 2 * MAX_EXPIRED_PER_VERB as u64;

fn table_with_many_expiring() -> Table {
    let mut table = Table::new(Ticket(0));
    for id in 0..MANY {
        table.acquire(&mutex(1_000 + id, &format!("other {id}")), Busy::Wait, at(100)).unwrap();
    }
    table
}

#[test]
fn nothing_is_granted_over_an_unswept_expired_lease() {
    let mut table = table_with_many_expiring();
    let (holder, front, second) = (mutex(1, "a"), mutex(2, "a"), mutex(3, "a"));
    for claim in [&holder, &front, &second] {
        table.acquire(claim, Busy::Wait, at(101)).unwrap();
    }
    table.renew(&Lease { claim: second.clone(), ttl: secs(60) }, at(101));
    // All leases but the second waiter's have expired, and one verb cannot remove all of the claims.
    let standing = table.renew(&Lease { claim: second.clone(), ttl: secs(60) }, at(111));
    assert!(matches!(standing, Standing::Waiting { .. }), "{standing:?}");
    assert!(table.claims.contains_key(&holder.id.hash()), "the holder must not be swept yet");
    table.take_pushes();
    // The holder leaves by itself. The next claim of the queue has expired, and was not swept yet.
    assert_eq!(table.release(&Leaving::Done(holder), at(111)), Standing::Gone(Why::Expired));
    let pushes: Vec<_> = table.take_pushes().into_iter().filter(|(client, _)| client.0 < 1_000).collect();
    assert!(pushes.contains(&(second.client, Change::Held(second.id.hash(), Ticket(MANY + 3)))), "{pushes:?}");
    assert!(pushes.contains(&(front.client, Change::Gone(front.id.hash()))), "{pushes:?}");
    assert_eq!(pushes.len(), 2, "{pushes:?}");
}

#[test]
fn a_new_claim_waits_behind_an_unswept_expired_lease() {
    let mut table = table_with_many_expiring();
    let (holder, newcomer) = (mutex(1, "a"), mutex(2, "a"));
    table.acquire(&holder, Busy::Wait, at(101)).unwrap();
    let mut admission = table.acquire(&newcomer, Busy::Wait, at(111)).unwrap();
    assert!(matches!(admission, Admission::Queued { recheck_in: Duration::ZERO, .. }), "{admission:?}");
    // The waiter is told to poll at once. It holds after as many verbs as removing the expired claims takes.
    for _ in 0..MANY.div_ceil(MAX_EXPIRED_PER_VERB as u64) {
        admission = table.acquire(&newcomer, Busy::Wait, at(111)).unwrap();
    }
    assert_eq!(admission, Admission::Held(Tickets::new(Ticket(MANY + 2), 1)));
    table.release(&Leaving::Done(newcomer), at(111));
    assert!(table.is_empty());
}

#[test]
fn an_unswept_expired_claim_is_not_revived() {
    let mut table = table_with_many_expiring();
    let claim = mutex(1, "a");
    table.acquire(&claim, Busy::Wait, at(101)).unwrap();
    let standing = table.renew(&Lease { claim: claim.clone(), ttl: secs(60) }, at(111));
    assert_eq!(standing, Standing::Gone(Why::Unknown));
    let alone = Leaving::UnlessAlone { claim, block: 1, floor: Ticket(0) };
    assert!(matches!(table.release(&alone, at(111)), Standing::Gone(_)));
}

#[test]
fn many_entries_ahead_make_a_waiter_poll_early_never_late() {
    let mut table = Table::new(Ticket(0));
    let ahead = 3 * MAX_LOOKAHEAD as u64;
    for id in 0..ahead {
        table.acquire(&mutex(1_000 + id, "a"), Busy::Wait, at(100)).unwrap();
    }
    let hidden = mutex(1_000 + 2 * MAX_LOOKAHEAD as u64, "a");
    table.renew(&Lease { claim: hidden, ttl: secs(60) }, at(100));
    let admission = table.acquire(&mutex(1, "a"), Busy::Wait, at(100)).unwrap();
    assert!(matches!(admission, Admission::Queued { recheck_in, .. } if recheck_in == secs(10)), "{admission:?}");
}

#[test]
fn names_used_once_leave_no_expirations() {
    let mut table = Table::new(Ticket(0));
    for id in 0..10_000 {
        let claim = mutex(id, &format!("once {id}"));
        table.acquire(&claim, Busy::Wait, at(100)).unwrap();
        table.release(&Leaving::Done(claim), at(100));
    }
    assert!(table.is_empty());
    assert!(table.expirations.len() < 200, "{} expirations are kept of claims that left", table.expirations.len());
}
