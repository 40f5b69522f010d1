//! Which guards exist at the same time, across clients and tasks, for every kind of lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Barrier;

use crate::client::Guard;
use crate::error::Result;
use crate::primitives::Locks;

use super::super::fixture::{Fixture, promised};
use super::user::{User, soon, together};

type Way = fn(Locks) -> BoxFuture<'static, Result<Guard>>;

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
async fn nothing_gets_lost(fixture: &Fixture, ways: &'static [Way]) {
    let (number, rounds) = (Arc::new(AtomicU64::new(0)), fixture.rounds(9));
    let count = |user: User, first: usize| {
        let number = Arc::clone(&number);
        async move {
            for round in 0..rounds {
                let guard = promised(ways[(first + round) % ways.len()](user.locks()).await);
                let seen = number.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                number.store(seen + 1, Ordering::SeqCst);
                user.release(guard).await;
            }
        }
    };
    let users = fixture.three_users().await;
    let tasks = users.iter().flat_map(|user| (0..TASKS).map(|task| count(user.clone(), task)));
    together(tasks.collect::<Vec<_>>()).await;
    assert_eq!(number.load(Ordering::SeqCst), (users.len() * TASKS * rounds) as u64);
}

/// A mutex has one holder at a time.
pub async fn a_mutex_excludes(fixture: &Fixture) {
    nothing_gets_lost(fixture, &[as_mutex]).await;
}

/// A semaphore of one permit has one holder at a time.
pub async fn a_semaphore_of_one_excludes(fixture: &Fixture) {
    nothing_gets_lost(fixture, &[as_only_permit]).await;
}

/// A write lock has one holder at a time.
pub async fn a_write_lock_excludes(fixture: &Fixture) {
    nothing_gets_lost(fixture, &[as_writer]).await;
}

/// A lock on a list of one name has one holder at a time.
pub async fn a_multi_of_one_excludes(fixture: &Fixture) {
    nothing_gets_lost(fixture, &[as_multi]).await;
}

/// A mutex, a write lock and a multi on one name share one queue, and exclude each other.
pub async fn a_mutex_a_write_lock_and_a_multi_exclude_each_other(fixture: &Fixture) {
    nothing_gets_lost(fixture, &[as_mutex, as_writer, as_multi]).await;
}

/// Readers hold together; a writer holds alone.
pub async fn readers_share_and_writers_exclude(fixture: &Fixture) {
    let users = fixture.three_users().await;
    let all_are_in = Arc::new(Barrier::new(users.len()));
    let meet = |user: User| {
        let all_are_in = Arc::clone(&all_are_in);
        async move {
            let reading = promised(user.rwlock("a").read().await);
            all_are_in.wait().await;
            user.release(reading).await;
        }
    };
    together(users.clone().map(meet)).await;

    let (inside, rounds) = (Arc::new(AtomicI64::new(0)), fixture.rounds(9));
    let visit = |user: User, task: usize| {
        let inside = Arc::clone(&inside);
        async move {
            for round in 0..rounds {
                let writes = (task + round).is_multiple_of(3);
                let lock = user.rwlock("a");
                let guard = promised(if writes { lock.write().await } else { lock.read().await });
                // A writer counts as so many that no other holder fits beside it.
                let weight = if writes { -1_000_000 } else { 1 };
                let others = inside.fetch_add(weight, Ordering::SeqCst);
                assert!(if writes { others == 0 } else { others >= 0 }, "{others} held already");
                tokio::task::yield_now().await;
                inside.fetch_sub(weight, Ordering::SeqCst);
                user.release(guard).await;
            }
        }
    };
    let tasks = users.iter().flat_map(|user| (0..TASKS).map(|task| visit(user.clone(), task)));
    together(tasks.collect::<Vec<_>>()).await;
}

/// All permits of a semaphore can be held at once, and never more.
pub async fn a_semaphore_reaches_its_permits_and_never_exceeds_them(fixture: &Fixture) {
    let users = fixture.three_users().await;
    let all_are_in = Arc::new(Barrier::new(users.len()));
    let meet = |user: User| {
        let all_are_in = Arc::clone(&all_are_in);
        async move {
            let permit = promised(user.semaphore("a", 3).acquire().await);
            all_are_in.wait().await;
            permit
        }
    };
    let (permits, mut kept) = (together(users.clone().map(meet)).await, Vec::new());
    for (user, permit) in users.iter().zip(permits) {
        assert!(user.retry(async || user.semaphore("a", 3).try_acquire().await).await.is_none());
        kept.push(permit);
    }
    users[0].release(kept.remove(0)).await;
    kept.push(promised(soon(users[1].semaphore("a", 3).acquire()).await));
    assert!(users[2].retry(async || users[2].semaphore("a", 3).try_acquire().await).await.is_none());
    drop(kept);
    never_above(fixture, &users, 3, |_| 1).await;
}

/// A claim on several permits counts as several.
pub async fn several_permits_count_as_several(fixture: &Fixture) {
    let users = fixture.three_users().await;
    let [one, two, _] = &users;
    let three = promised(one.semaphore("a", 5).acquire_many(3).await);
    assert!(two.retry(async || two.semaphore("a", 5).try_acquire_many(3).await).await.is_none());
    let rest = promised(soon(two.semaphore("a", 5).acquire_many(2)).await);
    assert!(one.retry(async || one.semaphore("a", 5).try_acquire().await).await.is_none());
    one.release(three).await;
    two.release(rest).await;
    never_above(fixture, &users, 5, |round| round as u32 % 4 + 1).await;
}

async fn never_above(fixture: &Fixture, users: &[User], permits: u32, weight: fn(usize) -> u32) {
    let (inside, rounds) = (Arc::new(AtomicI64::new(0)), fixture.rounds(9));
    let visit = |user: User, task: usize| {
        let inside = Arc::clone(&inside);
        async move {
            for round in 0..rounds {
                let weight = weight(task + round);
                let guard = promised(user.semaphore("a", permits).acquire_many(weight).await);
                let before = inside.fetch_add(weight.into(), Ordering::SeqCst);
                assert!(before + i64::from(weight) <= permits.into(), "{weight} granted beside {before}");
                tokio::task::yield_now().await;
                inside.fetch_sub(weight.into(), Ordering::SeqCst);
                user.release(guard).await;
            }
        }
    };
    let tasks = users.iter().flat_map(|user| (0..TASKS).map(|task| visit(user.clone(), task)));
    together(tasks.collect::<Vec<_>>()).await;
}

/// One period of holding, on a counter that all tasks share: it orders events without any clock.
#[derive(Debug)]
struct Hold {
    entered: u64,
    /// The last number at which the guard certainly held.
    sure_until: u64,
    fence: u64,
}

/// While a guard says that it is held, no other guard does, whether it ends by a release or by a loss; and each fence
/// is above all before it.
pub async fn guards_never_overlap_and_fences_rise(fixture: &Fixture) {
    let (count, rounds, brief) = (Arc::new(AtomicU64::new(0)), fixture.rounds(6), fixture.brief());
    let visit = |user: User, task: usize| {
        let count = Arc::clone(&count);
        let next = move || count.fetch_add(1, Ordering::SeqCst);
        async move {
            let mut holds = Vec::new();
            for round in 0..rounds {
                let holds_on = task == 0 && round.is_multiple_of(3);
                let lock = user.mutex("a");
                let lock = if holds_on { lock.hold_at_most(brief.mul_f64(0.05)) } else { lock };
                let guard = promised(lock.lock().await);
                let entered = next();
                let mut sure_until = entered;
                loop {
                    // Order matters: a guard that is held after the number was drawn was held when it was drawn.
                    let now = next();
                    match guard.check() {
                        Ok(()) => sure_until = now,
                        Err(_) => break,
                    }
                    tokio::task::yield_now().await;
                    if !holds_on && sure_until > entered {
                        break;
                    }
                }
                holds.push(Hold { entered, sure_until, fence: promised(guard.fence()) });
                drop(guard);
            }
            holds
        }
    };
    let users = fixture.three_users().await;
    let tasks = users.iter().flat_map(|user| (0..TASKS).map(|task| visit(user.clone(), task)));
    let all = together(tasks.collect::<Vec<_>>());
    let time_passes = async {
        loop {
            fixture.pass(0.02).await;
            fixture.let_clients_settle().await;
        }
    };
    let holds = tokio::select! { holds = all => holds, () = time_passes => Vec::new() };
    let mut holds: Vec<_> = holds.into_iter().flatten().collect();
    holds.sort_unstable_by_key(|hold| hold.entered);
    for pair in holds.windows(2) {
        assert!(pair[0].sure_until < pair[1].entered, "two holders at once: {pair:?}");
        assert!(pair[0].fence < pair[1].fence, "a fence went back: {pair:?}");
    }
}
