//! The time limits of connections, their ranges and their defaults.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::error::{Error, Result};

/// The limits of one server's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    /// A server that has not accepted a connection in this time is unreachable.
    pub(crate) connect_timeout: Duration,
    /// A connection with open requests that has received nothing for this long is closed. At most [`MAX_RESPONSE_TIMEOUT`]:
    /// tombstones outlive it.
    pub(crate) response_timeout: Duration,
    /// On an idle connection a command is sent this often.
    pub(crate) heartbeat: Duration,
    /// After this long without traffic the kernel probes the peer, every third of it, up to three times.
    pub(crate) keepalive: Duration,
    /// The pause between two attempts to connect doubles up to this.
    pub(crate) reconnect_cap: Duration,
}

/// The longest [`Timing::response_timeout`]: a request that is older than this is not sent any more. A tombstone lives at least
/// twice as long, so that it outlives every late copy of a request.
pub(crate) const MAX_RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

impl Timing {
    /// Refuses limits out of their range: they would end sound connections, or keep dead ones.
    pub(crate) fn check(&self) -> Result<()> {
        let (millis, secs) = (Duration::from_millis, Duration::from_secs);
        check_range("connect_timeout", self.connect_timeout, millis(50)..=secs(60))?;
        check_range("response_timeout", self.response_timeout, millis(100)..=MAX_RESPONSE_TIMEOUT)?;
        check_range("heartbeat", self.heartbeat, millis(100)..=secs(3600))?;
        check_range("keepalive", self.keepalive, secs(1)..=secs(7200))?;
        check_range("reconnect_cap", self.reconnect_cap, millis(50)..=secs(60))
    }
}

fn check_range(name: &str, span: Duration, range: RangeInclusive<Duration>) -> Result<()> {
    match range.contains(&span) {
        true => Ok(()),
        false => {
            let (min, max) = range.into_inner();
            Err(Error::invalid(format!("{name} is {span:?}; it may be from {min:?} to {max:?}")))
        }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            response_timeout: MAX_RESPONSE_TIMEOUT,
            heartbeat: Duration::from_secs(10),
            keepalive: Duration::from_secs(15),
            reconnect_cap: Duration::from_secs(2),
        }
    }
}
