//! Callers without patience, or with less than a reply takes: they get a free lock, a taken one is busy, and only a server that
//! does not answer is unavailable.

use std::time::Duration;

use lockfast::{Error, Guard, Locks, OnceState, Outcome, Retry};
use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{connect, count_waiters, millis, now, secs, soon, until};
use crate::proxy::Proxy;

/// The delay in one direction. A call takes twice as long, which is more than any patience in [`SHORT_PATIENCES`].
const DELAY: Duration = millis(10);
const SHORT_PATIENCES: [Duration; 2] = [Duration::ZERO, millis(1)];

/// Calls every method that takes a patience, one after the other, each for its own name. Each releases what it gets.
async fn call_every_method(
    locks: &Locks,
    name: impl Fn(&str) -> String,
    patience: Duration,
) -> Vec<(&'static str, Result<(), Error>)> {
    async fn release(guard: lockfast::Result<Guard>) -> Result<(), Error> {
        guard?.release().await
    }
    let steady = Retry { count: None, base: millis(1), ..Retry::default() };
    let run = locks.once(name("run")).run_within(patience, async |_| Ok::<_, Error>("done")).await;
    let once_state = locks.once(name("begin")).begin_within(patience).await;
    let blocking = lockfast::blocking::Locks::from(locks.clone()).mutex(name("blocking"));
    vec![
        ("mutex", release(locks.mutex(name("mutex")).lock_within(patience).await).await),
        ("retry", release(locks.mutex(name("retry")).retry(steady).lock_within(patience).await).await),
        ("read", release(locks.rwlock(name("read")).read_within(patience).await).await),
        ("write", release(locks.rwlock(name("write")).write_within(patience).await).await),
        ("multi", release(locks.multi([name("multi"), "another".to_owned()]).lock_within(patience).await).await),
        ("begin", once_state.map(|once_state| assert!(matches!(once_state, OnceState::Ours(_))))),
        (
            "run",
            run.and_then(|outcome| match outcome {
                Outcome::Ran(_) => Ok(()),
                other => Err(Error::invalid(format!("{other:?}"))),
            }),
        ),
        ("blocking", tokio::task::spawn_blocking(move || blocking.lock_within(patience).map(drop)).await.unwrap()),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_lock_is_acquired_however_short_patience_is() {
    let server = servers::Redis::start();
    let proxy = Proxy::with_delay(&server, DELAY);
    let locks = connect(&proxy.url(), secs(30)).await;
    for patience in SHORT_PATIENCES {
        for (method, entered) in call_every_method(&locks, |method| format!("{method} {patience:?}"), patience).await {
            assert!(entered.is_ok(), "{method} within {patience:?}: {entered:?}");
        }
        let permits = locks.semaphore("permits", 3);
        permits.acquire_within(patience).await.unwrap().release().await.unwrap();
        permits.acquire_many_within(3, patience).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_taken_lock_is_busy_and_leaves_no_entry_with_little_patience() {
    let server = servers::Redis::start();
    let proxy = Proxy::with_delay(&server, DELAY);
    let (one, other) = (connect(&server.url(), secs(30)).await, connect(&proxy.url(), secs(30)).await);
    let held = one.mutex("a").lock().await.unwrap();
    for patience in SHORT_PATIENCES {
        for (method, entered) in call_every_method(&other, |_| "a".to_owned(), patience).await {
            match entered {
                Err(Error::Busy { holder: Some(holder), .. }) => assert_eq!(holder.owner, held.owner(), "{method}"),
                Err(Error::Invalid(why)) if method == "run" => assert_eq!(why, "InProgress"),
                entered => panic!("{method} within {patience:?}: {entered:?}"),
            }
        }
        // A request that waited for a moment withdraws its entry in the background.
        let left = if patience.is_zero() { count_waiters(&one, "a").await } else { 0 };
        assert_eq!(left, 0, "no entry is left");
        until("no entry is left", async || count_waiters(&one, "a").await == 0).await;
    }
    held.release().await.unwrap();
    soon(one.mutex("a").lock()).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_is_unavailable_soon_after_patience_ends() {
    let server = servers::Redis::start();
    let locks = connect(&server.url(), secs(30)).await;
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    let pid = Pid::from_raw(server.pid() as i32).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    for patience in [Duration::ZERO, millis(1), millis(500)] {
        let started_at = now();
        let error = soon(locks.mutex("a").lock_within(patience)).await.unwrap_err();
        let elapsed = now().since(started_at);
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        // One second by the rule, and two more for a busy machine. Without the rule it takes ten.
        assert!(elapsed >= patience && elapsed < patience + secs(3), "{patience:?} took {elapsed:?}");
    }
    kill_process(pid, Signal::CONT).unwrap();
    soon(locks.mutex("a").lock()).await.unwrap().release().await.unwrap();
}
