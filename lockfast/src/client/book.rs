//! Everything one client knows about its parties, behind one mutex, and how a party moves from asking to holding.
//!
//! What must stay true:
//!
//! 1. A claim that may be in the store's line belongs to a slot, or there is a departure for it, or it is with a flight of
//!    the keeper's whose landing makes one of the two. So nothing is left in line that nobody renews or withdraws.
//! 2. A claim is in `by_hash` before it is sent, so that no push finds it unknown.
//! 3. Nothing here runs foreign code while the mutex is held: wakers and events go into the [`Outbox`], callbacks to the
//!    keeper.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::claim::{Claim, ClaimHash, ClaimIds, ClaimMap, ClientId, Ticket, Tickets};
use crate::clock::Moment;
use crate::error::{Error, LostWhy, Result};
use crate::event::{Event, Happening};
use crate::store::{Admission, Counters, Leaving};

use super::slot::{Asked, Callback, Phase, Slot, Watchers};
use super::slots::{Key, Slots};
use super::telling::Telling;
use super::turn::Turns;

/// How long a party that has never been in line keeps asking a store that does not answer.
pub(crate) const UNAVAILABLE_AFTER: Duration = Duration::from_secs(10);

pub(crate) struct Book {
    pub(crate) slots: Slots,
    pub(crate) by_hash: ClaimMap<Key>,
    pub(crate) turns: Turns,
    /// What has to be told to the store, and when.
    pub(crate) departures: BTreeMap<(Moment, u64), Departure>,
    /// Futures to wake.
    pub(crate) alarms: BTreeMap<(Moment, u64), Waker>,
    /// Parties that fell out of the line, in the order in which they stood there, and when they fell out.
    pub(crate) rejoining: BTreeMap<(Ticket, Key), Moment>,
    /// Claims withdrawn while nobody knew whether they were in line; should a push find one there, it is withdrawn again.
    pub(crate) withdrawn: ClaimMap<(Moment, Arc<Claim>)>,
    /// For the keeper's thread to run.
    pub(crate) callbacks: Vec<(Callback, LostWhy)>,
    /// Listed claims that left since the last report.
    pub(crate) unlisted: Vec<ClaimHash>,
    /// When to report, if there is something to say.
    pub(crate) report_at: Moment,
    /// How many renewals of waiting parties are with the store: their answers may name more who fell out.
    pub(crate) asking: usize,
    /// Somebody is on the way back into the line; they go one after the other.
    pub(crate) rejoin_in_flight: bool,
    /// Releases that are with the store by their callers' own doing; what comes of them may be the keeper's to mend.
    pub(crate) releasing: usize,
    /// Until when the keeper means to sleep.
    pub(crate) wakes_at: Moment,
    /// Why nobody may enter any more.
    pub(crate) closed: Option<&'static str>,
    /// Nobody can ask for a lock any more; the keeper ends when the last party has left.
    pub(crate) abandoned: bool,
    /// The keeper has ended: nobody rings, wakes or renews any more.
    pub(crate) unattended: bool,
    pub(crate) telling: Arc<Telling>,
    /// What the store has been told so far.
    pub(crate) reported: Counters,
    /// When it was told.
    pub(crate) heard_at: Moment,
    /// Foreign things whose destructors may do anything, so not while the mutex is held.
    pub(crate) trash: (Vec<Waker>, Vec<Box<Watchers>>),
    /// The largest ticket seen.
    pub(crate) floor: Ticket,
    pub(crate) client: ClientId,
    ids: ClaimIds,
    serial: u64,
}

/// Something to tell the store.
#[derive(Debug)]
pub(crate) struct Departure {
    pub(crate) leaving: Leaving,
    /// The slot that waits for the answer.
    pub(crate) hold: Option<Key>,
    /// Later than this the lease has ended anyway.
    pub(crate) until: Moment,
    pub(crate) tries: u32,
    /// Sent by itself, because the store refused the batch that it was in.
    pub(crate) alone: bool,
}

/// What to do once the mutex is free again.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) wakers: Vec<Waker>,
    pub(crate) events: Vec<Event>,
    /// The keeper has something to do before it meant to wake up.
    pub(crate) ring: bool,
}

impl Book {
    pub(crate) fn new(client: ClientId, telling: Arc<Telling>) -> Self {
        Self {
            slots: Slots::default(),
            by_hash: ClaimMap::default(),
            turns: Turns::default(),
            departures: BTreeMap::new(),
            alarms: BTreeMap::new(),
            rejoining: BTreeMap::new(),
            withdrawn: ClaimMap::default(),
            callbacks: Vec::new(),
            unlisted: Vec::new(),
            report_at: Moment::NEVER,
            asking: 0,
            rejoin_in_flight: false,
            releasing: 0,
            wakes_at: Moment::NEVER,
            closed: None,
            abandoned: false,
            unattended: false,
            telling,
            reported: Counters::default(),
            heard_at: Moment::START,
            trash: Default::default(),
            floor: Ticket(0),
            client,
            ids: ClaimIds::default(),
            serial: 0,
        }
    }

    pub(crate) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub(crate) fn saw(&mut self, ticket: Ticket) {
        self.floor = self.floor.max(ticket);
    }

    /// Makes a claim for a party that is about to ask. By 2, it can be found from now on.
    pub(crate) fn new_claim(&mut self, key: Key) -> Result<Arc<Claim>> {
        let id = self.ids.draw()?;
        self.forget_claim(key);
        let block = self.block_for(key);
        let slot = self.slots.get_mut(key).ok_or(Error::Closed("it was shut down"))?;
        let claim = Arc::new(Claim {
            id,
            client: self.client,
            demands: slot.request.demands.clone(),
            ttl: slot.request.ttl,
            block,
            floor: self.floor,
            detached: false,
            note: Arc::clone(&slot.request.note),
        });
        self.by_hash.insert(claim.id.hash(), key);
        slot.claim = Some(Arc::clone(&claim));
        slot.lease_until = Moment::START;
        slot.early = Ticket(0);
        slot.unsure = false;
        slot.doubted = false;
        Ok(claim)
    }

    pub(crate) fn forget_claim(&mut self, key: Key) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        let Some(claim) = slot.claim.take() else { return };
        self.by_hash.remove(&claim.id.hash());
        if std::mem::take(&mut slot.listed) {
            self.unlisted.push(claim.id.hash());
        }
    }

    /// What came of asking to join; by the party's own future (`inline`) or by the keeper for it.
    pub(crate) fn admitted(
        &mut self,
        key: Key,
        claim: &Arc<Claim>,
        sent: Moment,
        answer: Result<Admission>,
        inline: bool,
        now: Moment,
        out: &mut Outbox,
    ) {
        if let Ok(Admission::Held(Tickets { first, .. }) | Admission::Queued { ticket: first, .. }) = &answer {
            self.saw(Tickets::new(*first, claim.block).last());
        }
        let current = self.slots.get_mut(key).filter(|slot| {
            let same = slot.claim.as_ref().is_some_and(|current| Arc::ptr_eq(current, claim));
            same && matches!(slot.phase, Phase::Asking | Phase::Outside { .. })
        });
        let Some(slot) = current else {
            // The party gave up, or began anew, while this was with the store. By 1, somebody has to withdraw it.
            match answer {
                Ok(Admission::Held(_) | Admission::Queued { .. }) => {
                    self.depart(Leaving::Done(claim.clone()), now, out)
                }
                Ok(_) => {}
                Err(_) => self.depart(Leaving::Unknown(claim.clone()), now, out),
            }
            return;
        };
        slot.in_flight = false;
        if inline && !matches!(answer, Ok(Admission::Held(_))) {
            // The keeper goes on asking for it, and its own question was one of the five that it has in a second.
            Asked::note(slot, sent);
        }
        match answer {
            Ok(Admission::Held(tickets)) => {
                slot.leased(sent, claim.ttl);
                if inline {
                    // Picked up by the very poll that got the answer; how long the answer took, waiting does not mend.
                    slot.phase = Phase::Granted { tickets, settled: true, at: now };
                } else {
                    self.grant(key, tickets, false, now, out);
                }
            }
            Ok(Admission::Queued { ticket, recheck_in, .. }) => {
                slot.leased(sent, claim.ttl);
                slot.phase = Phase::Waiting { ticket, settling: false };
                let handed_already = slot.early == ticket;
                self.count_waiting(key, now, out);
                if handed_already {
                    self.hand(key, ticket, now, out);
                } else {
                    self.schedule_waiting(key, now + recheck_in, out);
                }
            }
            Ok(Admission::Sealed(_)) => self.end_with(key, Phase::Sealed, now, out),
            // This id is out, so it must not be used again: "gone" is said once and stays said.
            Ok(Admission::Gone(_) | Admission::Refused(_)) => {
                self.forget_claim(key);
                self.ask_again_later(key, Moment::NEVER, now, out);
            }
            Err(error) if error.is_retryable() => {
                slot.unsure = true;
                slot.failures += 1;
                slot.last_error = Some(Box::new(error));
                let give_up_at = match slot.phase {
                    Phase::Outside { give_up_at } => give_up_at,
                    _ => sent + UNAVAILABLE_AFTER,
                };
                self.ask_again_later(key, give_up_at, now, out);
            }
            Err(error) => self.fail(key, error, now, out),
        }
    }

    /// Leaves the asking to the keeper.
    pub(crate) fn ask_again_later(&mut self, key: Key, give_up_at: Moment, now: Moment, out: &mut Outbox) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.phase = Phase::Outside { give_up_at };
        match slot.failures {
            0 => self.slots.schedule_now(key),
            failures => self.slots.schedule(key, give_up_at.min(now + backoff(failures))),
        }
        out.ring = true;
    }

    /// A party that was in line is not any more, through no fault of its own.
    pub(crate) fn rejoin(&mut self, key: Key, was: Ticket, now: Moment) {
        self.forget_claim(key);
        if let Some(slot) = self.slots.get_mut(key) {
            slot.phase = Phase::Outside { give_up_at: Moment::NEVER };
            self.slots.unschedule(key);
            self.rejoining.insert((was, key), now);
        }
    }

    /// The store, by push or answer, has handed a waiting party the lock.
    pub(crate) fn hand(&mut self, key: Key, ticket: Ticket, now: Moment, out: &mut Outbox) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        let Phase::Waiting { ticket: mine, settling } = slot.phase else { return };
        if mine != ticket {
            // A word about an earlier life of this claim.
            return;
        }
        let block = slot.claim.as_ref().map_or(1, |claim| claim.block);
        // Valid from when its last acquire or renewal was sent. With little of that left, the keeper renews first.
        if slot.lease_until.since(now) < slot.request.ttl / 2 && !settling {
            slot.phase = Phase::Waiting { ticket, settling: true };
            self.slots.schedule_now(key);
            out.ring = true;
        } else {
            self.grant(key, Tickets::new(ticket, block), settling, now, out);
        }
    }

    /// The lock is there for the party to pick up.
    pub(crate) fn grant(&mut self, key: Key, tickets: Tickets, settled: bool, now: Moment, out: &mut Outbox) {
        self.saw(tickets.last());
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.phase = Phase::Granted { tickets, settled, at: now };
        out.wakers.extend(slot.waker.take());
        let grace = grace(slot.request.ttl);
        self.slots.schedule(key, now + grace);
        self.note_next(out);
    }

    fn end_with(&mut self, key: Key, phase: Phase, now: Moment, out: &mut Outbox) {
        self.forget_claim(key);
        self.slots.unschedule(key);
        if let Some(slot) = self.slots.get_mut(key) {
            slot.phase = phase;
            out.wakers.extend(slot.waker.take());
            self.hand_lead_on(key, now, out);
        }
    }

    pub(crate) fn fail(&mut self, key: Key, error: Error, now: Moment, out: &mut Outbox) {
        if let Error::Unavailable { .. } = &error {
            self.fail_behind(key, &error, now, out);
        }
        self.end_with(key, Phase::Failed(Box::new(error)), now, out);
    }

    pub(crate) fn count_waiting(&mut self, key: Key, now: Moment, out: &mut Outbox) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        if !std::mem::replace(&mut slot.counted, true) {
            self.telling.tally.began_waiting();
            self.happened(key, Happening::Waiting, out);
            self.report_soon(now, out);
        }
    }

    pub(crate) fn happened(&self, key: Key, what: Happening, out: &mut Outbox) {
        if self.telling.is_heard(&what)
            && let Some(slot) = self.slots.get(key)
        {
            out.events.push(self.telling.event(slot, what));
        }
    }

    /// Asks the keeper to tell the store something.
    pub(crate) fn depart(&mut self, leaving: Leaving, now: Moment, out: &mut Outbox) {
        self.depart_for(leaving, None, now, out);
    }

    pub(crate) fn depart_for(&mut self, leaving: Leaving, hold: Option<Key>, now: Moment, out: &mut Outbox) {
        let ttl = claim_of(&leaving).map_or(UNAVAILABLE_AFTER, |claim| claim.ttl);
        if let Leaving::Unknown(claim) = &leaving {
            self.withdrawn.insert(claim.id.hash(), (now + ttl, claim.clone()));
            self.report_soon(now, out);
        }
        let serial = self.serial();
        self.departures.insert((now, serial), Departure { leaving, hold, until: now + ttl, tries: 0, alone: false });
        out.ring = true;
    }

    /// Takes a party out of the book; its claim, if any, is somebody else's business from now on.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Slot> {
        let claim = self.slots.get(key)?.claim.clone();
        self.forget_claim(key);
        let mut slot = self.slots.remove(key)?;
        slot.claim = claim;
        self.trash.0.extend(slot.waker.take());
        self.trash.1.extend(slot.watchers.take());
        if slot.counted {
            self.telling.tally.stopped_waiting();
        }
        Some(slot)
    }

    /// When to look at a waiter again: at its next renewal, or when all leases ahead of it have run out.
    pub(crate) fn schedule_waiting(&mut self, key: Key, recheck_at: Moment, out: &mut Outbox) {
        let Some(slot) = self.slots.get(key) else { return };
        let at = slot.renew_at.min(recheck_at + Duration::from_millis(1));
        if at == slot.renew_at {
            let period = slot.period();
            self.slots.schedule_roughly(key, at, period);
        } else {
            self.slots.schedule(key, at);
        }
        self.look_again_if_doubted(key);
        self.note_next(out);
    }

    /// A push said that the claim is gone while there was no way to ask.
    fn look_again_if_doubted(&mut self, key: Key) {
        if self.slots.get(key).is_some_and(|slot| slot.doubted && !slot.in_flight) {
            self.slots.schedule_now(key);
        }
    }

    /// When to look at a holder again: at its next renewal, or when it is lost.
    pub(crate) fn schedule_held(&mut self, key: Key, out: &mut Outbox) {
        let Some(slot) = self.slots.get(key) else { return };
        let (deadline, _) = slot.deadline();
        if slot.wants_renewal() && slot.renew_at < deadline {
            let (at, period) = (slot.renew_at, slot.period());
            self.slots.schedule_roughly(key, at, period);
        } else {
            self.slots.schedule(key, deadline);
        }
        self.look_again_if_doubted(key);
        self.note_next(out);
    }

    /// Wakes the keeper if it means to sleep for too long.
    pub(crate) fn note_next(&mut self, out: &mut Outbox) {
        out.ring |= self.slots.next_at() < self.wakes_at;
    }

    /// There is something to report, within a second.
    pub(crate) fn report_soon(&mut self, now: Moment, out: &mut Outbox) {
        let soon = now + Duration::from_secs(1);
        if soon < self.report_at {
            self.report_at = soon;
            out.ring |= soon < self.wakes_at;
        }
    }
}

impl std::fmt::Debug for Book {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Book").field("parties", &self.slots.len()).field("closed", &self.closed).finish_non_exhaustive()
    }
}

/// How long a grant waits to be picked up before it is given back.
pub(crate) fn grace(ttl: Duration) -> Duration {
    (ttl / 3).min(Duration::from_secs(2))
}

/// The pause before asking again after so many failures, with jitter.
pub(crate) fn backoff(failures: u32) -> Duration {
    let longest = Duration::from_millis(50) * (1 << failures.min(5));
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}

pub(crate) fn claim_of(leaving: &Leaving) -> Option<&Arc<Claim>> {
    match leaving {
        Leaving::Done(claim)
        | Leaving::Unknown(claim)
        | Leaving::Linger(claim, _)
        | Leaving::Seal { claim, .. }
        | Leaving::UnlessAlone { claim, .. } => Some(claim),
        Leaving::Break { .. } => None,
    }
}
