//! How fast the store is, measured on a name that no other client uses.

use std::time::Duration;

use lockfast::{Clock, Locks, Result};

use super::Check;

/// How often each duration is measured; the median is shown.
const LOCKS: usize = 20;
const HAND_OFFS: usize = 5;
/// A store in which acquiring a free lock takes longer is out of order, and `doctor` should report that soon.
const PATIENCE: Duration = Duration::from_secs(10);
/// A hand-off by a notification is quicker than this; waiters that only poll take longer.
const PROMPT: Duration = Duration::from_millis(100);

/// A name that no other client uses.
#[derive(Clone, Debug)]
pub(crate) struct Scratch(String);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(format!("lockfast-doctor:{}:{:08x}", std::process::id(), fastrand::u32(..)))
    }
}

/// How long acquiring and releasing a free lock take.
pub(crate) async fn latency(locks: &Locks, Scratch(name): &Scratch) -> Result<Check> {
    let clock = Clock::boot();
    let mut spans = Vec::new();
    for _ in 0..LOCKS {
        let began = clock.now();
        locks.mutex(name).lock_within(PATIENCE).await?.release().await?;
        spans.push(clock.now().since(began));
    }
    let (half, longest) = (median(&mut spans), spans.last().copied().unwrap_or_default());
    Ok(Check::fine("latency", format!("lock and release in {} (at most {})", precise(half), precise(longest))))
}

/// How long a hand-off takes: from the holder's release until a waiter of another client has the lock.
pub(crate) async fn hand_off(one: &Locks, other: &Locks, Scratch(name): &Scratch) -> Result<Check> {
    let clock = Clock::boot();
    let mut spans = Vec::new();
    for _ in 0..HAND_OFFS {
        let held = one.mutex(name).lock_within(PATIENCE).await?;
        let mutex = other.mutex(name);
        let waits = async {
            let guard = mutex.lock_within(PATIENCE).await?;
            Ok((guard, clock.now()))
        };
        let releases = async {
            while one.mutex(name).info().await?.is_none_or(|resource| resource.waiters().next().is_none()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let began = clock.now();
            held.release().await?;
            Ok(began)
        };
        let ((guard, ended), began) = tokio::try_join!(waits, releases)?;
        spans.push(ended.since(began));
        guard.release().await?;
    }
    let half = median(&mut spans);
    let text = format!("a waiter has the lock {} after its release", precise(half));
    Ok(match (one.guarantees().push, half <= PROMPT) {
        (true, false) => {
            Check::wrong("hand-off", format!("{text}: notifications do not arrive, and waiters have to poll"))
        }
        (true, true) => Check::fine("hand-off", format!("{text}, by a notification")),
        (false, _) => Check::note("hand-off", format!("{text}: this store sends no notifications, waiters poll")),
    })
}

/// Also sorts the slice.
fn median(spans: &mut [Duration]) -> Duration {
    spans.sort_unstable();
    spans.get(spans.len() / 2).copied().unwrap_or_default()
}

pub(super) fn precise(span: Duration) -> String {
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
        assert_eq!(latency(&one, &scratch).await.unwrap().verdict, Verdict::Fine);
        assert_eq!(hand_off(&one, &other, &scratch).await.unwrap().verdict, Verdict::Fine);
        assert!(one.inspect("").await.unwrap().is_empty());
    }
}
