//! Connections, one for each runtime that uses the store.
//!
//! A connection is driven by the runtime that made it. So the keeper, which has a runtime of its own, renews and releases
//! while the user's runtime is blocked or gone; and what the user's tasks ask for goes out without a change of threads. Callers
//! without a runtime that can drive one share the connection of the store's I/O thread.

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
use super::connecting::Site;
use super::io_thread::{IoThread, drives_connections, of_caller};
use super::server::Server;
use super::{Connection, OnPush};

pub(super) const CLOSED: Error = Error::Closed("its store is not used any more");
/// How many runtimes are remembered that may not be able to drive a connection.
const MOST_PROBES: usize = 64;

/// Whether a runtime can drive a connection.
type Probe = Shared<BoxFuture<'static, bool>>;

pub(crate) struct Pool(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) server: Arc<Server>,
    pub(super) clock: Clock,
    pub(super) on_push: OnPush,
    sites: Mutex<Sites>,
    io_thread: IoThread,
    /// The server's time in milliseconds when our clock began, as it was last seen. For people only.
    epoch: AtomicU64,
}

/// What each runtime has.
#[derive(Default)]
struct Sites {
    /// By the runtime. Few: a scan is faster than a map.
    of: Vec<(Id, Arc<Site>)>,
    /// The runtime of the I/O thread, once it runs.
    io_thread: Option<Id>,
    /// Runtimes that were asked whether they can drive a connection, the latest last. Once for all their callers.
    probes: VecDeque<(Id, Probe)>,
    /// The store is gone. A connection that is just being opened would never be closed.
    is_closed: bool,
}

impl Pool {
    pub(crate) fn new(server: Server, clock: Clock, on_push: OnPush) -> Self {
        let (sites, io_thread, epoch) = Default::default();
        Self(Arc::new(Inner { server: Arc::new(server), clock, on_push, sites, io_thread, epoch }))
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.0.server
    }

    /// The server's time in milliseconds, nearly. Nothing depends on it but what people are shown.
    pub(crate) fn now(&self) -> u64 {
        self.0.epoch.load(Ordering::Relaxed) + self.0.clock.now().as_nanos() / 1_000_000
    }

    pub(crate) fn tell_time(&self, millis: u64) {
        self.0.tell_time(millis);
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
        let reply = connection.call(doing, call).await;
        if failure::is_of_a_replica(&reply) {
            // The address may lead to another server now, for all of us.
            self.0.sites().of.iter().filter_map(|(_, site)| site.current()).for_each(|other| other.leave());
        }
        reply
    }

    /// The connection for the caller, opened if need be: once for all callers of a runtime.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>> {
        let caller = of_caller();
        let current = self.0.sites().find(caller.as_ref()).and_then(|site| site.current());
        match current {
            Some(connection) => Ok(connection),
            // Apart, since it is rare, and large: otherwise every request would carry it along.
            None => Box::pin(self.open(caller)).await,
        }
    }

    async fn open(&self, caller: Option<Handle>) -> Result<Arc<Connection>> {
        self.0.site(caller).await?.connection(&self.0).await
    }

    /// Runs a task on the runtime that drives the caller's connection. It is dropped if there is none.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Some(caller) = of_caller() else {
            if let Ok(runtime) = self.0.io_thread.runtime() {
                runtime.spawn(task);
            }
            return;
        };
        let (pool, id) = (Arc::clone(&self.0), caller.id());
        caller.clone().spawn(async move {
            match pool.site(Some(caller)).await {
                Ok(site) if site.runtime.id() == id => {
                    drop((pool, site));
                    task.await;
                }
                Ok(site) => drop(site.runtime.spawn(task)),
                Err(_) => {}
            }
        });
    }

    /// Closes every connection, for good, when its open requests are answered.
    pub(crate) fn close(&self) {
        let mut sites = self.0.sites();
        sites.is_closed = true;
        sites.of.drain(..).for_each(|(_, site)| site.close());
        drop(sites);
        self.0.io_thread.end();
    }
}

impl Inner {
    pub(super) fn tell_time(&self, millis: u64) {
        self.epoch.store(millis.saturating_sub(self.clock.now().as_nanos() / 1_000_000), Ordering::Relaxed);
    }

    /// What the caller's runtime has; the I/O thread, if there is none that can drive a connection.
    pub(super) async fn site(&self, caller: Option<Handle>) -> Result<Arc<Site>> {
        if let Some(known) = self.sites().find(caller.as_ref()) {
            return Ok(Arc::clone(known));
        }
        if let Some(caller) = caller {
            let probe = self.sites().probe(&caller);
            if probe.await {
                return self.sites().add(caller);
            }
        }
        let mut sites = self.sites();
        sites.check_open()?;
        let runtime = self.io_thread.runtime()?;
        sites.io_thread = Some(runtime.id());
        sites.add(runtime)
    }

    /// Gives a runtime its connection: the first one, or one in the place of another. `false` if the store is gone, or the other
    /// one was replaced meanwhile.
    pub(super) fn install(&self, site: &Site, connection: &Arc<Connection>, instead_of: Option<&Connection>) -> bool {
        // Order matters: a store that is closed after this finds the connection; before this, it is found closed.
        let sites = self.sites();
        !sites.is_closed && site.install(connection, instead_of)
    }

    /// Runtimes come and go. What is left of those that went, or that have not tried to connect for a while, is forgotten.
    pub(super) fn forget_unused(&self) {
        let (now, cap) = (self.clock.now(), self.server.timing.reconnect_cap);
        self.sites().of.retain(|(_, site)| site.is_used(now, cap) || Arc::strong_count(site) > 1);
    }

    fn sites(&self) -> MutexGuard<'_, Sites> {
        self.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sites {
    fn find(&self, caller: Option<&Handle>) -> Option<&Arc<Site>> {
        match caller.map(Handle::id) {
            Some(id) => self.get(id).or_else(|| self.get(self.io_thread.filter(|_| self.is_unfit(id))?)),
            None => self.get(self.io_thread?),
        }
    }

    fn get(&self, id: Id) -> Option<&Arc<Site>> {
        self.of.iter().find(|(of, _)| *of == id).map(|(_, site)| site)
    }

    fn check_open(&self) -> Result<()> {
        if self.is_closed { Err(CLOSED) } else { Ok(()) }
    }

    /// The site of a runtime, a new one if it has none.
    fn add(&mut self, runtime: Handle) -> Result<Arc<Site>> {
        self.check_open()?;
        let id = runtime.id();
        if let Some(known) = self.get(id) {
            return Ok(Arc::clone(known));
        }
        let site = Site::new(runtime);
        self.of.push((id, Arc::clone(&site)));
        Ok(site)
    }

    fn is_unfit(&self, id: Id) -> bool {
        self.probes.iter().any(|(of, probe)| *of == id && probe.peek() == Some(&false))
    }

    fn probe(&mut self, runtime: &Handle) -> Probe {
        if let Some((_, known)) = self.probes.iter().find(|(id, _)| *id == runtime.id()) {
            return known.clone();
        }
        let probe = drives_connections(runtime).boxed().shared();
        self.probes.push_back((runtime.id(), probe.clone()));
        if self.probes.len() > MOST_PROBES {
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
    fn runtimes_that_never_got_a_connection_are_forgotten_when_they_ask_no_more() {
        let hand = ManualClock::new();
        let server = Server::of_url("redis://127.0.0.1:1").unwrap();
        let cap = server.timing.reconnect_cap;
        let pool = Pool::new(server, hand.clock(), Arc::new(drop));
        for _ in 0..10 {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            assert!(runtime.block_on(pool.connection()).is_err(), "no server is at that port");
            hand.advance(3 * cap);
        }
        assert_eq!(pool.0.sites().of.len(), 1);
    }
}
