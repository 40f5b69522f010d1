//! The futures of requests: the only loop that waits. A request asks the store on its caller's task, and once more if that has no
//! answer. If it has to wait, everything after that (renewing its claim, noticing the hand-off, asking again) is the keeper's, and
//! the loop waits to be woken. A request whose grant was given back, or came too late, asks on its caller's task again.
//!
//! Cancel safety, for all of it: the claim exists before anything is sent, and [`Place`] withdraws it when it is dropped,
//! whatever had become of it by then.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;

use crate::claim::Ticket;
use crate::clock::Moment;
use crate::engine::{Asking, Closing, Held, Input, Key, Next, Terms, Waiter};
use crate::error::{Error, Result};
use crate::store::{Admission, Busy, BusyWith, Names, Query};

use super::Client;
use super::alarm::Alarm;
use super::guard::Guard;
use super::repeat::{Repeats, Told};

/// How long the answer to a question is awaited at least, also by a caller whose patience ends before that: without the answer
/// it could not say whether the lock is taken or the store is down. With the last look, less than a second.
pub(super) const FIRST_ANSWER: Duration = Duration::from_millis(800);
/// How long finding the holder for the error may take, once patience has ended; and how much of the queue is looked at, since all
/// waiters of a long one may give up at the same time.
const LAST_LOOK: Duration = Duration::from_millis(100);
pub(crate) const FRONT: usize = 16;

/// What waiting came to.
#[derive(Debug)]
pub(crate) enum Entered {
    Held(Guard),
    Sealed(Bytes),
}

/// What one attempt came to.
#[derive(Debug)]
pub(crate) enum Attempt {
    Entered(Entered),
    Refused(BusyWith),
}

/// A request that does not hold. Dropped, it withdraws.
pub(super) struct Place<'a> {
    pub(super) client: &'a Arc<Client>,
    key: Key,
    withdraws: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.withdraws {
            self.end(Input::Withdrawn(self.key));
        }
    }
}

impl<'a> Place<'a> {
    fn enter(client: &'a Arc<Client>, terms: Arc<Terms>) -> Result<(Self, Next)> {
        client.check_usable()?;
        client.with_engine(|carrier, now| match carrier.tell(Input::Enter(terms), now) {
            Next::Entered(key) => Ok((Self { client, key, withdraws: true }, carrier.tell(Input::Polled(key), now))),
            Next::Fail(error) => Err(*error),
            _ => Err(shut_down()),
        })
    }

    fn into_guard(mut self, next: Next) -> Result<Entered, (Self, Next)> {
        match next {
            Next::Enter(Held { hold, fence, terms, .. }) => {
                self.withdraws = false;
                Ok(Entered::Held(Guard::new(Arc::clone(self.client), hold, fence, terms)))
            }
            Next::Sealed(value) => Ok(Entered::Sealed(value)),
            other => Err((self, other)),
        }
    }

    fn polled(&self) -> Next {
        self.client.tell(Input::Polled(self.key))
    }

    fn answered(&self, asked: Asking, answer: Result<Admission>) -> Next {
        self.client.with_engine(|carrier, now| {
            carrier.tell(Input::Admitted { asked, answer }, now);
            carrier.tell(Input::Polled(self.key), now)
        })
    }

    /// The request goes.
    fn end(&self, input: Input) {
        self.client.with_engine(|carrier, now| {
            carrier.forget_waker(self.key);
            carrier.tell(input, now);
        });
    }

    fn kept_changing(&self) -> Error {
        let terms = self.client.with_engine(|carrier, _| carrier.engine().terms(self.key).cloned());
        match terms {
            Some(terms) => Error::unavailable(self.client.doing("asking for", &terms.demands), "it kept changing"),
            None => shut_down(),
        }
    }

    /// Until the request has changed; `false` when patience ended first.
    async fn changed(&self, patience: Moment) -> bool {
        let mut alarm = Alarm::new(self.client, patience);
        poll_fn(|cx| {
            if !self.client.with_engine(|carrier, _| carrier.waits(self.key, cx.waker())) {
                return Poll::Ready(true);
            }
            alarm.poll_until(cx).map(|()| false)
        })
        .await
    }
}

/// A request is there until its place is dropped, or the client is shut down, whichever is first.
fn shut_down() -> Error {
    Error::Closed(Closing::ShutDown.text())
}

/// Waits in the queue until `patience` ends.
pub(crate) async fn acquire(client: &Arc<Client>, terms: Arc<Terms>, patience: Moment) -> Result<Entered> {
    let (mut place, mut next) = Place::enter(client, terms)?;
    loop {
        (place, next) = match place.into_guard(next) {
            Ok(entered) => return Ok(entered),
            Err(not_yet) => not_yet,
        };
        next = match next {
            Next::Ask(asked) => {
                // Later repeats are the keeper's.
                let (asked, answer) = place.ask(asked, Busy::Wait, patience, 1).await;
                place.answered(asked, answer)
            }
            Next::Fail(error) => return Err(*error),
            _ if place.changed(patience).await => place.polled(),
            // In a box, so that it takes no room in the futures of all waiters.
            _ => return Box::pin(gave_up(place)).await,
        };
    }
}

/// Asks once, and leaves no entry in the queue if another claim holds. The request is
/// repeated at most so often while its outcome is unknown.
pub(crate) async fn attempt(
    client: &Arc<Client>,
    terms: Arc<Terms>,
    patience: Moment,
    repeats: u32,
) -> Result<Attempt> {
    let (mut place, mut next) = Place::enter(client, terms)?;
    loop {
        (place, next) = match place.into_guard(next) {
            Ok(entered) => return Ok(Attempt::Entered(entered)),
            Err(not_yet) => not_yet,
        };
        let asked = match next {
            Next::Ask(asked) => asked,
            Next::Fail(error) => return Err(*error),
            _ => return Err(place.kept_changing()),
        };
        let (asked, answer) = place.ask(asked, Busy::Refuse, patience, repeats).await;
        match answer {
            Ok(Admission::Refused(busy)) => {
                place.withdraws = false;
                place.end(Input::Refused(place.key));
                return Ok(Attempt::Refused(busy));
            }
            // Dropping the place withdraws a claim whose outcome is unknown.
            Err(error) if error.is_retryable() => return Err(error),
            answer => next = place.answered(asked, answer),
        }
    }
}

/// Patience has ended: names the holder, unless the lock arrives at the last moment.
async fn gave_up(place: Place<'_>) -> Result<Entered> {
    let client = place.client;
    let was = client.with_engine(|carrier, now| Some((carrier.engine().waiter(place.key)?, now)));
    let Some((waiter, now)) = was else { return Err(shut_down()) };
    let Waiter { terms, ticket, position: heard, mut trouble, since, attempts } = waiter;
    let (demands, waited, ticket) = (&terms.demands, now.since(since), ticket.unwrap_or(Ticket(u64::MAX)));
    let mut busy = BusyWith::default();
    if trouble.is_none() {
        let limit = client.clock.now() + LAST_LOOK;
        for demand in demands.iter() {
            let query = Query { names: Names::One(demand.name.clone()), after: None, limit: 1, entries: FRONT };
            let repeats = Repeats::of(client.clock.now()).at_most(1);
            let look = client.ask(repeats, Moment::NEVER, || client.store.inspect(&query));
            let page = match client.within(client.clock.now(), limit, pin!(look)).await {
                Some(Told { answer: Ok(page), .. }) => page,
                Some(Told { answer: Err(error), .. }) => {
                    trouble = Some(error);
                    break;
                }
                None => break,
            };
            let Some(resource) = page.resources.first() else { continue };
            let shown = resource.queue.iter().filter(|entry| entry.tickets.first < ticket).count();
            // Of a longer queue, at most what it was told when it joined, since it has only moved up; and it is one of the others.
            let is_behind = shown == resource.queue.len();
            let others = resource.more.saturating_sub(usize::from(ticket.0 < u64::MAX));
            let ahead = if is_behind { heard.clamp(shown, shown.saturating_add(others)) } else { shown };
            if let Some(holder) = resource.holders().next().filter(|_| ahead > 0) {
                busy.holder = Some(holder.into());
                // Another program draws no tickets here, and since when it holds is unknown.
                busy.held_for = (holder.tickets.first.0 > 0).then_some(holder.since);
                busy.position = ahead;
                break;
            }
        }
    }
    let next = place.polled();
    match place.into_guard(next) {
        Ok(entered) => Ok(entered),
        Err((_, Next::Fail(error))) => Err(*error),
        Err((mut place, _)) => {
            place.withdraws = false;
            place.end(Input::TimedOut(place.key));
            Err(match trouble {
                // "Contended" must not look like "the store is down".
                Some(error) => client.explain(error, "waiting for", demands),
                None => {
                    let position = busy.holder.as_ref().map(|_| busy.position);
                    client.busy(demands, busy, position, waited, attempts)
                }
            })
        }
    }
}
