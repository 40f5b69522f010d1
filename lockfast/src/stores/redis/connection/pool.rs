//! Connections, one for each runtime that uses the store.
//!
//! A connection is driven by the runtime that made it. So the keeper, which has a runtime of its own, renews and releases
//! while the user's runtime is blocked or gone; and what the user's tasks ask for goes out without a change of threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::runtime::{Handle, Id};

use crate::clock::{Clock, Moment};
use crate::error::{Error, Result};

use super::super::failure;
use super::super::scripts::Call;
use super::server::Server;
use super::{Connection, OnPush};

/// Between two attempts to connect: up to twice as long each time, with jitter, so that not all clients come at once.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const CLOSED: Error = Error::Closed("its store is not used any more");

pub(crate) struct Pool {
    server: Arc<Server>,
    clock: Clock,
    on_push: OnPush,
    stations: Mutex<Stations>,
    /// The server's time in milliseconds when our clock began, as it was last seen. For people only.
    epoch: AtomicU64,
}

#[derive(Default)]
struct Stations {
    /// Few: a scan is faster than a map.
    of: Vec<(Id, Arc<Station>)>,
    /// Nobody uses the store any more. A connection that is just being opened would never be closed.
    closed: bool,
}

/// One runtime's place: its connection, or the trouble with it.
#[derive(Default)]
struct Station {
    state: Mutex<State>,
    opening: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    failures: u32,
    /// How often it failed altogether.
    attempts: u64,
    next_attempt: Option<(Moment, Error)>,
}

impl Pool {
    pub(crate) fn new(server: Server, clock: Clock, on_push: OnPush) -> Self {
        Self { server: Arc::new(server), clock, on_push, stations: Mutex::default(), epoch: AtomicU64::new(0) }
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// The server's time in milliseconds, nearly. Nothing depends on it but what people are shown.
    pub(crate) fn now(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed) + self.clock.now().as_nanos() / 1_000_000
    }

    pub(crate) fn tell_time(&self, millis: u64) {
        self.epoch.store(millis.saturating_sub(self.clock.now().as_nanos() / 1_000_000), Ordering::Relaxed);
    }

    /// Runs a script once, on the connection of the runtime that asks.
    pub(crate) async fn call(&self, doing: impl Fn() -> String, call: &Call) -> Result<Value> {
        let connection = self.connection().await?;
        self.call_on(&connection, doing, call).await
    }

    /// The same on a certain connection.
    pub(crate) async fn call_on(
        &self,
        connection: &Connection,
        doing: impl Fn() -> String,
        call: &Call,
    ) -> Result<Value> {
        let answer = connection.call(doing, call).await;
        if failure::is_of_a_replica(&answer) {
            // The address may lead to another server now, for all of us.
            self.stations()
                .of
                .iter()
                .filter_map(|(_, station)| station.open_connection())
                .for_each(|connection| connection.leave());
        }
        answer
    }

    /// The connection of this runtime, opened if need be: once for all who ask meanwhile.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>> {
        let runtime = Handle::try_current().map_err(|_| {
            Error::unsupported("redis: needs a tokio runtime around its caller; lockfast::blocking brings one along")
        })?;
        match self.open_connection(runtime.id()) {
            Some(connection) => Ok(connection),
            // Apart, since it is rare, and large: otherwise everybody who asks would carry it along.
            None => Box::pin(self.open(runtime.id())).await,
        }
    }

    async fn open(&self, runtime: Id) -> Result<Arc<Connection>> {
        let station = self.station(runtime)?;
        let attempts = station.state().attempts;
        let _only_one = station.opening.lock().await;
        if let Some(connection) = station.open_connection() {
            return Ok(connection);
        }
        let pause = match &*station.state() {
            // Whoever tried meanwhile tried for all who were waiting.
            State { next_attempt: Some((_, error)), attempts: now, .. } if *now != attempts => {
                return Err(error.clone());
            }
            State { next_attempt: Some((at, _)), .. } => at.since(self.clock.now()),
            _ => Duration::ZERO,
        };
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        match Connection::open(&self.server, &self.clock, &self.on_push).await {
            Ok((connection, millis)) => {
                self.tell_time(millis);
                // Order matters: whoever closes all, after this, finds the connection; and before this, is found.
                let mut stations = self.stations();
                if stations.closed {
                    connection.leave();
                    return Err(CLOSED);
                }
                *station.state() = State { connection: Some(Arc::clone(&connection)), ..State::default() };
                stations.forget_ended(self.clock.now());
                Ok(connection)
            }
            Err(error) => {
                self.stations().forget_ended(self.clock.now());
                let mut state = station.state();
                state.connection = None;
                state.attempts += 1;
                state.failures = state.failures.saturating_add(1);
                let longest = (FIRST_PAUSE * 2u32.saturating_pow(state.failures.min(10)))
                    .min(super::timing::Timing::default().reconnect_cap);
                let pause = longest.mul_f64(0.5 + fastrand::f64() / 2.0);
                state.next_attempt = Some((self.clock.now() + pause, error.clone()));
                Err(error)
            }
        }
    }

    fn open_connection(&self, runtime: Id) -> Option<Arc<Connection>> {
        self.stations().find(runtime)?.open_connection()
    }

    fn station(&self, runtime: Id) -> Result<Arc<Station>> {
        let mut stations = self.stations();
        if stations.closed {
            return Err(CLOSED);
        }
        if let Some(station) = stations.find(runtime) {
            return Ok(Arc::clone(station));
        }
        let station = Arc::default();
        stations.of.push((runtime, Arc::clone(&station)));
        Ok(station)
    }

    /// Closes every connection, for good; those who still use one finish first.
    pub(crate) fn close(&self) {
        let mut stations = self.stations();
        stations.closed = true;
        for (_, station) in stations.of.drain(..) {
            if let Some(connection) = station.state().connection.take() {
                connection.leave();
            }
        }
    }

    fn stations(&self) -> MutexGuard<'_, Stations> {
        self.stations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stations {
    fn find(&self, runtime: Id) -> Option<&Arc<Station>> {
        self.of.iter().find(|(id, _)| *id == runtime).map(|(_, station)| station)
    }

    /// Runtimes come and go; what is left of those that went, or that have not tried to connect for a while, is forgotten.
    fn forget_ended(&mut self, now: Moment) {
        self.of.retain(|(_, station)| {
            let state = station.state();
            let is_open = state.connection.as_ref().is_some_and(|connection| !connection.is_ended());
            let tries = state
                .next_attempt
                .as_ref()
                .is_some_and(|(at, _)| now < *at + super::timing::Timing::default().reconnect_cap);
            is_open || tries || Arc::strong_count(station) > 1
        });
    }
}

impl Station {
    fn open_connection(&self) -> Option<Arc<Connection>> {
        self.state().connection.as_ref().filter(|connection| !connection.is_ended()).cloned()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn runtimes_that_never_got_a_connection_are_forgotten_when_they_ask_no_more() {
        let hand = ManualClock::new();
        let pool = Pool::new(Server::of_url("redis://127.0.0.1:1").unwrap(), hand.clock(), Arc::new(drop));
        for _ in 0..10 {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            assert!(runtime.block_on(pool.connection()).is_err(), "nobody is at that port");
            hand.advance(3 * super::super::timing::Timing::default().reconnect_cap);
        }
        assert_eq!(pool.stations().of.len(), 1);
    }
}
