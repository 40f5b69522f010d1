//! Requests that end without a lock: they fail, are refused, are withdrawn, or time out. Their claims and holds are given back.

use crate::clock::Moment;
use crate::error::Error;
use crate::event::EventKind;
use crate::planted::Rule;
use crate::store::Leaving;

use super::Engine;
use super::action::{On, Rest};
use super::effect::Effects;
use super::phase::Phase;
use super::request::Request;
use super::requests::Key;

impl Engine {
    /// The request will never hold.
    pub(super) fn fail(&mut self, key: Key, error: Error, now: Moment, fx: &mut Effects) {
        if let Error::Unavailable { .. } = &error {
            self.fail_behind(key, &error, now, fx);
        }
        self.on(key, On::Fails(Box::new(error)), now, fx);
    }

    pub(super) fn end_without_lock(&mut self, key: Key, now: Moment, fx: &mut Effects) {
        self.forget_claim(key);
        self.requests.unschedule(key);
        fx.wake(key);
        self.hand_lead_on(key, now, fx);
    }

    /// A try was refused: the store has no entry of it.
    pub(super) fn on_refusal(&mut self, key: Key, now: Moment, fx: &mut Effects) {
        self.keep_out_if_unsure(key, now, fx);
        self.remove(key);
        self.counters.add_refused();
        self.report_soon(now, fx);
    }

    /// The future of a request that does not hold is gone.
    pub(super) fn withdraw(&mut self, key: Key, now: Moment, fx: &mut Effects) {
        let waits = |request: &Request| !matches!(*request.phase, Phase::Failed(_) | Phase::Sealed(_));
        if self.requests.get(key).is_some_and(waits) {
            self.emit(key, EventKind::Cancelled, fx);
        }
        self.withdraw_quietly(key, now, fx);
    }

    pub(super) fn on_timeout(&mut self, key: Key, now: Moment, fx: &mut Effects) {
        let Some(waited) = self.requests.get(key).map(|request| now.since(request.since)) else { return };
        self.emit(key, EventKind::TimedOut { waited }, fx);
        self.withdraw_quietly(key, now, fx);
    }

    fn withdraw_quietly(&mut self, key: Key, now: Moment, fx: &mut Effects) {
        self.on(key, On::Withdrawn, now, fx);
    }

    /// The request is gone, and its rest is given back.
    pub(super) fn forget(&mut self, key: Key, rest: Rest, now: Moment, fx: &mut Effects) {
        self.hand_lead_on(key, now, fx);
        let Some(mut request) = self.remove(key) else { return };
        match (rest, request.claim.take()) {
            (Rest::LocalEntry, _) => self.leave_local_queue(request.local_queue),
            (Rest::Hold(hold), _) => self.end_hold(hold, now, fx),
            (Rest::Claim { .. }, _) if Rule::CancelledClaimIsWithdrawn.is_left_out() => {}
            (Rest::Claim { is_unknown: true }, Some(claim)) => {
                self.release_by_keeper(Leaving::Unknown(claim), now, fx);
            }
            (Rest::Claim { .. }, Some(claim)) => {
                let leaving = request.leaving(claim);
                self.release_by_keeper(leaving, now, fx);
            }
            (Rest::Nothing | Rest::Claim { .. }, _) => {}
        }
    }

    /// Takes a request out of the engine; its claim, if any, comes with it.
    pub(super) fn remove(&mut self, key: Key) -> Option<Request> {
        let claim = self.requests.get(key)?.claim.clone();
        self.forget_claim(key);
        let mut request = self.requests.remove(key)?;
        request.claim = claim;
        if request.is_counted_waiting {
            self.counters.remove_waiting();
        }
        Some(request)
    }
}
