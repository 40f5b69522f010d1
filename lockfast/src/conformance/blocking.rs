//! The locks of [`lockfast::blocking`](crate::blocking), from plain threads: no case awaits anything.
//!
//! [`conformance_of_executors!`](crate::conformance_of_executors!) runs them. Each thread's calls block it; so what a case expects
//! of another thread it waits for with a limit.

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
use super::place::{LONG, Place, promised};

/// What takes longer than this does not come; only a failing case waits that long.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a thread pauses before it looks again.
const PAUSE: Duration = Duration::from_millis(1);
const THREADS: usize = 6;

/// What a future of the suite's own comes to, on this thread and without a runtime.
pub(super) fn answer<T>(work: impl Future<Output = T>) -> T {
    block_on(async { Ok::<_, Error>(work.await) }).expect("no case runs on a keeper's thread")
}

/// Another client.
fn client(place: &Place) -> Locks {
    Locks::from(answer(place.user()).locks())
}

fn two(place: &Place) -> [Locks; 2] {
    [client(place), client(place)]
}

/// Works on a thread of its own.
fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(work()));
    told
}

/// Works on [`THREADS`] threads at once, each with its number.
fn side_by_side(work: impl Fn(usize) + Sync) {
    thread::scope(|threads| {
        let work = &work;
        let running: Vec<_> = (0..THREADS).map(|index| threads.spawn(move || work(index))).collect();
        // A panic keeps what it carries, which may be that a store does not promise this.
        running.into_iter().for_each(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
    });
}

/// Asks on a thread of its own, and returns when the store has acknowledged that the claim waits.
fn waits<T: Send + 'static>(locks: &Locks, ask: impl FnOnce(Locks) -> T + Send + 'static) -> Receiver<T> {
    let (before, theirs) = (locks.stats().waiting, locks.clone());
    let told = elsewhere(move || ask(theirs));
    until(|| locks.stats().waiting > before);
    told
}

/// What a thread came to.
fn told<T>(told: &Receiver<T>) -> T {
    told.recv_timeout(PATIENCE).expect("the thread has an answer within half a minute")
}

/// What a thread came to, while time passes.
fn told_in_time<T>(place: &Place, told: &Receiver<T>) -> T {
    let since = Clock::boot().now();
    loop {
        match told.recv_timeout(PAUSE) {
            Ok(value) => return value,
            Err(RecvTimeoutError::Disconnected) => panic!("the thread panicked"),
            Err(RecvTimeoutError::Timeout) if Clock::boot().now().since(since) < PATIENCE => {}
            Err(RecvTimeoutError::Timeout) => panic!("the thread has no answer after half a minute"),
        }
        if place.time() == Time::Set {
            answer(place.pass(0.02));
        }
    }
}

/// Waits for what another thread does.
fn until(mut is_so: impl FnMut() -> bool) {
    let since = Clock::boot().now();
    while !is_so() {
        assert!(Clock::boot().now().since(since) < PATIENCE, "it does not happen");
        thread::sleep(PAUSE);
    }
}

/// A guard that is given back while it is held.
fn release(guard: Guard) {
    promised(guard.release());
}

fn is_free(locks: &Locks, name: &str) -> bool {
    !promised(locks.mutex(name).is_locked())
}

/// Each thread reads a number, lets others run, and writes one more: with two inside, some of it gets lost.
pub fn threads_never_overlap(place: &Place) {
    const ROUNDS: usize = 12;
    let (clients, number) = (two(place), AtomicU64::new(0));
    let enter = |locks: &Locks, round: usize| match round % 4 {
        0 => locks.mutex("a").lock(),
        1 => locks.rwlock("a").write(),
        2 => locks.multi(["a", "b"]).lock(),
        _ => locks.mutex("a").lock_within(PATIENCE),
    };
    side_by_side(|index| {
        for round in index..index + ROUNDS {
            let guard = promised(enter(&clients[index % 2], round));
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

/// Whether the thread of the case releases or waits.
pub fn a_release_hands_the_lock_to_a_waiting_thread(place: &Place) {
    let [one, two] = two(place);
    let held = promised(one.mutex("a").lock());
    let before = promised(held.fence());
    let waiter = waits(&two, |locks| locks.mutex("a").lock());
    assert!(waiter.try_recv().is_err());
    release(held);
    let held = promised(told(&waiter));
    assert!(promised(held.fence()) > before);

    let watched = one.clone();
    let releases = elsewhere(move || {
        until(|| watched.stats().waiting == 1);
        held.release()
    });
    release(promised(one.mutex("a").lock()));
    promised(told(&releases));
}

/// The answer of `lock_within` says which claim was in the way, and the waiter's entry is withdrawn.
pub fn patience_ends_and_the_holder_is_named(place: &Place) {
    let [one, two] = two(place);
    let held = promised(one.mutex("a").options(|it| it.note("the first")).lock());
    let patience = place.brief().mul_f64(0.2);
    let waiter = elsewhere({
        let two = two.clone();
        move || two.mutex("a").lock_within(patience)
    });
    match told_in_time(place, &waiter) {
        Err(Error::Busy { name, holder, waited, .. }) => {
            assert_eq!(name.as_str(), "a");
            assert_eq!(holder.and_then(|it| it.note.text.clone()).as_deref(), Some("the first"));
            assert!(waited >= patience, "{waited:?}");
        }
        other => panic!("patience ended, and the answer was {other:?}"),
    }
    assert_eq!(two.stats().waiting, 0);
    assert!(matches!(two.mutex("a").lock_within(Duration::ZERO), Err(Error::Busy { .. })));
    release(held);
    release(promised(two.mutex("a").lock_within(PATIENCE)));
}

/// The pauses between attempts need no timer of a runtime.
pub fn attempts_end_after_their_count(place: &Place) {
    let [one, two] = two(place);
    let held = promised(one.mutex("a").lock());
    let retry = Retry { count: Some(2), base: PAUSE, max: PAUSE * 2, jitter: true };
    let asking = elsewhere(move || two.mutex("a").options(|it| it.retry(retry)).lock());
    let busy = told_in_time(place, &asking);
    assert!(matches!(busy, Err(Error::Busy { attempts: 3, .. })), "{busy:?}");
    release(held);
}

/// The weights inside never add up to more than there is.
pub fn a_semaphore_never_exceeds_its_permits(place: &Place) {
    let (clients, inside) = (two(place), AtomicI64::new(0));
    side_by_side(|index| {
        for round in 0..9 {
            let weight = 1 + (index + round) as u32 % 2;
            let permits = promised(clients[index % 2].semaphore("a", 3).acquire_many_within(weight, PATIENCE));
            let now = inside.fetch_add(weight.into(), Ordering::SeqCst) + i64::from(weight);
            assert!(now <= 3, "{now} inside");
            thread::yield_now();
            inside.fetch_sub(weight.into(), Ordering::SeqCst);
            release(permits);
        }
    });
    let [one, two] = &clients;
    let held = promised(one.semaphore("a", 3).acquire_many(2));
    assert!(promised(two.semaphore("a", 3).try_acquire_many(2)).is_none());
    let third = promised(two.semaphore("a", 3).acquire());
    assert!(promised(one.semaphore("a", 3).try_acquire()).is_none());
    assert!(matches!(one.semaphore("a", 3).acquire_within(Duration::ZERO), Err(Error::Busy { .. })));
    release(held);
    release(third);
}

/// A reader that comes behind a waiting writer waits too.
pub fn readers_share_and_a_writer_waits_for_them(place: &Place) {
    let [one, two] = two(place);
    let (first, second) = (promised(one.rwlock("a").read()), promised(two.rwlock("a").read_within(PATIENCE)));
    assert!(promised(one.rwlock("a").try_write()).is_none());
    assert!(matches!(two.rwlock("a").write_within(Duration::ZERO), Err(Error::Busy { .. })));
    let writer = waits(&two, |locks| locks.rwlock("a").write());
    assert!(promised(one.rwlock("a").try_read()).is_none() || !place.guarantees().fair);
    release(first);
    assert!(writer.try_recv().is_err());
    release(second);
    let writing = promised(told(&writer));
    assert!(promised(one.rwlock("a").try_read()).is_none());
    release(writing);
    release(promised(one.rwlock("a").read()));
}

/// All of the names, or none of them; a waiter that gives up leaves every queue.
pub fn a_multi_is_all_or_nothing(place: &Place) {
    let [one, two] = two(place);
    let both = promised(one.multi(["a", "b"]).lock());
    for name in ["a", "b"] {
        assert!(promised(two.mutex(name).try_lock()).is_none());
    }
    assert!(promised(two.multi(["b", "c"]).try_lock()).is_none());
    assert!(matches!(two.multi(["b", "c"]).lock_within(Duration::ZERO), Err(Error::Busy { .. })));
    release(promised(two.mutex("c").lock_within(PATIENCE)));
    let waiter = waits(&two, |locks| locks.multi(["c", "b"]).lock());
    release(both);
    let other = promised(told(&waiter));
    release(promised(one.mutex("a").lock()));
    assert!(promised(one.mutex("c").try_lock()).is_none());
    release(other);
}

/// However many threads deliver it, one runs it; work that is done once may take locks of its own.
pub fn many_threads_run_it_once(place: &Place) {
    let (clients, times, ran) = (two(place), AtomicU64::new(0), AtomicU64::new(0));
    side_by_side(|index| {
        let locks = &clients[index % 2];
        let done = locks.once("a").options(|it| it.keep(LONG)).run(|held| {
            held.check()?;
            locks.mutex("b").lock()?.release()?;
            times.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Error>("paid")
        });
        let done = promised(done);
        ran.fetch_add(u64::from(matches!(done, Outcome::Ran(_))), Ordering::SeqCst);
        assert_eq!(done.into_value(), Some("paid".into()));
    });
    assert_eq!((times.into_inner(), ran.into_inner()), (1, 1));
    assert_eq!(promised(clients[1].once("a").result()), Some("paid".into()));
}

/// All threads start the job; the slot and the lingering lock keep it from running twice.
pub fn one_of_many_threads_runs_the_job(place: &Place) {
    let (clients, times) = (two(place), AtomicU64::new(0));
    side_by_side(|index| {
        let job = || {
            times.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Error>(())
        };
        let locks = &clients[index % 2];
        let _ran = promised(locks.cron("tidy").options(|it| it.at_least(place.brief() * 3)).run(|_| job()));
        let slots = locks.cron("report").options(|it| it.keep(LONG));
        let _outcome = promised(slots.run_for("monday", |_| job()));
    });
    assert_eq!(times.into_inner(), 2, "one job and one slot");
}

/// A candidate waits on its thread until it leads.
pub fn the_next_candidate_leads_when_the_leader_steps_down(place: &Place) {
    let [one, two] = two(place);
    assert!(promised(one.election("a").leader()).is_none());
    let first = promised(one.election("a").options(|it| it.note("first")).campaign());
    let leader = promised(two.election("a").leader()).expect("the first leads");
    assert_eq!(leader.note.text.as_deref(), Some("first"));
    let candidate = waits(&two, |locks| locks.election("a").campaign());
    promised(first.check());
    promised(first.extend(LONG));
    let before = promised(first.fence());
    promised(first.step_down());
    let second = promised(told(&candidate));
    assert!(promised(second.fence()) > before);
    drop(second);
    until(|| promised(one.election("a").leader()).is_none());
}

/// A guard that is not renewed is lost when its lease ends, and a waiting thread gets the lock.
pub fn the_end_of_a_lease_is_noticed(place: &Place) {
    let [one, two] = two(place);
    let brief = place.brief();
    let lapses = promised(one.mutex("a").options(|it| it.ttl(brief).no_renewal()).lock());
    let (tell, lost) = mpsc::channel();
    lapses.on_lost(move |why| tell.send(why).expect("the case listens"));
    let waiter = waits(&two, |locks| locks.mutex("a").lock());
    assert_eq!(told_in_time(place, &lost), LostWhy::Expired);
    assert!(lapses.check().is_err());
    let next = promised(told_in_time(place, &waiter));
    assert!(matches!(lapses.release(), Err(Error::Lost { why: LostWhy::Expired, .. })));
    promised(next.check());
    release(next);
}

/// The holder and its waiters are shown to a third client.
pub fn a_queue_is_shown_while_threads_wait(place: &Place) {
    let ([one, two], third) = (two(place), client(place));
    assert!(is_free(&third, "a"));
    let held = promised(one.mutex("a").options(|it| it.label("job", "42")).lock());
    let waiter = waits(&two, |locks| locks.mutex("a").lock());
    let seen = promised(third.mutex("a").info()).expect("it is held");
    let holder = seen.holders().next().expect("it is held");
    assert_eq!((holder.owner, seen.waiters().count()), (held.owner(), 1));
    assert_eq!(holder.note.labels, [("job".to_owned(), "42".to_owned())]);
    // A listing may be some time behind.
    until(|| {
        if place.time() == Time::Set {
            answer(place.pass_time(Duration::from_millis(100)));
        }
        promised(third.inspect("")).iter().any(|resource| resource.name.as_str() == "a")
    });
    release(held);
    release(promised(told(&waiter)));
    until(|| is_free(&third, "a"));
}

/// Dropped on any thread, also by a panic.
pub fn a_dropped_guard_is_given_back(place: &Place) {
    let [one, two] = two(place);
    let held = promised(one.mutex("a").lock());
    let waiter = waits(&two, |locks| locks.mutex("a").lock());
    drop(held);
    let held = promised(told(&waiter));
    let panics = thread::spawn(move || {
        let _held = held;
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(panics.join().is_err());
    release(promised(one.mutex("a").lock_within(PATIENCE)));
}

/// A shutdown gives back what its client holds, and a thread that waits through it hears that it is closed.
pub fn a_shutdown_ends_what_waits_and_what_is_held(place: &Place) {
    let [one, two] = two(place);
    let (a, b) = (promised(one.mutex("a").lock()), promised(two.mutex("b").lock()));
    let closed = waits(&one, |locks| locks.mutex("b").lock());
    let waiter = waits(&two, |locks| locks.mutex("a").lock());
    promised(one.shutdown(PATIENCE));
    assert!(matches!(told(&closed), Err(Error::Closed(_))));
    assert!(matches!(one.mutex("c").lock(), Err(Error::Closed(_))));
    assert!(a.check().is_err());
    release(promised(told(&waiter)));
    release(b);
}

/// A client that was made in a tokio runtime, and its guard, are used without one when that runtime is gone.
pub fn a_guard_outlives_the_runtime_it_was_acquired_in(place: &Place) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a test can make a runtime");
    let (user, held) = runtime.block_on(async {
        let user = place.user().await;
        let held = promised(user.mutex("a").lock().await);
        (user, held)
    });
    drop(runtime);
    let (locks, other) = (Locks::from(user.locks()), client(place));
    let waiter = waits(&other, |locks| locks.mutex("a").lock());
    release(Guard::from(held));
    release(promised(told(&waiter)));
    release(promised(locks.mutex("a").lock()));
}

/// A task of a tokio runtime may poll so often before its runtime makes it yield. A thread that blocks never yields, and must not
/// wait for that.
pub fn a_thousand_calls_follow_each_other(place: &Place) {
    let [one, two] = two(place);
    for round in 0..500 {
        let locks = if round % 2 == 0 { &one } else { &two };
        release(promised(locks.mutex("a").lock()));
    }
}
