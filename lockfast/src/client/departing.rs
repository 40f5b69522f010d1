//! A release on its way: what its caller is told, and who goes on with it when its caller does not.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use crate::clock::Moment;
use crate::error::{Error, LostWhy, Result};
use crate::store::{Leaving, Standing, Why};

use super::book::UNAVAILABLE_AFTER;
use super::guard::Guard;
use super::overdue::{Owner, Repeated};
use super::repeat::{ENDS_WITHIN, answer_lost, is_ambiguous};

/// A departure on its way, counted as long as it is. Dropped, or failed, it becomes the keeper's.
pub(super) struct Departing<'a> {
    pub(super) guard: &'a Guard,
    pub(super) leaving: Option<Leaving>,
    /// Whose it is, once it had to be waited for.
    pub(super) owner: Option<Arc<Owner>>,
    pub(super) keeps: bool,
    /// What its caller is told, whatever the store says.
    pub(super) lost: Option<LostWhy>,
}

impl Departing<'_> {
    /// What the store says; `None` when it says nothing in time. The keeper repeats what is not answered soon.
    pub(super) async fn send(&mut self, sent: Moment) -> Option<Result<Vec<Standing>>> {
        let Self { guard, leaving, owner, keeps, .. } = self;
        let leaving = leaving.as_ref().expect("what is sent was just put there");
        let (client, hold) = (&guard.client, keeps.then_some(guard.hold));
        let mut call = client.within(sent, sent + UNAVAILABLE_AFTER, client.release(std::slice::from_ref(leaving)));
        let mut is_first = true;
        poll_fn(|cx| {
            let answer = Pin::new(&mut call).poll(cx);
            if answer.is_pending() && std::mem::take(&mut is_first) {
                *owner = client.with_book(|book, _, out| book.sent(leaving, hold, sent, out));
            }
            answer
        })
        .await
    }

    /// There is an answer, or it is waited for no longer. `Some`: the keeper has taken the release over, and is told here.
    pub(super) fn taken_over(&mut self) -> Option<Repeated> {
        let owner = self.owner.take().filter(|owner| !owner.answered())?;
        self.leaving = None;
        owner.repeated()
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
    pub(super) async fn verdict_of_both(&self, own: Option<Standing>, told: Repeated) -> Result<()> {
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
        taken_over: Option<Repeated>,
    ) -> Result<()> {
        if let Some(lost) = self.lost_error() {
            return Err(lost);
        }
        let is_unknown = matches!(error, Error::Unavailable { .. });
        let told = taken_over.or_else(|| is_unknown.then(|| self.hand_to_keeper()).flatten());
        let Some(told) = told else { return Err(self.explain(error)) };
        let client = &self.guard.client;
        match client.within(client.clock.now(), sent + ENDS_WITHIN, told).await {
            Some(Ok(Ok(standing))) if is_ambiguous(&standing) => Err(answer_lost(self.doing())),
            Some(Ok(Ok(standing))) => self.verdict(Some(&standing)),
            Some(Ok(Err(last))) => Err(self.explain(last)),
            _ => Err(self.explain(error)),
        }
    }

    fn hand_to_keeper(&mut self) -> Option<Repeated> {
        let leaving = self.leaving.take()?;
        let (client, hold, keeps) = (&self.guard.client, self.guard.hold, self.keeps);
        client.with_book(|book, now, out| book.leave_by_keeper(leaving, keeps.then_some(hold), now, out))
    }

    fn doing(&self) -> String {
        self.guard.client.doing("releasing", &self.guard.request.demands)
    }

    pub(super) fn explain(&self, error: Error) -> Error {
        self.guard.client.explain(error, "releasing", &self.guard.request.demands)
    }

    pub(super) fn lost_error(&self) -> Option<Error> {
        self.lost.map(|why| self.guard.lost_because(why))
    }
}

impl Drop for Departing<'_> {
    fn drop(&mut self) {
        drop(self.taken_over());
        let (client, hold, keeps) = (&self.guard.client, self.guard.hold, self.keeps);
        if let Some(leaving) = self.leaving.take() {
            drop(client.with_book(|book, now, out| book.leave_by_keeper(leaving, keeps.then_some(hold), now, out)));
        }
        // Order matters: the keeper leaves with the last release, unless something is left to do in the book.
        if client.releases.end() {
            client.bell.notify_one();
        }
    }
}
