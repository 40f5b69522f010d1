//! The rule over the rows of the file: what [`Table`](crate::table::Table) does in memory, verb for verb. The
//! conformance suite compares the two, reply by reply.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use rusqlite::Result as SqlResult;

use crate::claim::{Claim, ClientId, Demand, Holder, Mode, Ticket};
use crate::clock::Moment;
use crate::error::Error;
use crate::name::Name;
use crate::store::{
    Admission, Busy, BusyWith, Change, Entry as ShownEntry, Lease, Names, Page, Query, Resource, Standing, Why,
};

use super::entry::{Entry, MAX_TICKET};
use super::runtime_dir::ProcessId;
use super::view::{Message, TransactionView};

/// How many expired leases one verb removes at most; the next verb continues. No claim is granted over an expired lease
/// that was not removed yet, so the limit costs time, never safety.
const MAX_EXPIRED_PER_VERB: usize = 1024;

/// A page has at most this many resources, whatever limit was requested.
const MAX_PAGE_SIZE: usize = 100_000;

/// Why a verb failed: refused by the rule, or an error of the file.
#[derive(Debug)]
pub(super) enum Failure {
    Refused(Error),
    File(rusqlite::Error),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::File(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

type VerbResult<T> = std::result::Result<T, Failure>;

impl TransactionView<'_> {
    /// Removes what has reached its end: claims, tombstones, seals.
    pub(super) fn settle(&mut self) -> SqlResult<()> {
        if !self.is_end_due() {
            return Ok(());
        }
        for entry in self.expired(MAX_EXPIRED_PER_VERB)? {
            // The removal of an earlier claim may have removed this one too.
            if self.entry(&entry.name, entry.tickets.first)?.is_some() {
                self.expire(&entry)?;
            }
        }
        self.delete_ended_tombstones_and_seals(MAX_EXPIRED_PER_VERB)?;
        self.find_next_end()
    }

    pub(super) fn acquire(
        &mut self,
        claim: &Arc<Claim>,
        busy: Busy,
        is_dead: &dyn Fn(ProcessId) -> bool,
    ) -> VerbResult<Admission> {
        let owner = claim.id.hash();
        if let Some(why) = self.tombstone(owner)? {
            return Ok(Admission::Gone(why));
        }
        // The claim has no entry in an empty queue, and most queues are empty.
        let mut is_empty = self.last_in_queue(&claim.demands[0].name)?.is_none();
        if !is_empty && let Some(entry) = self.living_entry_of(claim)? {
            if entry.is_broken() || entry.lingers() {
                return Ok(Admission::Gone(if entry.is_broken() { Why::Broken } else { Why::Left }));
            }
            self.extend(&entry, self.now + claim.ttl)?;
            return Ok(self.admission(&entry)?);
        }
        for demand in claim.demands.iter() {
            if let Some((value, _)) = self.seal(&demand.name)? {
                return Ok(Admission::Sealed(value));
            }
        }
        let fits = loop {
            match self.fits_of(claim, std::mem::take(&mut is_empty)) {
                Ok(fits) if !fits.contains(&false) => break fits,
                // Claims of dead processes block no claim, and do not decide the capacity.
                _ if self.remove_dead_processes_ahead(claim, is_dead)? => {}
                result => break result?,
            }
        };
        if let (Busy::Refuse, Some(index)) = (busy, fits.iter().position(|fits| !fits)) {
            return Ok(Admission::Refused(self.busy_with(&claim.demands[index].name)?));
        }
        let tickets = self.draw_tickets(claim.block, claim.floor);
        let missing = fits.iter().filter(|fits| !**fits).count() as u32;
        for (demand, fits) in claim.demands.iter().zip(fits) {
            self.add(claim, demand, tickets, fits, missing)?;
        }
        self.lower_next_end(self.now + claim.ttl);
        self.known_tickets.insert(owner, tickets.first);
        self.changed_queues.extend(claim.demands.iter().map(|demand| demand.name.clone()));
        if missing == 0 {
            return Ok(Admission::Held(tickets));
        }
        let entry = self.entry(&claim.demands[0].name, tickets.first)?.expect("it was added a moment ago");
        Ok(self.admission(&entry)?)
    }

    /// Whether a new claim would fit in each of its queues; an error if it may not join one. `is_empty` says that the
    /// first queue is known to be empty.
    fn fits_of(&self, claim: &Claim, mut is_empty: bool) -> VerbResult<Vec<bool>> {
        claim.demands.iter().map(|demand| self.fits(demand, std::mem::take(&mut is_empty))).collect()
    }

    fn fits(&self, demand: &Demand, is_empty: bool) -> VerbResult<bool> {
        demand.check_weight()?;
        let last = if is_empty { None } else { self.last_in_queue(&demand.name)? };
        let Some(last) = last else { return Ok(true) };
        if last.capacity != demand.capacity {
            return Err(demand.capacity_error(last.capacity).into());
        }
        // If the last entry fits, all entries fit.
        let is_full = !last.fits || demand.weight == demand.capacity || last.weight == last.capacity;
        Ok(!is_full && self.used_weight(&demand.name)? + u64::from(demand.weight) <= u64::from(demand.capacity))
    }

    /// Removes the claims of dead processes from the queues of this claim. Returns whether there were any.
    fn remove_dead_processes_ahead(&mut self, claim: &Claim, is_dead: &dyn Fn(ProcessId) -> bool) -> SqlResult<bool> {
        let mut has_removed = false;
        for demand in claim.demands.iter() {
            for process in self.processes_before(&demand.name, MAX_TICKET)? {
                if process != self.process && is_dead(process) {
                    self.remove_dead_process(process)?;
                    has_removed = true;
                }
            }
        }
        Ok(has_removed)
    }

    /// Removes all claims of a dead process, except detached and lingering ones: these live by their lease alone.
    pub(super) fn remove_dead_process(&mut self, process: ProcessId) -> SqlResult<()> {
        for entry in self.claims_of(process)? {
            if self.entry(&entry.name, entry.tickets.first)?.is_some() {
                self.expire(&entry)?;
            }
        }
        self.remove_watchers_of(process)
    }

    pub(super) fn renew(&mut self, lease: &Lease) -> SqlResult<Standing> {
        match self.living_entry_of(&lease.claim)? {
            None => {
                let why = self.tombstone(lease.claim.id.hash())?;
                Ok(Standing::Gone(why.unwrap_or(Why::Unknown)))
            }
            Some(entry) if entry.is_broken() => Ok(Standing::Gone(Why::Broken)),
            Some(entry) if entry.lingers() => Ok(Standing::Gone(Why::Left)),
            Some(entry) => {
                self.extend(&entry, self.now + lease.ttl)?;
                if lease.claim.detached {
                    self.detach(&entry)?;
                }
                self.standing(&entry)
            }
        }
    }

    /// The claim's entry, unless its lease has run out: then the claim is removed.
    pub(super) fn living_entry_of(&mut self, claim: &Claim) -> SqlResult<Option<Entry>> {
        match self.entry_of(claim)? {
            Some(entry) if entry.expires <= self.now => {
                self.expire(&entry)?;
                Ok(None)
            }
            found => Ok(found),
        }
    }

    pub(super) fn expire(&mut self, entry: &Entry) -> SqlResult<()> {
        self.remove(entry)?;
        self.notify(entry, Change::Gone(entry.owner));
        Ok(())
    }

    /// Removes a claim from all of its queues. Claims that hold because of it are notified, unless their own lease has
    /// run out too: these are removed as well, so that no notified grant is ever withdrawn.
    pub(super) fn remove(&mut self, entry: &Entry) -> SqlResult<()> {
        let mut expired = Vec::new();
        self.remove_entry(entry, &mut expired)?;
        while let Some(entry) = expired.pop() {
            self.remove_entry(&entry, &mut expired)?;
            self.notify(&entry, Change::Gone(entry.owner));
        }
        Ok(())
    }

    fn remove_entry(&mut self, entry: &Entry, expired: &mut Vec<Entry>) -> SqlResult<()> {
        self.delete(entry)?;
        for name in entry.names() {
            self.changed_queues.insert(name.clone());
            let Some(behind) = self.next_behind(name, entry.tickets.first)? else { continue };
            self.admit(name, expired)?;
            if !entry.holds() {
                // The claim behind a removed waiter watched its process, and has to watch another one now.
                self.messages.push((behind.process, behind.client, Message::AheadChanged(behind.owner)));
            }
        }
        Ok(())
    }

    /// Grants the claims that fit now, in ticket order. A claim whose lease has run out is added to `expired` instead.
    fn admit(&mut self, name: &Name, expired: &mut Vec<Entry>) -> SqlResult<()> {
        let (mut used_weight, mut has_shared_holders) = (None, false);
        while let Some(next) = self.first_that_does_not_fit(name)? {
            let used_weight = match &mut used_weight {
                Some(weight) => weight,
                none => none.insert(self.used_weight(name)?),
            };
            if *used_weight + u64::from(next.weight) > u64::from(next.capacity) {
                if has_shared_holders {
                    // Several claims hold now, and the first waiter has to watch the processes of all of them.
                    self.messages.push((next.process, next.client, Message::AheadChanged(next.owner)));
                }
                break;
            }
            *used_weight += u64::from(next.weight);
            has_shared_holders |= next.weight < next.capacity;
            let next = self.set_fits(&next)?;
            if !next.holds() {
                continue;
            }
            if next.expires <= self.now {
                expired.push(next);
            } else {
                self.notify(&next, Change::Held(next.owner, next.tickets.first));
                self.changed_queues.extend(next.names().iter().cloned());
            }
        }
        Ok(())
    }

    pub(super) fn notify(&mut self, entry: &Entry, change: Change) {
        self.messages.push((entry.process, entry.client, Message::Change(change)));
    }

    /// The processes whose deaths a waiter has to watch: in each queue, those of all holders if it is the first waiter;
    /// otherwise that of the entry just ahead, whose process watches the rest.
    pub(super) fn processes_to_watch(&self, entry: &Entry) -> SqlResult<Vec<ProcessId>> {
        let mut processes = Vec::new();
        for name in entry.names() {
            let Some(here) = self.entry(name, entry.tickets.first)?.filter(|here| !here.fits) else { continue };
            let before = Ticket(here.tickets.first.0 - 1);
            match self.at_or_before(name, before)? {
                Some(ahead) if !ahead.fits => processes.push(ahead.process),
                Some(_) => processes.extend(self.processes_before(name, here.tickets.first)?),
                None => {}
            }
        }
        processes.sort_unstable();
        processes.dedup();
        processes.retain(|process| *process != self.process);
        Ok(processes)
    }

    /// The processes whose deaths this claim has to watch, if it waits. None if the claim has left its queues.
    pub(super) fn processes_to_watch_for(&mut self, claim: &Claim) -> SqlResult<Vec<ProcessId>> {
        match self.entry_of(claim)? {
            Some(entry) => self.processes_to_watch(&entry),
            None => Ok(Vec::new()),
        }
    }

    /// Adds messages to the processes that watch queues which changed.
    pub(super) fn notify_watchers(&mut self) -> SqlResult<()> {
        if self.changed_queues.is_empty() {
            return Ok(());
        }
        let mut messages = BTreeSet::new();
        for (process, prefix) in self.watchers()? {
            let watched = self.changed_queues.iter().filter(|name| name.as_str().starts_with(&prefix));
            messages.extend(watched.map(|name| (process, name.clone())));
        }
        // Every subscriber of the process to this queue gets the change: the client id is not used.
        let message = |(process, name)| (process, ClientId(0), Message::Change(Change::Resource(name)));
        self.messages.extend(messages.into_iter().map(message));
        Ok(())
    }

    fn admission(&self, entry: &Entry) -> SqlResult<Admission> {
        Ok(match self.standing(entry)? {
            Standing::Waiting { ticket, recheck_in } => {
                let mut position = 0;
                for name in entry.names() {
                    position = self.count_ahead(name, ticket)?.max(position);
                }
                Admission::Queued { ticket, position, recheck_in }
            }
            Standing::Held(tickets) => Admission::Held(tickets),
            Standing::Gone(why) => Admission::Gone(why),
        })
    }

    fn standing(&self, entry: &Entry) -> SqlResult<Standing> {
        if entry.holds() {
            return Ok(Standing::Held(entry.tickets));
        }
        let mut latest_end = Moment::START;
        for name in entry.names() {
            latest_end = self.leases_ahead_end(name, entry.tickets.first)?.max(latest_end);
        }
        Ok(Standing::Waiting { ticket: entry.tickets.first, recheck_in: latest_end.since(self.now) })
    }

    fn busy_with(&self, name: &Name) -> SqlResult<BusyWith> {
        let holder = self.first_holder(name)?;
        Ok(BusyWith {
            held_for: holder.as_ref().map(|(entry, _)| self.now.since(entry.since)),
            holder: holder.map(|(entry, note)| Holder { owner: entry.owner, fence: entry.tickets.first, note }),
            position: self.count_ahead(name, MAX_TICKET)?,
        })
    }

    /// The names a query selects, and where the next page begins.
    fn names_of(&self, query: &Query) -> SqlResult<(Vec<Name>, Option<Name>)> {
        let limit = query.limit.clamp(1, MAX_PAGE_SIZE);
        let mut names = match (&query.names, &query.after) {
            (Names::One(one), Some(after)) if one <= after => Vec::new(),
            (Names::One(one), _) => {
                let is_used = self.last_in_queue(one)?.is_some() || self.seal(one)?.is_some();
                is_used.then(|| one.clone()).into_iter().collect()
            }
            (Names::Beginning(prefix), Some(after)) if after.as_str() >= prefix.as_str() => {
                self.names_from(Bound::Excluded(after.as_str()), limit + 1)?
            }
            (Names::Beginning(prefix), _) => self.names_from(Bound::Included(prefix.as_str()), limit + 1)?,
        };
        if let Names::Beginning(prefix) = &query.names {
            // Names are sorted, so all names with this prefix are adjacent.
            names.retain(|name| name.as_str().starts_with(prefix.as_str()));
        }
        let next = (names.len() > limit).then(|| names[limit - 1].clone());
        names.truncate(limit);
        Ok((names, next))
    }

    /// The other processes whose claims a query shows.
    pub(super) fn processes_shown(&self, query: &Query) -> SqlResult<BTreeSet<ProcessId>> {
        let mut processes = BTreeSet::new();
        for name in self.names_of(query)?.0 {
            processes.extend(self.processes_before(&name, MAX_TICKET)?);
        }
        processes.remove(&self.process);
        Ok(processes)
    }

    pub(super) fn inspect(&self, query: &Query) -> SqlResult<Page> {
        let (names, next) = self.names_of(query)?;
        let resources: SqlResult<Vec<_>> = names.into_iter().map(|name| self.resource(name, query.entries)).collect();
        Ok(Page { resources: resources?, next, fleet: self.counters()? })
    }

    fn resource(&self, name: Name, entries: usize) -> SqlResult<Resource> {
        let queue = self.front_with_notes(&name, entries.max(1))?;
        let more = self.queue_length(&name)?.saturating_sub(queue.len());
        let sealed_for = self.seal(&name)?.map(|(_, until)| until.since(self.now));
        let capacity = queue.first().map_or(Demand::ALL, |(entry, _)| entry.capacity);
        let queue = queue.into_iter().map(|(entry, note)| ShownEntry {
            owner: entry.owner,
            tickets: entry.tickets,
            mode: entry.demand().mode(),
            weight: entry.weight,
            holds: entry.holds(),
            since: self.now.since(entry.since),
            expires_in: entry.expires.since(self.now),
            lingers: entry.lingers(),
            broken: entry.is_broken(),
            note,
        });
        Ok(Resource { queue: queue.collect(), more, name, capacity, sealed_for })
    }

    pub(super) fn is_exclusive(&self, entry: &Entry) -> SqlResult<bool> {
        for name in entry.names() {
            let here = self.entry(name, entry.tickets.first)?;
            if here.is_none_or(|here| here.demand().mode() != Mode::Exclusive) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
