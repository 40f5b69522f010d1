//! How a caller gives a lock back: the same steps as the client's own guard makes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lockfast::Result;
use lockfast::engine::{Ending, Input, Key, Next, ReleaseId};
use lockfast::store::{Leaving, Standing, Why};

use crate::caller::{PendingRelease, State, claim_of};
use crate::faults::Kind;
use crate::invariants;
use crate::network::{CallPurpose, Reply, Request};
use crate::plan::{Cancel, CancelAt, End, Link};
use crate::schedule::{Event, Tick};
use crate::world::World;

/// How long the answer to a release is awaited.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a caller waits for the store's answer to the keeper.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(3);

impl World<'_> {
    /// The work is done, or has become pointless.
    pub(crate) fn exit(&mut self, caller: u32) {
        self.write(caller);
        let it = &mut self.callers[caller as usize];
        let check = invariants::check_loss_was_noticed(self.now, it, &self.clients[it.client as usize]);
        self.require(check);
        let it = &mut self.callers[caller as usize];
        if let Some(call) = it.call.take() {
            self.calls.end(call);
        }
        let (client, Some(guard)) = (it.client, &it.guard) else { return };
        let (hold, claim) = (guard.hold, Arc::clone(&guard.claim));
        // Order matters: the hold is left before the engine may hand it to another task.
        for demand in claim.demands.iter() {
            let name = &mut self.names[crate::ledger::index_of(&demand.name)];
            name.inside.retain(|(inside, _)| *inside != caller);
        }
        self.store.note_left(claim.id.hash(), self.now);
        self.last_progress_at = self.now;
        let ending = match self.plan.callers[caller as usize].ends {
            End::Release => Some(Ending::Release),
            End::Seal(keep) => Some(Ending::Seal { value: Bytes::from_static(b"done"), keep }),
            End::Drop => None,
        };
        let next = match ending {
            Some(ending) => self.handle(client, Input::Release { hold, ending }),
            None => {
                self.bites.note(Kind::GuardDropped);
                self.handle(client, Input::Dropped(hold))
            }
        };
        self.clients[client as usize].guards.retain(|(_, holder)| *holder != caller);
        self.callers[caller as usize].guard = None;
        match next {
            Next::Send { leaving, keeps, lost } => {
                self.leave(caller, hold, leaving, keeps, lost.is_some());
                self.schedule_cancel(caller);
            }
            _ => self.rest(caller),
        }
    }

    fn schedule_cancel(&mut self, caller: u32) {
        let round = self.callers[caller as usize].round;
        if let Some(Cancel { every, at: CancelAt::AfterRelease(span) }) = self.plan.callers[caller as usize].cancel
            && round.is_multiple_of(every)
        {
            self.schedule.put(self.now + span, Event::Caller { caller, round, tick: Tick::CancelRelease });
        }
    }

    fn leave(&mut self, caller: u32, hold: Key, leaving: Leaving, keeps: bool, lost: bool) {
        let client = self.callers[caller as usize].client;
        let sent = self.clients[client as usize].skew.local(self.now);
        let request = Request::Release(vec![leaving.clone()]);
        let call = self.send(client, Link::Callers, request, CALL_TIMEOUT, CallPurpose::Leave { caller });
        let input = Input::Sent { leaving: leaving.clone(), hold: keeps.then_some(hold), sent };
        let watched = match self.handle(client, input) {
            Next::Watched(id) => Some(id),
            _ => None,
        };
        let it = &mut self.callers[caller as usize];
        it.state = State::Leaving;
        it.call = Some(call);
        it.pending = Some(PendingRelease { leaving, hold, keeps, lost, sent, watched });
    }

    /// The answer to a release; `None` at its limit.
    pub(crate) fn on_release_reply(&mut self, caller: u32, reply: Option<Reply>) {
        let it = &mut self.callers[caller as usize];
        it.call = None;
        let (client, Some(pending)) = (it.client, it.pending.take()) else { return };
        match reply {
            Some(Reply::Standings(mut standings)) => {
                standings.iter_mut().for_each(|standing| self.pass_on_next_holder(client, standing));
                self.on_release_standing(caller, pending, standings.into_iter().next());
            }
            reply => {
                self.on_lost_reply(client, &pending.leaving);
                let waits = reply.is_some() && !pending.lost;
                if !self.stop_watching(caller, &pending, waits, OUTCOME_TIMEOUT) {
                    self.hand_to_keeper(caller, pending, waits);
                }
            }
        }
    }

    fn on_release_standing(&mut self, caller: u32, pending: PendingRelease, standing: Option<Standing>) {
        let client = self.callers[caller as usize].client;
        let is_good = matches!(standing, Some(Standing::Gone(Why::Left) | Standing::Held(_)) | None);
        if self.stop_watching(caller, &pending, !is_good && !pending.lost, CALL_TIMEOUT) {
            return;
        }
        if !pending.keeps {
            return self.rest(caller);
        }
        let has_left = matches!(standing, Some(Standing::Gone(_)));
        let claim = claim_of(&pending.leaving).map(Arc::clone).expect("a hold leaves with its claim");
        let (hold, sent) = (pending.hold, pending.sent);
        match self.handle(client, Input::Left { hold, claim, sent, standing }) {
            Next::Send { leaving, .. } if has_left => {
                self.handle(client, Input::Unanswered { leaving, hold: None, waits: false });
                self.rest(caller);
            }
            Next::Send { leaving, .. } => self.leave(caller, hold, leaving, false, pending.lost),
            _ => self.rest(caller),
        }
    }

    /// Ends the engine's watch over a release. Returns whether the keeper has taken the release over; then its caller waits for the
    /// outcome if `waits`, at most for `limit`.
    fn stop_watching(&mut self, caller: u32, pending: &PendingRelease, waits: bool, limit: Duration) -> bool {
        let Some(release) = pending.watched else { return false };
        let client = self.callers[caller as usize].client;
        match self.handle(client, Input::Answered { release, waits }) {
            Next::TakenOver(release) => self.await_outcome(caller, release, limit),
            Next::Told(_) => self.rest(caller),
            _ => return false,
        }
        true
    }

    fn await_outcome(&mut self, caller: u32, release: ReleaseId, limit: Duration) {
        let it = &mut self.callers[caller as usize];
        it.state = State::AwaitingOutcome(release);
        self.schedule.put(self.now + limit, Event::Caller { caller, round: it.round, tick: Tick::OutcomeLimit });
    }

    fn hand_to_keeper(&mut self, caller: u32, pending: PendingRelease, waits: bool) {
        let client = self.callers[caller as usize].client;
        let hold = pending.keeps.then_some(pending.hold);
        match self.handle(client, Input::Unanswered { leaving: pending.leaving, hold, waits }) {
            Next::TakenOver(release) => self.await_outcome(caller, release, OUTCOME_TIMEOUT),
            _ => self.rest(caller),
        }
    }

    /// The keeper has the outcome of a release.
    pub(crate) fn on_release_outcome(&mut self, client: u32, release: ReleaseId, _said: Option<Box<Result<Standing>>>) {
        let waits =
            |caller: &crate::caller::Caller| caller.client == client && caller.state == State::AwaitingOutcome(release);
        if let Some(caller) = self.callers.iter().position(waits) {
            self.rest(caller as u32);
        }
    }

    /// The future that releases is dropped.
    pub(crate) fn cancel_release(&mut self, caller: u32) {
        let it = &mut self.callers[caller as usize];
        if let State::AwaitingOutcome(_) = it.state {
            return self.rest(caller);
        }
        let (client, Some(pending)) = (it.client, it.pending.take()) else { return };
        if let Some(call) = it.call.take() {
            self.calls.end(call);
        }
        self.bites.note(Kind::CancelledReleasing);
        self.on_lost_reply(client, &pending.leaving);
        if !self.stop_watching(caller, &pending, false, CALL_TIMEOUT) {
            self.hand_to_keeper(caller, pending, false);
        }
    }
}
