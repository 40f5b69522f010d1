//! Waiting until replicas have what was just written (`?replicas=N`), so that a failover does not forget it.
//!
//! The server holds up everything behind a `WAIT` on the same connection, so `WAIT` has a connection of its own, next to each
//! connection that claims are written on, driven by the same runtime. It answers for what it wrote itself; a small write there,
//! sent after a claim was written, stands behind the claim in the one stream that replicas read: if it is the same server's.
//! One `WAIT` answers for all requests that were made before it was sent.
//!
//! A task of the runtime sends them, one after the other, as long as there are requests. A request that is dropped, or not
//! polled any more, holds up no other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::{Error, Result};

use super::Multiplexer;
use super::connection::Connection;
use super::connection::Server;
use super::failure::explain;

/// Replicas that have not said in this time that they have it do not have it.
pub(super) const HAVE_IT_WITHIN: Duration = Duration::from_secs(1);
/// How long a request waits that has to be answered before anything else can be done: for the `WAIT` before its own, for a new
/// connection, and for its own.
pub(super) const ANSWERED_WITHIN: Duration = Duration::from_secs(6);
const DOING: &str = "waiting for replicas";
/// What is written only to be waited for.
const COPIED: &str = "lockfast:copied";

#[derive(Default)]
pub(super) struct Replicas {
    requests: Mutex<Requests>,
}

#[derive(Default)]
struct Requests {
    /// Those that no `WAIT` was sent for. Each is told how many replicas have it.
    open: Vec<oneshot::Sender<Result<u32>>>,
    /// A task answers them, and will look here again.
    are_answered: bool,
    multiplexer: Option<Multiplexer>,
}

impl Replicas {
    /// Comes back when `server.replicas` have all that was written before on the connection `connection`, which this belongs to. Fails
    /// when they do not, or it is not known in this time.
    pub(super) async fn have_it(server: &Arc<Server>, connection: &Arc<Connection>, within: Duration) -> Result<()> {
        let wanted = server.replicas;
        let (tell, told) = oneshot::channel();
        if connection.replicas.open(tell) {
            connection.spawn(answer_all(Arc::clone(server), Arc::clone(connection)));
        }
        let late = || Error::unavailable(DOING, format!("no answer within {within:?}"));
        let ended = |_| Error::unavailable(DOING, "its runtime has ended");
        match connection.timeout(within, told).await.ok_or_else(late)?.map_err(ended)?? {
            enough if enough >= wanted => Ok(()),
            count => Err(Error::unavailable(
                DOING,
                format!("{count} of the {wanted} replicas that replicas={wanted} asks for have it"),
            )),
        }
    }

    /// Opens a request. Says whether there is no task that will answer it.
    fn open(&self, tell: oneshot::Sender<Result<u32>>) -> bool {
        let mut requests = self.requests();
        requests.open.push(tell);
        !std::mem::replace(&mut requests.are_answered, true)
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn answer_all(server: Arc<Server>, connection: Arc<Connection>) {
    let mut multiplexer = connection.replicas.requests().multiplexer.take();
    loop {
        let requests = {
            let mut requests = connection.replicas.requests();
            if requests.open.is_empty() {
                requests.are_answered = false;
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

/// How many replicas have all that was written so far. A connection that did not answer well is not used again.
async fn count(server: &Server, connection: &Connection, kept: &mut Option<Multiplexer>) -> Result<u32> {
    let mut multiplexer = match kept.take() {
        Some(multiplexer) => multiplexer,
        None => next_to(connection, server).await?,
    };
    let mut both = redis::pipe();
    both.cmd("SET").arg(COPIED).arg("1").arg("PX").arg(60_000).ignore();
    both.cmd("WAIT").arg(server.replicas).arg(HAVE_IT_WITHIN.as_millis() as u64);
    let late = |_| Error::unavailable(DOING, "no answer in time");
    let answer =
        tokio::time::timeout(2 * HAVE_IT_WITHIN, both.query_async::<(u32,)>(&mut multiplexer)).await.map_err(late)?;
    let (count,) = answer.map_err(|error| explain(DOING, &error))?;
    *kept = Some(multiplexer);
    Ok(count)
}

/// Another connection to the same server. If the address leads to another one by now, its replicas say nothing about what was
/// written to the first.
async fn next_to(connection: &Connection, server: &Server) -> Result<Multiplexer> {
    let there = server.connect(Arc::new(drop)).await?;
    if there.run_id != connection.run_id {
        connection.retire();
        return Err(Error::unavailable(DOING, "another server has taken over; connecting anew"));
    }
    Ok(there.multiplexer)
}
