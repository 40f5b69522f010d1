//! The seats in the file, as one verb sees them: inside a transaction that no other process can come between.
//!
//! Everything here is one statement on one row or one line; what the statements mean together is in `rule.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Params, Result, Row, params};

use crate::claim::{Claim, ClaimHash, ClaimMap, ClientId, Demand, Note, Ticket, Tickets};
use crate::clock::Moment;
use crate::name::Name;
use crate::store::Change;

use super::file::nanos;
use super::home::Home;
use super::pack::{pack_names, pack_note, unpack_note};
use super::seat::{BROKEN, DETACHED, LINGERS, Seat, moment, seat, signed, span, unsigned};

/// How far a waiter looks for the longest lease ahead of it. Those it does not see make it ask early, never late.
const LOOKED_AT_AHEAD: u32 = 64;

/// The statements about seats, each with the columns of a [`Seat`] before it.
macro_rules! seats {
    ($rest:literal) => {
        concat!(
            "SELECT name, ticket, count, owner, home, client, capacity, weight, fits, missing, expires, since, ttl, state, ",
            "names, note FROM seats ",
            $rest
        )
    };
}

/// Letters to write when the transaction is through: to which client at which home, and what.
pub(super) type News = Vec<(Home, ClientId, Letter)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Letter {
    Change(Change),
    /// Who is ahead of this claim has changed: see anew whose death to look out for.
    LookAgain(ClaimHash),
}

/// Whether there is any of what there seldom is: one statement tells, and saves one for each that there is not.
#[derive(Debug)]
pub(super) struct Rare {
    pub(super) watchers: bool,
    pub(super) marks: bool,
    pub(super) seals: bool,
}

/// One verb's view of the file.
#[derive(Debug)]
pub(super) struct Ledger<'a> {
    pub(super) rows: &'a Connection,
    pub(super) now: Moment,
    pub(super) home: Home,
    /// The highest ticket given, and when the next thing ends; written back by [`close`](Self::close).
    last: Ticket,
    ends: Moment,
    is_changed: bool,
    pub(super) rare: Rare,
    pub(super) news: News,
    pub(super) touched: BTreeSet<Name>,
    /// Tickets of this process's claims: a hint where to look.
    pub(super) known: &'a mut ClaimMap<Ticket>,
}

impl<'a> Ledger<'a> {
    /// `None` when the moments in the file are those of another boot.
    pub(super) fn open(
        rows: &'a Connection,
        boot: &str,
        now: Moment,
        home: Home,
        known: &'a mut ClaimMap<Ticket>,
    ) -> Result<Option<Self>> {
        let mut state = rows.prepare_cached(
            "SELECT boot = ?1, ticket, ends, EXISTS (SELECT 1 FROM watchers), EXISTS (SELECT 1 FROM marks), \
             EXISTS (SELECT 1 FROM seals) FROM state WHERE id = 1",
        )?;
        state.query_row([boot], |row| {
            let (last, ends) = (Ticket(unsigned(row.get(1)?)), moment(row.get(2)?));
            let rare = Rare { watchers: row.get(3)?, marks: row.get(4)?, seals: row.get(5)? };
            let (news, touched) = Default::default();
            let ledger = Self { rows, now, home, last, ends, is_changed: false, rare, news, touched, known };
            Ok(row.get::<_, bool>(0)?.then_some(ledger))
        })
    }

    /// Writes what the verb changed beside the seats.
    pub(super) fn close(&mut self) -> Result<()> {
        if self.is_changed {
            let (last, ends) = (signed(self.last.0), nanos(self.ends.as_nanos()));
            self.run("UPDATE state SET ticket = ?1, ends = ?2 WHERE id = 1", (last, ends))?;
        }
        Ok(())
    }

    pub(super) fn draw(&mut self, block: u32, floor: Ticket) -> Tickets {
        let tickets = Tickets::new(Ticket(self.last.max(floor).0 + 1), block.max(1));
        self.last = tickets.last();
        self.is_changed = true;
        tickets
    }

    /// Whether something may have ended.
    pub(super) fn is_due(&self) -> bool {
        self.ends <= self.now
    }

    /// Something ends then.
    pub(super) fn ends_at(&mut self, end: Moment) {
        if end < self.ends {
            self.ends = end;
            self.is_changed = true;
        }
    }

    /// Finds anew when the next thing ends.
    pub(super) fn find_next_end(&mut self) -> Result<()> {
        let next: Option<i64> = self.rows.query_row(
            "SELECT min(least) FROM (SELECT min(expires) AS least FROM seats UNION ALL SELECT min(until) FROM marks \
             UNION ALL SELECT min(until) FROM seals)",
            [],
            |row| row.get(0),
        )?;
        self.ends = next.map_or(moment(i64::MAX), moment);
        self.is_changed = true;
        Ok(())
    }

    pub(super) fn seat(&self, name: &Name, ticket: Ticket) -> Result<Option<Seat>> {
        self.one(seats!("WHERE name = ?1 AND ticket = ?2"), (name.as_str(), signed(ticket.0)))
    }

    /// The seat of this claim in the first of its lines.
    pub(super) fn seat_of(&mut self, claim: &Claim) -> Result<Option<Seat>> {
        let (name, owner) = (&claim.demands[0].name, claim.id.hash());
        if let Some(&ticket) = self.known.get(&owner)
            && let Some(seat) = self.seat(name, ticket)?
            && seat.owner == owner
        {
            return Ok(Some(seat));
        }
        let seat = self.one(seats!("WHERE name = ?1 AND owner = ?2"), (name.as_str(), owner.0))?;
        match &seat {
            Some(seat) if seat.home == self.home => drop(self.known.insert(owner, seat.tickets.first)),
            _ => drop(self.known.remove(&owner)),
        }
        Ok(seat)
    }

    pub(super) fn last_in_line(&self, name: &Name) -> Result<Option<Seat>> {
        self.one(seats!("WHERE name = ?1 ORDER BY ticket DESC LIMIT 1"), [name.as_str()])
    }

    pub(super) fn first_that_does_not_fit(&self, name: &Name) -> Result<Option<Seat>> {
        self.one(seats!("WHERE name = ?1 AND fits = 0 ORDER BY ticket LIMIT 1"), [name.as_str()])
    }

    /// The last seat whose ticket is not above this one.
    pub(super) fn at_or_before(&self, name: &Name, ticket: Ticket) -> Result<Option<Seat>> {
        let sql = seats!("WHERE name = ?1 AND ticket <= ?2 ORDER BY ticket DESC LIMIT 1");
        self.one(sql, (name.as_str(), signed(ticket.0)))
    }

    pub(super) fn just_behind(&self, name: &Name, ticket: Ticket) -> Result<Option<Seat>> {
        let sql = seats!("WHERE name = ?1 AND ticket > ?2 ORDER BY ticket LIMIT 1");
        self.one(sql, (name.as_str(), signed(ticket.0)))
    }

    pub(super) fn line(&self, name: &Name) -> Result<Vec<Seat>> {
        self.many(seats!("WHERE name = ?1 ORDER BY ticket"), [name.as_str()], seat)
    }

    /// The first of a line.
    pub(super) fn front_with_notes(&self, name: &Name, most: usize) -> Result<Vec<(Seat, Arc<Note>)>> {
        let read = |row: &Row<'_>| Ok((seat(row)?, unpack_note(row.get_ref("note")?.as_blob()?)));
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.many(seats!("WHERE name = ?1 ORDER BY ticket LIMIT ?2"), (name.as_str(), most), read)
    }

    /// How many are in a line.
    pub(super) fn length(&self, name: &Name) -> Result<usize> {
        let count = |row: &Row<'_>| row.get::<_, u32>(0);
        let counts = self.many("SELECT COUNT(*) FROM seats WHERE name = ?1", [name.as_str()], count)?;
        Ok(counts.into_iter().map(|count| count as usize).sum())
    }

    pub(super) fn first_holder(&self, name: &Name) -> Result<Option<(Seat, Arc<Note>)>> {
        let read = |row: &Row<'_>| Ok((seat(row)?, unpack_note(row.get_ref("note")?.as_blob()?)));
        let sql = seats!("WHERE name = ?1 AND missing = 0 ORDER BY ticket LIMIT 1");
        Ok(self.many(sql, [name.as_str()], read)?.pop())
    }

    /// The claims whose lease has run out, each once.
    pub(super) fn run_out(&self, most: usize) -> Result<Vec<Seat>> {
        let sql = seats!("WHERE expires <= ?1 ORDER BY expires, ticket LIMIT ?2");
        let mut seats = self.many(sql, (nanos(self.now.as_nanos()), most as i64), seat)?;
        seats.dedup_by_key(|seat| seat.tickets.first);
        Ok(seats)
    }

    /// The claims of a home that is dead, each once, but for those that are left to their lease.
    pub(super) fn of_home(&self, home: Home) -> Result<Vec<Seat>> {
        let sql = seats!("WHERE home = ?1 AND state & 3 = 0 ORDER BY ticket");
        let mut seats = self.many(sql, [signed(home.0)], seat)?;
        seats.dedup_by_key(|seat| seat.tickets.first);
        Ok(seats)
    }

    /// Whose homes are in a line before this ticket, each once, but for claims that are left to their lease.
    pub(super) fn homes_before(&self, name: &Name, ticket: Ticket) -> Result<Vec<Home>> {
        let sql = "SELECT DISTINCT home FROM seats WHERE name = ?1 AND ticket < ?2 AND state & 3 = 0";
        self.many(sql, (name.as_str(), signed(ticket.0)), |row| Ok(Home(unsigned(row.get(0)?))))
    }

    /// How much of a resource is taken by those who fit.
    pub(super) fn used(&self, name: &Name) -> Result<u64> {
        let mut sum = self.rows.prepare_cached("SELECT total(weight) FROM seats WHERE name = ?1 AND fits = 1")?;
        sum.query_row([name.as_str()], |row| row.get::<_, f64>(0)).map(|sum| sum as u64)
    }

    pub(super) fn count_ahead(&self, name: &Name, ticket: Ticket) -> Result<usize> {
        let sql = "SELECT count(*) FROM seats WHERE name = ?1 AND ticket < ?2";
        self.rows
            .prepare_cached(sql)?
            .query_row((name.as_str(), signed(ticket.0)), |row| row.get::<_, u32>(0))
            .map(|count| count as usize)
    }

    /// When the leases ahead will have run out.
    pub(super) fn leases_end(&self, name: &Name, ticket: Ticket) -> Result<Moment> {
        let front = "SELECT max(expires) FROM (SELECT expires FROM seats WHERE name = ?1 AND ticket < ?2 ORDER BY ticket \
                     LIMIT ?3)";
        let just_ahead = "SELECT expires FROM seats WHERE name = ?1 AND ticket < ?2 ORDER BY ticket DESC LIMIT 1";
        let (name, ticket) = (name.as_str(), signed(ticket.0));
        let front = self
            .rows
            .prepare_cached(front)?
            .query_row((name, ticket, LOOKED_AT_AHEAD), |row| row.get::<_, Option<i64>>(0))?;
        let just_ahead =
            self.rows.prepare_cached(just_ahead)?.query_row((name, ticket), |row| row.get(0)).optional()?;
        Ok(front.max(just_ahead).map_or(Moment::START, moment))
    }

    pub(super) fn somebody_waits_behind(&self, name: &Name, ticket: Ticket) -> Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM seats WHERE name = ?1 AND ticket > ?2 AND missing > 0)";
        self.rows.prepare_cached(sql)?.query_row((name.as_str(), signed(ticket.0)), |row| row.get(0))
    }

    pub(super) fn add(&mut self, claim: &Claim, demand: &Demand, tickets: Tickets, fits: (bool, u32)) -> Result<()> {
        let names = (claim.demands.len() > 1).then(|| pack_names(claim.demands.iter().map(|demand| &demand.name)));
        let sql = "INSERT INTO seats (name, ticket, count, owner, home, client, capacity, weight, fits, missing, expires, \
                   since, ttl, state, note, names) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, \
                   ?15, ?16)";
        self.run(
            sql,
            params![
                demand.name.as_str(),
                signed(tickets.first.0),
                tickets.count,
                claim.id.hash().0,
                signed(self.home.0),
                signed(claim.client.0),
                demand.capacity,
                demand.weight,
                fits.0,
                fits.1,
                nanos((self.now + claim.ttl).as_nanos()),
                nanos(self.now.as_nanos()),
                span(claim.ttl),
                0,
                pack_note(&claim.note),
                names,
            ],
        )
    }

    /// Takes the claim out of all its lines; nobody is let in by that alone.
    pub(super) fn delete(&mut self, seat: &Seat) -> Result<()> {
        self.known.remove(&seat.owner);
        self.of_all(seat, "DELETE FROM seats WHERE name = ?1 AND ticket = ?2", &[])
    }

    /// No verb shortens a lease: a short renewal that was sent before an extension may arrive after it.
    pub(super) fn extend(&mut self, seat: &Seat, until: Moment) -> Result<()> {
        if until <= seat.expires {
            return Ok(());
        }
        let sql = "UPDATE seats SET expires = max(expires, ?3) WHERE name = ?1 AND ticket = ?2";
        self.of_all(seat, sql, &[nanos(until.as_nanos())])
    }

    pub(super) fn linger(&mut self, seat: &Seat, until: Moment) -> Result<()> {
        self.ends_at(until);
        let sql = "UPDATE seats SET expires = ?3, state = state | ?4 WHERE name = ?1 AND ticket = ?2";
        self.of_all(seat, sql, &[nanos(until.as_nanos()), LINGERS.into()])
    }

    /// From now on its lease alone decides, whatever becomes of its process.
    pub(super) fn detach(&mut self, seat: &Seat) -> Result<()> {
        self.of_all(seat, "UPDATE seats SET state = state | ?3 WHERE name = ?1 AND ticket = ?2", &[DETACHED.into()])
    }

    pub(super) fn break_it(&mut self, seat: &Seat) -> Result<()> {
        self.of_all(seat, "UPDATE seats SET state = state | ?3 WHERE name = ?1 AND ticket = ?2", &[BROKEN.into()])
    }

    /// It fits in one more of its lines.
    pub(super) fn fit(&mut self, seat: &Seat) -> Result<Seat> {
        let here = "UPDATE seats SET fits = 1 WHERE name = ?1 AND ticket = ?2";
        self.run(here, (seat.name.as_str(), signed(seat.tickets.first.0)))?;
        let (missing, since) = (seat.missing - 1, if seat.missing == 1 { self.now } else { seat.since });
        let sql = "UPDATE seats SET missing = ?3, since = ?4 WHERE name = ?1 AND ticket = ?2";
        self.of_all(seat, sql, &[missing.into(), nanos(since.as_nanos())])?;
        let mut seat = seat.clone();
        (seat.fits, seat.missing, seat.since) = (true, missing, since);
        Ok(seat)
    }

    /// A holder behind whom nobody waits gets other tickets, and so a place at the end of each line.
    pub(super) fn move_back(&mut self, seat: &Seat, tickets: Tickets, until: Moment) -> Result<()> {
        let sql =
            "UPDATE seats SET ticket = ?3, count = ?4, expires = max(expires, ?5) WHERE name = ?1 AND ticket = ?2";
        let values = [signed(tickets.first.0), tickets.count.into(), nanos(until.as_nanos())];
        self.of_all(seat, sql, &values)?;
        if seat.home == self.home {
            self.known.insert(seat.owner, tickets.first);
        }
        Ok(())
    }

    fn of_all(&mut self, seat: &Seat, sql: &str, values: &[i64]) -> Result<()> {
        let mut statement = self.rows.prepare_cached(sql)?;
        for name in seat.names() {
            statement.raw_bind_parameter(1, name.as_str())?;
            statement.raw_bind_parameter(2, signed(seat.tickets.first.0))?;
            for (index, value) in values.iter().enumerate() {
                statement.raw_bind_parameter(index + 3, value)?;
            }
            statement.raw_execute()?;
        }
        Ok(())
    }

    pub(super) fn run(&self, sql: &str, values: impl Params) -> Result<()> {
        self.rows.prepare_cached(sql)?.execute(values).map(drop)
    }

    fn one(&self, sql: &str, values: impl Params) -> Result<Option<Seat>> {
        self.rows.prepare_cached(sql)?.query_row(values, seat).optional()
    }

    pub(super) fn many<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl Fn(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.rows.prepare_cached(sql)?.query_map(values, |row| read(row))?.collect()
    }
}
