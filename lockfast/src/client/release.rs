//! A release that its caller waits for: what the caller is told, and how the keeper goes on with it when the caller does not.

use std::future::poll_fn;
use std::pin::Pin;

use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::engine::{Input, Next, ReleaseId, UNAVAILABLE_AFTER};
use crate::error::{Error, LostWhy, Result};
use crate::store::{Leaving, Standing, Why};

use super::Client;
use super::carry::Told;
use super::guard::Guard;
use super::repeat::{ENDS_WITHIN, answer_lost, is_ambiguous};

impl Client {
    /// Order matters: the keeper leaves with the last release, unless something is left to do in the engine.
    pub(super) fn release_ended(&self) {
        if self.releases.end() {
            self.bell.notify_one();
        }
    }
}

/// A release in flight, counted as long as it is. Dropped, or failed, it becomes the keeper's.
pub(super) struct Departing<'a> {
    pub(super) guard: &'a Guard,
    pub(super) leaving: Option<Leaving>,
    /// Under this number the engine watches it, once it had to be waited for.
    pub(super) watched: Option<ReleaseId>,
    /// Whether the hold depends on the answer.
    pub(super) keeps: bool,
    /// The hold was lost before: its caller is told so, whatever the store says.
    pub(super) lost: Option<LostWhy>,
}

impl Departing<'_> {
    /// What the store says; `None` when it says nothing in time. The keeper repeats what is not answered soon.
    pub(super) async fn send(&mut self, sent: Moment) -> Option<Result<Vec<Standing>>> {
        let Self { guard, leaving, watched, keeps, .. } = self;
        let leaving = leaving.as_ref().expect("what is sent was just put there");
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

    /// There is an answer, or it is waited for no longer. `Some`: the keeper has taken the release over, and its caller is told
    /// here.
    pub(super) fn taken_over(&mut self, waits: bool) -> Option<Told> {
        let release = self.watched.take()?;
        let told = self.guard.client.with_engine(|carrier, now| {
            match carrier.tell(Input::Answered { release, waits }, now) {
                Next::TakenOver(release) => Some(carrier.await_release(release)),
                Next::Told(said) => {
                    let (tell, told) = oneshot::channel();
                    if let Some(said) = said {
                        let _ = tell.send(*said);
                    }
                    Some(told)
                }
                _ => None,
            }
        })?;
        self.leaving = None;
        Some(told)
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

    /// The same release ran twice. The copy that ran first says what became of the claim; the other found no claim, or
    /// one that was passed on, whatever became of it then.
    pub(super) async fn verdict_of_both(&self, own: Option<Standing>, told: Told) -> Result<()> {
        let verdict = self.verdict(own.as_ref());
        if verdict.is_ok() || self.lost.is_some() {
            return verdict;
        }
        let client = &self.guard.client;
        let now = client.clock.now();
        match client.within(now, now + UNAVAILABLE_AFTER, told).await {
            Some(Ok(Ok(standing))) if is_ambiguous(&standing) => verdict,
            Some(Ok(Ok(standing))) => self.verdict(Some(&standing)),
            // A copy without an answer may be the one that found the claim.
            _ if own.as_ref().is_some_and(is_ambiguous) => Err(answer_lost(self.doing())),
            _ => verdict,
        }
    }

    /// The outcome of the release that was sent at `sent` is unknown. The keeper repeats it, and goes on when its caller waits
    /// no longer.
    pub(super) async fn verdict_of_repeat(
        &mut self,
        sent: Moment,
        error: Error,
        taken_over: Option<Told>,
    ) -> Result<()> {
        if let Some(lost) = self.lost_error() {
            return Err(lost);
        }
        let is_unknown = matches!(error, Error::Unavailable { .. });
        let told = taken_over.or_else(|| is_unknown.then(|| self.hand_to_keeper(true)).flatten());
        let Some(told) = told else { return Err(self.explain(error)) };
        let client = &self.guard.client;
        match client.within(client.clock.now(), sent + ENDS_WITHIN, told).await {
            Some(Ok(Ok(standing))) if is_ambiguous(&standing) => Err(answer_lost(self.doing())),
            Some(Ok(Ok(standing))) => self.verdict(Some(&standing)),
            Some(Ok(Err(last))) => Err(self.explain(last)),
            _ => Err(self.explain(error)),
        }
    }

    /// The keeper repeats the release. `waits`: the caller is told what came of it.
    fn hand_to_keeper(&mut self, waits: bool) -> Option<Told> {
        let leaving = self.leaving.take()?;
        let hold = self.keeps.then_some(self.guard.hold);
        self.guard.client.with_engine(|carrier, now| {
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

impl Drop for Departing<'_> {
    fn drop(&mut self) {
        drop(self.taken_over(false));
        drop(self.hand_to_keeper(false));
        self.guard.client.release_ended();
    }
}
