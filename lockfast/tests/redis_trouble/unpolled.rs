//! Futures that are polled once and never again, and runtimes that are blocked: other requests do not wait for them.

use std::pin::pin;
use std::sync::mpsc;
use std::time::Duration;

use futures::poll;
use lockfast::{Guard, Locks, Mutex};
use tokio::task::JoinHandle;

use crate::fixture::{connect, count_waiters, now, secs, until};

/// Long enough that no renewal, which would find a missed grant, is due within a test.
const TTL: Duration = secs(60);

/// The next request gets a free lock within two seconds and one or two round trips. The rest is for a busy machine.
const HANDOFF_TIMEOUT: Duration = secs(4);

async fn spawn_waiter(locks: &Locks, mutex: Mutex) -> JoinHandle<lockfast::Result<Guard>> {
    let before = locks.stats().waiting;
    let waiter = tokio::spawn(async move { mutex.lock().await });
    until("it waits", async || locks.stats().waiting > before).await;
    waiter
}

async fn expect_entry(waiter: JoinHandle<lockfast::Result<Guard>>) {
    let entered =
        tokio::time::timeout(HANDOFF_TIMEOUT, waiter).await.expect("the lock is free, and reaches the next waiter");
    entered.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_release_polled_once_reaches_the_next_waiter_of_its_client() {
    let server = servers::Redis::start();
    for local in [false, true] {
        let locks = connect(&server.url(), TTL).await;
        let mutex = || locks.mutex("a").local_handoff(local);
        let guard = mutex().lock().await.unwrap();
        let waiter = spawn_waiter(&locks, mutex()).await;
        let mut releasing = pin!(guard.release());
        assert!(poll!(releasing.as_mut()).is_pending());
        expect_entry(waiter).await;
        // The reply came long ago, and the lock was released.
        releasing.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_on_a_blocked_runtime_reaches_the_next_local_waiter() {
    let server = servers::Redis::start();
    for local in [false, true] {
        let locks = connect(&server.url(), TTL).await;
        let mutex = locks.mutex("a").local_handoff(local);
        let (released, is_released) = mpsc::channel::<()>();
        let (held, is_held) = mpsc::channel::<()>();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let blocked = std::thread::spawn({
            let mutex = mutex.clone();
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let guard = mutex.lock().await.unwrap();
                    held.send(()).unwrap();
                    is_released.recv().unwrap();
                    let mut releasing = pin!(guard.release());
                    assert!(poll!(releasing.as_mut()).is_pending());
                    // From here on no task of this runtime runs, including the one that writes to the server.
                    may_go_on.recv().unwrap();
                    releasing.await
                })
            }
        });
        is_held.recv().unwrap();
        let waiter = spawn_waiter(&locks, mutex).await;
        released.send(()).unwrap();
        expect_entry(waiter).await;
        go_on.send(()).unwrap();
        blocked.join().unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_lock_whose_future_is_polled_once_is_given_back() {
    let server = servers::Redis::start();
    let (ours, theirs) = (connect(&server.url(), TTL).await, connect(&server.url(), TTL).await);
    // With a connection that is open, the first poll sends the request.
    ours.mutex("b").lock().await.unwrap().release().await.unwrap();
    let mutex = ours.mutex("a");
    let mut idle = pin!(mutex.lock());
    assert!(poll!(idle.as_mut()).is_pending());
    until("the store has granted it", async || theirs.mutex("a").is_locked().await.unwrap()).await;
    let started_at = now();
    expect_entry(spawn_waiter(&theirs, theirs.mutex("a")).await).await;
    assert!(now().since(started_at) < HANDOFF_TIMEOUT);
    // Polled at last, it sends a new request.
    idle.await.unwrap().release().await.unwrap();
    until("nothing is left", async || count_waiters(&theirs, "a").await == 0).await;
}
