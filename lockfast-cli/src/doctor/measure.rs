//! How fast the store is, measured on a name that no other client uses.

use std::time::Duration;

use lockfast::{Clock, Locks, Result};

use super::Check;

/// How often each duration is measured; the median is shown.
const LATENCY_SAMPLES: usize = 20;
const HAND_OFF_SAMPLES: usize = 5;
/// A store in which acquiring a free lock takes longer is out of order, and `doctor` should report that soon.
const PATIENCE: Duration = Duration::from_secs(10);
/// A hand-off by a notification takes less than this; a hand-off to a waiter that only polls takes longer.
const MAX_NOTIFIED_HAND_OFF: Duration = Duration::from_millis(100);

/// A name that no other client uses.
#[derive(Clone, Debug)]
pub(crate) struct Scratch(String);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(format!("lockfast-doctor:{}:{:08x}", std::process::id(), fastrand::u32(..)))
    }
}

/// Measures how long acquiring and releasing a free lock take.
pub(crate) async fn measure_latency(locks: &Locks, Scratch(name): &Scratch) -> Result<Check> {
    let clock = Clock::boot();
    let mut spans = Vec::new();
    for _ in 0..LATENCY_SAMPLES {
        let began = clock.now();
        locks.mutex(name).lock_within(PATIENCE).await?.release().await?;
        spans.push(clock.now().since(began));
    }
    let (median, longest) = (sort_to_median(&mut spans), spans.last().copied().unwrap_or_default());
    Ok(Check::fine("latency", format!("lock and release in {} (at most {})", in_millis(median), in_millis(longest))))
}

/// Measures how long a hand-off takes: from the release by client `holder` until client `waiter` has the lock.
pub(crate) async fn measure_hand_off(holder: &Locks, waiter: &Locks, Scratch(name): &Scratch) -> Result<Check> {
    let clock = Clock::boot();
    let mut spans = Vec::new();
    for _ in 0..HAND_OFF_SAMPLES {
        let held = holder.mutex(name).lock_within(PATIENCE).await?;
        let mutex = waiter.mutex(name);
        let wait = async {
            let guard = mutex.lock_within(PATIENCE).await?;
            Ok((guard, clock.now()))
        };
        let release = async {
            while holder.mutex(name).info().await?.is_none_or(|resource| resource.waiters().next().is_none()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let began = clock.now();
            held.release().await?;
            Ok(began)
        };
        let ((guard, ended), began) = tokio::try_join!(wait, release)?;
        spans.push(ended.since(began));
        guard.release().await?;
    }
    let median = sort_to_median(&mut spans);
    let text = format!("a waiter has the lock {} after its release", in_millis(median));
    Ok(match (holder.guarantees().push, median <= MAX_NOTIFIED_HAND_OFF) {
        (true, false) => {
            Check::wrong("hand-off", format!("{text}: notifications do not arrive, and waiters have to poll"))
        }
        (true, true) => Check::fine("hand-off", format!("{text}, by a notification")),
        (false, _) => Check::note("hand-off", format!("{text}: this store sends no notifications, waiters poll")),
    })
}

/// Sorts the spans and returns the one in the middle.
fn sort_to_median(spans: &mut [Duration]) -> Duration {
    spans.sort_unstable();
    spans.get(spans.len() / 2).copied().unwrap_or_default()
}

pub(super) fn in_millis(span: Duration) -> String {
    format!("{:.2} ms", span.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lockfast::Memory;

    use crate::doctor::Verdict;

    use super::*;

    #[tokio::test]
    async fn measuring_leaves_no_entry_behind() {
        let store = Arc::new(Memory::new());
        let (one, other) = (Locks::new(store.clone()).unwrap(), Locks::new(store).unwrap());
        let scratch = Scratch::new();
        assert_eq!(measure_latency(&one, &scratch).await.unwrap().verdict, Verdict::Fine);
        assert_eq!(measure_hand_off(&one, &other, &scratch).await.unwrap().verdict, Verdict::Fine);
        assert!(one.inspect("").await.unwrap().is_empty());
    }
}
