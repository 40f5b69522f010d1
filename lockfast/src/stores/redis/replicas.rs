//! Waits until replicas have a write (`?replicas=N`), so that a failover does not lose it.
//!
//! `WAIT` blocks all later requests of its connection. So each connection that claims are written on has a second connection
//! beside it for `WAIT`, driven by the same runtime. `WAIT` covers only the writes of its own connection. So after a claim was
//! written, a small write is sent on the second connection: it comes behind the claim in the server's one replication stream. One
//! `WAIT` covers all confirmations that were requested before it was sent.
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

/// The timeout of `WAIT`: a replica that has not acknowledged a write in this time counts as one without it.
pub(super) const WAIT_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest that a verb waits for replicas: for the `WAIT` before its own, for a new connection, and for its own `WAIT`.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(6);
/// What failed, for errors.
const DOING: &str = "waiting for replicas";
/// The key of the small write before each `WAIT`.
const PROBE_KEY: &str = "lockfast:copied";
/// The key may expire at any time: only its write matters.
const PROBE_TTL: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Replicas {
    requests: Mutex<Requests>,
}

#[derive(Default)]
struct Requests {
    /// Requests that no `WAIT` was sent for. Each gets the number of replicas that have its write.
    unsent: Vec<oneshot::Sender<Result<u32>>>,
    /// Whether a task runs that will read `unsent` again.
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
        if connection.replicas.enqueue(sender) {
            connection.spawn(send_waits(Arc::clone(server), Arc::clone(connection)));
        }
        let late = || Error::unavailable(DOING, format!("no reply within {within:?}"));
        let ended = |_| Error::unavailable(DOING, "its runtime has ended");
        match connection.timeout(within, receiver).await.ok_or_else(late)?.map_err(ended)?? {
            count if count >= wanted => Ok(()),
            count => Err(Error::unavailable(
                DOING,
                format!("{count} of the {wanted} replicas that replicas={wanted} asks for have it"),
            )),
        }
    }

    /// Adds a request. Returns whether a task has to be started.
    fn enqueue(&self, sender: oneshot::Sender<Result<u32>>) -> bool {
        let mut requests = self.requests();
        requests.unsent.push(sender);
        !std::mem::replace(&mut requests.has_task, true)
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends one `WAIT` after the other until no request is left.
async fn send_waits(server: Arc<Server>, connection: Arc<Connection>) {
    let mut multiplexer = connection.replicas.requests().multiplexer.take();
    loop {
        let requests = {
            let mut requests = connection.replicas.requests();
            if requests.unsent.is_empty() {
                requests.has_task = false;
                requests.multiplexer = multiplexer;
                return;
            }
            std::mem::take(&mut requests.unsent)
        };
        let count = count_replicas(&server, &connection, &mut multiplexer).await;
        for request in requests {
            let _ = request.send(count.clone());
        }
    }
}

/// How many replicas have all writes so far. `idle` is the connection for `WAIT`, if there is one; a connection that fails is not
/// kept.
async fn count_replicas(server: &Server, connection: &Connection, idle: &mut Option<Multiplexer>) -> Result<u32> {
    let mut multiplexer = match idle.take() {
        Some(multiplexer) => multiplexer,
        None => connect_beside(connection, server).await?,
    };
    let mut pipeline = redis::pipe();
    pipeline.cmd("SET").arg(PROBE_KEY).arg("1").arg("PX").arg(PROBE_TTL.as_millis() as u64).ignore();
    pipeline.cmd("WAIT").arg(server.replicas).arg(WAIT_TIMEOUT.as_millis() as u64);
    let late = |_| Error::unavailable(DOING, "no reply in time");
    let reply =
        tokio::time::timeout(2 * WAIT_TIMEOUT, pipeline.query_async::<(u32,)>(&mut multiplexer)).await.map_err(late)?;
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
