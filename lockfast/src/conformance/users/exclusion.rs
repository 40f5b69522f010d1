//! Who is inside together, across clients and tasks, under every face of a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Barrier;

use crate::client::Guard;
use crate::error::Result;
use crate::primitives::Locks;

use super::super::place::{Place, promised};
use super::user::{User, soon, together};

type Way = fn(Locks) -> BoxFuture<'static, Result<Guard>>;

/// How many tasks of each user want in.
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

/// Everybody reads a number, lets others run, and writes one more: with two inside, some of it gets lost.
async fn nothing_gets_lost(place: &Place, ways: &'static [Way]) {
    let (number, rounds) = (Arc::new(AtomicU64::new(0)), place.rounds(9));
    let count = |user: User, first: usize| {
        let number = Arc::clone(&number);
        async move {
            for round in 0..rounds {
                let guard = promised(ways[(first + round) % ways.len()](user.locks()).await);
                let seen = number.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                number.store(seen + 1, Ordering::SeqCst);
                user.let_go(guard).await;
            }
        }
    };
    let users = place.three().await;
    let tasks = users.iter().flat_map(|user| (0..TASKS).map(|task| count(user.clone(), task)));
    together(tasks.collect::<Vec<_>>()).await;
    assert_eq!(number.load(Ordering::SeqCst), (users.len() * TASKS * rounds) as u64);
}

/// The plain case.
pub async fn a_mutex_excludes(place: &Place) {
    nothing_gets_lost(place, &[as_mutex]).await;
}

/// One permit is a mutex.
pub async fn a_semaphore_of_one_excludes(place: &Place) {
    nothing_gets_lost(place, &[as_only_permit]).await;
}

/// Writing is a mutex.
pub async fn a_write_lock_excludes(place: &Place) {
    nothing_gets_lost(place, &[as_writer]).await;
}

/// Several names may be one name.
pub async fn a_multi_of_one_excludes(place: &Place) {
    nothing_gets_lost(place, &[as_multi]).await;
}

/// A mutex, a writer and a multi on one name stand in one line.
pub async fn a_mutex_a_write_lock_and_a_multi_exclude_each_other(place: &Place) {
    nothing_gets_lost(place, &[as_mutex, as_writer, as_multi]).await;
}

/// Readers meet inside; a writer meets nobody.
pub async fn readers_share_and_writers_exclude(place: &Place) {
    let users = place.three().await;
    let all_are_in = Arc::new(Barrier::new(users.len()));
    let meet = |user: User| {
        let all_are_in = Arc::clone(&all_are_in);
        async move {
            let reading = promised(user.rwlock("a").read().await);
            all_are_in.wait().await;
            user.let_go(reading).await;
        }
    };
    together(users.clone().map(meet)).await;

    let (inside, rounds) = (Arc::new(AtomicI64::new(0)), place.rounds(9));
    let visit = |user: User, task: usize| {
        let inside = Arc::clone(&inside);
        async move {
            for round in 0..rounds {
                let writes = (task + round).is_multiple_of(3);
                let lock = user.rwlock("a");
                let guard = promised(if writes { lock.write().await } else { lock.read().await });
                // A writer counts as so many that nobody fits in beside it.
                let weight = if writes { -1_000_000 } else { 1 };
                let others = inside.fetch_add(weight, Ordering::SeqCst);
                assert!(if writes { others == 0 } else { others >= 0 }, "{others} inside");
                tokio::task::yield_now().await;
                inside.fetch_sub(weight, Ordering::SeqCst);
                user.let_go(guard).await;
            }
        }
    };
    let tasks = users.iter().flat_map(|user| (0..TASKS).map(|task| visit(user.clone(), task)));
    together(tasks.collect::<Vec<_>>()).await;
}

/// Three permits are three: all of them can be had at once, and no fourth.
pub async fn a_semaphore_reaches_its_permits_and_never_passes_them(place: &Place) {
    let users = place.three().await;
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
        assert!(user.surely(async || user.semaphore("a", 3).try_acquire().await).await.is_none());
        kept.push(permit);
    }
    users[0].let_go(kept.remove(0)).await;
    kept.push(promised(soon(users[1].semaphore("a", 3).acquire()).await));
    assert!(users[2].surely(async || users[2].semaphore("a", 3).try_acquire().await).await.is_none());
    drop(kept);
    never_above(place, &users, 3, |_| 1).await;
}

/// Whoever takes several permits counts as several.
pub async fn several_permits_count_as_several(place: &Place) {
    let users = place.three().await;
    let [one, two, _] = &users;
    let three = promised(one.semaphore("a", 5).acquire_many(3).await);
    assert!(two.surely(async || two.semaphore("a", 5).try_acquire_many(3).await).await.is_none());
    let rest = promised(soon(two.semaphore("a", 5).acquire_many(2)).await);
    assert!(one.surely(async || one.semaphore("a", 5).try_acquire().await).await.is_none());
    one.let_go(three).await;
    two.let_go(rest).await;
    never_above(place, &users, 5, |round| round as u32 % 4 + 1).await;
}

async fn never_above(place: &Place, users: &[User], permits: u32, weight: fn(usize) -> u32) {
    let (inside, rounds) = (Arc::new(AtomicI64::new(0)), place.rounds(9));
    let visit = |user: User, task: usize| {
        let inside = Arc::clone(&inside);
        async move {
            for round in 0..rounds {
                let weight = weight(task + round);
                let guard = promised(user.semaphore("a", permits).acquire_many(weight).await);
                let before = inside.fetch_add(weight.into(), Ordering::SeqCst);
                assert!(before + i64::from(weight) <= permits.into(), "{weight} entered where {before} were");
                tokio::task::yield_now().await;
                inside.fetch_sub(weight.into(), Ordering::SeqCst);
                user.let_go(guard).await;
            }
        }
    };
    let tasks = users.iter().flat_map(|user| (0..TASKS).map(|task| visit(user.clone(), task)));
    together(tasks.collect::<Vec<_>>()).await;
}

/// One stay inside, on a count that everybody shares: it orders what happened without any clock.
#[derive(Debug)]
struct Stay {
    entered: u64,
    /// The last time that it was certainly inside.
    sure_until: u64,
    fence: u64,
}

/// Some leave on their own, some stay until they lose it. While the guard says that it is held, nobody else's does; and each
/// fence is above all before it.
pub async fn stays_never_overlap_and_fences_rise(place: &Place) {
    let (count, rounds, brief) = (Arc::new(AtomicU64::new(0)), place.rounds(6), place.brief());
    let visit = |user: User, task: usize| {
        let count = Arc::clone(&count);
        let next = move || count.fetch_add(1, Ordering::SeqCst);
        async move {
            let mut stays = Vec::new();
            for round in 0..rounds {
                let stays_on = task == 0 && round.is_multiple_of(3);
                let lock = user.mutex("a");
                let lock = if stays_on { lock.hold_at_most(brief.mul_f64(0.05)) } else { lock };
                let guard = promised(lock.lock().await);
                let entered = next();
                let mut sure_until = entered;
                loop {
                    // Order matters: what is held after the number was drawn was held when it was drawn.
                    let now = next();
                    match guard.check() {
                        Ok(()) => sure_until = now,
                        Err(_) => break,
                    }
                    tokio::task::yield_now().await;
                    if !stays_on && sure_until > entered {
                        break;
                    }
                }
                stays.push(Stay { entered, sure_until, fence: promised(guard.fence()) });
                drop(guard);
            }
            stays
        }
    };
    let users = place.three().await;
    let tasks = users.iter().flat_map(|user| (0..TASKS).map(|task| visit(user.clone(), task)));
    let all = together(tasks.collect::<Vec<_>>());
    let time_passes = async {
        loop {
            place.pass(0.02).await;
            place.let_others_work().await;
        }
    };
    let stays = tokio::select! { stays = all => stays, () = time_passes => Vec::new() };
    let mut stays: Vec<_> = stays.into_iter().flatten().collect();
    stays.sort_unstable_by_key(|stay| stay.entered);
    for pair in stays.windows(2) {
        assert!(pair[0].sure_until < pair[1].entered, "two inside: {pair:?}");
        assert!(pair[0].fence < pair[1].fence, "a fence went back: {pair:?}");
    }
}
