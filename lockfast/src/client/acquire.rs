//! The futures of requests: the only loop that waits. A request sends its acquire on the caller's task, and repeats it once if it
//! gets no answer. If it has to wait, the keeper does everything else (renewing the claim, receiving the hand-off, polling), and the
//! loop sleeps until it is woken. A request whose grant was released unused, or came too late, acquires on its caller's task again.
//!
//! Cancel safety, for all of it: the claim exists before anything is sent, and a dropped [`PendingRequest`] withdraws it in whatever
//! state it is by then.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;

use crate::claim::Ticket;
use crate::clock::Moment;
use crate::engine::{AcquireCall, Closing, GuardParts, Input, Key, Next, Terms, Waiter};
use crate::error::{Error, Result};
use crate::store::{Admission, Busy, BusyWith, Names, Query};

use super::Client;
use super::alarm::Alarm;
use super::guard::Guard;
use super::repeat::{Repeats, Reply};

/// How long the answer to an acquire is awaited at least, even if the caller's patience ends earlier: without the answer the
/// error could not say whether the lock is taken or the store is down. Together with [`HOLDER_LOOKUP_TIMEOUT`], less than a second.
pub(super) const MIN_ANSWER_WAIT: Duration = Duration::from_millis(800);
/// How long finding the holder for the error may take, once patience has ended.
const HOLDER_LOOKUP_TIMEOUT: Duration = Duration::from_millis(100);
/// How many entries of a queue are read to find its holder. Few, since all waiters of a long queue may give up at the same time.
pub(crate) const MAX_ENTRIES_READ: usize = 16;

/// The outcome of waiting.
#[derive(Debug)]
pub(crate) enum Entered {
    Held(Guard),
    Sealed(Bytes),
}

/// The outcome of one attempt.
#[derive(Debug)]
pub(crate) enum Attempt {
    Entered(Entered),
    Refused(BusyWith),
}

/// A request that does not hold yet. Dropping it withdraws its claim.
pub(super) struct PendingRequest<'a> {
    pub(super) client: &'a Arc<Client>,
    request: Key,
    withdraws_on_drop: bool,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if self.withdraws_on_drop {
            self.end(Input::Withdrawn(self.request));
        }
    }
}

impl<'a> PendingRequest<'a> {
    fn enter(client: &'a Arc<Client>, terms: Arc<Terms>) -> Result<(Self, Next)> {
        client.check_usable()?;
        client.with_carrier(|carrier, now| match carrier.tell(Input::Enter(terms), now) {
            Next::Entered(key) => {
                Ok((Self { client, request: key, withdraws_on_drop: true }, carrier.tell(Input::Polled(key), now)))
            }
            Next::Fail(error) => Err(*error),
            _ => Err(shut_down()),
        })
    }

    fn into_guard(mut self, next: Next) -> Result<Entered, (Self, Next)> {
        match next {
            Next::Enter(GuardParts { hold, fence, terms, .. }) => {
                self.withdraws_on_drop = false;
                Ok(Entered::Held(Guard::new(Arc::clone(self.client), hold, fence, terms)))
            }
            Next::Sealed(value) => Ok(Entered::Sealed(value)),
            other => Err((self, other)),
        }
    }

    /// Tells the engine that the future was polled.
    fn on_poll(&self) -> Next {
        self.client.tell(Input::Polled(self.request))
    }

    /// Tells the engine the store's answer to the acquire. `Admitted` only changes the request; its next step is the answer to
    /// `Polled`, which follows at once, before the mutex is free: if the lock was granted, this poll makes the guard.
    fn on_reply(&self, asked: AcquireCall, answer: Result<Admission>) -> Next {
        self.client.with_carrier(|carrier, now| {
            carrier.tell(Input::Admitted { asked, answer }, now);
            carrier.tell(Input::Polled(self.request), now)
        })
    }

    /// Ends the request with `input`.
    fn end(&self, input: Input) {
        self.client.with_carrier(|carrier, now| {
            carrier.forget_waker(self.request);
            carrier.tell(input, now);
        });
    }

    /// The error of an attempt whose acquire was answered, but whose request neither holds nor may ask again at once.
    fn changed_error(&self) -> Error {
        let terms = self.client.with_carrier(|carrier, _| carrier.engine().terms(self.request).cloned());
        match terms {
            Some(terms) => Error::unavailable(self.client.doing("asking for", &terms.demands), "it kept changing"),
            None => shut_down(),
        }
    }

    /// Waits until the request has changed; `false` if patience ended first.
    async fn wait_for_change(&self, patience: Moment) -> bool {
        let mut alarm = Alarm::new(self.client, patience);
        poll_fn(|cx| {
            if !self.client.with_carrier(|carrier, _| carrier.register_waker(self.request, cx.waker())) {
                return Poll::Ready(true);
            }
            alarm.poll_until(cx).map(|()| false)
        })
        .await
    }
}

/// The engine knows a request until its [`PendingRequest`] is dropped or the client is shut down. If it is unknown here, the client
/// was shut down.
fn shut_down() -> Error {
    Error::Closed(Closing::ShutDown.text())
}

/// Waits in the queue until `patience` ends.
pub(crate) async fn acquire(client: &Arc<Client>, terms: Arc<Terms>, patience: Moment) -> Result<Entered> {
    let (mut pending, mut next) = PendingRequest::enter(client, terms)?;
    loop {
        (pending, next) = match pending.into_guard(next) {
            Ok(entered) => return Ok(entered),
            Err(not_yet) => not_yet,
        };
        next = match next {
            Next::Ask(asked) => {
                // One repeat here; the keeper sends the later ones.
                let (asked, answer) = pending.ask(asked, Busy::Wait, patience, 1).await;
                pending.on_reply(asked, answer)
            }
            Next::Fail(error) => return Err(*error),
            _ if pending.wait_for_change(patience).await => pending.on_poll(),
            // Boxed, so that it takes no room in the futures of all waiters.
            _ => return Box::pin(give_up(pending)).await,
        };
    }
}

/// One attempt: leaves no entry in the queue if it cannot hold at once. While the outcome is unknown, the acquire is repeated at
/// most `repeats` times.
pub(crate) async fn attempt(
    client: &Arc<Client>,
    terms: Arc<Terms>,
    patience: Moment,
    repeats: u32,
) -> Result<Attempt> {
    let (mut pending, mut next) = PendingRequest::enter(client, terms)?;
    loop {
        (pending, next) = match pending.into_guard(next) {
            Ok(entered) => return Ok(Attempt::Entered(entered)),
            Err(not_yet) => not_yet,
        };
        let asked = match next {
            Next::Ask(asked) => asked,
            Next::Fail(error) => return Err(*error),
            _ => return Err(pending.changed_error()),
        };
        let (asked, answer) = pending.ask(asked, Busy::Refuse, patience, repeats).await;
        match answer {
            Ok(Admission::Refused(busy)) => {
                pending.withdraws_on_drop = false;
                pending.end(Input::Refused(pending.request));
                return Ok(Attempt::Refused(busy));
            }
            // The outcome is unknown: dropping the request withdraws the claim.
            Err(error) if error.is_retryable() => return Err(error),
            answer => next = pending.on_reply(asked, answer),
        }
    }
}

/// Patience has ended: fails with the name of the holder, unless the lock arrives at the last moment.
async fn give_up(pending: PendingRequest<'_>) -> Result<Entered> {
    let client = pending.client;
    let was = client.with_carrier(|carrier, now| Some((carrier.engine().waiter(pending.request)?, now)));
    let Some((waiter, now)) = was else { return Err(shut_down()) };
    let Waiter { terms, ticket, position: joined_at, mut trouble, since, attempts } = waiter;
    let (demands, waited, ticket) = (&terms.demands, now.since(since), ticket.unwrap_or(Ticket(u64::MAX)));
    let mut busy = BusyWith::default();
    if trouble.is_none() {
        let limit = client.clock.now() + HOLDER_LOOKUP_TIMEOUT;
        for demand in demands.iter() {
            let query =
                Query { names: Names::One(demand.name.clone()), after: None, limit: 1, entries: MAX_ENTRIES_READ };
            let repeats = Repeats::of(client.clock.now()).at_most(1);
            let look = client.ask(repeats, Moment::NEVER, || client.store.inspect(&query));
            let page = match client.within(client.clock.now(), limit, pin!(look)).await {
                Some(Reply { answer: Ok(page), .. }) => page,
                Some(Reply { answer: Err(error), .. }) => {
                    trouble = Some(error);
                    break;
                }
                None => break,
            };
            let Some(resource) = page.resources.first() else { continue };
            let shown = resource.queue.iter().filter(|entry| entry.tickets.first < ticket).count();
            // In a longer queue: at most the position at joining, since a waiter only moves up. The waiter itself is one of the others.
            let is_behind = shown == resource.queue.len();
            let others = resource.more.saturating_sub(usize::from(ticket.0 < u64::MAX));
            let ahead = if is_behind { joined_at.clamp(shown, shown.saturating_add(others)) } else { shown };
            if let Some(holder) = resource.holders().next().filter(|_| ahead > 0) {
                busy.holder = Some(holder.into());
                // Ticket 0 is another program's lock: how long it has been held is unknown.
                busy.held_for = (holder.tickets.first.0 > 0).then_some(holder.since);
                busy.position = ahead;
                break;
            }
        }
    }
    let next = pending.on_poll();
    match pending.into_guard(next) {
        Ok(entered) => Ok(entered),
        Err((_, Next::Fail(error))) => Err(*error),
        Err((mut pending, _)) => {
            pending.withdraws_on_drop = false;
            pending.end(Input::TimedOut(pending.request));
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
