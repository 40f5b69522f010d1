//! Random verbs, applied to the store and to a [`Table`] side by side. Both must give the same kinds of replies, keep
//! tickets in the same order, and show the same queues after every step.
//!
//! Where time is set, leases run out in these histories. Where time is real, all leases are long and no name is sealed,
//! so that no claim ends by time.

mod choices;
mod compare;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;

use crate::claim::{Claim, ClaimHash, ClientId, Demand, Ticket, Tickets};
use crate::clock::Moment;
use crate::name::Name;
use crate::store::{Busy, Change, Lease, Leaving, Resource, Standing};
use crate::table::Table;

use super::Time;
use super::fixture::{Client, Fixture, expect_supported};

/// The environment variable with a seed. Set it to the seed that a failure printed, to repeat the same history.
pub const SEED_VAR: &str = "LOCKFAST_LOCKSTEP_SEED";

/// Random histories of verbs get the same replies from the store as from a [`Table`], each history on names of its own.
pub async fn random_verbs_are_answered_as_by_a_table(fixture: &Fixture) {
    let pace = |steps, unit| Pace { steps, unit, tolerance: Duration::ZERO, trouble: None };
    let (histories, pace) = match fixture.time() {
        Time::Set => (200, pace(60, Some(Duration::from_secs(1)))),
        Time::Real => (20, pace(40, None)),
    };
    let first = fastrand::u64(..u64::MAX / 2);
    let seeds = given_seed().map_or(first..first + histories, |seed| seed..seed + 1);
    run(fixture, pace, seeds).await;
}

/// The seed to repeat, if one is given.
pub(crate) fn given_seed() -> Option<u64> {
    std::env::var(SEED_VAR).ok().and_then(|text| text.parse().ok())
}

/// How a history goes.
#[derive(Clone, Copy)]
pub(crate) struct Pace<'a> {
    pub(crate) steps: u32,
    /// All spans are multiples of this. Without it, no claim ends by time.
    pub(crate) unit: Option<Duration>,
    /// How far apart two times may be that should be equal. If it is not zero, `advance(ZERO)` is called after every
    /// step, to correct for the time that has passed by itself.
    pub(crate) tolerance: Duration,
    /// Disturbances of the store.
    pub(crate) trouble: Option<&'a dyn Trouble>,
}

/// Disturbances of a store that takes a client without a subscription for dead when its claim is due, and checks of
/// what the store keeps.
#[async_trait]
pub(crate) trait Trouble: Sync {
    /// May do something that changes no reply. Called before each step.
    fn disturb(&self, rng: &mut Rng);

    /// Returns once the store knows that this client has a subscription, or has none any more.
    async fn until_subscribed(&self, client: ClientId, subscribed: bool);

    /// Checks what the store keeps for a queue that was just shown. Returns what is wrong with it.
    fn fault_behind(&self, shown: &Resource) -> Option<String>;
}

/// One history for each seed.
pub(crate) async fn run(fixture: &Fixture, pace: Pace<'_>, seeds: impl IntoIterator<Item = u64>) {
    fixture.require(fixture.guarantees().fair, "a queue");
    let mut clients = vec![fixture.client().await, fixture.client().await, fixture.client().await];
    if pace.trouble.is_some() {
        clients.push(fixture.client_without_subscription().await);
    }
    for seed in seeds {
        let mut clients: Vec<_> = clients.iter().collect();
        // With trouble, each history has one more client, the last one, which may die.
        let dying = match pace.trouble {
            Some(trouble) => {
                let dying = fixture.client().await;
                trouble.until_subscribed(dying.id(), true).await;
                Some(dying)
            }
            None => None,
        };
        clients.extend(&dying);
        let mut lockstep = Lockstep::new(fixture, &clients, pace, seed);
        for _ in 0..pace.steps {
            lockstep.step().await;
        }
        lockstep.end().await;
    }
}

/// One claim as each side knows it: the floors differ, because the tickets do.
#[derive(Clone)]
struct Pair {
    client: usize,
    of_store: Arc<Claim>,
    of_table: Arc<Claim>,
}

/// What most claims of a history are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Mixed,
    /// As most users' claims: one name, alone, one ticket.
    Plain,
    Readers,
    /// Several names at once.
    Several,
}

struct Lockstep<'a> {
    fixture: &'a Fixture,
    clients: &'a [&'a Client<'a>],
    pace: Pace<'a>,
    seed: u64,
    rng: Rng,
    style: Style,
    table: Table,
    now: Moment,
    /// Since when queues were not inspected: the store may not have removed expired claims since then.
    unseen_since: Option<Moment>,
    names: Vec<(Name, u32)>,
    pairs: Vec<Pair>,
    /// The blocks of the same claims, in the table and in the store, in order.
    blocks: Vec<(Tickets, Tickets)>,
    /// The index of the client that has died.
    dead_client: Option<usize>,
    detached: BTreeSet<ClaimHash>,
    history: Vec<String>,
}

impl<'a> Lockstep<'a> {
    fn new(fixture: &'a Fixture, clients: &'a [&'a Client<'a>], pace: Pace<'a>, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let style = match rng.u32(0..6) {
            0 => Style::Plain,
            1..3 => Style::Readers,
            3..5 => Style::Several,
            _ => Style::Mixed,
        };
        // With fewer names there are more claims on each.
        let mut names = vec![("a", Demand::ALL), ("b", Demand::ALL), ("s", 3), ("t", 5)];
        match style {
            Style::Mixed => {
                rng.shuffle(&mut names);
                names.truncate(rng.usize(1..=4));
            }
            Style::Plain | Style::Readers => names.truncate(rng.usize(1..=2)),
            Style::Several => {
                names.truncate(3);
                names.remove(rng.usize(..3));
            }
        }
        let name = |(text, capacity): &(&str, u32)| (fixture.name(&format!("{seed}.{text}")), *capacity);
        let (names, now) = (names.iter().map(name).collect(), Moment::from_nanos(1_000_000_000_000));
        let (table, unseen_since, dead_client) = (Table::new(Ticket(0)), None, None);
        let (pairs, blocks, detached, history) = Default::default();
        Self {
            fixture,
            clients,
            pace,
            seed,
            rng,
            style,
            table,
            now,
            unseen_since,
            names,
            pairs,
            blocks,
            dead_client,
            detached,
            history,
        }
    }

    fn is_timed(&self) -> bool {
        self.pace.unit.is_some()
    }

    /// Whether to make a claim as most users do.
    fn is_plain(&mut self) -> bool {
        self.style == Style::Plain && self.rng.u32(0..8) > 0
    }

    async fn step(&mut self) {
        if let Some(trouble) = self.pace.trouble {
            trouble.disturb(&mut self.rng);
        }
        match self.rng.u32(0..31) {
            0..9 => self.acquire_new().await,
            9..11 => self.acquire_again().await,
            11..14 => self.renew().await,
            14..16 => self.renew_several().await,
            16..22 => self.leave().await,
            22..24 => self.leave_several().await,
            24..26 => self.break_claim().await,
            26 if self.pace.trouble.is_some() && self.dead_client.is_none() => self.die().await,
            _ if self.is_timed() => return self.advance_time().await,
            _ => self.acquire_new().await,
        }
        self.inspect_queues().await;
    }

    async fn inspect_queues(&mut self) {
        if !self.pace.tolerance.is_zero() {
            self.fixture.advance(Duration::ZERO).await;
        }
        self.settle_table();
        self.compare_queues().await;
        self.unseen_since = None;
    }

    /// Applies one verb to the table. A waiter of a dead client is passed over when it is granted.
    fn in_table<T>(&mut self, verb: impl FnOnce(&mut Table, Moment) -> T) -> T {
        self.settle_table();
        let reply = verb(&mut self.table, self.now);
        self.settle_table();
        reply
    }

    fn settle_table(&mut self) {
        self.table.settle(self.now);
        loop {
            let (dead, detached) = (self.dead_client.map(|index| self.clients[index].id()), &self.detached);
            let passed_over = |(client, change): (ClientId, Change)| match change {
                Change::Held(owner, _) if Some(client) == dead && !detached.contains(&owner) => Some(owner),
                _ => None,
            };
            let owners: Vec<_> = self.table.take_pushes().into_iter().filter_map(passed_over).collect();
            if owners.is_empty() {
                return;
            }
            for pair in &self.pairs {
                if owners.contains(&pair.of_table.id.hash()) {
                    self.table.release(&Leaving::Done(Arc::clone(&pair.of_table)), self.now);
                }
            }
        }
    }

    async fn acquire_new(&mut self) {
        let Some(pair) = self.new_pair() else { return };
        self.pairs.push(pair.clone());
        self.acquire(pair).await;
    }

    async fn acquire_again(&mut self) {
        if let Some(pair) = self.some_pair() {
            self.acquire(pair).await;
        }
    }

    async fn acquire(&mut self, pair: Pair) {
        let busy = if self.rng.u32(0..4) == 0 && !self.is_plain() { Busy::Refuse } else { Busy::Wait };
        self.note(format_args!("acquire {:?} {busy:?}", pair.of_table));
        let store = self.clients[pair.client].store().acquire(&pair.of_store, busy).await;
        let table = self.in_table(|table, now| table.acquire(&pair.of_table, busy, now));
        self.compare_admissions(&pair, store, table);
    }

    async fn renew(&mut self) {
        let Some(pair) = self.some_holder_or_pair() else { return };
        let ttl = self.span(16);
        self.note(format_args!("renew {} by {ttl:?}", pair.of_table.id.hash()));
        let store = self.clients[pair.client].renew_by(&pair.of_store, ttl).await;
        let table = self.in_table(|table, now| table.renew(&Lease { claim: pair.of_table, ttl }, now));
        self.compare_standings(store, table);
    }

    /// Renews several claims in one call, some of them with a zero TTL, some detached from then on.
    async fn renew_several(&mut self) {
        let pairs = self.some_pairs(4);
        let Some(client) = pairs.first().map(|pair| pair.client) else { return };
        let leases = self.leases(&pairs);
        self.note(format_args!("renew {leases:?}"));
        let store = expect_supported(self.clients[client].store().renew(&leases).await);
        for (store, (lease, pair)) in store.into_iter().zip(leases.iter().zip(pairs)) {
            let owner = lease.claim.id.hash();
            let lease_of_table = Lease { claim: pair.of_table, ttl: lease.ttl };
            let table = self.in_table(|table, now| table.renew(&lease_of_table, now));
            if lease.claim.detached && !matches!(table, Standing::Gone(_)) {
                self.detached.insert(owner);
            }
            self.compare_standings_of_batch(store, table);
        }
    }

    async fn leave(&mut self) {
        let Some(pair) = self.some_holder_or_pair() else { return };
        let (of_table, of_store) = self.leaving(&pair);
        self.note(format_args!("release {of_table:?}"));
        let store = self.clients[pair.client].leave(of_store).await;
        let table = self.in_table(|table, now| table.release(&of_table, now));
        self.compare_standings(store, table);
    }

    /// Releases several claims of one client in one call.
    async fn leave_several(&mut self) {
        let pairs = self.some_pairs(3);
        let [first, _, ..] = &pairs[..] else { return };
        let client = first.client;
        let (of_table, of_store): (Vec<_>, Vec<_>) = pairs.iter().map(|pair| self.leaving(pair)).unzip();
        self.note(format_args!("release {of_table:?}"));
        let store = expect_supported(self.clients[client].store().release(&of_store).await);
        for (store, leaving) in store.into_iter().zip(&of_table) {
            let table = self.in_table(|table, now| table.release(leaving, now));
            self.compare_standings_of_batch(store, table);
        }
    }

    async fn break_claim(&mut self) {
        if self.unseen_since.is_some() {
            // An operator breaks claims that were shown.
            self.inspect_queues().await;
        }
        let Some((table, store)) = self.some_block() else { return };
        let name = self.names[self.rng.usize(..self.names.len())].0.clone();
        let (offset, at_once) = (u64::from(self.rng.u32(..table.count)), self.rng.bool());
        let leaving = |first: Ticket| Leaving::Break { name: name.clone(), ticket: Ticket(first.0 + offset), at_once };
        let (of_table, of_store) = (leaving(table.first), leaving(store.first));
        self.note(format_args!("release {of_table:?}"));
        let store = self.clients[0].leave(of_store).await;
        let table = self.in_table(|table, now| table.release(&of_table, now));
        self.compare_standings(store, table);
    }

    /// The last client dies: it makes no more calls.
    async fn die(&mut self) {
        let (Some(trouble), Some(last), None) =
            (self.pace.trouble, self.clients.len().checked_sub(1), self.dead_client)
        else {
            return;
        };
        self.note(format_args!("client {:?} dies", self.clients[last].id()));
        self.clients[last].unsubscribe();
        trouble.until_subscribed(self.clients[last].id(), false).await;
        self.dead_client = Some(last);
    }

    /// Advances time. Expired claims are noticed at once, or by the next verb.
    async fn advance_time(&mut self) {
        let span = self.pace.unit.unwrap_or_default() * self.rng.u32(0..6);
        self.note(format_args!("advance {span:?}"));
        self.fixture.advance(span).await;
        self.unseen_since.get_or_insert(self.now);
        self.now = self.now + span;
        if self.rng.bool() {
            self.inspect_queues().await;
        }
    }

    /// Releases all claims, so that nothing is left for the next history.
    async fn end(&mut self) {
        for pair in std::mem::take(&mut self.pairs) {
            self.clients[pair.client].release(&pair.of_store).await;
        }
        if let Some(unit) = self.pace.unit {
            self.fixture.advance(16 * unit).await;
        }
        for (name, _) in &self.names {
            assert_eq!(self.fixture.inspect(name).await, None, "left behind by seed {}", self.seed);
        }
    }

    fn note(&mut self, step: fmt::Arguments<'_>) {
        self.history.push(step.to_string());
    }
}
