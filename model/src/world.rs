//! The whole world in one state: the table, the clients, the messages in flight between them, and a fenced resource behind
//! each lock. Owns the possible actions, and time.
//!
//! Time is relative: every lease, deadline and message counts its own ticks, so worlds that differ only in when they began
//! are one state, and ticks need no limit. The search ends because the numbers of requests (`Plan::requests`) and of faults
//! (`Setup::faults`) are limited.
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
use crate::table::{Execution, NextWaiter, Table};

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
    pub unawaited_calls: Vec<Call>,
    /// Pushes in flight; sorted.
    pub pushes: Vec<Push>,
    /// The resource behind each lock.
    pub fenced: [Fenced; 2],
    /// How many faults may still happen.
    pub faults_left: u8,
    /// Milestones and violations of the last step.
    pub notes: Notes,
}

/// Whether a message stays in flight when it is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    /// It leaves the messages in flight.
    Last,
    /// A copy of it stays in flight.
    Repeated,
}

/// A possible action. Numbers are clients, or indices in `unawaited_calls` and `pushes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A request for the lock starts.
    Start(usize),
    /// A task joins the local queue, behind the request that waits or holds.
    Arrive(usize),
    /// An acquire without an answer is repeated.
    RepeatAcquire(usize),
    /// The keeper renews the claim of a holder or a waiter.
    Renew(usize),
    /// A holder extends its lease.
    Extend(usize),
    /// A holder is done.
    Release(usize),
    /// The same, and the first waiter to be granted the lock is taken for unreachable.
    ReleaseSkipping(usize),
    /// A request without a guard is cancelled.
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
    DeliverAnswer(usize),
    /// The store runs a call whose answer is not awaited.
    RunUnawaited(usize),
    /// The same, and a copy of it stays in flight.
    RunUnawaitedTwice(usize),
    /// The same, and the first waiter to be granted the lock is taken for unreachable.
    RunUnawaitedSkipping(usize),
    /// A push arrives.
    DeliverPush(usize),
    /// A push arrives, and a copy of it stays in flight.
    DeliverPushTwice(usize),
    /// A push is lost.
    LosePush(usize),
}

impl World {
    /// The initial state: no client has sent anything.
    pub fn new(setup: &Setup) -> Self {
        Self {
            table: Table::default(),
            clients: setup.plans.iter().map(Client::new).collect(),
            unawaited_calls: Vec::new(),
            pushes: Vec::new(),
            fenced: [Fenced::default(); 2],
            faults_left: setup.faults,
            notes: Notes::default(),
        }
    }

    /// Adds a call whose answer is not awaited.
    pub fn send_unawaited(&mut self, call: Call) {
        if let Err(at) = self.unawaited_calls.binary_search(&call) {
            self.unawaited_calls.insert(at, call);
        }
    }

    fn run(&mut self, call: &Call, next_waiter: NextWaiter, setup: &Setup) -> Standing {
        let mut execution = Execution::new(setup.rules, next_waiter);
        let claim_spec = setup.claim_spec(usize::from(call.id.client));
        let standing = self.table.run(call, claim_spec, &mut execution);
        self.notes |= execution.notes;
        let is_crashed = |world: &Self, client: u8| matches!(world.clients[usize::from(client)].phase, Phase::Crashed);
        let has_died =
            |held| execution.expired.iter().any(|(id, did_hold)| *did_hold == held && is_crashed(self, id.client));
        // A dead holder and a dead waiter.
        let two_died = has_died(true) && has_died(false);
        for push in execution.pushes {
            if is_crashed(self, push.id().client) {
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

    fn run_in_flight(&mut self, c: usize, next_waiter: NextWaiter, setup: &Setup) {
        let InFlight::Sent(call) = self.clients[c].in_flight else { return };
        let reply = match self.run(&call, next_waiter, setup) {
            Standing::Held(block) => Reply::Held(block),
            Standing::Waiting { ticket, position, .. } => {
                Reply::Waiting { ticket, will_poll: position <= 1 || setup.rules.keeps(Rule::AllWaitersRecheck) }
            }
            Standing::Gone => Reply::Gone,
        };
        self.clients[c].in_flight = InFlight::Answered { verb: call.verb, reply, age: call.age };
    }

    fn run_unawaited(&mut self, at: usize, delivery: Delivery, next_waiter: NextWaiter, setup: &Setup) {
        let call = self.unawaited_calls[at];
        if delivery == Delivery::Last {
            self.unawaited_calls.remove(at);
        }
        self.run(&call, next_waiter, setup);
    }

    /// Whether no call has to run before the next tick.
    fn may_tick(&self, setup: &Setup) -> bool {
        let is_due = |call: &Call| call.age + 1 >= setup.lease;
        let is_awaited_due =
            self.clients.iter().any(|it| matches!(&it.in_flight, InFlight::Sent(call) if is_due(call)));
        !is_awaited_due && !self.unawaited_calls.iter().any(|call| call.verb.is_release() && is_due(call))
    }

    fn tick(&mut self, setup: &Setup) {
        self.table.age();
        for client in &mut self.clients {
            client.age(setup.lease);
        }
        for call in &mut self.unawaited_calls {
            call.age += 1;
        }
        self.unawaited_calls.retain(|call| call.age < setup.lease);
        self.unawaited_calls.sort_unstable();
        self.unawaited_calls.dedup();
    }

    fn write(&mut self, c: usize, setup: &Setup) {
        let Phase::Inside { fence } = self.clients[c].phase else { return };
        let is_valid = self.clients[c].valid_ticks > 0;
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

    fn deliver_push(&mut self, at: usize, delivery: Delivery, setup: &Setup) {
        let push = self.pushes[at];
        if delivery == Delivery::Last {
            self.pushes.remove(at);
        }
        self.on_push(usize::from(push.id().client), push, setup);
    }

    fn step(&mut self, action: Action, setup: &Setup) {
        let is_fault = matches!(
            action,
            Action::Timeout(_)
                | Action::RunTwice(_)
                | Action::RunSkipping(_)
                | Action::ReleaseSkipping(_)
                | Action::RunUnawaitedTwice(_)
                | Action::RunUnawaitedSkipping(_)
                | Action::DeliverPushTwice(_)
        );
        self.faults_left -= u8::from(is_fault);
        match action {
            Action::Tick => self.tick(setup),
            Action::Start(c) => self.start_request(c),
            Action::Arrive(c) => self.clients[c].arrive(),
            Action::RepeatAcquire(c) => self.send_acquire(c),
            Action::Renew(c) => self.send_renewal(c, setup.lease),
            Action::Extend(c) => {
                self.clients[c].has_extended = true;
                self.send_renewal(c, setup.extended_lease());
            }
            Action::Release(c) | Action::ReleaseSkipping(c) => self.release(c, setup),
            Action::Cancel(c) => self.cancel(c, setup),
            Action::Write(c) => self.write(c, setup),
            Action::Crash(c) => self.crash(c),
            Action::Pause(c) => self.clients[c].pause(),
            Action::Resume(c) => self.clients[c].resume(),
            Action::Timeout(c) => self.timeout(c, setup),
            Action::Run(c) => self.run_in_flight(c, NextWaiter::Reachable, setup),
            Action::RunSkipping(c) => self.run_in_flight(c, NextWaiter::Unreachable, setup),
            Action::RunTwice(c) => {
                if let InFlight::Sent(call) = self.clients[c].in_flight {
                    self.send_unawaited(call);
                }
                self.run_in_flight(c, NextWaiter::Reachable, setup);
            }
            Action::DeliverAnswer(c) => self.on_reply(c, setup),
            Action::RunUnawaited(at) => self.run_unawaited(at, Delivery::Last, NextWaiter::Reachable, setup),
            Action::RunUnawaitedTwice(at) => self.run_unawaited(at, Delivery::Repeated, NextWaiter::Reachable, setup),
            Action::RunUnawaitedSkipping(at) => self.run_unawaited(at, Delivery::Last, NextWaiter::Unreachable, setup),
            Action::DeliverPush(at) => self.deliver_push(at, Delivery::Last, setup),
            Action::DeliverPushTwice(at) => self.deliver_push(at, Delivery::Repeated, setup),
            Action::LosePush(at) => drop(self.pushes.remove(at)),
        }
        let next_waiter = match action {
            Action::ReleaseSkipping(_) => NextWaiter::Unreachable,
            _ => NextWaiter::Reachable,
        };
        self.run_prompt_calls(next_waiter, setup);
    }

    /// Runs and answers the calls of clients with a good connection, in the same step. `next_waiter` is for releases.
    fn run_prompt_calls(&mut self, next_waiter: NextWaiter, setup: &Setup) {
        let is_prompt = |call: &Call| !setup.plans[usize::from(call.id.client)].slow;
        loop {
            if let Some(at) = self.unawaited_calls.iter().position(is_prompt) {
                self.run_unawaited(at, Delivery::Last, next_waiter, setup);
                continue;
            }
            let has_prompt_call =
                |client: &Client| matches!(&client.in_flight, InFlight::Sent(call) if is_prompt(call));
            let Some(c) = self.clients.iter().position(has_prompt_call) else { return };
            self.run_in_flight(c, NextWaiter::Reachable, setup);
            self.on_reply(c, setup);
        }
    }

    fn store_actions(&self, setup: &Setup, actions: &mut Vec<Action>) {
        let may_fail = self.faults_left > 0;
        for (c, client) in self.clients.iter().enumerate() {
            match &client.in_flight {
                InFlight::Sent(call) => {
                    actions.push(Action::Run(c));
                    let is_acquire = matches!(call.verb, Verb::Acquire { .. });
                    if may_fail && (!is_acquire || !setup.rules.keeps(Rule::AnsweredAcquireIsOver)) {
                        actions.push(Action::RunTwice(c));
                    }
                    if may_fail && setup.skips {
                        actions.push(Action::RunSkipping(c));
                    }
                }
                InFlight::Answered { .. } if client.is_running() => actions.push(Action::DeliverAnswer(c)),
                _ => {}
            }
        }
        for at in 0..self.unawaited_calls.len() {
            actions.push(Action::RunUnawaited(at));
            if may_fail {
                actions.push(Action::RunUnawaitedTwice(at));
                actions.extend(setup.skips.then_some(Action::RunUnawaitedSkipping(at)));
            }
        }
        for (at, push) in self.pushes.iter().enumerate() {
            actions.push(Action::LosePush(at));
            if self.clients[usize::from(push.id().client)].is_running() {
                actions.push(Action::DeliverPush(at));
                actions.extend(may_fail.then_some(Action::DeliverPushTwice(at)));
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
            client.actions(c, self, world.faults_left > 0, actions);
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
