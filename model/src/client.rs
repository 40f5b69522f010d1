//! A client: its state, and its possible actions. Follows `lockfast/src/engine/`: asking and giving up (`acquire.rs`,
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
    /// Whether its claim is in the queue is not known.
    Asking,
    /// In the queue.
    Waiting {
        /// It was granted the lock with little of its lease left, and renews before it enters.
        settling: bool,
        /// It will ask again by itself.
        alarm: bool,
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
    /// Nothing.
    Nothing,
    /// This has not run yet.
    Asked(Call),
    /// This has run; the answer is in flight.
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
        /// Whether it asks again by itself.
        alarm: bool,
    },
    /// It is not in the queue.
    Gone,
}

/// Whether a process gets to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pace {
    /// It does, and has not been stopped yet.
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
    /// How often it may still ask anew.
    pub asks: u8,
    /// Ticks for which it trusts the last lease that the store acknowledged.
    pub valid: u8,
    /// Its tickets.
    pub block: Block,
    /// Tasks that wait behind the request.
    pub behind: u8,
    /// Tasks that will still come.
    pub to_come: u8,
    /// The ticket of a push that came before the answer.
    pub early: u8,
    /// An acquire of this id got no answer, and may still run.
    pub unsure: bool,
    /// It has asked for more time once; that is enough for one search.
    pub extended: bool,
    /// Ids that it gave up without knowing whether they were in the queue, one bit each.
    pub withdrawn: u8,
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
            asks: plan.asks,
            valid: 0,
            block: Block::default(),
            behind: plan.behind,
            to_come: plan.to_come,
            early: 0,
            unsure: false,
            extended: !plan.extends,
            withdrawn: 0,
            pace: Pace::Running,
        }
    }

    /// Whether it can do anything.
    pub fn is_running(&self) -> bool {
        self.phase != Phase::Crashed && self.pace != Pace::Stopped
    }

    /// Whether it is inside and trusts its lease.
    pub fn is_validly_inside(&self) -> bool {
        matches!(self.phase, Phase::Inside { .. }) && self.valid > 0
    }

    fn has_enough(&self, lease: u8) -> bool {
        self.valid * 2 >= lease
    }

    pub(crate) fn age(&mut self, most: u8) {
        self.valid = self.valid.saturating_sub(1);
        match &mut self.in_flight {
            InFlight::Asked(call) => call.age += 1,
            // An answer older than any lease is worth as little as a yet older one.
            InFlight::Answered { age, .. } => *age = (*age + 1).min(2 * most),
            InFlight::Nothing => {}
        }
    }

    pub(crate) fn arrive(&mut self) {
        self.to_come -= 1;
        self.behind += 1;
    }

    pub(crate) fn pause(&mut self) {
        self.pace = Pace::Stopped;
    }

    pub(crate) fn resume(&mut self) {
        self.pace = Pace::Resumed;
    }

    /// Its possible actions.
    pub(crate) fn actions(&self, c: usize, setup: &Setup, fails: bool, actions: &mut Vec<Action>) {
        let plan = &setup.plans[c];
        if self.phase == Phase::Crashed {
            return;
        }
        if self.pace == Pace::Stopped {
            actions.push(Action::Resume(c));
            return;
        }
        let (is_free, is_idle) = (self.in_flight == InFlight::Nothing, self.phase == Phase::Idle);
        // Right after an answer another question brings nothing new; a law asks it all the same (`laws::progress`).
        let may_renew = is_free && self.valid < setup.lease - MARGIN;
        let mut may = |is_so: bool, action| actions.extend(is_so.then_some(action));
        may(is_idle && self.asks > 0, Action::Start(c));
        may(!is_idle && self.to_come > 0, Action::Arrive(c));
        may(!is_free && fails, Action::Timeout(c));
        may(plan.crashes && !is_idle, Action::Crash(c));
        may(plan.pauses && !is_idle && self.pace == Pace::Running, Action::Pause(c));
        match self.phase {
            Phase::Asking => {
                may(is_free, Action::AskAgain(c));
                may(plan.cancels, Action::Cancel(c));
            }
            Phase::Waiting { settling, alarm } => {
                may(may_renew && (alarm || settling), Action::Renew(c));
                may(plan.cancels, Action::Cancel(c));
            }
            Phase::Inside { .. } => {
                may(may_renew && self.valid > 0, Action::Renew(c));
                let renewing = matches!(&self.in_flight, InFlight::Asked(it) if matches!(it.verb, Verb::Renew { .. }));
                may(!self.extended && self.valid > 0 && (is_free || renewing), Action::Extend(c));
                may(true, Action::Release(c));
                may(fails && setup.skips && !plan.slow, Action::ReleaseSkipping(c));
                may(setup.writes, Action::Write(c));
            }
            Phase::Idle | Phase::Leaving | Phase::Crashed => {}
        }
    }
}
