//! The contract between a client and a store, the place where the queues are kept: seven methods, no default
//! implementations.
//!
//! Users of locks do not need this module. Authors of stores implement [`Store`] and run the suite of the cargo feature
//! `conformance` against it. [`Table`](crate::table::Table) defines what the verbs mean: a store answers every sequence of
//! calls as a table would.
//!
//! # To be correct, a store
//!
//! **Atomicity and expiry**
//!
//! - executes each verb atomically over all resources it names, as far as [`Guarantees::atomic`] promises;
//! - **settles the queue** before every answer that depends on it: it removes claims whose lease has expired by the store's
//!   own clock, which it reads once per verb; it grants to the next claims by the rule; it notifies them. The number of claims
//!   removed per call is bounded. Renewing an exclusive hold that is still valid may skip this, since nothing can be granted.
//!   An expired claim is never revived;
//! - decides by the queue alone: a resource without a holder is not free while its queue has a waiter.
//!
//! **Repeated and late requests**
//!
//! - accepts every verb twice, and late. A repeated acquire renews. **No verb shortens a lease** except a release and a linger;
//! - leaves a tombstone for [`Leaving::Unknown`]: it refuses the claim's id for [`Claim::tombstone`], or for twice the time that the
//!   store's connection may delay a request, whichever is longer. Otherwise an acquire that runs after it, for example one that was
//!   still in a socket's buffer, would leave a claim that no client renews or releases (a ghost);
//! - never repeats an acquire by itself: a copy that runs after the client has seen an answer, and left, is a ghost too. A
//!   driver that retries must be configured not to; the store answers `Unavailable` instead;
//! - answers [`Error::Unavailable`](crate::Error::Unavailable) when the outcome is unknown, and does so within a time limit of its
//!   own, even if the network never answers. The client then sends the same request again, the first time without a pause. A
//!   dropped future has an unknown outcome too. The error says what was being done, with the names as the store knows them, in
//!   quotes; the client replaces them by the names that its user wrote.
//!
//! **Notifications**
//!
//! - never announces a grant that it may still withdraw: it decides, writes, then notifies;
//! - may announce a hand-off to another claim of the releasing client in the release's answer ([`Why::PassedOn`]) instead of by a
//!   push;
//! - empties the queue of a resource that it seals: every waiter gets a push that its claim is gone, and a new acquire is answered
//!   [`Admission::Sealed`].
//!
//! **Tickets and capacities**
//!
//! - draws tickets from **one counter**. The counter starts at the store's clock in microseconds, is raised to that clock whenever
//!   the store may have lost data (a new run, a failover), and never yields a number at or below a claim's
//!   [`floor`](Claim::floor). A claim's whole block is reserved when it joins; further numbers come only from
//!   [`Leaving::UnlessAlone`], while no claim waits that could be overtaken;
//! - refuses a capacity that disagrees with the claims in the queue, and a weight above the capacity, with
//!   [`Error::Invalid`](crate::Error::Invalid). An empty queue adopts the new capacity.
//!
//! **Storage**
//!
//! - leaves nothing behind: every key or row expires. Stored data carries the version of its format, and a newer version is
//!   refused with an error that says so;
//! - stores hashes, never ids ([`ClaimId`]), and puts neither ids nor passwords into errors or `Debug`.

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

/// The place where the queues are kept. The [module](self) lists what makes an implementation correct.
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
    /// The promises of this store.
    fn guarantees(&self) -> Guarantees;

    /// Adds the claim to the queue of each resource it names. A claim that is in its queues already is renewed, and its standing is
    /// returned. With [`Busy::Refuse`], a claim that would have to wait is not added.
    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission>;

    /// Renews claims, waiting or holding, and returns the standing of each, in the order given. Never adds a claim. Once a claim was
    /// renewed with [`detached`](Claim::detached) set, only its lease decides whether it lives.
    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>>;

    /// Ends claims and grants what they held to the next claims, in the order given.
    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>>;

    /// Lists resources in name order, each queue in ticket order, one page per call.
    async fn inspect(&self, query: &Query) -> Result<Page>;

    /// Stores a client's counters and the claims that a listing by prefix shall find. Called about once a second, batched.
    async fn record(&self, report: &Report) -> Result<()>;

    /// Subscribes to the changes from now on. A store without pushes returns a stream that never yields. The stream may lose
    /// messages, or begin late, if it yields [`Change::Resync`] afterwards. When it ends, the client subscribes again.
    fn watch(&self, scope: Scope) -> BoxStream<'static, Change>;
}
