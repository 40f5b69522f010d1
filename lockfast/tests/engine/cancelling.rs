//! Futures dropped after each of their polls, and at each of their wake-ups: whatever they had reached, nothing is left
//! behind and the lock goes on to the next.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use lockfast::store::{Names, Query, Store};
use lockfast::{Guard, Locks, Memory, Mutex};

use crate::slow::Slow;
use crate::stage::{TTL, soon, until};

/// When a future is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    /// Right after this many polls.
    AfterPoll(usize),
    /// When it is woken to be polled again after this many.
    AtWake(usize),
}

/// What came of the work, unless it was cut off first.
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

/// Two clients of one store, the first slow; the second is whoever else wants the lock.
struct Scene {
    memory: Arc<Memory>,
    mine: Locks,
    theirs: Locks,
}

impl Scene {
    fn new(polls: usize) -> Self {
        let memory = Arc::new(Memory::new());
        let mine = Locks::new(Arc::new(Slow { store: Arc::clone(&memory), polls })).unwrap();
        let theirs = Locks::new(Arc::clone(&memory) as Arc<dyn Store>).unwrap();
        Self { memory, mine, theirs }
    }

    fn mutex(&self) -> Mutex {
        self.mine.mutex("a").ttl(TTL)
    }

    /// Nobody is left in line, nobody is counted, and others get in.
    async fn is_clean(&self) {
        soon(async {
            while line(&self.memory).await > 0 {
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

/// How many are in line, for anything.
async fn line(memory: &Memory) -> usize {
    let query = Query { names: Names::Beginning(String::new()), after: None, limit: 10, entries: usize::MAX };
    let page = memory.inspect(&query).await.unwrap();
    page.resources.iter().map(|resource| resource.queue.len()).sum()
}

/// Cuts `act` off at every point until it is not cut off any more, each time in a new scene. It says whether it ended.
async fn at_every_point(act: impl for<'a> Fn(&'a Scene, Cut) -> LocalBoxFuture<'a, bool>) {
    for polls in [0, 1, 3] {
        for kind in [Cut::AfterPoll, Cut::AtWake] {
            let mut most = 0;
            let mut ended = false;
            while !ended {
                let scene = Scene::new(polls);
                ended = soon(act(&scene, kind(most))).await;
                scene.is_clean().await;
                most += 1;
                assert!(most < 100, "it never ends");
            }
            assert!(most > 1, "it ended too early to be worth cutting off");
        }
    }
}

#[tokio::test]
async fn asking_for_a_free_lock_can_stop_at_every_point() {
    at_every_point(|scene, cut| {
        async move { cut_off(pin!(scene.mutex().lock()), cut).await.is_some_and(|guard| guard.is_ok()) }.boxed_local()
    })
    .await;
}

#[tokio::test]
async fn trying_a_free_lock_can_stop_at_every_point() {
    at_every_point(|scene, cut| {
        async move {
            let tried = cut_off(pin!(scene.mutex().try_lock()), cut).await;
            tried.is_some_and(|guard| guard.unwrap().is_some())
        }
        .boxed_local()
    })
    .await;
}

#[tokio::test]
async fn trying_a_taken_lock_can_stop_at_every_point() {
    at_every_point(|scene, cut| {
        async move {
            let _theirs = scene.theirs.mutex("a").ttl(TTL).lock().await.unwrap();
            let tried = cut_off(pin!(scene.mutex().try_lock()), cut).await;
            tried.is_some_and(|guard| guard.unwrap().is_none())
        }
        .boxed_local()
    })
    .await;
}

#[tokio::test]
async fn waiting_for_a_hand_off_can_stop_at_every_point() {
    at_every_point(|scene, cut| handed_over(scene, cut, None).boxed_local()).await;
}

#[tokio::test]
async fn waiting_for_some_time_can_stop_at_every_point() {
    at_every_point(|scene, cut| handed_over(scene, cut, Some(Duration::from_secs(60))).boxed_local()).await;
}

/// Somebody else has it, and leaves when this one is in line or has given up.
async fn handed_over(scene: &Scene, cut: Cut, patience: Option<Duration>) -> bool {
    let theirs = scene.theirs.mutex("a").ttl(TTL).lock().await.unwrap();
    let mutex = scene.mutex();
    let mine = async {
        match patience {
            Some(patience) => mutex.lock_within(patience).await,
            None => mutex.lock().await,
        }
    };
    // On a task of its own, so that it does not wake the one that is cut off.
    let memory = Arc::clone(&scene.memory);
    let leaves = tokio::spawn(async move {
        while line(&memory).await < 2 {
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
    at_every_point(|scene, cut| {
        async move {
            let _theirs = scene.theirs.mutex("a").ttl(TTL).lock().await.unwrap();
            let mutex = scene.mutex();
            let locked = cut_off(pin!(mutex.lock_within(Duration::from_millis(10))), cut).await;
            locked.is_some_and(|guard| matches!(guard, Err(lockfast::Error::Busy { .. })))
        }
        .boxed_local()
    })
    .await;
}

#[tokio::test]
async fn a_release_can_stop_at_every_point() {
    at_every_point(|scene, cut| {
        async move {
            let guard = scene.mutex().lock().await.unwrap();
            cut_off(pin!(guard.release()), cut).await.is_some()
        }
        .boxed_local()
    })
    .await;
}

/// A guard, and a task of the same process behind it.
async fn with_another_behind(scene: &Scene) -> (Guard, tokio::task::JoinHandle<()>) {
    let guard = scene.mutex().lock().await.unwrap();
    let mutex = scene.mutex();
    let next = tokio::spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() });
    until(|| scene.mine.stats().waiting == 1).await;
    (guard, next)
}

#[tokio::test]
async fn a_release_with_another_task_behind_can_stop_at_every_point() {
    at_every_point(|scene, cut| {
        async move {
            let (guard, next) = with_another_behind(scene).await;
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
    at_every_point(|scene, cut| {
        async move {
            let guard = scene.mutex().lock().await.unwrap();
            let mutex = scene.mutex();
            let behind = tokio::spawn({
                let mutex = mutex.clone();
                async move { cut_off(pin!(mutex.lock()), cut).await.is_some_and(|guard| guard.is_ok()) }
            });
            let last = tokio::spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() });
            until(|| scene.mine.stats().waiting > 0 && (behind.is_finished() || scene.mine.stats().waiting == 2)).await;
            guard.release().await.unwrap();
            soon(last).await.unwrap();
            soon(behind).await.unwrap()
        }
        .boxed_local()
    })
    .await;
}
