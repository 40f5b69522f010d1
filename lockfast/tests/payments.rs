//! Two servers that take payments from one account, in processes of their own. The balance is an ordinary key: it is read,
//! compared and written back, and only the lock makes that exclusive.
//!
//! The servers are this test program, started again to run the one test that serves if the environment says so.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in what its tests share too")]

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast::Locks;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, RedisResult};
use servers::Redis;

/// The URL of the store; set in the processes that serve.
const SERVE: &str = "LOCKFAST_TEST_PAYMENTS";
/// The number of the server.
const NUMBER: &str = "LOCKFAST_TEST_PAYMENTS_NUMBER";
/// The test that serves.
const SERVER: &str = "a_server_takes_payments";

const SERVERS: u64 = 2;
const PAYMENTS: u64 = 10_000;
/// Payments that one server works on at the same time.
const AT_ONCE: u64 = 32;
/// Not enough for all of them: 10,000 payments of 1 to 9 ask for 50,000.
const BEGINNING: i64 = 40_000;

#[test]
fn ten_thousand_payments_lose_nothing_and_overdraw_nothing() {
    in_time(async {
        let redis = Redis::start();
        let mut account = connect(&redis.url()).await;
        let _: () = account.set("balance", BEGINNING).await.unwrap();
        let mut servers: Vec<Server> = (0..SERVERS).map(|number| Server::start(&redis, number)).collect();
        for server in &mut servers {
            server.end().await;
        }
        let mut read = async |key: &str| -> i64 { account.get(key).await.unwrap() };
        let (balance, switches) = (read("balance").await, read("switches").await);
        let (mut accepted, mut paid, mut refused) = (0, 0, 0);
        for number in 0..SERVERS {
            accepted += read(&format!("accepted:{number}")).await;
            paid += read(&format!("paid:{number}")).await;
            refused += read(&format!("refused:{number}")).await;
        }
        assert_eq!(accepted + refused, i64::try_from(PAYMENTS).unwrap());
        assert_eq!(balance, BEGINNING - paid, "the balance is lower by the sum of all payments");
        assert!((0..9).contains(&balance), "payments are accepted as long as there is enough: {balance}");
        // Otherwise one server was done before the other began, and the test shows nothing.
        assert!(switches > 50, "the account went from one server to the other {switches} times");
        assert!(refused > 1000, "{refused}");
    });
}

#[test]
fn a_server_takes_payments() {
    let Ok(url) = std::env::var(SERVE) else { return };
    let number = std::env::var(NUMBER).unwrap().parse().unwrap();
    in_time(serve(&url, number));
}

async fn serve(url: &str, number: u64) {
    let mut redis = connect(url).await;
    let locks = Locks::connect(url).await.unwrap();
    let _: () = redis.incr("servers", 1).await.unwrap();
    while redis.get::<_, u64>("servers").await.unwrap() < SERVERS {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Every other payment is this server's.
    let requests = Arc::new(Mutex::new((number..PAYMENTS).step_by(usize::try_from(SERVERS).unwrap())));
    let workers: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (locks, redis, requests) = (locks.clone(), redis.clone(), Arc::clone(&requests));
            tokio::spawn(async move {
                let mut done = Done::default();
                let next = || requests.lock().unwrap().next();
                while let Some(request) = next() {
                    let amount = i64::try_from(request * 7 % 9).unwrap() + 1;
                    pay(&locks, redis.clone(), number, amount, &mut done).await;
                }
                done
            })
        })
        .collect();
    let mut all = Done::default();
    for worker in workers {
        let done = worker.await.unwrap();
        all = Done {
            accepted: all.accepted + done.accepted,
            paid: all.paid + done.paid,
            refused: all.refused + done.refused,
        };
    }
    for (what, value) in [("accepted", all.accepted), ("paid", all.paid), ("refused", all.refused)] {
        let _: () = redis.set(format!("{what}:{number}"), value).await.unwrap();
    }
}

#[derive(Default)]
struct Done {
    accepted: i64,
    paid: i64,
    refused: i64,
}

async fn pay(locks: &Locks, mut redis: MultiplexedConnection, server: u64, amount: i64, done: &mut Done) {
    let guard = locks.mutex("account:123").lock().await.unwrap();
    let fence = guard.fence().unwrap();
    let (balance, last, by): (i64, Option<u64>, Option<u64>) = redis.mget(&["balance", "fence", "by"]).await.unwrap();
    assert!(last.is_none_or(|last| last < fence), "{fence} comes after {last:?}");
    if by.is_some_and(|by| by != server) {
        let switches: Option<u64> = redis.get("switches").await.unwrap();
        let _: () = redis.set("switches", switches.unwrap_or(0) + 1).await.unwrap();
    }
    if balance >= amount {
        done.accepted += 1;
        done.paid += amount;
        let _: () = redis.set("balance", balance - amount).await.unwrap();
    } else {
        done.refused += 1;
    }
    let written: RedisResult<()> = redis.mset(&[("fence", fence), ("by", server)]).await;
    written.unwrap();
    guard.release().await.unwrap();
}

async fn connect(url: &str) -> MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// A process that serves. It is killed when its test is over. If this process dies first, the store ends with it, and then so does the
/// server.
struct Server(Child);

impl Server {
    fn start(redis: &Redis, number: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", SERVER, "--nocapture"]).env(SERVE, redis.url()).env(NUMBER, number.to_string());
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    async fn end(&mut self) {
        let ended = loop {
            match self.0.try_wait().unwrap() {
                Some(ended) => break ended,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        assert!(ended.success(), "{ended}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn in_time<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), work).await.expect("it does not hang") })
}
