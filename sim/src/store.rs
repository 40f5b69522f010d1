//! The store: a table, the ledger beside it, and its faults (it restarts, stalls, loses its data).

use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::time::Duration;

use lockfast::Mode;
use lockfast::store::{Admission, Change, Leaving, Standing, Why};
use lockfast::store::{ClaimHash, ClientId, Demand, Moment, Ticket};
use lockfast::table::Table;

use crate::caller::claim_of;
use crate::clock::{Skew, Time};
use crate::faults::Kind;
use crate::invariants::{self, Invariant};
use crate::ledger::{ClaimMap, Exit, FirstBytes, Ledger, RemovedEntry};
use crate::network::{Delivery, Reply, Request};
use crate::process::of_client_id;
use crate::world::World;

/// The time of day when the store's clock shows zero: a day in 2026, in microseconds. Tickets are seeded with the time of day, so
/// they look like those of a real store.
const WALL_CLOCK: u64 = 1_767_225_600_000_000;
/// Ledger and table are compared, and a release is forged, after one verb in this many.
const COMPARE_EVERY: u64 = 64;

pub(crate) struct Store {
    pub(crate) table: Table,
    pub(crate) ledger: Ledger,
    pub(crate) skew: Skew,
    pub(crate) is_up: bool,
    pub(crate) stalled_until: Time,
    /// Claims that were in the queue when the data was lost, or that an operator ended at once: their holders do not know.
    ended: HashSet<ClaimHash, BuildHasherDefault<FirstBytes>>,
    /// Claims whose callers were done with them before the acquire ran.
    left_before: ClaimMap<Time>,
    verbs: u64,
    pushes: Vec<(ClientId, Change)>,
    removed: Vec<RemovedEntry>,
}

/// Why a claim may leave without a release of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Lease,
    Break { at_once: bool },
    Seal,
}

impl Store {
    pub(crate) fn new(skew: Skew, names: usize) -> Self {
        let table = Table::new(seed(skew, Time::BEGINNING));
        Self {
            table,
            ledger: Ledger::new(names),
            skew,
            is_up: true,
            stalled_until: Time(0),
            ended: HashSet::default(),
            left_before: ClaimMap::default(),
            verbs: 0,
            pushes: Vec::new(),
            removed: Vec::new(),
        }
    }

    /// Whether the store ended the claim of this fence without its holder's knowing.
    pub(crate) fn has_ended(&self, owner: ClaimHash, fence: Ticket) -> bool {
        let is_there = self.ledger.get(owner).is_some_and(|entry| entry.tickets.contains(fence));
        self.ended.contains(&owner) && !is_there
    }

    /// The caller behind a claim is done with it.
    pub(crate) fn note_left(&mut self, owner: ClaimHash, now: Time) {
        match self.ledger.get_mut(owner) {
            Some(entry) => entry.left = Some(now),
            None => drop(self.left_before.insert(owner, now)),
        }
    }

    /// Everything is forgotten. Tickets go on from the clock.
    pub(crate) fn lose_data(&mut self, now: Time, behind: Duration) {
        self.ended.extend(self.ledger.entries().map(|entry| entry.claim.id.hash()));
        self.ledger = Ledger::new(self.ledger.used.len());
        let seed = seed(self.skew, now);
        self.table = Table::new(Ticket(seed.0 - behind.as_micros() as u64));
    }
}

fn seed(skew: Skew, now: Time) -> Ticket {
    Ticket(WALL_CLOCK + skew.local(now).as_nanos() / 1_000)
}

impl World<'_> {
    /// A request reaches the store.
    pub(crate) fn arrive(&mut self, delivery: Box<Delivery>) {
        if self.now < self.store.stalled_until && self.store.is_up {
            self.bites.note(Kind::StoreStalled);
            self.clients[delivery.client as usize].note_trouble(self.store.stalled_until);
            let until = self.store.stalled_until;
            return self.schedule.put(until, crate::schedule::Event::Arrive(delivery));
        }
        if !self.does_run(&delivery) {
            return;
        }
        self.clients[delivery.client as usize].note_run(delivery.life, self.now);
        if self.trace.is_on() {
            self.trace.verb(self.now, &delivery);
        }
        let request = std::rc::Rc::clone(&delivery.request);
        let reply = self.run_verbs(&request, delivery.sent);
        if self.trace.is_on() {
            self.trace.reply(self.now, &reply);
        }
        self.answer(&delivery, reply);
    }

    fn run_verbs(&mut self, request: &Request, sent: Time) -> Reply {
        let now = self.store.skew.local(self.now);
        match request {
            Request::Acquire(claim, busy) => {
                let answer = self.store.table.acquire(claim, *busy, now);
                self.note_gone(Cause::Lease, now);
                self.note_granted(Some(claim.id.hash()));
                if let Ok(admission) = &answer {
                    if let Admission::Held(_) = admission {
                        let check = invariants::check_not_sealed(&self.names, &claim.demands, now);
                        self.require(check);
                    }
                    let left = self.store.left_before.remove(&claim.id.hash());
                    // A store that lost its data has lost its tombstones too: a copy that runs then costs one lease.
                    let is_from_before_data_loss = left.is_some() && self.store.ended.contains(&claim.id.hash());
                    let is_ghost = self.now.since(sent) > claim.tombstone() || is_from_before_data_loss;
                    let noted = self.store.ledger.note_acquire(claim, admission, now, self.now, left, is_ghost);
                    self.agree(noted);
                }
                self.conclude();
                Reply::Admission(Box::new(answer))
            }
            Request::Renew(leases) => {
                let mut standings = Vec::with_capacity(leases.len());
                for lease in leases {
                    let standing = self.store.table.renew(lease, now);
                    self.note_gone(Cause::Lease, now);
                    self.note_granted(Some(lease.claim.id.hash()));
                    let noted = self.store.ledger.note_renewal(lease, &standing, now, self.now);
                    self.agree(noted);
                    self.conclude();
                    standings.push(standing);
                }
                Reply::Standings(standings)
            }
            Request::Release(batch) => {
                let is_single = batch.len() == 1;
                Reply::Standings(batch.iter().map(|leaving| self.release(leaving, is_single, now)).collect())
            }
            Request::Record => Reply::Recorded,
        }
    }

    fn release(&mut self, leaving: &Leaving, is_single: bool, now: Moment) -> Standing {
        let mut standing = self.store.table.release(leaving, now);
        let cause = match leaving {
            Leaving::Break { at_once, .. } => Cause::Break { at_once: *at_once },
            Leaving::Seal { .. } => Cause::Seal,
            _ => Cause::Lease,
        };
        self.note_gone(cause, now);
        self.note_granted(claim_of(leaving).map(|claim| claim.id.hash()));
        self.note_seal(leaving, now);
        match self.store.ledger.note_release(leaving, &standing, now, self.now) {
            Ok(removed) => self.store.removed.extend(removed),
            Err(seen) => self.agree(Err(seen)),
        }
        if is_single && self.plan.names_next_holder {
            self.name_next(leaving, &mut standing);
        }
        self.conclude();
        standing
    }

    /// From now on the names that an exclusive holder seals are not granted.
    fn note_seal(&mut self, leaving: &Leaving, now: Moment) {
        let Leaving::Seal { claim, keep, .. } = leaving else { return };
        let is_exclusive = claim.demands.iter().all(|demand| demand.mode() == Mode::Exclusive);
        let entry = self.store.ledger.get(claim.id.hash());
        if is_exclusive && entry.is_some_and(|entry| entry.holds && !entry.broken && !entry.lingers) {
            for demand in claim.demands.iter() {
                self.names[crate::ledger::index_of(&demand.name)].sealed_until = now + *keep;
            }
        }
    }

    /// The answer to a single release names the next holder, if it is one of the same client, instead of a push.
    fn name_next(&mut self, leaving: &Leaving, standing: &mut Standing) {
        let (Leaving::Done(claim), Standing::Gone(Why::Left)) = (leaving, &*standing) else { return };
        let is_exclusive = |demands: &[Demand]| matches!(demands, [only] if only.mode() == Mode::Exclusive);
        if !is_exclusive(&claim.demands) {
            return;
        }
        let ledger = &self.store.ledger;
        let next = self.store.pushes.iter().position(|(client, change)| match change {
            Change::Held(owner, _) => {
                *client == claim.client && ledger.get(*owner).is_some_and(|entry| is_exclusive(&entry.claim.demands))
            }
            _ => false,
        });
        if let Some(index) = next
            && let (_, Change::Held(owner, ticket)) = self.store.pushes[index]
        {
            self.note_granted(Some(owner));
            self.store.pushes.remove(index);
            *standing = Standing::Gone(Why::PassedOn(owner, ticket));
        }
    }

    /// An operator breaks a claim. Returns whether there was one.
    pub(crate) fn break_claim(&mut self, name: usize, position: usize, at_once: bool) -> bool {
        let now = self.store.skew.local(self.now);
        let is_there = |demand: &Demand| crate::ledger::index_of(&demand.name) == name;
        let entries = self.store.ledger.entries().filter(|entry| entry.claim.demands.iter().any(is_there));
        let mut tickets: Vec<_> = entries.map(|entry| (entry.tickets.first, entry.claim.id.hash())).collect();
        tickets.sort_unstable();
        let Some((ticket, owner)) = tickets.get(position.min(tickets.len().saturating_sub(1))).copied() else {
            return false;
        };
        if at_once {
            self.store.ended.insert(owner);
            let holders = self.callers.iter_mut().filter_map(|caller| caller.guard.as_mut());
            holders.filter(|guard| guard.claim.id.hash() == owner).for_each(|guard| guard.is_stale = true);
        }
        let leaving = Leaving::Break { name: self.names[name].name.clone(), ticket, at_once };
        self.release(&leaving, true, now);
        true
    }

    /// Removes the claims that the store said are gone.
    fn note_gone(&mut self, cause: Cause, now: Moment) {
        debug_assert!(self.store.pushes.is_empty() && self.store.removed.is_empty(), "each verb is noted by itself");
        self.store.pushes = self.store.table.take_pushes();
        for index in 0..self.store.pushes.len() {
            let (_, Change::Gone(owner)) = self.store.pushes[index] else { continue };
            let Some(entry) = self.store.ledger.get_mut(owner) else {
                self.fail(Invariant::Table, "that only claims in the queue go", format!("{owner} is gone"));
                continue;
            };
            // An ended lease ahead of a claim may be noticed by the very request that breaks the claim.
            let was_granted = |(_, change): &(ClientId, Change)| matches!(change, Change::Held(it, _) if *it == owner);
            let holds = entry.holds || self.store.pushes[..index].iter().any(was_granted);
            let (expires, skew) = (entry.expires, self.store.skew);
            if expires <= now {
                self.store.removed.extend(self.store.ledger.remove(owner, skew.time_of(expires), Exit::Expired));
                continue;
            }
            match cause {
                Cause::Break { at_once: false } if holds && !entry.lingers => entry.broken = true,
                Cause::Break { .. } | Cause::Seal => {
                    self.store.removed.extend(self.store.ledger.remove(owner, self.now, Exit::Ended));
                }
                Cause::Lease => {
                    let seen = format!("{entry:?} went at {now:?}");
                    self.fail(Invariant::OwnerOnly, "that a claim leaves by its own release or its lease's end", seen);
                }
            }
        }
    }

    /// Notes which claims the store granted by this verb: all, or only this one, whose own answer is noted next.
    fn note_granted(&mut self, only: Option<ClaimHash>) {
        for index in 0..self.store.pushes.len() {
            let (_, Change::Held(owner, _)) = self.store.pushes[index] else { continue };
            let is_noted = self.store.ledger.get(owner).is_some_and(|entry| entry.holds);
            // An ended lease ahead of a claim may be noticed by the very release with which the claim leaves.
            let has_left = self.store.removed.iter().any(|removed| removed.entry.claim.id.hash() == owner);
            if is_noted || has_left || only.is_some_and(|only| only != owner) {
                continue;
            }
            let could_hold = self.could_hold(owner);
            let Some(claim) = self.store.ledger.note_grant(owner, could_hold, self.now) else {
                self.fail(Invariant::Table, "that only claims in the queue are granted", format!("{owner} holds"));
                continue;
            };
            let now = self.store.skew.local(self.now);
            let check = invariants::check_not_sealed(&self.names, &claim.demands, now);
            self.require(check);
            if only.is_none() {
                let check = invariants::check_capacity(&self.store.ledger.used, &claim.demands);
                self.require(check);
            }
        }
    }

    /// A verb is done: notes the other grants, checks the claims that left, and pushes.
    fn conclude(&mut self) {
        self.note_granted(None);
        for (client, change) in std::mem::take(&mut self.store.pushes) {
            let (id, life) = of_client_id(client);
            let client = self.index_of[id as usize];
            self.push(client, life, change);
        }
        let mut removed = std::mem::take(&mut self.store.removed);
        for removed in removed.drain(..) {
            self.check_removed(&removed);
        }
        self.store.removed = removed;
        self.store.verbs += 1;
        if self.store.verbs.is_multiple_of(COMPARE_EVERY) {
            let now = self.store.skew.local(self.now);
            let name = (self.store.verbs / COMPARE_EVERY) as usize % self.names.len();
            let check = invariants::check_table_agrees(&mut self.store, &self.names[name].name, now)
                .and_then(|()| invariants::check_forged_release(&mut self.store, &self.names[name].name, now));
            self.require(check);
        }
    }

    /// Since when no live claim was in the way of a claim that this verb granted.
    fn could_hold(&self, owner: ClaimHash) -> Time {
        let Some(entry) = self.store.ledger.get(owner) else { return self.now };
        let names =
            |demands: &[Demand]| demands.iter().map(|demand| crate::ledger::index_of(&demand.name)).collect::<Vec<_>>();
        let own = names(&entry.claim.demands);
        let is_ahead = |removed: &&RemovedEntry| {
            removed.entry.tickets.first < entry.tickets.first
                && removed.entry.claim.demands.iter().any(|it| own.contains(&crate::ledger::index_of(&it.name)))
        };
        self.store.removed.iter().filter(is_ahead).map(|removed| removed.at).max().unwrap_or(self.now)
    }

    fn agree(&mut self, noted: Result<(), String>) {
        if let Err(seen) = noted {
            self.fail(Invariant::Table, "that the table answers as it answered before", seen);
        }
    }

    /// Ends all leases that have run out by now, as the next verb would.
    pub(crate) fn settle_store(&mut self) {
        let now = self.store.skew.local(self.now);
        for _ in 0..8 {
            self.store.table.settle(now);
            self.note_gone(Cause::Lease, now);
            self.conclude();
        }
    }

    /// The store ends; every connection is closed.
    /// `behind`: it loses its data, and its time of day is so much behind afterwards.
    pub(crate) fn stop_store(&mut self, lasts: Duration, behind: Option<Duration>) {
        if !self.store.is_up {
            return;
        }
        self.bites.note(Kind::StoreRestarted);
        self.store.is_up = false;
        for client in 0..self.clients.len() as u32 {
            crate::plan::LINKS.into_iter().for_each(|link| self.disconnect(client, link));
            self.clients[client as usize].note_trouble(self.now + lasts);
        }
        if let Some(behind) = behind {
            if self.store.ledger.len() > 0 {
                self.bites.note(Kind::StoreLostData);
            }
            if !behind.is_zero() {
                self.bites.note(Kind::StoreClockBehind);
                // An earlier fence protects only from clients that have seen it.
                self.fences.clear();
                self.names.iter_mut().for_each(invariants::forget_fences);
            }
            self.store.lose_data(self.now, behind);
            self.names.iter_mut().for_each(|name| name.sealed_until = Moment::START);
            self.callers.iter_mut().filter_map(|caller| caller.guard.as_mut()).for_each(|guard| guard.is_stale = true);
        }
        self.schedule.put(self.now + lasts, crate::schedule::Event::Restarted);
    }

    /// The store is up again; clients connect within 5 ms.
    pub(crate) fn start_store(&mut self) {
        self.store.is_up = true;
        for client in 0..self.clients.len() as u32 {
            for link in crate::plan::LINKS {
                let process = &mut self.clients[client as usize];
                let cut = process.connections[link as usize].cut;
                let soon = Duration::from_micros(u64::from(process.id) * 97 % 5_000);
                self.schedule.put(self.now + soon, crate::schedule::Event::Reconnect { client, link, cut });
            }
        }
    }
}
