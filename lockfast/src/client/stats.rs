//! What this client counts about itself: cheap enough to be always on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::store::Counters;

/// A client's own figures since it was made.
///
/// ```
/// # use lockfast::Locks;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let locks = Locks::in_memory();
/// locks.mutex("account:123").lock().await?.release().await?;
/// let stats = locks.stats();
/// assert_eq!((stats.acquired, stats.released, stats.held), (1, 1, 0));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Locks acquired.
    pub acquired: u64,
    /// Locks given back.
    pub released: u64,
    /// Acquisitions, and attempts, that found somebody else there.
    pub contended: u64,
    /// Locks lost while held.
    pub lost: u64,
    /// Held now.
    pub held: u64,
    /// Waiting now.
    pub waiting: u64,
    /// How long acquiring took.
    pub wait: Percentiles,
    /// How long locks were held.
    pub hold: Percentiles,
}

/// A distribution of durations, to about one part in a hundred.
///
/// ```
/// # use lockfast::Locks;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// locks.mutex("a").lock().await?.release().await?;
/// let wait = locks.stats().wait;
/// assert!(wait.p50 <= wait.p99 && wait.p99 <= wait.max);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Percentiles {
    /// Half were shorter.
    pub p50: Duration,
    /// Nine in ten were shorter.
    pub p90: Duration,
    /// Ninety-nine in a hundred were shorter.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

#[derive(Debug)]
pub(crate) struct Tally {
    acquired: AtomicU64,
    released: AtomicU64,
    contended: AtomicU64,
    lost: AtomicU64,
    held: AtomicU64,
    waiting: AtomicU64,
    spans: Mutex<Spans>,
}

#[derive(Debug)]
struct Spans {
    wait: Histogram<u64>,
    hold: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        // From a nanosecond to a day; what is longer counts as a day.
        let spans =
            || Histogram::new_with_bounds(1, 86_400_000_000_000, 2).expect("these bounds are within the limits");
        Self {
            acquired: AtomicU64::new(0),
            released: AtomicU64::new(0),
            contended: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            held: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            spans: Mutex::new(Spans { wait: spans(), hold: spans() }),
        }
    }

    pub(crate) fn began_waiting(&self) {
        self.contended.fetch_add(1, Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stopped_waiting(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) {
        self.contended.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn acquired(&self, waited: Duration) {
        self.acquired.fetch_add(1, Ordering::Relaxed);
        self.held.fetch_add(1, Ordering::Relaxed);
        self.note(waited, |spans| &mut spans.wait);
    }

    pub(crate) fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn released(&self, held: Duration, was_lost: bool) {
        self.held.fetch_sub(1, Ordering::Relaxed);
        if !was_lost {
            self.released.fetch_add(1, Ordering::Relaxed);
        }
        self.note(held, |spans| &mut spans.hold);
    }

    /// A hold became a token: this client has it no more, and somebody will give it back.
    pub(crate) fn let_go(&self, held: Duration) {
        self.held.fetch_sub(1, Ordering::Relaxed);
        self.note(held, |spans| &mut spans.hold);
    }

    /// What a token held was given back.
    pub(crate) fn given_back(&self) {
        self.released.fetch_add(1, Ordering::Relaxed);
    }

    fn note(&self, span: Duration, of: impl Fn(&mut Spans) -> &mut Histogram<u64>) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).max(1);
        of(&mut self.spans.lock().unwrap_or_else(PoisonError::into_inner)).saturating_record(nanos);
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters {
            acquired: self.acquired.load(Ordering::Relaxed),
            released: self.released.load(Ordering::Relaxed),
            contended: self.contended.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let Counters { acquired, released, contended, lost } = self.counters();
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        Stats {
            acquired,
            released,
            contended,
            lost,
            held: self.held.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            wait: percentiles(&spans.wait),
            hold: percentiles(&spans.hold),
        }
    }
}

fn percentiles(spans: &Histogram<u64>) -> Percentiles {
    let at = |quantile| Duration::from_nanos(spans.value_at_quantile(quantile));
    Percentiles { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: Duration::from_nanos(spans.max()) }
}
