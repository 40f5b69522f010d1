//! Which guards exist at the same time, across clients and tasks, for every kind of lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Barrier;

use crate::client::Guard;
use crate::error::Result;
use crate::primitives::Locks;

use super::super::fixture::{Fixture, expect_supported};
use super::user::{User, join_all, soon};

/// Acquires the name "a" in one of several ways.
type AcquireFn = fn(Locks) -> BoxFuture<'static, Result<Guard>>;

/// How many tasks of each user compete.
const TASKS: usize = 4;

fn as_mutex(locks: Locks) -> BoxFuture<'static, Result<Guard>> {
    async move { locks.mutex("a").lock().await }.boxed()
}

fn as_writer(locks: Locks) -> BoxFuture<'static, Result<Guard>> {
    async move { locks.rwlock("a").write().await }.boxed()
}

fn as_only_permit(locks: Locks) -> BoxFuture<'static, Result<Guard>> {
    async move { locks.semaphore("a", 1).acquire().await }.boxed()
}

fn as_multi(locks: Locks) -> BoxFuture<'static, Result<Guard>> {
    async move { locks.multi(["a"]).lock().await }.boxed()
}

/// Each task reads a number, lets others run, and writes one more: with two holders at once, increments get lost.
async fn assert_no_lost_increments(fixture: &Fixture, ways: &'static [AcquireFn]) {
    let (number, rounds) = (Arc::new(AtomicU64::new(0)), fixture.rounds(9));
    let increment = |user: User, first: usize| {
        let number = Arc::clone(&number);
        async move {
            for round in 0..rounds {
                let guard = expect_supported(ways[(first + round) % ways.len()](user.locks()).await);
                let seen = number.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                number.store(seen + 1, Ordering::SeqCst);
                user.release(guard).await;
            }
        }
    };
    let users = fixture.three_users().await;
    let tasks = users.iter().flat_map(|user| (0..TASKS).map(|task| increment(user.clone(), task)));
    join_all(tasks.collect::<Vec<_>>()).await;
    assert_eq!(number.load(Ordering::SeqCst), (users.len() * TASKS * rounds) as u64);
}

/// A mutex has one holder at a time.
pub async fn a_mutex_excludes(fixture: &Fixture) {
    assert_no_lost_increments(fixture, &[as_mutex]).await;
}

/// A semaphore of one permit has one holder at a time.
pub async fn a_semaphore_of_one_excludes(fixture: &Fixture) {
    assert_no_lost_increments(fixture, &[as_only_permit]).await;
}

/// A write lock has one holder at a time.
pub async fn a_write_lock_excludes(fixture: &Fixture) {
    assert_no_lost_increments(fixture, &[as_writer]).await;
}

/// A lock on a list of one name has one holder at a time.
pub async fn a_multi_of_one_excludes(fixture: &Fixture) {
    assert_no_lost_increments(fixture, &[as_multi]).await;
}

/// A mutex, a write lock and a multi on one name share one queue, and exclude each other.
pub async fn a_mutex_a_write_lock_and_a_multi_exclude_each_other(fixture: &Fixture) {
    assert_no_lost_increments(fixture, &[as_mutex, as_writer, as_multi]).await;
}

/// Readers hold together; a writer holds alone.
pub async fn readers_share_and_writers_exclude(fixture: &Fixture) {
    let users = fixture.three_users().await;
    let all_hold = Arc::new(Barrier::new(users.len()));
    let hold_with_all = |user: User| {
        let all_hold = Arc::clone(&all_hold);
        async move {
            let reading = expect_supported(user.rwlock("a").read().await);
            all_hold.wait().await;
            user.release(reading).await;
        }
    };
    join_all(users.clone().map(hold_with_all)).await;

    let (held_weight, rounds) = (Arc::new(AtomicI64::new(0)), fixture.rounds(9));
    let hold_briefly = |user: User, task: usize| {
        let held_weight = Arc::clone(&held_weight);
        async move {
            for round in 0..rounds {
                let is_writer = (task + round).is_multiple_of(3);
                let lock = user.rwlock("a");
                let guard = expect_supported(if is_writer { lock.write().await } else { lock.read().await });
                // A writer counts as so many that no other holder fits beside it.
                let weight = if is_writer { -1_000_000 } else { 1 };
                let others = held_weight.fetch_add(weight, Ordering::SeqCst);
                assert!(if is_writer { others == 0 } else { others >= 0 }, "{others} held already");
                tokio::task::yield_now().await;
                held_weight.fetch_sub(weight, Ordering::SeqCst);
                user.release(guard).await;
            }
        }
    };
    let tasks = users.iter().flat_map(|user| (0..TASKS).map(|task| hold_briefly(user.clone(), task)));
    join_all(tasks.collect::<Vec<_>>()).await;
}

/// All permits of a semaphore can be held at once, and never more.
pub async fn a_semaphore_reaches_its_permits_and_never_exceeds_them(fixture: &Fixture) {
    let users = fixture.three_users().await;
    let all_hold = Arc::new(Barrier::new(users.len()));
    let hold_with_all = |user: User| {
        let all_hold = Arc::clone(&all_hold);
        async move {
            let permit = expect_supported(user.semaphore("a", 3).acquire().await);
            all_hold.wait().await;
            permit
        }
    };
    let (permits, mut kept) = (join_all(users.clone().map(hold_with_all)).await, Vec::new());
    for (user, permit) in users.iter().zip(permits) {
        assert!(user.retry(async || user.semaphore("a", 3).try_acquire().await).await.is_none());
        kept.push(permit);
    }
    users[0].release(kept.remove(0)).await;
    kept.push(expect_supported(soon(users[1].semaphore("a", 3).acquire()).await));
    assert!(users[2].retry(async || users[2].semaphore("a", 3).try_acquire().await).await.is_none());
    drop(kept);
    assert_permits_never_exceeded(fixture, &users, 3, |_| 1).await;
}

/// A claim on several permits counts as several.
pub async fn several_permits_count_as_several(fixture: &Fixture) {
    let users = fixture.three_users().await;
    let [one, two, _] = &users;
    let three = expect_supported(one.semaphore("a", 5).acquire_many(3).await);
    assert!(two.retry(async || two.semaphore("a", 5).try_acquire_many(3).await).await.is_none());
    let rest = expect_supported(soon(two.semaphore("a", 5).acquire_many(2)).await);
    assert!(one.retry(async || one.semaphore("a", 5).try_acquire().await).await.is_none());
    one.release(three).await;
    two.release(rest).await;
    assert_permits_never_exceeded(fixture, &users, 5, |round| round as u32 % 4 + 1).await;
}

/// Each task counts its permits while it holds them: the count never exceeds all permits of the semaphore.
async fn assert_permits_never_exceeded(fixture: &Fixture, users: &[User], permits: u32, weight: fn(usize) -> u32) {
    let (held_weight, rounds) = (Arc::new(AtomicI64::new(0)), fixture.rounds(9));
    let hold_briefly = |user: User, task: usize| {
        let held_weight = Arc::clone(&held_weight);
        async move {
            for round in 0..rounds {
                let weight = weight(task + round);
                let guard = expect_supported(user.semaphore("a", permits).acquire_many(weight).await);
                let before = held_weight.fetch_add(weight.into(), Ordering::SeqCst);
                assert!(before + i64::from(weight) <= permits.into(), "{weight} granted beside {before}");
                tokio::task::yield_now().await;
                held_weight.fetch_sub(weight.into(), Ordering::SeqCst);
                user.release(guard).await;
            }
        }
    };
    let tasks = users.iter().flat_map(|user| (0..TASKS).map(|task| hold_briefly(user.clone(), task)));
    join_all(tasks.collect::<Vec<_>>()).await;
}

/// When one guard held, in numbers of a counter that all tasks share: it orders events without any clock.
#[derive(Debug)]
struct HeldInterval {
    /// The number that was drawn after the acquisition.
    acquired: u64,
    /// The last number at which the guard certainly held.
    last_seen_held: u64,
    fence: u64,
}

/// While a guard says that it is held, no other guard does, whether it ends by a release or by a loss; and each fence
/// is above all earlier fences.
pub async fn guards_never_overlap_and_fences_rise(fixture: &Fixture) {
    let (counter, rounds) = (Arc::new(AtomicU64::new(0)), fixture.rounds(6));
    let hold_at_most = fixture.brief_ttl().mul_f64(0.05);
    let acquire_repeatedly = |user: User, task: usize| {
        let counter = Arc::clone(&counter);
        let next_number = move || counter.fetch_add(1, Ordering::SeqCst);
        async move {
            let mut intervals = Vec::new();
            for round in 0..rounds {
                let keeps_until_lost = task == 0 && round.is_multiple_of(3);
                let lock = user.mutex("a");
                let lock = if keeps_until_lost { lock.hold_at_most(hold_at_most) } else { lock };
                let guard = expect_supported(lock.lock().await);
                let acquired = next_number();
                let mut last_seen_held = acquired;
                // Ends with a loss, after `hold_at_most`; or once the guard was seen held after its acquisition.
                loop {
                    // Order matters: a guard that is held after the number was drawn was held when it was drawn.
                    let number = next_number();
                    match guard.check() {
                        Ok(()) => last_seen_held = number,
                        Err(_) => break,
                    }
                    tokio::task::yield_now().await;
                    if !keeps_until_lost && last_seen_held > acquired {
                        break;
                    }
                }
                intervals.push(HeldInterval { acquired, last_seen_held, fence: expect_supported(guard.fence()) });
                drop(guard);
            }
            intervals
        }
    };
    let users = fixture.three_users().await;
    let tasks = users.iter().flat_map(|user| (0..TASKS).map(|task| acquire_repeatedly(user.clone(), task)));
    let all_tasks = join_all(tasks.collect::<Vec<_>>());
    let advance_forever = async {
        loop {
            // Less than half of `hold_at_most` in each step.
            fixture.advance_brief_ttls(0.02).await;
            fixture.let_clients_settle().await;
        }
    };
    let intervals = tokio::select! { intervals = all_tasks => intervals, () = advance_forever => Vec::new() };
    let mut intervals: Vec<_> = intervals.into_iter().flatten().collect();
    intervals.sort_unstable_by_key(|interval| interval.acquired);
    for pair in intervals.windows(2) {
        assert!(pair[0].last_seen_held < pair[1].acquired, "two holders at once: {pair:?}");
        assert!(pair[0].fence < pair[1].fence, "a fence did not rise: {pair:?}");
    }
}
