//! From asking to holding: what the store's answers and pushes mean for a party that is on its way in.

use std::sync::Arc;

use crate::claim::{Claim, Ticket, Tickets};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::event::Happening;
use crate::store::{Admission, Leaving};

use super::book::{Book, Outbox, UNAVAILABLE_AFTER, backoff, grace};
use super::due::asked_after;
use super::landing::is_claim_of;
use super::slot::{Asked, Phase};
use super::slots::Key;

/// A question to the store whether a claim may join.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) key: Key,
    pub(crate) claim: Arc<Claim>,
    /// The moment before it was asked: what the answer is worth counts from there.
    pub(crate) sent: Moment,
    /// By the party's own future; otherwise by the keeper for it.
    pub(crate) inline: bool,
    /// The same question got no answer before, and may still be on its way.
    pub(crate) unsure: bool,
}

impl Book {
    /// What came of asking to join.
    pub(crate) fn admitted(&mut self, asked: &Asking, answer: Result<Admission>, now: Moment, out: &mut Outbox) {
        let Asking { key, ref claim, sent, inline, unsure } = *asked;
        if let Ok(Admission::Held(Tickets { first, .. }) | Admission::Queued { ticket: first, .. }) = &answer {
            self.saw(Tickets::new(*first, claim.block).last());
        }
        let current = self.slots.get_mut(key).filter(|slot| {
            let same = slot.claim.as_ref().is_some_and(|current| Arc::ptr_eq(current, claim));
            same && matches!(slot.phase, Phase::Asking { .. } | Phase::Outside { .. })
        });
        let Some(slot) = current else {
            // The party gave up, or began anew, while this was with the store. By 1, somebody has to withdraw it.
            match answer {
                Ok(Admission::Held(_) | Admission::Queued { .. }) if !unsure => {
                    self.depart(Leaving::Done(claim.clone()), now, out);
                }
                Ok(Admission::Held(_) | Admission::Queued { .. }) | Err(_) => {
                    self.depart(Leaving::Unknown(claim.clone()), now, out);
                }
                Ok(_) => {}
            }
            return;
        };
        slot.in_flight = false;
        if inline && !matches!(answer, Ok(Admission::Held(_))) {
            // The keeper goes on asking for it, and its own question was one of the five that it has in a second.
            Asked::note(slot, sent);
        }
        let is_back = slot.is_unanswered() && matches!(answer, Ok(Admission::Held(_) | Admission::Queued { .. }));
        match answer {
            Ok(Admission::Held(tickets)) => {
                slot.leased(sent, claim.ttl);
                if inline {
                    // Picked up by the very poll that got the answer; how long the answer took, waiting does not mend.
                    let Tickets { first, count } = tickets;
                    slot.phase = Phase::Granted { first, count, settled: true, at: now };
                } else {
                    self.grant(key, tickets, false, now, out);
                }
            }
            Ok(Admission::Queued { ticket, recheck_in, position }) => {
                slot.leased(sent, claim.ttl);
                slot.wait().position = position;
                slot.phase = Phase::Waiting { ticket, settling: false };
                let handed_already = slot.early() == ticket;
                self.count_waiting(key, now, out);
                if handed_already {
                    self.hand(key, ticket, now, out);
                } else {
                    self.schedule_waiting(key, now + recheck_in, out);
                }
            }
            Ok(Admission::Sealed(value)) => {
                // The copy may run after the seal has ended.
                self.keep_out_if_unsure(key, now, out);
                self.end_with(key, Phase::Sealed(Box::new(value)), now, out);
            }
            // This id is out, so it must not be used again: "gone" is said once and stays said.
            Ok(Admission::Gone(_) | Admission::Refused(_)) => {
                // A claim that was broken keeps its place until it leaves.
                self.keep_out_if_unsure(key, now, out);
                self.forget_claim(key);
                self.ask_again_later(key, Moment::NEVER, now, out);
            }
            Err(error) if error.is_retryable() => {
                slot.unsure = true;
                slot.failures += 1;
                let told = (slot.failures == 1 && slot.is_unanswered()).then(|| error.to_string());
                slot.wait().last_error = Some(Box::new(error));
                let give_up_at = match slot.phase {
                    Phase::Outside { give_up_at } => give_up_at,
                    _ => sent + UNAVAILABLE_AFTER,
                };
                self.ask_again_later(key, give_up_at, now, out);
                if let Some(cause) = told {
                    self.happened(key, Happening::Unanswered { cause }, out);
                }
            }
            Err(error) => {
                // By 1: an earlier acquire of this claim may still run, and would leave an entry that is never withdrawn.
                self.keep_out_if_unsure(key, now, out);
                self.fail(key, error, now, out);
            }
        }
        if is_back {
            self.happened(key, Happening::Answered, out);
        }
    }

    /// The outcome of `asked` is unknown: the same question again, from the party's own future. `None` when it is not the
    /// party's question any more.
    pub(crate) fn ask_once_more(&mut self, asked: &Asking, now: Moment, out: &mut Outbox) -> Option<Asking> {
        let slot = self.slots.get_mut(asked.key).filter(|slot| is_claim_of(slot.claim.as_ref(), &asked.claim))?;
        let Phase::Asking { is_held, .. } = &mut slot.phase else { return None };
        // Its future is polled, or it would not be here.
        *is_held = false;
        slot.unsure = true;
        slot.attempts += 1;
        // Each question is one of the five that it has in a second.
        Asked::note(slot, asked.sent);
        let grace = grace(asked.claim.ttl);
        self.slots.schedule_roughly(asked.key, now + asked_after(grace), grace);
        self.note_next(out);
        Some(Asking { sent: now, unsure: true, ..asked.clone() })
    }

    /// Its future sleeps until `at`: until then, that the claim holds does not show that an answer lies there unread.
    pub(crate) fn pause_until(&mut self, asked: &Asking, at: Moment, out: &mut Outbox) {
        let slot = self.slots.get_mut(asked.key).filter(|slot| is_claim_of(slot.claim.as_ref(), &asked.claim));
        if let Some(Phase::Asking { is_held, .. }) = slot.map(|slot| &mut slot.phase) {
            *is_held = false;
            let grace = grace(asked.claim.ttl);
            self.slots.schedule_roughly(asked.key, at + asked_after(grace), grace);
            self.note_next(out);
        }
    }

    /// A copy of a claim's acquire may still run, however late, and join the queue without a caller: a tombstone keeps its id out.
    pub(crate) fn keep_out_if_unsure(&mut self, key: Key, now: Moment, out: &mut Outbox) {
        let unsure = self.slots.get(key).filter(|slot| slot.unsure).and_then(|slot| slot.claim.clone());
        if let Some(claim) = unsure {
            self.depart(Leaving::Unknown(claim), now, out);
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
    pub(crate) fn rejoin(&mut self, key: Key, was: Ticket, now: Moment, out: &mut Outbox) {
        self.keep_out_if_unsure(key, now, out);
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
        if slot.lease_until.since(now) < slot.enough() && !settling {
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
        let Tickets { first, count } = tickets;
        slot.phase = Phase::Granted { first, count, settled, at: now };
        out.wakers.extend(slot.take_waker());
        let grace = grace(slot.request.ttl());
        self.slots.schedule(key, now + grace);
        self.note_next(out);
    }

    fn end_with(&mut self, key: Key, phase: Phase, now: Moment, out: &mut Outbox) {
        self.forget_claim(key);
        self.slots.unschedule(key);
        if let Some(slot) = self.slots.get_mut(key) {
            slot.phase = phase;
            out.wakers.extend(slot.take_waker());
            self.hand_lead_on(key, now, out);
        }
    }

    pub(crate) fn fail(&mut self, key: Key, error: Error, now: Moment, out: &mut Outbox) {
        if let Error::Unavailable { .. } = &error {
            self.fail_behind(key, &error, now, out);
        }
        self.end_with(key, Phase::Failed(Box::new(error)), now, out);
    }
}
