//! Interleavings that broke a draft, one by one. Each is a sentence that must stay true.

use super::*;

fn held(first: u64, count: u32) -> Admission {
    Admission::Held(Tickets::new(Ticket(first), count))
}

fn gone(why: Why) -> Standing {
    Standing::Gone(why)
}

/// A table, a time, and the verbs with less to write.
struct Place {
    table: Table,
    now: Moment,
}

impl Place {
    fn new() -> Self {
        Self { table: Table::new(Ticket(0)), now: at(100) }
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now + secs(seconds);
    }

    fn wait(&mut self, claim: &Arc<Claim>) -> Admission {
        self.table.acquire(claim, Busy::Wait, self.now).unwrap()
    }

    fn try_now(&mut self, claim: &Arc<Claim>) -> Admission {
        self.table.acquire(claim, Busy::Refuse, self.now).unwrap()
    }

    fn renew(&mut self, claim: &Arc<Claim>, ttl: u64) -> Standing {
        self.table.renew(&Lease { claim: Arc::clone(claim), ttl: secs(ttl) }, self.now)
    }

    fn leave(&mut self, leaving: Leaving) -> Standing {
        self.table.release(&leaving, self.now)
    }

    fn done(&mut self, claim: &Arc<Claim>) -> Standing {
        self.leave(Leaving::Done(Arc::clone(claim)))
    }

    fn unless_alone(&mut self, claim: &Arc<Claim>, block: u32) -> Standing {
        self.unless_alone_after(claim, block, self.table.last)
    }

    fn unless_alone_after(&mut self, claim: &Arc<Claim>, block: u32, floor: Ticket) -> Standing {
        self.leave(Leaving::UnlessAlone { claim: Arc::clone(claim), block, floor })
    }

    fn break_it(&mut self, text: &str, ticket: u64, at_once: bool) -> Standing {
        self.leave(Leaving::Break { name: name(text), ticket: Ticket(ticket), at_once })
    }

    fn told(&mut self) -> Vec<Change> {
        self.table.take_news().into_iter().map(|(_, change)| change).collect()
    }
}

fn with_block(claim: &Arc<Claim>, block: u32) -> Arc<Claim> {
    Arc::new(Claim { block, ..(**claim).clone() })
}

#[test]
fn a_ticket_block_is_reserved_at_join() {
    let mut place = Place::new();
    let (holder, waiter, last) = (mutex(1, "a"), with_block(&mutex(2, "a"), 8), mutex(3, "a"));
    place.wait(&holder);
    place.wait(&waiter);
    assert!(matches!(place.wait(&last), Admission::Queued { ticket: Ticket(10), .. }), "above all of the block");
    place.done(&holder);
    assert_eq!(place.wait(&waiter), held(2, 8));
}

#[test]
fn a_newcomer_does_not_pass_a_multi_at_the_front() {
    let mut place = Place::new();
    let (holder, both, newcomer) = (mutex(1, "b"), multi(2, &["a", "b"]), mutex(3, "a"));
    place.wait(&holder);
    place.wait(&both);
    assert!(
        matches!(place.try_now(&newcomer), Admission::Refused(_)),
        "nobody holds a, but somebody is first in its line"
    );
    place.done(&holder);
    assert_eq!(place.wait(&both), held(2, 1));
}

#[test]
fn a_light_newcomer_does_not_pass_a_heavy_waiter() {
    let mut place = Place::new();
    place.wait(&permits(1, "s", 2, 3));
    place.wait(&permits(2, "s", 2, 3));
    assert!(
        matches!(place.try_now(&permits(3, "s", 1, 3)), Admission::Refused(_)),
        "one permit is free, but not for it"
    );
}

#[test]
fn a_seal_empties_the_line() {
    let mut place = Place::new();
    let (sealer, waiter, both, other) = (mutex(1, "a"), mutex(2, "a"), multi(3, &["a", "b"]), mutex(4, "b"));
    place.wait(&sealer);
    place.wait(&waiter);
    place.wait(&both);
    place.wait(&other);
    let value = Bytes::from_static(b"42");
    let seal = Leaving::Seal { claim: Arc::clone(&sealer), value: value.clone(), keep: secs(60) };
    assert_eq!(place.leave(seal), gone(Why::Left));
    let told = place.told();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told.contains(&Change::Gone(waiter.id.hash())) && told.contains(&Change::Gone(both.id.hash())));
    assert!(told.contains(&Change::Held(other.id.hash(), Ticket(4))), "who waited behind the multi elsewhere goes on");
    assert_eq!(place.wait(&mutex(5, "a")), Admission::Sealed(value.clone()));
    assert_eq!(place.wait(&multi(6, &["a", "c"])), Admission::Sealed(value));
    place.pass(60);
    assert!(matches!(place.wait(&mutex(7, "a")), Admission::Held(_)), "a seal has an end");
}

#[test]
fn only_an_exclusive_holder_seals() {
    let mut place = Place::new();
    let (holder, waiter) = (reader(1, "a"), mutex(2, "a"));
    place.wait(&holder);
    place.wait(&waiter);
    for claim in [&waiter, &holder] {
        place.leave(Leaving::Seal { claim: Arc::clone(claim), value: Bytes::new(), keep: secs(60) });
    }
    assert!(matches!(place.wait(&mutex(3, "a")), Admission::Held(_)));
}

#[test]
fn a_late_short_renewal_does_not_shorten() {
    let mut place = Place::new();
    let claim = mutex(1, "a");
    place.wait(&claim);
    place.renew(&claim, 60);
    place.renew(&claim, 1);
    place.wait(&claim);
    place.pass(59);
    assert_eq!(place.renew(&claim, 1), Standing::Held(Tickets::new(Ticket(1), 1)));
}

#[test]
fn a_repeated_acquire_renews() {
    let mut place = Place::new();
    let (holder, waiter) = (mutex(1, "a"), mutex(2, "a"));
    place.wait(&holder);
    place.wait(&waiter);
    for _ in 0..5 {
        place.pass(9);
        assert_eq!(place.wait(&holder), held(1, 1));
        assert!(matches!(place.wait(&waiter), Admission::Queued { ticket: Ticket(2), position: 1, .. }));
    }
    assert_eq!(place.told(), []);
}

#[test]
fn recheck_covers_holder_and_front_waiter() {
    let mut place = Place::new();
    let (holder, front, second) = (mutex(1, "a"), mutex(2, "a"), mutex(3, "a"));
    place.wait(&holder);
    place.wait(&front);
    place.renew(&front, 25);
    let Admission::Queued { recheck_in, .. } = place.wait(&second) else { panic!("two are ahead") };
    assert_eq!(recheck_in, secs(25), "the front waiter's lease is the longer one");
    // Both die. The second asks when it was told to, and finds that it holds: nobody else had to say anything.
    place.renew(&second, 60);
    place.pass(25);
    assert_eq!(place.renew(&second, 10), Standing::Held(Tickets::new(Ticket(3), 1)));
}

#[test]
fn an_acquire_after_an_unknown_release_is_refused() {
    let mut place = Place::new();
    let claim = mutex(1, "a");
    assert_eq!(place.leave(Leaving::Unknown(Arc::clone(&claim))), gone(Why::Unknown));
    place.pass(9);
    assert_eq!(place.wait(&claim), Admission::Gone(Why::Unknown), "it ran late and must leave no ghost");
    assert!(matches!(place.wait(&mutex(2, "a")), Admission::Held(_)));
    place.pass(1);
    place.done(&mutex(2, "a"));
    assert!(matches!(place.wait(&claim), Admission::Held(_)), "one ttl is enough");
}

#[test]
fn a_mark_said_twice_is_not_shortened() {
    let mut place = Place::new();
    let claim = mutex(1, "a");
    let brief = Arc::new(Claim { ttl: secs(1), ..(*claim).clone() });
    place.leave(Leaving::Unknown(Arc::clone(&claim)));
    place.leave(Leaving::Unknown(brief));
    place.pass(9);
    assert_eq!(place.wait(&claim), Admission::Gone(Why::Unknown));
}

#[test]
fn a_repeated_release_is_told_what_the_first_found() {
    let mut place = Place::new();
    let claim = mutex(1, "a");
    let unknown = || Leaving::Unknown(Arc::clone(&claim));
    // The store has lost the claim: no copy of its release may be told that it left.
    assert_eq!(place.leave(unknown()), gone(Why::Unknown));
    assert_eq!(place.leave(unknown()), gone(Why::Unknown));
    let claim = mutex(2, "a");
    let unknown = || Leaving::Unknown(Arc::clone(&claim));
    assert!(matches!(place.wait(&claim), Admission::Held(_)));
    assert_eq!(place.leave(unknown()), gone(Why::Left));
    assert_eq!(place.leave(unknown()), gone(Why::Left));
}

#[test]
fn a_broken_holder_keeps_its_place_until_it_leaves() {
    let mut place = Place::new();
    let (holder, waiter) = (with_block(&mutex(1, "a"), 4), mutex(2, "a"));
    place.wait(&holder);
    place.wait(&waiter);
    assert_eq!(place.break_it("a", 3, false), gone(Why::Broken), "any number of the block names the claim");
    assert_eq!(place.told(), [Change::Gone(holder.id.hash())]);
    place.break_it("a", 1, false);
    assert_eq!(place.told(), [], "said twice, told once");
    assert_eq!(place.renew(&holder, 10), gone(Why::Broken));
    assert_eq!(place.wait(&holder), Admission::Gone(Why::Broken));
    assert!(matches!(place.renew(&waiter, 60), Standing::Waiting { .. }), "the holder may still be at work");
    assert_eq!(place.done(&holder), gone(Why::Broken));
    assert_eq!(place.told(), [Change::Held(waiter.id.hash(), Ticket(5))]);
}

#[test]
fn a_broken_holder_that_does_not_leave_ends_with_its_lease() {
    let mut place = Place::new();
    let (holder, waiter) = (mutex(1, "a"), mutex(2, "a"));
    place.wait(&holder);
    place.wait(&waiter);
    place.renew(&waiter, 60);
    place.break_it("a", 1, false);
    place.pass(10);
    assert_eq!(place.renew(&waiter, 10), Standing::Held(Tickets::new(Ticket(2), 1)));
}

#[test]
fn a_break_at_once_and_a_break_of_a_waiter_end_the_claim() {
    let mut place = Place::new();
    let (holder, front, last) = (mutex(1, "a"), mutex(2, "a"), mutex(3, "a"));
    for claim in [&holder, &front, &last] {
        place.wait(claim);
    }
    assert_eq!(place.break_it("a", 4, true), gone(Why::Unknown));
    assert_eq!(place.break_it("b", 1, true), gone(Why::Unknown));
    place.break_it("a", 2, false);
    assert_eq!(place.told(), [Change::Gone(front.id.hash())]);
    place.break_it("a", 1, true);
    let told = place.told();
    assert!(told.contains(&Change::Gone(holder.id.hash())) && told.contains(&Change::Held(last.id.hash(), Ticket(3))));
    assert_eq!(place.wait(&front), Admission::Gone(Why::Broken), "a broken id does not come back");
}

#[test]
fn an_empty_line_adopts_a_new_capacity() {
    let mut place = Place::new();
    let old = permits(1, "s", 1, 2);
    place.wait(&old);
    let refused = place.table.acquire(&permits(2, "s", 1, 3), Busy::Wait, place.now).unwrap_err().to_string();
    assert!(refused.contains("semaphore of 2") && refused.contains("semaphore of 3"), "{refused}");
    assert!(place.table.acquire(&mutex(3, "s"), Busy::Wait, place.now).is_err());
    place.done(&old);
    for id in 4..7 {
        assert!(matches!(place.try_now(&permits(id, "s", 1, 3)), Admission::Held(_)));
    }
    assert!(matches!(place.try_now(&permits(7, "s", 1, 3)), Admission::Refused(_)));
}

#[test]
fn a_claim_heavier_than_the_capacity_is_refused_at_the_door() {
    let mut place = Place::new();
    let heavy = claim(1, Demand { name: name("s"), capacity: 3, weight: 4 });
    assert!(place.table.acquire(&Arc::new(heavy), Busy::Wait, place.now).is_err());
    assert!(place.table.is_empty());
}

#[test]
fn a_block_grows_only_when_nobody_waits() {
    let mut place = Place::new();
    let (holder, waiter) = (mutex(1, "a"), mutex(2, "a"));
    place.wait(&holder);
    assert_eq!(place.unless_alone(&holder, 8), Standing::Held(Tickets::new(Ticket(2), 8)));
    place.wait(&waiter);
    assert_eq!(place.unless_alone(&holder, 8), gone(Why::Left));
    assert_eq!(place.told(), [Change::Held(waiter.id.hash(), Ticket(10))], "whose ticket is above the whole block");
}

#[test]
fn an_end_of_turn_that_runs_late_does_not_take_the_lock_away() {
    let mut place = Place::new();
    let (holder, waiter) = (mutex(1, "a"), mutex(2, "a"));
    place.wait(&holder);
    // The first answer was lost, the question repeated, and the owner told to go on.
    let fresh = place.unless_alone_after(&holder, 4, Ticket(1));
    assert_eq!(place.unless_alone_after(&holder, 4, Ticket(1)), fresh);
    place.wait(&waiter);
    assert_eq!(place.unless_alone_after(&holder, 4, Ticket(1)), fresh, "a third, which was on its way all the time");
    assert_eq!(place.told(), []);
}

#[test]
fn a_multi_that_waits_elsewhere_counts_as_waiting() {
    let mut place = Place::new();
    let (holder, elsewhere) = (reader(1, "a"), mutex(2, "b"));
    let demands = vec![Demand::shared(name("a")), Demand::exclusive(name("b"))];
    let both = Arc::new(claim(3, Demands::of(demands).unwrap()));
    place.wait(&holder);
    place.wait(&elsewhere);
    place.wait(&both);
    assert_eq!(place.unless_alone(&holder, 2), gone(Why::Left), "it fits beside the reader, but its number is lower");
}

#[test]
fn a_reader_goes_on_beside_other_readers() {
    let mut place = Place::new();
    let (first, second) = (reader(1, "a"), reader(2, "a"));
    place.wait(&first);
    place.wait(&second);
    assert_eq!(place.unless_alone(&first, 2), Standing::Held(Tickets::new(Ticket(3), 2)));
    let page = place.table.inspect(&everything(), place.now);
    assert!(page.resources[0].queue.iter().all(|entry| entry.holds));
    assert_eq!(page.resources[0].queue[0].owner, second.id.hash());
}

#[test]
fn a_claim_lingers_once_and_cannot_be_renewed() {
    let mut place = Place::new();
    let (holder, waiter) = (mutex(1, "a"), mutex(2, "a"));
    place.wait(&holder);
    place.wait(&waiter);
    place.renew(&waiter, 60);
    assert_eq!(place.leave(Leaving::Linger(Arc::clone(&holder), secs(3))), gone(Why::Left));
    place.pass(2);
    assert_eq!(place.leave(Leaving::Linger(Arc::clone(&holder), secs(3))), gone(Why::Left));
    assert_eq!(place.renew(&holder, 60), gone(Why::Left));
    assert_eq!(place.wait(&holder), Admission::Gone(Why::Left));
    assert!(matches!(place.renew(&waiter, 60), Standing::Waiting { .. }));
    place.pass(1);
    assert!(matches!(place.renew(&waiter, 60), Standing::Held(_)));
}

#[test]
fn opposite_orders_do_not_deadlock() {
    let mut place = Place::new();
    let (one, two) = (multi(1, &["a", "b"]), multi(2, &["b", "a"]));
    assert!(matches!(place.wait(&one), Admission::Held(_)));
    assert!(matches!(place.wait(&two), Admission::Queued { position: 1, .. }));
    place.done(&one);
    assert_eq!(place.told(), [Change::Held(two.id.hash(), Ticket(2))]);
}

#[test]
fn the_demands_of_the_claim_in_line_count() {
    let mut place = Place::new();
    let (holder, forged) = (mutex(1, "a"), multi(1, &["b", "c"]));
    place.wait(&holder);
    assert!(matches!(place.unless_alone(&forged, 1), Standing::Held(_)));
    place.leave(Leaving::Seal { claim: forged, value: Bytes::new(), keep: secs(60) });
    assert!(matches!(place.wait(&mutex(2, "a")), Admission::Sealed(_)));
    assert!(matches!(place.wait(&multi(3, &["b", "c"])), Admission::Held(_)));
}

#[test]
fn whoever_watches_lines_hears_of_every_change() {
    let mut place = Place::new();
    place.table.note_touched(true);
    let (holder, both) = (mutex(1, "a"), multi(2, &["a", "b"]));
    place.wait(&holder);
    place.wait(&both);
    assert_eq!(place.table.take_touched(), [name("a"), name("b")]);
    place.unless_alone(&holder, 1);
    assert_eq!(place.table.take_touched(), [name("a"), name("b")], "b is held since");
    place.unless_alone(&both, 1);
    assert_eq!(place.table.take_touched(), [name("a"), name("b")], "other numbers");
    place.leave(Leaving::Seal { claim: both, value: Bytes::new(), keep: secs(3) });
    place.table.take_touched();
    place.pass(3);
    place.table.settle(place.now);
    assert_eq!(place.table.take_touched(), [name("a"), name("b")], "the seals ended");
}
