//! A client: its state, and its possible actions. Follows `lockfast/src/engine/`: acquiring and giving up (`acquire.rs`,
//! `withdraw.rs`, `rejoin.rs`), renewing (`renew.rs`), pushes (`push.rs`) and local hand-off (`handoff.rs`).
//!
//! A client here is one process with one request that the store may know of, and some tasks behind it. A grant is picked up at
//! once: the time between grant and guard in a real client only shortens the validity of the guard.

mod act;
mod receive;

use crate::messages::{Block, Call, Id, Verb};
use crate::setups::{Plan, Setup};
use crate::world::Action;

/// How much shorter local validity is than the lease, for clocks that drift.
pub const MARGIN: u8 = 1;

/// The phase of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// There is no request.
    Idle,
    /// An acquire was sent; whether its claim is in the queue is not known.
    Acquiring,
    /// In the queue.
    Waiting {
        /// It was granted the lock with little of its lease left, and renews before it enters.
        is_settling: bool,
        /// It will poll the store by itself.
        will_poll: bool,
    },
    /// There is a guard, valid or not.
    Inside {
        /// The guard's fencing token.
        fence: u8,
    },
    /// Between two tasks of this process, while the store decides whether another claim waits.
    Leaving,
    /// Dead.
    Crashed,
}

/// The call of a client that is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InFlight {
    /// No call.
    Nothing,
    /// A call that has not run yet.
    Sent(Call),
    /// A call that has run; its answer is in flight.
    Answered {
        /// The verb.
        verb: Verb,
        /// The answer.
        reply: Reply,
        /// Ticks since it was sent.
        age: u8,
    },
}

/// The part of an answer that matters to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// It holds.
    Held(Block),
    /// It waits.
    Waiting {
        /// Its ticket.
        ticket: u8,
        /// Whether the client will poll the store by itself.
        will_poll: bool,
    },
    /// It is not in the queue.
    Gone,
}

/// Whether a process gets to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pace {
    /// It runs, and has not been stopped yet.
    Running,
    /// It is stopped.
    Stopped,
    /// It was stopped once; that is enough for one search.
    Resumed,
}

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// The phase of its request.
    pub phase: Phase,
    /// Its call in flight.
    pub in_flight: InFlight,
    /// The id it uses.
    pub id: Id,
    /// How many more requests it may start.
    pub requests_left: u8,
    /// For how many more ticks it trusts the last lease that the store acknowledged.
    pub valid_ticks: u8,
    /// The tickets of its claim.
    pub block: Block,
    /// Tasks that wait behind the request.
    pub waiting_tasks: u8,
    /// Tasks that will still start to wait.
    pub later_tasks: u8,
    /// The ticket of a push that came before the answer.
    pub early_ticket: u8,
    /// An acquire of this id got no answer, and may still run.
    pub has_unanswered_acquire: bool,
    /// It has extended its lease once; that is enough for one search.
    pub has_extended: bool,
    /// Ids that it gave up without knowing whether they were in the queue: one bit for each serial number.
    pub withdrawn_ids: u8,
    /// Whether it runs.
    pub pace: Pace,
}

impl Client {
    /// A process with this plan.
    pub fn new(plan: &Plan) -> Self {
        Self {
            phase: Phase::Idle,
            in_flight: InFlight::Nothing,
            id: Id { client: plan.client, serial: 0 },
            requests_left: plan.requests,
            valid_ticks: 0,
            block: Block::default(),
            waiting_tasks: plan.waiting_tasks,
            later_tasks: plan.later_tasks,
            early_ticket: 0,
            has_unanswered_acquire: false,
            has_extended: !plan.extends,
            withdrawn_ids: 0,
            pace: Pace::Running,
        }
    }

    /// Whether it can do anything.
    pub fn is_running(&self) -> bool {
        self.phase != Phase::Crashed && self.pace != Pace::Stopped
    }

    /// Whether it is inside and trusts its lease.
    pub fn is_validly_inside(&self) -> bool {
        matches!(self.phase, Phase::Inside { .. }) && self.valid_ticks > 0
    }

    /// Whether at least half a lease is left: otherwise it renews before it enters.
    fn has_half_a_lease(&self, lease: u8) -> bool {
        self.valid_ticks * 2 >= lease
    }

    pub(crate) fn age(&mut self, lease: u8) {
        self.valid_ticks = self.valid_ticks.saturating_sub(1);
        match &mut self.in_flight {
            InFlight::Sent(call) => call.age += 1,
            // All answers older than any lease are equally worthless, so they are one state.
            InFlight::Answered { age, .. } => *age = (*age + 1).min(2 * lease),
            InFlight::Nothing => {}
        }
    }

    pub(crate) fn arrive(&mut self) {
        self.later_tasks -= 1;
        self.waiting_tasks += 1;
    }

    pub(crate) fn pause(&mut self) {
        self.pace = Pace::Stopped;
    }

    pub(crate) fn resume(&mut self) {
        self.pace = Pace::Resumed;
    }

    /// Its possible actions.
    pub(crate) fn actions(&self, c: usize, setup: &Setup, may_fail: bool, actions: &mut Vec<Action>) {
        let plan = &setup.plans[c];
        if self.phase == Phase::Crashed {
            return;
        }
        if self.pace == Pace::Stopped {
            actions.push(Action::Resume(c));
            return;
        }
        let (is_free, is_idle) = (self.in_flight == InFlight::Nothing, self.phase == Phase::Idle);
        // A renewal right after an answer brings nothing new; a law tries one all the same (`laws::progress`).
        let may_renew = is_free && self.valid_ticks < setup.lease - MARGIN;
        let mut add_if = |is_possible: bool, action| actions.extend(is_possible.then_some(action));
        add_if(is_idle && self.requests_left > 0, Action::Start(c));
        add_if(!is_idle && self.later_tasks > 0, Action::Arrive(c));
        add_if(!is_free && may_fail, Action::Timeout(c));
        add_if(plan.crashes && !is_idle, Action::Crash(c));
        add_if(plan.pauses && !is_idle && self.pace == Pace::Running, Action::Pause(c));
        match self.phase {
            Phase::Acquiring => {
                add_if(is_free, Action::RepeatAcquire(c));
                add_if(plan.cancels, Action::Cancel(c));
            }
            Phase::Waiting { is_settling, will_poll } => {
                add_if(may_renew && (will_poll || is_settling), Action::Renew(c));
                add_if(plan.cancels, Action::Cancel(c));
            }
            Phase::Inside { .. } => {
                add_if(may_renew && self.valid_ticks > 0, Action::Renew(c));
                let is_renewing =
                    matches!(&self.in_flight, InFlight::Sent(it) if matches!(it.verb, Verb::Renew { .. }));
                add_if(!self.has_extended && self.valid_ticks > 0 && (is_free || is_renewing), Action::Extend(c));
                add_if(true, Action::Release(c));
                add_if(may_fail && setup.skips && !plan.slow, Action::ReleaseSkipping(c));
                add_if(setup.writes, Action::Write(c));
            }
            Phase::Idle | Phase::Leaving | Phase::Crashed => {}
        }
    }
}
