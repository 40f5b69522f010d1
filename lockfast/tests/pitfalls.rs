//! What surprises people, shown: not promises to be proud of, but facts that `docs/safety.md` tells.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use lockfast::store::{Atomic, Fenced, Shared, StoreClock, Survives};
use lockfast::{Clock, Error, Locks, LostWhy, Memory};

/// Longer than anything that happens takes.
const LONG: Duration = Duration::from_secs(10);
/// How long to wait for something that must not happen.
const SHORT: Duration = Duration::from_millis(50);

/// Two clients of one store.
fn two_clients() -> (Locks, Locks) {
    let store = Arc::new(Memory::new());
    let client = || Locks::new(store.clone()).expect("the operating system has a thread left");
    (client(), client())
}

#[tokio::test]
async fn locking_twice_waits_for_itself() {
    let locks = Locks::in_memory();
    let held = locks.mutex("a").lock().await.unwrap();
    let again = locks.mutex("a").lock_within(SHORT).await;
    let Err(Error::Busy { holder: Some(holder), .. }) = again else { panic!("{again:?}") };
    assert_eq!(holder.fence.0, held.fence().unwrap());
}

#[tokio::test(start_paused = true)]
async fn paused_time_ends_a_timeout_but_not_patience() {
    let (one, two) = two_clients();
    let _held = one.mutex("a").lock().await.unwrap();
    let clock = Clock::boot();
    let before = clock.now();
    assert!(tokio::time::timeout(Duration::from_secs(3600), two.mutex("a").lock()).await.is_err());
    assert!(clock.now().since(before) < Duration::from_secs(60));
    let before = clock.now();
    assert!(matches!(two.mutex("a").lock_within(SHORT).await, Err(Error::Busy { .. })));
    assert!(clock.now().since(before) >= SHORT);
}

#[tokio::test]
async fn a_guard_bound_to_an_underscore_is_released_at_once() {
    let (one, two) = two_clients();
    let _ = one.mutex("a").lock().await.unwrap();
    two.mutex("a").lock_within(LONG).await.unwrap().release().await.unwrap();
    // With a name, even one that begins with an underscore, it lives as long as its block.
    let _held = one.mutex("a").lock().await.unwrap();
    assert!(two.mutex("a").try_lock().await.unwrap().is_none());
}

#[tokio::test]
async fn a_leaked_guard_is_held_until_its_client_is_shut_down() {
    let (one, two) = two_clients();
    std::mem::forget(one.mutex("a").lock().await.unwrap());
    assert!(two.mutex("a").lock_within(SHORT).await.is_err());
    one.shutdown(LONG).await.unwrap();
    assert!(two.mutex("a").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn work_that_is_stopped_halfway_stays_half_done() {
    let locks = Locks::in_memory();
    let (from, to) = (Cell::new(100), Cell::new(0));
    let transfer = async |_: &_| {
        from.set(from.get() - 70);
        std::future::pending::<()>().await;
        to.set(to.get() + 70);
    };
    let stopped = locks.multi(["from", "to"]).hold_at_most(SHORT).with(transfer).await;
    assert!(matches!(stopped, Err(Error::Lost { why: LostWhy::HeldAtMost, .. })), "{stopped:?}");
    assert_eq!((from.get(), to.get()), (30, 0));
    // The lock is free again, although the transfer is half done.
    locks.multi(["from", "to"]).lock_within(LONG).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn the_in_process_store_says_that_it_is_not_shared() {
    let locks = Locks::connect("memory:").await.unwrap();
    let guarantees = locks.guarantees();
    assert_ne!(guarantees.shared, Shared::Network);
    assert_eq!((guarantees.shared, guarantees.survives), (Shared::Process, Survives::Nothing));
    assert_eq!((guarantees.fenced, guarantees.atomic), (Fenced::WhileClockSane, Atomic::Always));
    assert_eq!((guarantees.min_ttl, guarantees.clock), (Duration::from_millis(500), StoreClock::SinceBoot));
    assert!(guarantees.fair && guarantees.push);
}
