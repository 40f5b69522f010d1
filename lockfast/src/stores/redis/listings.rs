//! Merges the listings of all clients into one sequence of names, in order.
//!
//! Each client has a listing of its own, which expires with the client. A [`NameScan`] merges the listings: it reads a few names of
//! each, and more of a listing only while its last name read comes before the end of the page. No script reads more than
//! [`MAX_NAMES_PER_CALL`] names.
//!
//! A page of `p` names from `c` clients reads at least `p + c` names, and seldom more than twice that number. So a scan of all
//! pages is linear in the number of names, as long as a page has at least as many names as there are clients.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::name::Name;
use crate::store::Counters;

use super::connection::Pool;
use super::decode;
use super::scripts::{self, Call};

/// The most names and the most listings that one script reads. A run takes about a third of a millisecond, in which the server
/// runs no other command.
const MAX_NAMES_PER_CALL: usize = 200;
const MAX_LISTINGS_PER_CALL: usize = 40;
/// How many clients one script returns.
const CLIENTS_PER_CALL: usize = 300;
/// The listing of detached claims, which belongs to no client.
const DETACHED_LISTING: &str = "detached";

pub(super) struct NameScan<'a> {
    pool: &'a Pool,
    prefix: &'a str,
    cursors: Vec<Cursor>,
    /// Names that were read and not returned yet.
    unreturned: BTreeSet<Name>,
    /// The counters of all clients.
    pub(super) fleet: Counters,
}

/// The position of the scan in one listing.
struct Cursor {
    client: String,
    /// All names up to and including this one were read.
    after: Option<Name>,
    /// Whether all names of the listing were read.
    is_over: bool,
}

/// The counters of all clients.
pub(super) async fn fleet(pool: &Pool) -> Result<Counters> {
    Ok(read_clients(pool, 0, None).await?.0)
}

impl<'a> NameScan<'a> {
    /// Starts behind `after`, among the names with this prefix.
    pub(super) async fn begin(pool: &'a Pool, prefix: &'a str, after: Option<&Name>) -> Result<Self> {
        let after = after.filter(|after| after.as_str() >= prefix);
        let (fleet, mut all) = all_clients(pool).await?;
        all.insert(DETACHED_LISTING.to_owned());
        let cursor = |client| Cursor { client, after: after.cloned(), is_over: false };
        let cursors = all.into_iter().map(cursor).collect();
        Ok(Self { pool, prefix, cursors, unreturned: BTreeSet::new(), fleet })
    }

    /// The next names, at most `limit`, and whether there are more.
    pub(super) async fn next(&mut self, limit: usize) -> Result<(Vec<Name>, bool)> {
        let share = limit / self.cursors.len() + 1;
        loop {
            let behind = self.listings_behind(limit);
            if behind.is_empty() {
                break;
            }
            // If few listings have most of the names, more of each is read at a time.
            let names_each = share.max(MAX_NAMES_PER_CALL / 4 / behind.len()).min(MAX_NAMES_PER_CALL);
            for some in behind.chunks((MAX_NAMES_PER_CALL / names_each).min(MAX_LISTINGS_PER_CALL)) {
                self.read_listings(some, names_each).await?;
            }
        }
        let mut names = Vec::with_capacity(limit.min(self.unreturned.len()));
        while names.len() < limit
            && let Some(name) = self.unreturned.pop_first()
        {
            names.push(name);
        }
        Ok((names, !self.unreturned.is_empty()))
    }

    /// The indexes of the listings to read next: those that may contain an unread name among the first `limit + 1` names. Once that
    /// many names are known, only the half of these listings that is furthest behind: the names read there may show that the other
    /// half need not be read.
    fn listings_behind(&self, limit: usize) -> Vec<usize> {
        let mut behind: Vec<_> = (0..self.cursors.len()).filter(|index| !self.cursors[*index].is_over).collect();
        if let Some(one_more) = self.unreturned.iter().nth(limit) {
            behind.retain(|index| self.cursors[*index].after.as_ref().is_none_or(|after| after < one_more));
            behind.sort_by(|one, other| self.cursors[*one].after.cmp(&self.cursors[*other].after));
            behind.truncate(behind.len().div_ceil(2));
        }
        behind
    }

    /// Reads the next `names_each` names of each of these listings.
    async fn read_listings(&mut self, cursors: &[usize], names_each: usize) -> Result<()> {
        let mut call = Call::of(&scripts::LIST_NAMES, 0);
        call.text(self.prefix).number(names_each as u64);
        for index in cursors {
            let Cursor { client, after, .. } = &self.cursors[*index];
            call.text(client).text(after.as_ref().map_or("", Name::as_str));
        }
        let reply = self.pool.call(|| "inspecting".to_owned(), &call).await?;
        for (index, (goes_on, names)) in cursors.iter().zip(decode::names_of_clients(&reply, cursors.len())?) {
            let cursor = &mut self.cursors[*index];
            // A listing that goes on must return a name that was not read before, or the scan would not end.
            cursor.is_over = !goes_on || names.is_empty();
            cursor.after = names.last().cloned().or(cursor.after.take());
            self.unreturned.extend(names);
        }
        Ok(())
    }
}

/// All clients that have a listing. Scripts return clients by the end of their listings. A client that reports during the scan
/// gets a later end, and is found there again.
async fn all_clients(pool: &Pool) -> Result<(Counters, BTreeSet<String>)> {
    let (fleet, mut found) = read_clients(pool, CLIENTS_PER_CALL, None).await?;
    let (mut all, mut limit) = (BTreeSet::new(), CLIENTS_PER_CALL);
    loop {
        let is_last = found.len() < limit;
        let (first, last) = (found.first().map(|(_, ends)| *ends), found.last().map(|(_, ends)| *ends));
        all.extend(found.into_iter().map(|(client, _)| client));
        if is_last {
            return Ok((fleet, all));
        }
        // Listings that expire at the same moment must be read together: the next read starts at that moment.
        limit = if first == last { 2 * limit } else { CLIENTS_PER_CALL };
        found = read_clients(pool, limit, last).await?.1;
    }
}

/// The counters of all clients; and at most `limit` clients with the end of their listing, which is not before `from`.
async fn read_clients(pool: &Pool, limit: usize, from: Option<u64>) -> Result<(Counters, Vec<(String, u64)>)> {
    let mut call = Call::of(&scripts::LIST_CLIENTS, 0);
    call.number(limit as u64);
    if let Some(from) = from {
        call.number(from);
    }
    let reply = pool.call(|| "inspecting".to_owned(), &call).await?;
    decode::clients(&reply)
}
