//! What a store promises, readable by programs.

use std::time::Duration;

/// The shortest lease of any store: a waiter renews three times per lease, and polls at most five times a second.
pub const SHORTEST_TTL: Duration = Duration::from_millis(500);
/// The longest lease of any store: a week without a renewal is a mistake.
pub const LONGEST_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

/// What a store promises. These are no settings: they say in code what the documents say in words.
///
/// ```
/// # use lockfast::Locks;
/// use lockfast::store::{Atomic, Shared, Survives};
///
/// let promises = Locks::in_memory().guarantees().clone();
/// assert!(promises.fair && promises.push);
/// assert_eq!(promises.atomic, Atomic::Always);
/// assert_eq!((promises.shared, promises.survives), (Shared::Process, Survives::Nothing));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guarantees {
    /// First come, first served.
    pub fair: bool,
    /// When fencing tokens only rise.
    pub fenced: Fenced,
    /// Hand-offs arrive as pushes; otherwise waiters learn of them by polling.
    pub push: bool,
    /// Which clients can share the store.
    pub shared: Shared,
    /// What a held lock survives, besides the death of other clients.
    pub survives: Survives,
    /// The shortest lease that the store accepts.
    pub min_ttl: Duration,
    /// When a claim on several names is one atomic step.
    pub atomic: Atomic,
    /// The clock that decides when leases end.
    pub clock: StoreClock,
}

impl Guarantees {
    /// The guarantees of a store inside this process: a starting point for other stores.
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

/// When fencing tokens only rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fenced {
    /// Whatever happens to the store.
    Always,
    /// After a loss of data, as long as the store's wall clock has not gone back before the last ticket.
    WhileClockSane,
}

/// Which clients can share a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shared {
    /// The tasks of one process.
    Process,
    /// The processes of one machine.
    Machine,
    /// All clients that reach it over the network.
    Network,
}

/// What a held lock survives.
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

/// When a claim on several names is one atomic step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Atomic {
    /// Always.
    Always,
    /// When all names fall into one hash slot.
    WithinSlot,
}

/// The clock that decides when leases end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreClock {
    /// Counts from boot, suspended time included; setting the time of day has no effect.
    SinceBoot,
    /// The server's time of day: setting it forward ends leases early.
    Wall,
}
