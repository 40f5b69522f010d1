//! The promises of the store to its clients, written down from its own answers and pushes: which claims are in the queue, which
//! of them hold, and until when. Kept apart from the table, so that the table itself is checked too.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Duration;

use lockfast::store::{Admission, Lease, Leaving, Standing};
use lockfast::store::{Claim, ClaimHash, Moment, Name, Ticket, Tickets};

use crate::clock::Time;

pub(crate) type ClaimMap<V> = HashMap<ClaimHash, V, BuildHasherDefault<FirstBytes>>;

/// A claim's hash is random already; eight bytes of it will do.
#[derive(Debug, Default)]
pub(crate) struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.as_chunks::<8>().0 {
            self.0 ^= u64::from_le_bytes(*chunk);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A claim in the queue.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) claim: Arc<Claim>,
    pub(crate) tickets: Tickets,
    pub(crate) expires: Moment,
    /// The longest lease that it was given.
    pub(crate) longest: Duration,
    pub(crate) holds: bool,
    pub(crate) lingers: bool,
    pub(crate) broken: bool,
    /// From when on no live claim was in its way.
    pub(crate) could_hold: Time,
    /// When the store last answered with its standing.
    last_answer_at: Time,
    /// It holds because a lease ended, and the store's last answer did not say exactly when.
    pub(crate) was_unaware: bool,
    /// A caller has had a guard for it.
    pub(crate) entered: bool,
    /// The run of local hand-offs that its present tickets are for.
    pub(crate) run: Run,
    /// Its lease is not renewed: its holder does not want that, or has lost it.
    pub(crate) runs_out: bool,
    /// When its last caller was done with it.
    pub(crate) left: Option<Time>,
    /// It joined by an acquire that came later than a tombstone lasts: that may cost a lease.
    pub(crate) is_ghost: bool,
}

/// A run of local hand-offs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    /// The first ticket that it may use.
    first: Ticket,
    /// When its first guard entered.
    pub(crate) began: Time,
    /// How many guards entered after that one.
    pub(crate) handoffs: u32,
}

impl Entry {
    /// A guard enters.
    pub(crate) fn enter(&mut self, now: Time, runs_out: bool) {
        self.left = None;
        self.entered = true;
        self.runs_out = runs_out;
        if self.run.first == self.tickets.first {
            self.run.handoffs += 1;
        } else {
            self.run = Run { first: self.tickets.first, began: now, handoffs: 0 };
        }
    }

    /// Since when the present run goes on, if a guard would enter in it by a hand-off.
    pub(crate) fn goes_on_since(&self) -> Option<Time> {
        (self.run.first == self.tickets.first).then_some(self.run.began)
    }
}

/// How a claim left the ledger.
#[derive(Clone, Debug)]
pub(crate) struct RemovedEntry {
    pub(crate) entry: Entry,
    /// In true time: when its lease ended, or when it left.
    pub(crate) at: Time,
    pub(crate) how: Exit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// By a release of its own.
    Released,
    /// Its lease ended.
    Expired,
    /// By an operator, or because the resource was sealed.
    Ended,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: ClaimMap<Entry>,
    /// How much of each name is held.
    pub(crate) used: Vec<u64>,
    /// When a claim on each name last left or began to linger, rather than ran out.
    departures: Vec<Time>,
}

impl Ledger {
    pub(crate) fn new(names: usize) -> Self {
        Self { entries: ClaimMap::default(), used: vec![0; names], departures: vec![Time(0); names] }
    }

    pub(crate) fn get(&self, owner: ClaimHash) -> Option<&Entry> {
        self.entries.get(&owner)
    }

    pub(crate) fn get_mut(&mut self, owner: ClaimHash) -> Option<&mut Entry> {
        self.entries.get_mut(&owner)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// The store answered an acquire. `left`: when its caller was done with it, if that was before it ran. `is_ghost`: it came
    /// later than a tombstone lasts.
    pub(crate) fn note_acquire(
        &mut self,
        claim: &Arc<Claim>,
        admission: &Admission,
        now: Moment,
        time: Time,
        left: Option<Time>,
        is_ghost: bool,
    ) -> Result<(), String> {
        let (tickets, holds) = match admission {
            Admission::Held(tickets) => (*tickets, true),
            Admission::Queued { ticket, .. } => (Tickets::new(*ticket, claim.block.max(1)), false),
            _ => return Ok(()),
        };
        let owner = claim.id.hash();
        if let Some(entry) = self.entries.get_mut(&owner) {
            entry.last_answer_at = time;
            entry.expires = entry.expires.max(now + claim.ttl);
            return expect_agreement(entry, tickets.first == entry.tickets.first && holds == entry.holds, admission);
        }
        let entry = Entry {
            claim: Arc::clone(claim),
            tickets,
            expires: now + claim.ttl,
            longest: claim.ttl,
            holds,
            lingers: false,
            broken: false,
            could_hold: time,
            last_answer_at: time,
            was_unaware: false,
            entered: false,
            run: Run::default(),
            runs_out: false,
            left,
            is_ghost,
        };
        if holds {
            self.count(claim, 1);
        }
        self.entries.insert(owner, entry);
        Ok(())
    }

    /// The store answered a renewal.
    pub(crate) fn note_renewal(
        &mut self,
        lease: &Lease,
        standing: &Standing,
        now: Moment,
        time: Time,
    ) -> Result<(), String> {
        let entry = self.entries.get_mut(&lease.claim.id.hash());
        match (entry, standing) {
            (Some(entry), Standing::Held(tickets)) => {
                entry.expires = entry.expires.max(now + lease.ttl);
                entry.longest = entry.longest.max(lease.ttl);
                expect_agreement(entry, entry.holds && *tickets == entry.tickets, standing)
            }
            (Some(entry), Standing::Waiting { ticket, .. }) => {
                entry.last_answer_at = time;
                entry.expires = entry.expires.max(now + lease.ttl);
                expect_agreement(entry, !entry.holds && *ticket == entry.tickets.first, standing)
            }
            (Some(entry), Standing::Gone(_)) => expect_agreement(entry, entry.broken || entry.lingers, standing),
            (None, Standing::Gone(_)) => Ok(()),
            (None, standing) => Err(format!("no such claim in the queue, but {standing:?}")),
            (Some(_), standing) => Err(format!("{standing:?}")),
        }
    }

    /// The store answered a release. Returns the claim that left by it.
    pub(crate) fn note_release(
        &mut self,
        leaving: &Leaving,
        standing: &Standing,
        now: Moment,
        time: Time,
    ) -> Result<Option<RemovedEntry>, String> {
        let Some(claim) = crate::caller::claim_of(leaving) else { return Ok(None) };
        let owner = claim.id.hash();
        let Some(entry) = self.entries.get_mut(&owner) else {
            return match standing {
                Standing::Gone(_) => Ok(None),
                other => Err(format!("no such claim in the queue, but {other:?}")),
            };
        };
        match leaving {
            Leaving::UnlessAlone { floor, .. } => {
                let is_late = entry.holds && entry.tickets.first > *floor;
                if let Standing::Held(tickets) = standing {
                    expect_agreement(entry, entry.holds && (!is_late || *tickets == entry.tickets), standing)?;
                    entry.tickets = *tickets;
                    entry.expires = entry.expires.max(now + entry.claim.ttl);
                    return Ok(None);
                }
                if is_late && (entry.broken || entry.lingers) {
                    return Ok(None);
                }
            }
            Leaving::Linger(_, span) if entry.holds && !entry.broken && !span.is_zero() => {
                if !entry.lingers {
                    entry.lingers = true;
                    entry.expires = now + *span;
                    let claim = Arc::clone(&entry.claim);
                    self.note_departure(&claim, time);
                }
                return Ok(None);
            }
            _ => {}
        }
        Ok(self.remove(owner, time, Exit::Released))
    }

    /// The store granted a claim that waited.
    pub(crate) fn note_grant(&mut self, owner: ClaimHash, could_hold: Time, time: Time) -> Option<Arc<Claim>> {
        let entry = self.entries.get_mut(&owner)?;
        entry.holds = true;
        entry.could_hold = could_hold;
        let claim = Arc::clone(&entry.claim);
        // A waiter knows when all leases ahead of it end. That is exact if it needs all of the only name it wants, and if no
        // claim ahead of it left since.
        let is_exact = matches!(&*claim.demands, [only] if only.weight == only.capacity
            && self.departures[index_of(&only.name)] < entry.last_answer_at);
        entry.was_unaware = could_hold < time && !is_exact;
        self.count(&claim, 1);
        Some(claim)
    }

    pub(crate) fn remove(&mut self, owner: ClaimHash, at: Time, how: Exit) -> Option<RemovedEntry> {
        let entry = self.entries.remove(&owner)?;
        if entry.holds {
            self.count(&entry.claim, -1);
        }
        if how != Exit::Expired {
            self.note_departure(&entry.claim, at);
        }
        Some(RemovedEntry { entry, at, how })
    }

    fn note_departure(&mut self, claim: &Claim, time: Time) {
        claim.demands.iter().for_each(|demand| self.departures[index_of(&demand.name)] = time);
    }

    fn count(&mut self, claim: &Claim, sign: i64) {
        for demand in claim.demands.iter() {
            let used = &mut self.used[index_of(&demand.name)];
            *used = used.wrapping_add_signed(sign * i64::from(demand.weight));
        }
    }
}

/// The error names an answer that does not agree with the ledger.
fn expect_agreement(entry: &Entry, agrees: bool, answer: &impl std::fmt::Debug) -> Result<(), String> {
    if agrees { Ok(()) } else { Err(format!("{answer:?} about {entry:?}")) }
}

/// Names are `n0`, `n1` and so on.
pub(crate) fn index_of(name: &Name) -> usize {
    name.as_str().bytes().skip(1).fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}
