//! True time, which only the world knows, and the clocks that engines and the store read instead.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

use lockfast::store::Moment;

/// A point of true time, in nanoseconds. Worlds begin at [`Time::BEGINNING`], so that "long before" exists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    /// When worlds begin.
    pub const BEGINNING: Self = Self(1_000_000_000_000);
    /// Later than every event.
    pub const NEVER: Self = Self(u64::MAX);

    /// How long after `earlier` this is; zero when it is not after.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NEVER => f.write_str("never"),
            at => write!(f, "{:.6}s", at.since(Self::BEGINNING).as_secs_f64()),
        }
    }
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// A clock with an offset that runs a little too fast or too slow. It never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// Its reading at true time zero, in nanoseconds.
    pub offset: u64,
    /// How much too fast it runs, in parts of 2^20 (about a millionth).
    pub drift: i32,
}

impl Skew {
    /// Its reading at `time`.
    pub fn local(self, time: Time) -> Moment {
        let extra = (time.0 as i64).wrapping_mul(i64::from(self.drift)) >> 20;
        Moment::from_nanos((self.offset + time.0).wrapping_add_signed(extra))
    }

    /// The first true time at which it shows `moment` or more.
    pub fn time_of(self, moment: Moment) -> Time {
        if moment == Moment::NEVER {
            return Time::NEVER;
        }
        let mut time = Time(moment.as_nanos().saturating_sub(self.offset));
        // Each round leaves less than a hundredth of the error, since the drift is below that.
        loop {
            let shown = self.local(time).as_nanos();
            let next = (time.0 as i64 + (moment.as_nanos() as i64 - shown as i64)).max(0) as u64;
            if next == time.0 || shown.abs_diff(moment.as_nanos()) <= 1 {
                break;
            }
            time = Time(next);
        }
        while self.local(time) < moment {
            time.0 += 1;
        }
        while time.0 > 0 && self.local(Time(time.0 - 1)) >= moment {
            time.0 -= 1;
        }
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_shown_at_its_time_and_not_before() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..10_000 {
            let skew = Skew { offset: random.u64(0..1 << 50), drift: random.i32(-4000..4000) };
            let moment = Moment::from_nanos(skew.offset + random.u64(0..1 << 44));
            let time = skew.time_of(moment);
            assert!(skew.local(time) >= moment, "{skew:?} {moment:?}");
            assert!(time.0 == 0 || skew.local(Time(time.0 - 1)) < moment, "{skew:?} {moment:?}");
        }
    }
}
