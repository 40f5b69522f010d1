//! Local hand-over: tasks of one process that wait for the same thing pass it to each other without asking the store, each
//! with the next number of the claim's block of tickets.
//!
//! 1. Numbers come from blocks that were reserved when the claim joined, or when nobody waited: so a pass never overtakes
//!    a ticket that somebody elsewhere was given before.
//! 2. A turn ends after [`PASSES`] passes or [`TURN`], whichever is first, with one question to the store: if anybody waits
//!    there, the lock goes to them; if not, it goes on with fresh numbers. So nobody elsewhere waits for more than a turn.
//! 3. A pass needs half a lease of validity: who gets the lock gets time to use it.
//! 4. The party in `Turn::lead` is the only one of its turn that the store may know of.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::claim::{Claim, Ticket, Tickets};
use crate::clock::Moment;
use crate::event::Happening;
use crate::store::{Leaving, Standing};

use super::book::{Book, Outbox, UNAVAILABLE_AFTER, grace};
use super::slot::{Phase, Request, Slot, TurnKey};
use super::slots::Key;

/// How often a lock is passed on in one turn.
pub(crate) const PASSES: u32 = 64;
/// How long a turn may take before it ends at the next pass.
pub(crate) const TURN: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Turn {
    lead: Key,
    /// May name parties that have left; they are passed over.
    queue: VecDeque<Key>,
    /// How many in the queue have not left.
    live: u32,
    began: Moment,
    passes: u32,
    next: Ticket,
    left: u32,
}

impl Turn {
    fn led_by(lead: Key) -> Self {
        Self { lead, queue: VecDeque::new(), live: 0, began: Moment::START, passes: 0, next: Ticket(0), left: 0 }
    }

    fn begin(&mut self, next: Ticket, left: u32, now: Moment) {
        (self.next, self.left, self.began, self.passes) = (next, left, now, 0);
    }

    fn draw(&mut self) -> Ticket {
        let ticket = self.next;
        self.next = Ticket(ticket.0 + 1);
        self.left -= 1;
        self.passes += 1;
        ticket
    }
}

impl Book {
    /// A new party: behind those of this process who want the same, or to ask the store itself.
    pub(crate) fn enter(&mut self, request: Arc<Request>, now: Moment, out: &mut Outbox) -> Key {
        let turn = request.turn.clone();
        let key = self.slots.insert(Slot::new(request, Phase::Lead, now));
        if let Some(turn) = turn {
            self.line_up(key, turn, now, out);
        }
        key
    }

    /// A party that had given back what it was handed begins anew.
    pub(crate) fn enter_again(&mut self, key: Key, now: Moment, out: &mut Outbox) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.phase = Phase::Lead;
        if let Some(turn) = slot.request.turn.clone() {
            self.line_up(key, turn, now, out);
        }
    }

    fn line_up(&mut self, key: Key, turn_key: TurnKey, now: Moment, out: &mut Outbox) {
        match self.turns.get_mut(&turn_key) {
            Some(turn) => {
                turn.queue.push_back(key);
                turn.live += 1;
                self.slots.get_mut(key).expect("it was just put there").phase = Phase::Behind;
                self.count_waiting(key, now, out);
            }
            None => drop(self.turns.insert(turn_key, Turn::led_by(key))),
        }
    }

    fn led_turn(&mut self, key: Key) -> Option<(TurnKey, &mut Turn)> {
        let turn_key = self.slots.get(key)?.request.turn.clone()?;
        let turn = self.turns.get_mut(&turn_key).filter(|turn| turn.lead == key)?;
        Some((turn_key, turn))
    }

    /// How many numbers a claim reserves when it joins: one for itself, and one for each who waits behind it here.
    pub(crate) fn block_for(&mut self, key: Key) -> u32 {
        self.led_turn(key).map_or(1, |(_, turn)| (turn.live + 1).min(PASSES))
    }

    /// The leader holds: its turn begins.
    pub(crate) fn begin_turn(&mut self, key: Key, tickets: Tickets, now: Moment) {
        if let Some((_, turn)) = self.led_turn(key) {
            turn.begin(Ticket(tickets.first.0 + 1), tickets.count - 1, now);
        }
    }

    /// The next in the local queue who has not left.
    fn next_behind(&mut self, turn_key: &TurnKey) -> Option<Key> {
        let turn = self.turns.get_mut(turn_key)?;
        while let Some(key) = turn.queue.pop_front() {
            if self.slots.get(key).is_some_and(|slot| matches!(slot.phase, Phase::Behind)) {
                turn.live -= 1;
                return Some(key);
            }
        }
        None
    }

    /// Those behind this leader who have waited for as long as a store that does not answer is asked.
    pub(crate) fn behind_since(&mut self, key: Key, now: Moment) -> Vec<Key> {
        let Some((turn_key, _)) = self.led_turn(key) else { return Vec::new() };
        let waited = |slot: &Slot| matches!(slot.phase, Phase::Behind) && slot.since + UNAVAILABLE_AFTER <= now;
        let queue = self.turns[&turn_key].queue.iter().copied();
        queue.filter(|key| self.slots.get(*key).is_some_and(waited)).collect()
    }

    /// A party behind the leader has left.
    pub(crate) fn left_queue(&mut self, request: &Request) {
        let Some(turn) = request.turn.as_ref().and_then(|key| self.turns.get_mut(key)) else { return };
        turn.live -= 1;
        // Those who left are passed over when their turn comes; many of them are swept out before that.
        if turn.queue.len() > 2 * turn.live as usize + 16 {
            turn.queue.retain(|key| self.slots.get(*key).is_some_and(|slot| matches!(slot.phase, Phase::Behind)));
        }
    }

    /// Whoever leads the turn of `key` does not any more: the next in the queue asks the store itself.
    pub(crate) fn hand_lead_on(&mut self, key: Key, now: Moment, out: &mut Outbox) {
        let Some((turn_key, _)) = self.led_turn(key) else { return };
        let Some(next) = self.next_behind(&turn_key) else {
            self.turns.remove(&turn_key);
            return;
        };
        self.turns.get_mut(&turn_key).expect("its queue was not empty").lead = next;
        let slot = self.slots.get_mut(next).expect("`next_behind` looked");
        slot.phase = Phase::Lead;
        out.wakers.extend(slot.waker.take());
        self.slots.schedule(next, now + grace(turn_key.ttl));
        self.note_next(out);
    }

    /// A party leads in place of the one whose hold it was to get.
    pub(crate) fn take_lead_from(&mut self, hold: Key, key: Key) {
        if let Some((_, turn)) = self.led_turn(hold) {
            turn.lead = key;
        }
    }

    /// A leader, or one that was handed a hold, has not been polled for too long: it goes to the back of the queue.
    pub(crate) fn step_aside(&mut self, key: Key, now: Moment, out: &mut Outbox) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        let Some(turn_key) = slot.request.turn.clone() else { return };
        match slot.phase {
            Phase::Lead => {
                let others = self.turns.get(&turn_key).is_some_and(|turn| turn.live > 0);
                if others {
                    self.to_the_back(key, &turn_key);
                    self.hand_lead_on(key, now, out);
                }
            }
            Phase::Passed { hold, .. } => {
                self.to_the_back(key, &turn_key);
                self.give_up_hold(hold, now, out);
            }
            _ => {}
        }
    }

    fn to_the_back(&mut self, key: Key, turn_key: &TurnKey) {
        if let (Some(slot), Some(turn)) = (self.slots.get_mut(key), self.turns.get_mut(turn_key)) {
            slot.phase = Phase::Behind;
            turn.queue.push_back(key);
            turn.live += 1;
        }
    }

    /// Whoever has `hold` is done with it, and nobody waits for the answer: the keeper tells the store what is left to tell.
    pub(crate) fn give_up_hold(&mut self, hold: Key, now: Moment, out: &mut Outbox) {
        if let Some((leaving, keeps)) = self.pass_or_leave(hold, now, out) {
            self.depart_for(leaving, keeps.then_some(hold), now, out);
        }
    }

    /// Ends a hold: passes it to the next local party, or says what to tell the store, and whether the slot waits for the
    /// answer to that ([`Book::departed`]).
    pub(crate) fn pass_or_leave(&mut self, hold: Key, now: Moment, out: &mut Outbox) -> Option<(Leaving, bool)> {
        let slot = self.slots.get(hold)?;
        let claim = Arc::clone(slot.claim.as_ref().expect("who holds has a claim"));
        let over = slot.is_over(now);
        let (enough, least) = (slot.lease_until.since(now) >= slot.request.ttl / 2, slot.request.hold_at_least);
        let held_for = now.since(slot.since);
        self.ended(hold, over, now, out);
        if !over && let Some((turn_key, turn)) = self.led_turn(hold) {
            let may_pass = turn.left > 0 && turn.passes < PASSES && now.since(turn.began) < TURN && enough;
            let block = turn.live.min(PASSES);
            if may_pass && let Some(next) = self.next_behind(&turn_key) {
                self.pass(hold, next, &turn_key, now, out);
                return None;
            }
            if block > 0 {
                let slot = self.slots.get_mut(hold).expect("it was there a moment ago");
                slot.phase = Phase::Leaving;
                self.slots.unschedule(hold);
                return Some((Leaving::UnlessAlone { claim, block, floor: self.floor }, true));
            }
        }
        self.hand_lead_on(hold, now, out);
        self.remove(hold);
        match least.and_then(|least| least.checked_sub(held_for)) {
            Some(rest) if !over && !rest.is_zero() => Some((Leaving::Linger(claim, rest), false)),
            _ => Some((Leaving::Done(claim), false)),
        }
    }

    /// A guard is gone: its watchers with it, and its time is counted.
    pub(crate) fn ended(&mut self, hold: Key, over: bool, now: Moment, out: &mut Outbox) {
        let Some(slot) = self.slots.get_mut(hold) else { return };
        if matches!(slot.phase, Phase::Held) {
            self.trash.1.extend(slot.watchers.take());
            let held = now.since(slot.since);
            self.telling.tally.released(held, over);
            if !over {
                self.happened(hold, Happening::Released { held }, out);
            }
            self.report_soon(now, out);
        }
    }

    fn pass(&mut self, hold: Key, next: Key, turn_key: &TurnKey, now: Moment, out: &mut Outbox) {
        let ticket = self.turns.get_mut(turn_key).expect("the turn of a pass exists").draw();
        self.saw(ticket);
        let held = self.slots.get_mut(hold).expect("what is passed exists");
        held.phase = Phase::Between;
        if std::mem::replace(&mut held.cap, Moment::NEVER) != Moment::NEVER {
            // The cap was the last holder's own.
            let (until, why) = held.deadline();
            held.validity.as_ref().expect("a hold has a validity").extend(until, why, now);
        }
        let slot = self.slots.get_mut(next).expect("`next_behind` looked");
        slot.phase = Phase::Passed { hold, ticket };
        out.wakers.extend(slot.waker.take());
        self.slots.schedule_roughly(next, now + grace(turn_key.ttl), turn_key.ttl);
        self.note_next(out);
    }

    /// The store's answer to an [`UnlessAlone`](Leaving::UnlessAlone). `Some`: one more thing to tell it.
    pub(crate) fn departed(
        &mut self,
        hold: Key,
        claim: &Arc<Claim>,
        sent: Moment,
        standing: Option<Standing>,
        now: Moment,
        out: &mut Outbox,
    ) -> Option<Leaving> {
        let tickets = match standing {
            Some(Standing::Held(tickets)) => tickets,
            Some(Standing::Gone(_) | Standing::Waiting { .. }) => {
                self.hand_lead_on(hold, now, out);
                self.remove(hold);
                return None;
            }
            None => {
                // Unknown. It may still hold; those here do not wait to find out.
                self.hand_lead_on(hold, now, out);
                self.remove(hold);
                return Some(Leaving::Done(Arc::clone(claim)));
            }
        };
        self.saw(tickets.last());
        let slot = self.slots.get_mut(hold)?;
        slot.leased(sent, claim.ttl);
        let (until, why) = (slot.lease_until, crate::error::LostWhy::Expired);
        let validity = slot.validity.as_ref().expect("a hold has a validity");
        // By 3, also for what the store answered late.
        let goes_on = validity.extend(until, why, now) && until.since(now) >= claim.ttl / 2;
        let next = self.led_turn(hold).map(|(turn_key, turn)| {
            turn.begin(tickets.first, tickets.count, now);
            turn_key
        });
        if goes_on
            && let Some(turn_key) = next
            && let Some(next) = self.next_behind(&turn_key)
        {
            self.pass(hold, next, &turn_key, now, out);
            self.schedule_held(hold, out);
            return None;
        }
        // Everybody here has left in the meantime, or the answer came too late to be worth passing on.
        self.hand_lead_on(hold, now, out);
        self.remove(hold);
        Some(Leaving::Done(Arc::clone(claim)))
    }
}
