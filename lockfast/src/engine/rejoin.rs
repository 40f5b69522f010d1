//! Requests that the keeper asks for: their acquire had no answer or its id was out, their requests of this second were used up,
//! or they fell out of the queue.

use std::collections::HashMap;
use std::time::Duration;

use crate::claim::Ticket;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::store::{Admission, Leaving};

use super::Engine;
use super::acquire::no_ids;
use super::effect::{Effect, Effects};
use super::input::AcquireCall;
use super::phase::Phase;
use super::request::RateLimit;
use super::requests::Key;

/// How long requests that fell out of the queue wait for others that may have been ahead of them.
const REJOIN_DELAY: Duration = Duration::from_millis(250);
/// How many rejoins are sent without waiting for answers. Together they keep a store busy for some milliseconds.
const MAX_REJOINS: usize = 256;

impl Engine {
    /// The keeper asks for a request that is not in the queue; at most five times a second.
    pub(super) fn join(&mut self, key: Key, now: Moment, fx: &mut Effects) {
        let Some(request) = self.requests.get(key) else { return };
        let from = RateLimit::allowed_from(request);
        if from > now {
            self.requests.schedule(key, from);
        } else if self.waits_for_id(key) {
            self.look_now(key, fx);
        } else {
            self.send_join(key, None, now, fx);
        }
    }

    /// How many ids requests that fell out of the queue may use together, at the next look.
    pub fn ids_wanted(&self) -> usize {
        self.rejoining.len().min(MAX_REJOINS)
    }

    /// The ids in stock were used up by this look: the client adds some, and the keeper looks again at once. If there were none to
    /// begin with, the operating system has none, and the request fails.
    fn waits_for_id(&self, key: Key) -> bool {
        let has_claim = self.requests.get(key).is_some_and(|request| request.claim.is_some());
        !has_claim && self.ids.is_empty() && self.had_ids
    }

    fn send_join(&mut self, key: Key, stood: Option<Ticket>, now: Moment, fx: &mut Effects) {
        let claim = match self.requests.get(key).and_then(|request| request.claim.clone()) {
            Some(claim) => Some(claim),
            None => self.new_claim(key),
        };
        let Some(claim) = claim else {
            self.fail(key, no_ids(), now, fx);
            return;
        };
        let Some(request) = self.requests.get_mut(key) else { return };
        RateLimit::note(request, now);
        request.in_flight = true;
        request.attempts += 1;
        let asked = AcquireCall { key, claim, sent: now, inline: false, unsure: request.unsure };
        fx.push(Effect::Acquire(asked, stood));
        self.rejoins_in_flight += usize::from(stood.is_some());
    }

    /// The store answered an acquire of the keeper.
    pub(super) fn on_keeper_admission(
        &mut self,
        asked: AcquireCall,
        stood: Option<Ticket>,
        answer: Result<Admission>,
        now: Moment,
        fx: &mut Effects,
    ) {
        let is_ok = answer.is_ok();
        self.on_admission(asked.clone(), answer, now, fx);
        let Some(stood) = stood else { return };
        if !is_ok {
            self.rejoin_again(&asked, stood, now);
        }
        self.rejoins_in_flight -= 1;
        self.max_rejoins_in_flight = if is_ok && !self.rejoining.is_empty() { MAX_REJOINS } else { 1 };
    }

    /// A rejoin without an answer is tried again in its old order: requests behind it wait for it, whatever its pause is.
    fn rejoin_again(&mut self, asked: &AcquireCall, stood: Ticket, now: Moment) {
        let request = self.requests.get(asked.key).filter(|request| request.is_claim(&asked.claim));
        if request.is_some_and(|request| matches!(*request.phase, Phase::Outside { .. })) {
            let from = self.requests.due_at(asked.key).unwrap_or(now);
            self.requests.unschedule(asked.key);
            self.rejoining.insert((stood, asked.key), from);
        }
    }

    /// A request was in the queue and is not any more: the store forgot it, or its lease ended there.
    pub(super) fn rejoin_later(&mut self, key: Key, was: Ticket, now: Moment, fx: &mut Effects) {
        self.keep_out_if_unsure(key, now, fx);
        self.forget_claim(key);
        self.requests.unschedule(key);
        self.rejoining.insert((was, key), now);
    }

    /// Requests that fell out of the queue together go back in the order of their old tickets: once all of them are known, or
    /// the first of them has waited long enough. The first goes alone, since the store may be in trouble. When it is answered,
    /// the others are sent one behind the other without waiting for answers: a store runs the calls of one connection in their
    /// order.
    pub(super) fn next_to_rejoin(&mut self, now: Moment, fx: &mut Effects) {
        if self.rejoins_in_flight > 0 || self.next_rejoin_at() > now {
            return;
        }
        let mut later: Vec<((Ticket, Key), Moment)> = Vec::new();
        let mut held_up: HashMap<Name, Moment> = HashMap::new();
        while self.rejoins_in_flight < self.max_rejoins_in_flight
            && let Some(((stood, key), fell)) = self.rejoining.pop_first()
        {
            let Some(request) = self.requests.get(key).filter(|it| matches!(*it.phase, Phase::Outside { .. })) else {
                continue;
            };
            let names = request.terms.demands.iter().map(|demand| &demand.name);
            let ahead = names.clone().filter_map(|name| held_up.get(name)).max().copied().unwrap_or(Moment::START);
            let from = RateLimit::allowed_from(request).max(fell).max(ahead);
            if from > now {
                // It may not ask yet. Requests behind it for one of its names wait until it may, the others do not.
                held_up.extend(names.map(|name| (name.clone(), from)));
                later.push(((stood, key), from));
                continue;
            }
            if self.waits_for_id(key) {
                self.rejoining.insert((stood, key), fell);
                fx.wakes_keeper = true;
                break;
            }
            self.send_join(key, Some(stood), now, fx);
        }
        self.rejoining.extend(later);
        if self.rejoins_in_flight == 0 {
            // The remaining requests are gone, or may not ask yet. Until one is answered, the next goes alone.
            self.max_rejoins_in_flight = 1;
        }
    }

    /// When the first request may rejoin.
    pub(super) fn next_rejoin_at(&self) -> Moment {
        let first = self.rejoining.values().min().copied().unwrap_or(Moment::NEVER);
        if self.rechecks_in_flight == 0 { first } else { first + REJOIN_DELAY }
    }

    /// The store was silent for too long.
    pub(super) fn give_up(&mut self, key: Key, now: Moment, fx: &mut Effects) {
        let Some(request) = self.requests.get(key) else { return };
        let error = request.last_error().cloned();
        let error = error.unwrap_or_else(|| Error::unavailable("asking for a lock", "no answer in time"));
        if let Some(claim) = request.claim.clone() {
            self.release_by_keeper(Leaving::Unknown(claim), now, fx);
        }
        self.fail(key, error, now, fx);
    }
}
