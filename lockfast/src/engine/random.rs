//! Inputs in random order, as a client and a store may send them, with answers that are late, lost or wrong: nothing panics, and
//! when all has ended, nothing is left behind.

mod answers;

use std::collections::BTreeSet;

use super::request::Request;
use super::*;
use crate::claim::{Demand, Tickets};
use crate::store::{Admission, Change, Leaving, Standing, Why};

struct Chaos {
    engine: Engine,
    fx: Effects,
    chance: fastrand::Rng,
    now: Moment,
    ticket: u64,
    ids: u64,
    /// Requests that wait, to be polled now and then; and holds with a guard.
    unheld: Vec<Key>,
    holds: Vec<Key>,
    asked: Vec<AcquireCall>,
    joins: Vec<(AcquireCall, Option<Ticket>)>,
    renewals: Vec<(Renewal, Moment)>,
    releases: Vec<(Release, Moment)>,
    /// Releases of callers: the number, the release, the hold that depends on it, and when it was sent.
    callers: Vec<(Option<ReleaseId>, Leaving, Option<Key>, Moment)>,
    awaited: Vec<ReleaseId>,
    owners: Vec<ClaimHash>,
    /// Claims that may be in the queue, as far as the store was asked and has answered.
    entries: BTreeSet<[u8; 16]>,
}

fn pick<T>(chance: &mut fastrand::Rng, all: &mut Vec<T>) -> Option<T> {
    (!all.is_empty()).then(|| all.swap_remove(chance.usize(..all.len())))
}

impl Chaos {
    fn new(seed: u64) -> Self {
        Self {
            engine: Engine::new(ClientId(1), seed),
            fx: Effects::default(),
            chance: fastrand::Rng::with_seed(seed),
            now: Moment::from_nanos(1_000_000_000_000),
            ticket: 10,
            ids: 0,
            unheld: Vec::new(),
            holds: Vec::new(),
            asked: Vec::new(),
            joins: Vec::new(),
            renewals: Vec::new(),
            releases: Vec::new(),
            callers: Vec::new(),
            awaited: Vec::new(),
            owners: Vec::new(),
            entries: BTreeSet::new(),
        }
    }

    fn handle(&mut self, input: Input) -> Next {
        // Sometimes there are too few ids.
        if self.engine.ids_left() < 2 && self.chance.u8(..) > 20 {
            self.ids += 1;
            let id = self.ids;
            let ids = (0..3).map(|nth| ClaimId::from_secret((u128::from(id) * 3 + nth + 1).to_le_bytes())).collect();
            self.engine.handle(Input::Ids(ids), self.now, &mut self.fx);
        }
        let next = self.engine.handle(input, self.now, &mut self.fx);
        if let Next::Enter(held) = &next {
            held.terms.validity.grant(held.until, held.why);
        }
        while !self.fx.list.is_empty() {
            for effect in std::mem::take(&mut self.fx.list) {
                self.carry_out(effect);
            }
        }
        next
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Acquire(asked, stood) => {
                self.note_acquire(&asked);
                self.joins.push((asked, stood));
            }
            Effect::Renew(renewal) => self.renewals.push((renewal, self.now)),
            Effect::Release(release) => {
                self.note_release(&release.leaving);
                self.releases.push((*release, self.now));
            }
            Effect::Tell(release, _) => {
                let index = self.awaited.iter().position(|awaited| *awaited == release);
                self.awaited.swap_remove(index.expect("only a caller that waits gets an outcome, and once"));
            }
            Effect::Trust { hold, until, why } => {
                let terms = self.engine.terms(hold).map(Arc::clone);
                let sees_over = self.chance.u8(..) < 20;
                if terms.is_some_and(|terms| sees_over || !terms.validity.extend(until, why, self.now)) {
                    self.engine.handle(Input::SeenOver(hold), self.now, &mut self.fx);
                }
            }
            Effect::Lost { terms, why, .. } => terms.validity.end(why),
            Effect::Record(report) => {
                let is_ok = self.chance.bool();
                self.engine.handle(Input::Reported { report: *report, is_ok }, self.now, &mut self.fx);
            }
            Effect::Wake(_) | Effect::Emit(_) => {}
        }
    }

    fn enter(&mut self) {
        let span = |chance: &mut fastrand::Rng, most| {
            chance.bool().then(|| Span::of(Duration::from_millis(chance.u64(1..most))))
        };
        let name = ["a", "b"][self.chance.usize(..2)];
        let hands_off = self.chance.u8(..4) > 0;
        let terms = Terms {
            demands: Demand::exclusive(Name::new(name).unwrap()).into(),
            ttl: Span::of(Duration::from_secs(3)),
            renew_every: Some(Span::of(Duration::from_secs(1))).filter(|_| hands_off || self.chance.bool()),
            hold_at_least: span(&mut self.chance, 1_000),
            hold_at_most: span(&mut self.chance, 4_000),
            note: Arc::default(),
            trace: [1; 16],
            validity: Validity::new(),
            hands_off,
            detached: !hands_off,
        };
        match self.handle(Input::Enter(Arc::new(terms))) {
            Next::Entered(key) => self.poll(key),
            next => assert!(self.engine.closed().is_some(), "{next:?}"),
        }
    }

    fn poll(&mut self, key: Key) {
        match self.handle(Input::Polled(key)) {
            Next::Ask(asked) => {
                self.note_acquire(&asked);
                self.asked.push(asked);
            }
            Next::Enter(held) => self.holds.push(held.hold),
            Next::Sealed(_) | Next::Fail(_) => drop(self.handle(Input::Withdrawn(key))),
            Next::Wait => self.unheld.push(key),
            next => panic!("{next:?}"),
        }
    }

    fn answer_asked(&mut self, asked: AcquireCall) {
        let (key, answer) = (asked.key, self.admission(&asked));
        match (self.chance.u8(..8), &answer) {
            (0, Err(_)) => {
                let until = self.now + Duration::from_millis(self.chance.u64(..200));
                self.handle(Input::Pausing { asked: asked.clone(), until });
                if let Next::Ask(again) = self.handle(Input::Repeating(asked)) {
                    self.note_acquire(&again);
                    return self.asked.push(again);
                }
                self.poll(key);
            }
            (1, Err(_)) => drop(self.handle(Input::Withdrawn(key))),
            (2, _) => drop(self.handle(Input::Withdrawn(key))),
            _ => {
                self.handle(Input::Admitted { asked, answer });
                self.poll(key);
            }
        }
    }

    fn release(&mut self, hold: Key) {
        let ending = match self.chance.u8(..5) {
            0 => Ending::Seal { value: bytes::Bytes::new(), keep: Duration::from_secs(1) },
            _ => Ending::Release,
        };
        match self.handle(Input::Release { hold, ending }) {
            Next::Send { leaving, keeps, .. } => self.send(leaving, keeps.then_some(hold)),
            next => assert!(matches!(next, Next::Done { .. }), "{next:?}"),
        }
    }

    fn send(&mut self, leaving: Leaving, hold: Option<Key>) {
        self.note_release(&leaving);
        let sent = self.now;
        let watched = match self.handle(Input::Sent { leaving: leaving.clone(), hold, sent }) {
            Next::Watched(id) => Some(id),
            _ => None,
        };
        self.callers.push((watched, leaving, hold, sent));
    }

    /// A caller has its answer, or ends waiting.
    fn answer_caller(&mut self) {
        let Some((watched, leaving, hold, sent)) = pick(&mut self.chance, &mut self.callers) else { return };
        let waits = self.chance.bool();
        if let Some(release) = watched {
            match self.handle(Input::Answered { release, waits }) {
                Next::Mine => {}
                Next::TakenOver(id) => return self.awaited.push(id),
                Next::Told(_) => return,
                next => panic!("{next:?}"),
            }
        }
        let standing = self.farewells(&[leaving.claim().unwrap().clone()]).ok();
        match (standing, hold) {
            (Some(standing), Some(hold)) => {
                let claim = leaving.claim().unwrap().clone();
                let standing = standing.into_iter().next();
                if let Next::Send { leaving, .. } = self.handle(Input::Left { hold, claim, sent, standing }) {
                    self.send(leaving, None);
                }
            }
            (Some(_), None) => {}
            (None, hold) => {
                self.handle(Input::Missed(leaving.clone()));
                if let Next::TakenOver(id) = self.handle(Input::Unanswered { leaving, hold, waits }) {
                    self.awaited.push(id);
                }
            }
        }
    }

    fn answer_renewals(&mut self) {
        let count = self.chance.usize(..=self.renewals.len().min(3));
        let (renewals, sent): (Vec<_>, Vec<_>) = self.renewals.drain(..count).unzip();
        if let Some(sent) = sent.iter().min().copied() {
            let claims: Vec<_> = renewals.iter().map(|renewal| renewal.claim.clone()).collect();
            let answer = self.standings(&claims);
            self.handle(Input::Renewed { renewals, sent, answer });
        }
    }

    fn answer_releases(&mut self) {
        let count = self.chance.usize(..=self.releases.len().min(3));
        let (releases, sent): (Vec<_>, Vec<_>) = self.releases.drain(..count).unzip();
        if let Some(sent) = sent.iter().min().copied() {
            let claims: Vec<_> = releases.iter().map(|release| release.leaving.claim().unwrap().clone()).collect();
            let answer = self.farewells(&claims);
            self.handle(Input::Released { releases, sent, answer });
        }
    }

    fn push(&mut self) {
        let Some(owner) = self.chance.choice(&self.owners).copied() else { return };
        let waits = |(_, request): (Key, &Request)| match *request.phase {
            Phase::Waiting { ticket, .. } => Some((request.claim.as_ref()?.id.hash(), ticket)),
            _ => None,
        };
        let waiting: Vec<_> = self.engine.requests.keys().filter_map(waits).collect();
        let change = match (self.chance.u8(..6), self.chance.choice(&waiting)) {
            (0, _) => Change::Gone(owner),
            (1, _) => Change::Recheck(owner, Duration::from_millis(50)),
            (2, _) => Change::Resync,
            (3, _) | (_, None) => Change::Held(owner, Ticket(self.ticket)),
            (_, Some((owner, ticket))) => Change::Held(*owner, *ticket),
        };
        self.handle(Input::Pushed(change));
    }

    fn step(&mut self) {
        match self.chance.u8(..24) {
            0..3 => self.enter(),
            3..6 => {
                if let Some(key) = pick(&mut self.chance, &mut self.unheld) {
                    self.poll(key);
                }
            }
            6 => {
                if let Some(key) = pick(&mut self.chance, &mut self.unheld) {
                    let input = if self.chance.bool() { Input::TimedOut(key) } else { Input::Withdrawn(key) };
                    self.handle(input);
                }
            }
            7..10 => {
                if let Some(asked) = pick(&mut self.chance, &mut self.asked) {
                    self.answer_asked(asked);
                }
            }
            10..12 => {
                if let Some((asked, stood)) = pick(&mut self.chance, &mut self.joins) {
                    let answer = self.admission(&asked);
                    self.handle(Input::Joined { asked, stood, answer });
                }
            }
            12 => self.answer_renewals(),
            13 => self.answer_releases(),
            14..16 => {
                if let Some(hold) = pick(&mut self.chance, &mut self.holds) {
                    self.release(hold);
                }
            }
            16 => {
                if let Some(hold) = pick(&mut self.chance, &mut self.holds) {
                    self.handle(Input::Dropped(hold));
                }
            }
            17 => self.answer_caller(),
            18 => self.push(),
            19 => {
                if let Some(hold) = self.chance.choice(&self.holds).copied()
                    && let Some((claim, _)) = self.engine.claim(hold)
                {
                    let ttl = Duration::from_secs(self.chance.u64(1..10));
                    let renewal = Renewal { key: hold, claim, ttl, waits: false, is_beside: false };
                    let (sent, standing) = (self.now, self.standing());
                    self.handle(Input::Extended { renewal, sent, standing });
                }
            }
            20 => {
                if let Some(hold) = pick(&mut self.chance, &mut self.holds) {
                    let is_detached = self.engine.terms(hold).is_some_and(|terms| terms.detached);
                    if is_detached && !self.engine.has_lost(hold) {
                        let (claim, _) = self.engine.claim(hold).unwrap();
                        self.note_left(&claim);
                        self.handle(Input::LetGo(hold));
                    } else {
                        self.holds.push(hold);
                    }
                }
            }
            _ => {
                self.now = self.now + Duration::from_millis(self.chance.u64(..300));
                let next = self.handle(Input::Elapsed);
                let is_later = matches!(next, Next::At(at) if at > self.now);
                assert!(is_later || self.engine.ids_left() == 0, "{next:?} at {:?}", self.now);
            }
        }
    }

    /// Ends everything, and answers everything.
    fn end(&mut self) {
        self.handle(Input::Close(Closing::ShutDown));
        for key in std::mem::take(&mut self.unheld) {
            self.handle(Input::Withdrawn(key));
        }
        for asked in std::mem::take(&mut self.asked) {
            let answer = self.admission(&asked);
            self.handle(Input::Withdrawn(asked.key));
            self.handle(Input::Admitted { asked, answer });
        }
        for hold in std::mem::take(&mut self.holds) {
            self.handle(Input::Dropped(hold));
        }
        for _ in 0..1_000 {
            while !self.callers.is_empty() {
                self.answer_caller();
            }
            for (asked, stood) in std::mem::take(&mut self.joins) {
                let answer = self.admission(&asked);
                self.handle(Input::Joined { asked, stood, answer });
            }
            while !self.renewals.is_empty() {
                self.answer_renewals();
            }
            while !self.releases.is_empty() {
                self.answer_releases();
            }
            self.now = self.now + Duration::from_millis(500);
            self.handle(Input::Elapsed);
        }
        let engine = &self.engine;
        assert!(
            engine.is_idle() && self.releases.is_empty() && self.awaited.is_empty(),
            "{engine:?} {:?}",
            self.awaited
        );
        assert!(
            engine.key_by_claim.is_empty()
                && engine.taken_over_releases.is_empty()
                && engine.watched_releases.is_empty()
        );
        assert!(
            engine.withdrawn_claims.is_empty() && engine.rejoining.is_empty() && engine.claims_to_unlist.is_empty()
        );
        assert!(self.entries.is_empty(), "in the queue, and neither renewed nor withdrawn: {:?}", self.entries);
        let stats = engine.stats();
        assert_eq!((engine.rechecks_in_flight, engine.rejoins_in_flight, stats.held, stats.waiting), (0, 0, 0, 0));
    }
}

#[test]
fn random_inputs_neither_panic_nor_leave_anything_behind() {
    for seed in 0..300 {
        let mut chaos = Chaos::new(seed);
        for _ in 0..2_000 {
            chaos.step();
        }
        chaos.end();
    }
}
