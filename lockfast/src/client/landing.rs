//! What came back from the store, and what it means for the parties it was about.

use std::sync::Arc;
use std::time::Duration;

use crate::claim::Claim;
use crate::clock::Moment;
use crate::error::{Error, LostWhy, Result};
use crate::event::Happening;
use crate::store::{Standing, Why};

use super::book::{Book, Departure, Outbox, backoff, claim_of};
use super::due::Renewal;
use super::keeper::Landing;
use super::slot::Phase;
use super::slots::Key;

impl Book {
    pub(super) fn landed(&mut self, landing: Landing, now: Moment, out: &mut Outbox) {
        match landing {
            Landing::Renewed { renewals, sent, answer } => {
                for (index, Renewal { key, claim, ttl, waits }) in renewals.iter().enumerate() {
                    self.asking -= usize::from(*waits);
                    let slot = self.slots.get_mut(*key).filter(|slot| is_claim_of(slot.claim.as_ref(), claim));
                    let Some(slot) = slot else { continue };
                    slot.in_flight = false;
                    let doubted = slot.doubted;
                    match &answer {
                        Ok(standings) => {
                            let standing = standings.get(index).unwrap_or(&Standing::Gone(Why::Unknown));
                            self.renewed(*key, claim, sent, *ttl, standing, now, out);
                        }
                        Err(error) => self.not_renewed(*key, claim, error, now, out),
                    }
                    if doubted {
                        // The hint that made it doubtful came while this was on its way: ask once more.
                        self.doubt(*key, now, out);
                    }
                }
            }
            Landing::Joined { key, claim, order, sent, answer } => {
                if let Some(order) = order {
                    self.rejoin_in_flight = false;
                    if let (Err(error), Some(slot)) = (&answer, self.slots.get_mut(key))
                        && error.is_retryable()
                        && is_claim_of(slot.claim.as_ref(), &claim)
                    {
                        slot.in_flight = false;
                        slot.failures += 1;
                        slot.last_error = Some(Box::new(error.clone()));
                        self.rejoin_from = now + backoff(slot.failures);
                        self.rejoining.insert((order, key));
                        return;
                    }
                }
                self.admitted(key, &claim, sent, answer, false, now, out);
            }
            Landing::Released { departures, sent, answer } => self.released(departures, sent, answer, now, out),
            Landing::Reported { report, answer } => self.reported(report, answer.is_ok(), now, out),
        }
    }

    fn released(
        &mut self,
        departures: Vec<Departure>,
        sent: Moment,
        answer: Result<Vec<Standing>>,
        now: Moment,
        out: &mut Outbox,
    ) {
        for (index, mut departure) in departures.into_iter().enumerate() {
            let standing = answer.as_ref().ok().and_then(|standings| standings.get(index).cloned());
            if let Some(hold) = departure.hold {
                let claim = Arc::clone(claim_of(&departure.leaving).expect("a hold leaves with its claim"));
                if let Some(last) = self.departed(hold, &claim, sent, standing, now, out) {
                    self.depart(last, now, out);
                }
            } else if answer.as_ref().is_err_and(Error::is_retryable) && now < departure.until {
                departure.tries += 1;
                let serial = self.serial();
                self.departures.insert((now + backoff(departure.tries), serial), departure);
            }
        }
    }

    /// What the store says of a claim that was renewed.
    pub(crate) fn renewed(
        &mut self,
        key: Key,
        claim: &Arc<Claim>,
        sent: Moment,
        ttl: Duration,
        standing: &Standing,
        now: Moment,
        out: &mut Outbox,
    ) {
        if let Standing::Held(tickets) = standing {
            self.saw(tickets.last());
        }
        let Some(slot) = self.slots.get_mut(key).filter(|slot| is_claim_of(slot.claim.as_ref(), claim)) else { return };
        match (&slot.phase, standing) {
            // "Waiting" is an answer from before the hand-off that this party knows of already.
            (Phase::Held | Phase::Between, Standing::Held(_) | Standing::Waiting { .. }) => {
                let validity = Arc::clone(slot.validity.as_ref().expect("who holds has a validity"));
                let margin = validity.until().since(now);
                slot.leased(sent, ttl);
                let (until, why) = slot.deadline();
                if validity.extend(until, why, now) {
                    self.schedule_held(key, out);
                    self.happened(key, Happening::Renewed { margin }, out);
                } else {
                    // The answer came after the deadline: too late, since the holder may have looked.
                    self.lose(key, LostWhy::Expired, now, out);
                }
            }
            (Phase::Held | Phase::Between, Standing::Gone(why)) => {
                let why = match why {
                    Why::Broken => LostWhy::Broken,
                    Why::Expired => LostWhy::Expired,
                    _ => LostWhy::Evicted,
                };
                self.lose(key, why, now, out);
            }
            (Phase::Granted { .. }, Standing::Held(_) | Standing::Waiting { .. }) => slot.leased(sent, ttl),
            (Phase::Granted { tickets, .. }, Standing::Gone(_)) => {
                let was = tickets.first;
                self.rejoin(key, was);
            }
            (Phase::Waiting { settling, .. }, Standing::Held(tickets)) => {
                let settling = *settling;
                slot.leased(sent, ttl);
                self.grant(key, *tickets, settling, now, out);
            }
            (Phase::Waiting { .. }, Standing::Waiting { recheck_in, .. }) => {
                slot.leased(sent, ttl);
                self.schedule_waiting(key, now + *recheck_in, out);
            }
            (Phase::Waiting { ticket, .. }, Standing::Gone(_)) => {
                let was = *ticket;
                self.rejoin(key, was);
            }
            _ => {}
        }
    }

    /// Unknown is not lost: tried again while there is time.
    fn not_renewed(&mut self, key: Key, claim: &Arc<Claim>, error: &Error, now: Moment, out: &mut Outbox) {
        let Some(slot) = self.slots.get_mut(key).filter(|slot| is_claim_of(slot.claim.as_ref(), claim)) else { return };
        slot.failures += 1;
        slot.last_error = Some(Box::new(error.clone()));
        let again_at = now + backoff(slot.failures).min(slot.request.ttl / 10);
        match slot.phase {
            Phase::Held | Phase::Between => {
                let (deadline, _) = slot.deadline();
                let remaining = deadline.since(now);
                self.slots.schedule(key, again_at.min(deadline));
                self.happened(key, Happening::AtRisk { remaining }, out);
            }
            Phase::Waiting { .. } => self.slots.schedule(key, again_at),
            _ => {}
        }
        self.note_next(out);
    }

    /// A holder has lost its lock. Its guard stays, and says so; giving it back still tells the store.
    pub(crate) fn lose(&mut self, key: Key, why: LostWhy, now: Moment, out: &mut Outbox) {
        self.slots.unschedule(key);
        let Some(slot) = self.slots.get_mut(key).filter(|slot| !slot.lost) else { return };
        slot.lost = true;
        if let Some(validity) = &slot.validity {
            validity.end(why);
        }
        if !matches!(slot.phase, Phase::Held) {
            return;
        }
        if let Some(watchers) = slot.watchers.take() {
            out.wakers.extend(watchers.wakers);
            self.callbacks.extend(watchers.callbacks.into_iter().map(|callback| (callback, why)));
            out.ring = true;
        }
        self.telling.tally.lost();
        self.happened(key, Happening::Lost { why }, out);
        self.report_soon(now, out);
    }
}

pub(crate) fn is_claim_of(current: Option<&Arc<Claim>>, claim: &Arc<Claim>) -> bool {
    current.is_some_and(|current| Arc::ptr_eq(current, claim))
}
