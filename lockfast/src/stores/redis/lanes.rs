//! Connections, one for each runtime that uses the store.
//!
//! A connection is driven by the runtime that made it. So the keeper, which has a runtime of its own, renews and releases
//! while the user's runtime is blocked or gone; and what the user's tasks ask for goes out without a change of threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;

use crate::clock::{Clock, Moment};
use crate::error::{Error, Result};

use super::failure;
use super::scripts::Call;
use super::server::Server;

/// Redis answers in less than a millisecond. One that says nothing for this long will not, on this connection.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// Who gives up on an answer that took longer than this has reason to doubt the connection.
const DOUBTFUL: Duration = Duration::from_millis(250);
/// Between two attempts to connect: up to twice as long each time, with jitter, so that not all clients come at once.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

pub(super) struct Lanes {
    server: Server,
    clock: Clock,
    /// What is done with pushes, on whichever connection they come.
    hear: Arc<dyn Fn(PushInfo) + Send + Sync>,
    stations: Mutex<HashMap<Id, Arc<Station>>>,
    /// The server's time in milliseconds when our clock began, as it was last seen. For people only.
    epoch: AtomicU64,
}

/// One runtime's place: its connection, or the trouble with it.
#[derive(Default)]
struct Station {
    state: Mutex<State>,
    opening: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    lane: Option<Lane>,
    failures: u32,
    next_attempt: Option<(Moment, Error)>,
}

/// An open connection.
#[derive(Clone)]
pub(super) struct Lane {
    connection: MultiplexedConnection,
    end: Arc<End>,
    /// How many watches want each channel. Held while the server is told, so that it hears of the last in order.
    channels: Arc<tokio::sync::Mutex<HashMap<String, usize>>>,
    clock: Clock,
}

/// That a connection is of no use any more.
#[derive(Default)]
pub(super) struct End {
    reached: AtomicBool,
    bell: Notify,
}

impl End {
    fn reach(&self) {
        self.reached.store(true, Ordering::Release);
        self.bell.notify_waiters();
    }

    fn is_reached(&self) -> bool {
        self.reached.load(Ordering::Acquire)
    }

    async fn wait(&self) {
        let mut rung = std::pin::pin!(self.bell.notified());
        // Order matters: the bell is listened to before the flag is looked at.
        rung.as_mut().enable();
        if !self.is_reached() {
            rung.await;
        }
    }
}

/// Ends a connection when the runtime that drives it is shut down.
struct WithRuntime(Arc<End>);

impl Drop for WithRuntime {
    fn drop(&mut self) {
        self.0.reach();
    }
}

impl Lane {
    /// Comes back when the connection is of no use any more.
    pub(super) async fn ended(&self) {
        self.end.wait().await;
    }

    /// A plain command.
    pub(super) async fn command(&self, doing: &str, command: &redis::Cmd) -> Result<Value> {
        let mut connection = self.connection.clone();
        self.answer(|| doing.to_owned(), command.query_async(&mut connection)).await
    }

    pub(super) async fn subscribe(&self, channel: &str) -> Result<()> {
        let mut connection = self.connection.clone();
        let mut channels = self.channels.lock().await;
        if !channels.contains_key(channel) {
            self.answer(|| "subscribing".to_owned(), connection.subscribe(channel)).await?;
        }
        *channels.entry(channel.to_owned()).or_default() += 1;
        Ok(())
    }

    /// One watch less; the server is told when it was the last on this channel.
    pub(super) async fn unsubscribe(&self, channel: &str) -> Result<()> {
        let mut connection = self.connection.clone();
        let mut channels = self.channels.lock().await;
        if let Some(others @ 2..) = channels.get_mut(channel) {
            *others -= 1;
            return Ok(());
        }
        channels.remove(channel);
        self.answer(|| "unsubscribing".to_owned(), connection.unsubscribe(channel)).await
    }

    /// What comes back, in time. Who says nothing, or nothing of use, has his connection ended: the next one may do better.
    async fn answer<T>(
        &self,
        doing: impl Fn() -> String,
        asked: impl Future<Output = redis::RedisResult<T>>,
    ) -> Result<T> {
        let mut unanswered = Unanswered { lane: self, since: self.clock.now(), answered: false };
        let answer = tokio::time::timeout(ANSWERS_WITHIN, asked).await;
        unanswered.answered = true;
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                if failure::is_of_the_connection(&error) {
                    self.end.reach();
                }
                Err(failure::explain(&doing(), &error))
            }
            Err(_) => {
                self.end.reach();
                Err(Error::unavailable(doing(), format!("no answer within {ANSWERS_WITHIN:?}")))
            }
        }
    }
}

/// A question whose asker may lose patience.
struct Unanswered<'a> {
    lane: &'a Lane,
    since: Moment,
    answered: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.answered && self.lane.clock.now().since(self.since) >= DOUBTFUL {
            self.lane.end.reach();
        }
    }
}

impl Lanes {
    pub(super) fn new(server: Server, clock: Clock, hear: Arc<dyn Fn(PushInfo) + Send + Sync>) -> Self {
        Self { server, clock, hear, stations: Mutex::default(), epoch: AtomicU64::new(0) }
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// The server's time in milliseconds, nearly. Nothing depends on it but what people are shown.
    pub(super) fn now(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed) + self.clock.now().as_nanos() / 1_000_000
    }

    pub(super) fn tell_time(&self, millis: u64) {
        self.epoch.store(millis.saturating_sub(self.clock.now().as_nanos() / 1_000_000), Ordering::Relaxed);
    }

    /// Runs a script once, on the connection of the runtime that asks.
    pub(super) async fn call(&self, doing: impl Fn() -> String, call: &Call) -> Result<Value> {
        let lane = self.lane().await?;
        let mut connection = lane.connection.clone();
        let answer = lane.answer(doing, call.run(&mut connection)).await;
        if failure::is_of_a_replica(&answer) {
            // The address may lead to another server now, for all of us.
            self.stations().values().filter_map(|station| station.open_lane()).for_each(|lane| lane.end.reach());
        }
        answer
    }

    /// The connection of this runtime, opened if need be: once for all who ask meanwhile.
    pub(super) async fn lane(&self) -> Result<Lane> {
        let runtime = Handle::try_current().map_err(|_| {
            Error::unsupported("redis: needs a tokio runtime around its caller; lockfast::blocking brings one along")
        })?;
        let station = Arc::clone(self.stations().entry(runtime.id()).or_default());
        if let Some(lane) = station.open_lane() {
            return Ok(lane);
        }
        let _only_one = station.opening.lock().await;
        if let Some(lane) = station.open_lane() {
            return Ok(lane);
        }
        if let Some((at, error)) = &station.state().next_attempt
            && self.clock.now() < *at
        {
            return Err(error.clone());
        }
        match self.open().await {
            Ok(lane) => {
                *station.state() = State { lane: Some(lane.clone()), failures: 0, next_attempt: None };
                self.forget_ended();
                Ok(lane)
            }
            Err(error) => {
                let mut state = station.state();
                state.lane = None;
                state.failures = state.failures.saturating_add(1);
                let longest = (FIRST_PAUSE * 2u32.saturating_pow(state.failures.min(10))).min(LONGEST_PAUSE);
                let pause = longest.mul_f64(0.5 + fastrand::f64() / 2.0);
                state.next_attempt = Some((self.clock.now() + pause, error.clone()));
                Err(error)
            }
        }
    }

    async fn open(&self) -> Result<Lane> {
        let end = Arc::new(End::default());
        let (hear, ends) = (Arc::clone(&self.hear), Arc::clone(&end));
        let hear_all = move |info: PushInfo| match info.kind {
            PushKind::Disconnection => ends.reach(),
            _ => hear(info),
        };
        let (connection, millis) = self.server.connect(hear_all).await?;
        self.tell_time(millis);
        let lane = Lane { connection, end: Arc::clone(&end), channels: Arc::default(), clock: self.clock.clone() };
        let with_runtime = WithRuntime(Arc::clone(&end));
        tokio::spawn(async move {
            let _with_runtime = with_runtime;
            end.wait().await;
        });
        Ok(lane)
    }

    /// Closes every connection; those who still use one finish first.
    pub(super) fn close(&self) {
        for station in std::mem::take(&mut *self.stations()).into_values() {
            if let Some(lane) = station.state().lane.take() {
                lane.end.reach();
            }
        }
    }

    /// Runtimes come and go; what is left of those that went is forgotten.
    fn forget_ended(&self) {
        self.stations().retain(|_, station| {
            let state = station.state();
            state.lane.as_ref().is_none_or(|lane| !lane.end.is_reached()) || Arc::strong_count(station) > 1
        });
    }

    fn stations(&self) -> MutexGuard<'_, HashMap<Id, Arc<Station>>> {
        self.stations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Station {
    fn open_lane(&self) -> Option<Lane> {
        self.state().lane.clone().filter(|lane| !lane.end.is_reached())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
