//! The model's table and the library's, side by side over random histories: same answers, same tickets, same pushes, same
//! queues. Verbs that the model leaves out (sealing, lingering, breaking) are not used.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lockfast::store::{Admission, Busy, Change, Lease, Leaving, Names, Query, Standing as RealStanding};
use lockfast::store::{Claim, ClaimHash, ClaimId, ClientId, Demand, Demands, Moment, Name, Ticket, Tickets};
use lockfast::table::Table as RealTable;
use model::messages::{Block, Call, Id, Push, Standing, Verb};
use model::rules::Rules;
use model::table::{ALL, ClaimSpec, Execution, NextWaiter, Table};

const HISTORIES: u64 = 3_000;
const STEPS: usize = 40;
const CLIENTS: u8 = 5;
const NAMES: [&str; 3] = ["a", "b", "c"];

/// One request's latest claim, as both tables know it.
#[derive(Clone)]
struct Request {
    id: Id,
    claim_spec: ClaimSpec,
    block: u8,
    claim: Arc<Claim>,
}

struct TablePair {
    random: fastrand::Rng,
    real: RealTable,
    model: Table,
    now: Moment,
    requests: Vec<Option<Request>>,
    last_serial: u8,
    /// Which verbs were answered how: a history in which little happens compares little.
    answers: BTreeSet<(&'static str, &'static str)>,
}

fn tick(count: u8) -> Duration {
    Duration::from_secs(u64::from(count))
}

fn hash_of(id: Id) -> ClaimHash {
    claim_id(id).hash()
}

fn claim_id(id: Id) -> ClaimId {
    let mut secret = [0; 16];
    (secret[0], secret[1]) = (id.client, id.serial);
    ClaimId::from_secret(secret)
}

fn block_of(tickets: Tickets) -> Block {
    Block { first: tickets.first.0 as u8, count: tickets.count as u8 }
}

fn verb_word(verb: Verb) -> &'static str {
    match verb {
        Verb::Acquire { .. } => "acquire",
        Verb::Renew { .. } => "renew",
        Verb::Done => "done",
        Verb::Unknown => "unknown",
        Verb::UnlessAlone { .. } => "unless alone",
    }
}

fn standing_word(standing: Standing) -> &'static str {
    match standing {
        Standing::Held(_) => "held",
        Standing::Waiting { .. } => "waiting",
        Standing::Gone => "gone",
    }
}

impl TablePair {
    fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            real: RealTable::new(Ticket(0)),
            model: Table::default(),
            now: Moment::START + tick(100),
            requests: vec![None; usize::from(CLIENTS)],
            last_serial: 0,
            answers: BTreeSet::new(),
        }
    }

    /// A request with a new id; the lease of its last claim is left to end.
    fn new_request(&mut self, client: u8) -> Request {
        self.last_serial += 1;
        let id = Id { client, serial: self.last_serial };
        let claim_spec = ClaimSpec {
            names: self.random.u8(1..8),
            weight: if self.random.u8(..3) == 0 { 1 } else { ALL },
            ttl: self.random.u8(1..6),
        };
        let block = self.random.u8(1..4);
        let demand = |name: &str| {
            let name = Name::new(name).expect("a letter is a name");
            if claim_spec.weight == ALL { Demand::exclusive(name) } else { Demand::shared(name) }
        };
        let names = NAMES.iter().enumerate().filter(|(bit, _)| claim_spec.names & (1 << bit) != 0);
        let claim = Claim {
            id: claim_id(id),
            client: ClientId(u64::from(client)),
            demands: Demands::of(names.map(|(_, name)| demand(name)).collect()).expect("one to three different names"),
            ttl: tick(claim_spec.ttl),
            block: u32::from(block),
            floor: Ticket(0),
            detached: false,
            note: Arc::default(),
        };
        Request { id, claim_spec, block, claim: Arc::new(claim) }
    }

    fn run_real(&mut self, request: &Request, verb: Verb) -> Standing {
        let claim = Arc::clone(&request.claim);
        let answer = match verb {
            Verb::Acquire { .. } => {
                match self.real.acquire(&claim, Busy::Wait, self.now).expect("no claim asks for more than the capacity")
                {
                    Admission::Queued { ticket, position, recheck_in } => {
                        let (ticket, position) = (ticket.0 as u8, position as u8);
                        return Standing::Waiting { ticket, position, recheck_in: recheck_in.as_secs() as u8 };
                    }
                    Admission::Held(tickets) => RealStanding::Held(tickets),
                    Admission::Gone(why) => RealStanding::Gone(why),
                    other => panic!("{other:?} was not asked for"),
                }
            }
            Verb::Renew { ttl, .. } => self.real.renew(&Lease { claim, ttl: tick(ttl) }, self.now),
            Verb::Done => self.real.release(&Leaving::Done(claim), self.now),
            Verb::Unknown => self.real.release(&Leaving::Unknown(claim), self.now),
            Verb::UnlessAlone { block, floor } => {
                let floor = Ticket(u64::from(floor));
                self.real.release(&Leaving::UnlessAlone { claim, block: u32::from(block), floor }, self.now)
            }
        };
        match answer {
            RealStanding::Held(tickets) => Standing::Held(block_of(tickets)),
            // Only an acquire says the position; the model always does.
            RealStanding::Waiting { ticket, recheck_in } => {
                Standing::Waiting { ticket: ticket.0 as u8, position: 0, recheck_in: recheck_in.as_secs() as u8 }
            }
            _ => Standing::Gone,
        }
    }

    fn step(&mut self) {
        let client = self.random.u8(..CLIENTS);
        let request = match self.requests[usize::from(client)].clone() {
            Some(request) if self.random.u8(..4) > 0 => request,
            _ => self.new_request(client),
        };
        self.requests[usize::from(client)] = Some(request.clone());
        let floor = self.model.last.saturating_sub(self.random.u8(..6));
        let verb = match self.random.u8(..10) {
            0..=4 => Verb::Acquire { block: request.block, floor: 0 },
            5 => Verb::Renew { ttl: self.random.u8(..8), waits: true },
            6 => Verb::Done,
            7 => Verb::Unknown,
            _ => Verb::UnlessAlone { block: self.random.u8(1..4), floor },
        };
        let mut execution = Execution::new(Rules::KEPT, NextWaiter::Reachable);
        let mut modelled = self.model.run(&Call { id: request.id, verb, age: 0 }, request.claim_spec, &mut execution);
        if let Standing::Waiting { position, .. } = &mut modelled
            && !matches!(verb, Verb::Acquire { .. })
        {
            *position = 0;
        }
        assert_eq!(modelled, self.run_real(&request, verb), "{verb:?} by {:?}", request.id);
        self.answers.insert((verb_word(verb), standing_word(modelled)));
        self.compare_pushes(execution.pushes);
        self.compare_queues();
        if self.random.u8(..3) == 0 {
            self.model.age();
            self.now = self.now + tick(1);
        }
    }

    fn compare_pushes(&mut self, modelled: Vec<Push>) {
        let mut modelled: Vec<_> = modelled
            .into_iter()
            .map(|push| match push {
                Push::Held { id, ticket, .. } => (hash_of(id), Some(u64::from(ticket))),
                Push::Gone { id } => (hash_of(id), None),
            })
            .collect();
        let real = self.real.take_pushes().into_iter();
        let mut real: Vec<_> = real
            .map(|(_, change)| match change {
                Change::Held(hash, ticket) => (hash, Some(ticket.0)),
                Change::Gone(hash) => (hash, None),
                other => panic!("{other:?} is not for one client"),
            })
            .collect();
        modelled.sort_unstable();
        real.sort_unstable();
        assert_eq!(modelled, real, "pushes");
    }

    fn compare_queues(&mut self) {
        let everything =
            Query { names: Names::Beginning(String::new()), after: None, limit: usize::MAX, entries: usize::MAX };
        let page = self.real.inspect(&everything, self.now);
        for (bit, name) in NAMES.iter().enumerate() {
            let resource = page.resources.iter().find(|resource| resource.name.as_str() == *name);
            let real: Vec<_> = resource.map_or(Vec::new(), |resource| {
                let entries = resource.queue.iter();
                entries.map(|it| (it.owner, block_of(it.tickets), it.holds, it.expires_in.as_secs() as u8)).collect()
            });
            let queue = self.model.entries.iter().filter(|it| it.names & (1 << bit) != 0);
            let modelled: Vec<_> = queue.map(|it| (hash_of(it.id), it.block, self.model.holds(it), it.lease)).collect();
            assert_eq!(modelled, real, "the queue of {name}");
        }
    }
}

#[test]
fn the_table_of_the_model_agrees_with_the_real_one() {
    let mut answers = BTreeSet::new();
    for seed in 0..HISTORIES {
        let mut both = TablePair::new(seed);
        for _ in 0..STEPS {
            let step = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| both.step()));
            step.unwrap_or_else(|_| panic!("the tables disagree in the history of seed {seed}"));
        }
        answers.append(&mut both.answers);
    }
    for verb in ["acquire", "renew"] {
        assert!(["held", "waiting", "gone"].iter().all(|word| answers.contains(&(verb, *word))), "{answers:?}");
    }
    assert!(["held", "gone"].iter().all(|word| answers.contains(&("unless alone", *word))), "{answers:?}");
}
