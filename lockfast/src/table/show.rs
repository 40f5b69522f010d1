//! What a table answers: where a claim stands, who is in the way, and pages of lines for people.

use std::time::Duration;

use crate::claim::{ClaimHash, Holder};
use crate::clock::Moment;
use crate::name::Name;
use crate::store::{Admission, BusyWith, Counters, Entry, Names, Page, Query, Resource, Standing};

use super::line::Line;
use super::{ClaimState, LOOKED_AT_AHEAD, Table};

impl Table {
    /// What [`Store::inspect`](crate::store::Store::inspect) promises, without the counters.
    pub fn inspect(&mut self, query: &Query, now: Moment) -> Page {
        self.settle(now);
        let wanted = |name: &Name| match &query.names {
            Names::One(one) => name == one,
            Names::Beginning(text) => name.as_str().starts_with(text.as_str()),
        };
        let mut names: Vec<&Name> = match &query.names {
            Names::One(one) => self.lines.get_key_value(one).map(|(name, _)| name).into_iter().collect(),
            Names::Beginning(_) => self.lines.keys().filter(|name| wanted(name)).collect(),
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

    fn resource(&self, name: &Name, entries: usize, now: Moment) -> Resource {
        let line = &self.lines[name];
        let places = line.places();
        let front = places.iter().take(entries.max(1));
        let shown: Vec<_> = front.map(|place| self.entry(name, &self.claims[&place.owner], now)).collect();
        let more = places.len() - shown.len();
        let sealed_for = line.seal.as_ref().map(|seal| seal.until.since(now));
        Resource { name: name.clone(), capacity: line.capacity(), queue: shown, more, sealed_for }
    }

    fn entry(&self, name: &Name, state: &ClaimState, now: Moment) -> Entry {
        let mut demands = state.claim.demands.iter();
        let demand = demands.find(|demand| demand.name == *name).expect("it stands in this line because it names it");
        Entry {
            owner: state.claim.id.hash(),
            tickets: state.tickets,
            mode: demand.mode(),
            weight: demand.weight,
            holds: state.holds(),
            since: now.since(state.since),
            expires_in: state.expires.since(now),
            lingers: state.lingers,
            broken: state.broken,
            note: state.claim.note.clone(),
        }
    }

    pub(super) fn admission(&self, owner: ClaimHash, now: Moment) -> Admission {
        match self.standing(owner, now) {
            Standing::Waiting { ticket, recheck_in } => {
                let demands = self.claims[&owner].claim.demands.iter();
                let position = demands.map(|demand| self.lines[&demand.name].index_of(ticket)).max().unwrap_or(0);
                Admission::Queued { ticket, position, recheck_in }
            }
            Standing::Held(tickets) => Admission::Held(tickets),
            Standing::Gone(why) => Admission::Gone(why),
        }
    }

    /// Where a claim of the table stands.
    pub(super) fn standing(&self, owner: ClaimHash, now: Moment) -> Standing {
        let entry = &self.claims[&owner];
        if entry.holds() {
            return Standing::Held(entry.tickets);
        }
        let lines = entry.claim.demands.iter().map(|demand| &self.lines[&demand.name]);
        let ends = lines.map(|line| self.leases_end(line, line.index_of(entry.tickets.first))).max();
        Standing::Waiting { ticket: entry.tickets.first, recheck_in: ends.unwrap_or(now).since(now) }
    }

    /// When the leases of the first `ahead` in a line will have run out.
    fn leases_end(&self, line: &Line, ahead: usize) -> Moment {
        let front = line.places().iter().take(ahead.min(LOOKED_AT_AHEAD));
        let just_ahead = ahead.checked_sub(1).and_then(|index| line.places().get(index));
        front.chain(just_ahead).map(|place| self.claims[&place.owner].expires).max().unwrap_or(Moment::START)
    }

    pub(super) fn busy_with(&self, name: &Name, now: Moment) -> BusyWith {
        let Some(line) = self.lines.get(name) else {
            return BusyWith::default();
        };
        let entries = line.places().iter().map(|place| &self.claims[&place.owner]);
        let holder = entries.clone().find(|entry| entry.holds());
        let held_for = |state: &ClaimState| -> Duration { now.since(state.since) };
        BusyWith {
            held_for: holder.map(held_for),
            holder: holder.map(|entry| Holder {
                owner: entry.claim.id.hash(),
                fence: entry.tickets.first,
                note: entry.claim.note.clone(),
            }),
            position: line.places().len(),
        }
    }
}
