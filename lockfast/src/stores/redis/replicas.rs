//! Waits until replicas have a write (`?replicas=N`), so that a failover does not lose it.
//!
//! `WAIT` blocks all later requests of its connection, so it has a connection of its own beside each connection that claims are
//! written on, driven by the same runtime. `WAIT` covers only the writes of its own connection. So a small write is sent there
//! after the claim was written: on the same server it is behind the claim in the one replication stream. One `WAIT` covers all
//! requests that were made before it was sent.
//!
//! A task of the runtime sends one `WAIT` after the other as long as there are requests. A request that is dropped, or not polled
//! any more, delays no other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::{Error, Result};

use super::Multiplexer;
use super::connection::Connection;
use super::connection::Server;
use super::failure::explain;

/// A replica that has not acknowledged a write in this time counts as one without it.
pub(super) const REPLICATED_WITHIN: Duration = Duration::from_secs(1);
/// The longest that a verb waits for replicas: for the `WAIT` before its own, for a new connection, and for its own `WAIT`.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(6);
const DOING: &str = "waiting for replicas";
/// The key of the small write before each `WAIT`.
const WRITTEN: &str = "lockfast:copied";

#[derive(Default)]
pub(super) struct Replicas {
    requests: Mutex<Requests>,
}

#[derive(Default)]
struct Requests {
    /// Requests that no `WAIT` was sent for. Each gets the number of replicas that have its write.
    open: Vec<oneshot::Sender<Result<u32>>>,
    /// Whether a task runs that will read `open` again.
    has_task: bool,
    /// The connection for `WAIT`, while no task uses it.
    multiplexer: Option<Multiplexer>,
}

impl Replicas {
    /// Waits until `server.replicas` replicas have all writes of `connection` so far. Fails if they do not, or if that is not
    /// known in time.
    pub(super) async fn confirm(server: &Arc<Server>, connection: &Arc<Connection>, within: Duration) -> Result<()> {
        let wanted = server.replicas;
        let (sender, receiver) = oneshot::channel();
        if connection.replicas.open(sender) {
            connection.spawn(send_waits(Arc::clone(server), Arc::clone(connection)));
        }
        let late = || Error::unavailable(DOING, format!("no reply within {within:?}"));
        let ended = |_| Error::unavailable(DOING, "its runtime has ended");
        match connection.timeout(within, receiver).await.ok_or_else(late)?.map_err(ended)?? {
            enough if enough >= wanted => Ok(()),
            count => Err(Error::unavailable(
                DOING,
                format!("{count} of the {wanted} replicas that replicas={wanted} asks for have it"),
            )),
        }
    }

    /// Opens a request. Returns whether a task has to be started.
    fn open(&self, sender: oneshot::Sender<Result<u32>>) -> bool {
        let mut requests = self.requests();
        requests.open.push(sender);
        !std::mem::replace(&mut requests.has_task, true)
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn send_waits(server: Arc<Server>, connection: Arc<Connection>) {
    let mut multiplexer = connection.replicas.requests().multiplexer.take();
    loop {
        let requests = {
            let mut requests = connection.replicas.requests();
            if requests.open.is_empty() {
                requests.has_task = false;
                requests.multiplexer = multiplexer;
                return;
            }
            std::mem::take(&mut requests.open)
        };
        let count = count(&server, &connection, &mut multiplexer).await;
        for request in requests {
            let _ = request.send(count.clone());
        }
    }
}

/// How many replicas have all writes so far. A connection that fails is not used again.
async fn count(server: &Server, connection: &Connection, idle: &mut Option<Multiplexer>) -> Result<u32> {
    let mut multiplexer = match idle.take() {
        Some(multiplexer) => multiplexer,
        None => connect_beside(connection, server).await?,
    };
    let mut pipeline = redis::pipe();
    pipeline.cmd("SET").arg(WRITTEN).arg("1").arg("PX").arg(60_000).ignore();
    pipeline.cmd("WAIT").arg(server.replicas).arg(REPLICATED_WITHIN.as_millis() as u64);
    let late = |_| Error::unavailable(DOING, "no reply in time");
    let reply = tokio::time::timeout(2 * REPLICATED_WITHIN, pipeline.query_async::<(u32,)>(&mut multiplexer))
        .await
        .map_err(late)?;
    let (count,) = reply.map_err(|error| explain(DOING, &error))?;
    *idle = Some(multiplexer);
    Ok(count)
}

/// Opens another connection to the same server. If the address leads to another server by now, its replicas say nothing about
/// writes to the first.
async fn connect_beside(connection: &Connection, server: &Server) -> Result<Multiplexer> {
    let connected = server.connect(Arc::new(drop)).await?;
    if connected.run_id != connection.run_id {
        connection.retire();
        return Err(Error::unavailable(DOING, "another server has taken over; reconnecting"));
    }
    Ok(connected.multiplexer)
}
