//! Waiting until replicas have what was just written (`?replicas=N`), so that a failover does not forget it.
//!
//! The server holds up everything behind a `WAIT` on the same connection, so it has one of its own, next to each connection
//! that claims are written on, driven by the same runtime. It answers for what it wrote itself; a small write there, sent
//! after a claim has joined, stands behind the join in the one stream that replicas read: if it is the same server's. One
//! `WAIT` answers for all who joined before it was sent, whatever comes of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;

use crate::error::{Error, Result};

use super::failure::explain;
use super::lane::Lane;
use super::server::Server;
use super::wire::Wire;

/// Replicas that have not said in this time that they have it do not have it.
const HAVE_IT_WITHIN: Duration = Duration::from_secs(1);
const DOING: &str = "waiting for replicas";
/// What is written only to be waited for.
const COPIED: &str = "lockfast:copied";

#[derive(Default)]
pub(super) struct Replicas {
    asked: AtomicU64,
    gate: Mutex<Gate>,
}

struct Gate {
    wire: Option<Wire>,
    /// Up to whom the last answer speaks, and how many replicas it counted.
    answered: u64,
    count: Result<u32>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { wire: None, answered: 0, count: Ok(0) }
    }
}

impl Replicas {
    /// Comes back when `server.replicas` have all that was written before on this connection. Fails when they do not in time.
    pub(super) async fn have_it(&self, server: &Server, lane: &Lane) -> Result<()> {
        let wanted = server.replicas;
        let place = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        let mut gate = self.gate.lock().await;
        if gate.answered < place {
            let up_to = self.asked.load(Ordering::Acquire);
            gate.count = gate.ask(server, lane).await;
            gate.answered = up_to;
        }
        match gate.count.clone()? {
            enough if enough >= wanted => Ok(()),
            count => Err(Error::unavailable(
                DOING,
                format!("{count} of the {wanted} replicas that replicas={wanted} asks for have it"),
            )),
        }
    }
}

impl Gate {
    async fn ask(&mut self, server: &Server, lane: &Lane) -> Result<u32> {
        // Taken out meanwhile: whoever is cancelled here leaves no connection with an answer under way.
        let mut wire = match self.wire.take() {
            Some(wire) => wire,
            None => next_to(lane, server).await?,
        };
        let mut both = redis::pipe();
        both.cmd("SET").arg(COPIED).arg("1").arg("PX").arg(60_000).ignore();
        both.cmd("WAIT").arg(server.replicas).arg(HAVE_IT_WITHIN.as_millis() as u64);
        let late = || Error::unavailable(DOING, "no answer in time");
        let asked = both.query_async::<(u32,)>(&mut wire);
        let answer = tokio::time::timeout(2 * HAVE_IT_WITHIN, asked).await.map_err(|_| late())?;
        let (count,) = answer.map_err(|error| explain(DOING, &error))?;
        self.wire = Some(wire);
        Ok(count)
    }
}

/// Another connection to the same server. If the address leads to another one by now, its replicas say nothing about what was
/// written to the first.
async fn next_to(lane: &Lane, server: &Server) -> Result<Wire> {
    let there = server.connect(Box::new(drop)).await?;
    if there.run_id != lane.run_id {
        lane.leave();
        return Err(Error::unavailable(DOING, "another server has taken over; connecting anew"));
    }
    Ok(there.wire)
}
