//! Shutting a client down: every request fails, every hold is released, and no future is left pending.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::{FutureExt, poll};
use lockfast::store::{Leaving, Standing, Why};
use lockfast::{Error, Locks, LostWhy, Retry};

use crate::fixture::{NEVER, TTL, hold, on_lost, soon, until, wait};
use crate::script::{Call, Director};

const SECOND: Duration = Duration::from_secs(1);

/// Answers every release until the client has ended, and returns them.
async fn end(store: &mut Director) -> Vec<Leaving> {
    let locks = store.locks.clone();
    let mut ending = tokio::spawn(async move { locks.shutdown(5 * SECOND).await });
    let mut left = Vec::new();
    loop {
        tokio::select! {
            ended = &mut ending => {
                ended.unwrap().unwrap();
                return left;
            }
            call = store.call() => match call {
                Call::Release { leaving, answer } => {
                    answer.give(vec![Standing::Gone(Why::Left); leaving.len()]);
                    left.extend(leaving);
                }
                other => panic!("expected releases, got {other:?}"),
            }
        }
    }
}

fn is_closed<T>(result: &lockfast::Result<T>) -> bool {
    matches!(result, Err(Error::Closed(_)))
}

#[tokio::test]
async fn shutting_down_releases_all_holds_and_fails_all_waiters() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, held) = hold(&mut store, &mutex, 7).await;
    let behind = tokio::spawn(async move { mutex.lock().await });
    let other = store.locks.mutex("b").ttl(TTL);
    let (queued, waiting) = wait(&mut store, other, 8).await;
    until(|| store.locks.stats().waiting == 2).await;
    let called = on_lost(&guard);

    let left = end(&mut store).await;
    let left_with = |id| left.iter().any(|it| matches!(it, Leaving::Done(gone) if gone.id.hash() == id));
    assert!(left_with(held.id.hash()) && left_with(waiting.id.hash()) && left.len() == 2, "{left:?}");
    assert_eq!(soon(guard.lost()).await, LostWhy::Shutdown);
    assert_eq!(soon(called).await.unwrap(), LostWhy::Shutdown);
    assert!(matches!(guard.release().await, Err(Error::Lost { why: LostWhy::Shutdown, .. })));
    assert!(is_closed(&soon(behind).await.unwrap()));
    assert!(is_closed(&soon(queued).await.unwrap()));
    let stats = store.locks.stats();
    assert_eq!((stats.held, stats.waiting, stats.lost), (0, 0, 1));

    assert!(is_closed(&soon(store.locks.mutex("a").lock()).await));
    assert!(is_closed(&soon(store.locks.mutex("a").try_lock()).await));
    assert!(is_closed(&soon(store.locks.semaphore("s", 2).acquire()).await));
}

#[tokio::test]
async fn shutting_down_fails_a_request_that_asks_a_silent_store() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let asking = tokio::spawn(async move { mutex.lock().await });
    let (claim, _, never) = store.acquire().await;
    let left = end(&mut store).await;
    assert!(matches!(&left[..], [Leaving::Unknown(gone)] if gone.id.hash() == claim.id.hash()));
    assert!(is_closed(&soon(asking).await.unwrap()));
    drop(never);
}

#[tokio::test]
async fn shutting_down_fails_a_request_between_retries() {
    let mut store = Director::new();
    let patient = Retry { base: 60 * SECOND, max: 60 * SECOND, ..Retry::default() };
    let mutex = store.locks.mutex("a").ttl(TTL).retry(patient);
    let retrying = tokio::spawn(async move { mutex.lock().await });
    store.acquire().await.2.give(lockfast::store::Admission::Refused(Default::default()));
    until(|| store.locks.stats().contended == 1).await;
    end(&mut store).await;
    assert!(is_closed(&soon(retrying).await.unwrap()));
}

#[tokio::test]
async fn shutting_down_twice_is_shutting_down_once() {
    let mut store = Director::new();
    end(&mut store).await;
    soon(store.locks.shutdown(SECOND)).await.unwrap();
    soon(store.locks.shutdown(Duration::MAX)).await.unwrap();
    let both = [store.locks.clone(), store.locks.clone()];
    let twice = both.iter().map(|locks| locks.shutdown(SECOND));
    soon(futures::future::try_join_all(twice)).await.unwrap();
}

#[tokio::test]
async fn a_request_after_the_shutdown_fails_as_closed() {
    let mut store = Director::new();
    end(&mut store).await;
    let asked = soon(store.locks.mutex("a").lock()).await;
    assert!(matches!(asked, Err(Error::Closed("it was shut down"))), "{asked:?}");
}

#[tokio::test]
async fn shutting_down_without_an_answer_ends_in_time_and_says_so() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    let locks = store.locks.clone();
    let ending = tokio::spawn(async move { locks.shutdown(5 * SECOND).await });
    let never = store.release().await;
    store.manual_clock.advance(5 * SECOND);
    assert!(matches!(soon(ending).await.unwrap(), Err(Error::Unavailable { .. })));
    assert!(guard.check().is_err());
    drop(never);
}

#[tokio::test]
async fn shutting_down_waits_for_a_release_in_flight_and_no_longer() {
    let mut store = Director::new();
    let mutexes = ["a", "b"].map(|name| store.locks.mutex(name).ttl(TTL));
    let (guard, _) = hold(&mut store, &mutexes[0], 7).await;
    let (_kept, _) = hold(&mut store, &mutexes[1], 8).await;
    let releasing = tokio::spawn(guard.release());
    let in_flight = store.release().await;
    let locks = store.locks.clone();
    let mut ending = tokio::spawn(async move { locks.shutdown(NEVER).await });
    // The keeper's own release is answered: from here on it waits for the other release only.
    store.release().await.1.give(vec![Standing::Gone(Why::Left)]);
    let early = tokio::time::timeout(SECOND / 10, &mut ending).await;
    assert!(early.is_err(), "it ended with a release in flight");
    in_flight.1.give(vec![Standing::Gone(Why::Left)]);
    soon(releasing).await.unwrap().unwrap();
    soon(ending).await.unwrap().unwrap();
}

#[tokio::test]
async fn shutting_down_waits_for_a_release_with_local_waiters() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    let behind = tokio::spawn(async move { mutex.lock().await });
    until(|| store.locks.stats().waiting == 1).await;
    let releasing = tokio::spawn(guard.release());
    let (left, answer) = store.release().await;
    assert!(matches!(left[..], [Leaving::UnlessAlone { .. }]), "{left:?}");
    let locks = store.locks.clone();
    let mut ending = tokio::spawn(async move { locks.shutdown(NEVER).await });
    assert!(soon(behind).await.unwrap().is_err());
    let early = tokio::time::timeout(SECOND / 10, &mut ending).await;
    assert!(early.is_err(), "it ended with a release in flight");
    answer.give(vec![Standing::Gone(Why::Left)]);
    soon(releasing).await.unwrap().unwrap();
    soon(ending).await.unwrap().unwrap();
}

#[tokio::test]
async fn shutting_down_keeps_hold_at_least() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL).hold_at_least(60 * SECOND);
    let (guard, held) = hold(&mut store, &mutex, 7).await;
    store.manual_clock.advance(5 * SECOND);
    let left = end(&mut store).await;
    let [Leaving::Linger(claim, rest)] = &left[..] else { panic!("it lingers: {left:?}") };
    assert_eq!((claim.id.hash(), *rest), (held.id.hash(), 55 * SECOND));
    assert!(guard.check().is_err());
}

#[tokio::test]
async fn a_callback_set_after_the_shutdown_runs() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    end(&mut store).await;
    assert_eq!(soon(on_lost(&guard)).await.unwrap(), LostWhy::Shutdown);
}

#[tokio::test]
async fn a_callback_set_while_the_keeper_stops_runs() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    let guard = Arc::new(guard);
    let (gate, opened) = std::sync::mpsc::channel::<()>();
    let (stopped, is_stopped) = tokio::sync::oneshot::channel();
    let locks = store.locks.clone();
    let ending = tokio::spawn(async move { locks.shutdown(5 * SECOND).await });
    let (leaving, answer) = store.release().await;
    guard.on_lost(move |_| {
        stopped.send(()).unwrap();
        let _ = opened.recv();
    });
    soon(is_stopped).await.unwrap();
    // The keeper will find its last answer and this callback at once, and has nothing left to do after them.
    let (call, called) = tokio::sync::oneshot::channel();
    let sets_another = Arc::clone(&guard);
    guard.on_lost(move |_| sets_another.on_lost(move |why| call.send(why).unwrap()));
    answer.give(vec![Standing::Gone(Why::Left); leaving.len()]);
    drop(gate);
    soon(ending).await.unwrap().unwrap();
    assert_eq!(soon(called).await.unwrap(), LostWhy::Shutdown);
}

/// A waker that shuts a client down when it is dropped.
struct Ends(Locks);

impl Wake for Ends {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Ends {
    fn drop(&mut self) {
        assert!(self.0.shutdown(SECOND).now_or_never().is_none(), "a waiter has to fail first");
    }
}

#[tokio::test]
async fn a_shutdown_wins_over_a_patience_that_ends_with_it() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let mut waits = pin!(mutex.lock_within(SECOND));
    assert!(poll!(waits.as_mut()).is_pending());
    store.queue(7, NEVER).await;
    let ends = Arc::new(Ends(store.locks.clone()));
    let forgotten = Arc::downgrade(&ends);
    assert!(waits.as_mut().poll(&mut Context::from_waker(&Waker::from(ends))).is_pending());
    store.manual_clock.advance(SECOND);
    until(|| forgotten.strong_count() == 1).await;
    // It still waits when it looks, and forgets its old waker. When it looks again, its patience has ended, and so has
    // the client.
    let waited = waits.now_or_never().expect("its patience has ended");
    assert!(is_closed(&waited), "{waited:?}");
}

#[tokio::test]
async fn shutting_down_without_patience_does_not_wait_for_the_keeper() {
    let locks = Locks::in_memory();
    let guard = locks.mutex("a").hold_at_most(SECOND / 1000).lock().await.unwrap();
    let ((begin, begun), (go_on, waits)) = (tokio::sync::oneshot::channel(), std::sync::mpsc::channel::<()>());
    guard.on_lost(move |_| {
        begin.send(()).unwrap();
        // Until the test is over, also if it fails.
        let _ = waits.recv();
    });
    soon(begun).await.unwrap();
    let ended = poll!(pin!(locks.shutdown(Duration::ZERO)));
    assert!(matches!(ended, Poll::Ready(Err(Error::Unavailable { .. }))), "{ended:?}");
    drop(go_on);
}
