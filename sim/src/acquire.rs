//! How a caller gets a lock: the same steps as the client's own futures make.

use std::sync::Arc;
use std::time::Duration;

use lockfast::engine::{AcquireCall, Input, Key, Next, Span, Terms, Validity};
use lockfast::store::{Admission, Busy};
use lockfast::store::{Claim, Demand, Demands, Moment};
use lockfast::{Error, Result};

use crate::caller::{AcknowledgedEntry, Repeats, State};
use crate::faults::Kind;
use crate::invariants::{self, Invariant};
use crate::keeper::no_answer;
use crate::network::{CallPurpose, Reply, Request};
use crate::plan::{Ask, Cancel, CancelAt, Link};
use crate::schedule::{Event, Tick};
use crate::world::World;

/// How long the first answer is awaited at least, also by a caller whose patience ends before: the client's own limit.
const MIN_ANSWER_WAIT: Duration = Duration::from_millis(800);
/// How long any answer is awaited.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long after the first acquire the last repeat begins at the latest.
const REPEATS_BEGIN_WITHIN: Duration = Duration::from_secs(2);
/// How long after the first acquire the answer to a repeat is awaited.
const REPEATS_END_WITHIN: Duration = Duration::from_secs(3);
/// How often a future is polled in a row before something is wrong.
const MAX_POLLS: u32 = 16;

impl World<'_> {
    pub(crate) fn begin(&mut self, caller: u32) {
        let plan = &self.plan.callers[caller as usize];
        let terms = Arc::new(self.terms(caller));
        let it = &mut self.callers[caller as usize];
        if it.round >= plan.rounds || self.now > self.plan.ends {
            it.state = State::Finished;
            return;
        }
        it.round += 1;
        it.since = self.now;
        self.last_progress_at = self.now;
        it.terms = Some(Arc::clone(&terms));
        let (client, round) = (it.client, it.round);
        let skew = self.clients[client as usize].skew;
        let Next::Entered(key) = self.handle(client, Input::Enter(terms)) else {
            return self.rest(caller);
        };
        self.clients[client as usize].waiting.push((key, caller));
        let it = &mut self.callers[caller as usize];
        it.key = Some(key);
        it.patience = match plan.ask {
            Ask::Within(span) => skew.local(self.now) + span,
            Ask::Wait | Ask::Try => Moment::NEVER,
        };
        self.schedule.put(skew.time_of(it.patience), Event::Caller { caller, round, tick: Tick::Patience });
        if let Some(Cancel { every, at: CancelAt::AfterAsking(span) }) = plan.cancel
            && round.is_multiple_of(every)
        {
            self.schedule.put(self.now + span, Event::Caller { caller, round, tick: Tick::Cancel });
        }
        self.poll(caller);
    }

    fn terms(&self, caller: u32) -> Terms {
        let plan = &self.plan.callers[caller as usize];
        let demand = |(name, weight): &(usize, u32)| Demand {
            name: self.names[*name].name.clone(),
            capacity: self.plan.names[*name],
            weight: *weight,
        };
        let demands = Demands::of(plan.wants.iter().map(demand).collect()).expect("a plan names each name once");
        let cannot_share = matches!(&*demands, [only] if only.weight > only.capacity / 2);
        let is_plain = plan.hold_at_least.is_none() && plan.renew_every.is_some() && plan.ask != Ask::Try;
        Terms {
            demands,
            ttl: Span::of(plan.ttl),
            renew_every: plan.renew_every.map(Span::of),
            hold_at_least: plan.hold_at_least.map(Span::of),
            hold_at_most: plan.hold_at_most.map(Span::of),
            note: Arc::clone(&self.note),
            trace: [1; 16],
            validity: Validity::new(),
            hands_off: plan.hands_off && cannot_share && is_plain,
            detached: false,
        }
    }

    /// Polls the future of a request until it waits, holds or is over.
    pub(crate) fn poll(&mut self, caller: u32) {
        for _ in 0..MAX_POLLS {
            let it = &self.callers[caller as usize];
            let (client, Some(key)) = (it.client, it.key) else { return };
            match self.handle(client, Input::Polled(key)) {
                Next::Ask(asked) => return self.ask(caller, asked),
                Next::Enter(held) => return self.enter(caller, held),
                Next::Wait | Next::Nothing if self.plan.callers[caller as usize].ask == Ask::Try => {
                    return self.withdraw(caller);
                }
                Next::Wait | Next::Nothing if self.clients[client as usize].engine.is_waiting(key) => {
                    return self.sleep(caller);
                }
                // `Nothing` comes with a grant that is renewed before it is entered.
                Next::Wait | Next::Nothing => {}
                Next::Sealed(_) | Next::Fail(_) => return self.withdraw(caller),
                other => {
                    let seen = format!("{other:?}");
                    return self.fail(Invariant::Interface, "an action of the future of a request", seen);
                }
            }
        }
        self.fail(Invariant::Awake, "a future that waits", format!("caller {caller} is polled again and again"));
    }

    fn sleep(&mut self, caller: u32) {
        let it = &mut self.callers[caller as usize];
        it.state = State::Sleeping;
        if self.clients[it.client as usize].skew.local(self.now) >= it.patience {
            self.run_out_of_patience(caller);
        }
    }

    fn ask(&mut self, caller: u32, asked: AcquireCall) {
        let patience = self.callers[caller as usize].patience;
        let limit = patience.max(patience.min(asked.sent) + MIN_ANSWER_WAIT).min(asked.sent + CALL_TIMEOUT);
        // A repeat after the lease of the first would find it gone, and would be another attempt.
        let lease = asked.sent + invariants::trusted_for(asked.claim.ttl);
        let begin_before = (asked.sent + REPEATS_BEGIN_WITHIN).min(limit).min(lease);
        let repeats =
            Repeats { asked: None, begin_before, limit: limit.min(asked.sent + REPEATS_END_WITHIN), count: 0 };
        self.callers[caller as usize].repeats = repeats;
        self.send_ask(caller, asked, limit);
    }

    fn send_ask(&mut self, caller: u32, asked: AcquireCall, limit: Moment) {
        let client = self.callers[caller as usize].client;
        let busy = if self.plan.callers[caller as usize].ask == Ask::Try { Busy::Refuse } else { Busy::Wait };
        self.count_request(client, asked.key);
        let limit = limit.since(self.clients[client as usize].skew.local(self.now));
        let request = Request::Acquire(Arc::clone(&asked.claim), busy);
        let call = self.send(client, Link::Callers, request, limit, CallPurpose::Ask { caller, asked });
        let it = &mut self.callers[caller as usize];
        it.state = State::Asking;
        it.call = Some(call);
    }

    /// The answer to the acquire that a caller's own future sent; `None` at its limit.
    pub(crate) fn on_acquire_reply(&mut self, caller: u32, asked: AcquireCall, reply: Option<Reply>) {
        self.callers[caller as usize].call = None;
        match reply {
            Some(Reply::Admission(answer)) => {
                let client = self.callers[caller as usize].client;
                self.note_admission(client, &asked, &answer);
                self.on_admission(caller, asked, *answer);
            }
            Some(_) => self.ask_again(caller, asked),
            None => self.on_admission(caller, asked, Err(no_answer())),
        }
    }

    /// The outcome is unknown: the same acquire again, at once the first time, after a pause later on.
    fn ask_again(&mut self, caller: u32, asked: AcquireCall) {
        // As the client: four repeats of an attempt, one of a waiter's acquire, since the keeper sends later ones.
        let max_repeats = if self.plan.callers[caller as usize].ask == Ask::Try { 4 } else { 1 };
        let it = &mut self.callers[caller as usize];
        let (client, skew) = (it.client, self.clients[it.client as usize].skew);
        let now = skew.local(self.now);
        let at = if it.repeats.count == 0 { now } else { now + it.backoff(it.repeats.count) };
        if it.repeats.count == max_repeats || at >= it.repeats.begin_before {
            return self.on_admission(caller, asked, Err(no_answer()));
        }
        it.repeats.count += 1;
        it.state = State::Pausing;
        let round = it.round;
        it.repeats.asked = Some(asked.clone());
        self.handle(client, Input::Pausing { asked, until: at });
        self.schedule.put(skew.time_of(at), Event::Caller { caller, round, tick: Tick::Repeat });
    }

    pub(crate) fn repeat(&mut self, caller: u32) {
        let it = &mut self.callers[caller as usize];
        let (client, limit) = (it.client, it.repeats.limit);
        let Some(asked) = it.repeats.asked.take() else { return };
        match self.handle(client, Input::Repeating(asked.clone())) {
            Next::Ask(again) => self.send_ask(caller, again, limit),
            _ => self.on_admission(caller, asked, Err(no_answer())),
        }
    }

    fn on_admission(&mut self, caller: u32, asked: AcquireCall, answer: Result<Admission>) {
        let client = self.callers[caller as usize].client;
        if self.plan.callers[caller as usize].ask == Ask::Try {
            match &answer {
                Ok(Admission::Refused(_)) => {
                    self.handle(client, Input::Refused(asked.key));
                    self.forget_request(caller);
                    return self.rest(caller);
                }
                Err(Error::Unavailable { .. }) => return self.withdraw(caller),
                _ => {}
            }
        }
        self.handle(client, Input::Admitted { asked, answer });
        self.poll(caller);
    }

    pub(crate) fn run_out_of_patience(&mut self, caller: u32) {
        let it = &self.callers[caller as usize];
        let (client, Some(key)) = (it.client, it.key) else { return };
        match self.handle(client, Input::Polled(key)) {
            Next::Enter(held) => self.enter(caller, held),
            Next::Sealed(_) | Next::Fail(_) => self.withdraw(caller),
            _ => {
                self.bites.note(Kind::PatienceOver);
                self.abandon(client, key);
                self.handle(client, Input::TimedOut(key));
                self.forget_request(caller);
                self.rest(caller);
            }
        }
    }

    /// The future of a caller that does not hold is dropped.
    pub(crate) fn withdraw(&mut self, caller: u32) {
        let it = &mut self.callers[caller as usize];
        let (client, Some(key)) = (it.client, it.key) else { return };
        if let Some(call) = it.call.take() {
            self.calls.end(call);
        }
        self.abandon(client, key);
        self.handle(client, Input::Withdrawn(key));
        self.forget_request(caller);
        self.rest(caller);
    }

    /// Drops the future of a caller because the plan says so.
    pub(crate) fn cancel(&mut self, caller: u32) {
        let kind = match self.callers[caller as usize].state {
            State::Asking | State::Pausing => Kind::CancelledAsking,
            State::Sleeping => Kind::CancelledWaiting,
            State::Woken => Kind::CancelledAtGrant,
            _ => return,
        };
        self.bites.note(kind);
        self.withdraw(caller);
    }

    fn forget_request(&mut self, caller: u32) {
        let it = &mut self.callers[caller as usize];
        let key = it.key.take();
        self.clients[it.client as usize].waiting.retain(|(it, _)| Some(*it) != key);
    }

    /// A round is over; the next begins after a rest.
    pub(crate) fn rest(&mut self, caller: u32) {
        let plan = &self.plan.callers[caller as usize];
        let it = &mut self.callers[caller as usize];
        it.forget_round();
        it.state = if it.round >= plan.rounds { State::Finished } else { State::Resting };
        self.last_progress_at = self.now;
        if it.state == State::Resting {
            let rest = plan.rest.mul_f64(0.5 + it.random.f64());
            let event = Event::Caller { caller, round: it.round, tick: Tick::Begin };
            self.schedule.put(self.now + rest, event);
        }
    }

    pub(crate) fn note_admission_reply(&mut self, client: u32, asked: &AcquireCall, reply: &Reply) {
        if let Reply::Admission(answer) = reply {
            self.note_admission(client, asked, answer);
        }
    }

    /// Notes the entry of a waiter, once the store has acknowledged it.
    fn note_admission(&mut self, client: u32, asked: &AcquireCall, answer: &Result<Admission>) {
        let process = &self.clients[client as usize];
        let Some((_, caller)) = process.waiting.iter().find(|(key, _)| *key == asked.key) else { return };
        let is_last = process.engine.claim(asked.key).is_some_and(|(claim, _)| Arc::ptr_eq(&claim, &asked.claim));
        let owner = asked.claim.id.hash();
        let acknowledged = match answer {
            Ok(Admission::Queued { ticket, .. }) if is_last => {
                Some(AcknowledgedEntry { owner, ticket: *ticket, at: self.now })
            }
            _ => None,
        };
        self.callers[*caller as usize].acknowledged = acknowledged;
    }

    /// The store does not know the claim of a waiter any more.
    pub(crate) fn forget_acknowledged(&mut self, client: u32, key: Key, claim: &Claim) {
        let process = &self.clients[client as usize];
        let Some((_, caller)) = process.waiting.iter().find(|(it, _)| *it == key) else { return };
        let it = &mut self.callers[*caller as usize];
        it.acknowledged = it.acknowledged.filter(|acknowledged| acknowledged.owner != claim.id.hash());
    }
}
