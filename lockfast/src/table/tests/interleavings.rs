//! Interleavings that broke a draft. Each test name is a statement that must stay true.

use super::*;

fn held(first: u64, count: u32) -> Admission {
    Admission::Held(Tickets::new(Ticket(first), count))
}

fn gone(why: Why) -> Standing {
    Standing::Gone(why)
}

/// A table, the present time, and short forms of the verbs.
struct Fixture {
    table: Table,
    now: Moment,
}

impl Fixture {
    fn new() -> Self {
        Self { table: Table::new(Ticket(0)), now: at(100) }
    }

    fn advance(&mut self, seconds: u64) {
        self.now = self.now + secs(seconds);
    }

    fn acquire(&mut self, claim: &Arc<Claim>) -> Admission {
        self.table.acquire(claim, Busy::Wait, self.now).unwrap()
    }

    fn try_acquire(&mut self, claim: &Arc<Claim>) -> Admission {
        self.table.acquire(claim, Busy::Refuse, self.now).unwrap()
    }

    fn renew(&mut self, claim: &Arc<Claim>, ttl: u64) -> Standing {
        self.table.renew(&Lease { claim: Arc::clone(claim), ttl: secs(ttl) }, self.now)
    }

    fn leave(&mut self, leaving: Leaving) -> Standing {
        self.table.release(&leaving, self.now)
    }

    fn release(&mut self, claim: &Arc<Claim>) -> Standing {
        self.leave(Leaving::Done(Arc::clone(claim)))
    }

    fn unless_alone(&mut self, claim: &Arc<Claim>, block: u32) -> Standing {
        self.unless_alone_after(claim, block, self.table.last_ticket)
    }

    fn unless_alone_after(&mut self, claim: &Arc<Claim>, block: u32, floor: Ticket) -> Standing {
        self.leave(Leaving::UnlessAlone { claim: Arc::clone(claim), block, floor })
    }

    fn break_claim(&mut self, text: &str, ticket: u64, at_once: bool) -> Standing {
        self.leave(Leaving::Break { name: name(text), ticket: Ticket(ticket), at_once })
    }

    fn pushes(&mut self) -> Vec<Change> {
        self.table.take_pushes().into_iter().map(|(_, change)| change).collect()
    }
}

fn with_block(claim: &Arc<Claim>, block: u32) -> Arc<Claim> {
    Arc::new(Claim { block, ..(**claim).clone() })
}

#[test]
fn a_ticket_block_is_reserved_at_join() {
    let mut fixture = Fixture::new();
    let (holder, waiter, last) = (mutex(1, "a"), with_block(&mutex(2, "a"), 8), mutex(3, "a"));
    fixture.acquire(&holder);
    fixture.acquire(&waiter);
    assert!(matches!(fixture.acquire(&last), Admission::Queued { ticket: Ticket(10), .. }), "above all of the block");
    fixture.release(&holder);
    assert_eq!(fixture.acquire(&waiter), held(2, 8));
}

#[test]
fn a_newcomer_does_not_pass_a_multi_at_the_front() {
    let mut fixture = Fixture::new();
    let (holder, both, newcomer) = (mutex(1, "b"), multi(2, &["a", "b"]), mutex(3, "a"));
    fixture.acquire(&holder);
    fixture.acquire(&both);
    assert!(
        matches!(fixture.try_acquire(&newcomer), Admission::Refused(_)),
        "no claim holds a, but the multi is first in its queue"
    );
    fixture.release(&holder);
    assert_eq!(fixture.acquire(&both), held(2, 1));
}

#[test]
fn a_light_newcomer_does_not_pass_a_heavy_waiter() {
    let mut fixture = Fixture::new();
    fixture.acquire(&permits(1, "s", 2, 3));
    fixture.acquire(&permits(2, "s", 2, 3));
    assert!(
        matches!(fixture.try_acquire(&permits(3, "s", 1, 3)), Admission::Refused(_)),
        "one permit is free, but the waiter ahead comes first"
    );
}

#[test]
fn a_seal_empties_the_queue() {
    let mut fixture = Fixture::new();
    let (sealer, waiter, both, other) = (mutex(1, "a"), mutex(2, "a"), multi(3, &["a", "b"]), mutex(4, "b"));
    fixture.acquire(&sealer);
    fixture.acquire(&waiter);
    fixture.acquire(&both);
    fixture.acquire(&other);
    let value = Bytes::from_static(b"42");
    let seal = Leaving::Seal { claim: Arc::clone(&sealer), value: value.clone(), keep: secs(60) };
    assert_eq!(fixture.leave(seal), gone(Why::Left));
    let pushes = fixture.pushes();
    assert_eq!(pushes.len(), 3, "{pushes:?}");
    assert!(pushes.contains(&Change::Gone(waiter.id.hash())) && pushes.contains(&Change::Gone(both.id.hash())));
    assert!(
        pushes.contains(&Change::Held(other.id.hash(), Ticket(4))),
        "a waiter behind the multi in another queue is granted"
    );
    assert_eq!(fixture.acquire(&mutex(5, "a")), Admission::Sealed(value.clone()));
    assert_eq!(fixture.acquire(&multi(6, &["a", "c"])), Admission::Sealed(value));
    fixture.advance(60);
    assert!(matches!(fixture.acquire(&mutex(7, "a")), Admission::Held(_)), "a seal has an end");
}

#[test]
fn only_an_exclusive_holder_seals() {
    let mut fixture = Fixture::new();
    let (holder, waiter) = (reader(1, "a"), mutex(2, "a"));
    fixture.acquire(&holder);
    fixture.acquire(&waiter);
    for claim in [&waiter, &holder] {
        fixture.leave(Leaving::Seal { claim: Arc::clone(claim), value: Bytes::new(), keep: secs(60) });
    }
    assert!(matches!(fixture.acquire(&mutex(3, "a")), Admission::Held(_)));
}

#[test]
fn a_late_short_renewal_does_not_shorten() {
    let mut fixture = Fixture::new();
    let claim = mutex(1, "a");
    fixture.acquire(&claim);
    fixture.renew(&claim, 60);
    fixture.renew(&claim, 1);
    fixture.acquire(&claim);
    fixture.advance(59);
    assert_eq!(fixture.renew(&claim, 1), Standing::Held(Tickets::new(Ticket(1), 1)));
}

#[test]
fn a_repeated_acquire_renews() {
    let mut fixture = Fixture::new();
    let (holder, waiter) = (mutex(1, "a"), mutex(2, "a"));
    fixture.acquire(&holder);
    fixture.acquire(&waiter);
    for _ in 0..5 {
        fixture.advance(9);
        assert_eq!(fixture.acquire(&holder), held(1, 1));
        assert!(matches!(fixture.acquire(&waiter), Admission::Queued { ticket: Ticket(2), position: 1, .. }));
    }
    assert_eq!(fixture.pushes(), []);
}

#[test]
fn recheck_covers_holder_and_front_waiter() {
    let mut fixture = Fixture::new();
    let (holder, front, second) = (mutex(1, "a"), mutex(2, "a"), mutex(3, "a"));
    fixture.acquire(&holder);
    fixture.acquire(&front);
    fixture.renew(&front, 25);
    let Admission::Queued { recheck_in, .. } = fixture.acquire(&second) else { panic!("two are ahead") };
    assert_eq!(recheck_in, secs(25), "the front waiter's lease is the longer one");
    // Both claims ahead expire. The second waiter polls at its recheck time and holds, without a push.
    fixture.renew(&second, 60);
    fixture.advance(25);
    assert_eq!(fixture.renew(&second, 10), Standing::Held(Tickets::new(Ticket(3), 1)));
}

#[test]
fn an_acquire_after_an_unknown_release_is_refused() {
    let mut fixture = Fixture::new();
    let claim = mutex(1, "a");
    assert_eq!(fixture.leave(Leaving::Unknown(Arc::clone(&claim))), gone(Why::Unknown));
    fixture.advance(9);
    assert_eq!(fixture.acquire(&claim), Admission::Gone(Why::Unknown), "it ran late and must leave no ghost");
    assert!(matches!(fixture.acquire(&mutex(2, "a")), Admission::Held(_)));
    fixture.advance(1);
    fixture.release(&mutex(2, "a"));
    assert!(matches!(fixture.acquire(&claim), Admission::Held(_)), "the tombstone lasts one ttl");
}

#[test]
fn a_repeated_tombstone_is_not_shortened() {
    let mut fixture = Fixture::new();
    let claim = mutex(1, "a");
    let brief = Arc::new(Claim { ttl: secs(1), ..(*claim).clone() });
    fixture.leave(Leaving::Unknown(Arc::clone(&claim)));
    fixture.leave(Leaving::Unknown(brief));
    fixture.advance(9);
    assert_eq!(fixture.acquire(&claim), Admission::Gone(Why::Unknown));
}

#[test]
fn a_repeated_release_is_told_what_the_first_found() {
    let mut fixture = Fixture::new();
    let claim = mutex(1, "a");
    let unknown = || Leaving::Unknown(Arc::clone(&claim));
    // The store has lost the claim: no copy of its release may be answered `Left`.
    assert_eq!(fixture.leave(unknown()), gone(Why::Unknown));
    assert_eq!(fixture.leave(unknown()), gone(Why::Unknown));
    let claim = mutex(2, "a");
    let unknown = || Leaving::Unknown(Arc::clone(&claim));
    assert!(matches!(fixture.acquire(&claim), Admission::Held(_)));
    assert_eq!(fixture.leave(unknown()), gone(Why::Left));
    assert_eq!(fixture.leave(unknown()), gone(Why::Left));
}

#[test]
fn a_broken_holder_keeps_its_entry_until_it_leaves() {
    let mut fixture = Fixture::new();
    let (holder, waiter) = (with_block(&mutex(1, "a"), 4), mutex(2, "a"));
    fixture.acquire(&holder);
    fixture.acquire(&waiter);
    assert_eq!(fixture.break_claim("a", 3, false), gone(Why::Broken), "any number of the block names the claim");
    assert_eq!(fixture.pushes(), [Change::Gone(holder.id.hash())]);
    fixture.break_claim("a", 1, false);
    assert_eq!(fixture.pushes(), [], "broken twice, pushed once");
    assert_eq!(fixture.renew(&holder, 10), gone(Why::Broken));
    assert_eq!(fixture.acquire(&holder), Admission::Gone(Why::Broken));
    assert!(matches!(fixture.renew(&waiter, 60), Standing::Waiting { .. }), "the holder may still be at work");
    assert_eq!(fixture.release(&holder), gone(Why::Broken));
    assert_eq!(fixture.pushes(), [Change::Held(waiter.id.hash(), Ticket(5))]);
}

#[test]
fn a_broken_holder_that_does_not_leave_ends_with_its_lease() {
    let mut fixture = Fixture::new();
    let (holder, waiter) = (mutex(1, "a"), mutex(2, "a"));
    fixture.acquire(&holder);
    fixture.acquire(&waiter);
    fixture.renew(&waiter, 60);
    fixture.break_claim("a", 1, false);
    fixture.advance(10);
    assert_eq!(fixture.renew(&waiter, 10), Standing::Held(Tickets::new(Ticket(2), 1)));
}

#[test]
fn a_break_at_once_and_a_break_of_a_waiter_end_the_claim() {
    let mut fixture = Fixture::new();
    let (holder, front, last) = (mutex(1, "a"), mutex(2, "a"), mutex(3, "a"));
    for claim in [&holder, &front, &last] {
        fixture.acquire(claim);
    }
    assert_eq!(fixture.break_claim("a", 4, true), gone(Why::Unknown));
    assert_eq!(fixture.break_claim("b", 1, true), gone(Why::Unknown));
    fixture.break_claim("a", 2, false);
    assert_eq!(fixture.pushes(), [Change::Gone(front.id.hash())]);
    fixture.break_claim("a", 1, true);
    let pushes = fixture.pushes();
    assert!(
        pushes.contains(&Change::Gone(holder.id.hash())) && pushes.contains(&Change::Held(last.id.hash(), Ticket(3)))
    );
    assert_eq!(fixture.acquire(&front), Admission::Gone(Why::Broken), "a broken id does not come back");
}

#[test]
fn an_empty_queue_adopts_a_new_capacity() {
    let mut fixture = Fixture::new();
    let old = permits(1, "s", 1, 2);
    fixture.acquire(&old);
    let refused = fixture.table.acquire(&permits(2, "s", 1, 3), Busy::Wait, fixture.now).unwrap_err().to_string();
    assert!(refused.contains("semaphore of 2") && refused.contains("semaphore of 3"), "{refused}");
    assert!(fixture.table.acquire(&mutex(3, "s"), Busy::Wait, fixture.now).is_err());
    fixture.release(&old);
    for id in 4..7 {
        assert!(matches!(fixture.try_acquire(&permits(id, "s", 1, 3)), Admission::Held(_)));
    }
    assert!(matches!(fixture.try_acquire(&permits(7, "s", 1, 3)), Admission::Refused(_)));
}

#[test]
fn a_claim_heavier_than_the_capacity_is_refused() {
    let mut fixture = Fixture::new();
    let heavy = claim(1, Demand { name: name("s"), capacity: 3, weight: 4 });
    assert!(fixture.table.acquire(&Arc::new(heavy), Busy::Wait, fixture.now).is_err());
    assert!(fixture.table.is_empty());
}

#[test]
fn a_block_grows_only_while_no_claim_waits() {
    let mut fixture = Fixture::new();
    let (holder, waiter) = (mutex(1, "a"), mutex(2, "a"));
    fixture.acquire(&holder);
    assert_eq!(fixture.unless_alone(&holder, 8), Standing::Held(Tickets::new(Ticket(2), 8)));
    fixture.acquire(&waiter);
    assert_eq!(fixture.unless_alone(&holder, 8), gone(Why::Left));
    assert_eq!(fixture.pushes(), [Change::Held(waiter.id.hash(), Ticket(10))], "its ticket is above the whole block");
}

#[test]
fn a_late_unless_alone_does_not_end_the_hold() {
    let mut fixture = Fixture::new();
    let (holder, waiter) = (mutex(1, "a"), mutex(2, "a"));
    fixture.acquire(&holder);
    // The first answer was lost, the request repeated, and the owner told to keep the lock.
    let fresh = fixture.unless_alone_after(&holder, 4, Ticket(1));
    assert_eq!(fixture.unless_alone_after(&holder, 4, Ticket(1)), fresh);
    fixture.acquire(&waiter);
    assert_eq!(
        fixture.unless_alone_after(&holder, 4, Ticket(1)),
        fresh,
        "a third copy, which was in flight all the time"
    );
    assert_eq!(fixture.pushes(), []);
}

#[test]
fn a_multi_that_waits_elsewhere_counts_as_waiting() {
    let mut fixture = Fixture::new();
    let (holder, elsewhere) = (reader(1, "a"), mutex(2, "b"));
    let demands = vec![Demand::shared(name("a")), Demand::exclusive(name("b"))];
    let both = Arc::new(claim(3, Demands::of(demands).unwrap()));
    fixture.acquire(&holder);
    fixture.acquire(&elsewhere);
    fixture.acquire(&both);
    assert_eq!(fixture.unless_alone(&holder, 2), gone(Why::Left), "it fits beside the reader, but its number is lower");
}

#[test]
fn a_reader_goes_on_beside_other_readers() {
    let mut fixture = Fixture::new();
    let (first, second) = (reader(1, "a"), reader(2, "a"));
    fixture.acquire(&first);
    fixture.acquire(&second);
    assert_eq!(fixture.unless_alone(&first, 2), Standing::Held(Tickets::new(Ticket(3), 2)));
    let page = fixture.table.inspect(&everything(), fixture.now);
    assert!(page.resources[0].queue.iter().all(|entry| entry.holds));
    assert_eq!(page.resources[0].queue[0].owner, second.id.hash());
}

#[test]
fn a_claim_lingers_once_and_cannot_be_renewed() {
    let mut fixture = Fixture::new();
    let (holder, waiter) = (mutex(1, "a"), mutex(2, "a"));
    fixture.acquire(&holder);
    fixture.acquire(&waiter);
    fixture.renew(&waiter, 60);
    assert_eq!(fixture.leave(Leaving::Linger(Arc::clone(&holder), secs(3))), gone(Why::Left));
    fixture.advance(2);
    assert_eq!(fixture.leave(Leaving::Linger(Arc::clone(&holder), secs(3))), gone(Why::Left));
    assert_eq!(fixture.renew(&holder, 60), gone(Why::Left));
    assert_eq!(fixture.acquire(&holder), Admission::Gone(Why::Left));
    assert!(matches!(fixture.renew(&waiter, 60), Standing::Waiting { .. }));
    fixture.advance(1);
    assert!(matches!(fixture.renew(&waiter, 60), Standing::Held(_)));
}

#[test]
fn opposite_orders_do_not_deadlock() {
    let mut fixture = Fixture::new();
    let (one, two) = (multi(1, &["a", "b"]), multi(2, &["b", "a"]));
    assert!(matches!(fixture.acquire(&one), Admission::Held(_)));
    assert!(matches!(fixture.acquire(&two), Admission::Queued { position: 1, .. }));
    fixture.release(&one);
    assert_eq!(fixture.pushes(), [Change::Held(two.id.hash(), Ticket(2))]);
}

#[test]
fn the_demands_of_the_queued_claim_count() {
    let mut fixture = Fixture::new();
    let (holder, forged) = (mutex(1, "a"), multi(1, &["b", "c"]));
    fixture.acquire(&holder);
    assert!(matches!(fixture.unless_alone(&forged, 1), Standing::Held(_)));
    fixture.leave(Leaving::Seal { claim: forged, value: Bytes::new(), keep: secs(60) });
    assert!(matches!(fixture.acquire(&mutex(2, "a")), Admission::Sealed(_)));
    assert!(matches!(fixture.acquire(&multi(3, &["b", "c"])), Admission::Held(_)));
}

#[test]
fn every_queue_change_is_recorded_as_touched() {
    let mut fixture = Fixture::new();
    fixture.table.record_touched(true);
    let (holder, both) = (mutex(1, "a"), multi(2, &["a", "b"]));
    fixture.acquire(&holder);
    fixture.acquire(&both);
    assert_eq!(fixture.table.take_touched(), [name("a"), name("b")]);
    fixture.unless_alone(&holder, 1);
    assert_eq!(fixture.table.take_touched(), [name("a"), name("b")], "b is held now");
    fixture.unless_alone(&both, 1);
    assert_eq!(fixture.table.take_touched(), [name("a"), name("b")], "the tickets changed");
    fixture.leave(Leaving::Seal { claim: both, value: Bytes::new(), keep: secs(3) });
    fixture.table.take_touched();
    fixture.advance(3);
    fixture.table.settle(fixture.now);
    assert_eq!(fixture.table.take_touched(), [name("a"), name("b")], "the seals ended");
}
