//! Read-only views of the table: the standing of a claim, the holder that a refused claim collided with, pages of queues.

use std::time::Duration;

use crate::claim::{ClaimHash, Holder};
use crate::clock::Moment;
use crate::name::Name;
use crate::store::{Admission, BusyWith, Counters, Entry, Names, Page, Query, Resource, Standing};

use super::queue::Queue;
use super::{ClaimState, MAX_LOOKAHEAD, Table};

impl Table {
    /// What [`Store::inspect`](crate::store::Store::inspect) promises, without the counters.
    pub fn inspect(&mut self, query: &Query, now: Moment) -> Page {
        self.settle(now);
        let wanted = |name: &Name| match &query.names {
            Names::One(one) => name == one,
            Names::Beginning(text) => name.as_str().starts_with(text.as_str()),
        };
        let mut names: Vec<&Name> = match &query.names {
            Names::One(one) => self.queues.get_key_value(one).map(|(name, _)| name).into_iter().collect(),
            Names::Beginning(_) => self.queues.keys().filter(|name| wanted(name)).collect(),
        };
        if let Some(after) = &query.after {
            names.retain(|name| *name > after);
        }
        names.sort_unstable();
        let limit = query.limit.max(1);
        let next = (names.len() > limit).then(|| names[limit - 1].clone());
        names.truncate(limit);
        let resources = names.into_iter().map(|name| self.resource(name, query.entries, now)).collect();
        Page { resources, next, fleet: Counters::default() }
    }

    fn resource(&self, name: &Name, max_entries: usize, now: Moment) -> Resource {
        let queue = &self.queues[name];
        let entries = queue.entries();
        let front = entries.iter().take(max_entries.max(1));
        let shown: Vec<_> = front.map(|entry| self.entry(name, &self.claims[&entry.owner], now)).collect();
        let more = entries.len() - shown.len();
        let sealed_for = queue.seal.as_ref().map(|seal| seal.until.since(now));
        Resource { name: name.clone(), capacity: queue.capacity(), queue: shown, more, sealed_for }
    }

    fn entry(&self, name: &Name, state: &ClaimState, now: Moment) -> Entry {
        let mut demands = state.claim.demands.iter();
        let demand = demands
            .find(|demand| demand.name == *name)
            .expect("a claim has entries only in the queues of names it demands");
        Entry {
            owner: state.claim.id.hash(),
            tickets: state.tickets,
            mode: demand.mode(),
            weight: demand.weight,
            holds: state.holds(),
            since: now.since(state.standing_since),
            expires_in: state.expires_at.since(now),
            lingers: state.lingers,
            broken: state.broken,
            note: state.claim.note.clone(),
        }
    }

    pub(super) fn admission(&self, owner: ClaimHash, now: Moment) -> Admission {
        match self.standing(owner, now) {
            Standing::Waiting { ticket, recheck_in } => {
                let demands = self.claims[&owner].claim.demands.iter();
                let position = demands.map(|demand| self.queues[&demand.name].index_of(ticket)).max().unwrap_or(0);
                Admission::Queued { ticket, position, recheck_in }
            }
            Standing::Held(tickets) => Admission::Held(tickets),
            Standing::Gone(why) => Admission::Gone(why),
        }
    }

    /// The standing of a claim that is in the table.
    pub(super) fn standing(&self, owner: ClaimHash, now: Moment) -> Standing {
        let state = &self.claims[&owner];
        if state.holds() {
            return Standing::Held(state.tickets);
        }
        let queues = state.claim.demands.iter().map(|demand| &self.queues[&demand.name]);
        let last_end = queues.map(|queue| self.last_lease_end(queue, queue.index_of(state.tickets.first))).max();
        Standing::Waiting { ticket: state.tickets.first, recheck_in: last_end.unwrap_or(now).since(now) }
    }

    /// When all leases of the first `ahead` entries of a queue will have expired, as far as [`MAX_LOOKAHEAD`] shows.
    fn last_lease_end(&self, queue: &Queue, ahead: usize) -> Moment {
        let front = queue.entries().iter().take(ahead.min(MAX_LOOKAHEAD));
        // Also the entry right ahead of the waiter, which in a long queue is beyond the lookahead.
        let just_ahead = ahead.checked_sub(1).and_then(|index| queue.entries().get(index));
        front.chain(just_ahead).map(|entry| self.claims[&entry.owner].expires_at).max().unwrap_or(Moment::START)
    }

    pub(super) fn busy_with(&self, name: &Name, now: Moment) -> BusyWith {
        let Some(queue) = self.queues.get(name) else {
            return BusyWith::default();
        };
        let entries = queue.entries().iter().map(|entry| &self.claims[&entry.owner]);
        let holder = entries.clone().find(|state| state.holds());
        let held_for = |state: &ClaimState| -> Duration { now.since(state.standing_since) };
        BusyWith {
            held_for: holder.map(held_for),
            holder: holder.map(|state| Holder {
                owner: state.claim.id.hash(),
                fence: state.tickets.first,
                note: state.claim.note.clone(),
            }),
            position: queue.entries().len(),
        }
    }
}
