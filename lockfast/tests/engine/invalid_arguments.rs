//! Invalid arguments are refused before they reach the queue, with a message that says what to write instead.

use std::sync::Arc;
use std::time::Duration;

use lockfast::{Error, Guard, Locks, Memory, Result, Retry};

use crate::steps::{millis, secs, soon};

const YEAR: Duration = secs(365 * 24 * 3600);

/// Refused, with a message that contains `hints`, and no entry is left in the queue.
async fn refused<T>(locks: &Locks, asked: impl Future<Output = Result<T>>, hints: &[&str]) {
    let Err(error) = soon(asked).await else { panic!("this makes no sense: {hints:?}") };
    assert!(matches!(error, Error::Invalid(_)) && !error.is_retryable(), "{error:?}");
    let text = error.to_string();
    for hint in hints {
        assert!(text.contains(hint), "{text:?} does not say {hint:?}");
    }
    assert!(locks.inspect("").await.unwrap().is_empty());
    let stats = locks.stats();
    assert_eq!((stats.waiting, stats.held, stats.acquired), (0, 0, 0));
}

#[tokio::test]
async fn names_are_neither_empty_nor_endless() {
    let locks = Locks::in_memory();
    let long = "n".repeat(513);
    let (empty, endless) = (["empty", "write", "account:123"], ["513", "at most 512", "hash"]);
    refused(&locks, locks.mutex("").lock(), &empty).await;
    refused(&locks, locks.mutex("").try_lock(), &empty).await;
    refused(&locks, locks.mutex("").is_locked(), &empty).await;
    refused(&locks, locks.rwlock("").read(), &empty).await;
    refused(&locks, locks.semaphore("", 5).acquire(), &empty).await;
    refused(&locks, locks.multi(["a", ""]).lock(), &empty).await;
    refused(&locks, locks.mutex(&long).lock(), &endless).await;
    refused(&locks, locks.rwlock(&long).write(), &endless).await;
    refused(&locks, locks.semaphore(&long, 5).try_acquire(), &endless).await;
    refused(&locks, locks.multi(["a", &long]).try_lock(), &endless).await;
    refused(&locks, locks.break_lock("", 7), &empty).await;
}

#[tokio::test]
async fn a_lease_that_cannot_be_kept_is_refused() {
    let locks = Locks::in_memory();
    for ttl in [Duration::ZERO, millis(499), 10 * YEAR, Duration::MAX] {
        let hints = ["ttl", "500ms to 7 days", "30 s if in doubt"];
        refused(&locks, locks.mutex("a").ttl(ttl).lock(), &hints).await;
        refused(&locks, locks.rwlock("a").ttl(ttl).try_read(), &hints).await;
        let built = Locks::builder().ttl(ttl).build(Arc::new(Memory::new()));
        assert!(matches!(built, Err(Error::Invalid(_))), "{ttl:?}");
    }
    drop(soon(locks.mutex("a").ttl(millis(500)).lock()).await.unwrap());
}

#[tokio::test]
async fn renewals_that_do_not_fit_the_lease_are_refused() {
    let locks = Locks::in_memory();
    for span in [Duration::ZERO, millis(49), millis(5001), YEAR, Duration::MAX] {
        let mutex = locks.mutex("a").ttl(secs(10)).renew_every(span);
        refused(&locks, mutex.lock(), &["50 ms to half the lease", "a third"]).await;
    }
    drop(soon(locks.mutex("a").ttl(secs(10)).renew_every(secs(5)).lock()).await.unwrap());
}

#[tokio::test]
async fn permits_that_cannot_be_had_are_refused() {
    let locks = Locks::in_memory();
    refused(&locks, locks.semaphore("a", 5).acquire_many(0), &["0 of the 5", "take 1 to 5"]).await;
    refused(&locks, locks.semaphore("a", 5).acquire_many(6), &["6 of the 5", "take 1 to 5"]).await;
    refused(&locks, locks.semaphore("a", 5).try_acquire_many(6), &["6 of the 5", "take 1 to 5"]).await;
    refused(&locks, locks.semaphore("a", 0).acquire(), &["semaphore", "use 1 to 1048575"]).await;
    refused(&locks, locks.semaphore("a", 1 << 20).acquire(), &["semaphore", "use 1 to 1048575"]).await;
    refused(&locks, locks.semaphore("a", 0).info(), &["semaphore", "use 1 to 1048575"]).await;
}

#[tokio::test]
async fn names_taken_together_are_1_to_256_different_ones() {
    let locks = Locks::in_memory();
    refused(&locks, locks.multi(["a", "b", "a"]).lock(), &["\"a\" is asked for twice", "name it once"]).await;
    refused(&locks, locks.multi([""; 0]).lock(), &["no names", "at least one"]).await;
    let many = || (0..257).map(|nth| format!("name {nth}"));
    refused(&locks, locks.multi(many()).lock(), &["257", "at most 256"]).await;
    drop(soon(locks.multi(many().skip(1)).lock()).await.unwrap());
}

#[tokio::test]
async fn bounds_on_holding_that_contradict_each_other_are_refused() {
    let locks = Locks::in_memory();
    let contradiction = locks.mutex("a").hold_at_least(secs(10)).hold_at_most(secs(9));
    refused(&locks, contradiction.lock(), &["hold_at_least (10s)", "hold_at_most (9s)", "swap"]).await;
    for span in [Duration::ZERO, 2 * YEAR, Duration::MAX] {
        refused(&locks, locks.mutex("a").hold_at_least(span).lock(), &["hold_at_least", "at most 366 days"]).await;
        refused(&locks, locks.mutex("a").hold_at_most(span).lock(), &["hold_at_most", "at most 366 days"]).await;
    }
}

#[tokio::test]
async fn retries_without_a_pause_are_refused() {
    let locks = Locks::in_memory();
    let hurried = Retry { base: Duration::ZERO, ..Retry::default() };
    let upside_down = Retry { base: secs(2), max: secs(1), ..Retry::default() };
    let endless = Retry { max: Duration::MAX, ..Retry::default() };
    for retry in [hurried, upside_down, endless] {
        refused(&locks, locks.mutex("a").retry(retry).lock(), &["1 ms or more"]).await;
    }
}

#[tokio::test]
async fn a_prefix_that_is_too_long_is_refused() {
    let build = |length| Locks::builder().prefix("p".repeat(length)).build(Arc::new(Memory::new()));
    let error = build(65).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    assert!(error.to_string().contains("65") && error.to_string().contains("at most 64"), "{error}");
    // The longest prefix leaves room for the longest name.
    let longest = build(64).unwrap();
    drop(soon(longest.mutex("n".repeat(512)).lock()).await.unwrap());
}

#[tokio::test]
async fn an_unknown_store_is_refused_with_a_list_of_known_ones() {
    for url in ["carrier-pigeon://loft", "no scheme at all", ""] {
        let error = Locks::connect(url).await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        assert!(error.to_string().contains("memory:"), "{error}");
    }
}

#[tokio::test]
async fn a_capacity_that_differs_from_the_queue_is_refused() {
    let (locks, memory) = {
        let memory = Arc::new(Memory::new());
        (Locks::new(memory.clone()).unwrap(), memory)
    };
    let other = Locks::new(memory).unwrap();
    let held = soon(locks.semaphore("api", 5).acquire()).await.unwrap();
    let error = |tried: Result<Guard>| tried.unwrap_err();
    let six = error(soon(other.semaphore("api", 6).acquire()).await);
    let mutex = error(soon(other.mutex("api").lock()).await);
    let tried = soon(other.mutex("api").try_lock()).await.unwrap_err();
    for error in [six, mutex, tried] {
        let text = error.to_string();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        assert!(
            text.starts_with("\"")
                && !text.contains("lock:")
                && text.contains("semaphore of 5")
                && text.contains("the same everywhere"),
            "{text}"
        );
    }
    let queue = &locks.inspect("api").await.unwrap()[0].queue;
    assert_eq!(queue.len(), 1, "a refused claim is not in the queue");
    assert_eq!((other.stats().waiting, other.stats().acquired), (0, 0));
    held.release().await.unwrap();
    drop(soon(other.semaphore("api", 6).acquire()).await.unwrap());
}

#[tokio::test]
async fn an_extension_by_nothing_or_for_ever_is_refused() {
    let locks = Locks::in_memory();
    let guard = soon(locks.mutex("a").lock()).await.unwrap();
    for span in [Duration::ZERO, YEAR, Duration::MAX] {
        let error = guard.extend(span).await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)) && error.to_string().contains("7 days"), "{error}");
    }
    guard.check().unwrap();
    drop(soon(locks.mutex("b").lock_within(Duration::MAX)).await.unwrap());
}
