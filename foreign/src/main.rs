//! The driver of rslock, and the protocol of all drivers: programs that run commands with one lock library, one per line of
//! text. Started with the URL of a server, a driver prints `ready`, then answers each line with a line until its input ends.
//!
//! | line | effect | answers |
//! |---|---|---|
//! | `try NAME TTL` | takes a free lock for TTL milliseconds; 0: without a lease, if the library can do that | `yes` `no` |
//! | `lock NAME TTL` | takes the lock, and waits for it as this library waits | `yes` |
//! | `extend TTL`, `release` | extends or releases the lock that was taken or forged last | `done` `refused: why` |
//! | `forge NAME` | pretends to have taken the lock, with a token of its own | `forged` |
//! | `hammer NAME TIMES` | tries to take the lock TIMES times, and releases it after each success | the number of successes |
//! | `count NAME COUNTER TIMES` | adds one to the key COUNTER, TIMES times, under the lock, without atomic commands | `done` |
//!
//! A library that does not report whether a release had an effect answers `done` to every release.

#![expect(clippy::print_stdout, reason = "answering on standard output is what this program is for")]

use std::io::stdin;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use rslock::{Lock, LockError, LockManager};

/// An error that is not an answer of the library ends the driver, and with it the test.
type FatalError = Box<dyn std::error::Error>;

fn main() -> Result<(), FatalError> {
    let url = std::env::args().nth(1).ok_or("the URL of a server is missing")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(&url))
}

async fn serve(url: &str) -> Result<(), FatalError> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let mut manager = LockManager::new(vec![url]);
    // `try` must not wait: one attempt only.
    manager.set_retry(1, Duration::from_millis(1));
    let mut lock: Option<Lock> = None;
    println!("ready");
    for line in stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words.as_slice() {
            ["try", name, ttl] => {
                lock = try_lock(&manager, name, millis(ttl)?).await?;
                if lock.is_some() { "yes" } else { "no" }.to_owned()
            }
            ["lock", name, ttl] => {
                lock = Some(lock_patiently(&manager, name, millis(ttl)?).await?);
                "yes".to_owned()
            }
            ["forge", name] => {
                let (resource, val) = (name.as_bytes().to_vec(), b"forged".to_vec());
                lock = Some(Lock { resource, val, validity_time: 30_000, lock_manager: manager.clone() });
                "forged".to_owned()
            }
            ["extend", ttl] => {
                let lock = lock.as_ref().ok_or("no lock was taken")?;
                match manager.extend(lock, millis(ttl)?).await {
                    Ok(_) => "done".to_owned(),
                    Err(LockError::Unavailable) => "refused: the lock is not ours".to_owned(),
                    Err(other) => return Err(other.into()),
                }
            }
            ["release"] => {
                manager.unlock(lock.as_ref().ok_or("no lock was taken")?).await;
                "done".to_owned()
            }
            ["hammer", name, times] => {
                let mut acquired = 0;
                for _ in 0..times.parse()? {
                    if let Some(lock) = try_lock(&manager, name, Duration::from_secs(30)).await? {
                        acquired += 1;
                        lock.release().await;
                    }
                }
                format!("{acquired}")
            }
            ["count", name, counter, times] => {
                for _ in 0..times.parse()? {
                    let lock = lock_patiently(&manager, name, Duration::from_secs(2)).await?;
                    add_one(&mut connection, counter).await?;
                    lock.release().await;
                }
                "done".to_owned()
            }
            _ => return Err(format!("unknown command {line:?}").into()),
        };
        println!("{answer}");
    }
    Ok(())
}

async fn try_lock(manager: &LockManager, name: &str, ttl: Duration) -> Result<Option<Lock>, LockError> {
    match manager.lock(name, ttl).await {
        Ok(lock) => Ok(Some(lock)),
        Err(LockError::Unavailable) => Ok(None),
        Err(other) => Err(other),
    }
}

async fn lock_patiently(manager: &LockManager, name: &str, ttl: Duration) -> Result<Lock, LockError> {
    let mut patient_manager = manager.clone();
    patient_manager.set_retry(u32::MAX, Duration::from_millis(200));
    patient_manager.lock(name, ttl).await
}

async fn add_one(connection: &mut MultiplexedConnection, counter: &str) -> redis::RedisResult<()> {
    let value: Option<u64> = redis::cmd("GET").arg(counter).query_async(connection).await?;
    redis::cmd("SET").arg(counter).arg(value.unwrap_or(0) + 1).query_async(connection).await
}

fn millis(text: &str) -> Result<Duration, FatalError> {
    Ok(Duration::from_millis(text.parse()?))
}
