//! The statements on the other tables: tombstones, seals, counters, and watchers.

use std::collections::BTreeSet;

use bytes::Bytes;
use rusqlite::{OptionalExtension, Result, Row};

use crate::claim::ClaimHash;
use crate::clock::Moment;
use crate::name::Name;
use crate::store::{Counters, Why};

use super::entry::{moment, signed, unsigned};
use super::file::nanos;
use super::home::Home;
use super::ledger::Ledger;

impl Ledger<'_> {
    pub(super) fn mark(&self, owner: ClaimHash) -> Result<Option<Why>> {
        if !self.rare.marks {
            return Ok(None);
        }
        let mut mark = self.rows.prepare_cached("SELECT why FROM marks WHERE owner = ?1")?;
        let why: Option<u8> = mark.query_row([owner.0], |row| row.get(0)).optional()?;
        Ok(why.map(|why| match why {
            1 => Why::Broken,
            2 => Why::Unknown,
            3 => Why::Expired,
            _ => Why::Left,
        }))
    }

    pub(super) fn add_mark(&mut self, owner: ClaimHash, why: Why, until: Moment) -> Result<()> {
        self.ends_at(until);
        self.rare.marks = true;
        let sql = "INSERT INTO marks (owner, why, until) VALUES (?1, ?2, ?3) \
                   ON CONFLICT (owner) DO UPDATE SET until = max(until, excluded.until)";
        let why = match why {
            Why::Broken => 1,
            Why::Unknown => 2,
            Why::Expired => 3,
            _ => 0,
        };
        self.run(sql, (owner.0, why, nanos(until.as_nanos())))
    }

    pub(super) fn seal(&self, name: &Name) -> Result<Option<(Bytes, Moment)>> {
        if !self.rare.seals {
            return Ok(None);
        }
        let mut seal = self.rows.prepare_cached("SELECT value, until FROM seals WHERE name = ?1")?;
        let read = |row: &Row<'_>| Ok((Bytes::from(row.get::<_, Vec<u8>>(0)?), moment(row.get(1)?)));
        seal.query_row([name.as_str()], read).optional()
    }

    pub(super) fn add_seal(&mut self, name: &Name, value: &Bytes, until: Moment) -> Result<()> {
        self.ends_at(until);
        self.rare.seals = true;
        let sql = "INSERT OR REPLACE INTO seals (name, value, until) VALUES (?1, ?2, ?3)";
        self.run(sql, (name.as_str(), &value[..], nanos(until.as_nanos())))
    }

    /// Deletes tombstones and seals whose time is over, at most so many of each.
    pub(super) fn end_marks_and_seals(&mut self, most: usize) -> Result<()> {
        let (now, most) = (nanos(self.now.as_nanos()), most as i64);
        let marks =
            "DELETE FROM marks WHERE owner IN (SELECT owner FROM marks WHERE until <= ?1 ORDER BY until LIMIT ?2)";
        self.run(marks, (now, most))?;
        let seals = "DELETE FROM seals WHERE name IN (SELECT name FROM seals WHERE until <= ?1 ORDER BY until LIMIT ?2) \
                     RETURNING name";
        let ended = self.many(seals, (now, most), |row| Ok(Name::stored(row.get_ref(0)?.as_str()?)))?;
        self.touched.extend(ended);
        Ok(())
    }

    /// Names with a queue or a seal, in order, from this one on (or after it).
    pub(super) fn names_from(&self, from: &str, or_after: bool, most: usize) -> Result<Vec<Name>> {
        let mut names = BTreeSet::new();
        for sql in [
            "SELECT DISTINCT name FROM entries WHERE name >= ?1 ORDER BY name LIMIT ?2",
            "SELECT name FROM seals WHERE name >= ?1 ORDER BY name LIMIT ?2",
        ] {
            let read = |row: &Row<'_>| Ok(Name::stored(row.get_ref(0)?.as_str()?));
            names.extend(self.many(sql, (from, most as i64 + 1), read)?);
        }
        let names = names.into_iter().filter(|name| !or_after || name.as_str() != from);
        Ok(names.take(most).collect())
    }

    pub(super) fn counters(&self) -> Result<Counters> {
        let mut all = self.rows.prepare_cached("SELECT acquired, released, contended, lost FROM state WHERE id = 1")?;
        all.query_row([], |row| {
            let count = |index| row.get(index).map(unsigned);
            Ok(Counters { acquired: count(0)?, released: count(1)?, contended: count(2)?, lost: count(3)? })
        })
    }

    pub(super) fn count(&mut self, since: &Counters) -> Result<()> {
        let sql = "UPDATE state SET acquired = acquired + ?1, released = released + ?2, contended = contended + ?3, \
                   lost = lost + ?4 WHERE id = 1";
        let [acquired, released, contended, lost] =
            [since.acquired, since.released, since.contended, since.lost].map(signed);
        self.run(sql, (acquired, released, contended, lost))
    }

    pub(super) fn watchers(&self) -> Result<Vec<(Home, String)>> {
        if !self.rare.watchers {
            return Ok(Vec::new());
        }
        let read = |row: &Row<'_>| Ok((Home(unsigned(row.get(0)?)), row.get(1)?));
        self.many("SELECT home, beginning FROM watchers", [], read)
    }

    pub(super) fn add_watcher(&mut self, beginning: &str) -> Result<()> {
        self.rare.watchers = true;
        let sql = "INSERT OR IGNORE INTO watchers (home, beginning) VALUES (?1, ?2)";
        self.run(sql, (signed(self.home.0), beginning))
    }

    pub(super) fn remove_watcher(&mut self, home: Home, beginning: Option<&str>) -> Result<()> {
        if !self.rare.watchers {
            return Ok(());
        }
        let sql = "DELETE FROM watchers WHERE home = ?1 AND (?2 IS NULL OR beginning = ?2)";
        self.run(sql, (signed(home.0), beginning))
    }
}
