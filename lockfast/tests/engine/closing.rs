//! Ending a client: everybody hears of it, everything is given back, and nobody is left hanging.

use std::pin::pin;
use std::time::Duration;

use futures::poll;
use lockfast::store::{Leaving, Standing, Why};
use lockfast::{Error, LostWhy, Retry};

use crate::script::{Call, Director};
use crate::stage::{TTL, hold, soon, until, wait};

const SECOND: Duration = Duration::from_secs(1);

/// Answers every release until the client has ended, and says who left.
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
async fn shutting_down_releases_everything_and_tells_everybody() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, held) = hold(&mut store, &mutex, 7).await;
    let behind = tokio::spawn(async move { mutex.lock().await });
    let other = store.locks.mutex("b").ttl(TTL);
    let (in_line, waiting) = wait(&mut store, other, 8).await;
    until(|| store.locks.stats().waiting == 2).await;
    let (told, tells) = tokio::sync::oneshot::channel();
    guard.on_lost(move |why| told.send(why).unwrap());

    let left = end(&mut store).await;
    let left_with = |id| left.iter().any(|it| matches!(it, Leaving::Done(gone) if gone.id.hash() == id));
    assert!(left_with(held.id.hash()) && left_with(waiting.id.hash()) && left.len() == 2, "{left:?}");
    assert_eq!(soon(guard.lost()).await, LostWhy::Shutdown);
    assert_eq!(soon(tells).await.unwrap(), LostWhy::Shutdown);
    assert!(matches!(guard.release().await, Err(Error::Lost { why: LostWhy::Shutdown, .. })));
    assert!(is_closed(&soon(behind).await.unwrap()));
    assert!(is_closed(&soon(in_line).await.unwrap()));
    let stats = store.locks.stats();
    assert_eq!((stats.held, stats.waiting, stats.lost), (0, 0, 1));

    assert!(is_closed(&soon(store.locks.mutex("a").lock()).await));
    assert!(is_closed(&soon(store.locks.mutex("a").try_lock()).await));
    assert!(is_closed(&soon(store.locks.semaphore("s", 2).acquire()).await));
}

#[tokio::test]
async fn who_asks_a_silent_store_hears_of_the_end() {
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
async fn who_waits_by_attempts_hears_of_the_end() {
    let mut store = Director::new();
    let patient = Retry { base: 60 * SECOND, max: 60 * SECOND, ..Retry::default() };
    let mutex = store.locks.mutex("a").ttl(TTL).retry(patient);
    let mut retrying = pin!(mutex.lock());
    assert!(poll!(retrying.as_mut()).is_pending());
    store.acquire().await.2.give(lockfast::store::Admission::Refused(Default::default()));
    assert!(poll!(retrying.as_mut()).is_pending());
    end(&mut store).await;
    assert!(is_closed(&soon(retrying).await));
}

#[tokio::test]
async fn shutting_down_twice_is_shutting_down_once() {
    let mut store = Director::new();
    end(&mut store).await;
    soon(store.locks.shutdown(SECOND)).await.unwrap();
    let both = [store.locks.clone(), store.locks.clone()];
    let twice = both.iter().map(|locks| locks.shutdown(SECOND));
    soon(futures::future::try_join_all(twice)).await.unwrap();
}

#[tokio::test]
async fn shutting_down_without_an_answer_ends_in_time_and_says_so() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    let locks = store.locks.clone();
    let ending = tokio::spawn(async move { locks.shutdown(5 * SECOND).await });
    let never = store.release().await;
    store.hand.advance(5 * SECOND);
    assert!(matches!(soon(ending).await.unwrap(), Err(Error::Unavailable { .. })));
    assert!(guard.check().is_err());
    drop(never);
}
