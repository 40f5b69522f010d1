//! Something that happened to a lock, told to people. Events leave only from the client.

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

/// Something that happened to one acquisition.
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
    /// When, by this machine's time of day.
    pub at: SystemTime,
    /// To what; with the client's prefix.
    pub demands: Demands,
    /// Whose claim, once there is one.
    pub owner: Option<ClaimHash>,
    /// The fencing token, once held.
    pub fence: Option<Ticket>,
    /// The trace captured when the lock was asked for.
    pub trace: TraceId,
    /// What happened.
    pub kind: EventKind,
}

impl Event {
    /// How it was asked for.
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
    /// Somebody else was there first; it waits in line.
    Waiting,
    /// The store does not answer the waiter. It keeps its place for the rest of its lease, and asks on.
    Unanswered {
        /// What the store, or the way to it, said.
        cause: String,
    },
    /// The store answers the waiter again.
    Answered,
    /// It holds.
    Acquired {
        /// How long that took.
        waited: Duration,
    },
    /// The lease was renewed.
    Renewed {
        /// How much of it was left: the earliest warning there is.
        margin: Duration,
    },
    /// A renewal failed; the lock is still valid for a while.
    AtRisk {
        /// For how long.
        remaining: Duration,
        /// What the store, or the way to it, said.
        cause: String,
    },
    /// It was lost while held.
    Lost {
        /// How.
        why: LostWhy,
    },
    /// It was given back.
    Released {
        /// How long it was held.
        held: Duration,
    },
    /// Patience, or the number of attempts, ended first.
    TimedOut {
        /// How long it had waited.
        waited: Duration,
    },
    /// Whoever asked stopped waiting.
    Cancelled,
}

impl EventKind {
    /// How much there has to be an interest in events for this one: 1 for what goes wrong, 5 for each renewal.
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
