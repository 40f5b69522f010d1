//! The whole world in one state: the table, the clients, the messages in flight between them, and a fenced resource behind
//! each lock. Owns the possible actions, and time.
//!
//! Time is relative: every lease, deadline and message counts its own ticks, so worlds that differ only in when they began
//! are one state, and ticks need no limit. The search ends because each client may ask only so often, and because the number of
//! faults is limited (`Setup::faults`).
//!
//! A call runs within one lease of being sent or never, and a release is repeated until it has run, within the same time. All
//! other messages may be late without a limit.

use stateright::{Model, Property};

use crate::client::{Client, InFlight, Phase, Reply};
use crate::laws;
use crate::messages::{Call, Push, Standing, Verb};
use crate::notes::Notes;
use crate::rules::Rule;
use crate::setups::Setup;
use crate::table::{Execution, Table};

/// The resource behind a lock, which refuses a fence below the highest it has seen; and the highest fences that entered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fenced {
    /// The highest fence it accepted.
    pub accepted: u8,
    /// The highest fence that any holder entered with.
    pub entered: u8,
    /// The highest that an exclusive holder entered with.
    pub entered_alone: u8,
}

/// One state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The store.
    pub table: Table,
    /// The processes.
    pub clients: Vec<Client>,
    /// Calls whose answer is not awaited; sorted.
    pub strays: Vec<Call>,
    /// Pushes in flight; sorted.
    pub pushes: Vec<Push>,
    /// Behind each lock.
    pub fenced: [Fenced; 2],
    /// How many faults may still happen.
    pub faults: u8,
    /// Milestones and violations of the last step.
    pub notes: Notes,
}

/// A possible action. Numbers are clients, or indices in `strays` and `pushes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A request asks for the lock.
    Start(usize),
    /// A task joins the local queue, behind the request that waits or holds.
    Arrive(usize),
    /// An acquire without an answer is repeated.
    AskAgain(usize),
    /// The keeper renews, or asks for the standing of a waiter.
    Renew(usize),
    /// A holder extends its lease.
    Extend(usize),
    /// A holder is done.
    Release(usize),
    /// The same, and the first waiter to be granted the lock is taken for unreachable.
    ReleaseSkipping(usize),
    /// A request that asks or waits is cancelled.
    Cancel(usize),
    /// A holder writes with its fence, valid or not.
    Write(usize),
    /// The process dies without a release.
    Crash(usize),
    /// The process stops.
    Pause(usize),
    /// The process goes on.
    Resume(usize),
    /// The client stops waiting for an answer; the call may still run.
    Timeout(usize),
    /// The store runs a call whose answer is awaited.
    Run(usize),
    /// The same, and a copy of it stays in flight.
    RunTwice(usize),
    /// The same, and the first waiter to be granted the lock is taken for unreachable.
    RunSkipping(usize),
    /// The answer arrives.
    Answer(usize),
    /// The store runs a call whose answer is not awaited.
    Late(usize),
    /// The same, and a copy of it stays in flight.
    LateTwice(usize),
    /// The same, and the first waiter to be granted the lock is taken for unreachable.
    LateSkipping(usize),
    /// A push arrives.
    Push(usize),
    /// A push arrives, and will again.
    PushTwice(usize),
    /// A push is lost.
    LosePush(usize),
}

impl World {
    /// The initial state: no client has asked.
    pub fn new(setup: &Setup) -> Self {
        Self {
            table: Table::default(),
            clients: setup.plans.iter().map(Client::new).collect(),
            strays: Vec::new(),
            pushes: Vec::new(),
            fenced: [Fenced::default(); 2],
            faults: setup.faults,
            notes: Notes::default(),
        }
    }

    /// Adds a call whose answer is not awaited.
    pub fn stray(&mut self, call: Call) {
        if let Err(at) = self.strays.binary_search(&call) {
            self.strays.insert(at, call);
        }
    }

    fn run(&mut self, call: &Call, skips: bool, setup: &Setup) -> Standing {
        let mut execution = Execution::new(setup.rules, skips);
        let wish = setup.wish(usize::from(call.id.client));
        let standing = self.table.run(call, wish, &mut execution);
        self.notes |= execution.notes;
        let crashed = |world: &Self, id: u8| matches!(world.clients[usize::from(id)].phase, Phase::Crashed);
        let died = |held| execution.expired.iter().any(|(id, did_hold)| *did_hold == held && crashed(self, id.client));
        let two_died = died(true) && died(false);
        for push in execution.pushes {
            if crashed(self, push.id().client) {
                continue;
            }
            let is_held = matches!(push, Push::Held { .. });
            if is_held && two_died {
                self.notes |= Notes::TAKEN_FROM_TWO_DEAD;
            }
            if (is_held || setup.pushes_gone)
                && let Err(at) = self.pushes.binary_search(&push)
            {
                self.pushes.insert(at, push);
            }
        }
        standing
    }

    fn run_in_flight(&mut self, c: usize, skips: bool, setup: &Setup) {
        let InFlight::Asked(call) = self.clients[c].in_flight else { return };
        let reply = match self.run(&call, skips, setup) {
            Standing::Held(block) => Reply::Held(block),
            Standing::Waiting { ticket, position, .. } => {
                Reply::Waiting { ticket, alarm: position <= 1 || setup.rules.keep(Rule::AllWaitersRecheck) }
            }
            Standing::Gone => Reply::Gone,
        };
        self.clients[c].in_flight = InFlight::Answered { verb: call.verb, reply, age: call.age };
    }

    fn run_stray(&mut self, at: usize, stays: bool, skips: bool, setup: &Setup) {
        let call = self.strays[at];
        if !stays {
            self.strays.remove(at);
        }
        self.run(&call, skips, setup);
    }

    /// Whether no call has to run before the next tick.
    fn may_tick(&self, setup: &Setup) -> bool {
        let is_due = |call: &Call| call.age + 1 >= setup.lease;
        let awaited = self.clients.iter().any(|it| matches!(&it.in_flight, InFlight::Asked(call) if is_due(call)));
        !awaited && !self.strays.iter().any(|call| call.verb.is_release() && is_due(call))
    }

    fn tick(&mut self, setup: &Setup) {
        self.table.age();
        for client in &mut self.clients {
            client.age(setup.lease);
        }
        for call in &mut self.strays {
            call.age += 1;
        }
        self.strays.retain(|call| call.age < setup.lease);
        self.strays.sort_unstable();
        self.strays.dedup();
    }

    fn write(&mut self, c: usize, setup: &Setup) {
        let Phase::Inside { fence } = self.clients[c].phase else { return };
        let is_valid = self.clients[c].valid > 0;
        for (bit, fenced) in self.fenced.iter_mut().enumerate() {
            if setup.plans[c].names & (1 << bit) == 0 {
                continue;
            }
            if fence >= fenced.accepted {
                fenced.accepted = fence;
            } else if is_valid {
                self.notes |= Notes::VALID_WRITE_REFUSED;
            } else {
                self.notes |= Notes::STALE_WRITE_REFUSED;
            }
        }
    }

    fn push(&mut self, at: usize, stays: bool, setup: &Setup) {
        let push = self.pushes[at];
        if !stays {
            self.pushes.remove(at);
        }
        self.pushed(usize::from(push.id().client), push, setup);
    }

    fn step(&mut self, action: Action, setup: &Setup) {
        let costs = matches!(
            action,
            Action::Timeout(_)
                | Action::RunTwice(_)
                | Action::RunSkipping(_)
                | Action::ReleaseSkipping(_)
                | Action::LateTwice(_)
                | Action::LateSkipping(_)
                | Action::PushTwice(_)
        );
        self.faults -= u8::from(costs);
        match action {
            Action::Tick => self.tick(setup),
            Action::Start(c) => self.begin(c),
            Action::Arrive(c) => self.clients[c].arrive(),
            Action::AskAgain(c) => self.ask(c),
            Action::Renew(c) => self.renew(c, setup.lease),
            Action::Extend(c) => {
                self.clients[c].extended = true;
                self.renew(c, setup.longer());
            }
            Action::Release(c) | Action::ReleaseSkipping(c) => self.release(c, setup),
            Action::Cancel(c) => self.cancel(c, setup),
            Action::Write(c) => self.write(c, setup),
            Action::Crash(c) => self.crash(c),
            Action::Pause(c) => self.clients[c].pause(),
            Action::Resume(c) => self.clients[c].resume(),
            Action::Timeout(c) => self.timeout(c, setup),
            Action::Run(c) => self.run_in_flight(c, false, setup),
            Action::RunSkipping(c) => self.run_in_flight(c, true, setup),
            Action::RunTwice(c) => {
                if let InFlight::Asked(call) = self.clients[c].in_flight {
                    self.stray(call);
                }
                self.run_in_flight(c, false, setup);
            }
            Action::Answer(c) => self.answered(c, setup),
            Action::Late(at) => self.run_stray(at, false, false, setup),
            Action::LateTwice(at) => self.run_stray(at, true, false, setup),
            Action::LateSkipping(at) => self.run_stray(at, false, true, setup),
            Action::Push(at) => self.push(at, false, setup),
            Action::PushTwice(at) => self.push(at, true, setup),
            Action::LosePush(at) => drop(self.pushes.remove(at)),
        }
        self.call_promptly(matches!(action, Action::ReleaseSkipping(_)), setup);
    }

    /// The call of a client with a good connection is run and answered in the same step.
    fn call_promptly(&mut self, skips: bool, setup: &Setup) {
        let is_prompt = |call: &Call| !setup.plans[usize::from(call.id.client)].slow;
        loop {
            if let Some(at) = self.strays.iter().position(is_prompt) {
                self.run_stray(at, false, skips, setup);
                continue;
            }
            let asks = |client: &Client| matches!(&client.in_flight, InFlight::Asked(call) if is_prompt(call));
            let Some(c) = self.clients.iter().position(asks) else { return };
            self.run_in_flight(c, false, setup);
            self.answered(c, setup);
        }
    }

    fn store_actions(&self, setup: &Setup, actions: &mut Vec<Action>) {
        let fails = self.faults > 0;
        for (c, client) in self.clients.iter().enumerate() {
            match &client.in_flight {
                InFlight::Asked(call) => {
                    actions.push(Action::Run(c));
                    let is_acquire = matches!(call.verb, Verb::Acquire { .. });
                    if fails && (!is_acquire || !setup.rules.keep(Rule::AnsweredAcquireIsOver)) {
                        actions.push(Action::RunTwice(c));
                    }
                    if fails && setup.skips {
                        actions.push(Action::RunSkipping(c));
                    }
                }
                InFlight::Answered { .. } if client.is_running() => actions.push(Action::Answer(c)),
                _ => {}
            }
        }
        for at in 0..self.strays.len() {
            actions.push(Action::Late(at));
            if fails {
                actions.push(Action::LateTwice(at));
                actions.extend(setup.skips.then_some(Action::LateSkipping(at)));
            }
        }
        for (at, push) in self.pushes.iter().enumerate() {
            actions.push(Action::LosePush(at));
            if self.clients[usize::from(push.id().client)].is_running() {
                actions.push(Action::Push(at));
                actions.extend(fails.then_some(Action::PushTwice(at)));
            }
        }
    }
}

impl Model for Setup {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (c, client) in world.clients.iter().enumerate() {
            client.actions(c, self, world.faults > 0, actions);
        }
        world.store_actions(self, actions);
        if world.may_tick(self) {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut next = last.clone();
        next.notes = Notes::default();
        next.step(action, self);
        next.notes = next.notes.only(self.milestones);
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        laws::properties(self)
    }
}
