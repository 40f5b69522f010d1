//! Events: what happened to a lock, for people and monitoring. Only the client emits them.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use crate::claim::{ClaimHash, Demands, Mode, Ticket};
use crate::error::{Error, LostWhy};

/// The trace an acquisition belongs to: 128 bits, as in a W3C `traceparent`.
///
/// ```
/// # use lockfast::TraceId;
/// let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let trace: TraceId = header.parse()?;
/// assert_eq!(trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
/// # Ok::<(), lockfast::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for TraceId {
    type Err = Error;

    /// Reads 32 hexadecimal digits, alone or inside a `traceparent`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let digits = text.split('-').find(|part| part.len() == 32).unwrap_or_default();
        match u128::from_str_radix(digits, 16) {
            Ok(id) if id != 0 => Ok(Self(id)),
            _ => Err(Error::invalid(format!(
                "{text:?} is not a trace id; write 32 hexadecimal digits, or a whole traceparent"
            ))),
        }
    }
}

/// One event in the life of one acquisition.
///
/// ```
/// # use lockfast::{EventKind, Locks, TraceId};
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// let mut events = locks.events();
/// let guard = locks.mutex("a").trace_id(TraceId(42)).lock().await?;
/// let event = events.next().await.unwrap();
/// assert_eq!(event.trace, TraceId(42));
/// assert_eq!(event.fence.map(|fence| fence.0), Some(guard.fence()?));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// When it happened, by this machine's time of day.
    pub at: SystemTime,
    /// The names it is about, with the client's prefix.
    pub demands: Demands,
    /// The hash of the claim's id, once there is a claim.
    pub owner: Option<ClaimHash>,
    /// The fencing token, once held.
    pub fence: Option<Ticket>,
    /// The trace that was set when the lock was requested.
    pub trace: TraceId,
    /// What happened.
    pub kind: EventKind,
}

impl Event {
    /// The kind of lock that was requested.
    pub fn mode(&self) -> Mode {
        self.demands[0].mode()
    }
}

/// What can happen to an acquisition.
///
/// ```
/// # use lockfast::{EventKind, Locks, TraceId};
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// let mut events = locks.events();
/// let guard = locks.mutex("a").trace_id(TraceId(42)).lock().await?;
/// assert!(matches!(events.next().await.unwrap().kind, EventKind::Acquired { .. }));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// Another claim is ahead; the request waits in the queue.
    Waiting,
    /// The store does not answer the waiter. It keeps its entry for the rest of its lease, and keeps polling.
    Unanswered {
        /// What the store, or the connection to it, reported.
        cause: String,
    },
    /// The store answers the waiter again.
    Answered,
    /// It holds the lock.
    Acquired {
        /// How long it waited.
        waited: Duration,
    },
    /// The lease was renewed.
    Renewed {
        /// How much of the lease was left. A shrinking margin is the earliest warning there is.
        margin: Duration,
    },
    /// A renewal failed; the lock is still held for the `remaining` time.
    AtRisk {
        /// How long it is still held if no renewal succeeds.
        remaining: Duration,
        /// What the store, or the connection to it, reported.
        cause: String,
    },
    /// It was lost while held.
    Lost {
        /// Why.
        why: LostWhy,
    },
    /// It was released.
    Released {
        /// How long it was held.
        held: Duration,
    },
    /// The patience, or the number of attempts, was used up.
    TimedOut {
        /// How long it had waited.
        waited: Duration,
    },
    /// The caller dropped the waiting future.
    Cancelled,
}

impl EventKind {
    /// The level from which on this event is emitted, as in `tracing`: 1 for errors, 5 for each renewal.
    pub(crate) fn rank(&self) -> u8 {
        match self {
            Self::Lost { .. } => 1,
            Self::AtRisk { .. } => 2,
            Self::TimedOut { .. } | Self::Unanswered { .. } | Self::Answered => 3,
            Self::Renewed { .. } => 5,
            _ => 4,
        }
    }
}
