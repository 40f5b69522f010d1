//! The locks of [`lockfast::blocking`](crate::blocking), from plain threads: no case awaits anything.
//!
//! [`conformance_of_executors!`](crate::conformance_of_executors!) runs them. Every call blocks its thread, so a case
//! waits for other threads with a limit.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;

use crate::blocking::wait::block_on;
use crate::blocking::{Guard, Locks};
use crate::client::Retry;
use crate::clock::Clock;
use crate::error::{Error, LostWhy};
use crate::primitives::Outcome;

use super::Time;
use super::fixture::{Fixture, LONG, expect_supported};

/// The limit for a result; only a failing case waits that long.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause before a thread checks a condition again.
const PAUSE: Duration = Duration::from_millis(1);
/// How many threads compete.
const THREADS: usize = 6;

/// Runs a future of the suite to its end, on this thread and without a runtime.
pub(super) fn wait_for<T>(work: impl Future<Output = T>) -> T {
    block_on(async { Ok::<_, Error>(work.await) }).expect("no case runs on a keeper's thread")
}

/// Another client.
fn client(fixture: &Fixture) -> Locks {
    Locks::from(wait_for(fixture.user()).locks())
}

fn two_clients(fixture: &Fixture) -> [Locks; 2] {
    [client(fixture), client(fixture)]
}

/// Runs `work` on a thread of its own.
fn spawn_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (sender, result) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    result
}

/// Runs `work` on [`THREADS`] threads at once, each with its number.
fn on_all_threads(work: impl Fn(usize) + Sync) {
    thread::scope(|threads| {
        let work = &work;
        let running: Vec<_> = (0..THREADS).map(|index| threads.spawn(move || work(index))).collect();
        // The panic's payload is kept: it may be [`super::NotPromised`].
        running.into_iter().for_each(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
    });
}

/// Acquires on a thread of its own, and returns when the store has acknowledged that the claim waits.
fn enqueue<T: Send + 'static>(locks: &Locks, acquire: impl FnOnce(Locks) -> T + Send + 'static) -> Receiver<T> {
    let (before, theirs) = (locks.stats().waiting, locks.clone());
    let result = spawn_thread(move || acquire(theirs));
    wait_until(|| locks.stats().waiting > before);
    result
}

/// Waits for the result of a thread.
fn join<T>(thread: &Receiver<T>) -> T {
    thread.recv_timeout(PATIENCE).expect("the thread has a result within half a minute")
}

/// Waits for the result of a thread. Where time is set, advances it meanwhile.
fn join_while_time_advances<T>(fixture: &Fixture, thread: &Receiver<T>) -> T {
    let since = Clock::boot().now();
    loop {
        match thread.recv_timeout(PAUSE) {
            Ok(value) => return value,
            Err(RecvTimeoutError::Disconnected) => panic!("the thread panicked"),
            Err(RecvTimeoutError::Timeout) if Clock::boot().now().since(since) < PATIENCE => {}
            Err(RecvTimeoutError::Timeout) => panic!("the thread has no result after half a minute"),
        }
        if fixture.time() == Time::Set {
            wait_for(fixture.advance_brief_ttls(0.02));
        }
    }
}

/// Waits until another thread has made the condition true.
fn wait_until(mut condition: impl FnMut() -> bool) {
    let since = Clock::boot().now();
    while !condition() {
        assert!(Clock::boot().now().since(since) < PATIENCE, "it does not happen");
        thread::sleep(PAUSE);
    }
}

/// Releases a guard that still holds.
fn release(guard: Guard) {
    expect_supported(guard.release());
}

fn is_free(locks: &Locks, name: &str) -> bool {
    !expect_supported(locks.mutex(name).is_locked())
}

/// Threads that read a number, let others run, and write one more under a lock lose no increment.
pub fn threads_never_overlap(fixture: &Fixture) {
    const ROUNDS: usize = 12;
    let (clients, number) = (two_clients(fixture), AtomicU64::new(0));
    let acquire = |locks: &Locks, round: usize| match round % 4 {
        0 => locks.mutex("a").lock(),
        1 => locks.rwlock("a").write(),
        2 => locks.multi(["a", "b"]).lock(),
        _ => locks.mutex("a").lock_within(PATIENCE),
    };
    on_all_threads(|index| {
        for round in index..index + ROUNDS {
            let guard = expect_supported(acquire(&clients[index % 2], round));
            let seen = number.load(Ordering::SeqCst);
            thread::yield_now();
            number.store(seen + 1, Ordering::SeqCst);
            match round % 2 {
                0 => release(guard),
                _ => drop(guard),
            }
        }
    });
    assert_eq!(number.into_inner(), (THREADS * ROUNDS) as u64);
}

/// A release hands the lock off to a waiting thread, whether the thread of the case releases or waits.
pub fn a_release_hands_the_lock_to_a_waiting_thread(fixture: &Fixture) {
    let [one, two] = two_clients(fixture);
    let held = expect_supported(one.mutex("a").lock());
    let before = expect_supported(held.fence());
    let waiter = enqueue(&two, |locks| locks.mutex("a").lock());
    assert!(waiter.try_recv().is_err());
    release(held);
    let held = expect_supported(join(&waiter));
    assert!(expect_supported(held.fence()) > before);

    let watched = one.clone();
    let releases = spawn_thread(move || {
        wait_until(|| watched.stats().waiting == 1);
        held.release()
    });
    release(expect_supported(one.mutex("a").lock()));
    expect_supported(join(&releases));
}

/// The error of `lock_within` names the holder, and the waiter's entry is withdrawn.
pub fn patience_ends_and_the_holder_is_named(fixture: &Fixture) {
    let [one, two] = two_clients(fixture);
    let held = expect_supported(one.mutex("a").options(|it| it.note("the first")).lock());
    let patience = fixture.brief_ttl().mul_f64(0.2);
    let waiter = spawn_thread({
        let two = two.clone();
        move || two.mutex("a").lock_within(patience)
    });
    match join_while_time_advances(fixture, &waiter) {
        Err(Error::Busy { name, holder, waited, .. }) => {
            assert_eq!(name.as_str(), "a");
            assert_eq!(holder.and_then(|it| it.note.text.clone()).as_deref(), Some("the first"));
            assert!(waited >= patience, "{waited:?}");
        }
        other => panic!("patience ended, and the result was {other:?}"),
    }
    assert_eq!(two.stats().waiting, 0);
    assert!(matches!(two.mutex("a").lock_within(Duration::ZERO), Err(Error::Busy { .. })));
    release(held);
    release(expect_supported(two.mutex("a").lock_within(PATIENCE)));
}

/// An acquisition with a retry policy ends after its number of attempts, and its pauses need no timer of a runtime.
pub fn attempts_end_after_their_count(fixture: &Fixture) {
    let [one, two] = two_clients(fixture);
    let held = expect_supported(one.mutex("a").lock());
    let retry = Retry { count: Some(2), base: PAUSE, max: PAUSE * 2, jitter: true };
    let request = spawn_thread(move || two.mutex("a").options(|it| it.retry(retry)).lock());
    let busy = join_while_time_advances(fixture, &request);
    assert!(matches!(busy, Err(Error::Busy { attempts: 3, .. })), "{busy:?}");
    release(held);
}

/// The weights of all holders never add up to more than the permits.
pub fn a_semaphore_never_exceeds_its_permits(fixture: &Fixture) {
    let (clients, held_weight) = (two_clients(fixture), AtomicI64::new(0));
    on_all_threads(|index| {
        for round in 0..9 {
            let weight = 1 + (index + round) as u32 % 2;
            let permits = expect_supported(clients[index % 2].semaphore("a", 3).acquire_many_within(weight, PATIENCE));
            let now = held_weight.fetch_add(weight.into(), Ordering::SeqCst) + i64::from(weight);
            assert!(now <= 3, "{now} held");
            thread::yield_now();
            held_weight.fetch_sub(weight.into(), Ordering::SeqCst);
            release(permits);
        }
    });
    let [one, two] = &clients;
    let held = expect_supported(one.semaphore("a", 3).acquire_many(2));
    assert!(expect_supported(two.semaphore("a", 3).try_acquire_many(2)).is_none());
    let third = expect_supported(two.semaphore("a", 3).acquire());
    assert!(expect_supported(one.semaphore("a", 3).try_acquire()).is_none());
    assert!(matches!(one.semaphore("a", 3).acquire_within(Duration::ZERO), Err(Error::Busy { .. })));
    release(held);
    release(third);
}

/// Readers hold together, a writer waits for all of them, and a reader behind a waiting writer waits too.
pub fn readers_share_and_a_writer_waits_for_them(fixture: &Fixture) {
    let [one, two] = two_clients(fixture);
    let (first, second) =
        (expect_supported(one.rwlock("a").read()), expect_supported(two.rwlock("a").read_within(PATIENCE)));
    assert!(expect_supported(one.rwlock("a").try_write()).is_none());
    assert!(matches!(two.rwlock("a").write_within(Duration::ZERO), Err(Error::Busy { .. })));
    let writer = enqueue(&two, |locks| locks.rwlock("a").write());
    assert!(expect_supported(one.rwlock("a").try_read()).is_none() || !fixture.guarantees().fair);
    release(first);
    assert!(writer.try_recv().is_err());
    release(second);
    let writing = expect_supported(join(&writer));
    assert!(expect_supported(one.rwlock("a").try_read()).is_none());
    release(writing);
    release(expect_supported(one.rwlock("a").read()));
}

/// A lock on several names takes all of them or none, and a waiter that gives up leaves every queue.
pub fn a_multi_is_all_or_nothing(fixture: &Fixture) {
    let [one, two] = two_clients(fixture);
    let both = expect_supported(one.multi(["a", "b"]).lock());
    for name in ["a", "b"] {
        assert!(expect_supported(two.mutex(name).try_lock()).is_none());
    }
    assert!(expect_supported(two.multi(["b", "c"]).try_lock()).is_none());
    assert!(matches!(two.multi(["b", "c"]).lock_within(Duration::ZERO), Err(Error::Busy { .. })));
    release(expect_supported(two.mutex("c").lock_within(PATIENCE)));
    let waiter = enqueue(&two, |locks| locks.multi(["c", "b"]).lock());
    release(both);
    let other = expect_supported(join(&waiter));
    release(expect_supported(one.mutex("a").lock()));
    assert!(expect_supported(one.mutex("c").try_lock()).is_none());
    release(other);
}

/// Of many threads that run the same `once` one does the work, which may take locks of its own; all get the result.
pub fn many_threads_run_it_once(fixture: &Fixture) {
    let (clients, times, ran) = (two_clients(fixture), AtomicU64::new(0), AtomicU64::new(0));
    on_all_threads(|index| {
        let locks = &clients[index % 2];
        let done = locks.once("a").options(|it| it.keep(LONG)).run(|held| {
            held.check()?;
            locks.mutex("b").lock()?.release()?;
            times.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Error>("paid")
        });
        let done = expect_supported(done);
        ran.fetch_add(u64::from(matches!(done, Outcome::Ran(_))), Ordering::SeqCst);
        assert_eq!(done.into_value(), Some("paid".into()));
    });
    assert_eq!((times.into_inner(), ran.into_inner()), (1, 1));
    assert_eq!(expect_supported(clients[1].once("a").result()), Some("paid".into()));
}

/// Of many threads that start a job one runs it: the lingering lock and the slot keep it from running twice.
pub fn one_of_many_threads_runs_the_job(fixture: &Fixture) {
    let (clients, times) = (two_clients(fixture), AtomicU64::new(0));
    on_all_threads(|index| {
        let job = || {
            times.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Error>(())
        };
        let locks = &clients[index % 2];
        let _ran =
            expect_supported(locks.cron("tidy").options(|it| it.at_least(fixture.brief_ttl() * 3)).run(|_| job()));
        let slots = locks.cron("report").options(|it| it.keep(LONG));
        let _outcome = expect_supported(slots.run_for("monday", |_| job()));
    });
    assert_eq!(times.into_inner(), 2, "one job and one slot");
}

/// A candidate's thread waits until the leader before it has stepped down.
pub fn the_next_candidate_leads_when_the_leader_steps_down(fixture: &Fixture) {
    let [one, two] = two_clients(fixture);
    assert!(expect_supported(one.election("a").leader()).is_none());
    let first = expect_supported(one.election("a").options(|it| it.note("first")).campaign());
    let leader = expect_supported(two.election("a").leader()).expect("the first leads");
    assert_eq!(leader.note.text.as_deref(), Some("first"));
    let candidate = enqueue(&two, |locks| locks.election("a").campaign());
    expect_supported(first.check());
    expect_supported(first.extend(LONG));
    let before = expect_supported(first.fence());
    expect_supported(first.step_down());
    let second = expect_supported(join(&candidate));
    assert!(expect_supported(second.fence()) > before);
    drop(second);
    wait_until(|| expect_supported(one.election("a").leader()).is_none());
}

/// A guard without renewal is lost when its lease ends, and a waiting thread gets the lock.
pub fn the_end_of_a_lease_is_noticed(fixture: &Fixture) {
    let [one, two] = two_clients(fixture);
    let brief = fixture.brief_ttl();
    let expiring = expect_supported(one.mutex("a").options(|it| it.ttl(brief).no_renewal()).lock());
    let (sender, lost) = mpsc::channel();
    expiring.on_lost(move |why| sender.send(why).expect("the case receives"));
    let waiter = enqueue(&two, |locks| locks.mutex("a").lock());
    assert_eq!(join_while_time_advances(fixture, &lost), LostWhy::Expired);
    assert!(expiring.check().is_err());
    let next = expect_supported(join_while_time_advances(fixture, &waiter));
    assert!(matches!(expiring.release(), Err(Error::Lost { why: LostWhy::Expired, .. })));
    expect_supported(next.check());
    release(next);
}

/// The holder and its waiters are shown to a third client.
pub fn a_queue_is_shown_while_threads_wait(fixture: &Fixture) {
    let ([one, two], third) = (two_clients(fixture), client(fixture));
    assert!(is_free(&third, "a"));
    let held = expect_supported(one.mutex("a").options(|it| it.label("job", "42")).lock());
    let waiter = enqueue(&two, |locks| locks.mutex("a").lock());
    let seen = expect_supported(third.mutex("a").info()).expect("it is held");
    let holder = seen.holders().next().expect("it is held");
    assert_eq!((holder.owner, seen.waiters().count()), (held.owner(), 1));
    assert_eq!(holder.note.labels, [("job".to_owned(), "42".to_owned())]);
    // A listing may be some time behind.
    wait_until(|| {
        if fixture.time() == Time::Set {
            wait_for(fixture.advance(Duration::from_millis(100)));
        }
        expect_supported(third.inspect("")).iter().any(|resource| resource.name.as_str() == "a")
    });
    release(held);
    release(expect_supported(join(&waiter)));
    wait_until(|| is_free(&third, "a"));
}

/// A guard that is dropped on any thread, also by a panic, releases its lock.
pub fn a_dropped_guard_is_released(fixture: &Fixture) {
    let [one, two] = two_clients(fixture);
    let held = expect_supported(one.mutex("a").lock());
    let waiter = enqueue(&two, |locks| locks.mutex("a").lock());
    drop(held);
    let held = expect_supported(join(&waiter));
    let panics = thread::spawn(move || {
        let _held = held;
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(panics.join().is_err());
    release(expect_supported(one.mutex("a").lock_within(PATIENCE)));
}

/// A shutdown releases all locks of its client, and a thread that waits through it gets `Closed`.
pub fn a_shutdown_ends_waiters_and_holders(fixture: &Fixture) {
    let [one, two] = two_clients(fixture);
    let (a, b) = (expect_supported(one.mutex("a").lock()), expect_supported(two.mutex("b").lock()));
    let closed = enqueue(&one, |locks| locks.mutex("b").lock());
    let waiter = enqueue(&two, |locks| locks.mutex("a").lock());
    expect_supported(one.shutdown(PATIENCE));
    assert!(matches!(join(&closed), Err(Error::Closed(_))));
    assert!(matches!(one.mutex("c").lock(), Err(Error::Closed(_))));
    assert!(a.check().is_err());
    release(expect_supported(join(&waiter)));
    release(b);
}

/// A client that was made in a tokio runtime, and its guard, work without one when that runtime is gone.
pub fn a_guard_outlives_the_runtime_it_was_acquired_in(fixture: &Fixture) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a test can make a runtime");
    let (user, held) = runtime.block_on(async {
        let user = fixture.user().await;
        let held = expect_supported(user.mutex("a").lock().await);
        (user, held)
    });
    drop(runtime);
    let (locks, other) = (Locks::from(user.locks()), client(fixture));
    let waiter = enqueue(&other, |locks| locks.mutex("a").lock());
    release(Guard::from(held));
    release(expect_supported(join(&waiter)));
    release(expect_supported(locks.mutex("a").lock()));
}

/// Any number of calls can follow each other in a task: tokio's cooperative budget, which makes a task yield, must not
/// block a thread that never yields.
pub fn a_thousand_calls_follow_each_other(fixture: &Fixture) {
    let [one, two] = two_clients(fixture);
    for round in 0..500 {
        let locks = if round % 2 == 0 { &one } else { &two };
        release(expect_supported(locks.mutex("a").lock()));
    }
}
