//! One row of the table `entries`, and how numbers are written in the file.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Result, Row};

use crate::claim::{ClaimHash, ClientId, Demand, Note, Ticket, Tickets};
use crate::clock::Moment;
use crate::name::Name;

use super::encoding::{decode_names, decode_note};
use super::runtime_dir::ProcessId;

/// The bits of the column `flags`.
pub(super) const DETACHED: u8 = 1;
pub(super) const LINGERS: u8 = 2;
pub(super) const BROKEN: u8 = 4;

/// The largest integer of SQLite: above every ticket that is drawn.
pub(super) const MAX_TICKET: Ticket = Ticket(i64::MAX.cast_unsigned());

/// One claim in one queue. Fields about the claim as a whole are equal in all of its entries.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: Name,
    pub(super) tickets: Tickets,
    pub(super) owner: ClaimHash,
    pub(super) process: ProcessId,
    pub(super) client: ClientId,
    pub(super) capacity: u32,
    pub(super) weight: u32,
    /// Whether the claim fits in this queue.
    pub(super) fits: bool,
    /// In how many of its queues the claim does not fit. It holds at zero.
    pub(super) missing: u32,
    pub(super) expires: Moment,
    /// When the claim began to hold; of a waiter, when it joined.
    pub(super) since: Moment,
    pub(super) ttl: Duration,
    /// A set of [`DETACHED`], [`LINGERS`] and [`BROKEN`].
    pub(super) flags: u8,
    /// All names of the claim, if it has several.
    names: Option<Arc<[Name]>>,
}

impl Entry {
    pub(super) fn holds(&self) -> bool {
        self.missing == 0
    }

    pub(super) fn lingers(&self) -> bool {
        self.flags & LINGERS != 0
    }

    pub(super) fn is_broken(&self) -> bool {
        self.flags & BROKEN != 0
    }

    /// Whether the claim holds, and its owner may go on working under it.
    pub(super) fn is_at_work(&self) -> bool {
        self.holds() && !self.is_broken() && !self.lingers()
    }

    pub(super) fn demand(&self) -> Demand {
        Demand { name: self.name.clone(), capacity: self.capacity, weight: self.weight }
    }

    /// The names of all queues the claim is in.
    pub(super) fn names(&self) -> &[Name] {
        self.names.as_deref().unwrap_or(std::slice::from_ref(&self.name))
    }
}

/// Reads the columns that `entries!` selects, in the same order.
pub(super) fn read_entry(row: &Row<'_>) -> Result<Entry> {
    let names = match row.get_ref(14)?.as_blob_or_null()? {
        None => None,
        Some(bytes) => decode_names(bytes).map(Into::into),
    };
    Ok(Entry {
        name: Name::stored(row.get_ref(0)?.as_str()?),
        tickets: Tickets::new(Ticket(unsigned(row.get(1)?)), row.get(2)?),
        owner: ClaimHash(row.get(3)?),
        process: ProcessId(unsigned(row.get(4)?)),
        client: ClientId(unsigned(row.get(5)?)),
        capacity: row.get(6)?,
        weight: row.get(7)?,
        fits: row.get(8)?,
        missing: row.get(9)?,
        expires: moment(row.get(10)?),
        since: moment(row.get(11)?),
        ttl: Duration::from_nanos(unsigned(row.get(12)?)),
        flags: row.get(13)?,
        names,
    })
}

pub(super) fn read_entry_with_note(row: &Row<'_>) -> Result<(Entry, Arc<Note>)> {
    Ok((read_entry(row)?, decode_note(row.get_ref("note")?.as_blob()?)))
}

/// SQLite's integers are signed. Ids use all 64 bits; counts, tickets and moments stay far below 2^63.
pub(super) fn signed(number: u64) -> i64 {
    number.cast_signed()
}

pub(super) fn unsigned(number: i64) -> u64 {
    number.cast_unsigned()
}

/// A stored moment: nanoseconds since boot.
pub(super) fn moment(nanos: i64) -> Moment {
    Moment::from_nanos(unsigned(nanos.max(0)))
}

/// A span as it is stored: in nanoseconds.
pub(super) fn span_nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}
