//! The counters of one client: cheap enough to be always on.

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
    /// Acquisitions, and attempts, that found another holder or waiter there.
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

/// The counters of one client, and the distributions behind its [`Stats`].
#[derive(Debug)]
pub(super) struct ClientCounters {
    counters: Counters,
    held: u64,
    waiting: u64,
    wait: Histogram<u64>,
    hold: Histogram<u64>,
}

impl ClientCounters {
    pub(super) fn new() -> Self {
        // From a nanosecond to a day; a longer span counts as a day.
        let spans =
            || Histogram::new_with_bounds(1, 86_400_000_000_000, 2).expect("these bounds are within the limits");
        Self { counters: Counters::default(), held: 0, waiting: 0, wait: spans(), hold: spans() }
    }

    pub(super) fn add_waiting(&mut self) {
        self.counters.contended += 1;
        self.waiting += 1;
    }

    pub(super) fn remove_waiting(&mut self) {
        self.waiting -= 1;
    }

    pub(super) fn add_refused(&mut self) {
        self.counters.contended += 1;
    }

    pub(super) fn add_acquired(&mut self, waited: Duration) {
        self.counters.acquired += 1;
        self.held += 1;
        record_span(waited, &mut self.wait);
    }

    pub(super) fn add_lost(&mut self) {
        self.counters.lost += 1;
    }

    pub(super) fn add_released(&mut self, held_for: Duration, was_lost: bool) {
        self.held -= 1;
        self.counters.released += u64::from(!was_lost);
        record_span(held_for, &mut self.hold);
    }

    /// A hold became a token: this client has it no more, and the owner of the token gives it back.
    pub(super) fn add_let_go(&mut self, held_for: Duration) {
        self.held -= 1;
        record_span(held_for, &mut self.hold);
    }

    /// The hold of a token was given back.
    pub(super) fn add_token_released(&mut self) {
        self.counters.released += 1;
    }

    pub(super) fn totals(&self) -> Counters {
        self.counters
    }

    pub(super) fn stats(&self) -> Stats {
        let Counters { acquired, released, contended, lost } = self.counters;
        let (held, waiting) = (self.held, self.waiting);
        let (wait, hold) = (percentiles(&self.wait), percentiles(&self.hold));
        Stats { acquired, released, contended, lost, held, waiting, wait, hold }
    }
}

fn record_span(span: Duration, spans: &mut Histogram<u64>) {
    spans.saturating_record(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).max(1));
}

fn percentiles(spans: &Histogram<u64>) -> Percentiles {
    let at = |quantile| Duration::from_nanos(spans.value_at_quantile(quantile));
    Percentiles { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: Duration::from_nanos(spans.max()) }
}
