//! The contract between the client and the place where the lines are kept: a handful of verbs, no default methods.
//!
//! Users of locks never meet this module; authors of stores implement [`Store`] and run the suite of the cargo feature
//! `conformance` against it. What the verbs mean is defined by [`Table`](crate::table::Table): a store answers as a table
//! would.
//!
//! # To be correct, a store
//!
//! - makes each verb atomic over the resources it names, as far as [`Guarantees::atomic`] says;
//! - **settles the line** before any answer that depends on it: drops the claims whose lease ran out by the store's own
//!   clock, read once a verb, a bounded number a call; hands on to who is next; tells them. Renewing an exclusive hold
//!   that is still valid may skip that, since nothing can be granted. A dropped claim does not come back to life;
//! - looks at the line before it looks at anything else: a resource without a holder is not free when somebody stands in
//!   its line;
//! - can be sent every verb twice, and late. A repeated acquire renews. **No verb shortens a lease** but a release and a
//!   linger. [`Leaving::Unknown`] keeps the claim's id out for one ttl, so that an acquire which runs after it (as happens
//!   when a socket closed with the request in a buffer) leaves no ghost that nobody renews;
//! - never tells of a grant that it may withdraw: it decides, writes, then tells;
//! - empties the line of what it seals: each waiter is told that it is gone, and asking anew is answered
//!   [`Admission::Sealed`];
//! - draws tickets from **one counter**, which starts at the store's clock in microseconds, is raised to that clock whenever
//!   the store may have lost data (a new run, a failover), and never gives a number at or below a claim's
//!   [`floor`](Claim::floor). A claim's whole block is reserved when it joins; later numbers come only from
//!   [`Leaving::UnlessAlone`], when nobody waits who could be overtaken;
//! - refuses a capacity that disagrees with those in line, and a weight above the capacity, with
//!   [`Error::Invalid`](crate::Error::Invalid); an empty line takes on the new capacity;
//! - leaves nothing behind: every key or row has an end. What it keeps carries a version of the format, and a newer one is
//!   refused with a clear error;
//! - answers with [`Error::Unavailable`](crate::Error::Unavailable) when the outcome is unknown, and comes back within
//!   a time of its own even if the network does not. A dropped future has an unknown outcome too;
//! - keeps hashes, never ids ([`ClaimId`](crate::ClaimId)), and puts neither ids nor passwords into errors or `Debug`.

mod guarantees;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::claim::{Claim, ClaimHash, ClientId, Demands, Holder, Mode, Note, Ticket, Tickets};
use crate::error::Result;
use crate::name::Name;

pub use guarantees::{Atomic, Fenced, Guarantees, LONGEST_TTL, SHORTEST_TTL, Shared, StoreClock, Survives};

/// Where the lines are kept. See the [module](self) for what makes one correct.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// What this store promises.
    fn guarantees(&self) -> Guarantees;

    /// Joins the line of each resource the claim names; or, when the claim is in line already, says where it stands and
    /// renews it. With [`Busy::Refuse`] a claim that would have to wait leaves no trace.
    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission>;

    /// Renews claims, waiting or holding, and says where each stands, in the order given. Never joins.
    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>>;

    /// Ends claims and hands on what they held, in the order given.
    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>>;

    /// Shows lines in ticket order, names in order, a page at a time.
    async fn inspect(&self, query: &Query) -> Result<Page>;

    /// Takes a process's counters and the claims it wants found by a listing; about once a second, batched.
    async fn record(&self, report: &Report) -> Result<()>;

    /// What happens from now on. A store without pushes returns a stream that never yields. The stream may lose messages,
    /// or begin late, if it says [`Change::Resync`] afterwards; when it ends, the client asks for a new one.
    fn watch(&self, scope: Scope) -> BoxStream<'static, Change>;
}

/// What [`Store::acquire`] does with a claim that cannot hold at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// It stays in line.
    Wait,
    /// It is refused and leaves no trace.
    Refuse,
}

/// What came of an [`acquire`](Store::acquire).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Admission {
    /// The claim holds, with these fencing tokens.
    Held(Tickets),
    /// The claim waits.
    Queued {
        /// Its number; a push that it holds will carry the same.
        ticket: Ticket,
        /// How many are ahead; those who hold are ahead of those who wait.
        position: usize,
        /// When all leases ahead will have run out: ask again then, whatever became of the pushes.
        recheck_in: Duration,
    },
    /// Refused, as asked for by [`Busy::Refuse`].
    Refused(BusyWith),
    /// One of the resources is sealed, with this value.
    Sealed(Bytes),
    /// This claim id is out: use a new one.
    Gone(Why),
}

/// Who was in the way of a refused claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BusyWith {
    /// The first of those who hold.
    pub holder: Option<Holder>,
    /// How long that one has held it.
    pub held_for: Option<Duration>,
    /// How many are in line, holders included.
    pub position: usize,
}

/// Where a claim stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// It holds, with these fencing tokens.
    Held(Tickets),
    /// It waits.
    Waiting {
        /// Its number.
        ticket: Ticket,
        /// When all leases ahead will have run out: ask again then.
        recheck_in: Duration,
    },
    /// It is not in line.
    Gone(Why),
}

/// Why a claim is not in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// It left by itself.
    Left,
    /// Its lease ran out.
    Expired,
    /// An operator broke it.
    Broken,
    /// The resource was sealed.
    Sealed,
    /// The store does not know: perhaps one of the above, perhaps the data was lost.
    Unknown,
}

/// One renewal. Carries the whole claim because some stores find a claim by the names in it.
#[derive(Clone, Debug)]
pub struct Lease {
    /// What is renewed.
    pub claim: Arc<Claim>,
    /// It shall live this much longer, at least.
    pub ttl: Duration,
}

/// One departure.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Leaving {
    /// Done, or given up. Answered [`Why::Left`] by who was in line.
    Done(Arc<Claim>),
    /// Given up while nobody knows whether the acquire ran, or will run: its id stays out for one ttl.
    Unknown(Arc<Claim>),
    /// Done, but what is held stays held this much longer, by nobody. A claim that waits just leaves.
    Linger(Arc<Claim>, Duration),
    /// Done for good: the resources answer with `value` for as long as `keep` says. For claims that hold exclusively;
    /// others just leave.
    Seal {
        /// Who seals.
        claim: Arc<Claim>,
        /// What to remember.
        value: Bytes,
        /// For how long.
        keep: Duration,
    },
    /// Done if anybody waits behind it in one of the lines; otherwise the claim goes on holding, renewed, with a fresh
    /// block of tickets in answer. Sent before the client saw the tickets that the claim has (see `floor`), it is repeated
    /// or late: it renews the claim, changes nothing else, and is answered with those tickets.
    UnlessAlone {
        /// Who would leave.
        claim: Arc<Claim>,
        /// How many tickets to draw.
        block: u32,
        /// The largest ticket the client has seen, those of this claim included.
        floor: Ticket,
    },
    /// An operator ends the claim on `name` whose block contains `ticket`. It is not renewed any more and its client is
    /// told; a holder keeps its place until it has left or its lease has ended, unless `at_once`. A claim that waits, and
    /// one that lingers, ends at once. Answered [`Why::Broken`], or [`Why::Unknown`] when there is no such claim.
    Break {
        /// On which resource.
        name: Name,
        /// Which claim.
        ticket: Ticket,
        /// Without waiting for the holder.
        at_once: bool,
    },
}

/// Something that happened, as a push says it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// This claim, with this ticket, holds now. It counts only if both match.
    Held(ClaimHash, Ticket),
    /// This claim is gone. A hint: the client asks before it believes it.
    Gone(ClaimHash),
    /// The line of this resource changed.
    Resource(Name),
    /// Something may have been missed: ask again.
    Resync,
}

/// What to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// What happens to this client's claims: `Held`, `Gone` and `Resync`.
    Client(ClientId),
    /// Which lines change, among the names that begin with this: `Resource` and `Resync`.
    Lines(String),
}

/// Which lines to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Which names.
    pub names: Names,
    /// Only names after this one: the [`next`](Page::next) of the page before.
    pub after: Option<Name>,
    /// At most this many resources.
    pub limit: usize,
}

/// Which names a query is about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Names {
    /// Just this one; exact at once.
    One(Name),
    /// Those that begin with this text; claims younger than a second may be missing.
    Beginning(String),
}

/// Some lines, and the counters of all processes.
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
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Its name. In what users get, without the client's prefix.
    pub name: Name,
    /// How much there is of it.
    pub capacity: u32,
    /// Those who hold and those who wait, in ticket order.
    pub line: Vec<Seat>,
    /// How much longer it is sealed, if it is.
    pub sealed_for: Option<Duration>,
}

impl Resource {
    /// Those who hold it.
    pub fn holders(&self) -> impl Iterator<Item = &Seat> {
        self.line.iter().filter(|seat| seat.holds)
    }

    /// Those who wait for it, in order.
    pub fn waiters(&self) -> impl Iterator<Item = &Seat> {
        self.line.iter().filter(|seat| !seat.holds)
    }
}

/// One claim in the line of one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Seat {
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

impl From<&Seat> for Holder {
    fn from(seat: &Seat) -> Self {
        Self { owner: seat.owner, fence: seat.tickets.first, note: Arc::clone(&seat.note) }
    }
}

/// What processes count; in a [`Report`] since the last one, in a [`Page`] altogether.
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
