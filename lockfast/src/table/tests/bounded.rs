//! One verb ends a bounded number of leases. What it did not look at is never granted over.

use super::*;

/// More leases than one verb ends, all of which end before those of the lines under test.
const CROWD: u64 = 2 * ENDED_A_VERB as u64;

fn crowded() -> Table {
    let mut table = Table::new(Ticket(0));
    for id in 0..CROWD {
        table.acquire(&mutex(1_000 + id, &format!("crowd {id}")), Busy::Wait, at(100)).unwrap();
    }
    table
}

#[test]
fn nothing_is_granted_over_a_lease_that_was_not_looked_at() {
    let mut table = crowded();
    let (holder, front, second) = (mutex(1, "a"), mutex(2, "a"), mutex(3, "a"));
    for claim in [&holder, &front, &second] {
        table.acquire(claim, Busy::Wait, at(101)).unwrap();
    }
    table.renew(&Lease { claim: second.clone(), ttl: secs(60) }, at(101));
    // Everybody's lease but the second's has run out, and one verb cannot see them all.
    let standing = table.renew(&Lease { claim: second.clone(), ttl: secs(60) }, at(111));
    assert!(matches!(standing, Standing::Waiting { .. }), "{standing:?}");
    assert!(table.claims.contains_key(&holder.id.hash()), "the crowd was to hide the holder");
    table.take_news();
    // The holder leaves by itself: the next in line is dead, though nobody looked at it yet.
    assert_eq!(table.release(&Leaving::Done(holder), at(111)), Standing::Gone(Why::Expired));
    let told: Vec<_> = table.take_news().into_iter().filter(|(client, _)| client.0 < 1_000).collect();
    assert!(told.contains(&(second.client, Change::Held(second.id.hash(), Ticket(CROWD + 3)))), "{told:?}");
    assert!(told.contains(&(front.client, Change::Gone(front.id.hash()))), "{told:?}");
    assert_eq!(told.len(), 2, "{told:?}");
}

#[test]
fn a_newcomer_waits_behind_a_lease_that_was_not_looked_at() {
    let mut table = crowded();
    let (holder, newcomer) = (mutex(1, "a"), mutex(2, "a"));
    table.acquire(&holder, Busy::Wait, at(101)).unwrap();
    let mut admission = table.acquire(&newcomer, Busy::Wait, at(111)).unwrap();
    assert!(matches!(admission, Admission::Queued { recheck_in: Duration::ZERO, .. }), "{admission:?}");
    // Told to ask again at once, it holds after as many verbs as the crowd needs.
    for _ in 0..CROWD.div_ceil(ENDED_A_VERB as u64) {
        admission = table.acquire(&newcomer, Busy::Wait, at(111)).unwrap();
    }
    assert_eq!(admission, Admission::Held(Tickets::new(Ticket(CROWD + 2), 1)));
    table.release(&Leaving::Done(newcomer), at(111));
    assert!(table.is_empty());
}

#[test]
fn a_dead_claim_that_was_not_looked_at_does_not_come_back() {
    let mut table = crowded();
    let claim = mutex(1, "a");
    table.acquire(&claim, Busy::Wait, at(101)).unwrap();
    let standing = table.renew(&Lease { claim: claim.clone(), ttl: secs(60) }, at(111));
    assert_eq!(standing, Standing::Gone(Why::Unknown));
    let alone = Leaving::UnlessAlone { claim, block: 1, floor: Ticket(0) };
    assert!(matches!(table.release(&alone, at(111)), Standing::Gone(_)));
}

#[test]
fn a_crowd_ahead_makes_a_waiter_ask_early_never_late() {
    let mut table = Table::new(Ticket(0));
    let ahead = 3 * LOOKED_AT_AHEAD as u64;
    for id in 0..ahead {
        table.acquire(&mutex(1_000 + id, "a"), Busy::Wait, at(100)).unwrap();
    }
    let hidden = mutex(1_000 + 2 * LOOKED_AT_AHEAD as u64, "a");
    table.renew(&Lease { claim: hidden, ttl: secs(60) }, at(100));
    let admission = table.acquire(&mutex(1, "a"), Busy::Wait, at(100)).unwrap();
    assert!(matches!(admission, Admission::Queued { recheck_in, .. } if recheck_in == secs(10)), "{admission:?}");
}

#[test]
fn names_used_once_leave_nothing_to_look_at() {
    let mut table = Table::new(Ticket(0));
    for id in 0..10_000 {
        let claim = mutex(id, &format!("once {id}"));
        table.acquire(&claim, Busy::Wait, at(100)).unwrap();
        table.release(&Leaving::Done(claim), at(100));
    }
    assert!(table.is_empty());
    assert!(table.ends.len() < 200, "{} ends are kept for nobody", table.ends.len());
}
