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
type OpenResult = Result<(Arc<Connection>, Duration)>;

/// The connection that is opened beside a suspect one.
enum SecondConnection {
    None,
    Opening(Pin<Box<dyn Future<Output = OpenResult> + Send>>),
    Open(OpenResult),
}

impl SecondConnection {
    /// Waits until `check` is over, or the connection was opened before that.
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

/// Starts the monitoring task of a connection that took `opening_time` to open.
pub(super) fn start(
    pool: &Arc<Inner>,
    connector: &Arc<Connector>,
    connection: &Arc<Connection>,
    opening_time: Duration,
) {
    let monitor = Monitor {
        pool: Arc::downgrade(pool),
        connector: Arc::downgrade(connector),
        connection: Arc::downgrade(connection),
        multiplexer: connection.multiplexer.clone(),
        timing: pool.server.timing,
        // Connecting takes four round trips: half of it is two.
        suspect_after: (opening_time / 2).clamp(MIN_SUSPECT_AFTER, MAX_SUSPECT_AFTER),
    };
    connector.runtime.spawn(monitor.run());
}

impl Monitor {
    async fn run(self) {
        let Some(mut last) = self.multiplexer.activity() else { return };
        let (mut silent_for, mut unanswered_for, mut calm_checks) = (Duration::ZERO, Duration::ZERO, 0);
        let (mut suspect_limit, mut second) = (self.suspect_after, SecondConnection::None);
        loop {
            second.wait(tokio::time::sleep(CHECK_EVERY)).await;
            let Some(activity) = self.multiplexer.activity() else { return };
            if activity.open_requests > 0 {
                // Order matters: the driver runs before the next check, unless the thread that has it is blocked.
                self.multiplexer.wake_driver();
                if activity.driver_polls == last.driver_polls {
                    continue;
                }
            }
            let is_idle = activity.open_requests == 0 && activity.sent_requests == last.sent_requests;
            let is_silent = activity.open_requests > 0 && activity.reads == last.reads;
            let is_unanswered = activity.open_requests > 0 && activity.reply_count() == last.reply_count();
            unanswered_for = if is_unanswered { unanswered_for + CHECK_EVERY } else { Duration::ZERO };
            last = activity;
            if unanswered_for >= self.timing.response_timeout {
                return self.multiplexer.abort(&silence_error(unanswered_for));
            }
            if !is_silent {
                (silent_for, second, calm_checks) = (Duration::ZERO, SecondConnection::None, calm_checks + 1);
                if is_idle || calm_checks >= CALM_CHECKS {
                    suspect_limit = self.suspect_after;
                }
                if is_idle {
                    self.wait_while_idle().await;
                }
                continue;
            }
            (silent_for, calm_checks) = (silent_for + CHECK_EVERY, 0);
            second = match second {
                SecondConnection::Open(Ok((connection, opening_time))) => {
                    return self.replace(&connection, opening_time, silent_for);
                }
                // No second connection can be opened either: the server is unreachable or busy.
                SecondConnection::Open(Err(_)) => {
                    suspect_limit *= 2;
                    SecondConnection::None
                }
                SecondConnection::None if silent_for >= suspect_limit && !self.multiplexer.is_retired() => {
                    suspect_limit *= 2;
                    self.open_second()
                }
                other => other,
            };
        }
    }

    /// Sleeps until a request is sent or the connection has ended. At the heartbeat it sends a request itself: `TIME`, since a
    /// user with the least rights may not send `PING`.
    async fn wait_while_idle(&self) {
        tokio::select! {
            () = self.multiplexer.next_request() => {}
            () = tokio::time::sleep(self.timing.heartbeat) => drop(self.multiplexer.send(&redis::cmd("TIME"))),
        }
    }

    fn open_second(&self) -> SecondConnection {
        let Some(pool) = self.pool.upgrade() else { return SecondConnection::None };
        SecondConnection::Opening(Box::pin(async move {
            let began = pool.clock.now();
            let connection = Connection::open(&pool).await?;
            Ok((connection, pool.clock.now().since(began)))
        }))
    }

    /// New requests go to the second connection. Requests on the first fail.
    fn replace(&self, second: &Arc<Connection>, opening_time: Duration, silent_for: Duration) {
        if let (Some(pool), Some(connector), Some(first)) =
            (self.pool.upgrade(), self.connector.upgrade(), self.connection.upgrade())
            && pool.install(&connector, second, Some(&first))
        {
            start(&pool, &connector, second, opening_time);
        } else {
            second.retire();
        }
        self.multiplexer.abort(&silence_error(silent_for));
    }
}

fn silence_error(span: Duration) -> RedisError {
    io::Error::new(io::ErrorKind::ConnectionAborted, format!("no reply within {span:?}")).into()
}
