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
//!   linger. [`Leaving::Unknown`] leaves a tombstone: the claim's id stays out for [`Claim::tombstone`], and for twice as
//!   long as the store's connection may hold a request back, whichever is more. So an acquire that runs after it (as happens
//!   when a socket closed with the request in a buffer) leaves no ghost that is never renewed;
//! - never tells of a grant that it may withdraw: it decides, writes, then tells. Whoever gives back may be told in the
//!   answer, instead of by a push, which claim of its own client holds now ([`Why::PassedOn`]);
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
//! - never repeats an acquire by itself: a copy that runs after the client has heard an answer, and left, is a ghost. A
//!   driver that retries has to be told not to, or its answer is `Unavailable`;
//! - answers with [`Error::Unavailable`](crate::Error::Unavailable) when the outcome is unknown: the client sends the same
//!   request again, at once. It says what it was doing with the names as it knows them, in quotes; the client shows them as
//!   its user wrote them. It comes back within a time of its own even if the network does not. A dropped future has an unknown outcome too;
//! - keeps hashes, never ids ([`ClaimId`](crate::store::ClaimId)), and puts neither ids nor passwords into errors or `Debug`.

mod guarantees;
mod verbs;
mod view;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::error::Result;

pub use crate::claim::{Claim, ClaimHash, ClaimId, ClientId, Demand, Demands, Ticket, Tickets};
pub use crate::clock::{Moment, Timer};
pub use crate::name::Name;
pub use guarantees::{Atomic, Fenced, Guarantees, LONGEST_TTL, SHORTEST_TTL, Shared, StoreClock, Survives};
pub use verbs::{Admission, Busy, BusyWith, Change, Lease, Leaving, Scope, Standing, Why};
pub use view::{Counters, Entry, Names, Page, Query, Report, Resource};

/// Where the lines are kept. See the [module](self) for what makes one correct.
///
/// ```
/// # use lockfast::{store::*, *};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let store = Memory::new();
/// let claim = || -> Result<_> {
///     Ok(Arc::new(Claim::new(Demand::exclusive(Name::new("a")?).into(), Duration::from_secs(30))?))
/// };
/// let (first, second) = (claim()?, claim()?);
/// assert!(matches!(store.acquire(&first, Busy::Wait).await?, Admission::Held(_)));
/// assert!(matches!(store.acquire(&second, Busy::Wait).await?, Admission::Queued { position: 1, .. }));
/// assert_eq!(store.release(&[Leaving::Done(first)]).await?, [Standing::Gone(Why::Left)]);
/// let lease = Lease { claim: second, ttl: Duration::from_secs(30) };
/// assert!(matches!(store.renew(&[lease]).await?[..], [Standing::Held(_)]));
/// # Ok(()) }
/// ```
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// What this store promises.
    fn guarantees(&self) -> Guarantees;

    /// Joins the line of each resource the claim names; or, when the claim is in line already, says where it stands and
    /// renews it. With [`Busy::Refuse`] a claim that would have to wait leaves no trace.
    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission>;

    /// Renews claims, waiting or holding, and says where each stands, in the order given. Never joins. A claim that is
    /// renewed with [`detached`](Claim::detached) set is from then on judged by its lease alone.
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
