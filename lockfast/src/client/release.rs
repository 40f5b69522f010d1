//! A release that its caller waits for: the result that the caller gets, and how the keeper takes over when the caller stops waiting.

use std::future::poll_fn;
use std::pin::Pin;

use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::engine::{Input, Next, ReleaseId, UNAVAILABLE_AFTER};
use crate::error::{Error, LostWhy, Result};
use crate::store::{Leaving, Standing, Why};

use super::Client;
use super::carry::ReleaseReply;
use super::guard::Guard;
use super::repeat::{ENDS_WITHIN, answer_lost, is_ambiguous};

impl Client {
    /// Counts a release in flight as ended. Order matters: the remaining work is in the engine before this is called, since the keeper
    /// may end with the last release.
    pub(super) fn end_release(&self) {
        if self.releases.end() {
            self.keeper_wakeup.notify_one();
        }
    }
}

/// A release in flight, counted in [`Releases`](super::Releases). If it is dropped or fails, the keeper takes it over.
pub(super) struct InFlightRelease<'a> {
    pub(super) guard: &'a Guard,
    pub(super) leaving: Option<Leaving>,
    /// Its number in the engine, once the call was pending.
    pub(super) watched: Option<ReleaseId>,
    /// Whether the answer decides if the hold continues.
    pub(super) keeps: bool,
    /// The hold was lost before: the caller gets this error, whatever the store answers.
    pub(super) lost: Option<LostWhy>,
}

impl InFlightRelease<'_> {
    /// The store's answer; `None` if there is none in time. The keeper repeats a release that is not answered soon.
    pub(super) async fn send(&mut self, sent: Moment) -> Option<Result<Vec<Standing>>> {
        let Self { guard, leaving, watched, keeps, .. } = self;
        let leaving = leaving.as_ref().expect("the caller sets it before each `send`");
        let (client, hold) = (&guard.client, keeps.then_some(guard.hold));
        let mut call = client.within(sent, sent + UNAVAILABLE_AFTER, client.release(std::slice::from_ref(leaving)));
        let mut is_first = true;
        poll_fn(|cx| {
            let answer = Pin::new(&mut call).poll(cx);
            if answer.is_pending() && std::mem::take(&mut is_first) {
                let input = Input::Sent { leaving: leaving.clone(), hold, sent };
                if let Next::Watched(release) = client.tell(input) {
                    *watched = Some(release);
                }
            }
            answer
        })
        .await
    }

    /// Ends the engine's watch over this release: it was answered, or its caller stops waiting. `Some` if the keeper has taken the
    /// release over: its answer arrives there.
    pub(super) fn stop_watching(&mut self, waits: bool) -> Option<ReleaseReply> {
        let release = self.watched.take()?;
        let reply = self.guard.client.with_carrier(|carrier, now| {
            match carrier.tell(Input::Answered { release, waits }, now) {
                Next::TakenOver(release) => Some(carrier.await_release(release)),
                Next::Told(said) => {
                    let (sender, reply) = oneshot::channel();
                    if let Some(said) = said {
                        let _ = sender.send(*said);
                    }
                    Some(reply)
                }
                _ => None,
            }
        })?;
        self.leaving = None;
        Some(reply)
    }

    pub(super) fn verdict(&self, standing: Option<&Standing>) -> Result<()> {
        match (self.lost_error(), standing) {
            (Some(error), _) => Err(error),
            (None, Some(Standing::Gone(Why::Left) | Standing::Held(_)) | None) => Ok(()),
            (None, Some(Standing::Gone(Why::Broken))) => Err(self.guard.lost_because(LostWhy::Broken)),
            (None, Some(Standing::Gone(Why::Expired))) => Err(self.guard.lost_because(LostWhy::Expired)),
            (None, Some(_)) => Err(self.guard.lost_because(LostWhy::Evicted)),
        }
    }

    /// The release was sent twice. The answer of the copy that ran first counts. The other copy found no claim, or one that a local
    /// hand-off has passed on, whose state says nothing about this hold.
    pub(super) async fn verdict_of_both(&self, own: Option<Standing>, reply: ReleaseReply) -> Result<()> {
        let verdict = self.verdict(own.as_ref());
        if verdict.is_ok() || self.lost.is_some() {
            return verdict;
        }
        let client = &self.guard.client;
        let now = client.clock.now();
        match client.within(now, now + UNAVAILABLE_AFTER, reply).await {
            Some(Ok(Ok(standing))) if is_ambiguous(&standing) => verdict,
            Some(Ok(Ok(standing))) => self.verdict(Some(&standing)),
            // The copy without an answer may be the one that found the claim.
            _ if own.as_ref().is_some_and(is_ambiguous) => Err(answer_lost(self.doing())),
            _ => verdict,
        }
    }

    /// The outcome of the release that was sent at `sent` is unknown. The keeper repeats it, also after its caller has stopped
    /// waiting.
    pub(super) async fn verdict_of_repeat(
        &mut self,
        sent: Moment,
        error: Error,
        taken_over: Option<ReleaseReply>,
    ) -> Result<()> {
        if let Some(lost) = self.lost_error() {
            return Err(lost);
        }
        let is_unknown = matches!(error, Error::Unavailable { .. });
        let reply = taken_over.or_else(|| is_unknown.then(|| self.hand_to_keeper(true)).flatten());
        let Some(reply) = reply else { return Err(self.explain(error)) };
        let client = &self.guard.client;
        match client.within(client.clock.now(), sent + ENDS_WITHIN, reply).await {
            Some(Ok(Ok(standing))) if is_ambiguous(&standing) => Err(answer_lost(self.doing())),
            Some(Ok(Ok(standing))) => self.verdict(Some(&standing)),
            Some(Ok(Err(last))) => Err(self.explain(last)),
            _ => Err(self.explain(error)),
        }
    }

    /// The keeper repeats the release. `waits`: whether the caller wants its answer.
    fn hand_to_keeper(&mut self, waits: bool) -> Option<ReleaseReply> {
        let leaving = self.leaving.take()?;
        let hold = self.keeps.then_some(self.guard.hold);
        self.guard.client.with_carrier(|carrier, now| {
            match carrier.tell(Input::Unanswered { leaving, hold, waits }, now) {
                Next::TakenOver(release) => Some(carrier.await_release(release)),
                _ => None,
            }
        })
    }

    fn doing(&self) -> String {
        self.guard.client.doing("releasing", &self.guard.terms.demands)
    }

    pub(super) fn explain(&self, error: Error) -> Error {
        self.guard.client.explain(error, "releasing", &self.guard.terms.demands)
    }

    pub(super) fn lost_error(&self) -> Option<Error> {
        self.lost.map(|why| self.guard.lost_because(why))
    }
}

impl Drop for InFlightRelease<'_> {
    fn drop(&mut self) {
        // `false`: no caller waits for the keeper's answer any more.
        drop(self.stop_watching(false));
        drop(self.hand_to_keeper(false));
        self.guard.client.end_release();
    }
}
