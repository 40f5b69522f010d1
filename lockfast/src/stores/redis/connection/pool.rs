//! The connection pool: one connection for each runtime that uses the store.
//!
//! A connection is driven by the runtime that opened it. So the keeper, which has a runtime of its own, renews and releases
//! while the user's runtime is blocked or dropped; and requests of the user's tasks are sent without a change of threads. Callers
//! without a runtime that can drive a connection share the connection of the store's I/O thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use redis::Value;
use tokio::runtime::{Handle, Id};

use crate::clock::Clock;
use crate::error::{Error, Result};

use super::super::failure;
use super::super::scripts::Call;
use super::connector::Connector;
use super::io_thread::{IoThread, caller_runtime, can_drive_connections};
use super::server::Server;
use super::{Connection, OnPush};

/// The error of every request after the store was closed.
pub(super) const CLOSED: Error = Error::Closed("its store is not used any more");
/// The most probes that are remembered.
const MAX_PROBES: usize = 64;

/// A future that tells whether a runtime can drive a connection.
type Probe = Shared<BoxFuture<'static, bool>>;

/// The connections of one store to its server.
pub(crate) struct Pool(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) server: Arc<Server>,
    pub(super) clock: Clock,
    pub(super) on_push: OnPush,
    connectors: Mutex<Connectors>,
    io_thread: IoThread,
    /// The server's time in milliseconds at the start of `clock`, by the last reply that had it. For display only.
    epoch_millis: AtomicU64,
}

#[derive(Default)]
struct Connectors {
    /// One for each runtime. They are few: a scan is faster than a map.
    by_runtime: Vec<(Id, Arc<Connector>)>,
    /// The runtime of the I/O thread, once it runs.
    io_thread: Option<Id>,
    /// One probe for each runtime, the latest last, shared by all callers of the runtime.
    probes: VecDeque<(Id, Probe)>,
    /// Whether the store is closed. A connection installed after that would never be closed.
    is_closed: bool,
}

impl Pool {
    pub(crate) fn new(server: Server, clock: Clock, on_push: OnPush) -> Self {
        let (connectors, io_thread, epoch_millis) = Default::default();
        Self(Arc::new(Inner { server: Arc::new(server), clock, on_push, connectors, io_thread, epoch_millis }))
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.0.server
    }

    /// The server's time in milliseconds, approximately. For display only: no decision depends on it.
    pub(crate) fn now(&self) -> u64 {
        self.0.epoch_millis.load(Ordering::Relaxed) + self.0.clock.now().as_nanos() / 1_000_000
    }

    pub(crate) fn set_server_time(&self, millis: u64) {
        self.0.set_server_time(millis);
    }

    /// Runs a script once, on the connection of the caller's runtime.
    pub(crate) async fn call(&self, doing: impl Fn() -> String, call: &Call) -> Result<Value> {
        let connection = self.connection().await?;
        self.call_on(&connection, doing, call).await
    }

    /// Runs a script once, on this connection.
    pub(crate) async fn call_on(
        &self,
        connection: &Connection,
        doing: impl Fn() -> String,
        call: &Call,
    ) -> Result<Value> {
        let reply = connection.call(doing, call).await;
        if failure::is_of_a_replica(&reply) {
            // The address may lead to another server now: the connections of all runtimes are retired.
            self.0
                .connectors()
                .by_runtime
                .iter()
                .filter_map(|(_, connector)| connector.current())
                .for_each(|other| other.retire());
        }
        reply
    }

    /// The connection of the caller's runtime, opened if there is none: once for all callers of a runtime.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>> {
        let caller = caller_runtime();
        let current = self.0.connectors().find(caller.as_ref()).and_then(|connector| connector.current());
        match current {
            Some(connection) => Ok(connection),
            // Boxed: a rare path with a large future, which every request would otherwise contain.
            None => Box::pin(self.open(caller)).await,
        }
    }

    async fn open(&self, caller: Option<Handle>) -> Result<Arc<Connection>> {
        self.0.connector(caller).await?.connection(&self.0).await
    }

    /// Runs a task on the runtime that drives the caller's connection. Without such a runtime the task is dropped.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Some(caller) = caller_runtime() else {
            if let Ok(runtime) = self.0.io_thread.runtime() {
                runtime.spawn(task);
            }
            return;
        };
        let (pool, id) = (Arc::clone(&self.0), caller.id());
        caller.clone().spawn(async move {
            match pool.connector(Some(caller)).await {
                Ok(connector) if connector.runtime.id() == id => {
                    drop((pool, connector));
                    task.await;
                }
                Ok(connector) => drop(connector.runtime.spawn(task)),
                Err(_) => {}
            }
        });
    }

    /// Closes the pool: every connection ends when its open requests have their replies, and no other is opened.
    pub(crate) fn close(&self) {
        let mut connectors = self.0.connectors();
        connectors.is_closed = true;
        connectors.by_runtime.drain(..).for_each(|(_, connector)| connector.close());
        drop(connectors);
        self.0.io_thread.end();
    }
}

impl Inner {
    pub(super) fn set_server_time(&self, millis: u64) {
        self.epoch_millis.store(millis.saturating_sub(self.clock.now().as_nanos() / 1_000_000), Ordering::Relaxed);
    }

    /// The connector of the caller's runtime; of the I/O thread, if the caller has no runtime that can drive a connection.
    pub(super) async fn connector(&self, caller: Option<Handle>) -> Result<Arc<Connector>> {
        if let Some(known) = self.connectors().find(caller.as_ref()) {
            return Ok(Arc::clone(known));
        }
        if let Some(caller) = caller {
            let probe = self.connectors().probe(&caller);
            if probe.await {
                return self.connectors().add(caller);
            }
        }
        let mut connectors = self.connectors();
        connectors.check_open()?;
        let runtime = self.io_thread.runtime()?;
        connectors.io_thread = Some(runtime.id());
        connectors.add(runtime)
    }

    /// Makes `connection` the current one of a runtime, or replaces `instead_of`. `false` if the pool is closed, or `instead_of`
    /// is not current any more.
    pub(super) fn install(
        &self,
        connector: &Connector,
        connection: &Arc<Connection>,
        instead_of: Option<&Connection>,
    ) -> bool {
        // Order matters: checked and installed under one mutex. A pool that is closed after this finds the connection and
        // closes it; a pool that was closed before refuses it.
        let connectors = self.connectors();
        !connectors.is_closed && connector.install(connection, instead_of)
    }

    /// Forgets connectors whose runtime has ended, or has not tried to connect for a while.
    pub(super) fn forget_unused(&self) {
        let (now, cap) = (self.clock.now(), self.server.timing.reconnect_cap);
        self.connectors()
            .by_runtime
            .retain(|(_, connector)| connector.is_used(now, cap) || Arc::strong_count(connector) > 1);
    }

    fn connectors(&self) -> MutexGuard<'_, Connectors> {
        self.connectors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connectors {
    /// The connector that this caller uses: of its runtime, or of the I/O thread.
    fn find(&self, caller: Option<&Handle>) -> Option<&Arc<Connector>> {
        match caller.map(Handle::id) {
            Some(id) => self.get(id).or_else(|| self.get(self.io_thread.filter(|_| self.is_unfit(id))?)),
            None => self.get(self.io_thread?),
        }
    }

    /// The connector of a runtime.
    fn get(&self, id: Id) -> Option<&Arc<Connector>> {
        self.by_runtime.iter().find(|(of, _)| *of == id).map(|(_, connector)| connector)
    }

    fn check_open(&self) -> Result<()> {
        if self.is_closed { Err(CLOSED) } else { Ok(()) }
    }

    /// The connector of a runtime; a new one if it has none.
    fn add(&mut self, runtime: Handle) -> Result<Arc<Connector>> {
        self.check_open()?;
        let id = runtime.id();
        if let Some(known) = self.get(id) {
            return Ok(Arc::clone(known));
        }
        let connector = Connector::new(runtime);
        self.by_runtime.push((id, Arc::clone(&connector)));
        Ok(connector)
    }

    /// Whether this runtime cannot drive a connection, as its probe has found.
    fn is_unfit(&self, id: Id) -> bool {
        self.probes.iter().any(|(of, probe)| *of == id && probe.peek() == Some(&false))
    }

    /// The probe of a runtime; begins it if there is none.
    fn probe(&mut self, runtime: &Handle) -> Probe {
        if let Some((_, known)) = self.probes.iter().find(|(id, _)| *id == runtime.id()) {
            return known.clone();
        }
        let probe = can_drive_connections(runtime).boxed().shared();
        self.probes.push_back((runtime.id(), probe.clone()));
        if self.probes.len() > MAX_PROBES {
            self.probes.pop_front();
        }
        probe
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn unused_runtimes_without_a_connection_are_forgotten() {
        let manual_clock = ManualClock::new();
        let server = Server::of_url("redis://127.0.0.1:1").unwrap();
        let cap = server.timing.reconnect_cap;
        let pool = Pool::new(server, manual_clock.clock(), Arc::new(drop));
        for _ in 0..10 {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            assert!(runtime.block_on(pool.connection()).is_err(), "no server listens at that port");
            manual_clock.advance(3 * cap);
        }
        assert_eq!(pool.0.connectors().by_runtime.len(), 1);
    }
}
