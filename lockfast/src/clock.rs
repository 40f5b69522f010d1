//! Time, in one place: the only file that reads a clock.
//!
//! Leases are judged by a clock that goes on while the machine is suspended (CLOCK_BOOTTIME on Linux): after a suspend, a
//! laptop or a virtual machine finds its locks expired. Wall-clock time is for people and for seeding tickets; it is never
//! compared with another machine's.

use std::fmt;
use std::future::poll_fn;
use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point on a [`Clock`], in nanoseconds since that clock began. Points of different clocks have nothing in common.
///
/// ```
/// # use lockfast::store::Moment;
/// # use std::time::Duration;
/// let later = Moment::START + Duration::from_secs(1);
/// assert_eq!(later.since(Moment::START), Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// Later than every deadline.
    pub const NEVER: Self = Self(u64::MAX);
    /// Earlier than every deadline.
    pub const START: Self = Self(0);

    /// The moment this many nanoseconds after the clock's beginning.
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's beginning.
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment `span` earlier, or the clock's beginning.
    pub(crate) fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(span))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NEVER => f.write_str("never"),
            Self(nanos) => write!(f, "{:?}", Duration::from_nanos(nanos)),
        }
    }
}

/// The clock that a client or the in-process store reads.
///
/// ```
/// # use lockfast::{Clock, ManualClock};
/// # use std::time::Duration;
/// let manual_clock = ManualClock::new();
/// let clock: Clock = manual_clock.clock();
/// let before = clock.now();
/// manual_clock.advance(Duration::from_secs(3600));
/// assert_eq!(clock.now().since(before), Duration::from_secs(3600));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Clock(Source);

#[derive(Clone, Debug, Default)]
enum Source {
    #[default]
    Boot,
    Manual(Arc<Manual>),
}

impl Clock {
    /// The machine's clock since boot, suspended time included.
    pub fn boot() -> Self {
        Self(Source::Boot)
    }

    /// Whether it is a [`ManualClock`].
    #[cfg(feature = "sqlite")]
    pub(crate) fn is_manual(&self) -> bool {
        matches!(self.0, Source::Manual(_))
    }

    /// The present moment.
    pub fn now(&self) -> Moment {
        match &self.0 {
            Source::Boot => Moment(machine::now()),
            Source::Manual(manual) => Moment(manual.now.load(Ordering::SeqCst)),
        }
    }

    /// The time of day, for people and for seeding tickets; never compared with another machine's.
    pub fn wall(&self) -> SystemTime {
        match &self.0 {
            #[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
            Source::Boot => SystemTime::now(),
            Source::Manual(manual) => {
                UNIX_EPOCH + MANUAL_EPOCH + Duration::from_nanos(manual.now.load(Ordering::SeqCst))
            }
        }
    }
}

/// A clock that stands still until [`advance`](Self::advance) is called: for tests of code that holds locks.
///
/// Give [`clock`](Self::clock) to the client and to the in-process store: then leases expire when the test advances it.
///
/// ```
/// # use lockfast::{Locks, ManualClock, Memory};
/// # use std::{sync::Arc, time::Duration};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let manual_clock = ManualClock::new();
/// let store = Arc::new(Memory::with_clock(manual_clock.clock()));
/// let locks = Locks::builder().clock(manual_clock.clock()).build(store)?;
/// let guard = locks.mutex("a").no_renewal().lock().await?;
/// manual_clock.advance(Duration::from_secs(31));
/// assert!(guard.check().is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<Manual>);

/// A manual clock shows a day in 2026, so fences that are seeded from it look like real ones.
const MANUAL_EPOCH: Duration = Duration::from_secs(1_767_225_600);

#[derive(Debug)]
struct Manual {
    /// In nanoseconds, as in [`Moment`].
    now: AtomicU64,
    sleepers: Mutex<Vec<Waker>>,
}

/// A manual clock starts at 1000 s, so that moments before its start can be represented.
const MANUAL_START_NANOS: u64 = 1_000_000_000_000;

impl Default for Manual {
    fn default() -> Self {
        Self { now: AtomicU64::new(MANUAL_START_NANOS), sleepers: Mutex::default() }
    }
}

impl ManualClock {
    /// A clock at an arbitrary moment, standing still.
    pub fn new() -> Self {
        Self::default()
    }

    /// The clock that this value advances.
    pub fn clock(&self) -> Clock {
        Clock(Source::Manual(Arc::clone(&self.0)))
    }

    /// Advances the clock and wakes the tasks that sleep on it. It does not wait for them: await what they do.
    pub fn advance(&self, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let add = |now: u64| Some(now.saturating_add(nanos));
        let _ = self.0.now.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
        let sleepers = std::mem::take(&mut *self.0.sleepers.lock().unwrap_or_else(PoisonError::into_inner));
        sleepers.into_iter().for_each(Waker::wake);
    }
}

/// Sleeps until a moment of one clock, inside a tokio runtime with its drivers enabled. On Linux it is a kernel timer
/// that goes on while the machine is suspended, so resuming does not make it late.
///
/// ```
/// # use lockfast::store::Timer;
/// # use lockfast::Clock;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let clock = Clock::boot();
/// let until = clock.now() + Duration::from_millis(5);
/// Timer::new(clock.clone()).sleep_until(until).await;
/// assert!(clock.now() >= until);
/// # }
/// ```
#[derive(Debug)]
pub struct Timer {
    clock: Clock,
    alarm: machine::Alarm,
}

impl Timer {
    /// A timer of this clock; it uses no kernel resource until it sleeps.
    pub fn new(clock: Clock) -> Self {
        Self { clock, alarm: machine::Alarm::default() }
    }

    /// Returns at `moment` or after, never before; [`Moment::NEVER`] sleeps until dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future changes nothing; the timer may be set to another moment.
    pub async fn sleep_until(&mut self, moment: Moment) {
        match &self.clock.0 {
            _ if moment == Moment::NEVER => std::future::pending().await,
            Source::Boot => {
                while machine::now() < moment.0 {
                    self.alarm.wait(moment.0).await;
                }
            }
            Source::Manual(manual) => {
                poll_fn(|cx| {
                    // Order matters: the waker is registered before the time is read, or an `advance` between the two
                    // would wake no task. One waker per task is enough, however often it polls.
                    let mut sleepers = manual.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
                    if !sleepers.iter().any(|sleeper| sleeper.will_wake(cx.waker())) {
                        sleepers.push(cx.waker().clone());
                    }
                    drop(sleepers);
                    if manual.now.load(Ordering::SeqCst) >= moment.0 { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
            }
        }
    }
}

#[cfg(target_os = "linux")]
mod machine {
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::time::{
        ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::unix::AsyncFd;

    pub(super) fn now() -> u64 {
        let time = clock_gettime(ClockId::Boottime);
        // A clock that counts from boot is never negative, and a `u64` holds 584 years of nanoseconds.
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    /// A kernel timer on CLOCK_BOOTTIME: if its time passes during a suspend, it fires as soon as the machine resumes.
    #[derive(Debug, Default)]
    pub(super) struct Alarm(Option<AsyncFd<OwnedFd>>);

    impl Alarm {
        pub(super) async fn wait(&mut self, until: u64) {
            if self.try_wait(until).await.is_none() {
                // No descriptor is available. Short sleeps keep the promise, at the price of frequent wake-ups.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }

        /// `None` if the kernel has no descriptor left.
        async fn try_wait(&mut self, until: u64) -> Option<()> {
            if self.0.is_none() {
                let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
                let timer = timerfd_create(TimerfdClockId::Boottime, flags).ok()?;
                #[expect(
                    deprecated,
                    reason = "unsound only for types that let go of their descriptor; OwnedFd does not"
                )]
                let timer = AsyncFd::new(timer).ok()?;
                self.0 = Some(timer);
            }
            let timer = self.0.as_ref()?;
            let one_shot = Itimerspec {
                it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
                it_value: Timespec { tv_sec: (until / 1_000_000_000) as i64, tv_nsec: (until % 1_000_000_000) as i64 },
            };
            // Setting the timer also clears an expiration of its earlier setting.
            timerfd_settime(timer.get_ref(), TimerfdTimerFlags::ABSTIME, &one_shot).ok()?;
            let mut ready = timer.readable().await.ok()?;
            let mut expiration_count = [0; 8];
            if rustix::io::read(timer.get_ref(), &mut expiration_count).is_err() {
                ready.clear_ready();
            }
            Some(())
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod machine {
    use std::sync::OnceLock;
    use std::time::{Duration, Instant};

    #[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
    pub(super) fn now() -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        let start = *START.get_or_init(Instant::now);
        // The clock starts at one hour, so that moments before the first reading can be represented.
        start.elapsed().as_nanos() as u64 + 3_600_000_000_000
    }

    #[derive(Debug, Default)]
    pub(super) struct Alarm;

    impl Alarm {
        /// Short sleeps, so that a late timer of the runtime costs milliseconds. Where `Instant` stands still during a suspend,
        /// leases are judged as if no time had passed; the documents say so.
        pub(super) async fn wait(&mut self, until: u64) {
            let left = Duration::from_nanos(until.saturating_sub(now()));
            tokio::time::sleep(left.min(Duration::from_millis(5))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_timer_never_returns_early() {
        let clock = Clock::boot();
        let mut timer = Timer::new(clock.clone());
        for millis in [1, 7, 3] {
            let until = clock.now() + Duration::from_millis(millis);
            timer.sleep_until(until).await;
            assert!(clock.now() >= until);
        }
    }

    #[tokio::test]
    async fn a_timer_set_earlier_again_fires_earlier() {
        let clock = Clock::boot();
        let mut timer = Timer::new(clock.clone());
        let start = clock.now();
        let long = timer.sleep_until(start + Duration::from_secs(600));
        assert!(tokio::time::timeout(Duration::from_millis(5), long).await.is_err());
        timer.sleep_until(start + Duration::from_millis(10)).await;
        assert!(clock.now().since(start) < Duration::from_secs(60));
    }

    #[tokio::test]
    async fn a_manual_clock_wakes_its_sleepers() {
        let manual_clock = ManualClock::new();
        let mut timer = Timer::new(manual_clock.clock());
        let until = manual_clock.clock().now() + Duration::from_secs(30);
        let sleeper = tokio::spawn(async move { timer.sleep_until(until).await });
        manual_clock.advance(Duration::from_secs(30));
        sleeper.await.unwrap();
    }

    #[test]
    fn a_manual_clock_stops_at_the_end_of_time_and_never_goes_back() {
        let manual_clock = ManualClock::new();
        let mut before = manual_clock.clock().now();
        for span in [Duration::MAX, Duration::from_nanos(u64::MAX), Duration::from_nanos(1)] {
            manual_clock.advance(span);
            assert!(manual_clock.clock().now() >= before, "after {span:?}");
            before = manual_clock.clock().now();
        }
    }
}
