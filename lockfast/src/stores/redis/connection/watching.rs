//! Notices that nothing comes back on a connection any more.
//!
//! A task for each connection looks every [`LOOK`] while requests are open, and sleeps while none is. Silence is counted in
//! looks, not by the clock, and a look counts only if the driver ran since the last one: what the driver did not read is no
//! silence of the server.
//!
//! 1. Silence for as long as a reply may take (`doubt`) is a doubt, not a verdict: a second connection is opened beside the
//!    first. If the first is still silent after that, its path is dead. It is replaced and cut, and its requests fail. A server
//!    that is busy answers neither, and keeps both waiting.
//! 2. A connection on which requests are open and no reply came for the response timeout is cut in any case.
//! 3. An idle connection is sent one command at each heartbeat, so that its death is noticed without a caller.
//! 4. What a caller does, cancelling included, plays no part in it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::RedisError;

use crate::error::Result;

use super::connecting::Site;
use super::pool::Inner;
use super::timing::Timing;
use super::{Connection, Multiplexer};

const LOOK: Duration = Duration::from_millis(50);
/// The time without a byte that raises a doubt: at least, and at most where connecting took long.
const DOUBT: Duration = Duration::from_millis(250);
const MOST_DOUBT: Duration = Duration::from_secs(1);
/// After so many looks without silence a doubt that was wrong is forgotten.
const CALM: u32 = 20;

/// A connection, and how long opening it took.
type Opened = Result<(Arc<Connection>, Duration)>;

/// The connection beside the one that is in doubt.
enum Second {
    None,
    Opening(Pin<Box<dyn Future<Output = Opened> + Send>>),
    Open(Opened),
}

impl Second {
    /// Goes on with its opening until the next look.
    async fn wait(&mut self, look: tokio::time::Sleep) {
        let opened = match self {
            Self::Opening(opening) => tokio::select! {
                opened = opening => Some(opened),
                () = look => None,
            },
            _ => {
                look.await;
                None
            }
        };
        if let Some(opened) = opened {
            *self = Self::Open(opened);
        }
    }
}

struct Watch {
    pool: Weak<Inner>,
    site: Weak<Site>,
    connection: Weak<Connection>,
    multiplexer: Multiplexer,
    timing: Timing,
    /// The time without a byte that raises a doubt.
    doubt: Duration,
}

/// Watches over a connection that took so long to open.
pub(super) fn begin(pool: &Arc<Inner>, site: &Arc<Site>, connection: &Arc<Connection>, took: Duration) {
    let watch = Watch {
        pool: Arc::downgrade(pool),
        site: Arc::downgrade(site),
        connection: Arc::downgrade(connection),
        multiplexer: connection.multiplexer.clone(),
        timing: pool.server.timing,
        // Connecting takes four round trips.
        doubt: (took / 2).clamp(DOUBT, MOST_DOUBT),
    };
    site.runtime.spawn(watch.run());
}

impl Watch {
    async fn run(self) {
        let Some(mut last) = self.multiplexer.pulse() else { return };
        let (mut silent, mut unanswered, mut calm) = (Duration::ZERO, Duration::ZERO, 0);
        let (mut limit, mut second) = (self.doubt, Second::None);
        loop {
            second.wait(tokio::time::sleep(LOOK)).await;
            let Some(pulse) = self.multiplexer.pulse() else { return };
            if pulse.open > 0 {
                // Order matters: the driver runs before the next look, unless the thread that has it is blocked.
                self.multiplexer.wake_driver();
                if pulse.polls == last.polls {
                    continue;
                }
            }
            let is_idle = pulse.open == 0 && pulse.asked == last.asked;
            let is_silent = pulse.open > 0 && pulse.reads == last.reads;
            let is_unanswered = pulse.open > 0 && pulse.answered() == last.answered();
            unanswered = if is_unanswered { unanswered + LOOK } else { Duration::ZERO };
            last = pulse;
            if unanswered >= self.timing.response_timeout {
                return self.multiplexer.cut(&silence(unanswered));
            }
            if !is_silent {
                (silent, second, calm) = (Duration::ZERO, Second::None, calm + 1);
                if is_idle || calm >= CALM {
                    limit = self.doubt;
                }
                if is_idle {
                    self.rest().await;
                }
                continue;
            }
            (silent, calm) = (silent + LOOK, 0);
            second = match second {
                Second::Open(Ok((connection, took))) => return self.replace(&connection, took, silent),
                // The server is out of reach on another path too.
                Second::Open(Err(_)) => {
                    limit *= 2;
                    Second::None
                }
                Second::None if silent >= limit && !self.multiplexer.is_left() => {
                    limit *= 2;
                    self.open_second()
                }
                other => other,
            };
        }
    }

    /// Until a request is sent, or the connection has ended. At the heartbeat, one is sent here. Not `PING`, which a user with
    /// the least rights may not send.
    async fn rest(&self) {
        tokio::select! {
            () = self.multiplexer.next_request() => {}
            () = tokio::time::sleep(self.timing.heartbeat) => drop(self.multiplexer.ask(&redis::cmd("TIME"))),
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

    /// From now on requests go to the second connection. Those on the first fail.
    fn replace(&self, second: &Arc<Connection>, took: Duration, silent: Duration) {
        if let (Some(pool), Some(site), Some(first)) =
            (self.pool.upgrade(), self.site.upgrade(), self.connection.upgrade())
            && pool.install(&site, second, Some(&first))
        {
            begin(&pool, &site, second, took);
        } else {
            second.leave();
        }
        self.multiplexer.cut(&silence(silent));
    }
}

fn silence(span: Duration) -> RedisError {
    io::Error::new(io::ErrorKind::ConnectionAborted, format!("no reply within {span:?}")).into()
}
