//! Merges the listings of all clients into one sequence of names, in order.
//!
//! Each client has a listing of its own, which expires with the client. A [`NameScan`] merges them: it reads a few names of each
//! client, and more of a client only if all names read of it come before one that is wanted. No script reads more than
//! [`NAMES_READ`] names.
//!
//! A page of `p` names from `c` clients reads at least `p + c` names, and seldom twice as many. So a scan of all pages is linear
//! in the number of names, as long as a page has as many names as there are clients.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::name::Name;
use crate::store::Counters;

use super::connection::Pool;
use super::decode;
use super::scripts::{self, Call};

/// The most names and listings that one script reads. It takes about a third of a millisecond, in which the server runs no other
/// command.
const NAMES_READ: usize = 200;
const LISTINGS_READ: usize = 40;
/// How many clients are requested at a time.
const CLIENTS_READ: usize = 300;
/// The listing of detached claims, which belongs to no client.
const DETACHED: &str = "detached";

pub(super) struct NameScan<'a> {
    pool: &'a Pool,
    prefix: &'a str,
    cursors: Vec<Cursor>,
    /// Names that were read and not returned.
    read: BTreeSet<Name>,
    /// The counters of all clients.
    pub(super) fleet: Counters,
}

/// The position of the scan in one listing.
struct Cursor {
    client: String,
    /// All names up to and including this one were read.
    after: Option<Name>,
    is_over: bool,
}

/// The counters of all clients.
pub(super) async fn fleet(pool: &Pool) -> Result<Counters> {
    Ok(clients(pool, 0, None).await?.0)
}

impl<'a> NameScan<'a> {
    /// Starts behind `after`, among the names with this prefix.
    pub(super) async fn begin(pool: &'a Pool, prefix: &'a str, after: Option<&Name>) -> Result<Self> {
        let after = after.filter(|after| after.as_str() >= prefix);
        let (fleet, mut all) = all_clients(pool).await?;
        all.insert(DETACHED.to_owned());
        let cursor = |client| Cursor { client, after: after.cloned(), is_over: false };
        let cursors = all.into_iter().map(cursor).collect();
        Ok(Self { pool, prefix, cursors, read: BTreeSet::new(), fleet })
    }

    /// The next names, at most `most`, and whether there are more.
    pub(super) async fn next(&mut self, most: usize) -> Result<(Vec<Name>, bool)> {
        let share = most / self.cursors.len() + 1;
        loop {
            let behind = self.behind(most);
            if behind.is_empty() {
                break;
            }
            // If few listings have most of the names, more of each is read at a time.
            let each = share.max(NAMES_READ / 4 / behind.len()).min(NAMES_READ);
            for some in behind.chunks((NAMES_READ / each).min(LISTINGS_READ)) {
                self.read(some, each).await?;
            }
        }
        let mut names = Vec::with_capacity(most.min(self.read.len()));
        while names.len() < most
            && let Some(name) = self.read.pop_first()
        {
            names.push(name);
        }
        Ok((names, !self.read.is_empty()))
    }

    /// The listings to read next: those that may contain an unread name among the first `most + 1`. Once that many names are
    /// known, only the half of them that is furthest behind: the names read there may show that the others need not be read.
    fn behind(&self, most: usize) -> Vec<usize> {
        let mut behind: Vec<_> = (0..self.cursors.len()).filter(|index| !self.cursors[*index].is_over).collect();
        if let Some(one_more) = self.read.iter().nth(most) {
            behind.retain(|index| self.cursors[*index].after.as_ref().is_none_or(|after| after < one_more));
            behind.sort_by(|one, other| self.cursors[*one].after.cmp(&self.cursors[*other].after));
            behind.truncate(behind.len().div_ceil(2));
        }
        behind
    }

    async fn read(&mut self, cursors: &[usize], each: usize) -> Result<()> {
        let mut call = Call::of(&scripts::LIST_NAMES, 0);
        call.text(self.prefix).number(each as u64);
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
            self.read.extend(names);
        }
        Ok(())
    }
}

/// All clients that have a listing. A client that reports during the scan moves behind the clients read so far, and is found
/// there again.
async fn all_clients(pool: &Pool) -> Result<(Counters, BTreeSet<String>)> {
    let (fleet, mut found) = clients(pool, CLIENTS_READ, None).await?;
    let (mut all, mut most) = (BTreeSet::new(), CLIENTS_READ);
    loop {
        let is_last = found.len() < most;
        let (first, last) = (found.first().map(|(_, ends)| *ends), found.last().map(|(_, ends)| *ends));
        all.extend(found.into_iter().map(|(client, _)| client));
        if is_last {
            return Ok((fleet, all));
        }
        // Listings that expire at the same moment must be read together: the next read starts at that moment.
        most = if first == last { 2 * most } else { CLIENTS_READ };
        found = clients(pool, most, last).await?.1;
    }
}

async fn clients(pool: &Pool, most: usize, from: Option<u64>) -> Result<(Counters, Vec<(String, u64)>)> {
    let mut call = Call::of(&scripts::LIST_CLIENTS, 0);
    call.number(most as u64);
    if let Some(from) = from {
        call.number(from);
    }
    let reply = pool.call(|| "inspecting".to_owned(), &call).await?;
    decode::clients(&reply)
}
