//! What a store promises, readable by programs.

use std::time::Duration;

/// No store keeps a lease shorter than this: a waiter renews three times a lease, and may ask five times a second.
pub const SHORTEST_TTL: Duration = Duration::from_millis(500);
/// No lease is longer than this; a week without a sign of life is somebody's mistake.
pub const LONGEST_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

/// What a store promises. Nothing here is a switch: it is what the documents say, readable by programs.
///
/// ```
/// # use lockfast::{Locks, store::*};
/// let promises = Locks::in_memory().guarantees().clone();
/// assert!(promises.fair && promises.push);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guarantees {
    /// First come, first served.
    pub fair: bool,
    /// When fences only go up.
    pub fenced: Fenced,
    /// Hand-offs arrive as messages; otherwise waiters find out by asking.
    pub push: bool,
    /// Who can meet in it.
    pub shared: Shared,
    /// What a held lock survives, besides the death of other clients.
    pub survives: Survives,
    /// The shortest lease it can keep.
    pub min_ttl: Duration,
    /// How far a claim on several names is one step.
    pub atomic: Atomic,
    /// The clock that judges leases.
    pub clock: StoreClock,
}

impl Guarantees {
    /// Those of a store inside this process; the starting point for others.
    pub fn in_process() -> Self {
        Self {
            fair: true,
            fenced: Fenced::WhileClockSane,
            push: true,
            shared: Shared::Process,
            survives: Survives::Nothing,
            min_ttl: SHORTEST_TTL,
            atomic: Atomic::Always,
            clock: StoreClock::SinceBoot,
        }
    }
}

/// When fences only go up.
///
/// ```
/// # use lockfast::{Locks, store::*};
/// let promises = Locks::in_memory().guarantees().clone();
/// assert_eq!(promises.fenced, Fenced::WhileClockSane);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fenced {
    /// Whatever happens to the store.
    Always,
    /// After a loss of data, as long as the store's wall clock has not gone back before the last ticket.
    WhileClockSane,
}

/// Who can meet in a store.
///
/// ```
/// # use lockfast::{Locks, store::*};
/// let promises = Locks::in_memory().guarantees().clone();
/// assert_eq!(promises.shared, Shared::Process);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shared {
    /// The tasks of one process.
    Process,
    /// The processes of one machine.
    Machine,
    /// Whoever reaches it over the network.
    Network,
}

/// What a held lock survives.
///
/// ```
/// # use lockfast::{Locks, store::*};
/// let promises = Locks::in_memory().guarantees().clone();
/// assert_eq!(promises.survives, Survives::Nothing);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Survives {
    /// It ends with the store's process.
    Nothing,
    /// A restart of the store.
    Restart,
    /// The loss of a minority of nodes.
    MinorityLoss,
}

/// How far a claim on several names is one step.
///
/// ```
/// # use lockfast::{Locks, store::*};
/// let promises = Locks::in_memory().guarantees().clone();
/// assert_eq!(promises.atomic, Atomic::Always);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Atomic {
    /// Always.
    Always,
    /// When the names fall into one slot.
    WithinSlot,
}

/// The clock that judges leases.
///
/// ```
/// # use lockfast::{Locks, store::*};
/// let promises = Locks::in_memory().guarantees().clone();
/// assert_eq!(promises.clock, StoreClock::SinceBoot);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreClock {
    /// Counts from boot, suspended time included; setting the time of day does nothing.
    SinceBoot,
    /// The server's time of day: setting it forward ends leases early.
    Wall,
}
