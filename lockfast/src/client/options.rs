//! Options of a lock: their defaults, and which values are refused.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::event::TraceId;
use crate::store::{Guarantees, LONGEST_TTL};

/// The longest `hold_at_least`, `hold_at_most` and `keep`.
pub(crate) const LONGEST_HOLD: Duration = Duration::from_secs(366 * 24 * 3600);

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) ttl: Duration,
    pub(crate) renewal: Renewal,
    pub(crate) retry: Option<Retry>,
    pub(crate) hold_at_least: Option<Duration>,
    pub(crate) hold_at_most: Option<Duration>,
    pub(crate) text: Option<String>,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) trace: Option<TraceId>,
    pub(crate) local_handoff: bool,
    pub(crate) detached: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Renewal {
    /// Three times per lease: two may fail.
    EveryThird,
    Every(Duration),
    Off,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(30),
            renewal: Renewal::EveryThird,
            retry: None,
            hold_at_least: None,
            hold_at_most: None,
            text: None,
            labels: Vec::new(),
            trace: None,
            local_handoff: true,
            detached: false,
        }
    }
}

impl Options {
    pub(crate) fn renew_every(&self) -> Option<Duration> {
        match self.renewal {
            Renewal::EveryThird => Some(self.ttl / 3),
            Renewal::Every(span) => Some(span),
            Renewal::Off => None,
        }
    }

    pub(crate) fn check(&self, guarantees: &Guarantees) -> Result<()> {
        let shortest = guarantees.min_ttl.max(crate::store::SHORTEST_TTL);
        if self.ttl < shortest || self.ttl > LONGEST_TTL {
            return Err(Error::invalid(format!(
                "a lease (ttl) of {:?} cannot be kept; use {shortest:?} to 7 days: three to five times what the work takes, \
                 30 s if in doubt",
                self.ttl
            )));
        }
        if let Renewal::Every(span) = self.renewal
            && (span < Duration::from_millis(50) || span > self.ttl / 2)
        {
            return Err(Error::invalid(format!(
                "renewing every {span:?} does not fit a lease of {:?}; use 50 ms to half the lease, or leave it at a third",
                self.ttl
            )));
        }
        for (option, span) in [("hold_at_least", self.hold_at_least), ("hold_at_most", self.hold_at_most)] {
            if span.is_some_and(|span| span.is_zero() || span > LONGEST_HOLD) {
                return Err(Error::invalid(format!("{option} must be more than nothing and at most 366 days")));
            }
        }
        if let (Some(least), Some(most)) = (self.hold_at_least, self.hold_at_most)
            && least > most
        {
            return Err(Error::invalid(format!(
                "hold_at_least ({least:?}) is longer than hold_at_most ({most:?}); swap them, or leave one out"
            )));
        }
        if self.detached && (self.hold_at_least.is_some() || self.hold_at_most.is_some()) {
            return Err(Error::invalid(
                "a detached lock is held until it is released or its lease ends; leave out hold_at_least and hold_at_most",
            ));
        }
        match &self.retry {
            Some(retry) => retry.check(),
            None => Ok(()),
        }
    }
}

/// Repeated attempts instead of waiting in the queue: for callers that must not keep an entry there, or set their own pace.
///
/// ```
/// # use lockfast::{Locks, Retry};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// let held = locks.mutex("account:123").lock().await?;
/// let patient = Retry { count: Some(2), base: Duration::from_millis(1), ..Retry::default() };
/// let busy = locks.mutex("account:123").retry(patient).lock().await.unwrap_err();
/// assert!(busy.to_string().contains("3 attempts"));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    /// How many attempts follow the first one; `None` for no limit.
    pub count: Option<usize>,
    /// The first pause; each later one is twice as long.
    pub base: Duration,
    /// The longest pause, before jitter.
    pub max: Duration,
    /// Makes each pause up to twice as long, at random, so that callers that were refused together do not retry together.
    pub jitter: bool,
}

impl Default for Retry {
    fn default() -> Self {
        Self { count: Some(10), base: Duration::from_millis(100), max: Duration::from_secs(5), jitter: true }
    }
}

impl Retry {
    /// One attempt.
    pub(crate) const ONCE: Self =
        Self { count: Some(0), base: Duration::from_millis(1), max: Duration::from_millis(1), jitter: false };

    fn check(&self) -> Result<()> {
        if self.base < Duration::from_millis(1) || self.max < self.base || self.max > LONGEST_TTL {
            return Err(Error::invalid(format!(
                "retry pauses from {:?} to {:?} make no sense; use a base of 1 ms or more and a max not below it",
                self.base, self.max
            )));
        }
        Ok(())
    }

    /// The pauses between attempts.
    pub(crate) fn pauses(&self) -> impl Iterator<Item = Duration> + Send {
        use backon::BackoffBuilder;
        let pauses =
            backon::ExponentialBuilder::new().with_min_delay(self.base).with_max_delay(self.max).with_factor(2.0);
        let pauses = if self.jitter { pauses.with_jitter() } else { pauses };
        match self.count {
            Some(count) => pauses.with_max_times(count).build(),
            None => pauses.without_max_times().build(),
        }
    }
}
