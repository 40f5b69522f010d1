//! Getting in: the only waiting loop. A party asks the store once, on its caller's task; if it has to wait, everything
//! after that (renewing its place, noticing its turn, asking again) is the keeper's, and the loop only watches its slot.
//!
//! Cancel safety, for all of it: the claim exists before anything is sent, and [`Place`] withdraws it when it is dropped,
//! whatever had become of it by then.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;

use crate::claim::{Ticket, Tickets};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::event::Happening;
use crate::store::{Admission, Busy, BusyWith, Leaving, Names, Query};

use super::Client;
use super::alarm::Alarm;
use super::book::{Book, Outbox, UNAVAILABLE_AFTER, grace};
use super::due::asked_after;
use super::guard::Guard;
use super::joining::Asking;
use super::repeat::{Repeats, Told};
use super::slot::{Phase, Request, Slot};
use super::slots::Key;

/// How long the answer to a question is awaited at least, also by a caller whose patience ends before that: without the answer
/// it could not say whether the lock is taken or the store is down. With the last look, less than a second.
pub(super) const FIRST_ANSWER: Duration = Duration::from_millis(800);
/// How long telling a caller who is in its way may take, once its patience has ended; and how much of the line is looked at, since
/// all who wait in a long one may give up at the same time.
const LAST_LOOK: Duration = Duration::from_millis(100);
pub(crate) const FRONT: usize = 16;

/// A place has its slot until it is dropped, or the client is shut down, whichever is first.
const SHUT_DOWN: &str = "it was shut down";

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

/// What a party's future does next.
pub(crate) enum Step {
    Ask(Asking),
    Wait,
    Enter { hold: Key, fence: Ticket, request: Arc<Request> },
    Sealed(Bytes),
    Fail(Box<Error>),
}

/// A party on its way in. Dropped, it withdraws.
pub(super) struct Place<'a> {
    pub(super) client: &'a Arc<Client>,
    key: Key,
    withdraws: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.withdraws {
            self.client.with_book(|book, now, out| book.withdraw(self.key, now, out));
        }
    }
}

impl<'a> Place<'a> {
    fn enter(client: &'a Arc<Client>, request: Arc<Request>) -> Result<(Self, Step)> {
        client.check_usable()?;
        client.with_book(|book, now, out| {
            if let Some(why) = book.closed {
                return Err(Error::Closed(why));
            }
            let key = book.enter(request, now, out);
            let place = Self { client, key, withdraws: true };
            Ok((place, book.step(key, now, out)))
        })
    }

    fn into_guard(mut self, step: Step) -> Result<Entered, (Self, Step)> {
        match step {
            Step::Enter { hold, fence, request } => {
                self.withdraws = false;
                Ok(Entered::Held(Guard::new(Arc::clone(self.client), hold, fence, request)))
            }
            Step::Sealed(value) => Ok(Entered::Sealed(value)),
            other => Err((self, other)),
        }
    }

    fn answered(&self, asked: &Asking, answer: Result<Admission>) -> Step {
        self.client.with_book(|book, now, out| {
            book.admitted(asked, answer, now, out);
            book.step(self.key, now, out)
        })
    }

    fn kept_changing(&self) -> Error {
        let demands = |book: &mut Book| book.slots.get(self.key).map(|slot| slot.request.demands.clone());
        match self.client.with_book(|book, _, _| demands(book)) {
            Some(demands) => Error::unavailable(self.client.doing("asking for", &demands), "it kept changing"),
            None => Error::Closed(SHUT_DOWN),
        }
    }

    /// Until the slot has changed; `false` when patience ended first.
    async fn changed(&self, patience: Moment) -> bool {
        let mut alarm = Alarm::new(self.client, patience);
        poll_fn(|cx| {
            let waits = self.client.with_book(|book, _, _| {
                let Some(slot) = book.slots.get_mut(self.key) else { return false };
                let waits = matches!(slot.phase, Phase::Behind | Phase::Waiting { .. } | Phase::Outside { .. });
                if waits {
                    let old = slot.wait().waker.replace(cx.waker().clone());
                    book.trash.0.extend(old);
                }
                waits
            });
            if !waits {
                return Poll::Ready(true);
            }
            alarm.poll_until(cx).map(|()| false)
        })
        .await
    }
}

/// Waits in line until `patience` ends.
pub(crate) async fn admit(client: &Arc<Client>, request: Arc<Request>, patience: Moment) -> Result<Entered> {
    let (mut place, mut step) = Place::enter(client, request)?;
    loop {
        (place, step) = match place.into_guard(step) {
            Ok(entered) => return Ok(entered),
            Err(not_yet) => not_yet,
        };
        step = match step {
            Step::Ask(asked) => {
                // Later repeats are the keeper's.
                let (asked, answer) = place.ask(asked, Busy::Wait, patience, 1).await;
                place.answered(&asked, answer)
            }
            Step::Fail(error) => return Err(*error),
            _ if place.changed(patience).await => client.with_book(|book, now, out| book.step(place.key, now, out)),
            // In a box, so that it takes no room in the futures of all who wait.
            _ => return Box::pin(gave_up(place)).await,
        };
    }
}

/// Asks once, and leaves no entry in the queue if another claim holds. The request is
/// repeated at most so often while its outcome is unknown.
pub(crate) async fn attempt(
    client: &Arc<Client>,
    request: Arc<Request>,
    patience: Moment,
    repeats: u32,
) -> Result<Attempt> {
    let (mut place, mut step) = Place::enter(client, request)?;
    loop {
        (place, step) = match place.into_guard(step) {
            Ok(entered) => return Ok(Attempt::Entered(entered)),
            Err(not_yet) => not_yet,
        };
        let asked = match step {
            Step::Ask(asked) => asked,
            Step::Fail(error) => return Err(*error),
            _ => return Err(place.kept_changing()),
        };
        let (asked, answer) = place.ask(asked, Busy::Refuse, patience, repeats).await;
        match answer {
            Ok(Admission::Refused(busy)) => {
                place.withdraws = false;
                client.with_book(|book, now, out| {
                    book.keep_out_if_unsure(place.key, now, out);
                    book.remove(place.key);
                    book.telling.tally.refused();
                    book.report_soon(now, out);
                });
                return Ok(Attempt::Refused(busy));
            }
            // Dropping the place withdraws a claim whose outcome is unknown.
            Err(error) if error.is_retryable() => return Err(error),
            answer => step = place.answered(&asked, answer),
        }
    }
}

/// Patience has ended: says who was in the way, unless the lock arrives at the last moment.
async fn gave_up(place: Place<'_>) -> Result<Entered> {
    let client = place.client;
    let was = client.with_book(|book, now, _| {
        let slot = book.slots.get(place.key)?;
        let (ticket, heard) = match slot.phase {
            // Of several names it was told the largest.
            Phase::Waiting { ticket, .. } if slot.request.demands.len() == 1 => (ticket, slot.position()),
            Phase::Waiting { ticket, .. } => (ticket, usize::MAX),
            _ => (Ticket(u64::MAX), usize::MAX),
        };
        let trouble = slot.last_error().filter(|_| slot.failures > 0).cloned().map(Box::new);
        Some((slot.request.demands.clone(), (ticket, heard), trouble, slot.attempts.max(1), now.since(slot.since)))
    });
    let Some((demands, (ticket, heard), mut trouble, attempts, waited)) = was else {
        return Err(Error::Closed(SHUT_DOWN));
    };
    let mut busy = BusyWith::default();
    if trouble.is_none() {
        let limit = client.clock.now() + LAST_LOOK;
        for demand in demands.iter() {
            let query = Query { names: Names::One(demand.name.clone()), after: None, limit: 1, seats: FRONT };
            let repeats = Repeats::of(client.clock.now()).at_most(1);
            let look = client.ask(repeats, Moment::NEVER, || client.store.inspect(&query));
            let page = match client.within(client.clock.now(), limit, pin!(look)).await {
                Some(Told { answer: Ok(page), .. }) => page,
                Some(Told { answer: Err(error), .. }) => {
                    trouble = Some(Box::new(error));
                    break;
                }
                None => break,
            };
            let Some(resource) = page.resources.first() else { continue };
            let shown = resource.line.iter().filter(|seat| seat.tickets.first < ticket).count();
            // Of a longer line, at most what it was told when it joined, since it has only moved up; and it is one of the others.
            let is_behind = shown == resource.line.len();
            let others = resource.more.saturating_sub(usize::from(ticket.0 < u64::MAX));
            let ahead = if is_behind { heard.clamp(shown, shown.saturating_add(others)) } else { shown };
            if let Some(holder) = resource.holders().next().filter(|_| ahead > 0) {
                busy.holder = Some(holder.into());
                // Since when another program holds, which draws no tickets here, nobody knows.
                busy.held_for = (holder.tickets.first.0 > 0).then_some(holder.since);
                busy.position = ahead;
                break;
            }
        }
    }
    let step = client.with_book(|book, now, out| book.step(place.key, now, out));
    match place.into_guard(step) {
        Ok(entered) => Ok(entered),
        Err((_, Step::Fail(error))) => Err(*error),
        Err((mut place, _)) => {
            place.withdraws = false;
            client.with_book(|book, now, out| {
                book.happened(place.key, Happening::TimedOut { waited }, out);
                book.leave(place.key, now, out);
            });
            Err(match trouble {
                // "Contended" must not look like "the store is down".
                Some(error) => client.explain(*error, "waiting for", &demands),
                None => {
                    let position = busy.holder.as_ref().map(|_| busy.position);
                    client.busy(&demands, busy, position, waited, attempts)
                }
            })
        }
    }
}

impl Book {
    /// What the future of a party does next.
    pub(crate) fn step(&mut self, key: Key, now: Moment, out: &mut Outbox) -> Step {
        let Some(slot) = self.slots.get_mut(key) else { return Step::Fail(Box::new(Error::Closed(SHUT_DOWN))) };
        match &slot.phase {
            Phase::Lead => self.ask(key, now, out),
            Phase::GivenBack => {
                self.enter_again(key, now, out);
                match self.slots.get(key).map(|slot| &slot.phase) {
                    Some(Phase::Lead) => self.ask(key, now, out),
                    _ => Step::Wait,
                }
            }
            Phase::Granted { first, count, settled, .. } => {
                let (tickets, settled) = (Tickets::new(*first, *count), *settled);
                let left = slot.lease_until.since(now);
                if left.is_zero() {
                    // Too late to be trusted; the store may still count us in, so it is told.
                    let leaving = slot.leaving(slot.claim.clone().expect("what is granted is a claim"));
                    self.forget_claim(key);
                    self.depart(leaving, now, out);
                    self.ask(key, now, out)
                } else if left < slot.enough() && !settled {
                    slot.phase = Phase::Waiting { ticket: tickets.first, settling: true };
                    self.slots.schedule_now(key);
                    out.ring = true;
                    Step::Wait
                } else {
                    self.begin_turn(key, tickets, now);
                    self.enter_hold(key, tickets.first, now, out)
                }
            }
            Phase::Passed { hold, ticket } => {
                let (hold, ticket) = (*hold, *ticket);
                if self.slots.get(hold).is_none_or(|held| held.is_over(now)) {
                    // Lost on the way over. The store is told, and this party asks for itself.
                    self.take_lead_from(hold, key);
                    self.give_up_hold(hold, now, out);
                    return self.ask(key, now, out);
                }
                let slot = self.remove(key).expect("it was there a moment ago");
                let held = self.slots.get_mut(hold).expect("it was there a moment ago");
                held.request = slot.request;
                held.since = slot.since;
                self.enter_hold(hold, ticket, now, out)
            }
            Phase::Sealed(value) => Step::Sealed(Bytes::clone(value)),
            Phase::Failed(error) => Step::Fail(error.clone()),
            _ => Step::Wait,
        }
    }

    fn ask(&mut self, key: Key, now: Moment, out: &mut Outbox) -> Step {
        match self.new_claim(key) {
            Ok(claim) => {
                let slot = self.slots.get_mut(key).expect("`new_claim` found it");
                slot.phase = Phase::Asking { until: now + UNAVAILABLE_AFTER + grace(claim.ttl), is_held: false };
                slot.attempts += 1;
                // Its future may never be polled again.
                let grace = grace(claim.ttl);
                self.slots.schedule_roughly(key, now + asked_after(grace), grace);
                self.note_next(out);
                Step::Ask(Asking { key, claim, sent: now, inline: true, unsure: false })
            }
            Err(error) => {
                self.fail(key, error.clone(), now, out);
                Step::Fail(Box::new(error))
            }
        }
    }

    /// From here on there is a guard.
    fn enter_hold(&mut self, hold: Key, fence: Ticket, now: Moment, out: &mut Outbox) -> Step {
        let slot = self.slots.get_mut(hold).expect("who enters is in the book");
        let waited = now.since(slot.since);
        slot.phase = Phase::Held;
        slot.since = now;
        slot.fence = fence;
        self.trash.0.extend(slot.waited());
        if std::mem::take(&mut slot.counted) {
            self.telling.tally.stopped_waiting();
        }
        let (until, why) = slot.deadline();
        slot.request.validity.grant(until, why);
        let request = Arc::clone(&slot.request);
        self.telling.tally.acquired(waited);
        self.happened(hold, Happening::Acquired { waited }, out);
        self.schedule_held(hold, out);
        self.report_soon(now, out);
        Step::Enter { hold, fence, request }
    }

    /// A party's future is gone before it holds.
    pub(crate) fn withdraw(&mut self, key: Key, now: Moment, out: &mut Outbox) {
        let waits = |slot: &Slot| !matches!(slot.phase, Phase::Failed(_) | Phase::Sealed(_));
        if self.slots.get(key).is_some_and(waits) {
            self.happened(key, Happening::Cancelled, out);
        }
        self.leave(key, now, out);
    }

    /// Takes a party that does not hold out of the book, and what it may have in line with it.
    fn leave(&mut self, key: Key, now: Moment, out: &mut Outbox) {
        self.hand_lead_on(key, now, out);
        let Some(mut slot) = self.remove(key) else { return };
        let claim = slot.claim.take();
        match (&slot.phase, claim) {
            (Phase::Behind, _) => self.left_queue(slot.turn),
            (Phase::Passed { hold, .. }, _) => self.give_up_hold(*hold, now, out),
            (Phase::Asking { .. }, Some(claim)) => self.depart(Leaving::Unknown(claim), now, out),
            // With a flight: its landing finds nobody and withdraws the claim, then with its outcome known.
            (Phase::Outside { .. }, Some(claim)) if !slot.in_flight => self.depart(Leaving::Unknown(claim), now, out),
            (Phase::Waiting { .. } | Phase::Granted { .. }, Some(claim)) => self.depart(slot.leaving(claim), now, out),
            _ => {}
        }
    }
}
