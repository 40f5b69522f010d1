//! Giving back. A caller that waits for the answer sends the release itself; all others are the keeper's, which repeats a
//! release until it is answered, the store refuses it in a batch of its own, or the lease has ended.
//!
//! A caller's future may never be polled again, or its runtime may be blocked before the release has left the process. So the
//! keeper takes over every release that has no answer after [`OVERDUE_AFTER`], except a seal.
//!
//! 1. A release has one owner: its caller, until the answer came or the keeper took it over, whichever is first. Only the
//!    owner moves the hold on. The other's answer decides only the result of the caller.
//! 2. Every verb can be sent twice, and late: the copy that runs second changes nothing.
//! 3. A release whose outcome its caller does not know is the keeper's at once.

use std::time::Duration;

use crate::clock::Moment;
use crate::error::Result;
use crate::planted::Rule;
use crate::store::{Leaving, Standing, Why};

use super::effect::{Effect, Effects, Next};
use super::input::{Ending, Release, ReleaseId};
use super::request::RateLimit;
use super::requests::Key;
use super::{Engine, MAX_REPEATS, UNAVAILABLE_AFTER};

/// How long the answer to a release may take before the keeper repeats it. Longer than most round trips, so that a healthy
/// store is asked once.
const OVERDUE_AFTER: Duration = Duration::from_millis(100);

/// A release that its caller has sent.
#[derive(Debug)]
pub(super) struct WatchedRelease {
    id: ReleaseId,
    overdue_at: Moment,
    leaving: Leaving,
    hold: Option<Key>,
    is_answered: bool,
}

/// The outcome, for its caller, of a release that the keeper took over.
#[derive(Debug)]
pub(super) enum TakenOverRelease {
    /// The store has not answered, and the caller has not asked.
    Open,
    /// The caller waits.
    Awaited,
    /// The store has answered this.
    Said(Option<Box<Result<Standing>>>),
}

impl Engine {
    /// A guard is given back, and its caller waits for the answer.
    pub(super) fn release(&mut self, hold: Key, ending: Ending, now: Moment, fx: &mut Effects) -> Next {
        let Some(request) = self.requests.get(hold) else { return Next::Done { lost: None } };
        // Judged at the same moment as the release: with a deadline between the two, the store would get a release without the
        // sealed value, and the caller would learn that the value is kept.
        let lost = request.loss(now);
        let left = match ending {
            Ending::Release => self.hand_off_or_leave(hold, now, fx),
            Ending::Seal { value, keep } => self.seal_or_leave(hold, value, keep, now, fx),
        };
        match left {
            Some((leaving, keeps)) => Next::Send { leaving, keeps, lost },
            None => Next::Done { lost },
        }
    }

    /// Ends a hold for good: after this release the resource answers with `value`.
    fn seal_or_leave(
        &mut self,
        hold: Key,
        value: bytes::Bytes,
        keep: Duration,
        now: Moment,
        fx: &mut Effects,
    ) -> Option<(Leaving, bool)> {
        let request = self.requests.get(hold)?;
        let claim = request.claim.clone().expect("a hold has a claim");
        let is_over = request.is_over(now);
        self.count_guard_end(hold, is_over, now, fx);
        self.hand_lead_on(hold, now, fx);
        let request = self.remove(hold)?;
        Some((if is_over { request.leaving(claim) } else { Leaving::Seal { claim, value, keep } }, false))
    }

    /// The grant or the acquire of a request is given back: its future was not polled in time.
    pub(super) fn give_back(&mut self, key: Key, is_unknown: bool, now: Moment, fx: &mut Effects) {
        if let Some(request) = self.requests.get_mut(key).filter(|_| is_unknown) {
            // Its acquire has no answer, and was one of the five that it has in a second.
            RateLimit::note(request, now);
        }
        self.hand_lead_on(key, now, fx);
        self.release_claim(key, is_unknown, now, fx);
    }

    /// Parts a request from its claim, which the keeper releases. `is_unknown`: the outcome of its acquire is unknown.
    pub(super) fn release_claim(&mut self, key: Key, is_unknown: bool, now: Moment, fx: &mut Effects) {
        let Some(request) = self.requests.get(key) else { return };
        let Some(claim) = request.claim.clone() else { return };
        let leaving = if is_unknown { Leaving::Unknown(claim) } else { request.leaving(claim) };
        self.forget_claim(key);
        self.release_by_keeper(leaving, now, fx);
    }

    /// The keeper sends this release.
    pub(super) fn release_by_keeper(&mut self, leaving: Leaving, now: Moment, fx: &mut Effects) {
        self.add_keeper_release(leaving, None, None, now, fx);
    }

    /// The keeper sends this release. `hold`: the hold that depends on the answer. `caller`: waits for the outcome.
    pub(super) fn add_keeper_release(
        &mut self,
        leaving: Leaving,
        hold: Option<Key>,
        caller: Option<ReleaseId>,
        now: Moment,
        fx: &mut Effects,
    ) {
        let leaving = match leaving {
            Leaving::Unknown(claim) if Rule::UnknownLeavesTombstone.is_left_out() => Leaving::Done(claim),
            leaving => leaving,
        };
        let ttl = leaving.claim().map_or(UNAVAILABLE_AFTER, |claim| claim.ttl);
        let until = self.latest_extended_expiry.max(now + ttl);
        if let Leaving::Unknown(claim) = &leaving {
            self.withdrawn_claims.insert(claim.id.hash(), (now + claim.tombstone(), claim.clone()));
            self.report_soon(now, fx);
        }
        let serial = self.next_serial();
        self.releases.insert((now, serial), Release { leaving, hold, until, tries: 0, caller, alone: false });
        fx.wakes_keeper = true;
    }

    /// A release that a caller sent was not answered at once.
    pub(super) fn watch_release(
        &mut self,
        leaving: Leaving,
        hold: Option<Key>,
        sent: Moment,
        fx: &mut Effects,
    ) -> Next {
        // Sealing hands nothing on, and its caller has to know which of two answers sealed.
        if matches!(leaving, Leaving::Seal { .. }) {
            return Next::Nothing;
        }
        let id = ReleaseId(self.next_serial());
        let overdue_at = sent + OVERDUE_AFTER;
        self.watched_releases.push_back(WatchedRelease { id, overdue_at, leaving, hold, is_answered: false });
        fx.wakes_keeper |= overdue_at < self.keeper_wakes_at;
        Next::Watched(id)
    }

    /// The caller of a release has its answer, or ends waiting for it. By 1, it learns whether the release is still its own.
    pub(super) fn unwatch_release(&mut self, id: ReleaseId, waits: bool) -> Next {
        if let Ok(index) = self.watched_releases.binary_search_by_key(&id, |sent| sent.id) {
            self.watched_releases[index].is_answered = true;
            self.next_overdue_at();
            return Next::Mine;
        }
        match self.taken_over_releases.remove(&id) {
            Some(TakenOverRelease::Said(said)) => Next::Told(said),
            Some(TakenOverRelease::Open | TakenOverRelease::Awaited) if waits => {
                self.taken_over_releases.insert(id, TakenOverRelease::Awaited);
                Next::TakenOver(id)
            }
            _ => Next::Told(None),
        }
    }

    /// When the first release without an answer is overdue.
    pub(super) fn next_overdue_at(&mut self) -> Moment {
        while self.watched_releases.front().is_some_and(|first| first.is_answered) {
            self.watched_releases.pop_front();
        }
        self.watched_releases.front().map_or(Moment::NEVER, |first| first.overdue_at)
    }

    /// Takes over the releases that should have been answered by now.
    pub(super) fn take_over_overdue(&mut self, now: Moment, fx: &mut Effects) {
        while self.next_overdue_at() <= now
            && let Some(WatchedRelease { id, leaving, hold, .. }) = self.watched_releases.pop_front()
        {
            self.taken_over_releases.insert(id, TakenOverRelease::Open);
            self.add_keeper_release(leaving, hold, Some(id), now, fx);
        }
    }

    /// By 3: the keeper repeats a release that a caller has sent without an answer.
    pub(super) fn on_unanswered_release(
        &mut self,
        leaving: Leaving,
        hold: Option<Key>,
        waits: bool,
        now: Moment,
        fx: &mut Effects,
    ) -> Next {
        let leaving = match hold {
            // Whether the claim still holds is unknown. Local waiters behind it ask anew, and the claim is released.
            Some(hold) => {
                let claim = leaving.claim().expect("a hold leaves with its claim").clone();
                match self.on_unless_alone_answer(hold, &claim, now, None, now, fx) {
                    Some(leaving) => leaving,
                    None => return Next::Done { lost: None },
                }
            }
            None => leaving,
        };
        let id = waits.then(|| ReleaseId(self.next_serial()));
        self.add_keeper_release(leaving, None, id, now, fx);
        match id {
            Some(id) => {
                self.taken_over_releases.insert(id, TakenOverRelease::Awaited);
                Next::TakenOver(id)
            }
            None => Next::Nothing,
        }
    }

    /// Gives the caller of a release its outcome.
    fn settle_caller(&mut self, caller: Option<ReleaseId>, said: Option<Box<Result<Standing>>>, fx: &mut Effects) {
        let Some(id) = caller else { return };
        match self.taken_over_releases.remove(&id) {
            Some(TakenOverRelease::Awaited) => fx.push(Effect::Tell(id, said)),
            Some(TakenOverRelease::Open) => drop(self.taken_over_releases.insert(id, TakenOverRelease::Said(said))),
            Some(TakenOverRelease::Said(_)) | None => {}
        }
    }

    /// The store answered a batch of the keeper's releases.
    pub(super) fn on_release_batch(
        &mut self,
        releases: Vec<Release>,
        sent: Moment,
        answer: Result<Vec<Standing>>,
        now: Moment,
        fx: &mut Effects,
    ) {
        for (index, mut release) in releases.into_iter().enumerate() {
            let standing = answer.as_ref().ok().and_then(|standings| standings.get(index).cloned());
            if let Some(standing) = &standing {
                // An earlier try without an answer may be the one that found the claim. Then this answer does not decide the
                // outcome for the caller.
                let decides = release.tries == 0 || *standing != Standing::Gone(Why::Unknown);
                self.settle_caller(release.caller.take(), decides.then(|| Box::new(Ok(standing.clone()))), fx);
            }
            if let Some(hold) = release.hold {
                let claim = release.leaving.claim().expect("a hold leaves with its claim").clone();
                self.settle_caller(release.caller, None, fx);
                if let Some(last) = self.on_unless_alone_answer(hold, &claim, sent, standing, now, fx) {
                    self.release_by_keeper(last, now, fx);
                }
            } else if standing == Some(Standing::Gone(Why::Unknown)) {
                // The claim had left before, by a release whose answer was lost. Only now is it certain that that one has run.
                self.note_lost_reply(&release.leaving);
            } else if let Err(error) = &answer {
                let is_final = release.alone && !error.is_retryable() || Rule::ReleaseIsRepeated.is_left_out();
                release.tries += 1;
                if is_final || release.tries == MAX_REPEATS {
                    self.settle_caller(release.caller.take(), Some(Box::new(Err(error.clone()))), fx);
                }
                if !is_final && now < release.until {
                    // One that the store refuses must not keep the others of its batch in the queue.
                    release.alone |= !error.is_retryable();
                    let at = now + self.backoff(release.tries);
                    let serial = self.next_serial();
                    self.releases.insert((at, serial), release);
                } else {
                    self.settle_caller(release.caller.take(), None, fx);
                }
            } else {
                // The store has left out the answer, or the caller has its outcome.
                self.settle_caller(release.caller.take(), None, fx);
            }
        }
    }

    /// Forgets a hold without a word to the store; `false` if it is gone already.
    pub(super) fn let_go(&mut self, hold: Key, now: Moment, fx: &mut Effects) -> bool {
        // It stays in listings too.
        self.requests.get_mut(hold).into_iter().for_each(|request| request.is_listed = false);
        let Some(request) = self.remove(hold) else { return false };
        self.counters.add_let_go(now.since(request.since));
        self.report_soon(now, fx);
        true
    }
}
