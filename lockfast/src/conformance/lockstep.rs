//! Random verbs, sent to the store and told to a [`Table`] side by side. Both must give the same kinds of answers, keep
//! tickets in the same order, and show the same lines after every step.
//!
//! Where time stands still until it is turned, leases run out in these histories. Where it goes on by itself, all leases are
//! long and nothing is sealed, so that nothing ends by time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use futures::future::join_all;

use crate::claim::{Claim, Demand, Demands, Holder, Ticket, Tickets};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::store::{Admission, Busy, Lease, Leaving, Names, Query, Resource, Standing, Why};
use crate::table::Table;

use super::Time;
use super::place::{Client, Place, promised};

/// Set this variable to the seed that a failure printed, to see the same history again.
pub const SEED: &str = "LOCKFAST_LOCKSTEP_SEED";

/// As many histories as there is time for, each on names of its own.
pub async fn random_verbs_are_answered_as_a_table_would(place: &Place) {
    place.needs(place.guarantees().fair, "a line");
    let clients = [place.client().await, place.client().await, place.client().await];
    let (histories, steps) = match place.time() {
        Time::Set => (200, 60),
        Time::Real => (20, 40),
    };
    let given = std::env::var(SEED).ok().and_then(|text| text.parse().ok());
    let first = given.unwrap_or_else(|| fastrand::u64(..u64::MAX / 2));
    for seed in (first..).take(if given.is_some() { 1 } else { histories }) {
        let mut both = Lockstep::new(place, &clients, seed);
        for _ in 0..steps {
            both.step().await;
        }
        both.end().await;
    }
}

/// One claim as each side knows it: the floors differ, because the tickets do.
#[derive(Clone)]
struct Party {
    client: usize,
    of_store: Arc<Claim>,
    of_table: Arc<Claim>,
}

struct Lockstep<'a> {
    place: &'a Place,
    clients: &'a [Client<'a>],
    seed: u64,
    rng: Rng,
    table: Table,
    now: Moment,
    names: Vec<(Name, u32)>,
    parties: Vec<Party>,
    /// Blocks that are the same claim's, the table's and the store's, in order.
    blocks: Vec<(Tickets, Tickets)>,
    history: Vec<String>,
}

impl<'a> Lockstep<'a> {
    fn new(place: &'a Place, clients: &'a [Client<'a>], seed: u64) -> Self {
        let names = [("a", Demand::ALL), ("b", Demand::ALL), ("s", 3), ("t", 5)];
        let names = names.map(|(text, capacity)| (place.name(&format!("{seed}.{text}")), capacity)).to_vec();
        let (table, now) = (Table::new(Ticket(0)), Moment::from_nanos(1_000_000_000_000));
        let (parties, blocks, history) = Default::default();
        Self { place, clients, seed, rng: Rng::with_seed(seed), table, now, names, parties, blocks, history }
    }

    fn is_timed(&self) -> bool {
        self.place.time() == Time::Set
    }

    /// A span within which things end, or one within which nothing does.
    fn span(&mut self, most: u64) -> Duration {
        let seconds = self.rng.u64(1..=most);
        if self.is_timed() { Duration::from_secs(seconds) } else { Duration::from_secs(600 + seconds) }
    }

    async fn step(&mut self) {
        let choice = self.rng.u32(0..28);
        match choice {
            0..9 => self.ask().await,
            9..12 => self.ask_again().await,
            12..15 => self.renew().await,
            15..22 => self.leave().await,
            22..24 => self.break_one().await,
            _ if self.is_timed() => self.pass().await,
            _ => self.ask().await,
        }
        self.compare_lines().await;
    }

    async fn ask(&mut self) {
        let client = self.rng.usize(..self.clients.len());
        let demands = self.demands();
        let claim = self.clients[client].claim(demands);
        let (table_floor, store_floor) = if self.rng.u32(0..4) == 0 { self.floors() } else { Default::default() };
        let (ttl, block) = (self.span(12), self.rng.u32(1..5));
        let with = |floor| Claim { ttl, block, floor, ..(*claim).clone() };
        let party = Party { client, of_store: Arc::new(with(store_floor)), of_table: Arc::new(with(table_floor)) };
        self.parties.push(party.clone());
        self.acquire(party).await;
    }

    async fn ask_again(&mut self) {
        if let Some(party) = self.some_party() {
            self.acquire(party).await;
        }
    }

    fn demands(&mut self) -> Demands {
        let several = self.rng.u32(0..4) == 0;
        let wanted = if several { self.rng.usize(1..16) } else { 1 << self.rng.usize(..4) };
        let odd = self.rng.u32(0..20) == 0;
        let mut demands = Vec::new();
        for (bit, (name, capacity)) in self.names.iter().enumerate() {
            if wanted & (1 << bit) != 0 {
                let capacity = if odd { 4 } else { *capacity };
                let weight = match capacity {
                    Demand::ALL if self.rng.u32(0..3) == 0 => 1,
                    Demand::ALL => Demand::ALL,
                    permits => self.rng.u32(1..=permits + u32::from(odd)),
                };
                demands.push(Demand { name: name.clone(), capacity, weight });
            }
        }
        Demands::of(demands).expect("one to four names, each once")
    }

    /// The last numbers of a block that both sides know.
    fn floors(&mut self) -> (Ticket, Ticket) {
        match self.blocks.len() {
            0 => Default::default(),
            some => {
                let (table, store) = self.blocks[self.rng.usize(..some)];
                (table.last(), store.last())
            }
        }
    }

    fn some_party(&mut self) -> Option<Party> {
        // The latest are the likeliest to be in line.
        let back = self.rng.usize(..8).min(self.rng.usize(..8));
        self.parties.iter().rev().nth(back).cloned()
    }

    async fn acquire(&mut self, party: Party) {
        let busy = if self.rng.u32(0..4) == 0 { Busy::Refuse } else { Busy::Wait };
        self.note(format_args!("acquire {:?} {busy:?}", party.of_table));
        let store = self.clients[party.client].store().acquire(&party.of_store, busy).await;
        let table = self.table.acquire(&party.of_table, busy, self.now);
        self.compare_admissions(&party, store, table);
    }

    async fn renew(&mut self) {
        let Some(party) = self.some_party() else { return };
        let ttl = self.span(16);
        self.note(format_args!("renew {} by {ttl:?}", party.of_table.id.hash()));
        let store = self.clients[party.client].renew_by(&party.of_store, ttl).await;
        let table = self.table.renew(&Lease { claim: Arc::clone(&party.of_table), ttl }, self.now);
        self.compare_standings(store, table);
    }

    async fn leave(&mut self) {
        let Some(party) = self.some_party() else { return };
        let (span, block, floors) = (self.span(12), self.rng.u32(1..5), self.floors());
        let way = self.rng.u32(0..11);
        let seals = self.is_timed();
        let leaving = |claim: &Arc<Claim>, floor: Ticket| match way {
            0..4 => Leaving::Done(Arc::clone(claim)),
            4..6 => Leaving::Unknown(Arc::clone(claim)),
            6 => Leaving::Linger(Arc::clone(claim), span),
            7 if seals => Leaving::Seal { claim: Arc::clone(claim), value: Bytes::from_static(b"done"), keep: span },
            _ => Leaving::UnlessAlone { claim: Arc::clone(claim), block, floor },
        };
        let (of_table, of_store) = (leaving(&party.of_table, floors.0), leaving(&party.of_store, floors.1));
        self.note(format_args!("release {of_table:?}"));
        let store = self.clients[party.client].leave(of_store).await;
        let table = self.table.release(&of_table, self.now);
        self.compare_standings(store, table);
    }

    async fn break_one(&mut self) {
        let Some((table, store)) = self.some_block() else { return };
        let name = self.names[self.rng.usize(..self.names.len())].0.clone();
        let (offset, at_once) = (u64::from(self.rng.u32(..table.count)), self.rng.bool());
        let leaving = |first: Ticket| Leaving::Break { name: name.clone(), ticket: Ticket(first.0 + offset), at_once };
        let (of_table, of_store) = (leaving(table.first), leaving(store.first));
        self.note(format_args!("release {of_table:?}"));
        let store = self.clients[0].leave(of_store).await;
        let table = self.table.release(&of_table, self.now);
        self.compare_standings(store, table);
    }

    fn some_block(&mut self) -> Option<(Tickets, Tickets)> {
        let back = self.rng.usize(..6);
        self.blocks.iter().rev().nth(back).copied()
    }

    async fn pass(&mut self) {
        let span = Duration::from_secs(self.rng.u64(0..7));
        self.note(format_args!("pass {span:?}"));
        self.place.pass_time(span).await;
        self.now = self.now + span;
    }

    /// All leave, so that nothing is left for the next history.
    async fn end(&mut self) {
        for party in std::mem::take(&mut self.parties) {
            self.clients[party.client].done(&party.of_store).await;
        }
        if self.is_timed() {
            self.place.pass_time(Duration::from_secs(16)).await;
        }
        for (name, _) in &self.names {
            assert_eq!(self.place.look(name).await, None, "left behind by seed {}", self.seed);
        }
    }

    fn compare_admissions(&mut self, party: &Party, store: Result<Admission>, table: Result<Admission>) {
        match (store, table) {
            (Ok(Admission::Held(store)), Ok(Admission::Held(table))) => self.match_blocks(table, store),
            (
                Ok(Admission::Queued { ticket, position, recheck_in }),
                Ok(Admission::Queued { ticket: expected, position: behind, recheck_in: latest }),
            ) => {
                let block = party.of_table.block;
                if !self.blocks.iter().any(|(table, _)| table.first == expected) {
                    self.match_blocks(Tickets::new(expected, block), Tickets::new(ticket, block));
                }
                self.check(position == behind, "position", (position, behind));
                self.check(!self.is_timed() || recheck_in <= latest, "recheck", (recheck_in, latest));
            }
            (Ok(Admission::Refused(store)), Ok(Admission::Refused(table))) => {
                let owner = |holder: &Option<Holder>| holder.as_ref().map(|holder| holder.owner);
                self.check(owner(&store.holder) == owner(&table.holder), "holder", (&store, &table));
                self.check(store.position == table.position, "position", (&store, &table));
            }
            (Ok(Admission::Gone(store)), Ok(Admission::Gone(table))) => self.match_reasons(store, table),
            (Ok(Admission::Sealed(store)), Ok(Admission::Sealed(table))) => {
                self.check(store == table, "seal", (&store, &table));
            }
            (Err(Error::Invalid(_)), Err(Error::Invalid(_))) => {}
            differ => self.check(false, "admission", differ),
        }
    }

    fn compare_standings(&mut self, store: Standing, table: Standing) {
        match (store, table) {
            (Standing::Held(store), Standing::Held(table)) => self.match_blocks(table, store),
            (Standing::Waiting { ticket, recheck_in }, Standing::Waiting { ticket: expected, recheck_in: latest }) => {
                let known = self.blocks.iter().any(|(table, store)| table.first == expected && store.first == ticket);
                self.check(known, "ticket", (ticket, expected));
                self.check(!self.is_timed() || recheck_in <= latest, "recheck", (recheck_in, latest));
            }
            (Standing::Gone(store), Standing::Gone(table)) => self.match_reasons(store, table),
            differ => self.check(false, "standing", differ),
        }
    }

    /// A store may forget why; it may not make something up.
    fn match_reasons(&self, store: Why, table: Why) {
        self.check(store == table || store == Why::Unknown, "reason", (store, table));
    }

    /// The same claim has the same block, and blocks are in the same order, without overlap.
    fn match_blocks(&mut self, table: Tickets, store: Tickets) {
        self.check(store.count == table.count, "block", (store, table));
        match self.blocks.binary_search_by_key(&table.first, |(table, _)| table.first) {
            Ok(index) => self.check(self.blocks[index].1 == store, "block", (store, self.blocks[index])),
            Err(index) => {
                let above = index.checked_sub(1).is_none_or(|before| self.blocks[before].1.last() < store.first);
                let below = self.blocks.get(index).is_none_or(|(_, after)| store.last() < after.first);
                self.check(above && below, "order of tickets", (store, table));
                self.blocks.insert(index, (table, store));
            }
        }
    }

    async fn compare_lines(&mut self) {
        let query = |name: &Name| Query { names: Names::One(name.clone()), after: None, limit: 1, seats: usize::MAX };
        let queries: Vec<_> = self.names.iter().map(|(name, _)| query(name)).collect();
        // All at once: where each answer takes a while, looking is most of what this case does.
        let shown = join_all(queries.iter().map(|query| self.clients[0].store().inspect(query))).await;
        for (query, store) in queries.iter().zip(shown) {
            let store = promised(store);
            let table = self.table.inspect(query, self.now);
            let same = store.resources.len() == table.resources.len();
            self.check(same, "resources", (&store.resources, &table.resources));
            for (shown, expected) in store.resources.iter().zip(&table.resources) {
                self.compare_line(shown, expected);
            }
        }
    }

    fn compare_line(&self, shown: &Resource, expected: &Resource) {
        self.check(shown.capacity == expected.capacity || shown.line.is_empty(), "capacity", (shown, expected));
        self.check(shown.sealed_for.is_some() == expected.sealed_for.is_some(), "seal", (shown, expected));
        self.check(shown.line.len() == expected.line.len(), "line", (shown, expected));
        for (seat, other) in shown.line.iter().zip(&expected.line) {
            let looks = (seat.owner, seat.holds, seat.mode, seat.weight, seat.lingers, seat.broken);
            let should = (other.owner, other.holds, other.mode, other.weight, other.lingers, other.broken);
            self.check(looks == should, "seat", (seat, other));
            self.check(self.blocks.contains(&(other.tickets, seat.tickets)), "tickets", (seat, other));
            let times = (seat.since, seat.expires_in) == (other.since, other.expires_in);
            self.check(!self.is_timed() || times, "times", (seat, other));
        }
    }

    fn note(&mut self, step: fmt::Arguments<'_>) {
        self.history.push(step.to_string());
    }

    /// Fails with what is needed to see it again.
    fn check(&self, same: bool, what: &str, store_and_table: impl fmt::Debug) {
        if !same {
            let (seed, history) = (self.seed, self.history.join("\n  "));
            panic!(
                "{what} of store and table differ: {store_and_table:?}\nafter\n  {history}\nagain with {SEED}={seed}"
            );
        }
    }
}
