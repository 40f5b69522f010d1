//! Pushes. A push that a claim holds is believed when claim and ticket match; every other push is a hint to ask.

use crate::claim::{ClaimHash, Mode, Ticket};
use crate::clock::Moment;
use crate::planted::Rule;
use crate::store::{Change, Leaving};

use super::Engine;
use super::effect::Effects;
use super::phase::Phase;
use super::request::Request;
use super::requests::Key;

impl Engine {
    pub(super) fn on_push(&mut self, change: &Change, now: Moment, fx: &mut Effects) {
        match change {
            Change::Held(owner, ticket) => self.on_held_push(*owner, *ticket, now, fx),
            Change::Gone(owner) => {
                if let Some(key) = self.key_by_claim.get(owner).copied() {
                    self.doubt(key, fx);
                }
            }
            Change::Recheck(owner, span) => {
                if let Some(key) = self.key_by_claim.get(owner).copied() {
                    self.on_recheck_push(key, now + *span, fx);
                }
            }
            // Re-poll all waiters, with a renewal, which never joins.
            Change::Resync => self.doubt_all(|_| !Rule::ResyncAsksAll.is_left_out(), fx),
            Change::Resource(_) => {}
        }
    }

    fn on_held_push(&mut self, owner: ClaimHash, ticket: Ticket, now: Moment, fx: &mut Effects) {
        match self.key_by_claim.get(&owner).copied() {
            Some(key) => self.hand(key, ticket, now, fx),
            // It was in the queue after all, and holds a lock without a request.
            None => {
                if let Some((_, claim)) = self.withdrawn_claims.get(&owner).cloned() {
                    self.release_by_keeper(Leaving::Unknown(claim), now, fx);
                }
            }
        }
    }

    /// A lease ahead of a waiting claim ends at `at`, earlier than its last answer said.
    fn on_recheck_push(&mut self, key: Key, at: Moment, fx: &mut Effects) {
        let Some(request) = self.requests.get(key) else { return };
        if matches!(*request.phase, Phase::Waiting { .. }) && !request.in_flight {
            // A renewal that is due before that stays due: it repeats a failed one, or settles a grant.
            if self.requests.due_at(key).is_none_or(|due| at < due) {
                self.schedule_waiting(key, at, fx);
            }
        } else {
            // The answer in flight may be from before that lease became shorter: ask once more after it.
            self.doubt(key, fx);
        }
    }

    /// Asks about a claim soon.
    fn doubt(&mut self, key: Key, fx: &mut Effects) {
        let Some(request) = self.requests.get_mut(key) else { return };
        if request.claim.is_some() && request.lost.is_none() {
            request.is_doubted = true;
            if !request.in_flight && matches!(*request.phase, Phase::Held | Phase::Between | Phase::Waiting { .. }) {
                self.requests.schedule_now(key);
                self.look_at_next(fx);
            }
        }
    }

    /// The reply to this release was lost; it may have named the next holder.
    pub(super) fn note_lost_reply(&mut self, leaving: &Leaving) {
        if let Leaving::Done(claim) = leaving
            && let [only] = &*claim.demands
            && only.mode() == Mode::Exclusive
        {
            self.missed_names.push(only.name.clone());
        }
    }

    /// Re-poll all waiters on these names, including in-flight acquires: their answers may be older than the lost reply.
    pub(super) fn ask_for_missed(&mut self, fx: &mut Effects) {
        let missed = std::mem::take(&mut self.missed_names);
        if !missed.is_empty() {
            self.doubt_all(|request| matches!(&*request.terms.demands, [only] if missed.contains(&only.name)), fx);
        }
    }

    fn doubt_all(&mut self, is_meant: impl Fn(&Request) -> bool, fx: &mut Effects) {
        let waits = |request: &Request| {
            matches!(*request.phase, Phase::Waiting { .. } | Phase::Asking { .. } | Phase::Outside { .. })
        };
        let meant = self.requests.keys().filter(|(_, request)| waits(request) && is_meant(request));
        let keys: Vec<_> = meant.map(|(key, _)| key).collect();
        for key in keys {
            self.doubt(key, fx);
        }
    }
}
