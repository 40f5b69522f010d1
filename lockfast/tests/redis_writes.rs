//! What makes a lock in Redis more than a lease: writes that refuse a stale fence, and replicas that have a claim before it
//! counts.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use lockfast::{Error, Locks, LostWhy, Redis};

async fn locks_at(url: &str) -> (std::sync::Arc<Redis>, Locks) {
    let redis = Redis::open(url).await.unwrap();
    (redis.clone(), Locks::new(redis).unwrap())
}

fn ask<T: redis::FromRedisValue>(server: &servers::Redis, words: &[&str]) -> T {
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(*word);
    }
    command.query(&mut connection).unwrap()
}

#[tokio::test]
async fn a_stale_fence_writes_nothing() {
    let server = servers::Redis::start();
    let (redis, locks) = locks_at(&server.url()).await;
    let first = locks.mutex("account").ttl(Duration::from_millis(500)).no_renewal().lock().await.unwrap();
    let stale = first.fence().unwrap();
    redis.set_fenced("balance", "100", stale).await.unwrap();
    redis.set_fenced("balance", "90", stale).await.unwrap();
    // The first holder sleeps over its lease, and somebody else comes.
    let second = locks.mutex("account").lock().await.unwrap();
    redis.set_fenced("balance", "80", second.fence().unwrap()).await.unwrap();
    let refused = redis.set_fenced("balance", "999", stale).await.unwrap_err();
    assert!(matches!(&refused, Error::Lost { why: LostWhy::Overtaken, .. }), "{refused}");
    assert_eq!(ask::<String>(&server, &["GET", "balance"]), "80");
    assert!(ask::<String>(&server, &["GET", "lock:account"]).starts_with("lockfast1 x "));
    let odd = redis.set_fenced("lockfast:tickets", "1", u64::MAX).await.unwrap_err();
    assert!(matches!(odd, Error::Invalid(_)), "{odd}");
    second.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_counts_when_its_replicas_have_it() {
    let primary = servers::Redis::start();
    let mut replica = servers::Redis::options().setting(format!("replicaof 127.0.0.1 {}", primary.port())).start();
    let (_, locks) = locks_at(&format!("{}?replicas=1", primary.url())).await;
    // Right after its start the replica may not be connected yet.
    let guard = loop {
        match locks.mutex("a").try_lock().await {
            Ok(Some(guard)) => break guard,
            // What the attempt before left is being withdrawn.
            Ok(None) => tokio::task::yield_now().await,
            Err(error) => assert!(matches!(error, Error::Unavailable { .. }), "{error}"),
        }
    };
    assert!(ask::<String>(&replica, &["GET", "lock:a"]).starts_with("lockfast1 x "));
    guard.release().await.unwrap();

    let before = waits(&primary);
    let crowd: Vec<_> = (0..50).map(|number| locks.mutex(format!("crowd:{number}"))).collect();
    let guards = futures::future::join_all(crowd.iter().map(|mutex| mutex.lock())).await;
    assert!(guards.iter().all(Result::is_ok));
    let sent = waits(&primary) - before;
    assert!(sent < 50, "one WAIT answers for many, and {sent} were sent for 50 locks");

    replica.kill();
    let refused = locks.mutex("b").try_lock().await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }) && refused.to_string().contains("replicas"), "{refused}");
    // What was not acknowledged is withdrawn, long before its lease ends.
    let withdrawn = async {
        while ask::<Option<String>>(&primary, &["GET", "lock:b"]).is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), withdrawn).await.expect("its lease lasts for 30 s");
    // Who is ready to wait for ever hears after a while that there is nothing to wait for.
    let given_up = tokio::time::timeout(Duration::from_secs(30), locks.mutex("c").lock()).await;
    let given_up = given_up.expect("ten seconds are enough").unwrap_err();
    assert!(matches!(given_up, Error::Unavailable { .. }), "{given_up}");
}

fn waits(server: &servers::Redis) -> u64 {
    let info: String = ask(server, &["INFO", "commandstats"]);
    let calls = info.lines().find_map(|line| line.strip_prefix("cmdstat_wait:calls=")?.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}
