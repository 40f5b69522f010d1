//! The options of a store in Redis: what a program and the parameters of a URL can set.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::stores::Redis;

use super::timing::Timing;
use super::tls::Files;

/// Options for opening a [`Redis`] store: replicas, TLS files and time limits of connections.
///
/// A parameter of the URL, like `connect_timeout=1s`, wins over the option of the same name: the program sets defaults, and the
/// deployment overrides them.
///
/// ```no_run
/// # use std::time::Duration;
/// # use lockfast::{Locks, RedisOptions};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let options = RedisOptions::new().connect_timeout(Duration::from_secs(1)).response_timeout(Duration::from_secs(2));
/// let locks = Locks::new(options.open("redis://cache.internal").await?)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    pub(super) replicas: Option<u32>,
    pub(super) files: Files,
    pub(super) connect_timeout: Option<Duration>,
    pub(super) response_timeout: Option<Duration>,
    pub(super) heartbeat: Option<Duration>,
    pub(super) keepalive: Option<Duration>,
    pub(super) reconnect_cap: Option<Duration>,
}

impl RedisOptions {
    /// All defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// A lock counts only while this many replicas have it; 0 by default.
    pub fn replicas(mut self, count: u32) -> Self {
        self.replicas = Some(count);
        self
    }

    /// For `rediss:`, a PEM file with the certificate authorities to trust, instead of those that this machine trusts.
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.files.ca = Some(file.into());
        self
    }

    /// For `rediss:`, a PEM file with the client certificate, for servers that demand one; needs its [`key`](Self::key).
    pub fn cert(mut self, file: impl Into<PathBuf>) -> Self {
        self.files.cert = Some(file.into());
        self
    }

    /// A PEM file with the private key of the client certificate, not encrypted.
    pub fn key(mut self, file: impl Into<PathBuf>) -> Self {
        self.files.key = Some(file.into());
        self
    }

    /// A server that has not accepted a connection in this time is unreachable: from 50 ms to 60 s, 3 s by default.
    pub fn connect_timeout(mut self, span: Duration) -> Self {
        self.connect_timeout = Some(span);
        self
    }

    /// A connection with open requests that has received nothing for this long is closed: from 100 ms to 5 s, which is also the
    /// default.
    pub fn response_timeout(mut self, span: Duration) -> Self {
        self.response_timeout = Some(span);
        self
    }

    /// On an idle connection a command is sent this often, so that a dead peer is noticed: from 100 ms to an hour, 10 s by
    /// default.
    pub fn heartbeat(mut self, span: Duration) -> Self {
        self.heartbeat = Some(span);
        self
    }

    /// After this long without traffic the kernel probes the peer (TCP keep-alive): from 1 s to 2 hours, 15 s by default.
    pub fn keepalive(mut self, span: Duration) -> Self {
        self.keepalive = Some(span);
        self
    }

    /// The pause between two attempts to connect doubles up to this: from 50 ms to 60 s, 2 s by default.
    pub fn reconnect_cap(mut self, span: Duration) -> Self {
        self.reconnect_cap = Some(span);
        self
    }

    /// Connects to the server of a URL; see [`Redis::open`].
    pub async fn open(self, url: &str) -> Result<Arc<Redis>> {
        Redis::open_with(url, self).await
    }

    /// The options of `self`, and those of `below` where `self` has none.
    pub(super) fn over(self, below: Self) -> Self {
        // A certificate and its key come from the same source, or they would not match.
        let pair = if self.files.cert.is_some() || self.files.key.is_some() { &self.files } else { &below.files };
        let (cert, key) = (pair.cert.clone(), pair.key.clone());
        Self {
            replicas: self.replicas.or(below.replicas),
            files: Files { ca: self.files.ca.or(below.files.ca), cert, key },
            connect_timeout: self.connect_timeout.or(below.connect_timeout),
            response_timeout: self.response_timeout.or(below.response_timeout),
            heartbeat: self.heartbeat.or(below.heartbeat),
            keepalive: self.keepalive.or(below.keepalive),
            reconnect_cap: self.reconnect_cap.or(below.reconnect_cap),
        }
    }

    /// The time limits, with defaults for those that are not set.
    pub(super) fn timing(&self) -> Result<Timing> {
        let usual = Timing::default();
        let timing = Timing {
            connect_timeout: self.connect_timeout.unwrap_or(usual.connect_timeout),
            response_timeout: self.response_timeout.unwrap_or(usual.response_timeout),
            heartbeat: self.heartbeat.unwrap_or(usual.heartbeat),
            keepalive: self.keepalive.unwrap_or(usual.keepalive),
            reconnect_cap: self.reconnect_cap.unwrap_or(usual.reconnect_cap),
        };
        timing.check()?;
        Ok(timing)
    }
}
