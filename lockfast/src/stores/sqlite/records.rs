//! The statements on the other tables: tombstones, seals, counters, and watchers.

use std::collections::BTreeSet;
use std::ops::Bound;

use bytes::Bytes;
use rusqlite::{OptionalExtension, Result, Row};

use crate::claim::ClaimHash;
use crate::clock::Moment;
use crate::name::Name;
use crate::store::{Counters, Why};

use super::entry::{moment, signed, unsigned};
use super::file::nanos;
use super::runtime_dir::ProcessId;
use super::view::TransactionView;

/// Whether the rarely used tables have rows. One statement reads all three, and saves one statement per empty table
/// later.
#[derive(Debug)]
pub(super) struct NonEmpty {
    pub(super) watchers: bool,
    pub(super) tombstones: bool,
    pub(super) seals: bool,
}

impl TransactionView<'_> {
    pub(super) fn tombstone(&self, owner: ClaimHash) -> Result<Option<Why>> {
        if !self.non_empty.tombstones {
            return Ok(None);
        }
        let mut tombstone = self.connection.prepare_cached("SELECT why FROM tombstones WHERE owner = ?1")?;
        let why: Option<u8> = tombstone.query_row([owner.0], |row| row.get(0)).optional()?;
        Ok(why.map(decode_why))
    }

    pub(super) fn add_tombstone(&mut self, owner: ClaimHash, why: Why, until: Moment) -> Result<()> {
        self.lower_next_end(until);
        self.non_empty.tombstones = true;
        let sql = "INSERT INTO tombstones (owner, why, until) VALUES (?1, ?2, ?3) \
                   ON CONFLICT (owner) DO UPDATE SET until = max(until, excluded.until)";
        self.execute(sql, (owner.0, encode_why(why), nanos(until.as_nanos())))
    }

    pub(super) fn seal(&self, name: &Name) -> Result<Option<(Bytes, Moment)>> {
        if !self.non_empty.seals {
            return Ok(None);
        }
        let mut seal = self.connection.prepare_cached("SELECT value, until FROM seals WHERE name = ?1")?;
        let read = |row: &Row<'_>| Ok((Bytes::from(row.get::<_, Vec<u8>>(0)?), moment(row.get(1)?)));
        seal.query_row([name.as_str()], read).optional()
    }

    pub(super) fn add_seal(&mut self, name: &Name, value: &Bytes, until: Moment) -> Result<()> {
        self.lower_next_end(until);
        self.non_empty.seals = true;
        let sql = "INSERT OR REPLACE INTO seals (name, value, until) VALUES (?1, ?2, ?3)";
        self.execute(sql, (name.as_str(), &value[..], nanos(until.as_nanos())))
    }

    /// Deletes tombstones and seals whose time is over, at most `limit` of each.
    pub(super) fn delete_ended_tombstones_and_seals(&mut self, limit: usize) -> Result<()> {
        let (now, limit) = (nanos(self.now.as_nanos()), limit as i64);
        let tombstones = "DELETE FROM tombstones WHERE owner IN (SELECT owner FROM tombstones WHERE until <= ?1 \
                          ORDER BY until LIMIT ?2)";
        self.execute(tombstones, (now, limit))?;
        let seals = "DELETE FROM seals WHERE name IN (SELECT name FROM seals WHERE until <= ?1 ORDER BY until LIMIT ?2) \
                     RETURNING name";
        let ended = self.query_all(seals, (now, limit), |row| Ok(Name::stored(row.get_ref(0)?.as_str()?)))?;
        self.changed_queues.extend(ended);
        Ok(())
    }

    /// Names with a queue or a seal, in order, from `start` on, at most `limit`.
    pub(super) fn names_from(&self, start: Bound<&str>, limit: usize) -> Result<Vec<Name>> {
        let (from, excluded) = match start {
            Bound::Included(name) => (name, None),
            Bound::Excluded(name) => (name, Some(name)),
            Bound::Unbounded => ("", None),
        };
        let mut names = BTreeSet::new();
        for sql in [
            "SELECT DISTINCT name FROM entries WHERE name >= ?1 ORDER BY name LIMIT ?2",
            "SELECT name FROM seals WHERE name >= ?1 ORDER BY name LIMIT ?2",
        ] {
            let read = |row: &Row<'_>| Ok(Name::stored(row.get_ref(0)?.as_str()?));
            names.extend(self.query_all(sql, (from, limit as i64 + 1), read)?);
        }
        let names = names.into_iter().filter(|name| Some(name.as_str()) != excluded);
        Ok(names.take(limit).collect())
    }

    pub(super) fn counters(&self) -> Result<Counters> {
        let mut all =
            self.connection.prepare_cached("SELECT acquired, released, contended, lost FROM state WHERE id = 1")?;
        all.query_row([], |row| {
            let count = |index| row.get(index).map(unsigned);
            Ok(Counters { acquired: count(0)?, released: count(1)?, contended: count(2)?, lost: count(3)? })
        })
    }

    pub(super) fn add_counters(&mut self, added: &Counters) -> Result<()> {
        let sql = "UPDATE state SET acquired = acquired + ?1, released = released + ?2, contended = contended + ?3, \
                   lost = lost + ?4 WHERE id = 1";
        let [acquired, released, contended, lost] =
            [added.acquired, added.released, added.contended, added.lost].map(signed);
        self.execute(sql, (acquired, released, contended, lost))
    }

    pub(super) fn watchers(&self) -> Result<Vec<(ProcessId, String)>> {
        if !self.non_empty.watchers {
            return Ok(Vec::new());
        }
        let read = |row: &Row<'_>| Ok((ProcessId(unsigned(row.get(0)?)), row.get(1)?));
        self.query_all("SELECT process, prefix FROM watchers", [], read)
    }

    pub(super) fn add_watcher(&mut self, prefix: &str) -> Result<()> {
        self.non_empty.watchers = true;
        let sql = "INSERT OR IGNORE INTO watchers (process, prefix) VALUES (?1, ?2)";
        self.execute(sql, (signed(self.process.0), prefix))
    }

    pub(super) fn remove_watchers_of(&mut self, process: ProcessId) -> Result<()> {
        if !self.non_empty.watchers {
            return Ok(());
        }
        self.execute("DELETE FROM watchers WHERE process = ?1", [signed(process.0)])
    }
}

/// The column `tombstones.why`.
fn encode_why(why: Why) -> u8 {
    match why {
        Why::Broken => 1,
        Why::Unknown => 2,
        Why::Expired => 3,
        _ => 0,
    }
}

fn decode_why(stored: u8) -> Why {
    match stored {
        1 => Why::Broken,
        2 => Why::Unknown,
        3 => Why::Expired,
        _ => Why::Left,
    }
}
