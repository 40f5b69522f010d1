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
const MAX_EXPIRED_PER_VERB: usize = 1024;

/// How many entries ahead of a waiter are searched for the longest lease. An entry beyond them makes the waiter poll early,
/// never late.
const MAX_LOOKAHEAD: usize = 64;

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
    /// Due times. Every claim, tombstone and seal of this table has an element here, at its expiry or earlier.
    expirations: BinaryHeap<Reverse<(Moment, ExpiryTarget)>>,
    last_ticket: Ticket,
    /// Pushes that the store has not sent yet.
    pushes: Vec<(ClientId, Change)>,
    /// Names whose queues changed; `None` while no subscription asks for them.
    touched_names: Option<Vec<Name>>,
}

#[derive(Debug)]
struct ClaimState {
    claim: Arc<Claim>,
    tickets: Tickets,
    expires_at: Moment,
    /// When it joined; once it holds, when it began to hold.
    standing_since: Moment,
    /// In how many of its queues it fits the capacity. It holds when it fits in all.
    fitting_queues: u32,
    lingers: bool,
    broken: bool,
}

impl ClaimState {
    fn holds(&self) -> bool {
        self.fitting_queues as usize == self.claim.demands.len()
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
        self.expires_at = if Rule::NoVerbShortens.is_left_out() { until } else { self.expires_at.max(until) };
    }
}

#[derive(Debug)]
struct Tombstone {
    until: Moment,
    why: Why,
}

/// What expires.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ExpiryTarget {
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
            last_ticket: last,
            pushes: Vec::new(),
            touched_names: None,
        }
    }

    /// What [`Store::acquire`](crate::store::Store::acquire) promises.
    pub fn acquire(&mut self, claim: &Arc<Claim>, busy: Busy, now: Moment) -> Result<Admission> {
        self.settle(now);
        let owner = claim.id.hash();
        if let Some(tombstone) = self.tombstones.get(&owner).filter(|_| !Rule::TombstoneKeepsOut.is_left_out()) {
            return Ok(Admission::Gone(tombstone.why));
        }
        if let Some(state) = self.find_alive(owner, now) {
            if state.broken || state.lingers {
                return Ok(Admission::Gone(if state.broken { Why::Broken } else { Why::Left }));
            }
            if !Rule::RepeatedAcquireRenews.is_left_out() {
                state.extend(now + claim.ttl);
            }
            return Ok(self.admission(owner, now));
        }
        if let Some(value) = self.find_seal(claim) {
            return Ok(Admission::Sealed(value));
        }
        for demand in claim.demands.iter() {
            self.check_demand(demand)?;
        }
        if busy == Busy::Refuse
            && let Some(blocked) = claim.demands.iter().find(|demand| !self.has_room_for(demand))
        {
            return Ok(Admission::Refused(self.busy_with(&blocked.name, now)));
        }
        self.join(claim, now);
        Ok(self.admission(owner, now))
    }

    /// What [`Store::renew`](crate::store::Store::renew) promises, for one lease.
    pub fn renew(&mut self, lease: &Lease, now: Moment) -> Standing {
        self.settle(now);
        let owner = lease.claim.id.hash();
        match self.find_alive(owner, now) {
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
    pub fn record_touched(&mut self, enabled: bool) {
        self.touched_names = enabled.then(Vec::new);
    }

    /// The names whose queues changed since the last call, each once, in order.
    pub fn take_touched(&mut self) -> Vec<Name> {
        let mut touched = self.touched_names.as_mut().map(std::mem::take).unwrap_or_default();
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
        for _ in 0..MAX_EXPIRED_PER_VERB {
            let Some(Reverse((at, _))) = self.expirations.peek() else {
                return;
            };
            if *at > now {
                return;
            }
            let Some(Reverse((_, target))) = self.expirations.pop() else {
                return;
            };
            match &target {
                ExpiryTarget::Claim(owner) => match self.claims.get(owner).map(|state| state.expires_at) {
                    Some(expires_at) if expires_at > now => self.expirations.push(Reverse((expires_at, target))),
                    Some(_) => self.expire(*owner, now),
                    None => {}
                },
                ExpiryTarget::Tombstone(owner) => match self.tombstones.get(owner).map(|tombstone| tombstone.until) {
                    Some(until) if until > now => self.expirations.push(Reverse((until, target))),
                    _ => drop(self.tombstones.remove(owner)),
                },
                ExpiryTarget::Seal(name) => {
                    if let Some(queue) = self.queues.get_mut(name) {
                        match queue.seal.as_ref().map(|seal| seal.until) {
                            Some(until) if until > now => self.expirations.push(Reverse((until, target))),
                            _ => {
                                queue.seal = None;
                                self.drop_if_unused(name);
                                // Matched again by value: the name moves out of `target`.
                                if let (ExpiryTarget::Seal(name), Some(touched_names)) =
                                    (target, &mut self.touched_names)
                                {
                                    touched_names.push(name);
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
        let tickets = self.draw_tickets(claim.block, claim.floor);
        let mut fitting_queues = 0;
        for demand in claim.demands.iter() {
            let queue = match self.queues.get_mut(&demand.name) {
                Some(queue) => queue,
                None => self.queues.entry(demand.name.clone()).or_insert_with(|| Queue::new(demand.capacity)),
            };
            fitting_queues += u32::from(queue.join(demand, tickets.first, owner));
        }
        let expires_at = now + claim.ttl;
        self.touch(claim);
        let claim = Arc::clone(claim);
        self.claims.insert(
            owner,
            ClaimState {
                claim,
                tickets,
                expires_at,
                standing_since: now,
                fitting_queues,
                lingers: false,
                broken: false,
            },
        );
        self.schedule_expiry(expires_at, ExpiryTarget::Claim(owner));
    }

    fn draw_tickets(&mut self, block: u32, floor: Ticket) -> Tickets {
        let floor = if Rule::TicketsAboveFloor.is_left_out() { Ticket(0) } else { floor };
        let tickets = Tickets::new(Ticket(self.last_ticket.max(floor).0 + 1), block.max(1));
        self.last_ticket = tickets.last();
        tickets
    }

    fn schedule_expiry(&mut self, at: Moment, target: ExpiryTarget) {
        // The heap still has the claims that left before their lease ended. It is rebuilt once they are more than half of it; the
        // constant keeps a small heap from being rebuilt for every few claims.
        let in_use = self.len();
        if self.expirations.len() > 2 * in_use + 64 {
            let claims =
                self.claims.iter().map(|(owner, state)| Reverse((state.expires_at, ExpiryTarget::Claim(*owner))));
            let tombstones = self
                .tombstones
                .iter()
                .map(|(owner, tombstone)| Reverse((tombstone.until, ExpiryTarget::Tombstone(*owner))));
            let seals = self.queues.iter().filter_map(|(name, queue)| {
                queue.seal.as_ref().map(|seal| Reverse((seal.until, ExpiryTarget::Seal(name.clone()))))
            });
            self.expirations = claims.chain(tombstones).chain(seals).collect();
        }
        self.expirations.push(Reverse((at, target)));
    }

    /// The claim, unless its lease has expired by `now`: then it is removed.
    fn find_alive(&mut self, owner: ClaimHash, now: Moment) -> Option<&mut ClaimState> {
        if self.claims.get(&owner)?.expires_at <= now {
            self.expire(owner, now);
        }
        self.claims.get_mut(&owner)
    }

    fn expire(&mut self, owner: ClaimHash, now: Moment) {
        if let Some(state) = self.remove(owner, now) {
            self.pushes.push((state.claim.client, Change::Gone(owner)));
        }
    }

    /// Removes a claim from all its queues, and pushes `Held` to each claim that holds from now on. If the lease of a next holder has
    /// expired, that claim is removed as well and gets no `Held`: no push announces a grant that is then withdrawn.
    fn remove(&mut self, owner: ClaimHash, now: Moment) -> Option<ClaimState> {
        let removed = self.claims.remove(&owner)?;
        let mut expired_owners = Vec::new();
        self.remove_from_queues(&removed, now, &mut expired_owners);
        while let Some(owner) = expired_owners.pop() {
            let state =
                self.claims.remove(&owner).expect("a claim becomes a holder once, so it is in `expired_owners` once");
            self.remove_from_queues(&state, now, &mut expired_owners);
            self.pushes.push((state.claim.client, Change::Gone(owner)));
        }
        Some(removed)
    }

    /// Adds to `expired_owners` the claims that would hold now, but whose lease has expired.
    fn remove_from_queues(&mut self, state: &ClaimState, now: Moment, expired_owners: &mut Vec<ClaimHash>) {
        self.touch(&state.claim);
        for demand in state.claim.demands.iter() {
            let queue = self.queues.get_mut(&demand.name).expect("a queue exists while it has entries");
            queue.remove(state.tickets.first);
            while let Some(owner) = queue.admit_next() {
                let next = self.claims.get_mut(&owner).expect("every entry of a queue belongs to a claim");
                next.fitting_queues += 1;
                if !next.holds() {
                    continue;
                }
                if next.expires_at <= now {
                    expired_owners.push(owner);
                } else {
                    next.standing_since = now;
                    self.pushes.push((next.claim.client, Change::Held(owner, next.tickets.first)));
                    add_names_of(&next.claim, &mut self.touched_names);
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
        add_names_of(claim, &mut self.touched_names);
    }
}

fn add_names_of(claim: &Claim, touched_names: &mut Option<Vec<Name>>) {
    if let Some(touched_names) = touched_names {
        touched_names.extend(claim.demands.iter().map(|demand| demand.name.clone()));
    }
}
