//! The random choices of a history.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::claim::{Claim, Demand, Demands, Ticket, Tickets};
use crate::store::{Lease, Leaving, Standing};

use super::{Lockstep, Pair, Style};

impl Lockstep<'_> {
    /// A span within which leases end, or one within which none does.
    pub(super) fn span(&mut self, max: u32) -> Duration {
        let count = self.rng.u32(1..=max);
        self.pace.unit.map_or(Duration::from_secs(600 + u64::from(count)), |unit| unit * count)
    }

    /// A claim of a client that is not dead.
    pub(super) fn new_pair(&mut self) -> Option<Pair> {
        let client = self.rng.usize(..self.clients.len());
        if self.dead_client == Some(client) {
            return None;
        }
        let demands = self.demands();
        let claim = self.clients[client].claim(demands);
        let (table_floor, store_floor) = if self.rng.u32(0..4) == 0 { self.floors() } else { Default::default() };
        let (ttl, block) = (self.span(9), if self.is_plain() { 1 } else { self.rng.u32(1..5) });
        let with = |floor| Claim { ttl, block, floor, ..(*claim).clone() };
        Some(Pair { client, of_store: Arc::new(with(store_floor)), of_table: Arc::new(with(table_floor)) })
    }

    fn demands(&mut self) -> Demands {
        let (count, is_plain) = (self.names.len(), self.is_plain());
        let readers = if self.style == Style::Readers { 2 } else { 1 };
        let has_several = !is_plain && self.rng.u32(0..4) < if self.style == Style::Several { 2 } else { 1 };
        let name_bits = match (has_several, self.style) {
            (true, _) => self.rng.usize(1..1 << count),
            // Makes claims on several names wait for one of them, behind claims on that one.
            (false, Style::Several) if self.rng.u32(0..4) > 0 => 1 << (count - 1),
            (false, _) => 1 << self.rng.usize(..count),
        };
        let has_odd_capacity = !is_plain && self.rng.u32(0..20) == 0;
        let mut demands = Vec::new();
        for (bit, (name, capacity)) in self.names.iter().enumerate() {
            if name_bits & (1 << bit) != 0 {
                let capacity = if has_odd_capacity { 4 } else { *capacity };
                let weight = match capacity {
                    Demand::ALL if !is_plain && self.rng.u32(0..3) < readers => 1,
                    Demand::ALL => Demand::ALL,
                    permits if has_odd_capacity => self.rng.u32(1..=permits + 1),
                    permits => self.rng.u32(1..=permits).min(self.rng.u32(1..=permits)),
                };
                demands.push(Demand { name: name.clone(), capacity, weight });
            }
        }
        Demands::of(demands).expect("one to four names, each once")
    }

    /// The last tickets of a block that both sides know.
    fn floors(&mut self) -> (Ticket, Ticket) {
        match self.blocks.len() {
            0 => Default::default(),
            some => {
                let (table, store) = self.blocks[self.rng.usize(..some)];
                (table.last(), store.last())
            }
        }
    }

    pub(super) fn some_pair(&mut self) -> Option<Pair> {
        // The latest claims are the likeliest to be in a queue.
        let back = self.rng.usize(..8).min(self.rng.usize(..8));
        let pair = self.pairs.iter().rev().nth(back).cloned();
        pair.filter(|pair| self.dead_client != Some(pair.client))
    }

    /// A holder, half of the time.
    pub(super) fn some_holder_or_pair(&mut self) -> Option<Pair> {
        for _ in 0..self.rng.u32(..12) {
            if let Some(pair) = self.some_pair().filter(|pair| self.held_when_seen(pair)) {
                return Some(pair);
            }
        }
        self.some_pair()
    }

    /// Up to `max` pairs of one client.
    pub(super) fn some_pairs(&mut self, max: usize) -> Vec<Pair> {
        let mut pairs: Vec<Pair> = Vec::new();
        for _ in 0..4 * max {
            let found = self.some_pair().filter(|_| pairs.len() < max);
            pairs.extend(found.filter(|pair| pairs.first().is_none_or(|first| first.client == pair.client)));
        }
        pairs
    }

    pub(super) fn some_block(&mut self) -> Option<(Tickets, Tickets)> {
        let back = self.rng.usize(..6);
        self.blocks.iter().rev().nth(back).copied()
    }

    pub(super) fn leases(&mut self, pairs: &[Pair]) -> Vec<Lease> {
        let usual = self.span(16);
        let lease = |pair: &Pair| {
            let ttl = match self.rng.u32(0..4) {
                0 => Duration::ZERO,
                1 => self.span(16),
                _ => usual,
            };
            let detached = self.rng.u32(0..3) == 0;
            Lease { claim: Arc::new(Claim { detached, ..(*pair.of_store).clone() }), ttl }
        };
        pairs.iter().map(lease).collect()
    }

    /// The same way to leave, for the table and for the store.
    pub(super) fn leaving(&mut self, pair: &Pair) -> (Leaving, Leaving) {
        let (span, block, floors) = (self.span(12), self.rng.u32(1..5), self.floors());
        // Only a holder lingers, seals or goes on. A claim that holds because a lease has just run out was not
        // notified.
        let way = match (self.unseen_since, self.held_when_seen(pair)) {
            (None, _) => self.rng.u32(..12),
            // `UnlessAlone` depends on the claims behind, which may hold by now.
            (Some(_), true) => self.rng.u32(4..9),
            (Some(_), false) => self.rng.u32(..6),
        };
        let seals = self.is_timed();
        let leaving = |claim: &Arc<Claim>, floor: Ticket| match way {
            0..4 => Leaving::Done(Arc::clone(claim)),
            4..6 => Leaving::Unknown(Arc::clone(claim)),
            6 => Leaving::Linger(Arc::clone(claim), span),
            7..9 if seals => Leaving::Seal { claim: Arc::clone(claim), value: Bytes::from_static(b"done"), keep: span },
            _ => Leaving::UnlessAlone { claim: Arc::clone(claim), block, floor },
        };
        (leaving(&pair.of_table, floors.0), leaving(&pair.of_store, floors.1))
    }

    /// Whether the claim held when queues were last inspected.
    fn held_when_seen(&mut self, pair: &Pair) -> bool {
        let question = Lease { claim: Arc::clone(&pair.of_table), ttl: Duration::ZERO };
        matches!(self.table.renew(&question, self.unseen_since.unwrap_or(self.now)), Standing::Held(_))
    }
}
