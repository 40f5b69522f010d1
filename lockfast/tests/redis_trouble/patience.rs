//! Callers without patience, or with less than an answer takes: a free lock is theirs, a taken one is busy, and only a
//! server that does not answer is unavailable.

use std::time::Duration;

use lockfast::{Error, Guard, Locks, OnceState, Outcome, Retry};
use rustix::process::{Pid, Signal, kill_process};

use crate::stage::{Way, connect, millis, now, secs, soon, until, waiting};

/// One way. A call takes twice as long, and all patience here is less.
const DELAY: Duration = millis(10);
const SHORT: [Duration; 2] = [Duration::ZERO, millis(1)];

/// Asks every face, one after the other, each for its own name. Each gives back what it gets.
async fn every_face(
    locks: &Locks,
    name: impl Fn(&str) -> String,
    patience: Duration,
) -> Vec<(&'static str, Result<(), Error>)> {
    async fn free(guard: lockfast::Result<Guard>) -> Result<(), Error> {
        guard?.release().await
    }
    let steady = Retry { count: None, base: millis(1), ..Retry::default() };
    let run = locks.once(name("run")).run_within(patience, async |_| Ok::<_, Error>("done")).await;
    let begun = locks.once(name("begin")).begin_within(patience).await;
    let blocking = lockfast::blocking::Locks::from(locks.clone()).mutex(name("blocking"));
    vec![
        ("mutex", free(locks.mutex(name("mutex")).lock_within(patience).await).await),
        ("retry", free(locks.mutex(name("retry")).retry(steady).lock_within(patience).await).await),
        ("read", free(locks.rwlock(name("read")).read_within(patience).await).await),
        ("write", free(locks.rwlock(name("write")).write_within(patience).await).await),
        ("multi", free(locks.multi([name("multi"), "another".to_owned()]).lock_within(patience).await).await),
        ("begin", begun.map(|begun| assert!(matches!(begun, OnceState::Ours(_))))),
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
    let way = Way::slow(&server, DELAY);
    let locks = connect(&way.url(), secs(30)).await;
    for patience in SHORT {
        for (face, entered) in every_face(&locks, |face| format!("{face} {patience:?}"), patience).await {
            assert!(entered.is_ok(), "{face} within {patience:?}: {entered:?}");
        }
        let permits = locks.semaphore("permits", 3);
        permits.acquire_within(patience).await.unwrap().release().await.unwrap();
        permits.acquire_many_within(3, patience).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_taken_lock_is_busy_however_short_patience_is_and_no_entry_is_left() {
    let server = servers::Redis::start();
    let way = Way::slow(&server, DELAY);
    let (one, other) = (connect(&server.url(), secs(30)).await, connect(&way.url(), secs(30)).await);
    let held = one.mutex("a").lock().await.unwrap();
    for patience in SHORT {
        for (face, entered) in every_face(&other, |_| "a".to_owned(), patience).await {
            match entered {
                Err(Error::Busy { holder: Some(holder), .. }) => assert_eq!(holder.owner, held.owner(), "{face}"),
                Err(Error::Invalid(why)) if face == "run" => assert_eq!(why, "InProgress"),
                entered => panic!("{face} within {patience:?}: {entered:?}"),
            }
        }
        // Who waited a moment withdraws in the background.
        let left = if patience.is_zero() { waiting(&one, "a").await } else { 0 };
        assert_eq!(left, 0, "no entry is left");
        until("no entry is left", async || waiting(&one, "a").await == 0).await;
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
        let asked = now();
        let error = soon(locks.mutex("a").lock_within(patience)).await.unwrap_err();
        let took = now().since(asked);
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        // A second by the rule, and as much again for a machine that is busy; without the rule it is ten.
        assert!(took >= patience && took < patience + secs(3), "{patience:?} took {took:?}");
    }
    kill_process(pid, Signal::CONT).unwrap();
    soon(locks.mutex("a").lock()).await.unwrap().release().await.unwrap();
}
