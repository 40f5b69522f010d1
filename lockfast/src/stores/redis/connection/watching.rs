//! Notices that nothing comes back on a connection any more.
//!
//! A task for each connection looks every [`LOOK`] while requests are open, and sleeps while none is. Silence is counted in
//! looks, not by the clock: while this task did not run, no reply could be read either.
//!
//! 1. Silence for as long as a reply may take ([`DOUBT`], or the time that connecting took) is a doubt, not a verdict: a second
//!    connection is opened beside the first. If that succeeds while the first is still silent, the path of the first is dead. It
//!    is replaced and cut, and its requests fail. A server that is busy answers neither, and keeps both waiting.
//! 2. Silence for the response timeout cuts in any case. No request is sent later than that; tombstones rely on it.
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
/// The least time without a reply that raises a doubt.
const DOUBT: Duration = Duration::from_millis(250);

/// A second connection on its way, and how long that took.
type Opening = Pin<Box<dyn Future<Output = Result<(Arc<Connection>, Duration)>> + Send>>;

struct Watch {
    pool: Weak<Inner>,
    site: Weak<Site>,
    connection: Weak<Connection>,
    multiplexer: Multiplexer,
    timing: Timing,
    /// The time without a reply that raises a doubt.
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
        doubt: DOUBT.max(took),
    };
    site.runtime.spawn(watch.run());
}

impl Watch {
    async fn run(self) {
        let (mut silent, mut limit) = (Duration::ZERO, self.doubt);
        let mut second: Option<Opening> = None;
        let Some(mut before) = self.multiplexer.pulse() else { return };
        loop {
            let look = tokio::time::sleep(LOOK);
            let opened = match &mut second {
                None => {
                    look.await;
                    None
                }
                Some(opening) => tokio::select! {
                    opened = opening => Some(opened),
                    () = look => None,
                },
            };
            let Some(pulse) = self.multiplexer.pulse() else { return };
            let is_silent = pulse.open > 0 && pulse.reads == before.reads;
            if let Some(opened) = opened {
                second = None;
                match opened {
                    Ok((connection, took)) if is_silent => return self.replace(&connection, took, silent),
                    // The first is alive, or the server is out of reach on another path too.
                    _ => limit *= 2,
                }
            } else if is_silent {
                silent += LOOK;
                if silent >= self.timing.response_timeout {
                    return self.multiplexer.cut(&silence(silent));
                }
                if silent >= limit && second.is_none() && !self.multiplexer.is_left() {
                    second = self.open_second();
                }
            } else {
                (silent, second) = (Duration::ZERO, None);
                if pulse.asked == before.asked {
                    limit = self.doubt;
                    self.rest().await;
                }
                before = pulse;
            }
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

    fn open_second(&self) -> Option<Opening> {
        let pool = self.pool.upgrade()?;
        Some(Box::pin(async move {
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
