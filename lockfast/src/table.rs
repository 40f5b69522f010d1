//! The rule, as a pure state machine over claims, leases and time. No clock, no input, no output: every verb is told what
//! time it is, answers, and leaves behind what its store has to tell ([`Table::take_news`]).
//!
//! > A claim **holds** when, on each of its resources, the claims up to and including it fit the capacity together.
//!
//! Mutex, reader-writer lock, semaphore and several locks at once are all this one sentence. What follows from it, checked
//! by `table/tests.rs` over random histories:
//!
//! 1. **Safety** - the weight held never exceeds the capacity.
//! 2. **Progress** - the oldest claim holds, since nothing is ahead of it and a claim heavier than the capacity is refused
//!    at the door. So locks taken together cannot deadlock.
//! 3. **Stability** - who holds goes on holding until it leaves or its lease ends: newcomers stand behind it.
//! 4. **Fencing** - of two claims that cannot share, the one with the lower ticket holds first and has left before the
//!    other holds. So the ticket is the fencing token, and so is every number of the claim's block: blocks are reserved when
//!    a claim joins, and grow only when nobody waits.
//!
//! Handing on needs no idea of its own: when a claim leaves, the next one holds already, and is told so.

mod door;
mod leave;
mod line;
mod show;
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

use line::Line;

/// How many leases one verb ends at most; the rest wait for the next verb. Nothing is granted over a lease that ran out
/// and was not looked at yet, so the limit costs time, never safety.
const ENDED_A_VERB: usize = 1024;

/// How far a waiter looks for the longest lease ahead of it. Those it does not see make it ask early, never late.
const LOOKED_AT_AHEAD: usize = 64;

/// All lines of one store.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use lockfast::{table::Table, store::{Admission, Busy}, *};
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
    lines: HashMap<Name, Line, RandomState>,
    /// Ids that may not come back, until their time is over.
    marks: ClaimMap<Mark>,
    /// When to look at what. Everything above with an end has an entry here at that end or before.
    ends: BinaryHeap<Reverse<(Moment, What)>>,
    last: Ticket,
    news: Vec<(ClientId, Change)>,
    /// Names whose lines changed, when somebody wants to know.
    touched: Option<Vec<Name>>,
}

#[derive(Debug)]
struct ClaimState {
    claim: Arc<Claim>,
    tickets: Tickets,
    expires: Moment,
    /// When it joined, or when it began to hold.
    since: Moment,
    /// In how many of its lines it fits. It holds when it fits in all.
    fits: u32,
    lingers: bool,
    broken: bool,
}

impl ClaimState {
    fn holds(&self) -> bool {
        self.fits as usize == self.claim.demands.len()
    }

    /// Whether it holds for an owner that may go on with it.
    fn is_at_work(&self) -> bool {
        self.holds() && !self.broken && !self.lingers
    }

    fn is_exclusive(&self) -> bool {
        self.claim.demands.iter().all(|demand| demand.mode() == Mode::Exclusive)
    }

    fn extend(&mut self, until: Moment) {
        // No verb shortens a lease: a short renewal that was sent before an extension may arrive after it.
        self.expires = if Rule::NoVerbShortens.is_left_out() { until } else { self.expires.max(until) };
    }
}

#[derive(Debug)]
struct Mark {
    until: Moment,
    why: Why,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Claim(ClaimHash),
    Mark(ClaimHash),
    Seal(Name),
}

impl Table {
    /// An empty table whose tickets follow `last`.
    pub fn new(last: Ticket) -> Self {
        Self {
            claims: HashMap::default(),
            lines: HashMap::default(),
            marks: HashMap::default(),
            ends: BinaryHeap::new(),
            last,
            news: Vec::new(),
            touched: None,
        }
    }

    /// What [`Store::acquire`](crate::store::Store::acquire) promises.
    pub fn acquire(&mut self, claim: &Arc<Claim>, busy: Busy, now: Moment) -> Result<Admission> {
        self.settle(now);
        let owner = claim.id.hash();
        if let Some(mark) = self.marks.get(&owner).filter(|_| !Rule::TombstoneKeepsOut.is_left_out()) {
            return Ok(Admission::Gone(mark.why));
        }
        if let Some(entry) = self.living(owner, now) {
            if entry.broken || entry.lingers {
                return Ok(Admission::Gone(if entry.broken { Why::Broken } else { Why::Left }));
            }
            if !Rule::RepeatedAcquireRenews.is_left_out() {
                entry.extend(now + claim.ttl);
            }
            return Ok(self.admission(owner, now));
        }
        if let Some(value) = self.seal_on(claim) {
            return Ok(Admission::Sealed(value));
        }
        for demand in claim.demands.iter() {
            self.check_at_the_door(demand)?;
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
            None => Standing::Gone(self.marks.get(&owner).map_or(Why::Unknown, |mark| mark.why)),
            Some(entry) if entry.broken => Standing::Gone(Why::Broken),
            Some(entry) if entry.lingers => Standing::Gone(Why::Left),
            Some(entry) => {
                entry.extend(now + lease.ttl);
                self.standing(owner, now)
            }
        }
    }

    /// What the verbs since the last call have to tell, and to whom.
    pub fn take_news(&mut self) -> Vec<(ClientId, Change)> {
        std::mem::take(&mut self.news)
    }

    /// Starts (or stops) noting which lines change.
    pub fn note_touched(&mut self, wanted: bool) {
        self.touched = wanted.then(Vec::new);
    }

    /// The names whose lines changed since the last call, each once, in order.
    pub fn take_touched(&mut self) -> Vec<Name> {
        let mut touched = self.touched.as_mut().map(std::mem::take).unwrap_or_default();
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// How many claims, lines and marks there are: what a test of "nothing is left behind" counts.
    pub fn len(&self) -> usize {
        self.claims.len() + self.lines.len() + self.marks.len()
    }

    /// Whether there is nothing at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends what has run out: claims, marks, seals.
    pub fn settle(&mut self, now: Moment) {
        for _ in 0..ENDED_A_VERB {
            let Some(Reverse((at, _))) = self.ends.peek() else {
                return;
            };
            if *at > now {
                return;
            }
            let Some(Reverse((_, what))) = self.ends.pop() else {
                return;
            };
            match &what {
                What::Claim(owner) => match self.claims.get(owner).map(|entry| entry.expires) {
                    Some(expires) if expires > now => self.ends.push(Reverse((expires, what))),
                    Some(_) => self.expire(*owner, now),
                    None => {}
                },
                What::Mark(owner) => match self.marks.get(owner).map(|mark| mark.until) {
                    Some(until) if until > now => self.ends.push(Reverse((until, what))),
                    _ => drop(self.marks.remove(owner)),
                },
                What::Seal(name) => {
                    if let Some(line) = self.lines.get_mut(name) {
                        match line.seal.as_ref().map(|seal| seal.until) {
                            Some(until) if until > now => self.ends.push(Reverse((until, what))),
                            _ => {
                                line.seal = None;
                                self.drop_if_unused(name);
                                if let (What::Seal(name), Some(touched)) = (what, &mut self.touched) {
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
            let line = match self.lines.get_mut(&demand.name) {
                Some(line) => line,
                None => self.lines.entry(demand.name.clone()).or_insert_with(|| Line::new(demand.capacity)),
            };
            fits += u32::from(line.join(demand, tickets.first, owner));
        }
        let expires = now + claim.ttl;
        self.touch(claim);
        let claim = Arc::clone(claim);
        self.claims
            .insert(owner, ClaimState { claim, tickets, expires, since: now, fits, lingers: false, broken: false });
        self.look_at(expires, What::Claim(owner));
    }

    fn draw(&mut self, block: u32, floor: Ticket) -> Tickets {
        let floor = if Rule::TicketsAboveFloor.is_left_out() { Ticket(0) } else { floor };
        let tickets = Tickets::new(Ticket(self.last.max(floor).0 + 1), block.max(1));
        self.last = tickets.last();
        tickets
    }

    fn look_at(&mut self, end: Moment, what: What) {
        // Claims that left before their lease ended are still in the heap. When they are most of it, it is made anew.
        let living = self.claims.len() + self.marks.len() + self.lines.len();
        if self.ends.len() > 2 * living + 64 {
            let claims = self.claims.iter().map(|(owner, entry)| Reverse((entry.expires, What::Claim(*owner))));
            let marks = self.marks.iter().map(|(owner, mark)| Reverse((mark.until, What::Mark(*owner))));
            let seals = self.lines.iter().filter_map(|(name, line)| {
                line.seal.as_ref().map(|seal| Reverse((seal.until, What::Seal(name.clone()))))
            });
            self.ends = claims.chain(marks).chain(seals).collect();
        }
        self.ends.push(Reverse((end, what)));
    }

    /// The claim, if its lease has not run out by now; if it has, it is dropped.
    fn living(&mut self, owner: ClaimHash, now: Moment) -> Option<&mut ClaimState> {
        if self.claims.get(&owner)?.expires <= now {
            self.expire(owner, now);
        }
        self.claims.get_mut(&owner)
    }

    fn expire(&mut self, owner: ClaimHash, now: Moment) {
        if let Some(entry) = self.remove(owner, now) {
            self.news.push((entry.claim.client, Change::Gone(owner)));
        }
    }

    /// Takes a claim out of all its lines. Those who hold by that are told, unless their own lease has run out too: then
    /// they are taken out as well, so that nobody is ever told of a grant that is withdrawn.
    fn remove(&mut self, owner: ClaimHash, now: Moment) -> Option<ClaimState> {
        let removed = self.claims.remove(&owner)?;
        let mut dead = Vec::new();
        self.remove_entry(&removed, now, &mut dead);
        while let Some(owner) = dead.pop() {
            let entry = self.claims.remove(&owner).expect("a claim becomes a holder once, so it is in `dead` once");
            self.remove_entry(&entry, now, &mut dead);
            self.news.push((entry.claim.client, Change::Gone(owner)));
        }
        Some(removed)
    }

    fn remove_entry(&mut self, entry: &ClaimState, now: Moment, dead: &mut Vec<ClaimHash>) {
        self.touch(&entry.claim);
        for demand in entry.claim.demands.iter() {
            let line = self.lines.get_mut(&demand.name).expect("a line lives while somebody stands in it");
            line.take(entry.tickets.first);
            while let Some(owner) = line.admit_next() {
                let next = self.claims.get_mut(&owner).expect("every place in a line belongs to a claim");
                next.fits += 1;
                if !next.holds() {
                    continue;
                }
                if next.expires <= now {
                    dead.push(owner);
                } else {
                    next.since = now;
                    self.news.push((next.claim.client, Change::Held(owner, next.tickets.first)));
                    note_touched(&mut self.touched, &next.claim);
                }
            }
            self.drop_if_unused(&demand.name);
        }
    }

    fn drop_if_unused(&mut self, name: &Name) {
        if self.lines.get(name).is_some_and(Line::is_unused) {
            self.lines.remove(name);
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
