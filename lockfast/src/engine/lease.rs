//! How long a lock may be trusted, by the local clock: less than the store's lease, so that a holder that trusts it never holds
//! together with the next one.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Moment;
use crate::error::LostWhy;

/// How far the two clocks may drift apart during one lease, and how late a timer may be.
pub(crate) fn margin(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

/// Until when a lease is valid here that was asked for at `sent`. Counted from *before* the request was sent: the store
/// counts from when it ran, which is later.
pub(crate) fn valid_until(sent: Moment, ttl: Duration) -> Moment {
    sent + ttl.saturating_sub(margin(ttl))
}

/// The validity of a guard: a deadline that each check compares with the clock, never a flag that another task has to set.
///
/// 1. Once a look has found it over, it stays over: the look writes that down, and an extension that comes later gives way
///    to it.
/// 2. Granted and moved on only while the engine's mutex is held, in the order of the engine's decisions.
#[derive(Debug)]
pub struct Validity {
    /// Nanoseconds of the client's clock; 0 is over for good.
    until: AtomicU64,
    why: AtomicU8,
}

const OVER: u64 = 0;

impl Default for Validity {
    fn default() -> Self {
        Self::new()
    }
}

impl Validity {
    /// Over, until it is [granted](Self::grant).
    pub fn new() -> Self {
        Self { until: AtomicU64::new(OVER), why: AtomicU8::new(0) }
    }

    /// Begins a holder's time. `why` is how the hold is lost when the time is up.
    pub fn grant(&self, until: Moment, why: LostWhy) {
        self.because(why);
        self.until.store(until.as_nanos(), Ordering::Release);
    }

    pub fn until(&self) -> Moment {
        Moment::from_nanos(self.until.load(Ordering::Acquire))
    }

    pub fn is_over(&self, now: Moment) -> bool {
        let mut until = self.until.load(Ordering::Acquire);
        while until != OVER && now.as_nanos() >= until {
            // By 1: an extension between the load and this exchange wins, or finds it over. Never both.
            match self.until.compare_exchange(until, OVER, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => until = OVER,
                Err(moved) => until = moved,
            }
        }
        until == OVER
    }

    /// Moves the deadline on, unless the old one has passed. Never moves it back.
    pub fn extend(&self, until: Moment, why: LostWhy, now: Moment) -> bool {
        let mut old = self.until.load(Ordering::Acquire);
        loop {
            if old == OVER || now.as_nanos() >= old {
                return false;
            }
            let new = until.as_nanos().max(old);
            match self.until.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.because(why);
                    return true;
                }
                Err(moved) => old = moved,
            }
        }
    }

    /// Over from now on, whatever the deadline was.
    pub fn end(&self, why: LostWhy) {
        self.because(why);
        self.until.store(OVER, Ordering::Release);
    }

    fn because(&self, why: LostWhy) {
        let code = REASONS.iter().position(|it| *it == why).unwrap_or(0);
        self.why.store(code as u8, Ordering::Release);
    }

    /// How the hold is lost when it is over.
    pub fn why(&self) -> LostWhy {
        REASONS[usize::from(self.why.load(Ordering::Acquire))]
    }
}

const REASONS: [LostWhy; 5] =
    [LostWhy::Expired, LostWhy::Evicted, LostWhy::Broken, LostWhy::HeldAtMost, LostWhy::Shutdown];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_counts_from_sending_and_stays_below_the_lease() {
        let sent = Moment::from_nanos(1_000_000_000);
        for millis in [500, 1_000, 30_000, 3_600_000] {
            let ttl = Duration::from_millis(millis);
            let until = valid_until(sent, ttl);
            assert!(until < sent + ttl && until > sent + ttl * 9 / 10, "{ttl:?}");
        }
    }

    #[test]
    fn a_deadline_seen_over_stays_over() {
        let at = |nanos| Moment::from_nanos(nanos);
        let validity = Validity::new();
        assert!(validity.is_over(at(1)));
        validity.grant(at(100), LostWhy::Expired);
        assert!(!validity.is_over(at(99)));
        assert!(validity.extend(at(200), LostWhy::Expired, at(99)));
        assert!(validity.is_over(at(200)));
        // The keeper read its clock before the holder looked; its answer comes too late all the same.
        assert!(!validity.extend(at(300), LostWhy::Expired, at(199)));
        assert!(validity.is_over(at(201)));
    }

    #[test]
    fn an_extension_never_shortens() {
        let at = |nanos| Moment::from_nanos(nanos);
        let validity = Validity::new();
        validity.grant(at(900), LostWhy::Expired);
        assert!(validity.extend(at(200), LostWhy::Expired, at(100)));
        assert_eq!(validity.until(), at(900));
    }
}
