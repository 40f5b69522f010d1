//! How fast the store is, measured on a name that nobody else uses.

use std::time::Duration;

use lockfast::{Clock, Locks, Result};

use super::Check;

/// How often each thing is measured; half of them were quicker than what is shown.
const LOCKS: usize = 20;
const HAND_OFFS: usize = 5;
/// A store in which a free lock cannot be had in this time is out of order; whoever looks for the cause should not wait.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a hand-off may take before something is wrong with its messages: waiters that only ask take longer.
const PROMPT: Duration = Duration::from_millis(100);

/// A name of our own.
#[derive(Clone, Debug)]
pub(crate) struct Scratch(String);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(format!("lockfast-doctor:{}:{:08x}", std::process::id(), fastrand::u32(..)))
    }
}

/// How long a lock and its release take.
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

/// How long it takes until a waiter has what another client gives back.
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
        let gives = async {
            while one.mutex(name).info().await?.is_none_or(|line| line.waiters().next().is_none()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let began = clock.now();
            held.release().await?;
            Ok(began)
        };
        let ((guard, ended), began) = tokio::try_join!(waits, gives)?;
        spans.push(ended.since(began));
        guard.release().await?;
    }
    let half = median(&mut spans);
    let text = format!("a waiter has the lock {} after it was given back", precise(half));
    Ok(match (one.guarantees().push, half <= PROMPT) {
        (true, false) => {
            Check::wrong("hand-off", format!("{text}: messages do not arrive, and waiters find out by asking"))
        }
        (true, true) => Check::fine("hand-off", format!("{text}, by a message")),
        (false, _) => Check::note("hand-off", format!("{text}: this store sends no messages, waiters ask")),
    })
}

/// Sorts them, too.
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
    async fn what_is_measured_leaves_nothing_behind() {
        let store = Arc::new(Memory::new());
        let (one, other) = (Locks::new(store.clone()).unwrap(), Locks::new(store).unwrap());
        let scratch = Scratch::new();
        assert_eq!(latency(&one, &scratch).await.unwrap().verdict, Verdict::Fine);
        assert_eq!(hand_off(&one, &other, &scratch).await.unwrap().verdict, Verdict::Fine);
        assert!(one.inspect("").await.unwrap().is_empty());
    }
}
