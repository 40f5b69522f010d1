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
/// The setting with which lockfast uses the connection of the `redis` crate.
pub(crate) const ON_CRATE: &str = "?connection=crate";
/// The pause between two attempts, for a library without a waiting call.
const RETRY_EVERY: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bare commands, by the client in `resp.rs`.
    ByHand,
    /// The same commands through the `redis` crate: what the bars are ratios of.
    Crate,
    /// The default: tasks of one process hand a lock off locally.
    Lockfast,
    /// Every hand-off goes through the server.
    LockfastNoHandOff,
    /// The same two on the multiplexed connection of the `redis` crate, to measure what lockfast's own connection gains.
    LockfastOnCrate,
    LockfastOnCrateNoHandOff,
    Rslock,
    DistributedLock,
}

impl Kind {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::ByHand => "bare commands, hand-written client",
            Self::Crate => "bare commands, redis crate",
            Self::Lockfast => "lockfast",
            Self::LockfastNoHandOff => "lockfast, hand-off off",
            Self::LockfastOnCrate => "lockfast on the crate's connection",
            Self::LockfastOnCrateNoHandOff => "lockfast on the crate's connection, hand-off off",
            Self::Rslock => "rslock",
            Self::DistributedLock => "distributed-lock",
        }
    }

    /// The commands that it sends, except those that its scripts call too.
    pub(crate) fn commands(self) -> &'static [&'static str] {
        match self {
            Self::Lockfast | Self::LockfastNoHandOff => SCRIPTS,
            Self::LockfastOnCrate | Self::LockfastOnCrateNoHandOff => SCRIPTS,
            _ => SCRIPTS_AND_SET,
        }
    }
}

#[derive(Clone)]
pub(crate) enum Client {
    ByHand(Shared, Arc<str>),
    Crate(MultiplexedConnection, Arc<str>),
    Lockfast(Locks),
    Rslock(LockManager),
    DistributedLock(Arc<RedisLockProvider>),
}

impl Client {
    pub(crate) async fn connect(kind: Kind, port: u16) -> Result<Self, String> {
        let url = format!("redis://127.0.0.1:{port}");
        let text = |error: &dyn std::fmt::Display| error.to_string();
        Ok(match kind {
            Kind::ByHand => {
                let shared = Shared::connect(port).await;
                let script = shared.call(&["SCRIPT", "LOAD", COMPARE_AND_DELETE]).await.text();
                Self::ByHand(shared, script.into())
            }
            Kind::Crate => {
                // A response timeout would start a timer for each command. The bare pair has none.
                let config = AsyncConnectionConfig::new().set_response_timeout(None);
                let server = server(&url);
                let connection = server.get_multiplexed_async_connection_with_config(&config).await;
                let mut connection = connection.map_err(|error| text(&error))?;
                let mut load = redis::cmd("SCRIPT");
                load.arg("LOAD").arg(COMPARE_AND_DELETE);
                let script: String = load.query_async(&mut connection).await.map_err(|error| text(&error))?;
                Self::Crate(connection, script.into())
            }
            Kind::Lockfast | Kind::LockfastNoHandOff => lockfast(&url, kind == Kind::Lockfast).await?,
            Kind::LockfastOnCrate | Kind::LockfastOnCrateNoHandOff => {
                lockfast(&format!("{url}{ON_CRATE}"), kind == Kind::LockfastOnCrate).await?
            }
            Kind::Rslock => Self::Rslock(LockManager::from_clients(vec![server(&url)])),
            Kind::DistributedLock => {
                let provider = RedisLockProvider::new(url).await.map_err(|error| text(&error))?;
                Self::DistributedLock(Arc::new(provider))
            }
        })
    }

    pub(crate) async fn lock(&self, name: &str) -> Held {
        match self {
            Self::ByHand(shared, script) => {
                let key = format!("bare:{name}");
                let answer = shared.call(&["SET", &key, TOKEN, "NX", "PX", TTL_MILLISECONDS]).await;
                assert_eq!(answer, Reply::Text("OK".to_owned()), "the key is free");
                Held::ByHand(shared.clone(), Arc::clone(script), key)
            }
            Self::Crate(connection, script) => {
                let (mut connection, key) = (connection.clone(), format!("bare:{name}"));
                let mut set = redis::cmd("SET");
                set.arg(&key).arg(TOKEN).arg("NX").arg("PX").arg(TTL_MILLISECONDS);
                let answer: Option<String> = set.query_async(&mut connection).await.expect("the server answers");
                assert!(answer.is_some(), "the key is free");
                Held::Crate(connection, Arc::clone(script), key)
            }
            Self::Lockfast(locks) => Held::Lockfast(locks.mutex(name).lock().await.expect("every holder releases")),
            Self::Rslock(manager) => {
                Held::Rslock(manager.acquire(name, TTL).await.expect("it retries until it has it"))
            }
            Self::DistributedLock(provider) => loop {
                // This library has no waiting call: the caller has to retry.
                if let Ok(Some(handle)) = provider.create_lock(name).try_acquire().await {
                    return Held::DistributedLock(handle);
                }
                tokio::time::sleep(RETRY_EVERY).await;
            },
        }
    }

    pub(crate) async fn pair(&self, name: &str) {
        self.lock(name).await.release().await;
    }
}

async fn lockfast(url: &str, local_handoff: bool) -> Result<Client, String> {
    let locks = Locks::builder().local_handoff(local_handoff).connect(url).await;
    locks.map(Client::Lockfast).map_err(|error| error.to_string())
}

fn server(url: &str) -> Server {
    let info = url.into_connection_info().expect("it is a good URL");
    let settings = info.tcp_settings().clone().set_nodelay(true);
    Server::open(info.set_tcp_settings(settings)).expect("it is a good URL")
}

pub(crate) enum Held {
    ByHand(Shared, Arc<str>, String),
    Crate(MultiplexedConnection, Arc<str>, String),
    Lockfast(Guard),
    Rslock(LockGuard),
    DistributedLock(RedisLockHandle),
}

impl Held {
    pub(crate) async fn release(self) {
        match self {
            Self::ByHand(shared, script, key) => {
                let deleted = shared.call(&["EVALSHA", &script, "1", &key, TOKEN]).await;
                assert_eq!(deleted, Reply::Number(1), "it was still there");
            }
            Self::Crate(mut connection, script, key) => {
                let mut release = redis::cmd("EVALSHA");
                release.arg(&*script).arg(1).arg(&key).arg(TOKEN);
                let deleted: i64 = release.query_async(&mut connection).await.expect("the server answers");
                assert_eq!(deleted, 1, "it was still there");
            }
            Self::Lockfast(guard) => guard.release().await.expect("it was not taken away"),
            Self::Rslock(guard) => guard.release().await,
            Self::DistributedLock(handle) => handle.release().await.expect("the server answers"),
        }
    }
}

/// All contenders that can connect. The others are named, and have no figures.
pub(crate) async fn connect_all(kinds: &[Kind], port: u16) -> Vec<(Kind, Client)> {
    let mut clients = Vec::new();
    for kind in kinds {
        match Client::connect(*kind, port).await {
            Ok(client) => clients.push((*kind, client)),
            Err(error) => println!("  {} has no figures: {error}", kind.label()),
        }
    }
    clients
}
