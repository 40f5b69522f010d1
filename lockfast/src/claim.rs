//! A claim: a request for one or more names, with an entry in the queue of each. Plain data; `table.rs` defines what it means.

mod demand;
mod token;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Duration;

use sha1::{Digest, Sha1};

use crate::error::{Error, Result};

pub use demand::{Demand, Demands, Mode};
pub use token::Token;

/// The number drawn when a claim joins: its position in every queue, and the fencing token of what it holds. Later claims get higher
/// numbers.
///
/// ```
/// # use lockfast::store::Ticket;
/// assert!(Ticket(41) < Ticket(42));
/// assert_eq!(Ticket(42).to_string(), "42");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ticket(pub u64);

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A block of consecutive tickets that belong to one claim, usually of one.
///
/// ```
/// # use lockfast::store::{Ticket, Tickets};
/// let block = Tickets::new(Ticket(7), 3);
/// assert!(block.contains(Ticket(9)) && !block.contains(Ticket(10)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tickets {
    /// The number that decides the claim's position in its queues.
    pub first: Ticket,
    /// How many numbers, counted from `first`.
    pub count: u32,
}

impl Tickets {
    /// `count` numbers from `first` on.
    pub fn new(first: Ticket, count: u32) -> Self {
        Self { first, count }
    }

    /// The highest number of the block.
    pub fn last(self) -> Ticket {
        Ticket(self.first.0 + u64::from(self.count.max(1)) - 1)
    }

    /// Whether `ticket` is one of the block.
    pub fn contains(self, ticket: Ticket) -> bool {
        (self.first..=self.last()).contains(&ticket)
    }
}

/// The right to renew and release a claim: 128 bits from the operating system, never shown.
///
/// Stores keep, and people see, only its [`hash`](ClaimId::hash): read access to a store does not give the right to release its locks.
///
/// ```
/// # use lockfast::store::ClaimId;
/// let id = ClaimId::random()?;
/// assert_eq!(format!("{id:?}"), format!("ClaimId({})", id.hash()));
/// # Ok::<(), lockfast::Error>(())
/// ```
#[derive(Clone)]
pub struct ClaimId {
    secret: [u8; 16],
    hash: ClaimHash,
}

impl ClaimId {
    /// A new id, straight from the operating system: a process and its fork never draw the same id.
    pub fn random() -> Result<Self> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).map_err(randomness_error)?;
        Ok(Self::from_secret(secret))
    }

    /// The id with this secret; for claims that outlive a process.
    pub fn from_secret(secret: [u8; 16]) -> Self {
        let digest = Sha1::digest(secret);
        let mut hash = [0; 16];
        hash.copy_from_slice(&digest[..16]);
        Self { secret, hash: ClaimHash(hash) }
    }

    /// The id with this hash and without its secret: no store accepts it.
    #[cfg(all(feature = "record", feature = "engine"))]
    pub(crate) fn from_hash(hash: ClaimHash) -> Self {
        Self { secret: [0; 16], hash }
    }

    /// The secret itself, for a store to send as proof. Never print it.
    pub fn expose_secret(&self) -> &[u8; 16] {
        &self.secret
    }

    /// What stores keep and people see.
    pub fn hash(&self) -> ClaimHash {
        self.hash
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClaimId({})", self.hash)
    }
}

/// Draws ids in batches, since one call to the operating system costs as much as the rest of a lock. A batch belongs to one client
/// in one process: a client refuses to work after a fork, so no two processes use the same batch.
pub(crate) fn draw_ids() -> Result<Vec<ClaimId>> {
    const BATCH: usize = 32;
    let mut batch = [0; 16 * BATCH];
    getrandom::fill(&mut batch).map_err(randomness_error)?;
    Ok(batch.as_chunks::<16>().0.iter().map(|secret| ClaimId::from_secret(*secret)).collect())
}

fn randomness_error(error: getrandom::Error) -> Error {
    Error::unavailable("drawing a claim id from the operating system", error)
}

/// The public form of a [`ClaimId`]: the first 128 bits of the SHA-1 of its secret. (SHA-1 because Redis can compute it
/// inside a script; all that is needed is that the secret cannot be found from the hash.)
///
/// ```
/// # use lockfast::store::ClaimId;
/// let id = ClaimId::from_secret([7; 16]);
/// assert_eq!(id.hash().to_string().len(), 32);
/// assert_eq!(id.hash(), ClaimId::from_secret([7; 16]).hash());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimHash(pub [u8; 16]);

impl fmt::Display for ClaimHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ClaimHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A map from claims to values.
pub(crate) type ClaimMap<V> = HashMap<ClaimHash, V, BuildHasherDefault<XorHasher>>;

/// Combines the bytes of a [`ClaimHash`] by XOR, eight at a time: they are random already.
#[derive(Debug, Default)]
pub(crate) struct XorHasher(u64);

impl Hasher for XorHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.as_chunks::<8>().0 {
            self.0 ^= u64::from_le_bytes(*chunk);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The client a claim belongs to; pushes are addressed to it. Not a secret.
///
/// ```
/// # use lockfast::store::ClientId;
/// assert_eq!(ClientId(255).to_string(), "00000000000000ff");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(pub u64);

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A request for one or more names, waiting or holding. It has a lease from the moment it joins its queues.
///
/// ```
/// # use lockfast::store::{Claim, Demand, Name};
/// # use std::time::Duration;
/// let claim = Claim::new(Demand::exclusive(Name::new("a")?).into(), Duration::from_secs(30))?;
/// assert_eq!(claim.block, 1);
/// # Ok::<(), lockfast::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Claim {
    /// Gives the right to renew and release the claim. After a store has answered that the claim is gone, the request uses a new id.
    pub id: ClaimId,
    /// The client that sent it.
    pub client: ClientId,
    /// The names it wants, and how much of each.
    pub demands: Demands,
    /// How long it lives without being renewed.
    pub ttl: Duration,
    /// How many consecutive tickets it reserves when it joins; at least one.
    pub block: u32,
    /// The largest ticket its client has seen from this store: the claim's own tickets will be higher.
    pub floor: Ticket,
    /// Whether only the lease decides if the claim lives, not whether its process does. The flag takes effect with a renewal, never
    /// when the claim joins: a client that dies while it waits, or before its token was delivered, must not leave a claim behind. A
    /// store that lists only what clients report lists a detached claim by itself while it lives: its client may be gone.
    pub detached: bool,
    /// The process behind it, for people.
    pub note: Arc<Note>,
}

impl Claim {
    /// A claim with a new id and default settings.
    pub fn new(demands: Demands, ttl: Duration) -> Result<Self> {
        let (id, client) = (ClaimId::random()?, ClientId(0));
        Ok(Self { id, client, demands, ttl, block: 1, floor: Ticket(0), detached: false, note: Arc::default() })
    }

    /// How long the id is refused after a release with an unknown outcome. An acquire that is still in flight arrives within this
    /// time. One that is delayed for longer costs one lease, never a second holder.
    pub fn tombstone(&self) -> Duration {
        self.ttl.min(MAX_TOMBSTONE)
    }
}

/// Bounds the time for which the store keeps a tombstone when the lease is long.
const MAX_TOMBSTONE: Duration = Duration::from_secs(60);

/// The process behind a claim, for people to read. It never has the arguments of the command line: they may be secrets.
///
/// ```
/// # use lockfast::Note;
/// let note = Note { host: "web-2".into(), pid: 812, ..Note::default() };
/// assert_eq!(note.to_string(), "web-2 (pid 812)");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// The program's name.
    pub program: String,
    /// Free text, like a leader's address.
    pub text: Option<String>,
    /// Further pairs of key and value, set by the caller.
    pub labels: Vec<(String, String)>,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            write!(f, "{text} on ")?;
        }
        match self.pid {
            // Another program's lock: only its existence is known.
            0 => f.write_str(&self.host),
            pid => write!(f, "{} (pid {pid})", self.host),
        }
    }
}

/// A holder, as errors and listings name it.
///
/// ```
/// # use lockfast::{Error, Locks};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// let guard = locks.mutex("a").lock().await?;
/// let busy = locks.mutex("a").lock_within(Duration::from_millis(10)).await.unwrap_err();
/// let Error::Busy { holder: Some(holder), .. } = busy else { panic!("{busy}") };
/// assert_eq!(holder.owner, guard.owner());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The hash of the claim's id.
    pub owner: ClaimHash,
    /// Its fencing token.
    pub fence: Ticket,
    /// The process behind the claim.
    pub note: Arc<Note>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.note.fmt(f)
    }
}
