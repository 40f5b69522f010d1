//! The terms of a request: plain data, the same for its whole life, and the deadline of its guard.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use crate::claim::{Demands, Note};

use super::lease::Validity;

/// The names that are asked for, and the terms of holding them.
#[derive(Debug)]
pub struct Terms {
    /// Which names, and how much of each.
    pub demands: Demands,
    /// The lease.
    pub ttl: Span,
    /// How often the lease of a holder is renewed, if it is.
    pub renew_every: Option<Span>,
    /// A release before this much of holding lingers for the rest.
    pub hold_at_least: Option<Span>,
    /// The hold is lost after this long.
    pub hold_at_most: Option<Span>,
    /// Shown to people.
    pub note: Arc<Note>,
    /// The bytes of the trace id; the number itself would be aligned to 16 bytes.
    pub trace: [u8; 16],
    /// The deadline that the guard compares with the clock. The client moves it as effects say. The engine never reads it.
    pub validity: Validity,
    /// Whether requests of this process with equal terms may hand the lock to each other.
    pub hands_off: bool,
    /// Whether the hold may outlive this process.
    pub detached: bool,
}

impl Terms {
    /// Terms for tests: a mutex on the name `a`, with a lease of a minute that is renewed every ten seconds.
    #[cfg(test)]
    pub(crate) fn example() -> Self {
        let name = crate::name::Name::new("a").expect("it is a good name");
        Self {
            demands: crate::claim::Demand::exclusive(name).into(),
            ttl: Span::of(Duration::from_secs(60)),
            renew_every: Some(Span::of(Duration::from_secs(10))),
            hold_at_least: None,
            hold_at_most: None,
            note: Arc::default(),
            trace: [1; 16],
            validity: Validity::new(),
            hands_off: false,
            detached: false,
        }
    }

    /// The lease.
    pub fn ttl(&self) -> Duration {
        self.ttl.into()
    }
}

/// A duration of at most 584 years, in half the room of a [`Duration`]: each request has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span(NonZeroU64);

impl Span {
    /// At least a nanosecond.
    pub fn of(span: Duration) -> Self {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN))
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        Self::from_nanos(span.0.get())
    }
}
