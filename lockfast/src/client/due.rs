//! What is due, and when: the half of the keeper that looks at parties and decides what to ask the store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::claim::Ticket;
use crate::clock::Moment;
use crate::error::{Error, LostWhy};
use crate::name::Name;
use crate::store::{Lease, Leaving, Report, Standing};

use super::book::{Book, Departure, Outbox, grace};
use super::joining::Asking;
use super::landing::is_claim_of;
use super::slot::{Asked, Callback, Phase, Slot};
use super::slots::Key;

/// How long those who fell out of the line wait for others who may have stood before them.
const ALL_FELL: Duration = Duration::from_millis(250);

/// How many rejoins are sent without waiting for answers. Together they keep a store busy for some milliseconds.
const REJOINS: usize = 256;

/// What is due.
#[derive(Default)]
pub(super) struct Work {
    /// Whose leases are renewed, and these, in the same order.
    pub(super) renewals: Vec<Renewal>,
    pub(super) leases: Vec<Lease>,
    /// Whose turn it is to join, with what, and where it stood if it fell out of the queue.
    pub(super) joins: Vec<(Asking, Option<Ticket>)>,
    pub(super) departures: Vec<Departure>,
    pub(super) callbacks: Vec<(Callback, LostWhy)>,
    pub(super) report: Option<Report>,
    pub(super) next: Moment,
    pub(super) is_over: bool,
}

/// Whose lease is renewed.
#[derive(Clone, Copy)]
pub(super) struct Renewal {
    pub(super) key: Key,
    /// By a party that waits.
    pub(super) waits: bool,
    /// By the keeper, beside the acquire of a future: that the claim holds is news, anything else may be older than the
    /// acquire.
    pub(super) is_beside: bool,
}

/// The pause between two questions about an acquire: four of them and the acquire make five requests a second.
const BESIDE: Duration = Duration::from_millis(250);

/// When the keeper asks about an acquire whose future has not been polled, so that there is time to see whether it is.
pub(super) fn asked_after(grace: Duration) -> Duration {
    grace * 3 / 4
}

impl Work {
    fn renew(&mut self, key: Key, slot: &mut Slot) {
        slot.in_flight = true;
        slot.doubted = false;
        let claim = Arc::clone(slot.claim.as_ref().expect("who holds or waits has a claim"));
        // Zero is a question: since no verb shortens a lease, it only brings the answer.
        let ttl = if slot.wants_renewal() { claim.ttl } else { Duration::ZERO };
        self.renewals.push(Renewal { key, waits: matches!(slot.phase, Phase::Waiting { .. }), is_beside: false });
        self.leases.push(Lease { claim, ttl });
    }

    fn ask_beside(&mut self, key: Key, slot: &mut Slot) {
        slot.in_flight = true;
        let claim = Arc::clone(slot.claim.as_ref().expect("who asks has a claim"));
        self.renewals.push(Renewal { key, waits: false, is_beside: true });
        self.leases.push(Lease { claim, ttl: Duration::ZERO });
    }
}

impl Book {
    /// Takes what is due, and says when to come back.
    pub(super) fn due(&mut self, now: Moment, watch_again_at: Moment, out: &mut Outbox) -> Work {
        let mut work = Work::default();
        self.ask_for_missed(out);
        self.repeat_overdue(now, out);
        for key in self.slots.take_due(now) {
            self.look_at(key, now, &mut work, out);
        }
        while let Some(first) = self.departures.first_entry().filter(|first| first.key().0 <= now) {
            work.departures.push(first.remove());
        }
        self.next_to_rejoin(now, &mut work, out);
        if self.report_at <= now {
            work.report = self.report(now);
        }
        work.callbacks = std::mem::take(&mut self.callbacks);
        let first = |at: Option<(&(Moment, u64), &_)>| at.map_or(Moment::NEVER, |((at, _), _)| *at);
        let rejoin = if self.rejoins > 0 { Moment::NEVER } else { self.rejoin_from() };
        let overdue = self.next_overdue();
        let candidates = [first(self.departures.first_key_value()), rejoin, overdue, self.report_at, watch_again_at];
        work.next = candidates.into_iter().fold(self.slots.next_at(), Moment::min);
        self.wakes_at = work.next;
        let nobody_left = self.slots.len() == 0 && self.departures.is_empty() && work.departures.is_empty();
        // Order matters: a release that ends with more to do has put that into the book before. And it is asked for whatever else
        // is left: the last thing in the book may go with a release, which then has to say so.
        let is_last = (self.abandoned || self.closed.is_some()) && self.releases.await_last();
        work.is_over = is_last && nobody_left && work.report.is_none();
        work
    }

    fn look_at(&mut self, key: Key, now: Moment, work: &mut Work, out: &mut Outbox) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        match slot.phase {
            Phase::Held | Phase::Between => {
                if slot.is_over(now) {
                    let (_, why) = slot.deadline();
                    self.lose(key, why, now, out);
                    return;
                }
                if !slot.in_flight && (slot.wants_renewal() || slot.doubted) {
                    work.renew(key, slot);
                }
                // By 2: whatever becomes of the flight, the deadline is kept.
                let (deadline, _) = slot.deadline();
                self.slots.schedule(key, deadline);
            }
            Phase::Waiting { .. } if !slot.in_flight => {
                let from = Asked::allowed_from(slot);
                if from > now {
                    self.slots.schedule(key, from);
                    return;
                }
                Asked::note(slot, now);
                work.renew(key, slot);
                self.asking += 1;
            }
            Phase::Granted { at, .. } => {
                let until = at + grace(slot.request.ttl());
                if now < until {
                    self.slots.schedule(key, until);
                    return;
                }
                // Its future is not polled any more, or not for a long time. Others are.
                let leaving = slot.leaving(Arc::clone(slot.claim.as_ref().expect("what is granted is a claim")));
                slot.phase = Phase::GivenBack;
                self.forget_claim(key);
                self.hand_lead_on(key, now, out);
                self.depart(leaving, now, out);
            }
            Phase::Asking { until, is_held: false } if now < until => self.ask_too(key, until, now, work, out),
            Phase::Asking { .. } => {
                let claim = Arc::clone(slot.claim.as_ref().expect("who asks has a claim"));
                slot.phase = Phase::GivenBack;
                self.forget_claim(key);
                self.hand_lead_on(key, now, out);
                self.depart(Leaving::Unknown(claim), now, out);
            }
            Phase::Outside { give_up_at } if !slot.in_flight => {
                if now >= give_up_at {
                    self.give_up(key, now, out);
                    return;
                }
                let from = Asked::allowed_from(slot);
                if from > now {
                    self.slots.schedule(key, from);
                    return;
                }
                self.join_for(key, None, now, work, out);
            }
            Phase::Lead | Phase::Passed { .. } => self.step_aside(key, now, out),
            Phase::Leaving => {
                let claim = Arc::clone(slot.claim.as_ref().expect("who leaves has a claim"));
                if let Some(last) = self.departed(key, &claim, now, None, now, out) {
                    self.depart(last, now, out);
                }
            }
            _ => {}
        }
    }

    /// A future waits for the answer to its acquire, or is not polled any more with the answer in hand. The store knows whether
    /// its claim holds.
    fn ask_too(&mut self, key: Key, until: Moment, now: Moment, work: &mut Work, out: &mut Outbox) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        let from = Asked::allowed_from(slot);
        let next = now + asked_after(grace(slot.request.ttl())).max(BESIDE);
        if slot.in_flight || from > now {
            self.slots.schedule(key, from.max(next).min(until));
        } else {
            Asked::note(slot, now);
            work.ask_beside(key, slot);
            self.slots.schedule(key, next.min(until));
        }
        self.note_next(out);
    }

    /// What the store says of a claim whose future is asking.
    pub(super) fn asked_too(&mut self, key: Key, standing: &Standing, now: Moment, out: &mut Outbox) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        if let (Phase::Asking { is_held, .. }, Standing::Held(_)) = (&mut slot.phase, standing) {
            *is_held = true;
            // Should the future have been told to wait, before this, it has to ask again.
            slot.doubted = true;
            // The same answer may have just reached the future, which then needs a moment to be polled.
            let grace = grace(slot.request.ttl());
            self.slots.schedule(key, now + (grace - asked_after(grace)));
            self.note_next(out);
        }
    }

    /// Asks the store for a party that is not in line.
    fn join_for(&mut self, key: Key, stood: Option<Ticket>, now: Moment, work: &mut Work, out: &mut Outbox) {
        let claim = match self.slots.get(key).and_then(|slot| slot.claim.clone()) {
            Some(claim) => Ok(claim),
            None => self.new_claim(key),
        };
        match claim {
            Ok(claim) => {
                let slot = self.slots.get_mut(key).expect("it has a claim");
                Asked::note(slot, now);
                slot.in_flight = true;
                slot.attempts += 1;
                let asked = Asking { key, claim, sent: now, inline: false, unsure: slot.unsure };
                work.joins.push((asked, stood));
            }
            Err(error) => self.fail(key, error, now, out),
        }
    }

    /// Requests that fell out of the queue together go back in the order in which they stood: once all of them are known, or
    /// the first of them has waited long enough. The first goes alone, since the store may be in trouble. When it is answered,
    /// the others are sent one behind the other without waiting for answers: what a store is asked on one connection it does
    /// in that order.
    fn next_to_rejoin(&mut self, now: Moment, work: &mut Work, out: &mut Outbox) {
        if self.rejoins > 0 || self.rejoin_from() > now {
            return;
        }
        let mut later: Vec<((Ticket, Key), Moment)> = Vec::new();
        let mut held_up: HashMap<Name, Moment> = HashMap::new();
        while self.rejoins < self.most_rejoins
            && let Some((place, fell)) = self.rejoining.pop_first()
        {
            let key = place.1;
            let Some(slot) = self.slots.get(key).filter(|slot| matches!(slot.phase, Phase::Outside { .. })) else {
                continue;
            };
            let names = slot.request.demands.iter().map(|demand| &demand.name);
            let ahead = names.clone().filter_map(|name| held_up.get(name)).max().copied().unwrap_or(Moment::START);
            let from = Asked::allowed_from(slot).max(fell).max(ahead);
            if from > now {
                // It may not ask yet. Requests behind it for one of its names wait until it may, the others do not.
                held_up.extend(names.map(|name| (name.clone(), from)));
                later.push((place, from));
                continue;
            }
            let joins = work.joins.len();
            self.join_for(key, Some(place.0), now, work, out);
            self.rejoins += work.joins.len() - joins;
        }
        self.rejoining.extend(later);
        if self.rejoins == 0 {
            // Those that were left are gone, or may not ask yet. Until one is answered, the next goes alone.
            self.most_rejoins = 1;
        }
    }

    /// One of the rejoins has an answer.
    pub(super) fn rejoined(&mut self, is_ok: bool) {
        self.rejoins -= 1;
        self.most_rejoins = if is_ok && !self.rejoining.is_empty() { REJOINS } else { 1 };
    }

    /// A rejoin without an answer is tried again in its old place: requests behind it wait for it, whatever its pause is.
    pub(super) fn rejoin_again(&mut self, asked: &Asking, stood: Ticket, now: Moment) {
        let slot = self.slots.get(asked.key).filter(|slot| is_claim_of(slot.claim.as_ref(), &asked.claim));
        if slot.is_some_and(|slot| matches!(slot.phase, Phase::Outside { .. })) {
            let from = self.slots.due_at(asked.key).unwrap_or(now);
            self.slots.unschedule(asked.key);
            self.rejoining.insert((stood, asked.key), from);
        }
    }

    fn rejoin_from(&self) -> Moment {
        let first = self.rejoining.values().min().copied().unwrap_or(Moment::NEVER);
        if self.asking == 0 { first } else { first + ALL_FELL }
    }

    fn give_up(&mut self, key: Key, now: Moment, out: &mut Outbox) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        let error =
            slot.last_error().cloned().unwrap_or_else(|| Error::unavailable("asking for a lock", "no answer in time"));
        if let Some(claim) = slot.claim.clone() {
            self.depart(Leaving::Unknown(claim), now, out);
        }
        self.fail(key, error, now, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{ClientId, Demand};
    use crate::clock::Clock;

    use crate::client::{Request, Span, Telling, Validity};

    /// Two parties that fell out of the line of one name; the first has used up its questions.
    fn fallen_out(now: Moment) -> Book {
        let mut book = Book::new(ClientId(1), Telling::new(Clock::boot()));
        for ticket in [7, 8] {
            let request = Request {
                demands: Demand::exclusive(Name::new("a").unwrap()).into(),
                ttl: Span::of(Duration::from_secs(30)),
                renew_every: None,
                hold_at_least: None,
                hold_at_most: None,
                note: Arc::default(),
                trace: [1; 16],
                validity: Validity::new(),
                hands_over: false,
                detached: false,
            };
            let mut out = Outbox::default();
            let key = book.enter(Arc::new(request), now, &mut out);
            for _ in 0..if ticket == 7 { 5 } else { 0 } {
                Asked::note(book.slots.get_mut(key).unwrap(), now);
            }
            book.rejoin(key, Ticket(ticket), now, &mut out);
        }
        book
    }

    #[test]
    fn who_waits_behind_one_that_may_not_ask_yet_does_not_keep_the_keeper_awake() {
        let now = Moment::from_nanos(1_000_000_000_000);
        let mut book = fallen_out(now);
        let work = book.due(now, Moment::NEVER, &mut Outbox::default());
        assert!(work.joins.is_empty() && work.next >= now + Duration::from_secs(1), "{:?}", work.next);
        let later = now + Duration::from_secs(1);
        let work = book.due(later, Moment::NEVER, &mut Outbox::default());
        assert_eq!(work.joins.len(), 1, "one after the other");
    }
}
