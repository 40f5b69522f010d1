//! Leases: when they are renewed, how the answers are handled, and the questions that are renewals too. The outcome of a renewal
//! without an answer is unknown, not a loss: it is tried again while there is time.

use std::time::Duration;

use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::planted::Rule;
use crate::store::{Standing, Why};

use super::Engine;
use super::action::{Ack, On};
use super::effect::{Effect, Effects};
use super::input::Renewal;
use super::phase::Phase;
use super::request::{RateLimit, Request, ask_beside_after};
use super::requests::Key;

/// The pause between two questions about an acquire.
const BESIDE_PAUSE: Duration = Duration::from_millis(250);

impl Engine {
    /// The lease of a hold is due. Whatever becomes of the renewal, the deadline is kept.
    pub(super) fn renew(&mut self, key: Key, fx: &mut Effects) {
        let Some(request) = self.requests.get_mut(key) else { return };
        if !request.in_flight && (request.wants_renewal() || request.is_doubted) {
            send_renewal(key, request, fx);
        }
        let (deadline, _) = request.deadline();
        self.requests.schedule(key, deadline);
    }

    /// A waiter renews its claim, and asks where it stands; at most five times a second.
    pub(super) fn recheck(&mut self, key: Key, now: Moment, fx: &mut Effects) {
        let Some(request) = self.requests.get_mut(key) else { return };
        let from = RateLimit::allowed_from(request);
        if from > now {
            self.requests.schedule(key, from);
            return;
        }
        RateLimit::note(request, now);
        send_renewal(key, request, fx);
        self.rechecks_in_flight += 1;
    }

    /// A future waits for the answer to its acquire, or is not polled any more with the answer in hand. The store knows whether
    /// its claim holds.
    pub(super) fn ask_beside(&mut self, key: Key, until: Moment, now: Moment, fx: &mut Effects) {
        let Some(request) = self.requests.get_mut(key) else { return };
        let from = RateLimit::allowed_beside_from(request);
        let next = now + ask_beside_after(request.grace()).max(BESIDE_PAUSE);
        if request.in_flight || from > now {
            self.requests.schedule(key, from.max(next).min(until));
        } else {
            RateLimit::note(request, now);
            request.in_flight = true;
            let claim = request.claim.clone().expect("a request that asks has a claim");
            fx.push(Effect::Renew(Renewal { key, claim, ttl: Duration::ZERO, waits: false, is_beside: true }));
            self.requests.schedule(key, next.min(until));
        }
        self.look_at_next(fx);
    }

    /// The store says that the claim of a future that is asking holds.
    pub(super) fn expect_poll(&mut self, key: Key, now: Moment, fx: &mut Effects) {
        let Some(request) = self.requests.get_mut(key) else { return };
        // If an earlier answer has the future wait, the claim has to be asked about again.
        request.is_doubted = true;
        // The same answer may have just reached the future, which then needs a moment to be polled.
        let grace = request.grace();
        self.requests.schedule(key, now + (grace - ask_beside_after(grace)));
        self.look_at_next(fx);
    }

    /// The store answered a batch of renewals.
    pub(super) fn on_renewal_batch(
        &mut self,
        renewals: Vec<Renewal>,
        sent: Moment,
        answer: Result<Vec<Standing>>,
        now: Moment,
        fx: &mut Effects,
    ) {
        for (index, renewal) in renewals.iter().enumerate() {
            let key = renewal.key;
            self.rechecks_in_flight -= usize::from(renewal.waits);
            let Some(request) = self.requests.get_mut(key).filter(|request| request.is_claim(&renewal.claim)) else {
                continue;
            };
            request.in_flight = false;
            match &answer {
                // The future's acquire is still in flight, and the next question about it is scheduled.
                Err(_) if renewal.is_beside => {}
                Ok(standings) => {
                    let standing = standings.get(index).unwrap_or(&Standing::Gone(Why::Unknown));
                    if renewal.is_beside {
                        self.on(key, On::AskedBeside { standing }, now, fx);
                        continue;
                    }
                    // A claim that is gone has to join anew, and the store answers again when it has.
                    if request.is_unanswered() && !matches!(standing, Standing::Gone(_)) {
                        self.emit(key, EventKind::Answered, fx);
                    }
                    self.on_renewal_answer(renewal, sent, standing, now, fx);
                }
                Err(error) => self.on_renewal_failure(key, error, now, fx),
            }
        }
    }

    /// The store answered a renewal with this standing.
    pub(super) fn on_renewal_answer(
        &mut self,
        renewal: &Renewal,
        sent: Moment,
        standing: &Standing,
        now: Moment,
        fx: &mut Effects,
    ) {
        let Renewal { key, claim, ttl, waits, .. } = renewal;
        if let Standing::Held(tickets) = standing {
            self.note_ticket(tickets.last());
        }
        if self.requests.get(*key).is_none_or(|request| !request.is_claim(claim)) {
            return;
        }
        if *ttl > claim.ttl {
            self.latest_extended_expiry = self.latest_extended_expiry.max(now + *ttl);
        }
        let ack = Ack { sent: if Rule::LeaseCountsFromSending.is_left_out() { now } else { sent }, ttl: *ttl };
        self.on(*key, On::Renewed { standing, ack, waited: *waits }, now, fx);
    }

    /// A hold may be trusted for longer.
    pub(super) fn extend(&mut self, key: Key, Ack { sent, ttl }: Ack, now: Moment, fx: &mut Effects) {
        let Some(request) = self.requests.get_mut(key) else { return };
        let margin = request.deadline().0.since(now);
        request.note_lease(sent, ttl);
        let (until, why) = request.deadline();
        if matches!(*request.phase, Phase::Held) {
            fx.push(Effect::Trust { hold: key, until, why });
        }
        self.schedule_held(key, fx);
        self.emit(key, EventKind::Renewed { margin }, fx);
    }

    /// A claim still waits.
    pub(super) fn still_waiting(
        &mut self,
        key: Key,
        Ack { sent, ttl }: Ack,
        recheck_in: Duration,
        now: Moment,
        fx: &mut Effects,
    ) {
        let Some(request) = self.requests.get_mut(key) else { return };
        request.note_lease(sent, ttl);
        self.schedule_waiting(key, now + recheck_in, fx);
    }

    /// The answer may be from before the hand-off that the request knows of.
    pub(super) fn ask_once_more(&mut self, key: Key, Ack { sent, ttl }: Ack, fx: &mut Effects) {
        let Some(request) = self.requests.get_mut(key) else { return };
        request.note_lease(sent, ttl);
        self.requests.schedule_now(key);
        self.look_at_next(fx);
    }

    /// A renewal has no answer. Unknown is not lost: it is tried again while there is time.
    fn on_renewal_failure(&mut self, key: Key, error: &Error, now: Moment, fx: &mut Effects) {
        if Rule::UnknownIsNotLost.is_left_out() {
            self.lose(key, crate::error::LostWhy::Expired, now, fx);
        }
        let Some(request) = self.requests.get_mut(key) else { return };
        request.failures += 1;
        // A lease that is not renewed was only asked about; the question stands.
        request.is_doubted |= !request.wants_renewal();
        request.wait().last_error = Some(Box::new(error.clone()));
        let (failures, tenth) = (request.failures, request.terms.ttl() / 10);
        let (deadline, _) = request.deadline();
        let phase =
            (matches!(*request.phase, Phase::Held | Phase::Between), matches!(*request.phase, Phase::Waiting { .. }));
        let again_at = now + self.backoff(failures).min(tenth);
        match phase {
            (true, _) => {
                self.requests.schedule(key, again_at.min(deadline));
                let remaining = deadline.since(now);
                self.emit(key, EventKind::AtRisk { remaining, cause: error.to_string() }, fx);
            }
            (_, true) => {
                self.requests.schedule(key, again_at);
                if failures == 1 {
                    self.emit(key, EventKind::Unanswered { cause: error.to_string() }, fx);
                }
            }
            _ => {}
        }
        self.look_at_next(fx);
    }

    /// When to look at a waiter again: at its next renewal, or when all leases ahead of it have ended.
    pub(super) fn schedule_waiting(&mut self, key: Key, recheck_at: Moment, fx: &mut Effects) {
        let Some(request) = self.requests.get(key) else { return };
        let recheck_at = if Rule::RecheckCoversLeasesAhead.is_left_out() { Moment::NEVER } else { recheck_at };
        let at = request.renew_at.min(recheck_at + Duration::from_millis(1));
        if at == request.renew_at {
            let period = request.period();
            self.requests.schedule_roughly(key, at, period);
        } else {
            self.requests.schedule(key, at);
        }
        self.look_now_if_doubted(key);
        self.look_at_next(fx);
    }

    /// When to look at a hold again: at its next renewal, or when it is lost.
    pub(super) fn schedule_held(&mut self, key: Key, fx: &mut Effects) {
        let Some(request) = self.requests.get(key) else { return };
        let (deadline, _) = request.deadline();
        if request.wants_renewal() && request.renew_at < deadline {
            let (at, period) = (request.renew_at, request.period());
            self.requests.schedule_roughly(key, at, period);
        } else {
            self.requests.schedule(key, deadline);
        }
        self.look_now_if_doubted(key);
        self.look_at_next(fx);
    }

    /// A push said that the claim may be gone, while an answer was in flight.
    fn look_now_if_doubted(&mut self, key: Key) {
        if self.requests.get(key).is_some_and(|request| request.is_doubted && !request.in_flight) {
            self.requests.schedule_now(key);
        }
    }

    /// Wakes the keeper if it means to sleep for too long.
    pub(super) fn look_at_next(&self, fx: &mut Effects) {
        fx.wakes_keeper |= self.requests.next_at() < self.keeper_wakes_at;
    }
}

fn send_renewal(key: Key, request: &mut Request, fx: &mut Effects) {
    request.in_flight = true;
    request.is_doubted = false;
    let claim = request.claim.clone().expect("a holder or waiter has a claim");
    // Zero is a question: since no verb shortens a lease, it only brings the answer.
    let waits = matches!(*request.phase, Phase::Waiting { .. });
    let only_asks = waits && Rule::WaitersRenew.is_left_out();
    let ttl = if request.wants_renewal() && !only_asks { claim.ttl } else { Duration::ZERO };
    fx.push(Effect::Renew(Renewal { key, claim, ttl, waits, is_beside: false }));
}
