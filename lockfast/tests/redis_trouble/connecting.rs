//! Connecting: one task connects for all callers of a runtime.

use std::pin::pin;

use futures::poll;
use lockfast::Redis;
use lockfast::store::{Admission, Busy, Store};

use crate::fixture::{claim, hold, millis, now, secs, soon};
use crate::proxy::Proxy;

#[tokio::test]
async fn a_lock_left_unpolled_while_connecting_holds_up_no_other() {
    let server = servers::Redis::start();
    let proxy = Proxy::to(&server);
    let store = Redis::open(&proxy.url()).await.unwrap();
    proxy.cut();
    let (first, second) = (claim("lock:a", secs(30)), claim("lock:b", secs(30)));
    // The client learns of the cut from a request that fails.
    let _ = store.acquire(&claim("lock:c", secs(30)), Busy::Wait).await;
    let mut unpolled = pin!(store.acquire(&first, Busy::Wait));
    assert!(poll!(unpolled.as_mut()).is_pending());
    let started_at = now();
    soon(hold(&store, &second)).await;
    let elapsed = now().since(started_at);
    assert!(elapsed < secs(2), "it took {elapsed:?}");
    unpolled.await.unwrap();
}

#[tokio::test]
async fn impatient_callers_get_in_after_a_cut() {
    let server = servers::Redis::start();
    let proxy = Proxy::with_delay(&server, millis(20));
    let store = Redis::open(&proxy.url()).await.unwrap();
    proxy.cut();
    let before = proxy.connection_attempts();
    let mut entered = 0;
    for number in 0..60 {
        let one = claim(&format!("lock:a{number}"), secs(30));
        // Opening a connection takes longer than any of these callers waits.
        let answer = tokio::time::timeout(millis(110), store.acquire(&one, Busy::Wait)).await;
        entered += usize::from(matches!(answer, Ok(Ok(Admission::Held(_)))));
    }
    assert!(entered >= 30, "{entered} of 60 got in");
    let attempts = proxy.connection_attempts() - before;
    assert!(attempts <= 2, "{attempts} connections for one cut");
}

#[tokio::test]
async fn a_cancelled_caller_leaves_its_connection_to_the_next() {
    let server = servers::Redis::start();
    let proxy = Proxy::with_delay(&server, millis(5));
    let store = Redis::open(&proxy.url()).await.unwrap();
    proxy.cut();
    let _ = store.acquire(&claim("lock:a", secs(30)), Busy::Wait).await;
    let before = proxy.connection_attempts();
    {
        let one = claim("lock:b", secs(30));
        let mut cancelled = pin!(store.acquire(&one, Busy::Wait));
        assert!(poll!(cancelled.as_mut()).is_pending());
    }
    soon(hold(&store, &claim("lock:c", secs(30)))).await;
    assert!(proxy.connection_attempts() <= before + 1, "the connection that was being opened is used");
}

#[tokio::test]
async fn an_unused_store_does_not_go_on_connecting() {
    let server = servers::Redis::start();
    let proxy = Proxy::to(&server);
    let store = Redis::open(&proxy.url()).await.unwrap();
    proxy.disconnect();
    for _ in 0..3 {
        assert!(store.acquire(&claim("lock:a", secs(30)), Busy::Wait).await.is_err());
    }
    let one = claim("lock:b", secs(30));
    {
        let mut cancelled = pin!(store.acquire(&one, Busy::Wait));
        assert!(poll!(cancelled.as_mut()).is_pending());
    }
    let before = proxy.connection_attempts();
    // Several times the pause between attempts at this point. An attempt that was begun may end.
    tokio::time::sleep(secs(2)).await;
    assert!(
        proxy.connection_attempts() <= before + 1,
        "{} attempts for no caller",
        proxy.connection_attempts() - before
    );
}
