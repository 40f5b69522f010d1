//! Arguments and answers of the verbs that move claims: acquire, renew, release, watch.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::claim::{Claim, ClaimHash, ClientId, Holder, Ticket, Tickets};
use crate::name::Name;

/// What [`Store::acquire`](super::Store::acquire) does with a claim that cannot hold at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// It stays in the queue.
    Wait,
    /// It is refused and does not join.
    Refuse,
}

/// The answer to an [`acquire`](super::Store::acquire).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Admission {
    /// The claim holds, with these fencing tokens.
    Held(Tickets),
    /// The claim waits.
    Queued {
        /// Its ticket. The push that says that it holds carries the same.
        ticket: Ticket,
        /// How many claims are ahead of it, holders included.
        position: usize,
        /// When all leases ahead will have expired: poll again then, in case the push was lost.
        recheck_in: Duration,
    },
    /// Refused because of [`Busy::Refuse`].
    Refused(BusyWith),
    /// One of the resources is sealed, with this value.
    Sealed(Bytes),
    /// This claim id is not accepted any more: use a new one.
    Gone(Why),
}

/// What a refused claim collided with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BusyWith {
    /// The first of the holders.
    pub holder: Option<Holder>,
    /// How long that holder has held it.
    pub held_for: Option<Duration>,
    /// How many claims are in the queue, holders included.
    pub position: usize,
}

/// The present state of a claim, in the answers of renew and release.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// It holds, with these fencing tokens.
    Held(Tickets),
    /// It waits.
    Waiting {
        /// Its ticket.
        ticket: Ticket,
        /// When all leases ahead will have expired: poll again then.
        recheck_in: Duration,
    },
    /// It is not in its queues.
    Gone(Why),
}

/// Why a claim is not in its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// It left by itself.
    Left,
    /// It left by itself, and a waiting claim of the same client holds now: the hash and the ticket of that claim. This answer
    /// replaces the push. A store may give it only to a [`Leaving::Done`].
    PassedOn(ClaimHash, Ticket),
    /// Its lease expired.
    Expired,
    /// An operator broke it.
    Broken,
    /// The resource was sealed.
    Sealed,
    /// The store does not know: one of the above, or its data was lost.
    Unknown,
}

/// One renewal. It carries the whole claim because some stores find a claim by its names. With [`Claim::detached`] set, only the
/// lease decides from then on whether the claim lives, not whether its process does.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The claim to renew.
    pub claim: Arc<Claim>,
    /// How much longer it lives, at least.
    pub ttl: Duration,
}

/// How a claim leaves its queues.
///
/// ```
/// # use lockfast::{Memory, Result, store::*};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// # let claim = || Claim::new(Demand::exclusive(Name::new("a")?).into(), Duration::from_secs(30)).map(Arc::new);
/// let (store, first) = (Memory::new(), claim()?);
/// store.acquire(&first, Busy::Wait).await?;
/// // A job that ends too soon: it stays locked for five more seconds.
/// store.release(&[Leaving::Linger(first, Duration::from_secs(5))]).await?;
/// assert!(matches!(store.acquire(&claim()?, Busy::Refuse).await?, Admission::Refused(_)));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Leaving {
    /// Done, or given up. Answered [`Why::Left`] if the claim was in its queues.
    Done(Arc<Claim>),
    /// Given up while it is unknown whether the acquire ran, or will run: a tombstone refuses its id for at least
    /// [`Claim::tombstone`]. A copy of this request is answered as the first one was: [`Why::Left`] only if the claim was there.
    Unknown(Arc<Claim>),
    /// Done, but the resources stay held for this long, without an owner. A waiting claim just leaves. The first waiter of each
    /// resource gets a [`Change::Recheck`].
    Linger(Arc<Claim>, Duration),
    /// Done for good: for the time of `keep`, the resources answer every acquire with `value`. Only for claims that hold
    /// exclusively; others just leave.
    Seal {
        /// The claim that seals.
        claim: Arc<Claim>,
        /// The value to remember.
        value: Bytes,
        /// For how long.
        keep: Duration,
    },
    /// Done if a claim waits behind it in one of its queues. Otherwise the claim keeps holding, is renewed, and the answer has a
    /// new block of tickets. If the claim's tickets are above `floor`, the request was sent before the client saw them: it is
    /// a repeat, or late. Then it renews the claim, changes nothing else, and is answered with those tickets. A claim that lingers
    /// or was broken meanwhile stays as it is, and the answer is [`Why::Left`] or [`Why::Broken`].
    UnlessAlone {
        /// The claim that would leave.
        claim: Arc<Claim>,
        /// How many tickets to draw.
        block: u32,
        /// The largest ticket that the client has seen, those of this claim included.
        floor: Ticket,
    },
    /// An operator ends the claim on `name` whose block contains `ticket`. It is not renewed any more, and its client gets a push. A
    /// holder keeps its entry until it leaves or its lease ends, unless `at_once`. A waiting or lingering claim ends at once.
    /// Answered [`Why::Broken`], or [`Why::Unknown`] if there is no such claim.
    Break {
        /// The resource.
        name: Name,
        /// A ticket of the claim.
        ticket: Ticket,
        /// Whether the holder's entry is removed without waiting for the holder.
        at_once: bool,
    },
}

impl Leaving {
    /// The claim that leaves; `None` for a break, which names it by its ticket.
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

/// A push: one change in the store.
///
/// ```
/// # use futures::StreamExt;
/// # use lockfast::{Memory, Result, store::*};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// # let claim = || Claim::new(Demand::exclusive(Name::new("a")?).into(), Duration::from_secs(30)).map(Arc::new);
/// let (store, first, second) = (Memory::new(), claim()?, claim()?);
/// let mut pushes = store.watch(Scope::Client(second.client));
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
    /// This claim is gone. A hint: the client polls before it acts on it.
    Gone(ClaimHash),
    /// A lease ahead of this waiting claim became shorter: it ends after this long. A hint: the client polls again then.
    Recheck(ClaimHash, Duration),
    /// The queue of this resource changed.
    Resource(Name),
    /// Pushes may have been lost: poll everything again.
    Resync,
}

/// What a subscription covers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// This client's claims: `Held`, `Gone`, `Recheck` and `Resync`.
    Client(ClientId),
    /// The queues of all names that begin with this text: `Resource` and `Resync`.
    Queues(String),
}
