//! Local hand-over: tasks of one process that wait for the same thing pass it to each other without asking the store, each
//! with the next number of the claim's block of tickets.
//!
//! 1. Numbers come from blocks that were reserved when the claim joined, or when nobody waited: so a pass never overtakes
//!    a ticket that somebody elsewhere was given before.
//! 2. A turn ends after [`PASSES`] passes or [`TURN`], whichever is first, with one question to the store: if anybody waits
//!    there, the lock goes to them; if not, it goes on with fresh numbers. So nobody elsewhere waits for more than a turn.
//! 3. A pass needs half a lease of validity: who gets the lock gets time to use it.
//! 4. The party in `Turn::lead` is the only one of its turn that the store may know of.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use foldhash::quality::RandomState;

use crate::claim::{Claim, Ticket, Tickets};
use crate::clock::Moment;
use crate::error::{Error, LostWhy};
use crate::event::Happening;
use crate::store::{Leaving, Standing, Why};

use super::book::{Book, Outbox, UNAVAILABLE_AFTER, grace};
use super::slot::{Phase, Request, Slot, TurnKey};
use super::slots::Key;

/// How often a lock is passed on in one turn.
pub(crate) const PASSES: u32 = 64;
/// How long a turn may take before it ends at the next pass.
pub(crate) const TURN: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(crate) struct Turns {
    by_key: HashMap<TurnKey, TurnId, RandomState>,
    all: Vec<Turn>,
    free: Vec<TurnId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnId(u32);

#[derive(Debug)]
struct Turn {
    lead: Key,
    /// Most locks are held without anybody waiting here; they do without this.
    queue: Option<Box<Queue>>,
}

#[derive(Debug, Default)]
struct Queue {
    /// May name parties that have left; they are passed over.
    parties: VecDeque<Key>,
    /// How many of them have not left.
    live: u32,
    began: Moment,
    passes: u32,
    next: Ticket,
    left: u32,
}

impl Turns {
    fn start(&mut self, key: TurnKey, lead: Key) -> TurnId {
        let turn = Turn { lead, queue: None };
        let id = match self.free.pop() {
            Some(id) => {
                self.all[id.0 as usize] = turn;
                id
            }
            None => {
                self.all.push(turn);
                TurnId(u32::try_from(self.all.len() - 1).expect("four billion locks do not fit into memory"))
            }
        };
        self.by_key.insert(key, id);
        id
    }

    fn end(&mut self, key: &TurnKey) {
        if let Some(id) = self.by_key.remove(key) {
            self.all[id.0 as usize].queue = None;
            self.free.push(id);
        }
    }

    fn get(&mut self, id: TurnId) -> &mut Turn {
        &mut self.all[id.0 as usize]
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Turn {
    fn live(&self) -> u32 {
        self.queue.as_ref().map_or(0, |queue| queue.live)
    }

    fn push(&mut self, key: Key) {
        let queue = self.queue.get_or_insert_default();
        queue.parties.push_back(key);
        queue.live += 1;
    }
}

impl Queue {
    fn begin(&mut self, next: Ticket, left: u32, now: Moment) {
        (self.next, self.left, self.began, self.passes) = (next, left, now, 0);
    }

    fn may_pass(&self, now: Moment) -> bool {
        self.left > 0 && self.passes < PASSES && now.since(self.began) < TURN
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
        let key = self.slots.insert(Slot::new(request, Phase::Lead, now));
        self.line_up(key, now, out);
        key
    }

    /// A party that had given back what it was handed begins anew.
    pub(crate) fn enter_again(&mut self, key: Key, now: Moment, out: &mut Outbox) {
        if let Some(slot) = self.slots.get_mut(key) {
            slot.phase = Phase::Lead;
            self.line_up(key, now, out);
        }
    }

    fn line_up(&mut self, key: Key, now: Moment, out: &mut Outbox) {
        let Some(slot) = self.slots.get_mut(key).filter(|slot| slot.request.hands_over) else { return };
        let turn_key = TurnKey(Arc::clone(&slot.request));
        match self.turns.by_key.get(&turn_key).copied() {
            Some(id) => {
                slot.phase = Phase::Behind;
                slot.turn = Some(id);
                self.turns.get(id).push(key);
                self.count_waiting(key, now, out);
            }
            None => slot.turn = Some(self.turns.start(turn_key, key)),
        }
    }

    fn led_turn(&mut self, key: Key) -> Option<(TurnId, &mut Turn)> {
        let id = self.slots.get(key)?.turn?;
        let turn = self.turns.all.get_mut(id.0 as usize).filter(|turn| turn.lead == key)?;
        Some((id, turn))
    }

    /// How many numbers a claim reserves when it joins: one for itself, and one for each who waits behind it here.
    pub(crate) fn block_for(&mut self, key: Key) -> u32 {
        self.led_turn(key).map_or(1, |(_, turn)| (turn.live() + 1).min(PASSES))
    }

    /// The leader holds: its turn begins.
    pub(crate) fn begin_turn(&mut self, key: Key, tickets: Tickets, now: Moment) {
        if let Some((_, Turn { queue: Some(queue), .. })) = self.led_turn(key) {
            queue.begin(Ticket(tickets.first.0 + 1), tickets.count.saturating_sub(1), now);
        }
    }

    /// The next in the local queue who has not left.
    fn next_behind(&mut self, id: TurnId) -> Option<Key> {
        let queue = self.turns.get(id).queue.as_mut()?;
        while let Some(key) = queue.parties.pop_front() {
            if self.slots.get(key).is_some_and(|slot| matches!(slot.phase, Phase::Behind)) {
                queue.live -= 1;
                return Some(key);
            }
        }
        None
    }

    /// A party behind the leader has left.
    pub(crate) fn left_queue(&mut self, turn: Option<TurnId>) {
        let Some(queue) = turn.and_then(|id| self.turns.get(id).queue.as_mut()) else { return };
        queue.live -= 1;
        // Those who left are passed over when their turn comes; many of them are swept out before that.
        if queue.parties.len() > 2 * queue.live as usize + 16 {
            queue.parties.retain(|key| self.slots.get(*key).is_some_and(|slot| matches!(slot.phase, Phase::Behind)));
        }
    }

    /// The leader has found the store silent for so long that it gives up; so do those behind it who have waited as long.
    pub(crate) fn fail_behind(&mut self, key: Key, error: &Error, now: Moment, out: &mut Outbox) {
        let Some((_, Turn { queue: Some(queue), .. })) = self.led_turn(key) else { return };
        let parties = std::mem::take(&mut queue.parties);
        let mut stay = VecDeque::new();
        for party in parties {
            let Some(slot) = self.slots.get_mut(party).filter(|slot| matches!(slot.phase, Phase::Behind)) else {
                continue;
            };
            if slot.since + UNAVAILABLE_AFTER <= now {
                slot.phase = Phase::Failed(Box::new(error.clone()));
                out.wakers.extend(slot.take_waker());
            } else {
                stay.push_back(party);
            }
        }
        if let Some((_, Turn { queue: Some(queue), .. })) = self.led_turn(key) {
            queue.live = stay.len() as u32;
            queue.parties = stay;
        }
    }

    /// Whoever leads the turn of `key` does not any more: the next in the queue asks the store itself.
    pub(crate) fn hand_lead_on(&mut self, key: Key, now: Moment, out: &mut Outbox) {
        let Some((id, _)) = self.led_turn(key) else { return };
        let slot = self.slots.get_mut(key).expect("it leads a turn");
        // It may stay in the book for a long time, and the turn's number may be somebody else's by then.
        slot.turn = None;
        let turn_key = TurnKey(Arc::clone(&slot.request));
        let Some(next) = self.next_behind(id) else {
            self.turns.end(&turn_key);
            return;
        };
        self.turns.get(id).lead = next;
        let slot = self.slots.get_mut(next).expect("`next_behind` looked");
        slot.phase = Phase::Lead;
        out.wakers.extend(slot.take_waker());
        let grace = grace(slot.request.ttl());
        self.slots.schedule(next, now + grace);
        self.note_next(out);
    }

    /// A party leads in place of the one whose hold it was to get.
    pub(crate) fn take_lead_from(&mut self, hold: Key, key: Key) {
        if let Some((_, turn)) = self.led_turn(hold) {
            turn.lead = key;
        }
    }

    /// A leader, or one that was handed a hold, has not been polled for too long: the others go on without it, and it lines
    /// up anew when it is polled. Kept in the queue it would be handed the hold again and again, for nobody.
    pub(crate) fn step_aside(&mut self, key: Key, now: Moment, out: &mut Outbox) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        match std::mem::replace(&mut slot.phase, Phase::GivenBack) {
            Phase::Lead => self.hand_lead_on(key, now, out),
            Phase::Passed { hold, .. } => self.give_up_hold(hold, now, out),
            other => slot.phase = other,
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
        let last_word = slot.last_word(Arc::clone(&claim), now);
        let over = slot.is_over(now);
        let enough = slot.lease_until.since(now) >= slot.request.ttl() / 2;
        self.ended(hold, over, now, out);
        if !over && let Some((id, Turn { queue: Some(queue), .. })) = self.led_turn(hold) {
            let (may_pass, block) = (queue.may_pass(now) && enough, queue.live.min(PASSES));
            if may_pass && let Some(next) = self.next_behind(id) {
                self.pass(hold, next, id, now, out);
                return None;
            }
            if block > 0 {
                let slot = self.slots.get_mut(hold).expect("it was there a moment ago");
                slot.phase = Phase::Leaving;
                // Should whoever sends this never be polled again, the others go on without the answer.
                self.slots.schedule(hold, now + UNAVAILABLE_AFTER + grace(claim.ttl));
                self.note_next(out);
                return Some((Leaving::UnlessAlone { claim, block, floor: self.floor }, true));
            }
        }
        self.hand_lead_on(hold, now, out);
        self.remove(hold);
        Some((last_word, false))
    }

    /// Ends a hold for good: what the store is told makes the resource answer with `value` from now on.
    pub(crate) fn seal_or_leave(
        &mut self,
        hold: Key,
        (value, keep): (Bytes, Duration),
        now: Moment,
        out: &mut Outbox,
    ) -> Option<(Leaving, bool)> {
        let slot = self.slots.get(hold)?;
        let claim = Arc::clone(slot.claim.as_ref().expect("who holds has a claim"));
        let over = slot.is_over(now);
        self.ended(hold, over, now, out);
        self.hand_lead_on(hold, now, out);
        let slot = self.remove(hold)?;
        Some((if over { slot.leaving(claim) } else { Leaving::Seal { claim, value, keep } }, false))
    }

    /// A guard is gone: its watchers with it, and its time is counted.
    pub(crate) fn ended(&mut self, hold: Key, over: bool, now: Moment, out: &mut Outbox) {
        if over && let Some(slot) = self.slots.get(hold) {
            // Its owner saw it before the keeper did. It is told and counted all the same.
            let why = slot.request.validity.why();
            self.lose(hold, why, now, out);
        }
        let Some(slot) = self.slots.get_mut(hold) else { return };
        if matches!(slot.phase, Phase::Held) {
            self.trash.1.extend(slot.watchers.take().map(|watchers| *watchers));
            let held = now.since(slot.since);
            self.telling.tally.released(held, over);
            if !over {
                self.happened(hold, Happening::Released { held }, out);
            }
            self.report_soon(now, out);
        }
    }

    fn pass(&mut self, hold: Key, next: Key, id: TurnId, now: Moment, out: &mut Outbox) {
        let ticket = self.turns.get(id).queue.as_mut().expect("somebody was behind").draw();
        self.saw(ticket);
        let held = self.slots.get_mut(hold).expect("what is passed exists");
        held.phase = Phase::Between;
        if held.request.hold_at_most.is_some() {
            // The cap was the last holder's own.
            let (until, why) = held.deadline();
            held.request.validity.extend(until, why, now);
        }
        let slot = self.slots.get_mut(next).expect("`next_behind` looked");
        slot.phase = Phase::Passed { hold, ticket };
        out.wakers.extend(slot.take_waker());
        let grace = grace(slot.request.ttl());
        self.slots.schedule_roughly(next, now + grace, grace);
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
            // A copy whose answer was not heard may have run before the claim was broken: then it stands there until it is told.
            Some(Standing::Gone(Why::Broken)) => return self.leave_after_all(hold, claim, now, out),
            Some(Standing::Gone(_) | Standing::Waiting { .. }) => {
                self.hand_lead_on(hold, now, out);
                // It has left. If one of its acquires may still run, its id has to be kept out all the same.
                let unsure = self.remove(hold).is_some_and(|slot| slot.unsure);
                return unsure.then(|| Leaving::Unknown(Arc::clone(claim)));
            }
            // It may still hold; those here do not wait to find out.
            None => return self.leave_after_all(hold, claim, now, out),
        };
        self.saw(tickets.last());
        let Some(slot) = self.slots.get_mut(hold) else { return Some(Leaving::Done(Arc::clone(claim))) };
        slot.leased(sent, claim.ttl);
        let (until, why) = (slot.lease_until, LostWhy::Expired);
        // By 3, also for what the store answered late.
        let goes_on = slot.request.validity.extend(until, why, now) && until.since(now) >= claim.ttl / 2;
        if goes_on && let Some((id, Turn { queue: Some(queue), .. })) = self.led_turn(hold) {
            queue.begin(tickets.first, tickets.count, now);
            if let Some(next) = self.next_behind(id) {
                self.pass(hold, next, id, now, out);
                self.schedule_held(hold, out);
                return None;
            }
        }
        // Everybody here has left in the meantime, or the answer came too late to be worth passing on.
        self.leave_after_all(hold, claim, now, out)
    }

    fn leave_after_all(&mut self, hold: Key, claim: &Arc<Claim>, now: Moment, out: &mut Outbox) -> Option<Leaving> {
        self.hand_lead_on(hold, now, out);
        let claim = Arc::clone(claim);
        Some(self.remove(hold).map_or(Leaving::Done(Arc::clone(&claim)), |slot| slot.leaving(claim)))
    }
}
