//! The rule, as a pure state machine over claims, leases and time. No clock, no input, no output: every verb takes the
//! time as an argument, returns its answer, and collects the pushes that its store has to send ([`Table::take_pushes`]).
//!
//! > A claim **holds** when, on each of its resources, the claims up to and including it fit the capacity together.
//!
//! Mutex, reader-writer lock, semaphore and several locks at once are all this one sentence. What follows from it, checked
//! by `table/tests.rs` over random histories:
//!
//! 1. **Safety** - the weight held never exceeds the capacity.
//! 2. **Progress** - the oldest claim holds, since nothing is ahead of it and a claim heavier than the capacity is refused
//!    before it joins. So locks taken together cannot deadlock.
//! 3. **Stability** - a holder keeps holding until it leaves or its lease ends: later claims join behind it.
//! 4. **Fencing** - of two claims that cannot share, the one with the lower ticket holds first and has left before the
//!    other holds. So the ticket is the fencing token, and so is every number of the claim's block: blocks are reserved when
//!    a claim joins, and grow only while no claim waits.
//!
//! The hand-off needs no step of its own: when a claim leaves, the next one holds by the rule, and a push tells it.

mod admission;
mod inspect;
mod leave;
mod queue;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use foldhash::quality::RandomState;

use crate::claim::{Claim, ClaimHash, ClaimMap, ClientId, Mode, Ticket, Tickets};
use crate::clock::Moment;
use crate::error::Result;
use crate::name::Name;
use crate::planted::Rule;
use crate::store::{Admission, Busy, Change, Lease, Standing, Why};

use queue::Queue;

/// How many expired leases one verb removes at most; the next verb continues. An expired claim that is still in its queue
/// counts as being there, so the limit costs time, never safety.
const EXPIRED_PER_VERB: usize = 1024;

/// How many entries ahead of a waiter are searched for the longest lease. An entry beyond them makes the waiter poll early,
/// never late.
const LOOKAHEAD: usize = 64;

/// All queues of one store.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use lockfast::{table::Table, store::*, Error};
/// let mut table = Table::new(Ticket(0));
/// let now = Moment::START;
/// let claim = |id| Arc::new(Claim {
///     id: ClaimId::from_secret([id; 16]), client: ClientId(1), ttl: Duration::from_secs(30), block: 1,
///     demands: Demand::exclusive(Name::new("account:123").unwrap()).into(),
///     floor: Ticket(0), detached: false, note: Default::default(),
/// });
/// assert!(matches!(table.acquire(&claim(1), Busy::Wait, now)?, Admission::Held(_)));
/// assert!(matches!(table.acquire(&claim(2), Busy::Wait, now)?, Admission::Queued { position: 1, .. }));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Table {
    claims: ClaimMap<ClaimState>,
    queues: HashMap<Name, Queue, RandomState>,
    /// Ids that are refused until their tombstone expires.
    tombstones: ClaimMap<Tombstone>,
    /// Due times. Everything above that expires has an element here, at its expiry or earlier.
    expirations: BinaryHeap<Reverse<(Moment, Expiring)>>,
    last: Ticket,
    pushes: Vec<(ClientId, Change)>,
    /// Names whose queues changed, while a subscription asks for them.
    touched: Option<Vec<Name>>,
}

#[derive(Debug)]
struct ClaimState {
    claim: Arc<Claim>,
    tickets: Tickets,
    expires: Moment,
    /// When it joined; once it holds, when it began to hold.
    since: Moment,
    /// In how many of its queues it fits the capacity. It holds when it fits in all.
    fits: u32,
    lingers: bool,
    broken: bool,
}

impl ClaimState {
    fn holds(&self) -> bool {
        self.fits as usize == self.claim.demands.len()
    }

    /// Whether it holds and its owner may keep working: neither broken nor lingering.
    fn is_at_work(&self) -> bool {
        self.holds() && !self.broken && !self.lingers
    }

    fn is_exclusive(&self) -> bool {
        self.claim.demands.iter().all(|demand| demand.mode() == Mode::Exclusive)
    }

    fn extend(&mut self, until: Moment) {
        // No verb shortens a lease: a short renewal sent before an extension may arrive after it.
        self.expires = if Rule::NoVerbShortens.is_left_out() { until } else { self.expires.max(until) };
    }
}

#[derive(Debug)]
struct Tombstone {
    until: Moment,
    why: Why,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Expiring {
    Claim(ClaimHash),
    Tombstone(ClaimHash),
    Seal(Name),
}

impl Table {
    /// An empty table whose tickets follow `last`.
    pub fn new(last: Ticket) -> Self {
        Self {
            claims: HashMap::default(),
            queues: HashMap::default(),
            tombstones: HashMap::default(),
            expirations: BinaryHeap::new(),
            last,
            pushes: Vec::new(),
            touched: None,
        }
    }

    /// What [`Store::acquire`](crate::store::Store::acquire) promises.
    pub fn acquire(&mut self, claim: &Arc<Claim>, busy: Busy, now: Moment) -> Result<Admission> {
        self.settle(now);
        let owner = claim.id.hash();
        if let Some(tombstone) = self.tombstones.get(&owner).filter(|_| !Rule::TombstoneKeepsOut.is_left_out()) {
            return Ok(Admission::Gone(tombstone.why));
        }
        if let Some(state) = self.living(owner, now) {
            if state.broken || state.lingers {
                return Ok(Admission::Gone(if state.broken { Why::Broken } else { Why::Left }));
            }
            if !Rule::RepeatedAcquireRenews.is_left_out() {
                state.extend(now + claim.ttl);
            }
            return Ok(self.admission(owner, now));
        }
        if let Some(value) = self.seal_on(claim) {
            return Ok(Admission::Sealed(value));
        }
        for demand in claim.demands.iter() {
            self.check_demand(demand)?;
        }
        if busy == Busy::Refuse
            && let Some(in_the_way) = claim.demands.iter().find(|demand| !self.has_room_for(demand))
        {
            return Ok(Admission::Refused(self.busy_with(&in_the_way.name, now)));
        }
        self.join(claim, now);
        Ok(self.admission(owner, now))
    }

    /// What [`Store::renew`](crate::store::Store::renew) promises, for one lease.
    pub fn renew(&mut self, lease: &Lease, now: Moment) -> Standing {
        self.settle(now);
        let owner = lease.claim.id.hash();
        match self.living(owner, now) {
            None => Standing::Gone(self.tombstones.get(&owner).map_or(Why::Unknown, |tombstone| tombstone.why)),
            Some(state) if state.broken => Standing::Gone(Why::Broken),
            Some(state) if state.lingers => Standing::Gone(Why::Left),
            Some(state) => {
                state.extend(now + lease.ttl);
                self.standing(owner, now)
            }
        }
    }

    /// The pushes of the verbs since the last call, each with the client it is for.
    pub fn take_pushes(&mut self) -> Vec<(ClientId, Change)> {
        std::mem::take(&mut self.pushes)
    }

    /// Starts (or stops) recording which queues change.
    pub fn note_touched(&mut self, wanted: bool) {
        self.touched = wanted.then(Vec::new);
    }

    /// The names whose queues changed since the last call, each once, in order.
    pub fn take_touched(&mut self) -> Vec<Name> {
        let mut touched = self.touched.as_mut().map(std::mem::take).unwrap_or_default();
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// The number of claims, queues and tombstones, for tests that nothing is left behind.
    pub fn len(&self) -> usize {
        self.claims.len() + self.queues.len() + self.tombstones.len()
    }

    /// Whether there are neither claims nor queues nor tombstones.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes expired claims, tombstones and seals, a bounded number of them per call.
    pub fn settle(&mut self, now: Moment) {
        for _ in 0..EXPIRED_PER_VERB {
            let Some(Reverse((at, _))) = self.expirations.peek() else {
                return;
            };
            if *at > now {
                return;
            }
            let Some(Reverse((_, what))) = self.expirations.pop() else {
                return;
            };
            match &what {
                Expiring::Claim(owner) => match self.claims.get(owner).map(|state| state.expires) {
                    Some(expires) if expires > now => self.expirations.push(Reverse((expires, what))),
                    Some(_) => self.expire(*owner, now),
                    None => {}
                },
                Expiring::Tombstone(owner) => match self.tombstones.get(owner).map(|tombstone| tombstone.until) {
                    Some(until) if until > now => self.expirations.push(Reverse((until, what))),
                    _ => drop(self.tombstones.remove(owner)),
                },
                Expiring::Seal(name) => {
                    if let Some(queue) = self.queues.get_mut(name) {
                        match queue.seal.as_ref().map(|seal| seal.until) {
                            Some(until) if until > now => self.expirations.push(Reverse((until, what))),
                            _ => {
                                queue.seal = None;
                                self.drop_if_unused(name);
                                if let (Expiring::Seal(name), Some(touched)) = (what, &mut self.touched) {
                                    touched.push(name);
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn join(&mut self, claim: &Arc<Claim>, now: Moment) {
        let owner = claim.id.hash();
        let tickets = self.draw(claim.block, claim.floor);
        let mut fits = 0;
        for demand in claim.demands.iter() {
            let queue = match self.queues.get_mut(&demand.name) {
                Some(queue) => queue,
                None => self.queues.entry(demand.name.clone()).or_insert_with(|| Queue::new(demand.capacity)),
            };
            fits += u32::from(queue.join(demand, tickets.first, owner));
        }
        let expires = now + claim.ttl;
        self.touch(claim);
        let claim = Arc::clone(claim);
        self.claims
            .insert(owner, ClaimState { claim, tickets, expires, since: now, fits, lingers: false, broken: false });
        self.schedule(expires, Expiring::Claim(owner));
    }

    fn draw(&mut self, block: u32, floor: Ticket) -> Tickets {
        let floor = if Rule::TicketsAboveFloor.is_left_out() { Ticket(0) } else { floor };
        let tickets = Tickets::new(Ticket(self.last.max(floor).0 + 1), block.max(1));
        self.last = tickets.last();
        tickets
    }

    fn schedule(&mut self, end: Moment, what: Expiring) {
        // The heap still has the claims that left before their lease ended. It is rebuilt once they are most of it.
        let living = self.claims.len() + self.tombstones.len() + self.queues.len();
        if self.expirations.len() > 2 * living + 64 {
            let claims = self.claims.iter().map(|(owner, state)| Reverse((state.expires, Expiring::Claim(*owner))));
            let tombstones = self
                .tombstones
                .iter()
                .map(|(owner, tombstone)| Reverse((tombstone.until, Expiring::Tombstone(*owner))));
            let seals = self.queues.iter().filter_map(|(name, queue)| {
                queue.seal.as_ref().map(|seal| Reverse((seal.until, Expiring::Seal(name.clone()))))
            });
            self.expirations = claims.chain(tombstones).chain(seals).collect();
        }
        self.expirations.push(Reverse((end, what)));
    }

    /// The claim, unless its lease has expired by `now`: then it is removed.
    fn living(&mut self, owner: ClaimHash, now: Moment) -> Option<&mut ClaimState> {
        if self.claims.get(&owner)?.expires <= now {
            self.expire(owner, now);
        }
        self.claims.get_mut(&owner)
    }

    fn expire(&mut self, owner: ClaimHash, now: Moment) {
        if let Some(state) = self.remove(owner, now) {
            self.pushes.push((state.claim.client, Change::Gone(owner)));
        }
    }

    /// Removes a claim from all its queues, and pushes `Held` to each claim that holds because of it. A next holder whose own
    /// lease has expired is removed too instead, so no push announces a grant that is then withdrawn.
    fn remove(&mut self, owner: ClaimHash, now: Moment) -> Option<ClaimState> {
        let removed = self.claims.remove(&owner)?;
        let mut dead = Vec::new();
        self.remove_from_queues(&removed, now, &mut dead);
        while let Some(owner) = dead.pop() {
            let state = self.claims.remove(&owner).expect("a claim becomes a holder once, so it is in `dead` once");
            self.remove_from_queues(&state, now, &mut dead);
            self.pushes.push((state.claim.client, Change::Gone(owner)));
        }
        Some(removed)
    }

    fn remove_from_queues(&mut self, state: &ClaimState, now: Moment, dead: &mut Vec<ClaimHash>) {
        self.touch(&state.claim);
        for demand in state.claim.demands.iter() {
            let queue = self.queues.get_mut(&demand.name).expect("a queue exists while it has entries");
            queue.take(state.tickets.first);
            while let Some(owner) = queue.admit_next() {
                let next = self.claims.get_mut(&owner).expect("every entry of a queue belongs to a claim");
                next.fits += 1;
                if !next.holds() {
                    continue;
                }
                if next.expires <= now {
                    dead.push(owner);
                } else {
                    next.since = now;
                    self.pushes.push((next.claim.client, Change::Held(owner, next.tickets.first)));
                    note_touched(&mut self.touched, &next.claim);
                }
            }
            self.drop_if_unused(&demand.name);
        }
    }

    fn drop_if_unused(&mut self, name: &Name) {
        if self.queues.get(name).is_some_and(Queue::is_unused) {
            self.queues.remove(name);
        }
    }

    fn touch(&mut self, claim: &Claim) {
        note_touched(&mut self.touched, claim);
    }
}

fn note_touched(touched: &mut Option<Vec<Name>>, claim: &Claim) {
    if let Some(touched) = touched {
        touched.extend(claim.demands.iter().map(|demand| demand.name.clone()));
    }
}
