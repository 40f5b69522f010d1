//! Connections to the server. A [`Connection`] belongs to one runtime: it sends requests and scripts, holds subscriptions, and is
//! retired when it fails or leads to a replica. [`Pool`] has one connection for each runtime.
//!
//! | file | content |
//! |---|---|
//! | `pool.rs`, `io_thread.rs` | one connection per runtime; which runtime drives it |
//! | `connector.rs`, `stream.rs`, `tls.rs`, `server.rs` | opening: the task, the socket, TLS, the handshake |
//! | `multiplexer.rs`, `parser.rs` | many requests on one connection; reading replies |
//! | `monitor.rs`, `timing.rs` | detecting a silent connection; the time limits |
//! | `options.rs`, `settings.rs` | what a program, and what a URL can set |
//! | `crate_connection.rs` | the connection of the `redis` crate, for benchmarks |

mod connector;
#[cfg(feature = "bench-crate-connection")]
mod crate_connection;
mod io_thread;
mod monitor;
mod multiplexer;
mod options;
mod parser;
mod pool;
mod server;
mod settings;
mod stream;
mod timing;
mod tls;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use redis::{Cmd, Value};
use tokio::runtime::Handle;

use crate::error::Result;

use super::failure;
use super::replicas::Replicas;
use super::scripts::Call;
#[cfg(feature = "bench-crate-connection")]
pub(crate) use crate_connection::Multiplexer;
pub(crate) use io_thread::IoThread;
#[cfg(not(feature = "bench-crate-connection"))]
pub(crate) use multiplexer::Multiplexer;
pub(crate) use multiplexer::{Confirmation, OnPush, Request};
pub use options::RedisOptions;
pub(crate) use pool::Pool;
use server::NewConnection;
pub(crate) use server::{Server, info_field};
pub(crate) use timing::{MAX_RESPONSE_TIMEOUT, Timing};
pub(crate) use tls::certificate_refusal;

/// An open connection.
pub(crate) struct Connection {
    multiplexer: Multiplexer,
    /// The runtime that drives it.
    runtime: Handle,
    /// The id of the server process at the other end: every start of a server has another id.
    pub(crate) run_id: String,
    /// Waits until replicas have the writes of this connection.
    pub(crate) replicas: Replicas,
    channels: Mutex<HashMap<String, Channel>>,
}

/// A channel that several [`Subscription`]s share.
#[derive(Default)]
struct Channel {
    /// The number of [`Subscription`]s that exist.
    subscription_count: usize,
    /// Whether the server may count this connection as a subscriber.
    is_subscribed: bool,
}

impl Connection {
    /// Opens a connection that the current runtime drives.
    async fn open(pool: &pool::Inner) -> Result<Arc<Self>> {
        let NewConnection { multiplexer, run_id, server_time } = pool.server.connect(Arc::clone(&pool.on_push)).await?;
        pool.set_server_time(server_time);
        let (runtime, replicas, channels) = (Handle::current(), Replicas::default(), Mutex::default());
        Ok(Arc::new(Self { multiplexer, runtime, run_id, replicas, channels }))
    }

    /// Whether no new request should use the connection.
    pub(crate) fn is_retired(&self) -> bool {
        self.multiplexer.is_retired()
    }

    /// Waits until the connection is retired.
    pub(crate) async fn retired(&self) {
        self.multiplexer.retired().await;
    }

    /// No new request uses the connection. It closes when all open requests have their replies.
    pub(crate) fn retire(&self) {
        self.multiplexer.retire();
    }

    /// Runs a script once. `doing` says what fails, for the error.
    pub(crate) async fn call(&self, doing: impl Fn() -> String, call: &Call) -> Result<Value> {
        self.wait_for_reply(doing, call.run(&self.multiplexer)).await
    }

    /// Sends a plain command.
    pub(crate) async fn command(&self, doing: &str, command: &Cmd) -> Result<Value> {
        let reply = self.multiplexer.send(command);
        self.wait_for_reply(|| doing.to_owned(), async { reply.await?.extract_error() }).await
    }

    /// Subscribes to a channel until the [`Subscription`] is dropped.
    pub(crate) async fn subscribe(self: &Arc<Self>, channel: &str) -> Result<Subscription> {
        let confirmation = {
            let mut channels = self.channels();
            channels.entry(channel.to_owned()).or_default().subscription_count += 1;
            // Order matters: SUBSCRIBE and UNSUBSCRIBE are sent in the order in which subscriptions are counted.
            self.multiplexer.send(redis::cmd("SUBSCRIBE").arg(channel))
        };
        let mut subscription =
            Subscription { connection: Arc::clone(self), channel: channel.to_owned(), is_refused: false };
        let confirmed = async {
            let reply = confirmation.await?.extract_error();
            subscription.is_refused = reply.is_err();
            reply
        };
        self.wait_for_reply(|| "subscribing".to_owned(), confirmed).await?;
        Ok(subscription)
    }

    /// Runs a task on the runtime that drives the connection.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Waits for at most `span`. The timer is that of the runtime that drives the connection: the caller may have none.
    pub(crate) async fn timeout<T>(&self, span: Duration, future: impl Future<Output = T>) -> Option<T> {
        let timer = self.runtime.spawn(async move { tokio::time::sleep(span).await });
        let _abort_on_drop = AbortOnDrop(timer.abort_handle());
        match select(pin!(future), timer).await {
            Either::Left((value, _)) => Some(value),
            Either::Right(_) => None,
        }
    }

    /// Waits for a reply. Explains its error, and retires a connection that fails or leads to a replica. No request has a timer
    /// of its own, since setting one costs a tenth of a request: [`monitor`] watches the connection as a whole.
    async fn wait_for_reply<T>(
        &self,
        doing: impl Fn() -> String,
        reply: impl Future<Output = redis::RedisResult<T>>,
    ) -> Result<T> {
        reply.await.map_err(|error| {
            if failure::retires_connection(&error) {
                self.retire();
            }
            failure::explain(&doing(), &error)
        })
    }

    fn channels(&self) -> MutexGuard<'_, HashMap<String, Channel>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The monitoring task has a handle of the multiplexer too.
        self.retire();
    }
}

/// Aborts a task when it is dropped.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A subscription of a connection to a channel. Dropping it unsubscribes.
pub(crate) struct Subscription {
    pub(crate) connection: Arc<Connection>,
    channel: String,
    /// Whether the server has refused it.
    is_refused: bool,
}

impl Drop for Subscription {
    /// The last subscription to a channel sends UNSUBSCRIBE. If that fails the connection is retired, which unsubscribes too: a
    /// server that still counted the subscriber would hand locks to a dead client.
    fn drop(&mut self) {
        let connection = &self.connection;
        let confirmation = {
            let mut channels = connection.channels();
            let Some(channel) = channels.get_mut(&self.channel) else { return };
            channel.subscription_count -= 1;
            channel.is_subscribed |= !self.is_refused;
            if channel.subscription_count > 0 {
                return;
            }
            let is_subscribed = channel.is_subscribed;
            channels.remove(&self.channel);
            if !is_subscribed || connection.is_retired() {
                return;
            }
            connection.multiplexer.send(redis::cmd("UNSUBSCRIBE").arg(&self.channel))
        };
        let connection = Arc::clone(connection);
        self.connection.spawn(async move {
            if confirmation.await.and_then(Value::extract_error).is_err() {
                connection.retire();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[tokio::test]
    async fn a_subscription_that_is_refused_ends_no_connection() {
        let server = servers::Redis::start();
        let pool = Pool::new(Server::of_url(&server.url()).unwrap(), Clock::boot(), Arc::new(drop));
        let connection = pool.connection().await.unwrap();
        let kept = connection.subscribe("kept").await.unwrap();
        let mut rights = redis::cmd("ACL");
        rights.arg(&["SETUSER", "default", "-subscribe", "-unsubscribe"]);
        connection.command("taking rights", &rights).await.unwrap();
        assert!(connection.subscribe("other").await.is_err());
        assert!(connection.subscribe("kept").await.is_err());
        connection.command("looking", &redis::cmd("TIME")).await.unwrap();
        assert!(!connection.is_retired());
        // The server still counts this subscription, and refuses UNSUBSCRIBE.
        drop(kept);
        connection.retired().await;
    }
}
