//! One connection of a runtime: requests and replies, subscriptions, and its end.

mod connecting;
mod io_thread;
mod multiplexer;
#[cfg(feature = "bench-crate-connection")]
mod of_crate;
mod options;
mod parser;
mod pool;
mod server;
mod settings;
mod stream;
mod timing;
mod tls;
mod watching;

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
pub(crate) use io_thread::IoThread;
#[cfg(not(feature = "bench-crate-connection"))]
pub(crate) use multiplexer::Multiplexer;
pub(crate) use multiplexer::{Confirmation, OnPush, Request};
#[cfg(feature = "bench-crate-connection")]
pub(crate) use of_crate::Multiplexer;
pub use options::RedisOptions;
pub(crate) use pool::Pool;
use server::Connected;
pub(crate) use server::Server;
pub(crate) use timing::{LONGEST_RESPONSE, Timing};
pub(crate) use tls::refusal;

/// An open connection.
pub(crate) struct Connection {
    multiplexer: Multiplexer,
    /// The runtime that drives it.
    runtime: Handle,
    /// Which server it leads to: another each time one is started.
    pub(crate) run_id: String,
    /// What asks replicas whether they have what was written on it.
    pub(crate) replicas: Replicas,
    channels: Mutex<HashMap<String, Channel>>,
}

/// A channel that subscriptions share.
#[derive(Default)]
struct Channel {
    subscriptions: usize,
    /// Whether the server may take this connection for a subscriber.
    is_subscribed: bool,
}

impl Connection {
    /// A connection that the present runtime drives.
    async fn open(pool: &pool::Inner) -> Result<Arc<Self>> {
        let Connected { multiplexer, run_id, millis } = pool.server.connect(Arc::clone(&pool.on_push)).await?;
        pool.tell_time(millis);
        let (runtime, replicas, channels) = (Handle::current(), Replicas::default(), Mutex::default());
        Ok(Arc::new(Self { multiplexer, runtime, run_id, replicas, channels }))
    }

    /// Whether the connection is of no use any more.
    pub(crate) fn is_ended(&self) -> bool {
        self.multiplexer.is_left()
    }

    /// Comes back when the connection is of no use any more.
    pub(crate) async fn ended(&self) {
        self.multiplexer.left().await;
    }

    /// No new request uses the connection. It is closed when all that was asked is answered.
    pub(crate) fn leave(&self) {
        self.multiplexer.leave();
    }

    /// Runs a script once.
    pub(crate) async fn call(&self, doing: impl Fn() -> String, call: &Call) -> Result<Value> {
        self.reply(doing, call.run(&self.multiplexer)).await
    }

    /// A plain command.
    pub(crate) async fn command(&self, doing: &str, command: &Cmd) -> Result<Value> {
        let asked = self.multiplexer.ask(command);
        self.reply(|| doing.to_owned(), async { asked.await?.extract_error() }).await
    }

    /// Subscribes to a channel until the [`Subscription`] is dropped.
    pub(crate) async fn subscribe(self: &Arc<Self>, channel: &str) -> Result<Subscription> {
        let asked = {
            let mut channels = self.channels();
            channels.entry(channel.to_owned()).or_default().subscriptions += 1;
            // Order matters: the server gets the subscriptions and their ends in the order in which they are counted.
            self.multiplexer.ask(redis::cmd("SUBSCRIBE").arg(channel))
        };
        let mut subscription =
            Subscription { connection: Arc::clone(self), channel: channel.to_owned(), is_refused: false };
        let confirmed = async {
            let reply = asked.await?.extract_error();
            subscription.is_refused = reply.is_err();
            reply
        };
        self.reply(|| "subscribing".to_owned(), confirmed).await?;
        Ok(subscription)
    }

    /// Runs a task where the connection is driven.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Waits no longer than this. The timer is that of the runtime that drives the connection: the caller may have none.
    pub(crate) async fn timeout<T>(&self, span: Duration, future: impl Future<Output = T>) -> Option<T> {
        let timer = self.runtime.spawn(async move { tokio::time::sleep(span).await });
        let _abort = Abort(timer.abort_handle());
        match select(pin!(future), timer).await {
            Either::Left((value, _)) => Some(value),
            Either::Right(_) => None,
        }
    }

    /// What comes back. No request has a timer of its own, since setting one costs as much as a tenth of a request: the
    /// connection is watched over as a whole. A connection that fails, or leads to a server of no use, is left.
    async fn reply<T>(
        &self,
        doing: impl Fn() -> String,
        asked: impl Future<Output = redis::RedisResult<T>>,
    ) -> Result<T> {
        asked.await.map_err(|error| {
            if failure::is_of_the_connection(&error) {
                self.leave();
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
        // The task that watches over it has its multiplexer too.
        self.leave();
    }
}

/// Ends a timer that is not needed any more.
struct Abort(tokio::task::AbortHandle);

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A channel that the server publishes to this connection, until this is dropped.
pub(crate) struct Subscription {
    pub(crate) connection: Arc<Connection>,
    channel: String,
    /// The server does not allow it.
    is_refused: bool,
}

impl Drop for Subscription {
    /// With the last subscription to a channel the server is told. If that fails the connection ends, which tells it too: a
    /// server that goes on believing in a subscriber would hand locks to a dead client.
    fn drop(&mut self) {
        let connection = &self.connection;
        let asked = {
            let mut channels = connection.channels();
            let Some(channel) = channels.get_mut(&self.channel) else { return };
            channel.subscriptions -= 1;
            channel.is_subscribed |= !self.is_refused;
            if channel.subscriptions > 0 {
                return;
            }
            let is_subscribed = channel.is_subscribed;
            channels.remove(&self.channel);
            if !is_subscribed || connection.is_ended() {
                return;
            }
            connection.multiplexer.ask(redis::cmd("UNSUBSCRIBE").arg(&self.channel))
        };
        let connection = Arc::clone(connection);
        self.connection.spawn(async move {
            if asked.await.and_then(Value::extract_error).is_err() {
                connection.leave();
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
        assert!(!connection.is_ended());
        // The server goes on believing in this one, and will not be told otherwise.
        drop(kept);
        connection.ended().await;
    }
}
