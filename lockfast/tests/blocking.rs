//! The blocking API, from plain threads: none of these tests has a runtime. The cases that every store must pass are in
//! `lockfast/src/conformance/blocking.rs`, run by `executors`; here is the rest, on the in-process store.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use lockfast::blocking::Locks;
use lockfast::{Error, LostWhy, Memory, Outcome};

/// How long a test waits for another thread before it fails.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Two clients of one store.
fn two_clients() -> (Locks, Locks) {
    let store = Arc::new(Memory::new());
    let client = || Locks::from(lockfast::Locks::new(store.clone()).unwrap());
    (client(), client())
}

/// Runs `work` on a thread of its own; the receiver gets its result.
fn run_on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    receiver
}

/// Waits until another thread has made `condition` true.
fn wait_until(mut condition: impl FnMut() -> bool) {
    // At one millisecond each, 20 s.
    for _ in 0..20_000 {
        if condition() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("the condition was not met in 20 s");
}

/// Each thread reads a number, yields, and writes one more: with two holders at once, an increment gets lost.
fn assert_no_increment_is_lost(lock: impl Fn(&Locks) -> lockfast::Result<lockfast::blocking::Guard> + Sync) {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 200;
    let (one, two) = two_clients();
    let number = AtomicU64::new(0);
    thread::scope(|threads| {
        for index in 0..THREADS {
            let locks = if index % 2 == 0 { &one } else { &two };
            threads.spawn(|| {
                for round in 0..ROUNDS {
                    let guard = lock(locks).unwrap();
                    let seen = number.load(Ordering::SeqCst);
                    thread::yield_now();
                    number.store(seen + 1, Ordering::SeqCst);
                    // The other half of the guards is released by their drop.
                    if round % 2 == 0 {
                        guard.release().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(number.into_inner(), THREADS * ROUNDS);
}

#[test]
fn threads_exclude_each_other_with_a_mutex() {
    assert_no_increment_is_lost(|locks| locks.mutex("a").lock());
}

#[test]
fn threads_exclude_each_other_with_patience() {
    assert_no_increment_is_lost(|locks| locks.mutex("a").lock_within(TIMEOUT));
}

#[test]
fn threads_exclude_each_other_with_a_write_lock() {
    assert_no_increment_is_lost(|locks| locks.rwlock("a").write());
}

#[test]
fn threads_exclude_each_other_with_the_only_permit() {
    assert_no_increment_is_lost(|locks| locks.semaphore("a", 1).acquire());
}

#[test]
fn threads_exclude_each_other_with_several_names() {
    assert_no_increment_is_lost(|locks| locks.multi(["a", "b"]).lock());
}

#[test]
fn no_runtime_is_needed() {
    let outcome = run_on_thread(|| {
        let has_runtime = tokio::runtime::Handle::try_current().is_ok();
        let locks = Locks::connect("memory:").unwrap();
        let guard = locks.mutex("a").lock().unwrap();
        let fence = guard.fence().unwrap();
        guard.extend(Duration::from_secs(60)).unwrap();
        guard.release().unwrap();
        locks.shutdown(TIMEOUT).unwrap();
        (has_runtime, fence, locks.mutex("a").lock().err())
    });
    let (has_runtime, fence, closed) = outcome.recv_timeout(TIMEOUT).unwrap();
    assert!(!has_runtime && fence > 0);
    assert!(matches!(closed, Some(Error::Closed(_))), "{closed:?}");
}

#[test]
fn a_try_fails_at_once_while_it_is_held() {
    let (one, two) = two_clients();
    let held = one.mutex("a").try_lock().unwrap().unwrap();
    assert!(two.mutex("a").try_lock().unwrap().is_none());
    assert!(two.mutex("a").is_locked().unwrap());
    assert_eq!(two.mutex("a").info().unwrap().unwrap().holders().count(), 1);
    assert_eq!(two.inspect("").unwrap().len(), 1);
    held.release().unwrap();
    assert!(!two.mutex("a").is_locked().unwrap());
    assert!(two.mutex("a").try_lock().unwrap().is_some());
}

#[test]
fn opposite_orders_do_not_deadlock() {
    let (one, two) = two_clients();
    thread::scope(|threads| {
        for (locks, names) in [(&one, ["a", "b"]), (&two, ["b", "a"])] {
            threads.spawn(move || {
                for _ in 0..100 {
                    locks.multi(names).lock_within(TIMEOUT).unwrap().release().unwrap();
                }
            });
        }
    });
}

#[test]
fn with_returns_lost_if_the_lock_was_lost_meanwhile() {
    let (one, two) = two_clients();
    assert!(one.mutex("a").with(|held| held.check().is_ok()).unwrap());
    assert!(!two.mutex("a").is_locked().unwrap());
    let capped = one.mutex("a").options(|it| it.hold_at_most(Duration::from_millis(20)));
    let lost = capped.with(|held| {
        wait_until(|| held.check().is_err());
        "done too late"
    });
    assert!(matches!(lost, Err(Error::Lost { why: LostWhy::HeldAtMost, .. })), "{lost:?}");
    drop(two.mutex("a").lock_within(TIMEOUT).unwrap());
}

#[test]
fn on_lost_runs_when_the_lock_is_broken() {
    let store = Arc::new(Memory::new());
    let operator = lockfast::Locks::new(store.clone()).unwrap();
    let locks = Locks::from(lockfast::Locks::new(store).unwrap());
    let broken = locks.mutex("a").with(|held| {
        let (sender, losses) = mpsc::channel();
        held.on_lost(move |why| sender.send(why).unwrap());
        let breaking = operator.break_lock("a", held.fence().unwrap());
        assert!(futures::executor::block_on(breaking).unwrap());
        losses.recv_timeout(TIMEOUT).unwrap()
    });
    assert!(matches!(broken, Err(Error::Lost { why: LostWhy::Broken, .. })), "{broken:?}");
}

#[test]
fn once_can_be_in_progress_and_can_fail() {
    let (one, two) = two_clients();
    let (let_fail, may_fail) = mpsc::channel::<()>();
    let (sender, has_begun) = mpsc::channel();
    let first = one.clone();
    let failed = run_on_thread(move || {
        first.once("a").run(|_| {
            sender.send(()).unwrap();
            may_fail.recv().unwrap();
            Err::<&str, _>(Error::invalid("no money"))
        })
    });
    has_begun.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(two.once("a").try_run(|_| Ok::<_, Error>("again")).unwrap(), Outcome::InProgress);
    assert_eq!(two.once("a").result().unwrap(), None);
    let_fail.send(()).unwrap();
    assert!(matches!(failed.recv_timeout(TIMEOUT).unwrap(), Err(Error::Invalid(_))));
    assert_eq!(two.once("a").run(|_| Ok::<_, Error>("paid")).unwrap(), Outcome::Ran("paid".into()));
    assert_eq!(one.once("a").try_run(|_| Ok::<_, Error>("again")).unwrap(), Outcome::AlreadyDone("paid".into()));
}

#[test]
fn once_remembers_nothing_if_its_lock_was_lost() {
    let (one, two) = two_clients();
    let capped = one.once("a").options(|it| it.hold_at_most(Duration::from_millis(20)));
    let lost = capped.run(|held| {
        wait_until(|| held.check().is_err());
        Ok::<_, Error>("too late")
    });
    assert!(matches!(lost, Err(Error::Lost { why: LostWhy::HeldAtMost, .. })), "{lost:?}");
    assert_eq!(two.once("a").result().unwrap(), None);
}

#[test]
fn the_work_of_once_may_take_other_locks() {
    let (one, two) = two_clients();
    let held = two.mutex("b").lock().unwrap();
    let locks = one.clone();
    let done = run_on_thread(move || {
        locks.once("a").run(|_| {
            let inner = locks.mutex("b").lock()?;
            let nested = locks.once("c").run(|_| Ok::<_, Error>("inner"))?;
            inner.release()?;
            Ok::<_, Error>(nested.into_value().unwrap())
        })
    });
    wait_until(|| one.stats().waiting == 1);
    held.release().unwrap();
    assert_eq!(done.recv_timeout(TIMEOUT).unwrap().unwrap(), Outcome::Ran("inner".into()));
}

#[test]
fn on_lost_runs_while_the_holding_thread_sleeps() {
    let (one, _) = two_clients();
    let is_lost = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_lost);
    let guard = one.mutex("a").options(|it| it.hold_at_most(Duration::from_millis(10))).lock().unwrap();
    guard.on_lost(move |_| flag.store(true, Ordering::SeqCst));
    wait_until(|| is_lost.load(Ordering::SeqCst));
    assert!(matches!(guard.release(), Err(Error::Lost { why: LostWhy::HeldAtMost, .. })));
}
