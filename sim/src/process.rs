//! A process: an engine with its clock, its connections and its tasks. Carries out the effects of the engine.

use std::time::Duration;

use lockfast::engine::{Effect, Effects, Engine, Input, Key, Next, Release, Renewal};
use lockfast::store::Report;
use lockfast::store::{ClaimId, ClientId, Ticket};

use crate::caller::State;
use crate::clock::{Skew, Time};
use crate::network::Connection;
use crate::plan::{LINKS, Link};
use crate::schedule::{Event, Tick};
use crate::world::World;

/// How many ids an engine has in stock at least, and how many are drawn at once.
const MIN_IDS: usize = 64;
/// How long a task or a thread takes to run after it was woken.
const WOKEN_AFTER: Duration = Duration::from_micros(20);

pub(crate) struct Process {
    pub(crate) id: u32,
    /// How often it was replaced.
    pub(crate) life: u32,
    pub(crate) is_alive: bool,
    /// How its earlier lives ended, in order.
    pub(crate) deaths: Vec<Death>,
    pub(crate) paused_until: Time,
    /// When it last resumed.
    pub(crate) resumed_at: Time,
    pub(crate) skew: Skew,
    pub(crate) engine: Engine,
    pub(crate) connections: [Connection; 3],
    /// The callers behind requests that do not hold.
    pub(crate) waiting: Vec<(Key, u32)>,
    /// The callers that have a guard.
    pub(crate) guards: Vec<(Key, u32)>,
    pub(crate) keeper: KeeperState,
    /// When the last fault of it, its connections or its tasks ended.
    pub(crate) last_trouble_at: Time,
    /// Until when its pushes were lost; a resync followed.
    pub(crate) pushes_lost_until: Time,
    random: fastrand::Rng,
}

/// How a life ended.
#[derive(Debug)]
pub(crate) struct Death {
    pub(crate) died: Time,
    /// When the last request that it had sent ran in the store.
    pub(crate) last_ran: Time,
}

/// The calls that the keeper's thread is about to send, and when it looks next.
#[derive(Default)]
pub(crate) struct KeeperState {
    pub(crate) generation: u32,
    pub(crate) at: Time,
    pub(crate) renewals: Vec<Renewal>,
    pub(crate) joins: Vec<(lockfast::engine::AcquireCall, Option<Ticket>)>,
    pub(crate) releases: Vec<Release>,
    pub(crate) reports: Vec<Report>,
    /// Since when and how often it looked within a millisecond, to notice a keeper that never sleeps.
    pub(crate) looks: (Time, u32),
}

impl Process {
    pub(crate) fn new(id: u32, skew: Skew, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let engine = Self::engine(id, 0, &mut random);
        let connections = LINKS.map(|_| Connection::new(random.u64(..)));
        Self {
            id,
            life: 0,
            is_alive: true,
            deaths: Vec::new(),
            paused_until: Time(0),
            resumed_at: Time(0),
            skew,
            engine,
            connections,
            waiting: Vec::new(),
            guards: Vec::new(),
            keeper: KeeperState { at: Time::NEVER, ..KeeperState::default() },
            last_trouble_at: Time(0),
            pushes_lost_until: Time(0),
            random,
        }
    }

    fn engine(id: u32, life: u32, random: &mut fastrand::Rng) -> Engine {
        let mut engine = Engine::new(client_id(id, life), random.u64(..));
        engine.set_event_rank(0);
        engine
    }

    /// A fault that is over at `until`.
    pub(crate) fn note_trouble(&mut self, until: Time) {
        self.last_trouble_at = self.last_trouble_at.max(until);
    }

    /// A connection is closed until then. Lost pushes are made up for by the resync that follows.
    pub(crate) fn note_cut(&mut self, link: Link, until: Time) {
        match link {
            Link::Pushes => self.pushes_lost_until = self.pushes_lost_until.max(until),
            Link::Callers | Link::Keeper => self.note_trouble(until),
        }
    }

    /// A request of this process ran in the store.
    pub(crate) fn note_run(&mut self, life: u32, now: Time) {
        if let Some(death) = self.deaths.get_mut(life as usize) {
            death.last_ran = now;
        }
    }

    /// Nothing of it runs any more.
    pub(crate) fn die(&mut self, now: Time) {
        self.is_alive = false;
        self.deaths.push(Death { died: now, last_ran: now });
        self.waiting.clear();
        self.guards.clear();
        self.keeper = KeeperState { at: Time::NEVER, generation: self.keeper.generation + 1, ..KeeperState::default() };
    }

    /// A new process on the same machine.
    pub(crate) fn replace(&mut self) {
        self.life += 1;
        self.is_alive = true;
        self.paused_until = Time(0);
        self.engine = Self::engine(self.id, self.life, &mut self.random);
        for connection in &mut self.connections {
            let cut = connection.cut + 1;
            *connection = Connection::new(self.random.u64(..));
            connection.cut = cut;
        }
    }

    pub(crate) fn caller_of(list: &[(Key, u32)], key: Key) -> Option<u32> {
        list.iter().find(|(it, _)| *it == key).map(|(_, caller)| *caller)
    }

    fn draw_ids(&mut self) -> Vec<ClaimId> {
        let mut secret = [0; 16];
        let mut draw = || {
            self.random.fill(&mut secret);
            ClaimId::from_secret(secret)
        };
        (0..MIN_IDS).map(|_| draw()).collect()
    }
}

/// The client id says which process it is, and which life of it.
pub(crate) fn client_id(id: u32, life: u32) -> ClientId {
    ClientId(u64::from(id) << 32 | u64::from(life))
}

/// The number of the process, and which life of it.
pub(crate) fn of_client_id(client: ClientId) -> (u32, u32) {
    ((client.0 >> 32) as u32, client.0 as u32)
}

impl World<'_> {
    /// Gives an engine an input, and carries out its effects.
    pub(crate) fn handle(&mut self, client: u32, input: Input) -> Next {
        let now = self.now;
        let process = &mut self.clients[client as usize];
        let local = process.skew.local(now);
        if process.engine.ids_left() < MIN_IDS {
            let ids = process.draw_ids();
            process.engine.handle(Input::Ids(ids), local, &mut Effects::default());
        }
        if self.trace.is_on() {
            self.trace.input(now, process.id, &input);
        }
        let mut effects = std::mem::take(&mut self.effects);
        let next = process.engine.handle(input, local, &mut effects);
        if self.trace.is_on() {
            self.trace.outcome(now, process.id, &next, &effects.list);
        }
        if std::mem::take(&mut effects.wakes_keeper) {
            self.wake_keeper(client, now + WOKEN_AFTER);
        }
        for effect in effects.list.drain(..) {
            self.carry_out(client, effect);
        }
        self.effects = effects;
        next
    }

    fn carry_out(&mut self, client: u32, effect: Effect) {
        let process = &mut self.clients[client as usize];
        match effect {
            Effect::Wake(key) => {
                if let Some(caller) = Process::caller_of(&process.waiting, key) {
                    self.wake_caller(caller);
                }
            }
            Effect::Trust { hold, until, why } => {
                let Some(caller) = Process::caller_of(&process.guards, hold) else { return };
                self.trust(caller, until, why);
            }
            Effect::Lost { hold, why, .. } => {
                if let Some(caller) = Process::caller_of(&process.guards, hold) {
                    self.lose(caller, why);
                }
            }
            Effect::Tell(release, said) => self.on_release_outcome(client, release, said),
            Effect::Acquire(asked, stood) => process.keeper.joins.push((asked, stood)),
            Effect::Renew(renewal) => process.keeper.renewals.push(renewal),
            Effect::Release(release) => process.keeper.releases.push(*release),
            Effect::Record(report) => process.keeper.reports.push(*report),
            Effect::Emit(_) => {}
        }
    }

    fn wake_caller(&mut self, caller: u32) {
        let it = &mut self.callers[caller as usize];
        if it.dozes_until > self.now {
            // The engine gives it some time, and goes on without it.
            self.clients[it.client as usize].note_trouble(self.now + Duration::from_secs(3));
        }
        if it.state == State::Sleeping {
            it.state = State::Woken;
            let event = Event::Caller { caller, round: it.round, tick: Tick::Poll };
            self.schedule.put(self.now + WOKEN_AFTER, event);
        }
    }

    /// The keeper looks again at `at` at the latest.
    pub(crate) fn wake_keeper(&mut self, client: u32, at: Time) {
        let keeper = &mut self.clients[client as usize].keeper;
        if at < keeper.at {
            keeper.at = at;
            keeper.generation += 1;
            self.schedule.put(at, Event::Keeper { client, generation: keeper.generation });
        }
    }
}
