//! What came back from the store, and what it means for the parties it was about.

use std::sync::Arc;

use crate::claim::Claim;
use crate::clock::Moment;
use crate::error::{Error, LostWhy, Result};
use crate::event::Happening;
use crate::store::{Lease, Standing, Why};

use super::book::{Book, Departure, Outbox, backoff};
use super::due::Renewal;
use super::keeper::Landing;
use super::repeat::MOST;
use super::slot::Phase;
use super::slots::Key;

impl Book {
    pub(super) fn landed(&mut self, landing: Landing, now: Moment, out: &mut Outbox) {
        match landing {
            Landing::Renewed { renewals, leases, sent, answer } => {
                for (index, (renewal, lease)) in renewals.into_iter().zip(&leases).enumerate() {
                    let (Renewal { key, waits, is_beside }, Lease { claim, .. }) = (renewal, lease);
                    self.asking -= usize::from(waits);
                    let slot = self.slots.get_mut(key).filter(|slot| is_claim_of(slot.claim.as_ref(), claim));
                    let Some(slot) = slot else { continue };
                    slot.in_flight = false;
                    match &answer {
                        Err(_) if is_beside => {}
                        Ok(standings) => {
                            let standing = standings.get(index).unwrap_or(&Standing::Gone(Why::Unknown));
                            if is_beside {
                                self.asked_too(key, standing, now, out);
                                continue;
                            }
                            // A claim that is gone has to join anew, and the store answers again when it has.
                            if slot.is_unanswered() && !matches!(standing, Standing::Gone(_)) {
                                self.happened(key, Happening::Answered, out);
                            }
                            self.renewed(renewal, lease, sent, standing, now, out);
                        }
                        Err(error) => self.not_renewed(key, claim, error, now, out),
                    }
                }
            }
            Landing::Joined { asked, stood, answer } => {
                let is_ok = answer.is_ok();
                self.admitted(&asked, answer, now, out);
                if let Some(stood) = stood {
                    if !is_ok {
                        self.rejoin_again(&asked, stood, now);
                    }
                    self.rejoined(is_ok);
                }
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
            if let Some(standing) = &standing
                && let Some(tell) = departure.tell.take()
                // An earlier try without an answer may be the one that found the claim. Then the caller is told nothing.
                && (departure.tries == 0 || *standing != Standing::Gone(Why::Unknown))
            {
                let _ = tell.send(Ok(standing.clone()));
            }
            if let Some(hold) = departure.hold {
                let claim = Arc::clone(departure.leaving.claim().expect("a hold leaves with its claim"));
                if let Some(last) = self.departed(hold, &claim, sent, standing, now, out) {
                    self.depart(last, now, out);
                }
            } else if standing == Some(Standing::Gone(Why::Unknown)) {
                // It has left before this, by a call whose answer nobody heard; only now is it certain that that one has run.
                self.may_have_missed(&departure.leaving);
            } else if let Err(error) = &answer {
                let is_final = departure.alone && !error.is_retryable();
                departure.tries += 1;
                if (is_final || departure.tries == MOST)
                    && let Some(tell) = departure.tell.take()
                {
                    let _ = tell.send(Err(error.clone()));
                }
                if !is_final && now < departure.until {
                    // One that the store will not hear of must not keep the others of its batch in line.
                    departure.alone |= !error.is_retryable();
                    let serial = self.serial();
                    self.departures.insert((now + backoff(departure.tries), serial), departure);
                }
            }
        }
    }

    /// What the store says of a claim that was renewed.
    pub(super) fn renewed(
        &mut self,
        renewal: Renewal,
        lease: &Lease,
        sent: Moment,
        standing: &Standing,
        now: Moment,
        out: &mut Outbox,
    ) {
        let (Renewal { key, waits, .. }, Lease { claim, ttl }) = (renewal, lease);
        let ttl = *ttl;
        if let Standing::Held(tickets) = standing {
            self.saw(tickets.last());
        }
        let Some(slot) = self.slots.get_mut(key).filter(|slot| is_claim_of(slot.claim.as_ref(), claim)) else { return };
        if ttl > claim.ttl {
            self.extended_until = self.extended_until.max(now + ttl);
        }
        match (&slot.phase, standing) {
            // A renewal sent while holding that finds the claim waiting: the store has forgotten the hand-over, and counts on
            // somebody else.
            (Phase::Held | Phase::Between, Standing::Waiting { .. }) if !waits => {
                self.lose(key, LostWhy::Evicted, now, out);
            }
            // "Waiting" is an answer from before the hand-over that this party knows of already.
            (Phase::Held | Phase::Between, Standing::Held(_) | Standing::Waiting { .. }) => {
                let margin = slot.request.validity.until().since(now);
                slot.leased(sent, ttl);
                let (until, why) = slot.deadline();
                if slot.request.validity.extend(until, why, now) {
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
            (Phase::Granted { first, .. }, Standing::Gone(_)) => {
                let was = *first;
                self.rejoin(key, was, now, out);
            }
            (Phase::Waiting { settling, .. }, Standing::Held(tickets)) => {
                let settling = *settling;
                slot.leased(sent, ttl);
                self.grant(key, *tickets, settling, now, out);
            }
            (Phase::Waiting { ticket, settling: true }, Standing::Waiting { .. }) => {
                // It was handed the lock, and this may be an answer from before that: the next one is not.
                slot.phase = Phase::Waiting { ticket: *ticket, settling: false };
                slot.leased(sent, ttl);
                self.slots.schedule_now(key);
                self.note_next(out);
            }
            (Phase::Waiting { .. }, Standing::Waiting { recheck_in, .. }) => {
                slot.leased(sent, ttl);
                self.schedule_waiting(key, now + *recheck_in, out);
            }
            (Phase::Waiting { ticket, .. }, Standing::Gone(_)) => {
                let was = *ticket;
                self.rejoin(key, was, now, out);
            }
            _ => {}
        }
    }

    /// Unknown is not lost: tried again while there is time.
    fn not_renewed(&mut self, key: Key, claim: &Arc<Claim>, error: &Error, now: Moment, out: &mut Outbox) {
        let Some(slot) = self.slots.get_mut(key).filter(|slot| is_claim_of(slot.claim.as_ref(), claim)) else { return };
        slot.failures += 1;
        // A lease that nobody renews was only asked about; the question stands.
        slot.doubted |= !slot.wants_renewal();
        slot.wait().last_error = Some(Box::new(error.clone()));
        let again_at = now + backoff(slot.failures).min(slot.request.ttl() / 10);
        match slot.phase {
            Phase::Held | Phase::Between => {
                let (deadline, _) = slot.deadline();
                let remaining = deadline.since(now);
                self.slots.schedule(key, again_at.min(deadline));
                self.happened(key, Happening::AtRisk { remaining, cause: error.to_string() }, out);
            }
            Phase::Waiting { .. } => {
                let is_first = slot.failures == 1;
                self.slots.schedule(key, again_at);
                if is_first {
                    self.happened(key, Happening::Unanswered { cause: error.to_string() }, out);
                }
            }
            _ => {}
        }
        self.note_next(out);
    }

    /// A holder has lost its lock. Its guard stays, and says so; giving it back still tells the store.
    pub(crate) fn lose(&mut self, key: Key, why: LostWhy, now: Moment, out: &mut Outbox) {
        self.slots.unschedule(key);
        let Some(slot) = self.slots.get_mut(key).filter(|slot| !slot.lost) else { return };
        slot.lost = true;
        slot.request.validity.end(why);
        if !matches!(slot.phase, Phase::Held) {
            return;
        }
        if let Some(watchers) = slot.watchers.take() {
            out.wakers.extend(watchers.wakers.into_values());
            self.callbacks.extend(watchers.callbacks.into_iter().map(|callback| (callback, why)));
            out.ring = true;
        }
        // Its guard may stay for a long time. Those of this process who wait behind it do not wait for that.
        self.hand_lead_on(key, now, out);
        self.telling.tally.lost();
        self.happened(key, Happening::Lost { why }, out);
        self.report_soon(now, out);
    }
}

pub(crate) fn is_claim_of(current: Option<&Arc<Claim>>, claim: &Arc<Claim>) -> bool {
    current.is_some_and(|current| Arc::ptr_eq(current, claim))
}
