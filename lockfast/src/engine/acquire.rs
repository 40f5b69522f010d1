//! From `lock()` to the guard: entering, asking the store, waiting in the queue, being granted.

use std::sync::Arc;
use std::time::Duration;

use crate::claim::{Claim, Ticket, Tickets};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::planted::Rule;
use crate::store::{Admission, Leaving};

use super::action::{Ack, AcquireAnswer, On};
use super::effect::{Effects, GuardParts, Next};
use super::input::{AcquireCall, Closing};
use super::lease::valid_until;
use super::phase::Phase;
use super::request::{RateLimit, Request, ask_beside_after, grace};
use super::requests::Key;
use super::terms::Terms;
use super::{Engine, UNAVAILABLE_AFTER};

impl Engine {
    /// A new request: behind others of this process with the same terms, or to ask the store itself.
    pub(super) fn enter(&mut self, terms: Arc<Terms>, now: Moment, fx: &mut Effects) -> Next {
        if let Some(why) = self.closed {
            return Next::Fail(Box::new(Error::Closed(why.text())));
        }
        let key = self.requests.insert(Request::new(terms, now));
        self.join_local_queue(key, now, fx);
        Next::Entered(key)
    }

    /// The future of a request is polled: returns its next step.
    pub(super) fn on_poll(&mut self, key: Key, now: Moment, fx: &mut Effects) -> Next {
        let Some(request) = self.requests.get(key) else {
            return Next::Fail(Box::new(Error::Closed(Closing::ShutDown.text())));
        };
        let hold_is_over = match *request.phase {
            Phase::Handed { hold, .. } => self.requests.get(hold).is_none_or(|held| held.is_over(now)),
            _ => false,
        };
        self.on(key, On::Polled { hold_is_over }, now, fx)
    }

    /// A request whose grant was given back begins anew.
    pub(super) fn restart(&mut self, key: Key, now: Moment, fx: &mut Effects) -> Next {
        self.join_local_queue(key, now, fx);
        self.on_poll(key, now, fx)
    }

    /// Its grant came too late to be trusted. The store may still count it in, so its claim is released.
    pub(super) fn ask_anew(&mut self, key: Key, now: Moment, fx: &mut Effects) -> Next {
        let is_unknown = false;
        self.release_claim(key, is_unknown, now, fx);
        self.on_poll(key, now, fx)
    }

    /// The future asks the store, on its own task.
    pub(super) fn ask(&mut self, key: Key, now: Moment, fx: &mut Effects) -> Next {
        let Some(claim) = self.new_claim(key) else {
            let error = no_ids();
            self.fail(key, error.clone(), now, fx);
            return Next::Fail(Box::new(error));
        };
        if let Some(request) = self.requests.get_mut(key) {
            request.attempts += 1;
        }
        self.expect_answer(key, now, claim.ttl, fx);
        Next::Ask(AcquireCall { key, claim, sent: now, inline: true, unsure: false })
    }

    /// The future may never be polled again: the keeper asks beside it.
    fn expect_answer(&mut self, key: Key, from: Moment, ttl: Duration, fx: &mut Effects) {
        let grace = grace(ttl);
        self.requests.schedule_roughly(key, from + ask_beside_after(grace), grace);
        self.look_at_next(fx);
    }

    /// Makes a claim for a request that is about to ask. By 2, pushes find it from now on. `None` without an id.
    pub(super) fn new_claim(&mut self, key: Key) -> Option<Arc<Claim>> {
        let id = self.ids.pop()?;
        self.forget_claim(key);
        let block = self.block_for(key);
        let request = self.requests.get_mut(key)?;
        let claim = Arc::new(Claim {
            id,
            client: self.client,
            demands: request.terms.demands.clone(),
            ttl: request.terms.ttl(),
            block,
            floor: if Rule::FloorIsCarried.is_left_out() { Ticket(0) } else { self.largest_ticket },
            // Only a renewal exempts it from liveness, once it holds and its token was delivered.
            detached: false,
            note: Arc::clone(&request.terms.note),
        });
        self.key_by_claim.insert(claim.id.hash(), key);
        request.claim = Some(Arc::clone(&claim));
        request.lease_until = Moment::START;
        request.forget_early_ticket();
        request.unsure = false;
        request.is_doubted = false;
        // A call in flight is about an earlier claim, and its answer will be ignored.
        request.in_flight = false;
        Some(claim)
    }

    pub(super) fn forget_claim(&mut self, key: Key) {
        let Some(request) = self.requests.get_mut(key) else { return };
        let Some(claim) = request.claim.take() else { return };
        self.key_by_claim.remove(&claim.id.hash());
        if std::mem::take(&mut request.is_listed) {
            self.claims_to_unlist.push(claim.id.hash());
        }
    }

    /// The store answered the acquire of the request's own future.
    pub(super) fn on_admission(
        &mut self,
        asked: AcquireCall,
        answer: Result<Admission>,
        now: Moment,
        fx: &mut Effects,
    ) -> Next {
        let AcquireCall { key, claim, sent, inline, .. } = &asked;
        let (key, sent, inline) = (*key, *sent, *inline);
        if let Ok(Admission::Held(Tickets { first, .. }) | Admission::Queued { ticket: first, .. }) = &answer {
            self.note_ticket(Tickets::new(*first, claim.block).last());
        }
        let asks = |request: &&mut Request| {
            request.is_claim(claim) && matches!(*request.phase, Phase::Asking { .. } | Phase::Outside { .. })
        };
        let Some(request) = self.requests.get_mut(key).filter(asks) else {
            self.withdraw_late(asked, answer, now, fx);
            return Next::Nothing;
        };
        request.in_flight = false;
        if inline && (!matches!(answer, Ok(Admission::Held(_))) || valid_until(sent, claim.ttl) <= now) {
            // It is asked for again, and its own acquire was one of the five that it has in a second.
            RateLimit::note(request, sent);
        }
        let is_back = request.is_unanswered() && matches!(answer, Ok(Admission::Held(_) | Admission::Queued { .. }));
        let ack = Ack { sent: if Rule::LeaseCountsFromSending.is_left_out() { now } else { sent }, ttl: claim.ttl };
        let (answer, unanswered) = match answer {
            Ok(Admission::Held(tickets)) => (AcquireAnswer::Held { tickets, ack, inline }, None),
            Ok(Admission::Queued { ticket, recheck_in, position }) => {
                request.wait().position = position;
                (AcquireAnswer::Queued { ticket, ack, recheck_in }, None)
            }
            Ok(Admission::Sealed(value)) => {
                // The copy may run after the seal has ended.
                self.keep_out_if_unsure(key, now, fx);
                (AcquireAnswer::Sealed(value), None)
            }
            // This id is out, so it must not be used again: "gone" is said once and stays said.
            Ok(Admission::Gone(_) | Admission::Refused(_)) => (AcquireAnswer::Out, None),
            Err(error) if error.is_retryable() => {
                request.unsure = true;
                request.failures += 1;
                let cause = (request.failures == 1 && request.is_unanswered()).then(|| error.to_string());
                request.wait().last_error = Some(Box::new(error));
                (AcquireAnswer::Unknown { give_up_at: sent + UNAVAILABLE_AFTER }, cause)
            }
            Err(error) => {
                // By 1: an earlier acquire of this claim may still run, and would leave an entry that is never withdrawn.
                self.keep_out_if_unsure(key, now, fx);
                self.fail(key, error, now, fx);
                return Next::Nothing;
            }
        };
        self.on(key, On::Admitted(answer), now, fx);
        if let Some(cause) = unanswered {
            self.emit(key, EventKind::Unanswered { cause }, fx);
        }
        if is_back {
            self.emit(key, EventKind::Answered, fx);
        }
        Next::Nothing
    }

    /// The request gave this claim up while its acquire was in flight. By 1, it has to be withdrawn.
    fn withdraw_late(&mut self, asked: AcquireCall, answer: Result<Admission>, now: Moment, fx: &mut Effects) {
        match answer {
            _ if Rule::LateAnswerIsWithdrawn.is_left_out() => {}
            Ok(Admission::Held(_) | Admission::Queued { .. }) if !asked.unsure => {
                self.release_by_keeper(Leaving::Done(asked.claim), now, fx);
            }
            Err(_) => self.release_by_keeper(Leaving::Unknown(asked.claim), now, fx),
            // Whatever the answer to this copy says, an earlier copy may still run.
            Ok(_) if asked.unsure => self.release_by_keeper(Leaving::Unknown(asked.claim), now, fx),
            Ok(_) => {}
        }
    }

    /// The claim is in the queue.
    pub(super) fn queue(
        &mut self,
        key: Key,
        ticket: Ticket,
        Ack { sent, ttl }: Ack,
        recheck_in: Duration,
        now: Moment,
        fx: &mut Effects,
    ) {
        let Some(request) = self.requests.get_mut(key) else { return };
        request.note_lease(sent, ttl);
        let is_handed = request.early_ticket() == ticket;
        self.count_waiting(key, now, fx);
        if is_handed {
            self.hand(key, ticket, now, fx);
        } else {
            self.schedule_waiting(key, now + recheck_in, fx);
        }
    }

    /// The store says that the claim of a waiter holds, with this ticket.
    pub(super) fn hand(&mut self, key: Key, ticket: Ticket, now: Moment, fx: &mut Effects) {
        let Some(request) = self.requests.get(key) else { return };
        let block = request.claim.as_ref().map_or(1, |claim| claim.block);
        self.on(key, On::Pushed { ticket, block }, now, fx);
    }

    /// The lock is there for the request to pick up.
    pub(super) fn grant(&mut self, key: Key, tickets: Tickets, ack: Option<Ack>, now: Moment, fx: &mut Effects) {
        self.note_ticket(tickets.last());
        if let (Some(request), Some(Ack { sent, ttl })) = (self.requests.get_mut(key), ack) {
            request.note_lease(sent, ttl);
        }
        self.wake_for_grace(key, now, fx);
    }

    pub(super) fn wake_for_grace(&mut self, key: Key, now: Moment, fx: &mut Effects) {
        let Some(request) = self.requests.get(key) else { return };
        let grace = request.grace();
        fx.wake(key);
        match *request.phase {
            // One of many in a run of local hand-offs, which is nearly always picked up in time.
            Phase::Handed { .. } => self.requests.schedule_roughly(key, now + grace, grace),
            _ => self.requests.schedule(key, now + grace),
        }
        self.look_at_next(fx);
    }

    /// The keeper looks at the request as soon as it can.
    pub(super) fn look_now(&mut self, key: Key, fx: &mut Effects) {
        self.requests.schedule_now(key);
        fx.wakes_keeper = true;
    }

    /// The granted lock is picked up.
    pub(super) fn enter_granted(&mut self, key: Key, tickets: Tickets, now: Moment, fx: &mut Effects) -> Next {
        self.begin_run(key, tickets, now);
        self.enter_hold(key, tickets.first, now, fx)
    }

    /// From here on there is a guard.
    pub(super) fn enter_hold(&mut self, hold: Key, fence: Ticket, now: Moment, fx: &mut Effects) -> Next {
        let request = self.requests.get_mut(hold).expect("the table moved this request just now");
        let waited = now.since(request.since);
        request.since = now;
        request.fence = fence;
        request.drop_wait_state();
        if std::mem::take(&mut request.is_counted_waiting) {
            self.counters.remove_waiting();
        }
        let (until, why) = request.deadline();
        let terms = Arc::clone(&request.terms);
        self.counters.add_acquired(waited);
        self.emit(hold, EventKind::Acquired { waited }, fx);
        self.schedule_held(hold, fx);
        self.report_soon(now, fx);
        Next::Enter(GuardParts { hold, fence, terms, until, why })
    }

    /// The future learns how its request ended.
    pub(super) fn answer(&self, key: Key) -> Next {
        match self.requests.get(key).map(|request| &*request.phase) {
            Some(Phase::Sealed(value)) => Next::Sealed(bytes::Bytes::clone(value)),
            Some(Phase::Failed(error)) => Next::Fail(error.clone()),
            _ => Next::Wait,
        }
    }

    /// The acquire has no answer: its future sleeps until `until`. Until then, a claim that holds is no sign of an answer that
    /// the future has not read.
    pub(super) fn on_pause(&mut self, asked: &AcquireCall, until: Moment, now: Moment, fx: &mut Effects) {
        if self.still_asks(asked) {
            self.on(asked.key, On::Repeats, now, fx);
            self.expect_answer(asked.key, until, asked.claim.ttl, fx);
        }
    }

    /// The outcome of the acquire is unknown: the same again, from the request's own future. Nothing when the claim is not
    /// the request's any more.
    pub(super) fn on_repeat(&mut self, asked: &AcquireCall, now: Moment, fx: &mut Effects) -> Next {
        if !self.still_asks(asked) {
            return Next::Nothing;
        }
        let Some(request) = self.requests.get_mut(asked.key) else { return Next::Nothing };
        request.unsure = true;
        // Each acquire is one of the five that the request has in a second. Without one left, its future has no answer.
        RateLimit::note(request, asked.sent);
        if RateLimit::is_used_up(request, now) {
            return Next::Nothing;
        }
        request.attempts += 1;
        self.on(asked.key, On::Repeats, now, fx);
        self.expect_answer(asked.key, now, asked.claim.ttl, fx);
        Next::Ask(AcquireCall { sent: now, unsure: true, ..asked.clone() })
    }

    fn still_asks(&self, asked: &AcquireCall) -> bool {
        let request = self.requests.get(asked.key).filter(|request| request.is_claim(&asked.claim));
        request.is_some_and(|request| matches!(*request.phase, Phase::Asking { .. }))
    }

    /// A copy of a claim's acquire may still run, however late, and join the queue without a caller: a tombstone keeps its id out.
    pub(super) fn keep_out_if_unsure(&mut self, key: Key, now: Moment, fx: &mut Effects) {
        let unsure = self.requests.get(key).filter(|request| request.unsure).and_then(|request| request.claim.clone());
        if let Some(claim) = unsure {
            self.release_by_keeper(Leaving::Unknown(claim), now, fx);
        }
    }

    pub(super) fn ask_with_new_claim(&mut self, key: Key, now: Moment, fx: &mut Effects) {
        // A claim that was broken keeps its entry until it leaves.
        self.keep_out_if_unsure(key, now, fx);
        self.forget_claim(key);
        self.ask_later(key, Moment::NEVER, now, fx);
    }

    /// Leaves the asking to the keeper.
    pub(super) fn ask_later(&mut self, key: Key, give_up_at: Moment, now: Moment, fx: &mut Effects) {
        let Some(request) = self.requests.get(key) else { return };
        match request.failures {
            0 => self.requests.schedule_now(key),
            failures => {
                let pause = self.backoff(failures);
                self.requests.schedule(key, give_up_at.min(now + pause));
            }
        }
        fx.wakes_keeper = true;
    }
}

pub(super) fn no_ids() -> Error {
    Error::unavailable("drawing a claim id", "the operating system gave no random numbers")
}
