//! What is shown to people, and what processes say about themselves.

use std::sync::Arc;
use std::time::Duration;

use crate::claim::{ClaimHash, ClientId, Demands, Holder, Mode, Note, Tickets};
use crate::name::Name;

/// Which lines to show.
///
/// ```
/// # use lockfast::{store::*, *};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let store = Memory::new();
/// let claim = || -> Result<_> {
///     Ok(Arc::new(Claim::new(Demand::exclusive(Name::new("a")?).into(), Duration::from_secs(30))?))
/// };
/// store.acquire(&claim()?, Busy::Wait).await?;
/// let query = Query { names: Names::Beginning("a".to_owned()), after: None, limit: 10, entries: usize::MAX };
/// let page = store.inspect(&query).await?;
/// assert_eq!(page.resources.len(), 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Which names.
    pub names: Names,
    /// Only names after this one: the [`next`](Page::next) of the page before.
    pub after: Option<Name>,
    /// At most this many resources.
    pub limit: usize,
    /// At most this many of each line, from its front; of the others, only how many they are. To look at all of a long line takes
    /// a while.
    pub entries: usize,
}

/// Which names a query is about.
///
/// ```
/// # use lockfast::{store::*, *};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let store = Memory::new();
/// let claim = || -> Result<_> {
///     Ok(Arc::new(Claim::new(Demand::exclusive(Name::new("a")?).into(), Duration::from_secs(30))?))
/// };
/// store.acquire(&claim()?, Busy::Wait).await?;
/// let query = Query { names: Names::Beginning("a".to_owned()), after: None, limit: 10, entries: usize::MAX };
/// let page = store.inspect(&query).await?;
/// assert_eq!(page.resources[0].name, Name::new("a")?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Names {
    /// Just this one; exact at once.
    One(Name),
    /// Those that begin with this text; claims younger than a second may be missing.
    Beginning(String),
}

/// Some lines, and the counters of all processes.
///
/// ```
/// # use lockfast::{store::*, *};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let store = Memory::new();
/// let claim = || -> Result<_> {
///     Ok(Arc::new(Claim::new(Demand::exclusive(Name::new("a")?).into(), Duration::from_secs(30))?))
/// };
/// store.acquire(&claim()?, Busy::Wait).await?;
/// let query = Query { names: Names::Beginning("a".to_owned()), after: None, limit: 10, entries: usize::MAX };
/// let page = store.inspect(&query).await?;
/// assert!(page.next.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// In name order.
    pub resources: Vec<Resource>,
    /// Where to go on, if there is more.
    pub next: Option<Name>,
    /// What all clients have reported.
    pub fleet: Counters,
}

/// One resource and its line.
///
/// ```
/// # use lockfast::{store::*, *};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let store = Memory::new();
/// let claim = || -> Result<_> {
///     Ok(Arc::new(Claim::new(Demand::exclusive(Name::new("a")?).into(), Duration::from_secs(30))?))
/// };
/// store.acquire(&claim()?, Busy::Wait).await?;
/// let query = Query { names: Names::Beginning("a".to_owned()), after: None, limit: 10, entries: usize::MAX };
/// let page = store.inspect(&query).await?;
/// assert_eq!(page.resources[0].holders().count(), 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Its name. In what users get, without the client's prefix.
    pub name: Name,
    /// How much there is of it.
    pub capacity: u32,
    /// Those who hold and those who wait, in ticket order: the first of them, if not all were [asked for](Query::entries).
    pub queue: Vec<Entry>,
    /// How many more are behind those, at most: some of them may be dead.
    pub more: usize,
    /// How much longer it is sealed, if it is.
    pub sealed_for: Option<Duration>,
}

impl Resource {
    /// Those who hold it.
    pub fn holders(&self) -> impl Iterator<Item = &Entry> {
        self.queue.iter().filter(|entry| entry.holds)
    }

    /// Those who wait for it, in order.
    pub fn waiters(&self) -> impl Iterator<Item = &Entry> {
        self.queue.iter().filter(|entry| !entry.holds)
    }
}

/// One claim in the line of one resource.
///
/// ```
/// # use lockfast::{store::*, *};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let store = Memory::new();
/// let claim = || -> Result<_> {
///     Ok(Arc::new(Claim::new(Demand::exclusive(Name::new("a")?).into(), Duration::from_secs(30))?))
/// };
/// store.acquire(&claim()?, Busy::Wait).await?;
/// let query = Query { names: Names::Beginning("a".to_owned()), after: None, limit: 10, entries: usize::MAX };
/// let page = store.inspect(&query).await?;
/// assert!(page.resources[0].queue[0].holds);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The public face of the claim.
    pub owner: ClaimHash,
    /// Its numbers; the first is its place.
    pub tickets: Tickets,
    /// How it wants the resource, or has it.
    pub mode: Mode,
    /// How much of it.
    pub weight: u32,
    /// Whether it holds all that it wants, or waits.
    pub holds: bool,
    /// How long it has held, or waited.
    pub since: Duration,
    /// When its lease ends unless renewed.
    pub expires_in: Duration,
    /// Its owner is done; it stays until the lease ends.
    pub lingers: bool,
    /// An operator broke it; it stays until it leaves or the lease ends.
    pub broken: bool,
    /// Who it is.
    pub note: Arc<Note>,
}

impl From<&Entry> for Holder {
    fn from(entry: &Entry) -> Self {
        Self { owner: entry.owner, fence: entry.tickets.first, note: Arc::clone(&entry.note) }
    }
}

/// What processes count; in a [`Report`] since the last one, in a [`Page`] altogether.
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
    /// Locks given back.
    pub released: u64,
    /// Acquisitions that found somebody else there.
    pub contended: u64,
    /// Locks lost while held.
    pub lost: u64,
}

/// What one process tells the store about itself.
///
/// ```
/// # use lockfast::{store::*, *};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let store = Memory::new();
/// let claim = || -> Result<_> {
///     Ok(Arc::new(Claim::new(Demand::exclusive(Name::new("a")?).into(), Duration::from_secs(30))?))
/// };
/// let counters = Counters { acquired: 3, ..Counters::default() };
/// let (entered, left, keep) = (vec![], vec![], Duration::from_secs(60));
/// store.record(&Report { client: ClientId(1), counters, entered, left, keep }).await?;
/// # let _ = claim;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Report {
    /// Who reports.
    pub client: ClientId,
    /// Counted since the last report that was answered.
    pub counters: Counters,
    /// Claims to list from now on: those that are a second old.
    pub entered: Vec<(ClaimHash, Demands)>,
    /// Claims not to list any more.
    pub left: Vec<ClaimHash>,
    /// How long to keep this client's listing without another report.
    pub keep: Duration,
}
