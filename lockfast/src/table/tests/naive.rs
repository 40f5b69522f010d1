//! The rule as a reference without regard for speed: one list of claims, and sums over all of it for every answer.

use std::collections::HashSet;

use super::*;
use crate::claim::Holder;
use crate::store::BusyWith;

pub(super) struct Entry {
    pub(super) claim: Arc<Claim>,
    pub(super) tickets: Tickets,
    expires_at: Moment,
    since: Moment,
    lingers: bool,
    broken: bool,
}

#[derive(Default)]
pub(super) struct Naive {
    /// All claims of all queues, by ticket.
    entries: Vec<Entry>,
    /// The id, the end, and why the claim is gone.
    tombstones: Vec<(ClaimHash, Moment, Why)>,
    /// The name, the end, and the value.
    seals: Vec<(Name, Moment, Bytes)>,
    last_ticket: u64,
    pushes: Vec<(ClientId, Change)>,
}

impl Naive {
    fn holds(&self, entry: &Entry) -> bool {
        entry.claim.demands.iter().all(|demand| self.fits(entry, demand))
    }

    fn fits(&self, entry: &Entry, demand: &Demand) -> bool {
        let up_to_it = self.queue(&demand.name).filter(|other| other.tickets.first <= entry.tickets.first);
        let weight: u64 = up_to_it.map(|other| u64::from(demand_of(other, &demand.name).weight)).sum();
        weight <= u64::from(demand.capacity)
    }

    /// The first claim in each queue of `claim` that does not fit there, each once.
    fn first_waiters(&self, claim: &Claim) -> HashSet<(ClientId, ClaimHash)> {
        let first_waiter = |demand: &Demand| {
            let mut queue: Vec<_> = self.queue(&demand.name).collect();
            queue.sort_by_key(|entry| entry.tickets.first);
            let first = queue.into_iter().find(|entry| !self.fits(entry, demand_of(entry, &demand.name)))?;
            Some((first.claim.client, first.claim.id.hash()))
        };
        claim.demands.iter().filter_map(first_waiter).collect()
    }

    fn queue(&self, name: &Name) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.claim.demands.iter().any(|demand| demand.name == *name))
    }

    fn find(&self, owner: ClaimHash) -> Option<usize> {
        self.entries.iter().position(|entry| entry.claim.id.hash() == owner)
    }

    fn holders(&self) -> HashSet<ClaimHash> {
        self.entries.iter().filter(|entry| self.holds(entry)).map(|entry| entry.claim.id.hash()).collect()
    }

    /// Runs `change`, then pushes to the claims that waited before it and hold after it.
    fn change_and_push_grants(&mut self, now: Moment, change: impl FnOnce(&mut Self)) {
        let waiters_before: Vec<_> =
            self.entries.iter().filter(|it| !self.holds(it)).map(|it| it.claim.id.hash()).collect();
        change(self);
        let holders = self.holders();
        for entry in &mut self.entries {
            let owner = entry.claim.id.hash();
            if waiters_before.contains(&owner) && holders.contains(&owner) {
                entry.since = now;
                self.pushes.push((entry.claim.client, Change::Held(owner, entry.tickets.first)));
            }
        }
    }

    fn remove_and_push_gone(&mut self, must_remove: impl Fn(&Entry) -> bool) {
        let pushes = &mut self.pushes;
        self.entries.retain(|entry| {
            let is_removed = must_remove(entry);
            if is_removed {
                pushes.push((entry.claim.client, Change::Gone(entry.claim.id.hash())));
            }
            !is_removed
        });
    }

    pub(super) fn settle(&mut self, now: Moment) {
        self.tombstones.retain(|(_, until, _)| *until > now);
        self.seals.retain(|(_, until, _)| *until > now);
        self.change_and_push_grants(now, |it| it.remove_and_push_gone(|entry| entry.expires_at <= now));
    }

    fn tombstone_of(&self, owner: ClaimHash) -> Option<Why> {
        self.tombstones.iter().find(|(id, ..)| *id == owner).map(|(.., why)| *why)
    }

    fn leave_tombstone(&mut self, owner: ClaimHash, until: Moment, why: Why) {
        match self.tombstones.iter_mut().find(|(id, ..)| *id == owner) {
            Some((_, old, _)) => *old = until.max(*old),
            None => self.tombstones.push((owner, until, why)),
        }
    }

    fn draw_tickets(&mut self, block: u32, floor: Ticket) -> Tickets {
        let tickets = Tickets::new(Ticket(self.last_ticket.max(floor.0) + 1), block);
        self.last_ticket = tickets.last().0;
        tickets
    }

    /// `None` stands for `Error::Invalid`.
    pub(super) fn acquire(&mut self, claim: &Arc<Claim>, busy: Busy, now: Moment) -> Option<Admission> {
        self.settle(now);
        let owner = claim.id.hash();
        if let Some(why) = self.tombstone_of(owner) {
            return Some(Admission::Gone(why));
        }
        if let Some(index) = self.find(owner) {
            return Some(match self.renew_entry(index, claim.ttl, now) {
                Standing::Held(tickets) => Admission::Held(tickets),
                Standing::Gone(why) => Admission::Gone(why),
                Standing::Waiting { .. } => self.queued(&self.entries[index], now),
            });
        }
        let sealed = claim.demands.iter().find_map(|demand| self.seals.iter().find(|(name, ..)| *name == demand.name));
        if let Some((.., value)) = sealed {
            return Some(Admission::Sealed(value.clone()));
        }
        for demand in claim.demands.iter() {
            let mut queue = self.queue(&demand.name);
            let capacities_agree = queue.all(|other| demand_of(other, &demand.name).capacity == demand.capacity);
            if !capacities_agree || demand.weight > demand.capacity {
                return None;
            }
        }
        let is_busy = |demand: &&Demand| {
            let used_weight: u32 = self.queue(&demand.name).map(|other| demand_of(other, &demand.name).weight).sum();
            used_weight + demand.weight > demand.capacity
        };
        if let (Busy::Refuse, Some(demand)) = (busy, claim.demands.iter().find(is_busy)) {
            return Some(Admission::Refused(self.busy_with(&demand.name, now)));
        }
        let tickets = self.draw_tickets(claim.block, claim.floor);
        let claim = Arc::clone(claim);
        let expires_at = now + claim.ttl;
        self.entries.push(Entry { claim, tickets, expires_at, since: now, lingers: false, broken: false });
        let entry = &self.entries[self.entries.len() - 1];
        Some(if self.holds(entry) { Admission::Held(tickets) } else { self.queued(entry, now) })
    }

    fn busy_with(&self, name: &Name, now: Moment) -> BusyWith {
        let holder = self.queue(name).find(|entry| self.holds(entry));
        BusyWith {
            holder: holder.map(|entry| Holder {
                owner: entry.claim.id.hash(),
                fence: entry.tickets.first,
                note: entry.claim.note.clone(),
            }),
            held_for: holder.map(|entry| now.since(entry.since)),
            position: self.queue(name).count(),
        }
    }

    fn ahead_of(&self, entry: &Entry, name: &Name) -> impl Iterator<Item = &Entry> {
        self.queue(name).filter(|other| other.tickets.first < entry.tickets.first)
    }

    fn queued(&self, entry: &Entry, now: Moment) -> Admission {
        let queues = entry.claim.demands.iter();
        let position = queues.map(|demand| self.ahead_of(entry, &demand.name).count()).max().unwrap();
        Admission::Queued { ticket: entry.tickets.first, position, recheck_in: self.recheck_in(entry, now) }
    }

    fn recheck_in(&self, entry: &Entry, now: Moment) -> Duration {
        let ahead = entry.claim.demands.iter().flat_map(|demand| self.ahead_of(entry, &demand.name));
        ahead.map(|other| other.expires_at.since(now)).max().unwrap()
    }

    fn renew_entry(&mut self, index: usize, ttl: Duration, now: Moment) -> Standing {
        let entry = &mut self.entries[index];
        if entry.broken || entry.lingers {
            return Standing::Gone(if entry.broken { Why::Broken } else { Why::Left });
        }
        entry.expires_at = entry.expires_at.max(now + ttl);
        let entry = &self.entries[index];
        if self.holds(entry) {
            Standing::Held(entry.tickets)
        } else {
            Standing::Waiting { ticket: entry.tickets.first, recheck_in: self.recheck_in(entry, now) }
        }
    }

    pub(super) fn renew(&mut self, lease: &Lease, now: Moment) -> Standing {
        self.settle(now);
        let owner = lease.claim.id.hash();
        match self.find(owner) {
            Some(index) => self.renew_entry(index, lease.ttl, now),
            None => Standing::Gone(self.tombstone_of(owner).unwrap_or(Why::Unknown)),
        }
    }

    pub(super) fn release(&mut self, leaving: &Leaving, now: Moment) -> Standing {
        self.settle(now);
        match leaving {
            Leaving::Done(claim) => self.remove_and_explain(claim, now),
            Leaving::Unknown(claim) => {
                let standing = self.remove_and_explain(claim, now);
                let Standing::Gone(why) = standing else { unreachable!("it has left") };
                self.leave_tombstone(claim.id.hash(), now + claim.ttl.min(secs(60)), why);
                standing
            }
            Leaving::Linger(claim, span) => match self.find(claim.id.hash()) {
                Some(index) if self.holds(&self.entries[index]) && !self.entries[index].broken && *span > secs(0) => {
                    let entry = &mut self.entries[index];
                    if !entry.lingers {
                        (entry.lingers, entry.expires_at) = (true, now + *span);
                        let waiters = self.first_waiters(claim).into_iter();
                        self.pushes.extend(waiters.map(|(client, owner)| (client, Change::Recheck(owner, *span))));
                    }
                    Standing::Gone(Why::Left)
                }
                _ => self.remove_and_explain(claim, now),
            },
            Leaving::Seal { claim, value, keep } => self.seal(claim, value, now + *keep, now),
            Leaving::UnlessAlone { claim, block, floor } => match self.find(claim.id.hash()) {
                Some(index) if self.holds(&self.entries[index]) && self.entries[index].tickets.first > *floor => {
                    match &self.entries[index] {
                        Entry { broken: true, .. } => Standing::Gone(Why::Broken),
                        Entry { lingers: true, .. } => Standing::Gone(Why::Left),
                        _ => self.renew_entry(index, claim.ttl, now),
                    }
                }
                Some(index) if self.is_alone(index) => {
                    let tickets = self.draw_tickets(*block, *floor);
                    let mut entry = self.entries.remove(index);
                    entry.tickets = tickets;
                    entry.expires_at = entry.expires_at.max(now + claim.ttl);
                    self.entries.push(entry);
                    Standing::Held(tickets)
                }
                _ => self.remove_and_explain(claim, now),
            },
            Leaving::Break { name, ticket, at_once } => self.break_claim(name, *ticket, *at_once, now),
        }
    }

    fn remove_and_explain(&mut self, claim: &Claim, now: Moment) -> Standing {
        let owner = claim.id.hash();
        let Some(index) = self.find(owner) else {
            return Standing::Gone(self.tombstone_of(owner).unwrap_or(Why::Unknown));
        };
        let why = if self.entries[index].broken { Why::Broken } else { Why::Left };
        self.change_and_push_grants(now, |it| drop(it.entries.remove(index)));
        Standing::Gone(why)
    }

    fn is_alone(&self, index: usize) -> bool {
        let entry = &self.entries[index];
        let mut behind = self.entries[index + 1..].iter().filter(|other| {
            let mut names = other.claim.demands.iter().map(|demand| &demand.name);
            names.any(|name| entry.claim.demands.iter().any(|demand| demand.name == *name))
        });
        self.is_at_work(index) && behind.all(|other| self.holds(other))
    }

    fn is_at_work(&self, index: usize) -> bool {
        let entry = &self.entries[index];
        self.holds(entry) && !entry.broken && !entry.lingers
    }

    fn seal(&mut self, claim: &Arc<Claim>, value: &Bytes, until: Moment, now: Moment) -> Standing {
        let is_exclusive = claim.demands.iter().all(|demand| demand.mode() == Mode::Exclusive);
        let Some(index) = self.find(claim.id.hash()).filter(|index| is_exclusive && self.is_at_work(*index)) else {
            return self.remove_and_explain(claim, now);
        };
        let is_sealed = |name: &Name| claim.demands.iter().any(|demand| demand.name == *name);
        self.change_and_push_grants(now, |it| {
            it.entries.remove(index);
            it.remove_and_push_gone(|entry| entry.claim.demands.iter().any(|demand| is_sealed(&demand.name)));
            it.seals.extend(claim.demands.iter().map(|demand| (demand.name.clone(), until, value.clone())));
        });
        Standing::Gone(Why::Left)
    }

    fn break_claim(&mut self, name: &Name, ticket: Ticket, at_once: bool, now: Moment) -> Standing {
        let Some(entry) = self.queue(name).find(|entry| entry.tickets.contains(ticket)) else {
            return Standing::Gone(Why::Unknown);
        };
        let (owner, client, ttl) = (entry.claim.id.hash(), entry.claim.client, entry.claim.ttl);
        if at_once || entry.lingers || !self.holds(entry) {
            self.change_and_push_grants(now, |it| it.remove_and_push_gone(|entry| entry.claim.id.hash() == owner));
            self.leave_tombstone(owner, now + ttl, Why::Broken);
        } else if !entry.broken {
            let index = self.find(owner).unwrap();
            self.entries[index].broken = true;
            self.pushes.push((client, Change::Gone(owner)));
        }
        Standing::Gone(Why::Broken)
    }

    pub(super) fn take_pushes(&mut self) -> Vec<(ClientId, Change)> {
        std::mem::take(&mut self.pushes)
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// As `Table::len` counts: claims, queues and tombstones.
    pub(super) fn len(&self) -> usize {
        let names = self.entries.iter().flat_map(|entry| entry.claim.demands.iter().map(|demand| &demand.name));
        let queues: HashSet<_> = names.chain(self.seals.iter().map(|(name, ..)| name)).collect();
        self.entries.len() + queues.len() + self.tombstones.len()
    }

    /// Compares the reference with a page that the table shows.
    pub(super) fn assert_agrees_with(&self, page: &Page, now: Moment) {
        for resource in &page.resources {
            let expected: Vec<_> = self.queue(&resource.name).collect();
            assert_eq!(resource.queue.len(), expected.len(), "length of the queue of {:?}", resource.name);
            for (shown, entry) in resource.queue.iter().zip(expected) {
                let demand = demand_of(entry, &resource.name);
                assert_eq!(shown.owner, entry.claim.id.hash());
                assert_eq!(shown.tickets, entry.tickets);
                assert_eq!(shown.holds, self.holds(entry), "whether {:?} holds", entry.tickets);
                assert_eq!((shown.mode, shown.weight), (demand.mode(), demand.weight));
                assert_eq!((shown.lingers, shown.broken), (entry.lingers, entry.broken));
                assert_eq!(shown.expires_in, entry.expires_at.since(now));
                assert_eq!(shown.since, now.since(entry.since));
                assert_eq!(resource.capacity, demand.capacity);
            }
            let seal = self.seals.iter().find(|(name, ..)| *name == resource.name);
            assert_eq!(resource.sealed_for, seal.map(|(_, until, _)| until.since(now)));
        }
    }
}

fn demand_of<'a>(entry: &'a Entry, name: &Name) -> &'a Demand {
    entry.claim.demands.iter().find(|demand| demand.name == *name).unwrap()
}
