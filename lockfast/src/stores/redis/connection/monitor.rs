//! Detects connections from which no bytes arrive any more.
//!
//! A task for each connection checks every [`CHECK_EVERY`] while requests are open, and sleeps while none is. Silence is counted
//! in checks, not by the clock, and a check counts only if the driver ran since the last one: bytes that the driver did not read
//! are no silence of the server.
//!
//! 1. A connection that is silent for longer than a reply should take is suspect, not dead: a second connection is opened. If
//!    the first is still silent once the second is open, its network path is dead: it is replaced and aborted, and its requests
//!    fail. A server that is busy answers neither connection: the handshake of the second does not complete, and the first stays.
//! 2. A connection with open requests and no reply for the response timeout is aborted in any case.
//! 3. On an idle connection one command is sent at each heartbeat, so that its death is noticed without a caller.
//! 4. No verdict depends on callers: a cancelled request changes nothing.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::RedisError;

use crate::error::Result;

use super::connector::Connector;
use super::pool::Inner;
use super::timing::Timing;
use super::{Connection, Multiplexer};

const CHECK_EVERY: Duration = Duration::from_millis(50);
/// The time without a byte after which a connection is suspect: half the time that connecting took, between these two.
const MIN_SUSPECT_AFTER: Duration = Duration::from_millis(250);
const MAX_SUSPECT_AFTER: Duration = Duration::from_secs(1);
/// After this many checks without silence, the limit that a wrong suspicion has doubled is reset.
const CALM_CHECKS: u32 = 20;

/// A connection, and how long opening it took.
type Opened = Result<(Arc<Connection>, Duration)>;

/// The connection that is opened beside a suspect one.
enum Second {
    None,
    Opening(Pin<Box<dyn Future<Output = Opened> + Send>>),
    Open(Opened),
}

impl Second {
    /// Continues to open it until the next check.
    async fn wait(&mut self, check: tokio::time::Sleep) {
        let opened = match self {
            Self::Opening(opening) => tokio::select! {
                opened = opening => Some(opened),
                () = check => None,
            },
            _ => {
                check.await;
                None
            }
        };
        if let Some(opened) = opened {
            *self = Self::Open(opened);
        }
    }
}

struct Monitor {
    pool: Weak<Inner>,
    connector: Weak<Connector>,
    connection: Weak<Connection>,
    multiplexer: Multiplexer,
    timing: Timing,
    /// The time without a byte after which the connection is suspect.
    suspect_after: Duration,
}

/// Starts the monitoring task of a connection; opening the connection `took` so long.
pub(super) fn begin(pool: &Arc<Inner>, connector: &Arc<Connector>, connection: &Arc<Connection>, took: Duration) {
    let monitor = Monitor {
        pool: Arc::downgrade(pool),
        connector: Arc::downgrade(connector),
        connection: Arc::downgrade(connection),
        multiplexer: connection.multiplexer.clone(),
        timing: pool.server.timing,
        // Connecting takes four round trips.
        suspect_after: (took / 2).clamp(MIN_SUSPECT_AFTER, MAX_SUSPECT_AFTER),
    };
    connector.runtime.spawn(monitor.run());
}

impl Monitor {
    async fn run(self) {
        let Some(mut last) = self.multiplexer.activity() else { return };
        let (mut silent, mut unanswered, mut calm) = (Duration::ZERO, Duration::ZERO, 0);
        let (mut limit, mut second) = (self.suspect_after, Second::None);
        loop {
            second.wait(tokio::time::sleep(CHECK_EVERY)).await;
            let Some(activity) = self.multiplexer.activity() else { return };
            if activity.open > 0 {
                // Order matters: the driver runs before the next check, unless the thread that has it is blocked.
                self.multiplexer.wake_driver();
                if activity.polls == last.polls {
                    continue;
                }
            }
            let is_idle = activity.open == 0 && activity.sent == last.sent;
            let is_silent = activity.open > 0 && activity.reads == last.reads;
            let is_unanswered = activity.open > 0 && activity.answered() == last.answered();
            unanswered = if is_unanswered { unanswered + CHECK_EVERY } else { Duration::ZERO };
            last = activity;
            if unanswered >= self.timing.response_timeout {
                return self.multiplexer.abort(&silence(unanswered));
            }
            if !is_silent {
                (silent, second, calm) = (Duration::ZERO, Second::None, calm + 1);
                if is_idle || calm >= CALM_CHECKS {
                    limit = self.suspect_after;
                }
                if is_idle {
                    self.rest().await;
                }
                continue;
            }
            (silent, calm) = (silent + CHECK_EVERY, 0);
            second = match second {
                Second::Open(Ok((connection, took))) => return self.replace(&connection, took, silent),
                // No second connection can be opened either: the server is unreachable or busy.
                Second::Open(Err(_)) => {
                    limit *= 2;
                    Second::None
                }
                Second::None if silent >= limit && !self.multiplexer.is_retired() => {
                    limit *= 2;
                    self.open_second()
                }
                other => other,
            };
        }
    }

    /// Sleeps until a request is sent or the connection has ended. At the heartbeat it sends a request itself: `TIME`, since a
    /// user with the least rights may not send `PING`.
    async fn rest(&self) {
        tokio::select! {
            () = self.multiplexer.next_request() => {}
            () = tokio::time::sleep(self.timing.heartbeat) => drop(self.multiplexer.send(&redis::cmd("TIME"))),
        }
    }

    fn open_second(&self) -> Second {
        let Some(pool) = self.pool.upgrade() else { return Second::None };
        Second::Opening(Box::pin(async move {
            let began = pool.clock.now();
            let connection = Connection::open(&pool).await?;
            Ok((connection, pool.clock.now().since(began)))
        }))
    }

    /// New requests go to the second connection. Requests on the first fail.
    fn replace(&self, second: &Arc<Connection>, took: Duration, silent: Duration) {
        if let (Some(pool), Some(connector), Some(first)) =
            (self.pool.upgrade(), self.connector.upgrade(), self.connection.upgrade())
            && pool.install(&connector, second, Some(&first))
        {
            begin(&pool, &connector, second, took);
        } else {
            second.retire();
        }
        self.multiplexer.abort(&silence(silent));
    }
}

fn silence(span: Duration) -> RedisError {
    io::Error::new(io::ErrorKind::ConnectionAborted, format!("no reply within {span:?}")).into()
}
