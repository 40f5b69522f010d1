//! One row of a line, and how numbers are written in the file.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Result, Row};

use crate::claim::{ClaimHash, ClientId, Demand, Ticket, Tickets};
use crate::clock::Moment;
use crate::name::Name;

use super::home::Home;
use super::pack::unpack_names;

pub(super) const DETACHED: u8 = 1;
pub(super) const LINGERS: u8 = 2;
pub(super) const BROKEN: u8 = 4;

/// One claim in one line. What belongs to the claim as a whole is the same in all lines.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: Name,
    pub(super) tickets: Tickets,
    pub(super) owner: ClaimHash,
    pub(super) home: Home,
    pub(super) client: ClientId,
    pub(super) capacity: u32,
    pub(super) weight: u32,
    pub(super) fits: bool,
    /// In how many of its lines it does not fit.
    pub(super) missing: u32,
    pub(super) expires: Moment,
    pub(super) since: Moment,
    pub(super) ttl: Duration,
    pub(super) state: u8,
    /// All of its names, if there are several.
    names: Option<Arc<[Name]>>,
}

impl Entry {
    pub(super) fn holds(&self) -> bool {
        self.missing == 0
    }

    pub(super) fn lingers(&self) -> bool {
        self.state & LINGERS != 0
    }

    pub(super) fn broken(&self) -> bool {
        self.state & BROKEN != 0
    }

    /// Whether it holds for an owner that may go on with it.
    pub(super) fn is_at_work(&self) -> bool {
        self.holds() && !self.broken() && !self.lingers()
    }

    pub(super) fn demand(&self) -> Demand {
        Demand { name: self.name.clone(), capacity: self.capacity, weight: self.weight }
    }

    /// All lines it stands in.
    pub(super) fn names(&self) -> &[Name] {
        self.names.as_deref().unwrap_or(std::slice::from_ref(&self.name))
    }
}

pub(super) fn entry(row: &Row<'_>) -> Result<Entry> {
    let names = match row.get_ref(14)?.as_blob_or_null()? {
        None => None,
        Some(bytes) => unpack_names(bytes).map(Into::into),
    };
    Ok(Entry {
        name: Name::stored(row.get_ref(0)?.as_str()?),
        tickets: Tickets::new(Ticket(unsigned(row.get(1)?)), row.get(2)?),
        owner: ClaimHash(row.get(3)?),
        home: Home(unsigned(row.get(4)?)),
        client: ClientId(unsigned(row.get(5)?)),
        capacity: row.get(6)?,
        weight: row.get(7)?,
        fits: row.get(8)?,
        missing: row.get(9)?,
        expires: moment(row.get(10)?),
        since: moment(row.get(11)?),
        ttl: Duration::from_nanos(unsigned(row.get(12)?)),
        state: row.get(13)?,
        names,
    })
}

/// SQLite's numbers have a sign. Ids use all 64 bits; counts, tickets and moments stay far below.
pub(super) fn signed(number: u64) -> i64 {
    number.cast_signed()
}

pub(super) fn unsigned(number: i64) -> u64 {
    number.cast_unsigned()
}

pub(super) fn moment(nanos: i64) -> Moment {
    Moment::from_nanos(unsigned(nanos.max(0)))
}

pub(super) fn span(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}
