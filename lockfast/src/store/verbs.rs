//! What the verbs that move claims take and answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::claim::{Claim, ClaimHash, ClientId, Holder, Ticket, Tickets};
use crate::name::Name;

/// What [`Store::acquire`](super::Store::acquire) does with a claim that cannot hold at once.
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
/// store.acquire(&first, Busy::Refuse).await?;
/// assert!(matches!(store.acquire(&second, Busy::Refuse).await?, Admission::Refused(_)));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// It stays in line.
    Wait,
    /// It is refused and leaves no trace.
    Refuse,
}

/// What came of an [`acquire`](super::Store::acquire).
///
/// ```
/// # use lockfast::{store::*, *};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let store = Memory::new();
/// let claim = || -> Result<_> {
///     Ok(Arc::new(Claim::new(Demand::exclusive(Name::new("a")?).into(), Duration::from_secs(30))?))
/// };
/// let admission = store.acquire(&claim()?, Busy::Wait).await?;
/// assert!(matches!(admission, Admission::Held(tickets) if tickets.count == 1));
/// # Ok(()) }
/// ```
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
///
/// ```
/// # use lockfast::{store::*, *};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let store = Memory::new();
/// let claim = || -> Result<_> {
///     Ok(Arc::new(Claim::new(Demand::exclusive(Name::new("a")?).into(), Duration::from_secs(30))?))
/// };
/// let first = claim()?;
/// store.acquire(&first, Busy::Wait).await?;
/// let Admission::Refused(busy) = store.acquire(&claim()?, Busy::Refuse).await? else { panic!("it is held") };
/// assert_eq!(busy.holder.unwrap().owner, first.id.hash());
/// # Ok(()) }
/// ```
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
///
/// ```
/// # use lockfast::{store::*, *};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let store = Memory::new();
/// let claim = || -> Result<_> {
///     Ok(Arc::new(Claim::new(Demand::exclusive(Name::new("a")?).into(), Duration::from_secs(30))?))
/// };
/// let unknown = Lease { claim: claim()?, ttl: Duration::from_secs(30) };
/// assert_eq!(store.renew(&[unknown]).await?, [Standing::Gone(Why::Unknown)]);
/// # Ok(()) }
/// ```
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
///
/// ```
/// # use lockfast::{store::*, *};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let store = Memory::new();
/// let claim = || -> Result<_> {
///     Ok(Arc::new(Claim::new(Demand::exclusive(Name::new("a")?).into(), Duration::from_secs(30))?))
/// };
/// let first = claim()?;
/// store.acquire(&first, Busy::Wait).await?;
/// assert_eq!(store.release(&[Leaving::Done(first)]).await?, [Standing::Gone(Why::Left)]);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// It left by itself.
    Left,
    /// It left by itself, and this claim of the same client, which waited, holds now, with this ticket. The client is told here
    /// and not by a push: a store may answer so to a [`Leaving::Done`], and to nothing else.
    PassedOn(ClaimHash, Ticket),
    /// Its lease ran out.
    Expired,
    /// An operator broke it.
    Broken,
    /// The resource was sealed.
    Sealed,
    /// The store does not know: perhaps one of the above, perhaps the data was lost.
    Unknown,
}

/// One renewal. Carries the whole claim because some stores find a claim by the names in it. With [`Claim::detached`] set it
/// also exempts the claim from liveness, from then on.
///
/// ```
/// # use lockfast::{store::*, *};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let store = Memory::new();
/// let claim = || -> Result<_> {
///     Ok(Arc::new(Claim::new(Demand::exclusive(Name::new("a")?).into(), Duration::from_secs(30))?))
/// };
/// let first = claim()?;
/// store.acquire(&first, Busy::Wait).await?;
/// let lease = Lease { claim: first, ttl: Duration::from_secs(60) };
/// assert!(matches!(store.renew(&[lease]).await?[..], [Standing::Held(_)]));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Lease {
    /// What is renewed.
    pub claim: Arc<Claim>,
    /// It shall live this much longer, at least.
    pub ttl: Duration,
}

/// One departure.
///
/// ```
/// # use lockfast::{store::*, *};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let store = Memory::new();
/// let claim = || -> Result<_> {
///     Ok(Arc::new(Claim::new(Demand::exclusive(Name::new("a")?).into(), Duration::from_secs(30))?))
/// };
/// let first = claim()?;
/// store.acquire(&first, Busy::Wait).await?;
/// store.release(&[Leaving::Linger(first, Duration::from_secs(5))]).await?;
/// assert!(matches!(store.acquire(&claim()?, Busy::Refuse).await?, Admission::Refused(_)));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Leaving {
    /// Done, or given up. Answered [`Why::Left`] by who was in line.
    Done(Arc<Claim>),
    /// Given up while it is unknown whether the acquire ran, or will run: a tombstone keeps its id out for
    /// [`Claim::tombstone`] at least. A copy of it is told what the first found: [`Why::Left`] only if the claim was there.
    Unknown(Arc<Claim>),
    /// Done, but what is held stays held this much longer, without an owner. A claim that waits just leaves. On each
    /// resource the first claim that waits is told with [`Change::Recheck`].
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
    /// or late: it renews the claim, changes nothing else, and is answered with those tickets. A claim that lingers or was
    /// broken since then stays as it is, and the answer is [`Why::Left`] or [`Why::Broken`].
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

impl Leaving {
    /// Whose departure it is, if its own.
    pub(crate) fn claim(&self) -> Option<&Arc<Claim>> {
        match self {
            Self::Done(claim)
            | Self::Unknown(claim)
            | Self::Linger(claim, _)
            | Self::Seal { claim, .. }
            | Self::UnlessAlone { claim, .. } => Some(claim),
            Self::Break { .. } => None,
        }
    }
}

/// Something that happened, as a push says it.
///
/// ```
/// # use futures::StreamExt;
/// # use lockfast::{store::*, *};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let store = Memory::new();
/// let claim = || -> Result<_> {
///     Ok(Arc::new(Claim::new(Demand::exclusive(Name::new("a")?).into(), Duration::from_secs(30))?))
/// };
/// let mut pushes = store.watch(Scope::Client(ClientId(0)));
/// let (first, second) = (claim()?, claim()?);
/// store.acquire(&first, Busy::Wait).await?;
/// store.acquire(&second, Busy::Wait).await?;
/// store.release(&[Leaving::Done(first)]).await?;
/// assert!(matches!(pushes.next().await, Some(Change::Held(owner, _)) if owner == second.id.hash()));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// This claim, with this ticket, holds now. It counts only if both match.
    Held(ClaimHash, Ticket),
    /// This claim is gone. A hint: the client asks before it believes it.
    Gone(ClaimHash),
    /// A lease ahead of this waiting claim became shorter: it ends after this long. A hint: the client asks again then.
    Recheck(ClaimHash, Duration),
    /// The line of this resource changed.
    Resource(Name),
    /// Something may have been missed: ask again.
    Resync,
}

/// What to watch.
///
/// ```
/// # use futures::StreamExt;
/// # use lockfast::{store::*, *};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let store = Memory::new();
/// let claim = || -> Result<_> {
///     Ok(Arc::new(Claim::new(Demand::exclusive(Name::new("a")?).into(), Duration::from_secs(30))?))
/// };
/// let mut changes = store.watch(Scope::Queues("a".to_owned()));
/// store.acquire(&claim()?, Busy::Wait).await?;
/// assert_eq!(changes.next().await, Some(Change::Resource(Name::new("a")?)));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// What happens to this client's claims: `Held`, `Gone`, `Recheck` and `Resync`.
    Client(ClientId),
    /// Which lines change, among the names that begin with this: `Resource` and `Resync`.
    Queues(String),
}
