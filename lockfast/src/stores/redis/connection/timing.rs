//! How long a connection may take for what.

use std::time::Duration;

/// The limits of one server's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    /// A server that has not accepted a connection in this time is unreachable.
    pub(crate) connect_timeout: Duration,
    /// A connection on which requests are open and from which nothing came for this long is closed. At most
    /// [`LONGEST_RESPONSE`]: tombstones outlive it.
    pub(crate) response_timeout: Duration,
    /// An idle connection is asked for a sign of life this often.
    pub(crate) heartbeat: Duration,
    /// After this long without traffic the kernel probes the peer, and then three more times.
    pub(crate) keepalive: Duration,
    /// The pause between two attempts to connect doubles up to this.
    pub(crate) reconnect_cap: Duration,
}

/// The most that [`Timing::response_timeout`] may be: a request that is older than this is not sent any more. A tombstone lives
/// at least twice as long, so that it outlives every late copy of a request.
pub(crate) const LONGEST_RESPONSE: Duration = Duration::from_secs(5);

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            response_timeout: LONGEST_RESPONSE,
            heartbeat: Duration::from_secs(10),
            keepalive: Duration::from_secs(15),
            reconnect_cap: Duration::from_secs(2),
        }
    }
}
