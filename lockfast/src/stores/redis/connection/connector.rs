//! One runtime's connection, and the task that opens it.
//!
//! 1. A task of the runtime opens the connection, for all callers at once. A caller only waits for the end of an attempt and
//!    holds no lock meanwhile: a caller that is cancelled, or not polled any more, delays no other.
//! 2. An attempt that has begun is completed even if all callers are cancelled, and its connection stays.
//! 3. After a failure the next attempt pauses, with jitter, twice as long each time up to the cap. It is made only if a caller
//!    waits for it by then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::clock::Moment;
use crate::error::{Error, Result};

use super::Connection;
use super::monitor;
use super::pool::{CLOSED, Inner};

/// The first pause between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The current connection of one runtime, and the attempts to open it.
pub(super) struct Connector {
    /// The runtime that drives the connection.
    pub(super) runtime: Handle,
    state: Mutex<State>,
    /// How many attempts have ended. Callers that wait for an attempt are its receivers.
    ended_attempts: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    current: Option<Arc<Connection>>,
    is_connecting: bool,
    /// Attempts that failed since the last success.
    failure_count: u32,
    /// Why the last attempt failed, and when the next may begin.
    last_failure: Option<(Error, Moment)>,
}

impl Connector {
    pub(super) fn new(runtime: Handle) -> Arc<Self> {
        Arc::new(Self { runtime, state: Mutex::default(), ended_attempts: watch::Sender::new(0) })
    }

    /// The connection in use, unless it is retired.
    pub(super) fn current(&self) -> Option<Arc<Connection>> {
        self.state().current()
    }

    /// The connection in use, or the one that the next attempt opens.
    pub(super) async fn connection(self: &Arc<Self>, pool: &Arc<Inner>) -> Result<Arc<Connection>> {
        // Order matters: the caller subscribes before it reads the state. The end of an attempt that is under way cannot be
        // missed; and an attempt without a caller is cancelled under the mutex, so a later caller begins another.
        let mut ended_attempts = self.ended_attempts.subscribe();
        let is_connecting = {
            let mut state = self.state();
            if let Some(current) = state.current() {
                return Ok(current);
            }
            std::mem::replace(&mut state.is_connecting, true)
        };
        if !is_connecting {
            let attempt = Attempt { pool: Arc::clone(pool), connector: Arc::clone(self), has_ended: false };
            self.runtime.spawn(attempt.run());
        }
        ended_attempts.changed().await.map_err(|_| CLOSED)?;
        let state = self.state();
        match (state.current(), &state.last_failure) {
            (Some(current), _) => Ok(current),
            (None, Some((error, _))) => Err(error.clone()),
            // The attempt succeeded, and its connection was retired since.
            (None, None) => Err(Error::unavailable("connecting to Redis", "the new connection has ended")),
        }
    }

    /// Makes a connection the current one. Returns `false` if it is to replace `instead_of`, and that is not current any more.
    pub(super) fn install(&self, connection: &Arc<Connection>, instead_of: Option<&Connection>) -> bool {
        let mut state = self.state();
        let is_current =
            |other: &Connection| state.current.as_ref().is_some_and(|current| std::ptr::eq(&**current, other));
        let is_due = instead_of.is_none_or(is_current);
        if is_due {
            if let Some(replaced) = state.current.replace(Arc::clone(connection)) {
                replaced.retire();
            }
            (state.failure_count, state.last_failure) = (0, None);
        }
        is_due
    }

    /// Makes the connection end when its open requests have their replies.
    pub(super) fn close(&self) {
        if let Some(current) = self.state().current.take() {
            current.retire();
        }
    }

    /// Whether the runtime has an open connection, opens one, or failed to open one a short time ago.
    pub(super) fn is_used(&self, now: Moment, cap: Duration) -> bool {
        let state = self.state();
        let last_failure = state.last_failure.as_ref();
        state.current().is_some()
            || state.is_connecting
            || last_failure.is_some_and(|(_, retry_at)| now < *retry_at + cap)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn current(&self) -> Option<Arc<Connection>> {
        self.current.as_ref().filter(|current| !current.is_retired()).cloned()
    }
}

/// One attempt to connect. However its task ends, even with its runtime, the callers get a result.
struct Attempt {
    pool: Arc<Inner>,
    connector: Arc<Connector>,
    has_ended: bool,
}

impl Attempt {
    async fn run(mut self) {
        let now = self.pool.clock.now();
        let pause = self.connector.state().last_failure.as_ref().map(|(_, retry_at)| retry_at.since(now));
        if let Some(pause) = pause.filter(|pause| !pause.is_zero()) {
            tokio::time::sleep(pause).await;
            let mut state = self.connector.state();
            if self.connector.ended_attempts.receiver_count() == 0 {
                state.is_connecting = false;
                drop(state);
                self.has_ended = true;
                return;
            }
        }
        let began = self.pool.clock.now();
        let opened = match Connection::open(&self.pool).await {
            Ok(connection) if self.pool.install(&self.connector, &connection, None) => {
                let took = self.pool.clock.now().since(began);
                monitor::start(&self.pool, &self.connector, &connection, took);
                Ok(())
            }
            Ok(connection) => {
                connection.retire();
                Err(CLOSED)
            }
            Err(error) => Err(error),
        };
        self.finish(opened);
    }

    /// Stores the result, and wakes the callers that wait for it.
    fn finish(&mut self, opened: Result<()>) {
        self.has_ended = true;
        let mut state = self.connector.state();
        state.is_connecting = false;
        if let Err(error) = opened {
            state.failure_count = state.failure_count.saturating_add(1);
            // 2^12 times the first pause is above every cap; a larger factor could overflow.
            let doubled = FIRST_PAUSE * 2u32.saturating_pow(state.failure_count.min(12));
            let longest = doubled.min(self.pool.server.timing.reconnect_cap);
            // Jitter: between half of it and all of it.
            let pause = longest.mul_f64(0.5 + fastrand::f64() / 2.0);
            state.last_failure = Some((error, self.pool.clock.now() + pause));
        }
        drop(state);
        self.pool.forget_unused();
        self.connector.ended_attempts.send_modify(|ended_attempts| *ended_attempts += 1);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.has_ended {
            self.finish(Err(Error::unavailable("connecting to Redis", "the runtime of the caller has ended")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Pool, Server};
    use super::*;
    use crate::clock::Clock;

    /// A first connection that was found silent and then retired (another runtime got READONLY), and the second one that was
    /// opened to replace it.
    async fn replacing(pool: &Pool) -> (Arc<Inner>, Arc<Connector>, Arc<Connection>, Arc<Connection>) {
        let first = pool.connection().await.unwrap();
        let inner = Arc::clone(&pool.0);
        let connector = inner.connector(Some(Handle::current())).await.unwrap();
        let second = Connection::open(&inner).await.unwrap();
        first.retire();
        (inner, connector, first, second)
    }

    fn pool(server: &servers::Redis) -> Pool {
        Pool::new(Server::of_url(&server.url()).unwrap(), Clock::boot(), Arc::new(drop))
    }

    #[tokio::test]
    async fn a_failed_attempt_keeps_the_connection_installed_meanwhile() {
        let server = servers::Redis::start();
        let pool = pool(&server);
        let (inner, connector, first, second) = replacing(&pool).await;
        connector.state().is_connecting = true;
        let mut attempt = Attempt { pool: Arc::clone(&inner), connector: Arc::clone(&connector), has_ended: false };
        assert!(inner.install(&connector, &second, Some(&first)));
        attempt.finish(Err(CLOSED));
        assert!(connector.current().is_some_and(|current| Arc::ptr_eq(&current, &second)));
    }

    #[tokio::test]
    async fn a_replaced_connection_is_retired() {
        let server = servers::Redis::start();
        let pool = pool(&server);
        let (inner, connector, first, second) = replacing(&pool).await;
        let third = Connection::open(&inner).await.unwrap();
        assert!(inner.install(&connector, &second, Some(&first)));
        // As an attempt does that began when the first connection was retired.
        assert!(inner.install(&connector, &third, None));
        assert!(second.is_retired(), "a subscription keeps it open, and closing the pool does not find it");
    }
}
