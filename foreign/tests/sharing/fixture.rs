//! The fixture of a test: a server, one process of the other library, and clients of ours that use the same keys.

use std::future::Future;
use std::time::Duration;

use lockfast::store::Moment;
use lockfast::{Clock, Locks};
use servers::Redis;

use crate::peer::{Client, Peer};

/// A waiter rechecks at least every 300 ms while another library holds the lock; the rest is for a busy machine.
pub const SOON: Duration = Duration::from_secs(2);

/// A test that takes longer hangs.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A server, the other library, and one client of ours.
#[derive(Debug)]
pub struct Fixture {
    pub peer: Peer,
    pub locks: Locks,
    pub client: Client,
    redis: Redis,
}

/// Runs a test with this library.
pub fn run<F: Future<Output = ()>>(client: Client, test: impl FnOnce(Fixture) -> F) {
    in_time(async {
        let redis = Redis::start();
        let peer = Peer::start(client, &redis.url()).await;
        let locks = Locks::connect(&url(client, &redis)).await.unwrap();
        test(Fixture { peer, locks, client, redis }).await;
    });
}

/// Runs `work` on a runtime, and panics if it hangs.
pub fn in_time<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(TEST_TIMEOUT, work).await.expect("it does not hang") })
}

fn url(client: Client, redis: &Redis) -> String {
    format!("{}?prefix={}", redis.url(), client.prefix)
}

impl Fixture {
    /// The URL of the store, for another process of ours.
    pub fn url(&self) -> String {
        url(self.client, &self.redis)
    }

    /// One more process of the same library.
    pub async fn another_peer(&self) -> Peer {
        Peer::start(self.client, &self.redis.url()).await
    }

    /// One more client of ours, as if in another process.
    pub async fn another_client(&self) -> Locks {
        // The prefix may be set here instead of in the URL.
        Locks::builder().prefix(self.client.prefix).connect(&self.redis.url()).await.unwrap()
    }

    /// The value of this name's key, and its time to live in milliseconds (-1: for ever, -2: it does not exist).
    pub fn key(&self, name: &str) -> (Option<Vec<u8>>, i64) {
        let key = format!("{}{name}", self.client.prefix);
        let mut connection = connection(&self.redis);
        let value = redis::cmd("GET").arg(&key).query(&mut connection).unwrap();
        let left = redis::cmd("PTTL").arg(&key).query(&mut connection).unwrap();
        (value, left)
    }

    /// Deletes this name's key, as an administrator would.
    pub fn delete(&self, name: &str) {
        redis::cmd("DEL").arg(format!("{}{name}", self.client.prefix)).exec(&mut connection(&self.redis)).unwrap();
    }

    /// The number at another key, beside the locks.
    pub fn number(&self, key: &str) -> Option<u64> {
        redis::cmd("GET").arg(key).query(&mut connection(&self.redis)).unwrap()
    }

    /// Sets that number.
    pub fn set_number(&self, key: &str, number: u64) {
        redis::cmd("SET").arg(key).arg(number).exec(&mut connection(&self.redis)).unwrap();
    }
}

/// An administrator's connection.
pub fn connection(redis: &Redis) -> redis::Connection {
    redis::Client::open(redis.url()).unwrap().get_connection().unwrap()
}

/// Returns when the queue of this name has so many waiters of ours.
pub async fn until_waiting(locks: &Locks, name: &str, count: usize) {
    loop {
        let resource = locks.mutex(name).info().await.unwrap();
        if resource.is_some_and(|resource| resource.waiters().count() == count) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Now, by the clock of leases.
pub fn now() -> Moment {
    Clock::boot().now()
}

/// Panics if more than [`SOON`] has passed since then.
pub fn assert_soon_after(then: Moment) {
    let passed = now().since(then);
    assert!(passed < SOON, "it took {passed:?}");
}
