//! One world: takes the next event, passes it to its process, and ends when no event is left.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use lockfast::Note;
use lockfast::engine::{Effects, Input};
use lockfast::store::{Name, Ticket};

use crate::caller::{Caller, State};
use crate::calls::{CallId, Calls};
use crate::clock::Time;
use crate::faults::Bites;
use crate::invariants::{Check, Invariant, Resource, Violation};
use crate::network::{CallPurpose, Reply};
use crate::plan::{CancelAt, Plan};
use crate::process::Process;
use crate::schedule::{Event, Schedule, Tick};
use crate::store::Store;
use crate::trace::Trace;

/// The outcome of a world.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many processes it had.
    pub engines: usize,
    /// How many events happened.
    pub steps: u64,
    /// How much time passed in it.
    pub lasted: Duration,
    /// How often a caller entered.
    pub grants: u64,
    /// Holds that were lost.
    pub losses: u64,
    /// Which faults bit.
    pub bites: Bites,
    /// The invariant that broke, if any, and when.
    pub violation: Option<(Time, Violation)>,
    /// The last steps, if they were wanted.
    pub trace: Vec<String>,
}

pub(crate) struct World<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) now: Time,
    pub(crate) schedule: Schedule,
    pub(crate) clients: Vec<Process>,
    /// The index of a process in `clients`, by its number.
    pub(crate) index_of: Vec<u32>,
    pub(crate) callers: Vec<Caller>,
    pub(crate) names: Vec<Resource>,
    pub(crate) store: Store,
    pub(crate) calls: Calls,
    pub(crate) fences: HashSet<Ticket>,
    pub(crate) bites: Bites,
    pub(crate) trace: Trace,
    pub(crate) note: Arc<Note>,
    pub(crate) effects: Effects,
    pub(crate) grants: u64,
    pub(crate) losses: u64,
    /// When a caller last began, entered or ended a round.
    pub(crate) last_progress_at: Time,
    /// No more faults.
    is_closing: bool,
    steps: u64,
    violation: Option<(Time, Violation)>,
}

impl<'a> World<'a> {
    pub(crate) fn new(plan: &'a Plan, trace: Trace) -> Self {
        let most = plan.clients.iter().map(|client| client.id + 1).max().unwrap_or(0);
        let mut index_of = vec![u32::MAX; most as usize];
        for (index, client) in (0..).zip(&plan.clients) {
            index_of[client.id as usize] = index;
        }
        let clients = plan.clients.iter().map(|client| Process::new(client.id, client.skew, plan.seed)).collect();
        let caller = |it: &crate::plan::CallerPlan| Caller::new(it, index_of[it.client as usize], plan.seed);
        let callers = plan.callers.iter().map(caller).collect();
        let resource = |(index, capacity): (usize, &u32)| Resource {
            name: Name::new(&format!("n{index}")).expect("a short text is a name"),
            capacity: *capacity,
            callers: (0..)
                .zip(&plan.callers)
                .filter(|(_, it)| it.wants.iter().any(|(name, _)| *name == index))
                .map(|(caller, _)| caller)
                .collect(),
            inside: Vec::new(),
            highest_by_weight: Vec::new(),
            fence_by_client: BTreeMap::new(),
            is_reset: false,
            last_written: Ticket(0),
            sealed_until: lockfast::store::Moment::START,
        };
        let mut world = Self {
            plan,
            now: Time::BEGINNING,
            schedule: Schedule::default(),
            clients,
            callers,
            names: plan.names.iter().enumerate().map(resource).collect(),
            store: Store::new(plan.store, plan.names.len()),
            calls: Calls::default(),
            fences: HashSet::new(),
            bites: Bites::default(),
            trace,
            note: Arc::default(),
            effects: Effects::default(),
            grants: 0,
            losses: 0,
            last_progress_at: Time::BEGINNING,
            is_closing: false,
            steps: 0,
            violation: None,
            index_of,
        };
        for (caller, it) in (0..).zip(&plan.callers) {
            world.schedule.put(it.begins, Event::Caller { caller, round: 0, tick: Tick::Begin });
        }
        for (index, fault) in (0..).zip(&plan.faults) {
            world.schedule.put(fault.at, Event::Fault(index));
        }
        world
    }

    /// Runs it to its end, or to the first broken invariant.
    pub(crate) fn run(mut self) -> Outcome {
        let stuck_after = self.stuck_after();
        while self.violation.is_none() && !self.is_done() {
            let Some((at, event)) = self.schedule.take(Time::NEVER) else {
                self.check_stuck("and nothing is left to happen");
                break;
            };
            self.step(at, event);
            if self.now > self.plan.ends && self.now.since(self.last_progress_at) > stuck_after {
                self.check_stuck("for too long");
            }
        }
        self.close();
        let until = self.quiet_from() + self.plan.longest_lease() * 2 + Duration::from_secs(170);
        while self.violation.is_none()
            && let Some((at, event)) = self.schedule.take(until)
        {
            self.step(at, event);
        }
        if self.violation.is_none() {
            self.now = until;
            self.check_clean();
        }
        Outcome {
            engines: self.clients.len(),
            steps: self.steps,
            lasted: self.now.since(Time::BEGINNING),
            grants: self.grants,
            losses: self.losses,
            bites: self.bites,
            violation: self.violation,
            trace: self.trace.into_lines(),
        }
    }

    /// Whether no caller has anything left to do.
    fn is_done(&mut self) -> bool {
        // Looked at seldom: to go through all callers after each step takes longer than the step.
        self.steps.is_multiple_of(64)
            && self.callers.iter().all(|it| it.state == State::Finished || it.dozes_until == Time::NEVER)
    }

    /// After this long without progress a caller is stuck.
    fn stuck_after(&self) -> Duration {
        let works = self.plan.callers.iter().map(|it| it.works * 2 + it.rest * 2).max().unwrap_or_default();
        self.plan.longest_lease() * 4 + works + Duration::from_secs(300)
    }

    fn check_stuck(&mut self, how: &str) {
        let is_stuck = |it: &Caller| it.is_asking() && it.dozes_until < Time::NEVER;
        let stuck: Vec<_> = (0..self.callers.len()).filter(|caller| is_stuck(&self.callers[*caller])).collect();
        if !stuck.is_empty() {
            let seen = format!("callers {stuck:?} wait {how}");
            self.fail(Invariant::NoLostWakeUp, "that every caller gets its lock or an error", seen);
        }
    }

    /// Ends all that would go on for ever: futures that are never polled are dropped, and faults begin no more.
    fn close(&mut self) {
        self.is_closing = true;
        for caller in 0..self.callers.len() as u32 {
            let it = &mut self.callers[caller as usize];
            if it.dozes_until < Time::NEVER {
                continue;
            }
            it.dozes_until = Time(0);
            it.round = u32::MAX;
            match it.state {
                State::Leaving | State::AwaitingOutcome(_) => self.cancel_release(caller),
                _ => self.withdraw(caller),
            }
        }
    }

    fn quiet_from(&self) -> Time {
        let paused = self.clients.iter().map(|process| process.paused_until).max();
        self.now.max(paused.unwrap_or_default()).max(self.store.stalled_until)
    }

    /// I10: after everything is over, nothing is left in the store or in an engine.
    fn check_clean(&mut self) {
        self.settle_store();
        if !self.store.table.is_empty() || self.store.ledger.len() > 0 {
            let seen = format!("{} things in the table", self.store.table.len());
            self.fail(Invariant::Clean, "an empty table at the end", seen);
        }
        let busy = self.clients.iter().find(|process| process.is_alive && !process.engine.is_idle());
        if let Some(id) = busy.map(|process| process.id) {
            self.fail(Invariant::Clean, "idle engines at the end", format!("client {id} is not"));
        }
    }

    fn step(&mut self, at: Time, event: Event) {
        self.now = at;
        self.steps += 1;
        match event {
            Event::Arrive(delivery) => self.arrive(delivery),
            Event::Answer(call, reply) => self.receive(call, Some(reply)),
            Event::Limit(call) => self.receive(call, None),
            Event::Push { client, life, change } => {
                let process = &self.clients[client as usize];
                if !process.is_alive || process.life != life {
                    return;
                }
                if process.paused_until > at {
                    return self.schedule.put(process.paused_until, Event::Push { client, life, change });
                }
                self.handle(client, Input::Pushed(change));
            }
            Event::Keeper { client, generation } => {
                let process = &self.clients[client as usize];
                if !process.is_alive || process.keeper.generation != generation {
                    return;
                }
                if process.paused_until > at {
                    return self.schedule.put(process.paused_until, event);
                }
                self.look(client);
            }
            Event::Caller { caller, round, tick } => {
                let it = &self.callers[caller as usize];
                let process = &self.clients[it.client as usize];
                if it.round != round || !process.is_alive {
                    return;
                }
                let runs_at = process.paused_until.max(it.dozes_until);
                if runs_at > at {
                    return self.schedule.put(runs_at, event);
                }
                self.tick(caller, tick);
            }
            Event::Fault(index) => {
                if !self.is_closing {
                    self.inject(index);
                }
            }
            Event::Reconnect { client, link, cut } => self.reconnect(client, link, cut),
            Event::Restarted => self.start_store(),
            Event::Replace { client } => self.replace(client),
        }
    }

    /// An answer, or the end of waiting for it.
    fn receive(&mut self, id: CallId, reply: Option<Reply>) {
        let Some(call) = self.calls.get(id) else { return };
        let dozes_until = call.purpose.caller().map(|caller| self.callers[caller as usize].dozes_until);
        let runs_at = self.clients[call.client as usize].paused_until.max(dozes_until.unwrap_or_default());
        if runs_at > self.now {
            let event = reply.map_or(Event::Limit(id), |reply| Event::Answer(id, reply));
            return self.schedule.put(runs_at, event);
        }
        let Some(call) = self.calls.end(id) else { return };
        match call.purpose {
            CallPurpose::Ask { caller, asked } => self.on_acquire_reply(caller, asked, reply),
            CallPurpose::Leave { caller } => self.on_release_reply(caller, reply),
            CallPurpose::Extend { caller, renewal, sent } => self.on_extend_reply(caller, renewal, sent, reply),
            purpose => self.on_keeper_reply(call.client, purpose, reply.unwrap_or(Reply::Failed)),
        }
    }

    fn tick(&mut self, caller: u32, tick: Tick) {
        let state = self.callers[caller as usize].state;
        match (tick, state) {
            (Tick::Begin, State::Resting) => self.begin(caller),
            (Tick::Poll, State::Woken) => {
                let round = self.callers[caller as usize].round;
                let cancel = self.plan.callers[caller as usize].cancel;
                match cancel.filter(|it| it.at == CancelAt::AtWake && round.is_multiple_of(it.every)) {
                    Some(_) => self.cancel(caller),
                    None => self.poll(caller),
                }
            }
            (Tick::Repeat, State::Pausing) => self.repeat(caller),
            (Tick::Patience, State::Sleeping | State::Woken) => self.run_out_of_patience(caller),
            (Tick::Cancel, _) => self.cancel(caller),
            (Tick::CancelRelease, State::Leaving | State::AwaitingOutcome(_)) => self.cancel_release(caller),
            (Tick::Write, State::Holding) => self.write(caller),
            (Tick::Extend, State::Holding) => self.extend(caller),
            (Tick::Exit, State::Holding) => self.exit(caller),
            (Tick::OutcomeLimit, State::AwaitingOutcome(_)) => self.rest(caller),
            _ => {}
        }
    }

    pub(crate) fn fail(&mut self, invariant: Invariant, expected: impl Into<String>, seen: impl Into<String>) {
        let broken = Violation { invariant, expected: expected.into(), seen: seen.into() };
        self.violation.get_or_insert((self.now, broken));
    }

    pub(crate) fn require(&mut self, check: Check) {
        if let Err(broken) = check {
            self.violation.get_or_insert((self.now, broken));
        }
    }
}
