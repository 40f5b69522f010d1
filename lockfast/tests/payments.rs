//! Two servers that take payments from one account, in processes of their own. The balance is an ordinary key: it is read,
//! compared and written back, and only the lock makes that exclusive.
//!
//! The servers are this test program, started again to run the one test that is a server if [`URL_VAR`] is set.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in what its tests share too")]

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast::Locks;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, RedisResult};
use servers::Redis;

/// The environment variable with the URL of the store; set only in the server processes.
const URL_VAR: &str = "LOCKFAST_TEST_PAYMENTS";
/// The environment variable with the number of the server.
const NUMBER_VAR: &str = "LOCKFAST_TEST_PAYMENTS_NUMBER";
/// The name of the test that is run as a server.
const SERVER_TEST: &str = "a_server_takes_payments";

const SERVERS: u64 = 2;
const PAYMENTS: u64 = 10_000;
/// How many payments one server works on at the same time.
const WORKERS: u64 = 32;
/// Not enough for all payments: 10,000 payments of 1 to 9 add up to 50,000.
const INITIAL_BALANCE: i64 = 40_000;

#[test]
fn ten_thousand_payments_lose_nothing_and_overdraw_nothing() {
    run_with_timeout(async {
        let redis = Redis::start();
        let mut account = connect(&redis.url()).await;
        let _: () = account.set("balance", INITIAL_BALANCE).await.unwrap();
        let mut servers: Vec<Server> = (0..SERVERS).map(|number| Server::start(&redis, number)).collect();
        for server in &mut servers {
            server.wait_for_success().await;
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
        assert_eq!(balance, INITIAL_BALANCE - paid, "the balance is lower by the sum of all payments");
        assert!((0..9).contains(&balance), "payments are accepted as long as there is enough: {balance}");
        // Otherwise one server was done before the other began, and the test shows nothing.
        assert!(switches > 50, "the account went from one server to the other {switches} times");
        assert!(refused > 1000, "{refused}");
    });
}

#[test]
fn a_server_takes_payments() {
    let Ok(url) = std::env::var(URL_VAR) else { return };
    let number = std::env::var(NUMBER_VAR).unwrap().parse().unwrap();
    run_with_timeout(serve(&url, number));
}

async fn serve(url: &str, number: u64) {
    let mut redis = connect(url).await;
    let locks = Locks::connect(url).await.unwrap();
    let _: () = redis.incr("servers", 1).await.unwrap();
    while redis.get::<_, u64>("servers").await.unwrap() < SERVERS {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The payments are dealt out to the servers in turn.
    let requests = Arc::new(Mutex::new((number..PAYMENTS).step_by(usize::try_from(SERVERS).unwrap())));
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (locks, redis, requests) = (locks.clone(), redis.clone(), Arc::clone(&requests));
            tokio::spawn(async move {
                let mut totals = Totals::default();
                let next = || requests.lock().unwrap().next();
                while let Some(request) = next() {
                    let amount = i64::try_from(request * 7 % 9).unwrap() + 1;
                    pay(&locks, redis.clone(), number, amount, &mut totals).await;
                }
                totals
            })
        })
        .collect();
    let mut all = Totals::default();
    for worker in workers {
        let totals = worker.await.unwrap();
        all = Totals {
            accepted: all.accepted + totals.accepted,
            paid: all.paid + totals.paid,
            refused: all.refused + totals.refused,
        };
    }
    for (key, value) in [("accepted", all.accepted), ("paid", all.paid), ("refused", all.refused)] {
        let _: () = redis.set(format!("{key}:{number}"), value).await.unwrap();
    }
}

#[derive(Default)]
struct Totals {
    /// How many payments were accepted.
    accepted: i64,
    /// The sum of the accepted payments.
    paid: i64,
    /// How many payments were refused.
    refused: i64,
}

async fn pay(locks: &Locks, mut redis: MultiplexedConnection, server: u64, amount: i64, totals: &mut Totals) {
    let guard = locks.mutex("account:123").lock().await.unwrap();
    let fence = guard.fence().unwrap();
    let (balance, last_fence, last_server): (i64, Option<u64>, Option<u64>) =
        redis.mget(&["balance", "fence", "by"]).await.unwrap();
    assert!(last_fence.is_none_or(|last| last < fence), "{fence} comes after {last_fence:?}");
    if last_server.is_some_and(|last| last != server) {
        let switches: Option<u64> = redis.get("switches").await.unwrap();
        let _: () = redis.set("switches", switches.unwrap_or(0) + 1).await.unwrap();
    }
    if balance >= amount {
        totals.accepted += 1;
        totals.paid += amount;
        let _: () = redis.set("balance", balance - amount).await.unwrap();
    } else {
        totals.refused += 1;
    }
    let written: RedisResult<()> = redis.mset(&[("fence", fence), ("by", server)]).await;
    written.unwrap();
    guard.release().await.unwrap();
}

async fn connect(url: &str) -> MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// A server process. It is killed when its test is over. If this process dies first, its Redis ends, and then the server fails.
struct Server(Child);

impl Server {
    fn start(redis: &Redis, number: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", SERVER_TEST, "--nocapture"])
            .env(URL_VAR, redis.url())
            .env(NUMBER_VAR, number.to_string());
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    async fn wait_for_success(&mut self) {
        let status = loop {
            match self.0.try_wait().unwrap() {
                Some(status) => break status,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        assert!(status.success(), "{status}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run_with_timeout<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), work).await.expect("it does not hang") })
}
