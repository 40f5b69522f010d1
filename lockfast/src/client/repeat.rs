//! Calls to the store without an answer, sent again.
//!
//! A server or a proxy closes an idle connection, and the client learns of it from the next request: its outcome is unknown
//! ([`Error::Unavailable`]). Every verb can be sent twice and late, so the client sends the same request again, with the same claim,
//! before it returns an error. Stores never repeat.
//!
//! 1. Only `Unavailable` is repeated.
//! 2. The first repeat follows at once: a closed connection is found only by using it, and the store opens another. Each
//!    later repeat follows a longer pause than the one before.
//! 3. A caller sends at most five requests, [`MAX_REPEATS`] of them repeats. None begins later than [`BEGINS_WITHIN`] after the
//!    first, and no answer to one is awaited for longer than [`ENDS_WITHIN`] after the first.
//! 4. A lease counts from when the request was sent that was answered: a repeat renews.
//! 5. A repeat that finds no claim does not show that there was none: the request before it may have ended it.
//!
//! The keeper repeats releases, and the acquire of a waiter after its first repeat (`engine/`).

use std::time::Duration;

use crate::claim::Ticket;
use crate::clock::Moment;
use crate::engine::{AcquireCall, Input, MAX_REPEATS, Next, UNAVAILABLE_AFTER, jittered, valid_until};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::store::{Admission, Busy, Leaving, Page, Query, Standing, Why};

use super::Client;
use super::acquire::{MIN_ANSWER_WAIT, PendingRequest};

/// How long after the first request the last repeat may begin.
const BEGINS_WITHIN: Duration = Duration::from_secs(2);
/// How long after the first request the answer to a repeat is awaited.
pub(crate) const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// How often and for how long one request is repeated.
#[derive(Debug)]
pub(crate) struct Repeats {
    /// When the first request was sent.
    first_sent: Moment,
    /// No repeat begins at this moment or later.
    begin_before: Moment,
    /// How many repeats are allowed.
    max: u32,
    /// How many repeats were sent.
    count: u32,
}

impl Repeats {
    /// For a request that is sent at `first`.
    pub(crate) fn of(first: Moment) -> Self {
        Self { first_sent: first, begin_before: first + BEGINS_WITHIN, max: MAX_REPEATS, count: 0 }
    }

    /// Allows at most `max` repeats.
    pub(crate) fn at_most(self, max: u32) -> Self {
        Self { max, ..self }
    }

    /// Allows none that begins at `moment` or later.
    pub(crate) fn before(self, moment: Moment) -> Self {
        Self { begin_before: self.begin_before.min(moment), ..self }
    }

    /// When to send the request again after `answer`, if at all.
    pub(crate) fn next<T>(&mut self, answer: &Result<T>, now: Moment) -> Option<Moment> {
        if !matches!(answer, Err(Error::Unavailable { .. })) || self.count == self.max {
            return None;
        }
        let at = if self.count == 0 { now } else { now + jittered(self.count, fastrand::f64()) };
        self.count += 1;
        (at < self.begin_before).then_some(at)
    }

    /// Until when the answer to a repeat is awaited, if the first answer was awaited until `limit`.
    pub(crate) fn limit(&self, limit: Moment) -> Moment {
        if limit == Moment::NEVER { limit } else { limit.min(self.first_sent + ENDS_WITHIN) }
    }
}

/// The store's last answer.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    pub(crate) answer: Result<T>,
    /// When the answered request was sent.
    pub(crate) sent: Moment,
    /// Whether it answers a repeat: then the outcome of an earlier copy is unknown.
    pub(crate) is_repeat: bool,
}

impl Client {
    /// Sends a request, and sends it again while its outcome is unknown. The answer to the first is awaited until `limit`.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future leaves the last request in flight.
    pub(crate) async fn ask<T, F>(
        &self,
        mut repeats: Repeats,
        limit: Moment,
        mut request: impl FnMut() -> F,
    ) -> Reply<T>
    where
        F: Future<Output = Result<T>> + Unpin,
    {
        let (mut sent, mut limit, mut is_repeat) = (repeats.first_sent, limit, false);
        let mut answer = Err(no_answer());
        // If a repeat is not answered in time, the previous answer is kept: it has the cause.
        while let Some(reply) = self.within(sent, limit, request()).await {
            answer = reply;
            let Some(at) = repeats.next(&answer, self.clock.now()) else { break };
            self.sleep_until(at).await;
            (sent, limit, is_repeat) = (self.clock.now(), repeats.limit(limit), true);
        }
        Reply { answer, sent, is_repeat }
    }
}

impl PendingRequest<'_> {
    /// Sends the acquire, and repeats it at most `repeats` times while its outcome is unknown. Returns which of the copies was
    /// answered.
    pub(super) async fn ask(
        &self,
        asked: AcquireCall,
        busy: Busy,
        patience: Moment,
        repeats: u32,
    ) -> (AcquireCall, Result<Admission>) {
        // With any number of repeats, the last answer is awaited until at most `MIN_ANSWER_WAIT` after the end of patience.
        let limit = patience.max(patience.min(asked.sent) + MIN_ANSWER_WAIT).min(asked.sent + UNAVAILABLE_AFTER);
        match self.ask_once(&asked, busy, limit).await.unwrap_or_else(|| Err(self.explain(no_answer(), &asked))) {
            // Boxed, so that it takes no room in the futures of requests whose first acquire is answered.
            Err(error @ Error::Unavailable { .. }) => {
                let repeats = Repeats::of(asked.sent).at_most(repeats).before(limit);
                Box::pin(self.ask_again(asked, error, busy, limit, repeats)).await
            }
            answer => (asked, answer),
        }
    }

    /// `None` if there is no answer by `limit`.
    async fn ask_once(&self, asked: &AcquireCall, busy: Busy, limit: Moment) -> Option<Result<Admission>> {
        let call = self.client.store.acquire(&asked.claim, busy);
        let answer = self.client.within(asked.sent, limit, call).await?;
        Some(answer.map_err(|error| self.explain(error, asked)))
    }

    fn explain(&self, error: Error, asked: &AcquireCall) -> Error {
        self.client.explain(error, "asking for", &asked.claim.demands)
    }

    async fn ask_again(
        &self,
        mut asked: AcquireCall,
        error: Error,
        busy: Busy,
        limit: Moment,
        repeats: Repeats,
    ) -> (AcquireCall, Result<Admission>) {
        // The first acquire may have been granted. A repeat after its lease has ended would be a new attempt, not a repeat.
        let mut repeats = repeats.before(valid_until(asked.sent, asked.claim.ttl));
        let (client, limit, mut answer) = (self.client, repeats.limit(limit), Err(error));
        while let Some(at) = repeats.next(&answer, client.clock.now()) {
            client.tell(Input::Pausing { asked: asked.clone(), until: at });
            client.sleep_until(at).await;
            match client.tell(Input::Repeating(asked.clone())) {
                Next::Ask(again) => asked = again,
                // The keeper has withdrawn the claim, or the client was shut down.
                _ => {
                    if let Some(why) = client.with_carrier(|carrier, _| carrier.engine().closed()) {
                        answer = Err(Error::Closed(why.text()));
                    }
                    break;
                }
            }
            match self.ask_once(&asked, busy, limit).await {
                Some(reply) => answer = reply,
                // The previous answer has the cause.
                None => break,
            }
        }
        (asked, answer)
    }
}

impl Client {
    /// Calls [`Store::inspect`](crate::store::Store::inspect); the store's own time limit applies.
    pub(crate) async fn inspect(&self, query: &Query) -> Result<Page> {
        let repeats = Repeats::of(self.clock.now());
        self.ask(repeats, Moment::NEVER, || self.store.inspect(query)).await.answer
    }

    /// Breaks the claim on `name` that has this ticket; `false` if there is none, which may be because a copy of this request ended it.
    pub(crate) async fn break_claim(&self, name: Name, ticket: Ticket, at_once: bool) -> Result<bool> {
        let leaving = [Leaving::Break { name: name.clone(), ticket, at_once }];
        let doing = || format!("breaking {:?}", self.shown(&name));
        let (repeats, request) = (Repeats::of(self.clock.now()), || self.release(&leaving));
        let answer = self.ask(repeats, Moment::NEVER, request).await.answer;
        let standings = answer.map_err(|error| self.explain_as(error, doing, std::iter::once(&name)))?;
        match standings.first() {
            Some(standing) => Ok(*standing == Standing::Gone(Why::Broken)),
            None => Err(Error::unavailable(doing(), "the store gave no answer")),
        }
    }
}

/// The error of a request without any answer.
pub(crate) fn no_answer() -> Error {
    Error::unavailable("asking", "no answer in time")
}

/// By 5: whether `standing`, as the answer to a repeat, leaves open what became of the claim.
pub(crate) fn is_ambiguous(standing: &Standing) -> bool {
    *standing == Standing::Gone(Why::Unknown)
}

/// The error in that case.
pub(crate) fn answer_lost(doing: impl Into<String>) -> Error {
    Error::unavailable(doing, "the answer was lost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first() -> Moment {
        Moment::from_nanos(1_000_000_000_000)
    }

    fn unknown() -> Result<()> {
        Err(Error::unavailable("testing", "unexpected end of file"))
    }

    #[test]
    fn the_first_repeat_follows_at_once_and_the_last_within_a_second() {
        for _ in 0..100 {
            let (mut repeats, mut now, mut count) = (Repeats::of(first()), first(), 0);
            while let Some(at) = repeats.next(&unknown(), now) {
                assert!((at == now) == (count == 0), "only the first repeat has no pause");
                (now, count) = (at, count + 1);
            }
            assert_eq!(count, MAX_REPEATS);
            assert!(now.since(first()) <= Duration::from_millis(700), "{:?}", now.since(first()));
        }
    }

    #[test]
    fn no_repeat_begins_late() {
        let mut repeats = Repeats::of(first());
        assert_eq!(repeats.next(&unknown(), first() + BEGINS_WITHIN), None);
        let mut repeats = Repeats::of(first()).before(first() + Duration::from_millis(10));
        assert_eq!(repeats.next(&unknown(), first()), Some(first()));
        assert_eq!(repeats.next(&unknown(), first()), None, "every later pause is longer than 10 ms");
        assert_eq!(Repeats::of(first()).at_most(0).next(&unknown(), first()), None);
    }

    #[test]
    fn only_an_unknown_outcome_is_repeated() {
        let others = [
            Ok(()),
            Err(Error::invalid("no")),
            Err(Error::unsupported("no")),
            Err(Error::Closed("no")),
            Err(Error::Lost { name: "a".to_owned(), why: crate::error::LostWhy::Expired }),
        ];
        for answer in others {
            assert_eq!(Repeats::of(first()).next(&answer, first()), None, "{answer:?}");
        }
    }
}
