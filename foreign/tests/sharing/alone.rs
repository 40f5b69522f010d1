//! What needs no client of somebody else's, or only those.

use servers::Redis;

use crate::peer::{PYTHON_REDIS_LOCK, Peer, REDIS_PY, REDIS_SEMAPHORE, REDLOCK, REDLOCK_5, RSLOCK};
use crate::scene::{connection, in_time};

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
