//! The engine: everything hard about holding locks, once, for all primitives and all stores. A pure state machine over the
//! requests of one client: given an input and the time, it changes its state and returns effects. It has no clock, no I/O, no
//! wakers and no mutex. `client/` carries its effects out, and the simulation does the same in virtual time.
//!
//! ```text
//!   callers, keeper ──Input──▶ handle ──▶ facts ──▶ phase.rs: the table ──Action──▶ acquire, withdraw, rejoin, handoff,
//!                                                                                      │     release, renew, loss
//!   client/ carries out ◀──────────────────────── Next, Effects ◀──────────────────────┘
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `phase.rs`, `action.rs` | the phases of a request and the one table of how they change; the events and actions of its rows |
//! | `acquire.rs` | from `lock()` to the guard: asking, waiting, being granted |
//! | `withdraw.rs` | requests that end without a lock |
//! | `rejoin.rs` | requests that the keeper asks for; waiters that fell out of the queue, in their old order |
//! | `handoff.rs` | local hand-off: a hold passes between requests of one process without a round trip |
//! | `release.rs` | giving back: releases sent by the caller or the keeper, until the store has answered |
//! | `renew.rs` | leases: when they are renewed, and how the answers are handled |
//! | `loss.rs` | a hold that is not trusted any more; closing |
//! | `push.rs` | how pushes are handled, and lost ones made up for |
//! | `due.rs` | requests, releases and reports that are due, and when to look again |
//! | `report.rs`, `counters.rs` | the report to the store, at most once a second, and its counters |
//! | `request.rs`, `requests.rs`, `terms.rs`, `lease.rs` | one request; all of them and their alarms; their terms; validity |
//! | `input.rs`, `effect.rs`, `view.rs` | inputs, effects, and the state that can be read |
//! | `record.rs` | inputs and their effects, as lines of a file; read by `cargo xtask replay` |
//!
//! What must stay true:
//!
//! 1. A claim that may be in the store's queue belongs to a request, or there is a release for it, or it is in an acquire of
//!    the keeper's that is in flight, whose answer leads to one of the two. So no entry is left in a queue that is neither
//!    renewed nor withdrawn.
//! 2. A claim is in `by_hash` before it is sent, so that every push finds it.
//! 3. The state follows from the inputs alone: the same inputs at the same moments lead to the same effects. What is random
//!    comes in as input (`Input::Ids`), or from a generator with a given seed (jitter). Only whether events are made is set
//!    beside (`Engine::set_event_rank`).

#![allow(unreachable_pub, reason = "public only with the feature `engine`, for the simulation and for replaying")]

mod acquire;
mod action;
mod counters;
mod due;
mod effect;
mod handoff;
mod input;
mod lease;
mod loss;
mod phase;
mod push;
#[cfg(test)]
mod random;
#[cfg(feature = "record")]
pub mod record;
mod rejoin;
mod release;
mod renew;
mod report;
mod request;
mod requests;
mod terms;
#[cfg(test)]
mod tests;
mod view;
mod withdraw;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::claim::{Claim, ClaimHash, ClaimId, ClaimMap, ClientId, Ticket};
use crate::clock::Moment;
use crate::event::EventKind;
use crate::name::Name;
use crate::store::Counters;

use counters::ClientCounters;
pub use counters::{Percentiles, Stats};
pub(crate) use due::jittered;
pub use effect::{Effect, Effects, Emitted, Held, Next};
pub use input::{Asking, Closing, Ending, Input, Release, ReleaseId, Renewal};
pub use lease::Validity;
pub(crate) use lease::{margin, valid_until};
#[cfg(feature = "engine")]
pub use phase::Phase;
pub use requests::Key;
pub use terms::{Span, Terms};
pub use view::Waiter;

use action::{Ack, Action, On};
use handoff::LocalQueues;
use phase::Current;
use release::{Sent, TakenOver};
use requests::Requests;

/// How long a request that has never been in the queue keeps asking a store that does not answer.
pub(crate) const UNAVAILABLE_AFTER: Duration = Duration::from_secs(10);
/// How often a request is repeated at most.
pub(crate) const MOST_REPEATS: u32 = 4;

/// The requests of one client. See the [module](self).
pub struct Engine {
    requests: Requests,
    by_hash: ClaimMap<Key>,
    local_queues: LocalQueues,
    /// Releases that the keeper has to send, and when.
    releases: BTreeMap<(Moment, u64), Release>,
    /// Releases that callers have sent, the oldest first; answered ones may still be here.
    sent: VecDeque<Sent>,
    /// Releases that the keeper has taken over, whose callers do not know the outcome yet.
    taken_over: BTreeMap<ReleaseId, TakenOver>,
    /// Requests that fell out of the queue, in the order of their old tickets, and from when on each may rejoin.
    rejoining: BTreeMap<(Ticket, Key), Moment>,
    /// Claims withdrawn while it was unknown whether they are in the queue. If a push finds one there, it is withdrawn again.
    withdrawn: ClaimMap<(Moment, Arc<Claim>)>,
    /// Listed claims that left since the last report.
    unlisted: Vec<ClaimHash>,
    /// When to report, if there is something to say.
    report_at: Moment,
    /// How many renewals of waiters are in flight: their answers may name more that fell out of the queue.
    rechecks: usize,
    /// How many rejoins are in flight.
    rejoins: usize,
    /// How many may be: one until the store has answered one.
    most_rejoins: usize,
    /// Names whose release reply was lost; it may have carried a grant.
    missed: Vec<Name>,
    /// Until when the keeper sleeps at most.
    wakes_at: Moment,
    /// Why no more requests are admitted.
    closed: Option<Closing>,
    counters: ClientCounters,
    /// The counters that the store has been sent so far.
    reported: Counters,
    /// When the last report was made.
    reported_at: Moment,
    /// Latest expiry granted by an extension; bounds the repeats of releases.
    extended_until: Moment,
    /// The largest ticket seen.
    floor: Ticket,
    client: ClientId,
    ids: Vec<ClaimId>,
    /// Whether there were ids when the keeper looked last.
    had_ids: bool,
    serial: u64,
    jitter: fastrand::Rng,
    /// Events up to this rank have a subscriber; others are not made.
    event_rank: u8,
}

impl Engine {
    /// An engine without requests. The seed is for jitter.
    pub fn new(client: ClientId, seed: u64) -> Self {
        Self {
            requests: Requests::default(),
            by_hash: ClaimMap::default(),
            local_queues: LocalQueues::default(),
            releases: BTreeMap::new(),
            sent: VecDeque::new(),
            taken_over: BTreeMap::new(),
            rejoining: BTreeMap::new(),
            withdrawn: ClaimMap::default(),
            unlisted: Vec::new(),
            report_at: Moment::NEVER,
            rechecks: 0,
            rejoins: 0,
            most_rejoins: 1,
            missed: Vec::new(),
            wakes_at: Moment::NEVER,
            closed: None,
            counters: ClientCounters::new(),
            reported: Counters::default(),
            reported_at: Moment::START,
            extended_until: Moment::START,
            floor: Ticket(0),
            client,
            ids: Vec::new(),
            had_ids: false,
            serial: 0,
            jitter: fastrand::Rng::with_seed(seed),
            event_rank: 0,
        }
    }

    /// The only way to change the state of an engine.
    #[inline(always)]
    pub fn handle(&mut self, input: Input, now: Moment, fx: &mut Effects) -> Next {
        match input {
            Input::Enter(terms) => self.enter(terms, now, fx),
            Input::Polled(key) => self.polled(key, now, fx),
            Input::Admitted { asked, answer } => self.admitted(asked, answer, now, fx),
            Input::Release { hold, ending } => self.release(hold, ending, now, fx),
            Input::Dropped(hold) => {
                self.end_hold(hold, now, fx);
                Next::Nothing
            }
            Input::Sent { leaving, hold, sent } => self.watch_release(leaving, hold, sent, fx),
            Input::Answered { release, waits } => self.answered(release, waits),
            Input::Elapsed => self.elapsed(now, fx),
            other => self.handle_rare(other, now, fx),
        }
    }

    /// Apart, so that the inputs of every acquisition stay small where they are handled.
    #[inline(never)]
    fn handle_rare(&mut self, input: Input, now: Moment, fx: &mut Effects) -> Next {
        match input {
            Input::Refused(key) => self.refused(key, now, fx),
            Input::Pausing { asked, until } => self.pausing(&asked, until, now, fx),
            Input::Repeating(asked) => return self.repeating(&asked, now, fx),
            Input::Withdrawn(key) => self.withdraw(key, now, fx),
            Input::TimedOut(key) => self.timed_out(key, now, fx),
            Input::Unanswered { leaving, hold, waits } => return self.unanswered(leaving, hold, waits, now, fx),
            Input::Left { hold, claim, sent, standing } => {
                return match self.left(hold, &claim, sent, standing, now, fx) {
                    Some(leaving) => Next::Send { leaving, keeps: false, lost: None },
                    None => Next::Done { lost: None },
                };
            }
            Input::Extended { renewal, sent, standing } => self.renewed(&renewal, sent, &standing, now, fx),
            Input::LetGo(hold) => return Next::LetGo(self.let_go(hold, now, fx)),
            Input::TokenReleased => {
                self.counters.given_back();
                self.report_soon(now, fx);
            }
            Input::SeenOver(hold) => self.seen_over(hold, now, fx),
            Input::Close(why) => self.close(why, now, fx),
            Input::ReportNow => return self.report(now).map_or(Next::Nothing, |report| Next::Report(Box::new(report))),
            Input::Joined { asked, stood, answer } => self.joined(asked, stood, answer, now, fx),
            Input::Renewed { renewals, sent, answer } => self.renewals_answered(renewals, sent, answer, now, fx),
            Input::Released { releases, sent, answer } => self.released(releases, sent, answer, now, fx),
            Input::Reported { report, is_ok } => self.reported(report, is_ok, now, fx),
            Input::Pushed(change) => self.pushed(&change, now, fx),
            Input::Missed(leaving) => {
                self.may_have_missed(&leaving);
                fx.wakes_keeper |= !self.missed.is_empty();
            }
            Input::Ids(ids) => self.ids.extend(ids),
            Input::Enter(_)
            | Input::Polled(_)
            | Input::Admitted { .. }
            | Input::Release { .. }
            | Input::Dropped(_)
            | Input::Sent { .. }
            | Input::Answered { .. }
            | Input::Elapsed => {}
        }
        Next::Nothing
    }

    /// Applies an event to a request: the table changes its phase, and the action is done. Inlined, so that each caller has only
    /// its own rows of the table.
    #[inline(always)]
    fn on(&mut self, key: Key, on: On<'_>, now: Moment, fx: &mut Effects) -> Next {
        let Some(request) = self.requests.get_mut(key) else { return Next::Nothing };
        match Current::change(request, on, now) {
            Action::Nothing => {}
            Action::Wait => return Next::Wait,
            Action::Ask => return self.ask(key, now, fx),
            Action::Restart => return self.restart(key, now, fx),
            Action::AskAnew => return self.ask_anew(key, now, fx),
            Action::Answer => return self.answer(key),
            Action::Enter(tickets) => return self.enter_granted(key, tickets, now, fx),
            Action::TakeOver(hold, ticket) => return self.take_over(key, hold, ticket, now, fx),
            Action::TakeLead(hold) => return self.take_lead(key, hold, now, fx),
            Action::CountWaiting => self.count_waiting(key, now, fx),
            Action::WakeForGrace => self.wake_for_grace(key, now, fx),
            Action::Grant(tickets, ack) => self.grant(key, tickets, ack, now, fx),
            Action::PickUp(Ack { sent, ttl }) => request.leased(sent, ttl),
            Action::Queue { ticket, ack, recheck_in } => self.queue(key, ticket, ack, recheck_in, now, fx),
            Action::Settle => {
                self.look_now(key, fx);
                return Next::Wait;
            }
            Action::NoteEarly(ticket) => request.wait().early = ticket,
            Action::AskWithNewClaim => self.ask_with_new_claim(key, now, fx),
            Action::AskLater(give_up_at) => {
                self.ask_later(key, give_up_at, now, fx);
                return Next::Wait;
            }
            Action::End => self.end_without_lock(key, now, fx),
            Action::LookAgain(at) => self.requests.schedule(key, at),
            Action::Forget(rest) => self.forget(key, rest, now, fx),
            Action::Rejoin(was) => self.fell_out(key, was, now, fx),
            Action::Join => self.join(key, now, fx),
            Action::GiveUp => self.give_up(key, now, fx),
            Action::Extend(ack) => self.extend(key, ack, now, fx),
            Action::Lease(Ack { sent, ttl }) => request.leased(sent, ttl),
            Action::Renew => self.renew(key, fx),
            Action::Recheck => self.recheck(key, now, fx),
            Action::StillWaiting { ack, recheck_in } => self.still_waiting(key, ack, recheck_in, now, fx),
            Action::AskOnceMore(ack) => self.ask_once_more(key, ack, fx),
            Action::AskBeside(until) => self.ask_beside(key, until, now, fx),
            Action::ExpectPoll => self.expect_poll(key, now, fx),
            Action::Lose(why) => self.lose(key, why, now, fx),
            Action::GiveBack(is_unknown) => self.give_back(key, is_unknown, now, fx),
            Action::StepAside => self.hand_lead_on(key, now, fx),
            Action::HandBack(hold) => self.end_hold(hold, now, fx),
            Action::GoOnWithoutAnswer => self.go_on_without_answer(key, now, fx),
        }
        Next::Nothing
    }

    fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Tickets of later claims are higher than this one.
    fn saw(&mut self, ticket: Ticket) {
        self.floor = self.floor.max(ticket);
    }

    fn count_waiting(&mut self, key: Key, now: Moment, fx: &mut Effects) {
        let Some(request) = self.requests.get_mut(key) else { return };
        if !std::mem::replace(&mut request.counted, true) {
            self.counters.began_waiting();
            self.emit(key, EventKind::Waiting, fx);
            self.report_soon(now, fx);
        }
    }

    /// Makes an event, if it has a subscriber.
    #[inline]
    fn emit(&self, key: Key, kind: EventKind, fx: &mut Effects) {
        if self.event_rank >= kind.rank()
            && let Some(request) = self.requests.get(key)
        {
            fx.push(Effect::Emit(Box::new(Emitted {
                terms: Arc::clone(&request.terms),
                owner: request.claim.as_ref().map(|claim| claim.id.hash()),
                fence: (request.fence.0 != 0).then_some(request.fence),
                kind,
            })));
        }
    }
}
