//! Plans from seeds.

use std::time::Duration;

use lockfast::store::Demand;

use crate::clock::{self, Skew, Time};
use crate::plan::{Ask, CallerPlan, Cancel, CancelAt, ClientPlan, End, Fault, FaultPlan, LINKS, Link, Message, Plan};

/// The terms of a caller; several callers share them, so that local hand-off is common.
struct Recipe {
    wants: Vec<(usize, u32)>,
    ttl: Duration,
    renew_every: Option<Duration>,
    hands_off: bool,
    works: Duration,
}

struct Generator {
    random: fastrand::Rng,
    lasts: Duration,
}

impl Plan {
    /// The plan of a seed.
    pub fn of_seed(seed: u64) -> Self {
        Generator { random: fastrand::Rng::with_seed(seed), lasts: Duration::ZERO }.plan(seed)
    }
}

impl Generator {
    fn chance(&mut self, percent: u32) -> bool {
        self.random.u32(0..100) < percent
    }

    /// Between two spans, each order of magnitude as likely as the others.
    fn span(&mut self, from: Duration, to: Duration) -> Duration {
        let (from, to) = (from.as_secs_f64().ln(), to.as_secs_f64().ln());
        Duration::from_secs_f64((from + (to - from) * self.random.f64()).exp())
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        self.span(Duration::from_millis(from), Duration::from_millis(to))
    }

    fn any_time(&mut self) -> Time {
        Time::BEGINNING + self.lasts.mul_f64(self.random.f64())
    }

    fn skew(&mut self) -> Skew {
        Skew { offset: self.random.u64(1 << 40..1 << 50), drift: self.random.i32(-2_000..=2_000) }
    }

    fn plan(mut self, seed: u64) -> Plan {
        let engines = match self.random.u32(0..1000) {
            0..=14 => self.random.u32(50..=200),
            15..=80 => self.random.u32(7..=20),
            _ => self.random.u32(2..=6),
        };
        self.lasts = match engines {
            50.. => self.millis(60_000, 900_000),
            _ => self.millis(300_000, 5_400_000),
        };
        let delays = [50, 300, 2_000, 20_000];
        let delay = Duration::from_micros(delays[self.random.usize(0..delays.len())]);
        let name_count = self.random.usize(1..=2 + engines as usize / 3);
        let capacity = |this: &mut Self| if this.chance(75) { Demand::ALL } else { this.random.u32(1..=5) };
        let names: Vec<_> = (0..name_count).map(|_| capacity(&mut self)).collect();
        let clients = (0..engines).map(|id| ClientPlan { id, skew: self.skew() }).collect();
        let callers = self.callers(engines, &names);
        let faults = self.faults(engines, &names, &callers);
        Plan {
            seed,
            ends: Time::BEGINNING + self.lasts,
            store: self.skew(),
            names_next_holder: self.random.bool(),
            delay,
            names,
            clients,
            callers,
            faults,
        }
    }

    fn recipe(&mut self, names: &[u32]) -> Recipe {
        let ttl = self.millis(500, 60_000);
        let count = if self.chance(12) { self.random.usize(2..=3) } else { 1 };
        let mut wants: Vec<(usize, u32)> = Vec::new();
        for _ in 0..count {
            let name = self.random.usize(0..names.len());
            let weight = match names[name] {
                Demand::ALL if self.chance(30) => 1,
                Demand::ALL => Demand::ALL,
                permits => self.random.u32(1..=permits),
            };
            if wants.iter().all(|(other, _)| *other != name) {
                wants.push((name, weight));
            }
        }
        let renew_every = match self.random.u32(0..10) {
            0 => None,
            1 => Some(self.span(Duration::from_millis(50), ttl / 2).max(Duration::from_millis(50))),
            _ => Some(ttl / 3),
        };
        let works = match self.random.u32(0..4) {
            0 => self.span(Duration::from_micros(10), Duration::from_millis(5)),
            1 => self.span(Duration::from_millis(1), ttl / 4),
            _ => self.span(Duration::from_millis(1), ttl * 3),
        };
        Recipe { wants, ttl, renew_every, hands_off: self.chance(75), works }
    }

    fn callers(&mut self, engines: u32, names: &[u32]) -> Vec<CallerPlan> {
        let recipes: Vec<_> = (0..1 + engines / 2).map(|_| self.recipe(names)).collect();
        let mut callers = Vec::new();
        for client in 0..engines {
            let favourite = self.random.usize(0..recipes.len());
            for _ in 0..self.random.u32(1..=if engines < 50 { 4 } else { 3 }) {
                let recipe = if self.chance(70) { favourite } else { self.random.usize(0..recipes.len()) };
                let id = callers.len() as u32;
                callers.push(self.caller(id, client, &recipes[recipe]));
            }
        }
        callers
    }

    fn caller(&mut self, id: u32, client: u32, recipe: &Recipe) -> CallerPlan {
        let ask = match self.random.u32(0..10) {
            0 => Ask::Try,
            1 => Ask::Within(self.millis(1, 30_000)),
            _ => Ask::Wait,
        };
        let ends = match self.random.u32(0..20) {
            0 => End::Seal(self.millis(100, 5_000)),
            1..=5 => End::Drop,
            _ => End::Release,
        };
        let cancel = self.chance(20).then(|| Cancel {
            every: self.random.u32(1..=4),
            at: match self.random.u32(0..4) {
                0 => CancelAt::AtWake,
                1 => CancelAt::AfterRelease(self.span(Duration::from_micros(10), Duration::from_millis(200))),
                _ => CancelAt::AfterAsking(self.span(Duration::from_micros(50), Duration::from_secs(10))),
            },
        });
        let hold_at_least = self.chance(6).then(|| self.millis(1, 10_000));
        let longer = |least: Duration| least + Duration::from_millis(1);
        let hold_at_most =
            self.chance(6).then(|| self.millis(20, 30_000).max(hold_at_least.map_or(Duration::ZERO, longer)));
        let rest = if self.chance(15) { self.millis(1, 1_000) } else { self.millis(1_000, 300_000) };
        // Most callers are active for a good part of the world; callers that hardly rest, for a while.
        let rounds = self.lasts.mul_f64(0.2 + self.random.f64()).as_secs_f64() / (rest + recipe.works).as_secs_f64();
        CallerPlan {
            id,
            client,
            begins: if self.chance(50) { Time::BEGINNING } else { self.any_time() },
            rounds: (rounds as u32).clamp(1, 400),
            rest,
            wants: recipe.wants.clone(),
            ask,
            ttl: recipe.ttl,
            renew_every: recipe.renew_every,
            hands_off: recipe.hands_off,
            hold_at_least,
            hold_at_most,
            works: recipe.works,
            extends: self.chance(8).then(|| self.span(recipe.ttl / 4, recipe.ttl * 2)),
            ends,
            cancel,
        }
    }

    fn faults(&mut self, engines: u32, names: &[u32], callers: &[CallerPlan]) -> Vec<FaultPlan> {
        // One world in eight is without: its bounds are the tight ones.
        let intensity = [0, 1, 2, 2, 4, 4, 8, 16][self.random.usize(0..8)];
        let count = intensity * (4 + engines.min(40));
        let mut faults: Vec<_> =
            (0..count).map(|_| FaultPlan { at: self.any_time(), kind: self.fault(engines, names, callers) }).collect();
        // Faults of one moment meet: a quarter of them follow another one closely.
        for index in 1..faults.len() {
            if self.chance(25) {
                faults[index].at = faults[index - 1].at + self.span(Duration::from_micros(100), Duration::from_secs(2));
            }
        }
        let restarts: Vec<_> =
            faults.iter().filter(|fault| matches!(fault.kind, Fault::Restart { .. })).map(|it| it.at).collect();
        for at in restarts {
            self.before_a_restart(at, engines, callers, &mut faults);
        }
        faults
    }

    /// A message in flight when a store ends matters most if its claim comes back to the new store: some messages are late just
    /// then.
    fn before_a_restart(&mut self, at: Time, engines: u32, callers: &[CallerPlan], faults: &mut Vec<FaultPlan>) {
        for _ in 0..self.random.u32(0..6) {
            let early = self.span(Duration::from_millis(1), Duration::from_secs(2));
            let at = Time((at.0 - clock::nanos(early)).max(Time::BEGINNING.0));
            let (client, lasts) = (self.random.u32(0..engines), self.lateness(callers));
            let (link, message) = match self.random.u32(0..4) {
                0 => (self.link(), Message::LateRequest(lasts)),
                1 => (self.link(), Message::LoseAnswer),
                _ => (Link::Pushes, Message::LatePush(lasts)),
            };
            faults.push(FaultPlan { at, kind: Fault::Message { client, link, message, count: 1 } });
        }
    }

    fn link(&mut self) -> Link {
        LINKS[self.random.usize(0..2)]
    }

    /// From a few milliseconds to several leases.
    fn lateness(&mut self, callers: &[CallerPlan]) -> Duration {
        let ttl = callers[self.random.usize(0..callers.len())].ttl;
        self.span(Duration::from_millis(5), (ttl * 3).min(Duration::from_secs(90)))
    }

    fn fault(&mut self, engines: u32, names: &[u32], callers: &[CallerPlan]) -> Fault {
        let client = self.random.u32(0..engines);
        let lasts = self.lateness(callers);
        match self.random.u32(0..100) {
            0..=39 => self.message(client, lasts),
            40..=51 => {
                let links = match self.random.u32(0..6) {
                    0..=2 => vec![Link::Pushes],
                    3 => vec![self.link()],
                    4 => vec![Link::Keeper, Link::Pushes],
                    _ => LINKS.to_vec(),
                };
                Fault::Disconnect { client, links, lasts: self.span(Duration::from_millis(1), lasts) }
            }
            52..=57 => {
                let link = LINKS[self.random.usize(0..3)];
                let (requests, answers) = [(true, true), (true, false), (false, true)][self.random.usize(0..3)];
                Fault::BlackHole { client, link, requests, answers, lasts }
            }
            58..=67 => Fault::Pause { client, lasts },
            68..=74 => {
                let replaced = self.chance(85).then(|| self.millis(10, 60_000));
                Fault::Kill { client, replaced }
            }
            75..=77 => {
                let (lasts, loses_data) = (self.millis(5, 20_000), self.chance(40));
                let is_behind = loses_data && self.chance(30);
                let behind = if is_behind { self.millis(1_000, 3_600_000) } else { Duration::ZERO };
                Fault::Restart { lasts, loses_data, behind }
            }
            78..=79 => Fault::Stall { lasts: self.millis(5, 10_000) },
            80..=86 => Fault::Break {
                name: self.random.usize(0..names.len()),
                position: if self.chance(60) { 0 } else { self.random.usize(0..8) },
                at_once: self.chance(40),
            },
            _ => {
                let caller = self.random.u32(0..callers.len() as u32);
                Fault::Doze { caller, lasts: self.chance(85).then_some(lasts) }
            }
        }
    }

    fn message(&mut self, client: u32, lasts: Duration) -> Fault {
        let (link, message) = match self.random.u32(0..9) {
            0 => (self.link(), Message::LoseRequest),
            1 => (self.link(), Message::LoseAnswer),
            2 => (self.link(), Message::Duplicate(lasts)),
            3 => (self.link(), Message::Overtaken(lasts.min(Duration::from_secs(2)))),
            4 => (self.link(), Message::LateRequest(lasts)),
            5 => (self.link(), Message::LateAnswer(lasts)),
            6 => (Link::Pushes, Message::LosePush),
            7 => (Link::Pushes, Message::LatePush(lasts)),
            _ => (Link::Pushes, Message::DuplicatePush(lasts)),
        };
        Fault::Message { client, link, message, count: self.random.u32(1..=3) }
    }
}
