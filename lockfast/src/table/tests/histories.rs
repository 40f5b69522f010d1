//! Random histories of verbs on a handful of names. After every step the answers, the listing and the pushes of the table are
//! compared with those of the naive reference, and the laws are checked.

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm};

use super::laws::{Action, Laws};
use super::naive::Naive;
use super::*;

/// A claim to make: an amount on each of its names.
#[derive(Clone, Debug)]
struct ClaimSpec {
    /// One bit for each name.
    names: u8,
    amount: u32,
    /// Whether it names a capacity that disagrees with the other claims.
    is_odd_capacity: bool,
    block: u32,
    /// How far the largest ticket that the client has seen is above the store's last one: after a loss of data it can be.
    floor: u64,
    ttl: u64,
}

#[derive(Clone, Debug)]
enum Step {
    /// A client acquires with a new id; its previous claim is left to its lease.
    Acquire(usize, ClaimSpec, Busy),
    /// The same acquire again, late or repeated.
    RepeatAcquire(usize, Busy),
    Renew(usize, u64),
    Leave(usize, LeavingKind),
    Break {
        name: usize,
        entry: usize,
        offset: u64,
        at_once: bool,
    },
    /// Seconds pass.
    Advance(u64),
}

#[derive(Clone, Debug)]
enum LeavingKind {
    Done,
    Unknown,
    Linger(u64),
    Seal(u64),
    UnlessAlone(u32, u64),
}

const CLIENTS: usize = 7;
const MAX_STEPS: usize = 44;

/// Two reader-writer resources and two semaphores, with the capacity that most claims name.
static NAMES: LazyLock<[(Name, u32); 4]> =
    LazyLock::new(|| [(name("a"), Demand::ALL), (name("b"), Demand::ALL), (name("s"), 3), (name("t"), 5)]);
static IDS: LazyLock<Vec<ClaimId>> =
    LazyLock::new(|| (0..MAX_STEPS as u64).map(|id| claim(id, Demand::shared(name("a"))).id).collect());

impl ClaimSpec {
    fn demands(&self) -> Demands {
        let names = NAMES.iter().enumerate().filter(|(bit, _)| self.names & (1 << bit) != 0);
        let demands = names.map(|(_, (name, capacity))| {
            let capacity = if self.is_odd_capacity { 4 } else { *capacity };
            let weight = match capacity {
                Demand::ALL if self.amount == 0 => 1,
                Demand::ALL => Demand::ALL,
                // With a capacity that disagrees, this may exceed it.
                permits => 1 + self.amount % (permits + u32::from(self.is_odd_capacity)),
            };
            Demand { name: name.clone(), capacity, weight }
        });
        Demands::of(demands.collect()).unwrap()
    }
}

fn claim_spec() -> impl Strategy<Value = ClaimSpec> {
    let names = prop_oneof![4 => Just(1), 1 => Just(2), 3 => Just(4), 1 => Just(8), 4 => 1_u8..16];
    let floor = prop_oneof![8 => Just(0), 1 => 0_u64..20];
    (names, 0_u32..6, prop::bool::weighted(0.05), 1_u32..5, floor, 1_u64..12).prop_map(
        |(names, amount, is_odd_capacity, block, floor, ttl)| ClaimSpec {
            names,
            amount,
            is_odd_capacity,
            block,
            floor,
            ttl,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let busy = || prop_oneof![3 => Just(Busy::Wait), 1 => Just(Busy::Refuse)];
    let kind = prop_oneof![
        4 => Just(LeavingKind::Done),
        2 => Just(LeavingKind::Unknown),
        1 => (0_u64..12).prop_map(LeavingKind::Linger),
        1 => (0_u64..12).prop_map(LeavingKind::Seal),
        3 => (1_u32..5, 0_u64..8).prop_map(|(block, floor)| LeavingKind::UnlessAlone(block, floor)),
    ];
    prop_oneof![
        8 => (0..CLIENTS, claim_spec(), busy()).prop_map(|(client, spec, busy)| Step::Acquire(client, spec, busy)),
        3 => (0..CLIENTS, busy()).prop_map(|(client, busy)| Step::RepeatAcquire(client, busy)),
        3 => (0..CLIENTS, 0_u64..16).prop_map(|(client, ttl)| Step::Renew(client, ttl)),
        6 => (0..CLIENTS, kind).prop_map(|(client, kind)| Step::Leave(client, kind)),
        1 => (0..NAMES.len(), 0_usize..4, 0_u64..4, any::<bool>())
            .prop_map(|(name, entry, offset, at_once)| Step::Break { name, entry, offset, at_once }),
        4 => (0_u64..7).prop_map(Step::Advance),
    ]
}

struct World {
    table: Table,
    naive: Naive,
    laws: Laws,
    /// The latest claim of each client.
    claims: [Option<Arc<Claim>>; CLIENTS],
    claim_count: usize,
    last_ticket: Ticket,
    now: Moment,
}

impl World {
    fn new() -> Self {
        let claims = Default::default();
        let (table, naive, laws) = (Table::new(Ticket(0)), Naive::default(), Laws::default());
        Self { table, naive, laws, claims, claim_count: 0, last_ticket: Ticket(0), now: at(100) }
    }

    fn run(&mut self, step: &Step) {
        let action = self.execute(step);
        let page = self.table.inspect(&everything(), self.now);
        self.naive.settle(self.now);
        let pushes = self.table.take_pushes();
        let mut actual: Vec<_> = pushes.iter().map(sortable).collect();
        let mut expected: Vec<_> = self.naive.take_pushes().iter().map(sortable).collect();
        actual.sort_unstable();
        expected.sort_unstable();
        assert_eq!(actual, expected, "pushes after {action:?}");
        self.naive.assert_agrees_with(&page, self.now);
        assert_eq!(self.table.len(), self.naive.len(), "claims, queues and tombstones after {action:?}");
        self.laws.check(&action, &page, &pushes, self.now);
    }

    fn execute(&mut self, step: &Step) -> Action {
        let claim_of = |world: &Self, client: usize| world.claims[client].clone();
        match step {
            Step::Acquire(client, claim_spec, busy) => {
                let claim = self.claim(*client, claim_spec);
                self.claims[*client] = Some(Arc::clone(&claim));
                self.acquire(claim, *busy)
            }
            Step::RepeatAcquire(client, busy) => {
                claim_of(self, *client).map_or(Action::None, |claim| self.acquire(claim, *busy))
            }
            Step::Renew(client, ttl) => claim_of(self, *client).map_or(Action::None, |claim| self.renew(claim, *ttl)),
            Step::Leave(client, kind) => match claim_of(self, *client) {
                Some(claim) => self.leave(self.leaving(claim, kind)),
                None => Action::None,
            },
            Step::Break { name, entry, offset, at_once } => {
                let entries = self.naive.entries();
                let ticket =
                    entries.get(entry % entries.len().max(1)).map_or(0, |entry| entry.tickets.first.0 + offset);
                let name = NAMES[*name].0.clone();
                self.leave(Leaving::Break { name, ticket: Ticket(ticket), at_once: *at_once })
            }
            Step::Advance(seconds) => {
                self.now = self.now + secs(*seconds);
                self.table.settle(self.now);
                self.naive.settle(self.now);
                Action::None
            }
        }
    }

    fn claim(&mut self, client: usize, claim_spec: &ClaimSpec) -> Arc<Claim> {
        self.claim_count += 1;
        Arc::new(Claim {
            id: IDS[self.claim_count - 1].clone(),
            client: ClientId(client as u64),
            demands: claim_spec.demands(),
            ttl: secs(claim_spec.ttl),
            block: claim_spec.block,
            floor: Ticket(if claim_spec.floor == 0 { 0 } else { self.last_ticket.0 + claim_spec.floor }),
            detached: false,
            note: Arc::default(),
        })
    }

    fn acquire(&mut self, claim: Arc<Claim>, busy: Busy) -> Action {
        let answer = self.table.acquire(&claim, busy, self.now).ok();
        assert_eq!(answer, self.naive.acquire(&claim, busy, self.now), "acquire of {claim:?}");
        if let Some(Admission::Held(tickets)) = &answer {
            self.last_ticket = self.last_ticket.max(tickets.last());
        }
        Action::Acquired(claim, answer)
    }

    fn renew(&mut self, claim: Arc<Claim>, ttl: u64) -> Action {
        let lease = Lease { claim, ttl: secs(ttl) };
        assert_eq!(self.table.renew(&lease, self.now), self.naive.renew(&lease, self.now), "{lease:?}");
        Action::Renewed
    }

    fn leaving(&self, claim: Arc<Claim>, kind: &LeavingKind) -> Leaving {
        match kind {
            LeavingKind::Done => Leaving::Done(claim),
            LeavingKind::Unknown => Leaving::Unknown(claim),
            LeavingKind::Linger(span) => Leaving::Linger(claim, secs(*span)),
            LeavingKind::Seal(keep) => Leaving::Seal { claim, value: Bytes::from_static(b"done"), keep: secs(*keep) },
            LeavingKind::UnlessAlone(block, floor) => {
                Leaving::UnlessAlone { claim, block: *block, floor: Ticket(self.last_ticket.0 + floor) }
            }
        }
    }

    fn leave(&mut self, leaving: Leaving) -> Action {
        let answer = self.table.release(&leaving, self.now);
        assert_eq!(answer, self.naive.release(&leaving, self.now), "answer to {leaving:?}");
        Action::Left(leaving)
    }

    /// 16 s are longer than every lease and seal: then everything has expired, and the table is empty.
    fn end(&mut self) {
        self.run(&Step::Advance(16));
        assert!(self.table.is_empty(), "left behind: {:?}", self.table);
    }
}

/// The order of pushes within one verb is free, so they are compared as a set.
fn sortable((client, change): &(ClientId, Change)) -> (u64, ClaimHash, u64) {
    match change {
        Change::Held(owner, ticket) => (client.0, *owner, ticket.0),
        Change::Gone(owner) => (client.0, *owner, 0),
        Change::Recheck(owner, span) => (client.0, *owner, u64::MAX - span.as_secs()),
        other => panic!("a table does not push {other:?}"),
    }
}

proptest! {
    // A failure becomes a named test in `interleavings.rs`, not a file of seeds. XorShift is fast enough without optimisation.
    #![proptest_config(Config {
        cases: 10_000, failure_persistence: None, rng_algorithm: RngAlgorithm::XorShift, ..Config::default()
    })]

    #[test]
    fn any_history_keeps_the_rule(steps in prop::collection::vec(step(), 1..MAX_STEPS)) {
        let mut world = World::new();
        for step in &steps {
            world.run(step);
        }
        world.end();
    }
}
