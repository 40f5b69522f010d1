//! What a client makes of answers and pushes, and what it may do of its own accord. Follows `lockfast/src/client/`: asking
//! and giving up (`admit.rs`, `joining.rs`), renewing (`landing.rs`), pushes (`wakes.rs`) and local hand-off (`turn.rs`).
//!
//! A client here is one process with one party that the store may know of, and some tasks behind it. Its guard is picked up
//! at once, and a grant is a guard: what happens between the two in a real client only takes time from both.

mod hearing;
mod moving;

use crate::setups::{Plan, Setup};
use crate::words::{Block, Id, Request, Verb};
use crate::world::Action;

/// What local validity stays below the lease, for clocks that drift.
pub const MARGIN: u8 = 1;

/// How far a party is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It wants nothing.
    Idle,
    /// Whether it is in line is not known.
    Asking,
    /// In line.
    Waiting {
        /// It was handed the lock with little time left, and renews before it enters.
        settling: bool,
        /// It will ask again by itself.
        alarm: bool,
    },
    /// There is a guard. Whether it is still good is another question.
    Inside {
        /// The guard's fencing token.
        fence: u8,
    },
    /// Between two tasks of this process, while the store says whether others wait.
    Leaving,
    /// Dead.
    Crashed,
}

/// What a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flight {
    /// Nothing.
    Nothing,
    /// This has not run yet.
    Asked(Request),
    /// This has run; the answer is on its way.
    Answered {
        /// What was asked.
        verb: Verb,
        /// What the store said.
        reply: Reply,
        /// Ticks since it was sent.
        age: u8,
    },
}

/// What of an answer matters to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// It holds.
    Held(Block),
    /// It waits.
    Waiting {
        /// Its place.
        ticket: u8,
        /// Whether it asks again by itself.
        alarm: bool,
    },
    /// It is not in line.
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
    /// How far its party is.
    pub phase: Phase,
    /// What it waits for.
    pub flight: Flight,
    /// The id it uses.
    pub id: Id,
    /// How often it may still ask anew.
    pub asks: u8,
    /// Ticks for which it trusts the last lease that the store acknowledged.
    pub valid: u8,
    /// Its place in line, and the numbers that go with it.
    pub block: Block,
    /// Tasks that wait behind the party.
    pub behind: u8,
    /// Tasks that will still come.
    pub to_come: u8,
    /// The ticket of a push that came before the answer.
    pub early: u8,
    /// An acquire of this id got no answer, and may still run.
    pub unsure: bool,
    /// It has asked for more time once; that is enough for one search.
    pub extended: bool,
    /// Ids it gave up without knowing whether they were in line, one bit each.
    pub withdrawn: u8,
    /// Whether it runs.
    pub pace: Pace,
}

impl Client {
    /// A process with this plan.
    pub fn new(plan: &Plan) -> Self {
        Self {
            phase: Phase::Idle,
            flight: Flight::Nothing,
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
        match &mut self.flight {
            Flight::Asked(request) => request.age += 1,
            // An answer older than any lease is worth as little as a yet older one.
            Flight::Answered { age, .. } => *age = (*age + 1).min(2 * most),
            Flight::Nothing => {}
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

    /// What it may do of its own accord.
    pub(crate) fn actions(&self, c: usize, setup: &Setup, fails: bool, actions: &mut Vec<Action>) {
        let plan = &setup.plans[c];
        if self.phase == Phase::Crashed {
            return;
        }
        if self.pace == Pace::Stopped {
            actions.push(Action::Resume(c));
            return;
        }
        let (is_free, is_idle) = (self.flight == Flight::Nothing, self.phase == Phase::Idle);
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
                let renewing = matches!(&self.flight, Flight::Asked(it) if matches!(it.verb, Verb::Renew { .. }));
                may(!self.extended && self.valid > 0 && (is_free || renewing), Action::Extend(c));
                may(true, Action::Release(c));
                may(fails && setup.skips && !plan.slow, Action::ReleaseSkipping(c));
                may(setup.writes, Action::Write(c));
            }
            Phase::Idle | Phase::Leaving | Phase::Crashed => {}
        }
    }
}
