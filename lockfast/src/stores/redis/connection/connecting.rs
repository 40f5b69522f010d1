//! One runtime's connection, and the task that opens it.
//!
//! 1. A task of the runtime opens the connection, for all callers at once. A caller waits for the end of an attempt and holds
//!    nothing meanwhile: one that is cancelled, or not polled any more, holds up no other.
//! 2. An attempt that has begun ends, whether its caller still waits or not, and its connection stays.
//! 3. After a failure the next attempt pauses, with jitter, twice as long each time up to the cap. It is made only if a caller
//!    waits for it by then.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::clock::Moment;
use crate::error::{Error, Result};

use super::Connection;
use super::pool::{CLOSED, Inner};
use super::watching;

/// The first pause between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// What one runtime has of the pool.
pub(super) struct Site {
    /// The runtime that drives the connection.
    pub(super) runtime: Handle,
    state: Mutex<State>,
    /// How many attempts have ended. Callers that wait for one are its receivers.
    attempts: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    current: Option<Arc<Connection>>,
    is_connecting: bool,
    /// Attempts that failed, since the last one that did not.
    failures: u32,
    /// Why the last one failed, and when the next may begin.
    failed: Option<(Error, Moment)>,
}

impl Site {
    pub(super) fn new(runtime: Handle) -> Arc<Self> {
        Arc::new(Self { runtime, state: Mutex::default(), attempts: watch::Sender::new(0) })
    }

    /// The connection in use.
    pub(super) fn current(&self) -> Option<Arc<Connection>> {
        self.state().current()
    }

    /// The connection in use, or the one that the next attempt opens.
    pub(super) async fn connection(self: &Arc<Self>, pool: &Arc<Inner>) -> Result<Arc<Connection>> {
        // Order matters: the end of an attempt that is found under way cannot be missed; and an attempt that finds no caller
        // is given up under the mutex, so a later caller begins another.
        let mut attempts = self.attempts.subscribe();
        let is_connecting = {
            let mut state = self.state();
            if let Some(current) = state.current() {
                return Ok(current);
            }
            std::mem::replace(&mut state.is_connecting, true)
        };
        if !is_connecting {
            let attempt = Attempt { pool: Arc::clone(pool), site: Arc::clone(self), is_over: false };
            self.runtime.spawn(attempt.run());
        }
        attempts.changed().await.map_err(|_| CLOSED)?;
        let state = self.state();
        match (state.current(), &state.failed) {
            (Some(current), _) => Ok(current),
            (None, Some((error, _))) => Err(error.clone()),
            // It was opened, and has ended since.
            (None, None) => Err(Error::unavailable("connecting to Redis", "the new connection has ended")),
        }
    }

    /// Makes a connection the current one. `false` if that is to be `instead_of` another, which is not current any more.
    pub(super) fn install(&self, connection: &Arc<Connection>, instead_of: Option<&Connection>) -> bool {
        let mut state = self.state();
        let is_current =
            |other: &Connection| state.current.as_ref().is_some_and(|current| std::ptr::eq(&**current, other));
        let is_due = instead_of.is_none_or(is_current);
        if is_due {
            if let Some(replaced) = state.current.replace(Arc::clone(connection)) {
                replaced.leave();
            }
            (state.failures, state.failed) = (0, None);
        }
        is_due
    }

    /// Makes the connection end when its requests are answered.
    pub(super) fn close(&self) {
        if let Some(current) = self.state().current.take() {
            current.leave();
        }
    }

    /// Whether its runtime has an open connection, opens one, or failed to a short time ago.
    pub(super) fn is_used(&self, now: Moment, cap: Duration) -> bool {
        let state = self.state();
        let failed = state.failed.as_ref();
        state.current().is_some() || state.is_connecting || failed.is_some_and(|(_, retry)| now < *retry + cap)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn current(&self) -> Option<Arc<Connection>> {
        self.current.as_ref().filter(|current| !current.is_ended()).cloned()
    }
}

/// One attempt to connect. It ends for its callers however its task ends, also with the runtime.
struct Attempt {
    pool: Arc<Inner>,
    site: Arc<Site>,
    is_over: bool,
}

impl Attempt {
    async fn run(mut self) {
        let now = self.pool.clock.now();
        let pause = self.site.state().failed.as_ref().map(|(_, retry)| retry.since(now));
        if let Some(pause) = pause.filter(|pause| !pause.is_zero()) {
            tokio::time::sleep(pause).await;
            let mut state = self.site.state();
            if self.site.attempts.receiver_count() == 0 {
                state.is_connecting = false;
                drop(state);
                self.is_over = true;
                return;
            }
        }
        let began = self.pool.clock.now();
        let opened = match Connection::open(&self.pool).await {
            Ok(connection) if self.pool.install(&self.site, &connection, None) => {
                let took = self.pool.clock.now().since(began);
                watching::begin(&self.pool, &self.site, &connection, took);
                Ok(())
            }
            Ok(connection) => {
                connection.leave();
                Err(CLOSED)
            }
            Err(error) => Err(error),
        };
        self.end(opened);
    }

    fn end(&mut self, opened: Result<()>) {
        self.is_over = true;
        let mut state = self.site.state();
        state.is_connecting = false;
        if let Err(error) = opened {
            state.failures = state.failures.saturating_add(1);
            let longest = FIRST_PAUSE * 2u32.saturating_pow(state.failures.min(12));
            let longest = longest.min(self.pool.server.timing.reconnect_cap);
            let pause = longest.mul_f64(0.5 + fastrand::f64() / 2.0);
            state.failed = Some((error, self.pool.clock.now() + pause));
        }
        drop(state);
        self.pool.forget_unused();
        self.site.attempts.send_modify(|attempts| *attempts += 1);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(Err(Error::unavailable("connecting to Redis", "the runtime of the caller has ended")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Pool, Server};
    use super::*;
    use crate::clock::Clock;

    /// A connection that was found silent, the one beside it, and, since another runtime was told READONLY, a first that is left.
    async fn replacing(pool: &Pool) -> (Arc<Inner>, Arc<Site>, Arc<Connection>, Arc<Connection>) {
        let first = pool.connection().await.unwrap();
        let inner = Arc::clone(&pool.0);
        let site = inner.site(Some(Handle::current())).await.unwrap();
        let second = Connection::open(&inner).await.unwrap();
        first.leave();
        (inner, site, first, second)
    }

    fn pool(server: &servers::Redis) -> Pool {
        Pool::new(Server::of_url(&server.url()).unwrap(), Clock::boot(), Arc::new(drop))
    }

    #[tokio::test]
    async fn an_attempt_that_fails_keeps_a_connection_that_was_installed_meanwhile() {
        let server = servers::Redis::start();
        let pool = pool(&server);
        let (inner, site, first, second) = replacing(&pool).await;
        site.state().is_connecting = true;
        let mut attempt = Attempt { pool: Arc::clone(&inner), site: Arc::clone(&site), is_over: false };
        assert!(inner.install(&site, &second, Some(&first)));
        attempt.end(Err(CLOSED));
        assert!(site.current().is_some_and(|current| Arc::ptr_eq(&current, &second)));
    }

    #[tokio::test]
    async fn a_connection_that_is_replaced_is_left() {
        let server = servers::Redis::start();
        let pool = pool(&server);
        let (inner, site, first, second) = replacing(&pool).await;
        let third = Connection::open(&inner).await.unwrap();
        assert!(inner.install(&site, &second, Some(&first)));
        // What an attempt does that began when the first was left.
        assert!(inner.install(&site, &third, None));
        assert!(second.is_ended(), "a subscription keeps it, and closing the pool does not find it");
    }
}
