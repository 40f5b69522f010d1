//! Futures dropped after each of their polls, and at each of their wake-ups: at every point, no entry is left behind and the
//! lock goes on to the next waiter.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use lockfast::store::{Names, Query, Store};
use lockfast::{Guard, Locks, Memory, Mutex};

use crate::fixture::{TTL, soon, until};
use crate::slow::Slow;

/// When a future is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    /// Right after this many polls.
    AfterPoll(usize),
    /// When it is woken to be polled again after this many.
    AtWake(usize),
}

/// The result of the work, unless it was cut off first.
pub(crate) async fn cut_off<T>(mut work: Pin<&mut impl Future<Output = T>>, cut: Cut) -> Option<T> {
    let mut polls = 0;
    let (most, at_wake) = match cut {
        Cut::AfterPoll(most) => (most, false),
        Cut::AtWake(most) => (most, true),
    };
    poll_fn(|cx| {
        if polls == most {
            return Poll::Ready(None);
        }
        polls += 1;
        match work.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if polls == most && !at_wake => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Two clients of one store. The first is slow; the second competes for the lock.
struct Fixture {
    memory: Arc<Memory>,
    mine: Locks,
    theirs: Locks,
}

impl Fixture {
    fn new(polls: usize) -> Self {
        let memory = Arc::new(Memory::new());
        let mine = Locks::new(Arc::new(Slow { store: Arc::clone(&memory), polls })).unwrap();
        let theirs = Locks::new(Arc::clone(&memory) as Arc<dyn Store>).unwrap();
        Self { memory, mine, theirs }
    }

    fn mutex(&self) -> Mutex {
        self.mine.mutex("a").ttl(TTL)
    }

    /// The queue is empty, the counters are zero, and the other client can acquire the lock.
    async fn is_clean(&self) {
        soon(async {
            while queued(&self.memory).await > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let stats = self.mine.stats();
        assert_eq!((stats.held, stats.waiting), (0, 0));
        let other = self.theirs.mutex("a").ttl(TTL).try_lock().await.unwrap();
        other.expect("it is free").release().await.unwrap();
    }
}

/// How many entries the queues of all names have.
async fn queued(memory: &Memory) -> usize {
    let query = Query { names: Names::Beginning(String::new()), after: None, limit: 10, entries: usize::MAX };
    let page = memory.inspect(&query).await.unwrap();
    page.resources.iter().map(|resource| resource.queue.len()).sum()
}

/// Cuts `act` off at every point until it is not cut off any more, each time with a new fixture. `act` returns whether it ended.
async fn at_every_point(act: impl for<'a> Fn(&'a Fixture, Cut) -> LocalBoxFuture<'a, bool>) {
    for polls in [0, 1, 3] {
        for kind in [Cut::AfterPoll, Cut::AtWake] {
            let mut most = 0;
            let mut ended = false;
            while !ended {
                let fixture = Fixture::new(polls);
                ended = soon(act(&fixture, kind(most))).await;
                fixture.is_clean().await;
                most += 1;
                assert!(most < 100, "it never ends");
            }
            assert!(most > 1, "it ended too early to be worth cutting off");
        }
    }
}

#[tokio::test]
async fn asking_for_a_free_lock_can_stop_at_every_point() {
    at_every_point(|fixture, cut| {
        async move { cut_off(pin!(fixture.mutex().lock()), cut).await.is_some_and(|guard| guard.is_ok()) }.boxed_local()
    })
    .await;
}

#[tokio::test]
async fn trying_a_free_lock_can_stop_at_every_point() {
    at_every_point(|fixture, cut| {
        async move {
            let tried = cut_off(pin!(fixture.mutex().try_lock()), cut).await;
            tried.is_some_and(|guard| guard.unwrap().is_some())
        }
        .boxed_local()
    })
    .await;
}

#[tokio::test]
async fn trying_a_taken_lock_can_stop_at_every_point() {
    at_every_point(|fixture, cut| {
        async move {
            let _theirs = fixture.theirs.mutex("a").ttl(TTL).lock().await.unwrap();
            let tried = cut_off(pin!(fixture.mutex().try_lock()), cut).await;
            tried.is_some_and(|guard| guard.unwrap().is_none())
        }
        .boxed_local()
    })
    .await;
}

#[tokio::test]
async fn waiting_for_a_hand_off_can_stop_at_every_point() {
    at_every_point(|fixture, cut| handed_off(fixture, cut, None).boxed_local()).await;
}

#[tokio::test]
async fn waiting_for_some_time_can_stop_at_every_point() {
    at_every_point(|fixture, cut| handed_off(fixture, cut, Some(Duration::from_secs(60))).boxed_local()).await;
}

/// The other client holds the lock, and releases it when this request is in the queue or has given up.
async fn handed_off(fixture: &Fixture, cut: Cut, patience: Option<Duration>) -> bool {
    let theirs = fixture.theirs.mutex("a").ttl(TTL).lock().await.unwrap();
    let mutex = fixture.mutex();
    let mine = async {
        match patience {
            Some(patience) => mutex.lock_within(patience).await,
            None => mutex.lock().await,
        }
    };
    // On a task of its own, so that it does not wake the one that is cut off.
    let memory = Arc::clone(&fixture.memory);
    let leaves = tokio::spawn(async move {
        while queued(&memory).await < 2 {
            tokio::task::yield_now().await;
        }
        theirs.release().await.unwrap();
    });
    let locked = cut_off(pin!(mine), cut).await;
    leaves.abort();
    locked.is_some_and(|guard| guard.is_ok())
}

#[tokio::test]
async fn waiting_in_vain_can_stop_at_every_point() {
    at_every_point(|fixture, cut| {
        async move {
            let _theirs = fixture.theirs.mutex("a").ttl(TTL).lock().await.unwrap();
            let mutex = fixture.mutex();
            let locked = cut_off(pin!(mutex.lock_within(Duration::from_millis(10))), cut).await;
            locked.is_some_and(|guard| matches!(guard, Err(lockfast::Error::Busy { .. })))
        }
        .boxed_local()
    })
    .await;
}

#[tokio::test]
async fn a_release_can_stop_at_every_point() {
    at_every_point(|fixture, cut| {
        async move {
            let guard = fixture.mutex().lock().await.unwrap();
            cut_off(pin!(guard.release()), cut).await.is_some()
        }
        .boxed_local()
    })
    .await;
}

/// A guard, and a task of the same process behind it.
async fn with_another_behind(fixture: &Fixture) -> (Guard, tokio::task::JoinHandle<()>) {
    let guard = fixture.mutex().lock().await.unwrap();
    let mutex = fixture.mutex();
    let next = tokio::spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() });
    until(|| fixture.mine.stats().waiting == 1).await;
    (guard, next)
}

#[tokio::test]
async fn a_release_with_another_task_behind_can_stop_at_every_point() {
    at_every_point(|fixture, cut| {
        async move {
            let (guard, next) = with_another_behind(fixture).await;
            let ended = cut_off(pin!(guard.release()), cut).await.is_some();
            next.await.unwrap();
            ended
        }
        .boxed_local()
    })
    .await;
}

#[tokio::test]
async fn waiting_behind_another_task_can_stop_at_every_point() {
    at_every_point(|fixture, cut| {
        async move {
            let guard = fixture.mutex().lock().await.unwrap();
            let mutex = fixture.mutex();
            let behind = tokio::spawn({
                let mutex = mutex.clone();
                async move { cut_off(pin!(mutex.lock()), cut).await.is_some_and(|guard| guard.is_ok()) }
            });
            let last = tokio::spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() });
            until(|| fixture.mine.stats().waiting > 0 && (behind.is_finished() || fixture.mine.stats().waiting == 2))
                .await;
            guard.release().await.unwrap();
            soon(last).await.unwrap();
            soon(behind).await.unwrap()
        }
        .boxed_local()
    })
    .await;
}
