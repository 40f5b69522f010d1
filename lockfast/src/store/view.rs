//! Listings of queues for people, and what clients report about themselves.

use std::sync::Arc;
use std::time::Duration;

use crate::claim::{ClaimHash, ClientId, Demands, Holder, Mode, Note, Tickets};
use crate::name::Name;

/// Which queues to list.
///
/// ```
/// # use lockfast::{Locks, Memory, Result, store::*};
/// # use std::sync::Arc;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// # let store = Arc::new(Memory::new());
/// # let locks = Locks::builder().prefix("").build(store.clone())?;
/// let guard = locks.mutex("account:123").lock().await?;
/// let names = Names::Beginning("account:".to_owned());
/// let page = store.inspect(&Query { names, after: None, limit: 10, entries: usize::MAX }).await?;
/// assert!(page.resources[0].queue[0].holds && page.next.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The names to list.
    pub names: Names,
    /// Only names after this one: the [`next`](Page::next) of the previous page.
    pub after: Option<Name>,
    /// At most this many resources.
    pub limit: usize,
    /// At most this many entries of each queue, from its front; of the rest, only their number. Listing all of a long queue is
    /// slow.
    pub entries: usize,
}

/// The names of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Names {
    /// This one. The answer is up to date.
    One(Name),
    /// All that begin with this text. Claims younger than a second may be missing.
    Beginning(String),
}

/// Some resources, and the counters of all clients.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// In name order.
    pub resources: Vec<Resource>,
    /// The [`after`](Query::after) of the next page, if there is one.
    pub next: Option<Name>,
    /// The sum of what all clients have reported.
    pub fleet: Counters,
}

/// One resource and its queue.
///
/// ```
/// # use lockfast::Locks;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// let guard = locks.mutex("account:123").lock().await?;
/// let resource = locks.mutex("account:123").info().await?.expect("it is held");
/// assert_eq!((resource.holders().count(), resource.waiters().count()), (1, 0));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Its name. `Locks` returns it without the client's prefix.
    pub name: Name,
    /// How much of it can be held at once.
    pub capacity: u32,
    /// Holders and waiters in ticket order; only the first, if the query [limits](Query::entries) them.
    pub queue: Vec<Entry>,
    /// How many more entries follow, at most: some of them may have expired.
    pub more: usize,
    /// How much longer it is sealed, if it is.
    pub sealed_for: Option<Duration>,
}

impl Resource {
    /// The holders.
    pub fn holders(&self) -> impl Iterator<Item = &Entry> {
        self.queue.iter().filter(|entry| entry.holds)
    }

    /// The waiters, in order.
    pub fn waiters(&self) -> impl Iterator<Item = &Entry> {
        self.queue.iter().filter(|entry| !entry.holds)
    }
}

/// One claim in the queue of one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The hash of the claim's id.
    pub owner: ClaimHash,
    /// Its tickets; the first decides its position.
    pub tickets: Tickets,
    /// How it wants or holds the resource.
    pub mode: Mode,
    /// How much of it.
    pub weight: u32,
    /// Whether it holds, on all of its names; otherwise it waits.
    pub holds: bool,
    /// How long it has held, or waited.
    pub since: Duration,
    /// When its lease ends unless it is renewed.
    pub expires_in: Duration,
    /// Its owner has released it; it stays until the lease ends.
    pub lingers: bool,
    /// An operator broke it; it stays until it leaves or the lease ends.
    pub broken: bool,
    /// What its owner says about itself.
    pub note: Arc<Note>,
}

impl From<&Entry> for Holder {
    fn from(entry: &Entry) -> Self {
        Self { owner: entry.owner, fence: entry.tickets.first, note: Arc::clone(&entry.note) }
    }
}

/// Counters of clients: in a [`Report`] since the previous one, in a [`Page`] the sum over all clients.
///
/// ```
/// # use lockfast::Locks;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// locks.mutex("a").lock().await?.release().await?;
/// assert_eq!(locks.fleet_stats().await?.released, 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Locks acquired.
    pub acquired: u64,
    /// Locks released.
    pub released: u64,
    /// Acquisitions that had to wait, or were refused, because of another claim.
    pub contended: u64,
    /// Locks lost while held.
    pub lost: u64,
}

/// What one client reports to the store about itself.
#[derive(Clone, Debug)]
pub struct Report {
    /// The client that reports.
    pub client: ClientId,
    /// Counted since the last report that was answered.
    pub counters: Counters,
    /// Claims to list from now on: those that have become a second old.
    pub entered: Vec<(ClaimHash, Demands)>,
    /// Claims not to list any more.
    pub left: Vec<ClaimHash>,
    /// How long to list this client's claims without another report.
    pub keep: Duration,
}
