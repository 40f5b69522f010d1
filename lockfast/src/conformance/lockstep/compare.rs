//! What must be equal in store and table.

use std::fmt;
use std::time::Duration;

use futures::future::join_all;

use crate::claim::{Holder, Tickets};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::store::{Admission, Names, Query, Resource, Standing, Why};

use super::super::fixture::expect_supported;
use super::{Lockstep, Pair, SEED_VAR};

impl Lockstep<'_> {
    pub(super) fn compare_admissions(&mut self, pair: &Pair, store: Result<Admission>, table: Result<Admission>) {
        match (store, table) {
            (Ok(Admission::Held(store)), Ok(Admission::Held(table))) => self.match_blocks(table, store),
            (
                Ok(Admission::Queued { ticket, position, recheck_in }),
                Ok(Admission::Queued { ticket: expected, position: behind, recheck_in: latest }),
            ) => {
                let block = pair.of_table.block;
                if !self.blocks.iter().any(|(table, _)| table.first == expected) {
                    self.match_blocks(Tickets::new(expected, block), Tickets::new(ticket, block));
                }
                self.compare_positions(position, behind);
                self.check(!self.is_timed() || recheck_in <= latest, "recheck", (recheck_in, latest));
            }
            (Ok(Admission::Refused(store)), Ok(Admission::Refused(table))) => {
                let owner = |holder: &Option<Holder>| holder.as_ref().map(|holder| holder.owner);
                let same = owner(&store.holder) == owner(&table.holder);
                self.check(same || self.unseen_since.is_some(), "holder", (&store, &table));
                self.compare_positions(store.position, table.position);
            }
            (Ok(Admission::Gone(store)), Ok(Admission::Gone(table))) => self.match_reasons(store, table),
            (Ok(Admission::Sealed(store)), Ok(Admission::Sealed(table))) => {
                self.check(store == table, "seal", (&store, &table));
            }
            (Err(Error::Invalid(_)), Err(Error::Invalid(_))) => {}
            differ => self.check(false, "admission", differ),
        }
    }

    /// A store may count entries whose lease has run out until it evicts them.
    fn compare_positions(&self, store: usize, table: usize) {
        let same = if self.unseen_since.is_some() { store >= table } else { store == table };
        self.check(same, "position", (store, table));
    }

    /// Compares the standing of a claim after a call about this claim alone.
    pub(super) fn compare_standings(&mut self, store: Standing, table: Standing) {
        let is_only = true;
        self.compare_standings_in_call(store, table, is_only);
    }

    /// Compares the standing of one claim after a call about several. The two sides may apply such a call in different
    /// orders, so `recheck_in` is not compared.
    pub(super) fn compare_standings_of_batch(&mut self, store: Standing, table: Standing) {
        let is_only = false;
        self.compare_standings_in_call(store, table, is_only);
    }

    fn compare_standings_in_call(&mut self, store: Standing, table: Standing, is_only: bool) {
        match (store, table) {
            (Standing::Held(store), Standing::Held(table)) => self.match_blocks(table, store),
            (Standing::Waiting { ticket, recheck_in }, Standing::Waiting { ticket: expected, recheck_in: latest }) => {
                let known = self.blocks.iter().any(|(table, store)| table.first == expected && store.first == ticket);
                self.check(known, "ticket", (ticket, expected));
                self.check(!self.is_timed() || !is_only || recheck_in <= latest, "recheck", (recheck_in, latest));
            }
            (Standing::Gone(store), Standing::Gone(table)) => self.match_reasons(store, table),
            differ => self.check(false, "standing", differ),
        }
    }

    /// A store may forget the reason; it may not give a wrong one.
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

    pub(super) async fn compare_queues(&mut self) {
        let query = |name: &Name| Query { names: Names::One(name.clone()), after: None, limit: 1, entries: usize::MAX };
        let queries: Vec<_> = self.names.iter().map(|(name, _)| query(name)).collect();
        // All at once: where each reply takes a while, inspecting is most of what this case does.
        let look = || join_all(queries.iter().map(|query| self.clients[0].store().inspect(query)));
        let mut shown = look().await;
        if self.unseen_since.is_some() && self.pace.trouble.is_some() {
            // Inspecting one name may remove expired claims of that queue only, and grant a claim on several names in
            // another queue.
            shown = look().await;
        }
        for (query, store) in queries.iter().zip(shown) {
            let store = expect_supported(store);
            let table = self.table.inspect(query, self.now);
            let same = store.resources.len() == table.resources.len();
            self.check(same, "resources", (&store.resources, &table.resources));
            for (shown, expected) in store.resources.iter().zip(&table.resources) {
                self.compare_queue(shown, expected);
            }
        }
    }

    fn compare_queue(&self, shown: &Resource, expected: &Resource) {
        self.check(shown.capacity == expected.capacity || shown.queue.is_empty(), "capacity", (shown, expected));
        let sealed = match (shown.sealed_for, expected.sealed_for) {
            (Some(store), Some(table)) => !self.is_timed() || self.is_near(store, table),
            (store, table) => store == table,
        };
        self.check(sealed, "seal", (shown, expected));
        self.check(shown.queue.len() == expected.queue.len(), "queue", (shown, expected));
        for (entry, other) in shown.queue.iter().zip(&expected.queue) {
            let looks = (entry.owner, entry.holds, entry.mode, entry.weight, entry.lingers, entry.broken);
            let should = (other.owner, other.holds, other.mode, other.weight, other.lingers, other.broken);
            self.check(looks == should, "entry", (entry, other));
            self.check(self.blocks.contains(&(other.tickets, entry.tickets)), "tickets", (entry, other));
            let times = self.is_near(entry.since, other.since) && self.is_near(entry.expires_in, other.expires_in);
            self.check(!self.is_timed() || times, "times", (entry, other));
        }
        let fault = self.pace.trouble.and_then(|trouble| trouble.fault_behind(shown));
        self.check(fault.is_none(), "what the store keeps for a queue", (fault, shown));
    }

    fn is_near(&self, one: Duration, other: Duration) -> bool {
        one.abs_diff(other) <= self.pace.tolerance
    }

    /// Fails with the history and the seed to repeat it.
    fn check(&self, same: bool, what: &str, store_and_table: impl fmt::Debug) {
        if !same {
            let (seed, history) = (self.seed, self.history.join("\n  "));
            panic!(
                "{what} of store and table differ: {store_and_table:?}\nafter\n  {history}\nagain with {SEED_VAR}={seed}"
            );
        }
    }
}
