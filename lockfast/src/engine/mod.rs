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
//! 2. A claim is in `key_by_claim` before it is sent, so that every push finds it.
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
pub use effect::{Effect, Effects, GuardParts, Next, UntimedEvent};
pub use input::{AcquireCall, Closing, Ending, Input, Release, ReleaseId, Renewal};
pub use lease::Validity;
pub(crate) use lease::{margin, valid_until};
#[cfg(feature = "engine")]
pub use phase::Phase;
pub use requests::Key;
pub use terms::{Span, Terms};
pub use view::Waiter;

use action::{Ack, Action, On};
use handoff::LocalQueues;
use phase::CurrentPhase;
use release::{TakenOverRelease, WatchedRelease};
use requests::Requests;

/// How long a request that has never been in the queue keeps asking a store that does not answer.
pub(crate) const UNAVAILABLE_AFTER: Duration = Duration::from_secs(10);
/// How often a call to the store is repeated: five calls in all, the number that a waiter has in one second (`RateLimit`).
pub(crate) const MAX_REPEATS: u32 = 4;

/// The requests of one client. See the [module](self).
pub struct Engine {
    requests: Requests,
    /// The request that each claim belongs to: pushes name claims.
    key_by_claim: ClaimMap<Key>,
    local_queues: LocalQueues,
    /// Releases that the keeper has to send, by the moment at which it sends them and a serial number.
    releases: BTreeMap<(Moment, u64), Release>,
    /// Releases that callers have sent, the oldest first; answered ones may still be here.
    watched_releases: VecDeque<WatchedRelease>,
    /// Releases that the keeper has taken over, whose callers do not know the outcome yet.
    taken_over_releases: BTreeMap<ReleaseId, TakenOverRelease>,
    /// Requests that fell out of the queue, in the order of their old tickets, with the moment from which on each may rejoin.
    rejoining: BTreeMap<(Ticket, Key), Moment>,
    /// Claims withdrawn while it was unknown whether they are in the queue, until their tombstones end. If a push says that one of
    /// them holds, it is withdrawn again.
    withdrawn_claims: ClaimMap<(Moment, Arc<Claim>)>,
    /// Listed claims that left since the last report: the next report takes them off the listing.
    claims_to_unlist: Vec<ClaimHash>,
    /// When the next report is due; never, while there is nothing to report.
    next_report_at: Moment,
    /// How many renewals of waiters are in flight. Their answers may show that more requests fell out of the queue.
    rechecks_in_flight: usize,
    /// How many acquires of requests that fell out of the queue are in flight.
    rejoins_in_flight: usize,
    /// 1 until the store has answered a rejoin, since it may be in trouble; then `rejoin::MAX_REJOINS`.
    max_rejoins_in_flight: usize,
    /// Names whose release reply was lost; it may have carried a grant.
    missed_names: Vec<Name>,
    /// When the keeper wakes up by itself. It has to be woken for work that is due earlier.
    keeper_wakes_at: Moment,
    /// Why no more requests are admitted; `None` while the client is open.
    closed: Option<Closing>,
    counters: ClientCounters,
    /// The totals that reports have delivered to the store so far.
    last_reported: Counters,
    /// When the last report was made.
    last_report_at: Moment,
    /// The latest expiry of a lease that a guard extended beyond its ttl; bounds the repeats of releases.
    latest_extended_expiry: Moment,
    /// The largest ticket seen: the `floor` of new claims, above which the store draws their tickets.
    largest_ticket: Ticket,
    client: ClientId,
    /// Ids for claims to come.
    ids: Vec<ClaimId>,
    /// Whether there were ids at the keeper's last look.
    had_ids: bool,
    /// The serial number drawn last.
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
            key_by_claim: ClaimMap::default(),
            local_queues: LocalQueues::default(),
            releases: BTreeMap::new(),
            watched_releases: VecDeque::new(),
            taken_over_releases: BTreeMap::new(),
            rejoining: BTreeMap::new(),
            withdrawn_claims: ClaimMap::default(),
            claims_to_unlist: Vec::new(),
            next_report_at: Moment::NEVER,
            rechecks_in_flight: 0,
            rejoins_in_flight: 0,
            max_rejoins_in_flight: 1,
            missed_names: Vec::new(),
            keeper_wakes_at: Moment::NEVER,
            closed: None,
            counters: ClientCounters::new(),
            last_reported: Counters::default(),
            last_report_at: Moment::START,
            latest_extended_expiry: Moment::START,
            largest_ticket: Ticket(0),
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
            Input::Polled(key) => self.on_poll(key, now, fx),
            Input::Admitted { asked, answer } => self.on_admission(asked, answer, now, fx),
            Input::Release { hold, ending } => self.release(hold, ending, now, fx),
            Input::Dropped(hold) => {
                self.end_hold(hold, now, fx);
                Next::Nothing
            }
            Input::Sent { leaving, hold, sent } => self.watch_release(leaving, hold, sent, fx),
            Input::Answered { release, waits } => self.unwatch_release(release, waits),
            Input::Elapsed => self.on_elapsed(now, fx),
            other => self.handle_rare(other, now, fx),
        }
    }

    /// Apart, so that the inputs of every acquisition stay small where they are handled.
    #[inline(never)]
    fn handle_rare(&mut self, input: Input, now: Moment, fx: &mut Effects) -> Next {
        match input {
            Input::Refused(key) => self.on_refusal(key, now, fx),
            Input::Pausing { asked, until } => self.on_pause(&asked, until, now, fx),
            Input::Repeating(asked) => return self.on_repeat(&asked, now, fx),
            Input::Withdrawn(key) => self.withdraw(key, now, fx),
            Input::TimedOut(key) => self.on_timeout(key, now, fx),
            Input::Unanswered { leaving, hold, waits } => {
                return self.on_unanswered_release(leaving, hold, waits, now, fx);
            }
            Input::Left { hold, claim, sent, standing } => {
                return match self.on_unless_alone_answer(hold, &claim, sent, standing, now, fx) {
                    Some(leaving) => Next::Send { leaving, keeps: false, lost: None },
                    None => Next::Done { lost: None },
                };
            }
            Input::Extended { renewal, sent, standing } => self.on_renewal_answer(&renewal, sent, &standing, now, fx),
            Input::LetGo(hold) => return Next::LetGo(self.let_go(hold, now, fx)),
            Input::TokenReleased => {
                self.counters.add_token_released();
                self.report_soon(now, fx);
            }
            Input::SeenOver(hold) => self.on_deadline_seen(hold, now, fx),
            Input::Close(why) => self.close(why, now, fx),
            Input::ReportNow => return self.report(now).map_or(Next::Nothing, |report| Next::Report(Box::new(report))),
            Input::Joined { asked, stood, answer } => self.on_keeper_admission(asked, stood, answer, now, fx),
            Input::Renewed { renewals, sent, answer } => self.on_renewal_batch(renewals, sent, answer, now, fx),
            Input::Released { releases, sent, answer } => self.on_release_batch(releases, sent, answer, now, fx),
            Input::Reported { report, is_ok } => self.on_report_answer(report, is_ok, now, fx),
            Input::Pushed(change) => self.on_push(&change, now, fx),
            Input::Missed(leaving) => {
                self.note_lost_reply(&leaving);
                fx.wakes_keeper |= !self.missed_names.is_empty();
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
        match CurrentPhase::change(request, on, now) {
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
            Action::PickUp(Ack { sent, ttl }) => request.note_lease(sent, ttl),
            Action::Queue { ticket, ack, recheck_in } => self.queue(key, ticket, ack, recheck_in, now, fx),
            Action::RenewFirst => {
                self.look_now(key, fx);
                return Next::Wait;
            }
            Action::NoteEarly(ticket) => request.wait().early_ticket = ticket,
            Action::AskWithNewClaim => self.ask_with_new_claim(key, now, fx),
            Action::AskLater(give_up_at) => {
                self.ask_later(key, give_up_at, now, fx);
                return Next::Wait;
            }
            Action::End => self.end_without_lock(key, now, fx),
            Action::LookAgain(at) => self.requests.schedule(key, at),
            Action::Forget(rest) => self.forget(key, rest, now, fx),
            Action::Rejoin(was) => self.rejoin_later(key, was, now, fx),
            Action::Join => self.join(key, now, fx),
            Action::GiveUp => self.give_up(key, now, fx),
            Action::Extend(ack) => self.extend(key, ack, now, fx),
            Action::Lease(Ack { sent, ttl }) => request.note_lease(sent, ttl),
            Action::Renew => self.renew(key, fx),
            Action::Recheck => self.recheck(key, now, fx),
            Action::StillWaiting { ack, recheck_in } => self.still_waiting(key, ack, recheck_in, now, fx),
            Action::AskOnceMore(ack) => self.ask_once_more(key, ack, fx),
            Action::AskBeside(until) => self.ask_beside(key, until, now, fx),
            Action::ExpectPoll => self.expect_poll(key, now, fx),
            Action::Lose(why) => self.lose(key, why, now, fx),
            Action::GiveBack { is_unknown } => self.give_back(key, is_unknown, now, fx),
            Action::StepAside => self.hand_lead_on(key, now, fx),
            Action::HandBack(hold) => self.end_hold(hold, now, fx),
            Action::GoOnWithoutAnswer => self.go_on_without_answer(key, now, fx),
        }
        Next::Nothing
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Tickets of later claims are higher than this one.
    fn note_ticket(&mut self, ticket: Ticket) {
        self.largest_ticket = self.largest_ticket.max(ticket);
    }

    fn count_waiting(&mut self, key: Key, now: Moment, fx: &mut Effects) {
        let Some(request) = self.requests.get_mut(key) else { return };
        if !std::mem::replace(&mut request.is_counted_waiting, true) {
            self.counters.add_waiting();
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
            fx.push(Effect::Emit(Box::new(UntimedEvent {
                terms: Arc::clone(&request.terms),
                owner: request.claim.as_ref().map(|claim| claim.id.hash()),
                fence: (request.fence.0 != 0).then_some(request.fence),
                kind,
            })));
        }
    }
}
