//! What a client makes of answers and pushes, and what it may do of its own accord. Follows `lockfast/src/client/`: asking
//! and giving up (`admit.rs`, `joining.rs`), renewing (`landing.rs`), pushes (`wakes.rs`) and local hand-over (`turn.rs`).
//!
//! A client here is one process with one party that the store may know of, and some tasks behind it. Its guard is picked up
//! at once, and a grant is a guard: what happens between the two in a real client only takes time from both.

use crate::notes::Notes;
use crate::rules::Rule;
use crate::setups::{Plan, Setup};
use crate::table::ALL;
use crate::words::{Block, Id, Push, Request, Verb};
use crate::world::{Action, World};

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

fn valid_for(ttl: u8, age: u8, setup: &Setup) -> u8 {
    let age = if setup.rules.keep(Rule::ValidFromSending) { age } else { 0 };
    ttl.saturating_sub(MARGIN + age)
}

impl World {
    /// Asks for somebody who has not asked yet, if it may.
    pub(crate) fn begin(&mut self, c: usize) {
        self.be_idle(c);
        let client = &mut self.clients[c];
        if client.asks > 0 {
            client.asks -= 1;
            client.id.serial += 1;
            client.phase = Phase::Asking;
            client.block.count = 1 + client.behind;
            self.ask(c);
        }
    }

    /// Asks again for a party whose claim is gone, or was given back.
    fn begin_anew(&mut self, c: usize, setup: &Setup) {
        self.begin(c);
        let client = &mut self.clients[c];
        if client.phase == Phase::Asking && !setup.rules.keep(Rule::NewIdAfterGone) {
            client.id.serial -= 1;
            self.ask(c);
        }
    }

    pub(crate) fn ask(&mut self, c: usize) {
        let client = &mut self.clients[c];
        let verb = Verb::Acquire { block: client.block.count, floor: 0 };
        client.flight = Flight::Asked(Request { id: client.id, verb, age: 0 });
    }

    pub(crate) fn renew(&mut self, c: usize, ttl: u8) {
        self.let_go(c);
        let client = &mut self.clients[c];
        let waits = matches!(client.phase, Phase::Waiting { .. });
        client.flight = Flight::Asked(Request { id: client.id, verb: Verb::Renew { ttl, waits }, age: 0 });
    }

    /// Stops waiting for an answer; what has not run yet still may.
    fn let_go(&mut self, c: usize) {
        if let Flight::Asked(request) = std::mem::replace(&mut self.clients[c].flight, Flight::Nothing) {
            self.stray(request);
        }
    }

    /// Tells the store that the claim leaves.
    fn depart(&mut self, c: usize, is_unknown: bool, setup: &Setup) {
        self.let_go(c);
        let client = &mut self.clients[c];
        let unsure = client.unsure && setup.rules.keep(Rule::UnsureLeavesAsUnknown);
        let verb = if is_unknown || unsure { Verb::Unknown } else { Verb::Done };
        if verb == Verb::Unknown {
            client.withdrawn |= 1 << client.id.serial;
        }
        let id = client.id;
        self.stray(Request { id, verb, age: 0 });
    }

    fn be_idle(&mut self, c: usize) {
        let client = &mut self.clients[c];
        (client.phase, client.flight, client.valid) = (Phase::Idle, Flight::Nothing, 0);
        (client.block, client.early, client.unsure) = (Block::default(), 0, false);
    }

    /// The party is out; the next task of the process, if any, asks for itself.
    fn hand_lead_on(&mut self, c: usize) {
        self.be_idle(c);
        if self.clients[c].behind > 0 {
            self.clients[c].behind -= 1;
            self.begin(c);
        }
    }

    pub(crate) fn release(&mut self, c: usize, setup: &Setup) {
        let client = &mut self.clients[c];
        let Phase::Inside { fence } = client.phase else { return };
        if client.valid > 0 && client.behind > 0 {
            if client.block.contains(fence + 1) && client.has_enough(setup.lease) {
                client.behind -= 1;
                self.enter(c, fence + 1, setup);
                self.notes |= Notes::PASSED_LOCALLY;
                return;
            }
            // Of all tickets it has seen only those of this claim matter here: the model's store never loses its counter.
            let (block, floor, id) = (client.behind, client.block.last(), client.id);
            self.let_go(c);
            self.clients[c].phase = Phase::Leaving;
            self.clients[c].flight = Flight::Asked(Request { id, verb: Verb::UnlessAlone { block, floor }, age: 0 });
            return;
        }
        self.depart(c, false, setup);
        self.hand_lead_on(c);
    }

    pub(crate) fn cancel(&mut self, c: usize, setup: &Setup) {
        let is_asking = self.clients[c].phase == Phase::Asking;
        self.depart(c, is_asking, setup);
        self.hand_lead_on(c);
    }

    pub(crate) fn crash(&mut self, c: usize) {
        self.let_go(c);
        self.be_idle(c);
        let client = &mut self.clients[c];
        (client.phase, client.asks, client.behind, client.to_come) = (Phase::Crashed, 0, 0, 0);
        client.pace = Pace::Running;
        (client.withdrawn, client.extended) = (0, true);
        self.pushes.retain(|push| usize::from(push.id().client) != c);
    }

    pub(crate) fn timeout(&mut self, c: usize, setup: &Setup) {
        self.let_go(c);
        match self.clients[c].phase {
            Phase::Asking => self.clients[c].unsure = true,
            Phase::Leaving => {
                // It may still hold; those here do not wait to find out.
                self.depart(c, false, setup);
                self.hand_lead_on(c);
            }
            _ => {}
        }
    }

    /// There is a guard, with this fence.
    fn enter(&mut self, c: usize, fence: u8, setup: &Setup) {
        let plan = &setup.plans[c];
        self.clients[c].phase = Phase::Inside { fence };
        self.clients[c].early = 0;
        for (bit, fenced) in self.fenced.iter_mut().enumerate() {
            if plan.names & (1 << bit) == 0 {
                continue;
            }
            let below = if plan.weight == ALL { fenced.entered } else { fenced.entered_alone };
            if fence <= below {
                self.notes |= Notes::FENCE_FELL;
            }
            fenced.entered = fenced.entered.max(fence);
            if plan.weight == ALL {
                fenced.entered_alone = fenced.entered_alone.max(fence);
            }
        }
        let readers =
            self.clients.iter().zip(&setup.plans).filter(|(it, plan)| it.is_validly_inside() && plan.weight < ALL);
        if readers.count() > 1 {
            self.notes |= Notes::SHARED;
        }
    }

    /// The store has said that the claim holds; `settled`: nothing is gained by renewing first.
    fn granted(&mut self, c: usize, block: Block, settled: bool, setup: &Setup) {
        let client = &mut self.clients[c];
        if client.valid == 0 {
            // Too late to be trusted; the store may still count us in, so it is told.
            self.notes |= Notes::TOO_LATE_GIVEN_BACK;
            self.depart(c, false, setup);
            self.begin_anew(c, setup);
        } else if !client.has_enough(setup.lease) && !settled {
            client.block = block;
            client.phase = Phase::Waiting { settling: true, alarm: true };
        } else {
            client.block = block;
            if let Phase::Waiting { settling, .. } = client.phase {
                if settling {
                    self.notes |= Notes::SETTLED_FIRST;
                }
                if setup.plans[c].names.count_ones() > 1 {
                    self.notes |= Notes::MULTI_ENTERED_AFTER_WAIT;
                }
            }
            self.enter(c, block.first, setup);
        }
    }

    fn rejoin(&mut self, c: usize, setup: &Setup) {
        self.begin_anew(c, setup);
        if self.clients[c].phase == Phase::Asking {
            self.notes |= Notes::REJOINED;
        }
    }

    pub(crate) fn answered(&mut self, c: usize, setup: &Setup) {
        let flight = std::mem::replace(&mut self.clients[c].flight, Flight::Nothing);
        let Flight::Answered { verb, reply, age } = flight else { return };
        match verb {
            Verb::Acquire { .. } => self.admitted(c, reply, valid_for(setup.lease, age, setup), setup),
            Verb::Renew { ttl, waits } => self.renewed(c, reply, valid_for(ttl, age, setup), waits, setup),
            Verb::UnlessAlone { .. } => self.turn_ended(c, reply, valid_for(setup.lease, age, setup), setup),
            Verb::Done | Verb::Unknown => {}
        }
    }

    fn admitted(&mut self, c: usize, reply: Reply, valid: u8, setup: &Setup) {
        let client = &mut self.clients[c];
        match reply {
            Reply::Held(block) => {
                client.valid = client.valid.max(valid);
                self.granted(c, block, true, setup);
            }
            Reply::Waiting { ticket, alarm } => {
                client.valid = client.valid.max(valid);
                client.block.first = ticket;
                client.phase = Phase::Waiting { settling: false, alarm };
                if std::mem::take(&mut client.early) == ticket {
                    let block = client.block;
                    self.handed(c, block, setup);
                }
            }
            Reply::Gone => self.rejoin(c, setup),
        }
    }

    fn renewed(&mut self, c: usize, reply: Reply, valid: u8, waits: bool, setup: &Setup) {
        let client = &mut self.clients[c];
        match (client.phase, reply) {
            // The store has forgotten the hand-over, or the claim.
            (Phase::Inside { .. }, Reply::Waiting { .. }) if !waits => client.valid = 0,
            (Phase::Inside { .. }, Reply::Gone) => client.valid = 0,
            // What was over once stays over.
            (Phase::Inside { .. }, _) if client.valid > 0 => client.valid = client.valid.max(valid),
            (Phase::Waiting { settling, .. }, Reply::Held(block)) => {
                client.valid = client.valid.max(valid);
                self.granted(c, block, settling, setup);
            }
            (Phase::Waiting { .. }, Reply::Waiting { alarm, .. }) => {
                client.valid = client.valid.max(valid);
                client.phase = Phase::Waiting { settling: false, alarm };
            }
            (Phase::Waiting { .. }, Reply::Gone) => self.rejoin(c, setup),
            _ => {}
        }
    }

    fn turn_ended(&mut self, c: usize, reply: Reply, valid: u8, setup: &Setup) {
        let client = &mut self.clients[c];
        let Reply::Held(block) = reply else {
            if client.unsure && setup.rules.keep(Rule::UnsureLeavesAsUnknown) {
                // A real client leaves without this word at the end of a turn, and its decision on unknown outcomes accepts
                // the ghost that may come of it (docs/adr/0012-unknown-outcome.md).
                self.depart(c, true, setup);
            }
            return self.hand_lead_on(c);
        };
        let was_over = client.valid == 0;
        client.valid = client.valid.max(valid);
        if was_over || !client.has_enough(setup.lease) || client.behind == 0 {
            self.depart(c, false, setup);
            return self.hand_lead_on(c);
        }
        client.block = block;
        client.behind -= 1;
        self.enter(c, block.first, setup);
    }

    /// A push has handed a waiting party the lock.
    fn handed(&mut self, c: usize, block: Block, setup: &Setup) {
        let client = &mut self.clients[c];
        let Phase::Waiting { settling, .. } = client.phase else { return };
        if !setup.rules.keep(Rule::PushAddsNoTime) {
            client.valid = setup.lease - MARGIN;
        }
        if !client.has_enough(setup.lease) && !settling {
            client.phase = Phase::Waiting { settling: true, alarm: true };
            return;
        }
        self.granted(c, block, settling, setup);
        if self.clients[c].is_validly_inside() {
            self.notes |= Notes::ENTERED_BY_PUSH;
        }
    }

    pub(crate) fn pushed(&mut self, c: usize, push: Push, setup: &Setup) {
        let client = &mut self.clients[c];
        if push.id() != client.id || client.phase == Phase::Idle {
            // It was in line after all, and got the lock that nobody here wants any more.
            if matches!(push, Push::Held { .. }) && client.withdrawn & (1 << push.id().serial) != 0 {
                self.stray(Request { id: push.id(), verb: Verb::Unknown, age: 0 });
            }
            return;
        }
        match (push, client.phase) {
            (Push::Held { ticket, block, .. }, Phase::Waiting { .. }) => {
                if ticket == client.block.first || !setup.rules.keep(Rule::PushMatchesTicket) {
                    self.handed(c, block, setup);
                } else {
                    self.notes |= Notes::STALE_PUSH_IGNORED;
                }
            }
            (Push::Held { ticket, .. }, Phase::Asking) => client.early = ticket,
            (Push::Gone { .. }, Phase::Waiting { .. }) if client.flight == Flight::Nothing => {
                self.renew(c, setup.lease)
            }
            (Push::Gone { .. }, Phase::Inside { .. }) if client.valid > 0 && client.flight == Flight::Nothing => {
                self.renew(c, setup.lease);
            }
            _ => {}
        }
    }
}
