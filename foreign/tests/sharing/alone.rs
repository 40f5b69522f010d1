//! What needs no client of somebody else's, or only those.

use lockfast::{Error, Locks};
use servers::Redis;

use crate::peer::{PYTHON_REDIS_LOCK, Peer, REDIS_PY, REDIS_SEMAPHORE, REDLOCK, REDLOCK_5, RSLOCK};
use crate::scene::{SOON, connection, in_time, now, soon_after, until_waiting};

/// What the other tests conclude from is shown without lockfast: that a driver does what it says.
#[test]
fn those_that_use_the_same_key_exclude_each_other() {
    in_time(async {
        let redis = Redis::start();
        for key in ["lock:a", "mutex:a"] {
            let mut peers = Vec::new();
            for client in [REDIS_PY, PYTHON_REDIS_LOCK, REDLOCK, REDLOCK_5, REDIS_SEMAPHORE, RSLOCK] {
                if let Some(name) = key.strip_prefix(client.prefix) {
                    peers.push((client.name, name, Peer::start(client, &redis.url()).await));
                }
            }
            assert_eq!(peers.len(), 5, "one of them cannot name {key}");
            for holder in 0..peers.len() {
                let (client, name, peer) = &mut peers[holder];
                assert!(peer.gets(name).await, "{client} alone");
                for (_, (client, name, peer)) in peers.iter_mut().enumerate().filter(|(other, _)| *other != holder) {
                    assert!(!peer.gets(name).await, "{client} beside another");
                    assert_eq!(peer.ask(&format!("hammer {name} 3")).await, "0", "{client}");
                    assert_eq!(peer.ask(&format!("forge {name}")).await, "forged");
                    peer.cannot_touch_it().await;
                }
                let left: i64 = redis::cmd("PTTL").arg(key).query(&mut connection(&redis)).unwrap();
                assert!((1..=30_000).contains(&left), "{left}");
                let (client, _, peer) = &mut peers[holder];
                assert_eq!(peer.ask("extend 40000").await, "done", "{client}");
                peer.releases().await;
                let left: i64 = redis::cmd("PTTL").arg(key).query(&mut connection(&redis)).unwrap();
                assert_eq!(left, -2, "{client} has released it");
            }
            // All of them, one after the other; what they count does not depend on luck.
            peers.iter_mut().for_each(|(_, name, peer)| peer.tell(&format!("count {name} counter-{key} 5")));
            for (_, _, peer) in &mut peers {
                assert_eq!(peer.hear().await, "done");
            }
            let counted: u64 = redis::cmd("GET").arg(format!("counter-{key}")).query(&mut connection(&redis)).unwrap();
            assert_eq!(counted, 25);
        }
    });
}

/// Redisson keeps a hash where others keep a string. That key is not shared, and neither is it taken away.
#[test]
fn a_hash_at_our_key_is_an_error_that_says_so_and_stays() {
    in_time(async {
        let redis = Redis::start();
        let mut connection = connection(&redis);
        redis::cmd("HSET")
            .arg("lock:a")
            .arg("8743c9c0-0795-4907-87fd-6c719a6b4586:1")
            .arg(1)
            .exec(&mut connection)
            .unwrap();
        redis::cmd("PEXPIRE").arg("lock:a").arg(30_000).exec(&mut connection).unwrap();
        let locks = Locks::connect(&redis.url()).await.unwrap();
        let refusals = [
            locks.mutex("a").try_lock().await.map(|guard| guard.is_some()),
            locks.mutex("a").lock().await.map(|_| true),
            locks.rwlock("a").try_read().await.map(|guard| guard.is_some()),
            locks.rwlock("a").write().await.map(|_| true),
            locks.multi(["free", "a"]).lock().await.map(|_| true),
        ];
        for refused in refusals {
            let error = refused.expect_err("neither free nor busy");
            let said = error.to_string();
            assert!(matches!(error, Error::Invalid(_)) && !error.is_retryable(), "{error:?}");
            assert!(said.contains("\"a\"") && said.contains("no lock") && said.contains("prefix"), "{said}");
        }
        let hash: Vec<(String, i64)> = redis::cmd("HGETALL").arg("lock:a").query(&mut connection).unwrap();
        assert_eq!(hash, [("8743c9c0-0795-4907-87fd-6c719a6b4586:1".to_owned(), 1)]);
        let left: i64 = redis::cmd("PTTL").arg("lock:a").query(&mut connection).unwrap();
        assert!((1..=30_000).contains(&left), "{left}");
        // The name beside it was not taken, and this one is ours once the hash is gone.
        locks.mutex("free").try_lock().await.unwrap().expect("it is free").release().await.unwrap();
        redis::cmd("DEL").arg("lock:a").exec(&mut connection).unwrap();
        locks.mutex("a").try_lock().await.unwrap().expect("it is free").release().await.unwrap();
    });
}

#[test]
fn who_waits_when_a_hash_takes_the_place_of_a_lock_does_not_wait_for_ever() {
    in_time(async {
        let redis = Redis::start();
        let mut connection = connection(&redis);
        redis::cmd("SET").arg("lock:a").arg("theirs").exec(&mut connection).unwrap();
        let locks = Locks::connect(&redis.url()).await.unwrap();
        let mutex = locks.mutex("a");
        let waiter = tokio::spawn(async move { mutex.lock().await });
        until_waiting(&locks, "a", 1).await;
        redis::cmd("DEL").arg("lock:a").exec(&mut connection).unwrap();
        redis::cmd("HSET").arg("lock:a").arg("theirs").arg(1).exec(&mut connection).unwrap();
        // One or two rechecks: it is told, or it goes on asking.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let kind: String = redis::cmd("TYPE").arg("lock:a").query(&mut connection).unwrap();
        assert_eq!(kind, "hash");
        let deleted = now();
        redis::cmd("DEL").arg("lock:a").exec(&mut connection).unwrap();
        let outcome = waiter.await.unwrap();
        soon_after(deleted);
        eprintln!("{outcome:?}");
        drop(outcome);
        locks.mutex("a").lock_within(SOON).await.unwrap().release().await.unwrap();
    });
}
