//! The contenders: all behind one `lock` and `release`, so that they do the same work.

use std::sync::Arc;
use std::time::Duration;

use distributed_lock_core::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider};
use lockfast::{Guard, Locks};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client as Server, IntoConnectionInfo};
use rslock::{LockGuard, LockManager};

use super::resp::{COMPARE_AND_DELETE, Reply, Shared};
use super::server::{SCRIPTS, SCRIPTS_AND_SET};

const TTL: Duration = Duration::from_secs(30);
const TTL_MILLISECONDS: &str = "30000";
/// The other contenders draw a new token for each lock; the bare commands do not.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// The part of a URL with which lockfast uses the connection of the `redis` crate.
pub(crate) const ON_REDIS_CRATE: &str = "?connection=crate";
/// The pause between two attempts, for a library without a waiting call.
const RETRY_EVERY: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    /// Bare commands, by the client in `resp.rs`.
    BareHandWritten,
    /// The same commands through the `redis` crate. Ratios in the figures are relative to this contender.
    BareRedisCrate,
    /// lockfast with its defaults: tasks of one process hand a lock off locally.
    Lockfast,
    /// lockfast without local hand-off: every hand-off goes through the server.
    LockfastNoLocalHandOff,
    /// `Lockfast` on the multiplexed connection of the `redis` crate, to measure what lockfast's own connection gains.
    LockfastOnRedisCrate,
    /// `LockfastNoLocalHandOff` on the multiplexed connection of the `redis` crate.
    LockfastOnRedisCrateNoLocalHandOff,
    Rslock,
    DistributedLock,
}

impl Contender {
    /// Part of the rows' names, by which two trees are compared: it does not change.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::BareHandWritten => "bare commands, hand-written client",
            Self::BareRedisCrate => "bare commands, redis crate",
            Self::Lockfast => "lockfast",
            Self::LockfastNoLocalHandOff => "lockfast, hand-off off",
            Self::LockfastOnRedisCrate => "lockfast on the crate's connection",
            Self::LockfastOnRedisCrateNoLocalHandOff => "lockfast on the crate's connection, hand-off off",
            Self::Rslock => "rslock",
            Self::DistributedLock => "distributed-lock",
        }
    }

    /// The commands to count: all that this contender sends, except commands that its scripts call too.
    pub(crate) fn counted_commands(self) -> &'static [&'static str] {
        match self {
            Self::Lockfast | Self::LockfastNoLocalHandOff => SCRIPTS,
            Self::LockfastOnRedisCrate | Self::LockfastOnRedisCrateNoLocalHandOff => SCRIPTS,
            _ => SCRIPTS_AND_SET,
        }
    }
}

/// A connected contender.
#[derive(Clone)]
pub(crate) enum Client {
    /// The connection, and the SHA-1 of the script that releases a lock.
    BareHandWritten(Shared, Arc<str>),
    /// The connection, and the SHA-1 of the script that releases a lock.
    BareRedisCrate(MultiplexedConnection, Arc<str>),
    Lockfast(Locks),
    Rslock(LockManager),
    DistributedLock(Arc<RedisLockProvider>),
}

impl Client {
    pub(crate) async fn connect(contender: Contender, port: u16) -> Result<Self, String> {
        let url = format!("redis://127.0.0.1:{port}");
        let message = |error: &dyn std::fmt::Display| error.to_string();
        Ok(match contender {
            Contender::BareHandWritten => {
                let shared = Shared::connect(port).await;
                let script = shared.call(&["SCRIPT", "LOAD", COMPARE_AND_DELETE]).await.text();
                Self::BareHandWritten(shared, script.into())
            }
            Contender::BareRedisCrate => {
                // A response timeout would start a timer for each command. The bare pair has none.
                let config = AsyncConnectionConfig::new().set_response_timeout(None);
                let server = open_server(&url);
                let connection = server.get_multiplexed_async_connection_with_config(&config).await;
                let mut connection = connection.map_err(|error| message(&error))?;
                let mut load = redis::cmd("SCRIPT");
                load.arg("LOAD").arg(COMPARE_AND_DELETE);
                let script: String = load.query_async(&mut connection).await.map_err(|error| message(&error))?;
                Self::BareRedisCrate(connection, script.into())
            }
            Contender::Lockfast | Contender::LockfastNoLocalHandOff => {
                connect_lockfast(&url, contender == Contender::Lockfast).await?
            }
            Contender::LockfastOnRedisCrate | Contender::LockfastOnRedisCrateNoLocalHandOff => {
                connect_lockfast(&format!("{url}{ON_REDIS_CRATE}"), contender == Contender::LockfastOnRedisCrate)
                    .await?
            }
            Contender::Rslock => Self::Rslock(LockManager::from_clients(vec![open_server(&url)])),
            Contender::DistributedLock => {
                let provider = RedisLockProvider::new(url).await.map_err(|error| message(&error))?;
                Self::DistributedLock(Arc::new(provider))
            }
        })
    }

    pub(crate) async fn lock(&self, name: &str) -> HeldLock {
        match self {
            Self::BareHandWritten(shared, script) => {
                let key = format!("bare:{name}");
                let reply = shared.call(&["SET", &key, TOKEN, "NX", "PX", TTL_MILLISECONDS]).await;
                assert_eq!(reply, Reply::Text("OK".to_owned()), "the key is free");
                HeldLock::BareHandWritten(shared.clone(), Arc::clone(script), key)
            }
            Self::BareRedisCrate(connection, script) => {
                let (mut connection, key) = (connection.clone(), format!("bare:{name}"));
                let mut set = redis::cmd("SET");
                set.arg(&key).arg(TOKEN).arg("NX").arg("PX").arg(TTL_MILLISECONDS);
                let reply: Option<String> = set.query_async(&mut connection).await.expect("the server answers");
                assert!(reply.is_some(), "the key is free");
                HeldLock::BareRedisCrate(connection, Arc::clone(script), key)
            }
            Self::Lockfast(locks) => HeldLock::Lockfast(locks.mutex(name).lock().await.expect("every holder releases")),
            Self::Rslock(manager) => {
                HeldLock::Rslock(manager.acquire(name, TTL).await.expect("rslock retries until it has the lock"))
            }
            Self::DistributedLock(provider) => loop {
                // This library has no waiting call: the caller has to retry.
                if let Ok(Some(handle)) = provider.create_lock(name).try_acquire().await {
                    return HeldLock::DistributedLock(handle);
                }
                tokio::time::sleep(RETRY_EVERY).await;
            },
        }
    }

    /// Locks the name and releases it.
    pub(crate) async fn lock_and_release(&self, name: &str) {
        self.lock(name).await.release().await;
    }
}

async fn connect_lockfast(url: &str, local_handoff: bool) -> Result<Client, String> {
    let locks = Locks::builder().local_handoff(local_handoff).connect(url).await;
    locks.map(Client::Lockfast).map_err(|error| error.to_string())
}

fn open_server(url: &str) -> Server {
    let info = url.into_connection_info().expect("the URL is well formed");
    let settings = info.tcp_settings().clone().set_nodelay(true);
    Server::open(info.set_tcp_settings(settings)).expect("the URL is well formed")
}

/// A lock that a contender holds.
pub(crate) enum HeldLock {
    /// The connection, the SHA-1 of the script that releases the lock, and its key.
    BareHandWritten(Shared, Arc<str>, String),
    /// The connection, the SHA-1 of the script that releases the lock, and its key.
    BareRedisCrate(MultiplexedConnection, Arc<str>, String),
    Lockfast(Guard),
    Rslock(LockGuard),
    DistributedLock(RedisLockHandle),
}

impl HeldLock {
    pub(crate) async fn release(self) {
        match self {
            Self::BareHandWritten(shared, script, key) => {
                let deleted = shared.call(&["EVALSHA", &script, "1", &key, TOKEN]).await;
                assert_eq!(deleted, Reply::Number(1), "the key was still there");
            }
            Self::BareRedisCrate(mut connection, script, key) => {
                let mut release = redis::cmd("EVALSHA");
                release.arg(&*script).arg(1).arg(&key).arg(TOKEN);
                let deleted: i64 = release.query_async(&mut connection).await.expect("the server answers");
                assert_eq!(deleted, 1, "the key was still there");
            }
            Self::Lockfast(guard) => guard.release().await.expect("the lock was not lost"),
            Self::Rslock(guard) => guard.release().await,
            Self::DistributedLock(handle) => handle.release().await.expect("the server answers"),
        }
    }
}

/// Connects all contenders. Prints the names of contenders that cannot connect; they have no figures.
pub(crate) async fn connect_all(contenders: &[Contender], port: u16) -> Vec<(Contender, Client)> {
    let mut clients = Vec::new();
    for contender in contenders {
        match Client::connect(*contender, port).await {
            Ok(client) => clients.push((*contender, client)),
            Err(error) => println!("  {} has no figures: {error}", contender.label()),
        }
    }
    clients
}
