//! The tables of the file as one transaction sees them, and the statements on `entries`. No other process can change
//! the tables meanwhile.
//!
//! Each function is one statement on one row or one queue; what the statements mean together is in `rule.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Params, Result, Row, params};

use crate::claim::{Claim, ClaimHash, ClaimMap, ClientId, Demand, Note, Ticket, Tickets};
use crate::clock::Moment;
use crate::name::Name;
use crate::store::Change;

use super::encoding::{encode_names, encode_note};
use super::entry::{
    BROKEN, DETACHED, Entry, LINGERS, moment, read_entry, read_entry_with_note, signed, span_nanos, unsigned,
};
use super::file::nanos;
use super::records::NonEmpty;
use super::runtime_dir::ProcessId;

/// Of at most this many leases ahead of a waiter the longest is found. A longer one beyond makes the waiter ask early,
/// never late.
const MAX_LEASES_COMPARED: u32 = 64;

/// A statement about entries, with the columns of an [`Entry`] before it.
macro_rules! entries {
    ($rest:literal) => {
        concat!(
            "SELECT name, ticket, count, owner, process, client, capacity, weight, fits, missing, expires, since, ttl, ",
            "flags, names, note FROM entries ",
            $rest
        )
    };
}

/// Messages to send once the transaction is committed: to which client of which process, and what.
pub(super) type Messages = Vec<(ProcessId, ClientId, Message)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Change(Change),
    /// The entries ahead of this claim have changed: its process must determine again which deaths to watch for.
    AheadChanged(ClaimHash),
}

/// One transaction's view of the tables.
#[derive(Debug)]
pub(super) struct TransactionView<'a> {
    pub(super) connection: &'a Connection,
    pub(super) now: Moment,
    pub(super) process: ProcessId,
    /// The highest ticket drawn. Written back by [`close`](Self::close), as is `next_end`.
    last_ticket: Ticket,
    /// No row has its end before this moment.
    next_end: Moment,
    /// Whether `last_ticket` or `next_end` has to be written back.
    is_state_changed: bool,
    pub(super) non_empty: NonEmpty,
    pub(super) messages: Messages,
    /// The names whose queue or seal this transaction changed.
    pub(super) changed_queues: BTreeSet<Name>,
    /// Tickets of this process's claims: a hint where to look, not the truth.
    pub(super) known_tickets: &'a mut ClaimMap<Ticket>,
}

impl<'a> TransactionView<'a> {
    /// `None` if the moments in the file are those of another boot.
    pub(super) fn open(
        connection: &'a Connection,
        boot: &str,
        now: Moment,
        process: ProcessId,
        known_tickets: &'a mut ClaimMap<Ticket>,
    ) -> Result<Option<Self>> {
        let mut state = connection.prepare_cached(
            "SELECT boot = ?1, ticket, next_end, EXISTS (SELECT 1 FROM watchers), EXISTS (SELECT 1 FROM tombstones), \
             EXISTS (SELECT 1 FROM seals) FROM state WHERE id = 1",
        )?;
        state.query_row([boot], |row| {
            let (last_ticket, next_end) = (Ticket(unsigned(row.get(1)?)), moment(row.get(2)?));
            let non_empty = NonEmpty { watchers: row.get(3)?, tombstones: row.get(4)?, seals: row.get(5)? };
            let (messages, changed_queues) = Default::default();
            let view = Self {
                connection,
                now,
                process,
                last_ticket,
                next_end,
                is_state_changed: false,
                non_empty,
                messages,
                changed_queues,
                known_tickets,
            };
            Ok(row.get::<_, bool>(0)?.then_some(view))
        })
    }

    /// Writes the row of `state` back, if it changed.
    pub(super) fn close(&mut self) -> Result<()> {
        if self.is_state_changed {
            let (ticket, next_end) = (signed(self.last_ticket.0), nanos(self.next_end.as_nanos()));
            self.execute("UPDATE state SET ticket = ?1, next_end = ?2 WHERE id = 1", (ticket, next_end))?;
        }
        Ok(())
    }

    /// Draws a new block of tickets, all above `floor` and above every ticket drawn before.
    pub(super) fn draw_tickets(&mut self, block: u32, floor: Ticket) -> Tickets {
        let tickets = Tickets::new(Ticket(self.last_ticket.max(floor).0 + 1), block.max(1));
        self.last_ticket = tickets.last();
        self.is_state_changed = true;
        tickets
    }

    /// Whether a row may have reached its end.
    pub(super) fn is_end_due(&self) -> bool {
        self.next_end <= self.now
    }

    /// To be called for each new end of a row: lowers `next_end` to it.
    pub(super) fn lower_next_end(&mut self, end: Moment) {
        if end < self.next_end {
            self.next_end = end;
            self.is_state_changed = true;
        }
    }

    /// Reads the next end from the tables.
    pub(super) fn find_next_end(&mut self) -> Result<()> {
        let next: Option<i64> = self.connection.query_row(
            "SELECT min(least) FROM (SELECT min(expires) AS least FROM entries \
             UNION ALL SELECT min(until) FROM tombstones UNION ALL SELECT min(until) FROM seals)",
            [],
            |row| row.get(0),
        )?;
        self.next_end = next.map_or(moment(i64::MAX), moment);
        self.is_state_changed = true;
        Ok(())
    }

    pub(super) fn entry(&self, name: &Name, ticket: Ticket) -> Result<Option<Entry>> {
        self.query_entry(entries!("WHERE name = ?1 AND ticket = ?2"), (name.as_str(), signed(ticket.0)))
    }

    /// The claim's entry in the first of its queues.
    pub(super) fn entry_of(&mut self, claim: &Claim) -> Result<Option<Entry>> {
        let (name, owner) = (&claim.demands[0].name, claim.id.hash());
        if let Some(&ticket) = self.known_tickets.get(&owner)
            && let Some(entry) = self.entry(name, ticket)?
            && entry.owner == owner
        {
            return Ok(Some(entry));
        }
        let entry = self.query_entry(entries!("WHERE name = ?1 AND owner = ?2"), (name.as_str(), owner.0))?;
        match &entry {
            Some(entry) if entry.process == self.process => drop(self.known_tickets.insert(owner, entry.tickets.first)),
            _ => drop(self.known_tickets.remove(&owner)),
        }
        Ok(entry)
    }

    pub(super) fn last_in_queue(&self, name: &Name) -> Result<Option<Entry>> {
        self.query_entry(entries!("WHERE name = ?1 ORDER BY ticket DESC LIMIT 1"), [name.as_str()])
    }

    pub(super) fn first_that_does_not_fit(&self, name: &Name) -> Result<Option<Entry>> {
        self.query_entry(entries!("WHERE name = ?1 AND fits = 0 ORDER BY ticket LIMIT 1"), [name.as_str()])
    }

    /// The last entry whose ticket is not above this one.
    pub(super) fn at_or_before(&self, name: &Name, ticket: Ticket) -> Result<Option<Entry>> {
        let sql = entries!("WHERE name = ?1 AND ticket <= ?2 ORDER BY ticket DESC LIMIT 1");
        self.query_entry(sql, (name.as_str(), signed(ticket.0)))
    }

    pub(super) fn next_behind(&self, name: &Name, ticket: Ticket) -> Result<Option<Entry>> {
        let sql = entries!("WHERE name = ?1 AND ticket > ?2 ORDER BY ticket LIMIT 1");
        self.query_entry(sql, (name.as_str(), signed(ticket.0)))
    }

    pub(super) fn queue(&self, name: &Name) -> Result<Vec<Entry>> {
        self.query_all(entries!("WHERE name = ?1 ORDER BY ticket"), [name.as_str()], read_entry)
    }

    /// The first entries of a queue, at most `limit`.
    pub(super) fn front_with_notes(&self, name: &Name, limit: usize) -> Result<Vec<(Entry, Arc<Note>)>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.query_all(
            entries!("WHERE name = ?1 ORDER BY ticket LIMIT ?2"),
            (name.as_str(), limit),
            read_entry_with_note,
        )
    }

    /// The number of entries in a queue.
    pub(super) fn queue_length(&self, name: &Name) -> Result<usize> {
        let count = |row: &Row<'_>| row.get::<_, u32>(0);
        let counts = self.query_all("SELECT COUNT(*) FROM entries WHERE name = ?1", [name.as_str()], count)?;
        Ok(counts.into_iter().map(|count| count as usize).sum())
    }

    pub(super) fn first_holder(&self, name: &Name) -> Result<Option<(Entry, Arc<Note>)>> {
        let sql = entries!("WHERE name = ?1 AND missing = 0 ORDER BY ticket LIMIT 1");
        Ok(self.query_all(sql, [name.as_str()], read_entry_with_note)?.pop())
    }

    /// The claims whose lease has run out, each once, from at most `limit` rows.
    pub(super) fn expired(&self, limit: usize) -> Result<Vec<Entry>> {
        let sql = entries!("WHERE expires <= ?1 ORDER BY expires, ticket LIMIT ?2");
        let mut entries = self.query_all(sql, (nanos(self.now.as_nanos()), limit as i64), read_entry)?;
        entries.dedup_by_key(|entry| entry.tickets.first);
        Ok(entries)
    }

    /// The claims of a process, each once, except detached and lingering ones (flags 1 and 2, both in the mask 3): these
    /// live by their lease alone.
    pub(super) fn claims_of(&self, process: ProcessId) -> Result<Vec<Entry>> {
        let sql = entries!("WHERE process = ?1 AND flags & 3 = 0 ORDER BY ticket");
        let mut entries = self.query_all(sql, [signed(process.0)], read_entry)?;
        entries.dedup_by_key(|entry| entry.tickets.first);
        Ok(entries)
    }

    /// The processes with entries in a queue before this ticket, each once, except those with only detached and
    /// lingering ones (flags 1 and 2, both in the mask 3).
    pub(super) fn processes_before(&self, name: &Name, ticket: Ticket) -> Result<Vec<ProcessId>> {
        let sql = "SELECT DISTINCT process FROM entries WHERE name = ?1 AND ticket < ?2 AND flags & 3 = 0";
        self.query_all(sql, (name.as_str(), signed(ticket.0)), |row| Ok(ProcessId(unsigned(row.get(0)?))))
    }

    /// The weight of all entries in a queue that fit.
    pub(super) fn used_weight(&self, name: &Name) -> Result<u64> {
        let mut sum =
            self.connection.prepare_cached("SELECT total(weight) FROM entries WHERE name = ?1 AND fits = 1")?;
        sum.query_row([name.as_str()], |row| row.get::<_, f64>(0)).map(|sum| sum as u64)
    }

    pub(super) fn count_ahead(&self, name: &Name, ticket: Ticket) -> Result<usize> {
        let sql = "SELECT count(*) FROM entries WHERE name = ?1 AND ticket < ?2";
        self.connection
            .prepare_cached(sql)?
            .query_row((name.as_str(), signed(ticket.0)), |row| row.get::<_, u32>(0))
            .map(|count| count as usize)
    }

    /// When the leases ahead of this ticket will have run out: the first [`MAX_LEASES_COMPARED`] and the one just ahead.
    pub(super) fn leases_ahead_end(&self, name: &Name, ticket: Ticket) -> Result<Moment> {
        let front = "SELECT max(expires) FROM (SELECT expires FROM entries WHERE name = ?1 AND ticket < ?2 ORDER BY ticket \
                     LIMIT ?3)";
        let just_ahead = "SELECT expires FROM entries WHERE name = ?1 AND ticket < ?2 ORDER BY ticket DESC LIMIT 1";
        let (name, ticket) = (name.as_str(), signed(ticket.0));
        let front = self
            .connection
            .prepare_cached(front)?
            .query_row((name, ticket, MAX_LEASES_COMPARED), |row| row.get::<_, Option<i64>>(0))?;
        let just_ahead =
            self.connection.prepare_cached(just_ahead)?.query_row((name, ticket), |row| row.get(0)).optional()?;
        Ok(front.max(just_ahead).map_or(Moment::START, moment))
    }

    pub(super) fn has_waiter_behind(&self, name: &Name, ticket: Ticket) -> Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM entries WHERE name = ?1 AND ticket > ?2 AND missing > 0)";
        self.connection.prepare_cached(sql)?.query_row((name.as_str(), signed(ticket.0)), |row| row.get(0))
    }

    /// Adds the claim's entry to one queue. `missing`: in how many of its queues the claim does not fit.
    pub(super) fn add(
        &mut self,
        claim: &Claim,
        demand: &Demand,
        tickets: Tickets,
        fits: bool,
        missing: u32,
    ) -> Result<()> {
        let names = (claim.demands.len() > 1).then(|| encode_names(claim.demands.iter().map(|demand| &demand.name)));
        let sql = "INSERT INTO entries (name, ticket, count, owner, process, client, capacity, weight, fits, missing, \
                   expires, since, ttl, flags, note, names) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, \
                   ?13, ?14, ?15, ?16)";
        self.execute(
            sql,
            params![
                demand.name.as_str(),
                signed(tickets.first.0),
                tickets.count,
                claim.id.hash().0,
                signed(self.process.0),
                signed(claim.client.0),
                demand.capacity,
                demand.weight,
                fits,
                missing,
                nanos((self.now + claim.ttl).as_nanos()),
                nanos(self.now.as_nanos()),
                span_nanos(claim.ttl),
                0,
                encode_note(&claim.note),
                names,
            ],
        )
    }

    /// Deletes the claim's entries in all of its queues. Does not grant anything; see `remove`.
    pub(super) fn delete(&mut self, entry: &Entry) -> Result<()> {
        self.known_tickets.remove(&entry.owner);
        self.update_all_entries(entry, "DELETE FROM entries WHERE name = ?1 AND ticket = ?2", &[])
    }

    /// No verb shortens a lease: a short renewal that was sent before an extension may arrive after it.
    pub(super) fn extend(&mut self, entry: &Entry, until: Moment) -> Result<()> {
        if until <= entry.expires {
            return Ok(());
        }
        let sql = "UPDATE entries SET expires = max(expires, ?3) WHERE name = ?1 AND ticket = ?2";
        self.update_all_entries(entry, sql, &[nanos(until.as_nanos())])
    }

    pub(super) fn linger(&mut self, entry: &Entry, until: Moment) -> Result<()> {
        self.lower_next_end(until);
        let sql = "UPDATE entries SET expires = ?3, flags = flags | ?4 WHERE name = ?1 AND ticket = ?2";
        self.update_all_entries(entry, sql, &[nanos(until.as_nanos()), LINGERS.into()])
    }

    /// From now on only the lease ends the claim, not the death of its process.
    pub(super) fn detach(&mut self, entry: &Entry) -> Result<()> {
        self.add_flag(entry, DETACHED)
    }

    pub(super) fn set_broken(&mut self, entry: &Entry) -> Result<()> {
        self.add_flag(entry, BROKEN)
    }

    fn add_flag(&mut self, entry: &Entry, flag: u8) -> Result<()> {
        let sql = "UPDATE entries SET flags = flags | ?3 WHERE name = ?1 AND ticket = ?2";
        self.update_all_entries(entry, sql, &[flag.into()])
    }

    /// The claim fits in one more of its queues.
    pub(super) fn set_fits(&mut self, entry: &Entry) -> Result<Entry> {
        let here = "UPDATE entries SET fits = 1 WHERE name = ?1 AND ticket = ?2";
        self.execute(here, (entry.name.as_str(), signed(entry.tickets.first.0)))?;
        let (missing, since) = (entry.missing - 1, if entry.missing == 1 { self.now } else { entry.since });
        let sql = "UPDATE entries SET missing = ?3, since = ?4 WHERE name = ?1 AND ticket = ?2";
        self.update_all_entries(entry, sql, &[missing.into(), nanos(since.as_nanos())])?;
        let mut entry = entry.clone();
        (entry.fits, entry.missing, entry.since) = (true, missing, since);
        Ok(entry)
    }

    /// Gives a holder new tickets, and so the last entry of each of its queues. Only correct without a waiter behind
    /// it.
    pub(super) fn move_to_end(&mut self, entry: &Entry, tickets: Tickets, until: Moment) -> Result<()> {
        let sql =
            "UPDATE entries SET ticket = ?3, count = ?4, expires = max(expires, ?5) WHERE name = ?1 AND ticket = ?2";
        let values = [signed(tickets.first.0), tickets.count.into(), nanos(until.as_nanos())];
        self.update_all_entries(entry, sql, &values)?;
        if entry.process == self.process {
            self.known_tickets.insert(entry.owner, tickets.first);
        }
        Ok(())
    }

    /// Runs a statement for the claim's entry in each of its queues. ?1 is the name, ?2 the ticket, then the values.
    fn update_all_entries(&mut self, entry: &Entry, sql: &str, values: &[i64]) -> Result<()> {
        let mut statement = self.connection.prepare_cached(sql)?;
        for name in entry.names() {
            statement.raw_bind_parameter(1, name.as_str())?;
            statement.raw_bind_parameter(2, signed(entry.tickets.first.0))?;
            for (index, value) in values.iter().enumerate() {
                statement.raw_bind_parameter(index + 3, value)?;
            }
            statement.raw_execute()?;
        }
        Ok(())
    }

    pub(super) fn execute(&self, sql: &str, values: impl Params) -> Result<()> {
        self.connection.prepare_cached(sql)?.execute(values).map(drop)
    }

    fn query_entry(&self, sql: &str, values: impl Params) -> Result<Option<Entry>> {
        self.connection.prepare_cached(sql)?.query_row(values, read_entry).optional()
    }

    pub(super) fn query_all<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl Fn(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.connection.prepare_cached(sql)?.query_map(values, |row| read(row))?.collect()
    }
}
