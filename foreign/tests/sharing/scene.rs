//! What a test has: a server, one process of the other library, and clients of ours under the same keys.

use std::future::Future;
use std::time::Duration;

use lockfast::store::Moment;
use lockfast::{Clock, Locks};
use servers::Redis;

use crate::peer::{Client, Peer};

/// One recheck takes at most 300 ms while somebody else's client holds a lock; the rest is for a machine with a lot to do.
pub const SOON: Duration = Duration::from_secs(2);

/// Longer than a test takes that does not hang.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// See above.
#[derive(Debug)]
pub struct Scene {
    pub peer: Peer,
    pub locks: Locks,
    pub client: Client,
    redis: Redis,
}

/// Runs a test with a client of somebody else's.
pub fn play<F: Future<Output = ()>>(client: Client, test: impl FnOnce(Scene) -> F) {
    in_time(async {
        let redis = Redis::start();
        let peer = Peer::start(client, &redis.url()).await;
        let locks = Locks::connect(&url(client, &redis)).await.unwrap();
        test(Scene { peer, locks, client, redis }).await;
    });
}

/// Runs something that ends.
pub fn in_time<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(ENDS_WITHIN, work).await.expect("it does not hang") })
}

fn url(client: Client, redis: &Redis) -> String {
    format!("{}?prefix={}", redis.url(), client.prefix)
}

impl Scene {
    /// The store, for another process of ours.
    pub fn url(&self) -> String {
        url(self.client, &self.redis)
    }

    /// One more process of the same library.
    pub async fn another_peer(&self) -> Peer {
        Peer::start(self.client, &self.redis.url()).await
    }

    /// One more client of ours, as if in another process.
    pub async fn another_client(&self) -> Locks {
        // The prefix may be said here instead of in the URL.
        Locks::builder().prefix(self.client.prefix).connect(&self.redis.url()).await.unwrap()
    }

    /// The value of the key of this name, and the milliseconds it has left (-1 is for ever, -2 is that it is not there).
    pub fn key(&self, name: &str) -> (Option<Vec<u8>>, i64) {
        let key = format!("{}{name}", self.client.prefix);
        let mut connection = connection(&self.redis);
        let value = redis::cmd("GET").arg(&key).query(&mut connection).unwrap();
        let left = redis::cmd("PTTL").arg(&key).query(&mut connection).unwrap();
        (value, left)
    }

    /// An administrator takes the key of this name away.
    pub fn delete(&self, name: &str) {
        redis::cmd("DEL").arg(format!("{}{name}", self.client.prefix)).exec(&mut connection(&self.redis)).unwrap();
    }

    /// A number that is kept beside the locks.
    pub fn number(&self, key: &str) -> Option<u64> {
        redis::cmd("GET").arg(key).query(&mut connection(&self.redis)).unwrap()
    }

    /// Sets it.
    pub fn set_number(&self, key: &str, number: u64) {
        redis::cmd("SET").arg(key).arg(number).exec(&mut connection(&self.redis)).unwrap();
    }
}

/// A connection for looking at the server from outside.
pub fn connection(redis: &Redis) -> redis::Connection {
    redis::Client::open(redis.url()).unwrap().get_connection().unwrap()
}

/// Comes back when so many of ours wait in the line of this name.
pub async fn until_waiting(locks: &Locks, name: &str, count: usize) {
    loop {
        let line = locks.mutex(name).info().await.unwrap();
        if line.is_some_and(|line| line.waiters().count() == count) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Now, by the clock that leases are judged by.
pub fn now() -> Moment {
    Clock::boot().now()
}

/// Panics if more than a little time has passed since then.
pub fn soon_after(then: Moment) {
    let passed = now().since(then);
    assert!(passed < SOON, "it took {passed:?}");
}
