//! The rule read aloud, without a thought for speed: one list of claims, and sums over all of it for every question.

use std::collections::HashSet;

use super::*;
use crate::claim::Holder;
use crate::store::BusyWith;

pub(super) struct Stand {
    pub(super) claim: Arc<Claim>,
    pub(super) tickets: Tickets,
    expires: Moment,
    since: Moment,
    lingers: bool,
    broken: bool,
}

#[derive(Default)]
pub(super) struct Naive {
    /// Everybody in line, wherever, by ticket.
    stands: Vec<Stand>,
    marks: Vec<(ClaimHash, Moment, Why)>,
    seals: Vec<(Name, Moment, Bytes)>,
    last: u64,
    news: Vec<(ClientId, Change)>,
}

impl Naive {
    fn holds(&self, who: &Stand) -> bool {
        who.claim.demands.iter().all(|demand| self.fits(who, demand))
    }

    fn fits(&self, who: &Stand, demand: &Demand) -> bool {
        let up_to_it = self.line(&demand.name).filter(|other| other.tickets.first <= who.tickets.first);
        let weight: u64 = up_to_it.map(|other| u64::from(demand_of(other, &demand.name).weight)).sum();
        weight <= u64::from(demand.capacity)
    }

    /// The first in each line of `claim` that does not fit there, each once.
    fn first_waiters(&self, claim: &Claim) -> HashSet<(ClientId, ClaimHash)> {
        let unfitting = |demand: &Demand| {
            let mut line: Vec<_> = self.line(&demand.name).collect();
            line.sort_by_key(|stand| stand.tickets.first);
            let first = line.into_iter().find(|stand| !self.fits(stand, demand_of(stand, &demand.name)))?;
            Some((first.claim.client, first.claim.id.hash()))
        };
        claim.demands.iter().filter_map(unfitting).collect()
    }

    fn line(&self, name: &Name) -> impl Iterator<Item = &Stand> {
        self.stands.iter().filter(move |stand| stand.claim.demands.iter().any(|demand| demand.name == *name))
    }

    fn find(&self, owner: ClaimHash) -> Option<usize> {
        self.stands.iter().position(|stand| stand.claim.id.hash() == owner)
    }

    fn holders(&self) -> HashSet<ClaimHash> {
        self.stands.iter().filter(|stand| self.holds(stand)).map(|stand| stand.claim.id.hash()).collect()
    }

    /// Runs `change`, then tells those who waited before it and hold after it.
    fn telling(&mut self, now: Moment, change: impl FnOnce(&mut Self)) {
        let waited: Vec<_> = self.stands.iter().filter(|it| !self.holds(it)).map(|it| it.claim.id.hash()).collect();
        change(self);
        let holders = self.holders();
        for stand in &mut self.stands {
            let owner = stand.claim.id.hash();
            if waited.contains(&owner) && holders.contains(&owner) {
                stand.since = now;
                self.news.push((stand.claim.client, Change::Held(owner, stand.tickets.first)));
            }
        }
    }

    fn drop_telling(&mut self, is_dropped: impl Fn(&Stand) -> bool) {
        let news = &mut self.news;
        self.stands.retain(|stand| {
            let dropped = is_dropped(stand);
            if dropped {
                news.push((stand.claim.client, Change::Gone(stand.claim.id.hash())));
            }
            !dropped
        });
    }

    pub(super) fn settle(&mut self, now: Moment) {
        self.marks.retain(|(_, until, _)| *until > now);
        self.seals.retain(|(_, until, _)| *until > now);
        self.telling(now, |it| it.drop_telling(|stand| stand.expires <= now));
    }

    fn mark_on(&self, owner: ClaimHash) -> Option<Why> {
        self.marks.iter().find(|(marked, ..)| *marked == owner).map(|(.., why)| *why)
    }

    fn mark(&mut self, owner: ClaimHash, until: Moment, why: Why) {
        match self.marks.iter_mut().find(|(marked, ..)| *marked == owner) {
            Some((_, old, _)) => *old = until.max(*old),
            None => self.marks.push((owner, until, why)),
        }
    }

    fn draw(&mut self, block: u32, floor: Ticket) -> Tickets {
        let tickets = Tickets::new(Ticket(self.last.max(floor.0) + 1), block);
        self.last = tickets.last().0;
        tickets
    }

    /// `None` stands for a refusal as invalid.
    pub(super) fn acquire(&mut self, claim: &Arc<Claim>, busy: Busy, now: Moment) -> Option<Admission> {
        self.settle(now);
        let owner = claim.id.hash();
        if let Some(why) = self.mark_on(owner) {
            return Some(Admission::Gone(why));
        }
        if let Some(index) = self.find(owner) {
            return Some(match self.renewed(index, claim.ttl, now) {
                Standing::Held(tickets) => Admission::Held(tickets),
                Standing::Gone(why) => Admission::Gone(why),
                Standing::Waiting { .. } => self.queued(&self.stands[index], now),
            });
        }
        let sealed = claim.demands.iter().find_map(|demand| self.seals.iter().find(|(name, ..)| *name == demand.name));
        if let Some((.., value)) = sealed {
            return Some(Admission::Sealed(value.clone()));
        }
        for demand in claim.demands.iter() {
            let mut line = self.line(&demand.name);
            let agrees = line.all(|other| demand_of(other, &demand.name).capacity == demand.capacity);
            if !agrees || demand.weight > demand.capacity {
                return None;
            }
        }
        let is_busy = |demand: &&Demand| {
            let taken: u32 = self.line(&demand.name).map(|other| demand_of(other, &demand.name).weight).sum();
            taken + demand.weight > demand.capacity
        };
        if let (Busy::Refuse, Some(demand)) = (busy, claim.demands.iter().find(is_busy)) {
            return Some(Admission::Refused(self.busy_with(&demand.name, now)));
        }
        let tickets = self.draw(claim.block, claim.floor);
        let claim = Arc::clone(claim);
        let expires = now + claim.ttl;
        self.stands.push(Stand { claim, tickets, expires, since: now, lingers: false, broken: false });
        let stand = &self.stands[self.stands.len() - 1];
        Some(if self.holds(stand) { Admission::Held(tickets) } else { self.queued(stand, now) })
    }

    fn busy_with(&self, name: &Name, now: Moment) -> BusyWith {
        let holder = self.line(name).find(|stand| self.holds(stand));
        BusyWith {
            holder: holder.map(|stand| Holder {
                owner: stand.claim.id.hash(),
                fence: stand.tickets.first,
                note: stand.claim.note.clone(),
            }),
            held_for: holder.map(|stand| now.since(stand.since)),
            position: self.line(name).count(),
        }
    }

    fn ahead_of(&self, who: &Stand, name: &Name) -> impl Iterator<Item = &Stand> {
        self.line(name).filter(|other| other.tickets.first < who.tickets.first)
    }

    fn queued(&self, stand: &Stand, now: Moment) -> Admission {
        let lines = stand.claim.demands.iter();
        let position = lines.map(|demand| self.ahead_of(stand, &demand.name).count()).max().unwrap();
        Admission::Queued { ticket: stand.tickets.first, position, recheck_in: self.recheck_in(stand, now) }
    }

    fn recheck_in(&self, stand: &Stand, now: Moment) -> Duration {
        let ahead = stand.claim.demands.iter().flat_map(|demand| self.ahead_of(stand, &demand.name));
        ahead.map(|other| other.expires.since(now)).max().unwrap()
    }

    fn renewed(&mut self, index: usize, ttl: Duration, now: Moment) -> Standing {
        let stand = &mut self.stands[index];
        if stand.broken || stand.lingers {
            return Standing::Gone(if stand.broken { Why::Broken } else { Why::Left });
        }
        stand.expires = stand.expires.max(now + ttl);
        let stand = &self.stands[index];
        if self.holds(stand) {
            Standing::Held(stand.tickets)
        } else {
            Standing::Waiting { ticket: stand.tickets.first, recheck_in: self.recheck_in(stand, now) }
        }
    }

    pub(super) fn renew(&mut self, lease: &Lease, now: Moment) -> Standing {
        self.settle(now);
        let owner = lease.claim.id.hash();
        match self.find(owner) {
            Some(index) => self.renewed(index, lease.ttl, now),
            None => Standing::Gone(self.mark_on(owner).unwrap_or(Why::Unknown)),
        }
    }

    pub(super) fn release(&mut self, leaving: &Leaving, now: Moment) -> Standing {
        self.settle(now);
        match leaving {
            Leaving::Done(claim) => self.done(claim, now),
            Leaving::Unknown(claim) => {
                let standing = self.done(claim, now);
                let Standing::Gone(why) = standing else { unreachable!("it has left") };
                self.mark(claim.id.hash(), now + claim.ttl.min(secs(60)), why);
                standing
            }
            Leaving::Linger(claim, span) => match self.find(claim.id.hash()) {
                Some(index) if self.holds(&self.stands[index]) && !self.stands[index].broken && *span > secs(0) => {
                    let stand = &mut self.stands[index];
                    if !stand.lingers {
                        (stand.lingers, stand.expires) = (true, now + *span);
                        let told = self.first_waiters(claim).into_iter();
                        self.news.extend(told.map(|(client, owner)| (client, Change::Recheck(owner, *span))));
                    }
                    Standing::Gone(Why::Left)
                }
                _ => self.done(claim, now),
            },
            Leaving::Seal { claim, value, keep } => self.seal(claim, value, now + *keep, now),
            Leaving::UnlessAlone { claim, block, floor } => match self.find(claim.id.hash()) {
                Some(index) if self.holds(&self.stands[index]) && self.stands[index].tickets.first > *floor => {
                    match &self.stands[index] {
                        Stand { broken: true, .. } => Standing::Gone(Why::Broken),
                        Stand { lingers: true, .. } => Standing::Gone(Why::Left),
                        _ => self.renewed(index, claim.ttl, now),
                    }
                }
                Some(index) if self.is_alone(index) => {
                    let tickets = self.draw(*block, *floor);
                    let mut stand = self.stands.remove(index);
                    stand.tickets = tickets;
                    stand.expires = stand.expires.max(now + claim.ttl);
                    self.stands.push(stand);
                    Standing::Held(tickets)
                }
                _ => self.done(claim, now),
            },
            Leaving::Break { name, ticket, at_once } => self.break_claim(name, *ticket, *at_once, now),
        }
    }

    fn done(&mut self, claim: &Claim, now: Moment) -> Standing {
        let owner = claim.id.hash();
        let Some(index) = self.find(owner) else {
            return Standing::Gone(self.mark_on(owner).unwrap_or(Why::Unknown));
        };
        let why = if self.stands[index].broken { Why::Broken } else { Why::Left };
        self.telling(now, |it| drop(it.stands.remove(index)));
        Standing::Gone(why)
    }

    fn is_alone(&self, index: usize) -> bool {
        let stand = &self.stands[index];
        let mut behind = self.stands[index + 1..].iter().filter(|other| {
            let mut names = other.claim.demands.iter().map(|demand| &demand.name);
            names.any(|name| stand.claim.demands.iter().any(|demand| demand.name == *name))
        });
        self.is_at_work(index) && behind.all(|other| self.holds(other))
    }

    fn is_at_work(&self, index: usize) -> bool {
        let stand = &self.stands[index];
        self.holds(stand) && !stand.broken && !stand.lingers
    }

    fn seal(&mut self, claim: &Arc<Claim>, value: &Bytes, until: Moment, now: Moment) -> Standing {
        let exclusive = claim.demands.iter().all(|demand| demand.mode() == Mode::Exclusive);
        let Some(index) = self.find(claim.id.hash()).filter(|index| exclusive && self.is_at_work(*index)) else {
            return self.done(claim, now);
        };
        let sealed = |name: &Name| claim.demands.iter().any(|demand| demand.name == *name);
        self.telling(now, |it| {
            it.stands.remove(index);
            it.drop_telling(|stand| stand.claim.demands.iter().any(|demand| sealed(&demand.name)));
            it.seals.extend(claim.demands.iter().map(|demand| (demand.name.clone(), until, value.clone())));
        });
        Standing::Gone(Why::Left)
    }

    fn break_claim(&mut self, name: &Name, ticket: Ticket, at_once: bool, now: Moment) -> Standing {
        let Some(stand) = self.line(name).find(|stand| stand.tickets.contains(ticket)) else {
            return Standing::Gone(Why::Unknown);
        };
        let (owner, client, ttl) = (stand.claim.id.hash(), stand.claim.client, stand.claim.ttl);
        if at_once || stand.lingers || !self.holds(stand) {
            self.telling(now, |it| it.drop_telling(|stand| stand.claim.id.hash() == owner));
            self.mark(owner, now + ttl, Why::Broken);
        } else if !stand.broken {
            let index = self.find(owner).unwrap();
            self.stands[index].broken = true;
            self.news.push((client, Change::Gone(owner)));
        }
        Standing::Gone(Why::Broken)
    }

    pub(super) fn take_news(&mut self) -> Vec<(ClientId, Change)> {
        std::mem::take(&mut self.news)
    }

    pub(super) fn stands(&self) -> &[Stand] {
        &self.stands
    }

    /// As `Table::len` counts: claims, lines and marks.
    pub(super) fn len(&self) -> usize {
        let names = self.stands.iter().flat_map(|stand| stand.claim.demands.iter().map(|demand| &demand.name));
        let lines: HashSet<_> = names.chain(self.seals.iter().map(|(name, ..)| name)).collect();
        self.stands.len() + lines.len() + self.marks.len()
    }

    /// Whether this is what the table shows.
    pub(super) fn assert_shows_as(&self, page: &Page, now: Moment) {
        for resource in &page.resources {
            let expected: Vec<_> = self.line(&resource.name).collect();
            assert_eq!(resource.queue.len(), expected.len(), "length of the line of {:?}", resource.name);
            for (entry, stand) in resource.queue.iter().zip(expected) {
                let demand = demand_of(stand, &resource.name);
                assert_eq!(entry.owner, stand.claim.id.hash());
                assert_eq!(entry.tickets, stand.tickets);
                assert_eq!(entry.holds, self.holds(stand), "whether {:?} holds", stand.tickets);
                assert_eq!((entry.mode, entry.weight), (demand.mode(), demand.weight));
                assert_eq!((entry.lingers, entry.broken), (stand.lingers, stand.broken));
                assert_eq!(entry.expires_in, stand.expires.since(now));
                assert_eq!(entry.since, now.since(stand.since));
                assert_eq!(resource.capacity, demand.capacity);
            }
            let seal = self.seals.iter().find(|(name, ..)| *name == resource.name);
            assert_eq!(resource.sealed_for, seal.map(|(_, until, _)| until.since(now)));
        }
    }
}

fn demand_of<'a>(stand: &'a Stand, name: &Name) -> &'a Demand {
    stand.claim.demands.iter().find(|demand| demand.name == *name).unwrap()
}
