//! Fenced writes, which refuse a stale fence, and `?replicas=N`, with which a claim counts only when replicas have it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in its fixture too")]

#[allow(dead_code, reason = "other test binaries use the rest of it")]
#[path = "fixtures/redis.rs"]
mod fixture;

use lockfast::{Error, Locks, LostWhy, Redis};

use fixture::{Admin, millis, secs};

/// The value of the key of a held lock begins with the format and the mode: `x` is exclusive.
const EXCLUSIVE_HOLDER: &str = "lockfast1 x ";

async fn locks_at(url: &str) -> (std::sync::Arc<Redis>, Locks) {
    let redis = Redis::open(url).await.unwrap();
    (redis.clone(), Locks::new(redis).unwrap())
}

#[tokio::test]
async fn a_stale_fence_writes_nothing() {
    let server = servers::Redis::start();
    let (redis, locks) = locks_at(&server.url()).await;
    let first = locks.mutex("account").ttl(millis(500)).no_renewal().lock().await.unwrap();
    let stale = first.fence().unwrap();
    redis.set_fenced("balance", "100", stale).await.unwrap();
    redis.set_fenced("balance", "90", stale).await.unwrap();
    // The first holder does not renew, and another claim gets the lock.
    let second = locks.mutex("account").lock().await.unwrap();
    redis.set_fenced("balance", "80", second.fence().unwrap()).await.unwrap();
    let refused = redis.set_fenced("balance", "999", stale).await.unwrap_err();
    assert!(matches!(&refused, Error::Lost { why: LostWhy::Overtaken, .. }), "{refused}");
    let mut admin = Admin::of(&server.url());
    assert_eq!(admin.text("GET balance"), "80");
    assert!(admin.text("GET lock:account").starts_with(EXCLUSIVE_HOLDER));
    let odd = redis.set_fenced("lockfast:tickets", "1", u64::MAX).await.unwrap_err();
    assert!(matches!(odd, Error::Invalid(_)), "{odd}");
    second.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_counts_when_its_replicas_have_it() {
    let primary = servers::Redis::start();
    let mut replica = servers::Redis::options().replica_of(&primary).start();
    let mut admin = Admin::of(&primary.url());
    let (_, locks) = locks_at(&format!("{}?replicas=1", primary.url())).await;
    // Right after its start the replica may not be connected yet.
    let guard = loop {
        match locks.mutex("a").try_lock().await {
            Ok(Some(guard)) => break guard,
            // The entry of the attempt before is being withdrawn.
            Ok(None) => tokio::task::yield_now().await,
            Err(error) => assert!(matches!(error, Error::Unavailable { .. }), "{error}"),
        }
    };
    assert!(Admin::of(&replica.url()).text("GET lock:a").starts_with(EXCLUSIVE_HOLDER));
    guard.release().await.unwrap();

    let wait_calls_before = admin.calls("wait");
    let mutexes: Vec<_> = (0..50).map(|number| locks.mutex(format!("many:{number}"))).collect();
    let guards = futures::future::join_all(mutexes.iter().map(|mutex| mutex.lock())).await;
    assert!(guards.iter().all(Result::is_ok));
    let wait_calls = admin.calls("wait") - wait_calls_before;
    assert!(wait_calls < 50, "one WAIT confirms many locks, and {wait_calls} were sent for 50 locks");

    replica.kill();
    let refused = locks.mutex("b").try_lock().await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }) && refused.to_string().contains("replicas"), "{refused}");
    // A claim that no replica acknowledged is withdrawn, long before its lease ends.
    let withdrawn = async {
        while admin.number("EXISTS lock:b") == 1 {
            tokio::time::sleep(millis(5)).await;
        }
    };
    tokio::time::timeout(secs(10), withdrawn).await.expect("its lease lasts for 30 s");
    // A caller that would wait for ever gets an error when replicas stay away.
    let given_up = tokio::time::timeout(secs(30), locks.mutex("c").lock()).await;
    let given_up = given_up.expect("ten seconds are enough").unwrap_err();
    assert!(matches!(given_up, Error::Unavailable { .. }), "{given_up}");
}
