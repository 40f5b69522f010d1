//! Tests without a process of the other library, or without lockfast.

use std::time::Duration;

use lockfast::{Error, Locks};
use servers::Redis;

use crate::fixture::{SOON, assert_soon_after, connection, in_time, now, until_waiting};
use crate::peer::{PYTHON_REDIS_LOCK, Peer, REDIS_PY, REDIS_SEMAPHORE, REDLOCK, REDLOCK_5, RSLOCK};

/// The premise of the other tests, without lockfast: the drivers take, refuse and release locks as they answer.
#[test]
fn libraries_that_use_the_same_key_exclude_each_other() {
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
                assert!(peer.try_lock(name).await, "{client} alone");
                for (_, (client, name, peer)) in peers.iter_mut().enumerate().filter(|(other, _)| *other != holder) {
                    assert!(!peer.try_lock(name).await, "{client} beside another");
                    assert_eq!(peer.ask(&format!("hammer {name} 3")).await, "0", "{client}");
                    assert_eq!(peer.ask(&format!("forge {name}")).await, "forged");
                    peer.expect_no_access().await;
                }
                let left: i64 = redis::cmd("PTTL").arg(key).query(&mut connection(&redis)).unwrap();
                assert!((1..=30_000).contains(&left), "{left}");
                let (client, _, peer) = &mut peers[holder];
                assert_eq!(peer.ask("extend 40000").await, "done", "{client}");
                peer.release().await;
                let left: i64 = redis::cmd("PTTL").arg(key).query(&mut connection(&redis)).unwrap();
                assert_eq!(left, -2, "{client} has released it");
            }
            // All of them at once: no update may be lost.
            peers.iter_mut().for_each(|(_, name, peer)| peer.send(&format!("count {name} counter-{key} 5")));
            for (_, _, peer) in &mut peers {
                assert_eq!(peer.answer().await, "done");
            }
            let counted: u64 = redis::cmd("GET").arg(format!("counter-{key}")).query(&mut connection(&redis)).unwrap();
            assert_eq!(counted, 25);
        }
    });
}

/// Redisson keeps a hash where others keep a string. Such a key is not shared, and it is not removed either.
#[test]
fn a_hash_at_our_key_is_an_error_and_stays() {
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
            let text = error.to_string();
            assert!(matches!(error, Error::Invalid(_)) && !error.is_retryable(), "{error:?}");
            assert!(text.contains("\"a\"") && text.contains("no lock") && text.contains("prefix"), "{text}");
        }
        let hash: Vec<(String, i64)> = redis::cmd("HGETALL").arg("lock:a").query(&mut connection).unwrap();
        assert_eq!(hash, [("8743c9c0-0795-4907-87fd-6c719a6b4586:1".to_owned(), 1)]);
        let left: i64 = redis::cmd("PTTL").arg("lock:a").query(&mut connection).unwrap();
        assert!((1..=30_000).contains(&left), "{left}");
        // The other name was not taken, and this one is free once the hash is gone.
        locks.mutex("free").try_lock().await.unwrap().expect("it is free").release().await.unwrap();
        redis::cmd("DEL").arg("lock:a").exec(&mut connection).unwrap();
        locks.mutex("a").try_lock().await.unwrap().expect("it is free").release().await.unwrap();
    });
}

/// A claim that is already in the queue stays there: the hash is another program's lock, and will be deleted.
#[test]
fn a_waiter_outlasts_a_hash_that_replaced_the_lock() {
    in_time(async {
        let redis = Redis::start();
        let mut connection = connection(&redis);
        redis::cmd("SET").arg("lock:a").arg("theirs").exec(&mut connection).unwrap();
        let locks = Locks::connect(&redis.url()).await.unwrap();
        let (mutex, multi) = (locks.mutex("a"), locks.multi(["a", "b"]));
        let waiter = tokio::spawn(async move { mutex.lock().await });
        until_waiting(&locks, "a", 1).await;
        let next = tokio::spawn(async move { multi.lock().await });
        until_waiting(&locks, "a", 2).await;
        redis::pipe().del("lock:a").hset("lock:a", "theirs", 1).exec(&mut connection).unwrap();
        // Until the waiter has polled again: a poll must neither fail nor take the key.
        let before = scripts_run(&mut connection);
        while scripts_run(&mut connection) < before + 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!waiter.is_finished() && locks.mutex("a").is_locked().await.unwrap());
        let kind: String = redis::cmd("TYPE").arg("lock:a").query(&mut connection).unwrap();
        assert_eq!(kind, "hash");
        let deleted = now();
        redis::cmd("DEL").arg("lock:a").exec(&mut connection).unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
        assert_soon_after(deleted);
    });
}

fn scripts_run(connection: &mut redis::Connection) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(connection).unwrap();
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    calls.and_then(|rest| rest.split(',').next()).unwrap().parse().unwrap()
}

#[test]
fn a_holder_whose_key_became_a_hash_has_lost_and_leaves_no_key() {
    in_time(async {
        let redis = Redis::start();
        let mut connection = connection(&redis);
        let locks = Locks::connect(&redis.url()).await.unwrap();
        let ttl = Duration::from_millis(600);
        let lost = [
            locks.mutex("a").ttl(ttl).lock().await.unwrap(),
            locks.rwlock("b").ttl(ttl).read().await.unwrap(),
            locks.multi(["c", "d"]).ttl(ttl).lock().await.unwrap(),
        ];
        let released_unseen = locks.mutex("e").lock().await.unwrap();
        let keys = ["lock:a", "lock:b", "lock:c", "lock:e"];
        for key in keys {
            redis::pipe().del(key).hset(key, "theirs", 1).exec(&mut connection).unwrap();
        }
        let released = released_unseen.release().await;
        assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
        for guard in lost {
            guard.lost().await;
            assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
        }
        for key in keys {
            let hash: Vec<(String, u8)> = redis::cmd("HGETALL").arg(key).query(&mut connection).unwrap();
            assert_eq!(hash, [("theirs".to_owned(), 1)], "{key}");
            redis::cmd("DEL").arg(key).exec(&mut connection).unwrap();
        }
        for name in ["a", "b", "c", "d", "e"] {
            locks.mutex(name).lock_within(SOON).await.unwrap().release().await.unwrap();
        }
    });
}

/// One name of a multi was overwritten and belongs to another program now. Breaking the claim does not touch that name.
#[test]
fn breaking_a_multi_leaves_a_name_that_another_program_took() {
    in_time(async {
        let redis = Redis::start();
        let mut connection = connection(&redis);
        let locks = Locks::connect(&redis.url()).await.unwrap();
        let guard = locks.multi(["a", "b"]).lock().await.unwrap();
        redis::cmd("SET").arg("lock:a").arg("theirs").arg("PX").arg(60_000).exec(&mut connection).unwrap();
        assert!(locks.break_lock("b", guard.fence().unwrap()).await.unwrap());
        guard.lost().await;
        drop(guard);
        locks.mutex("b").lock_within(SOON).await.unwrap().release().await.unwrap();
        let theirs: String = redis::cmd("GET").arg("lock:a").query(&mut connection).unwrap();
        let left: i64 = redis::cmd("PTTL").arg("lock:a").query(&mut connection).unwrap();
        assert!(theirs == "theirs" && left > 50_000, "{theirs:?}, {left} ms are left");
    });
}

/// The server's clock goes on between two commands of a script, so that the reader marker may expire a little later than its
/// reader's lease. The last reader removes it all the same, also while a writer waits.
#[test]
fn the_reader_marker_goes_with_the_last_reader() {
    in_time(async {
        let redis = Redis::start();
        let mut connection = connection(&redis);
        let locks = Locks::connect(&redis.url()).await.unwrap();
        let mut left = || -> i64 { redis::cmd("PTTL").arg("lock:a").query(&mut connection).unwrap() };
        let set_ttl =
            |span: i64| redis::cmd("PEXPIRE").arg("lock:a").arg(span).exec(&mut crate::fixture::connection(&redis));
        let reader = locks.rwlock("a").read().await.unwrap();
        set_ttl(left() + 5).unwrap();
        reader.release().await.unwrap();
        assert_eq!(left(), -2);

        let readers = [locks.rwlock("a").read().await.unwrap(), locks.rwlock("a").read().await.unwrap()];
        set_ttl(left() + 5).unwrap();
        let mutex = locks.mutex("a");
        let waiter = tokio::spawn(async move { mutex.lock().await });
        until_waiting(&locks, "a", 1).await;
        for reader in readers {
            reader.release().await.unwrap();
        }
        let released = now();
        waiter.await.unwrap().unwrap().release().await.unwrap();
        assert_soon_after(released);
        assert_eq!(left(), -2);
    });
}
