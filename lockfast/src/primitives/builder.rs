//! Settings of a client, and the defaults of its locks.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::claim::Note;
use crate::client::{Client, Options, Renewal, Retry, TraceId};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::store::Store;

use super::Locks;

/// Builds a client: its settings, and the defaults of its locks.
///
/// ```
/// # use lockfast::{Locks, Memory};
/// # use std::{sync::Arc, time::Duration};
/// let locks = Locks::builder()
///     .prefix("billing:")
///     .ttl(Duration::from_secs(10))
///     .label("service", "billing")
///     .build(Arc::new(Memory::new()))?;
/// # Ok::<(), lockfast::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    prefix: Option<String>,
    options: Options,
    clock: Clock,
    pub(crate) count_children: bool,
    #[cfg(feature = "record")]
    record_file: Option<PathBuf>,
}

impl Default for Builder {
    fn default() -> Self {
        let (options, clock) = (Options::default(), Clock::boot());
        Self {
            prefix: None,
            options,
            clock,
            count_children: false,
            #[cfg(feature = "record")]
            record_file: None,
        }
    }
}

impl Builder {
    /// A text before every name in the store: with the default `lock:`, a mutex named `a` is `lock:a` there. It may be empty.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Sets the prefix that came from a URL, unless the caller has set one.
    pub(crate) fn prefix_if_unset(mut self, prefix: Option<String>) -> Self {
        self.prefix = self.prefix.or(prefix);
        self
    }

    /// See [`Mutex::ttl`](crate::Mutex::ttl).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// See [`Mutex::renew_every`](crate::Mutex::renew_every).
    pub fn renew_every(mut self, span: Duration) -> Self {
        self.options.renewal = Renewal::Every(span);
        self
    }

    /// See [`Mutex::no_renewal`](crate::Mutex::no_renewal).
    pub fn no_renewal(mut self) -> Self {
        self.options.renewal = Renewal::Off;
        self
    }

    /// See [`Mutex::retry`](crate::Mutex::retry).
    pub fn retry(mut self, retry: Retry) -> Self {
        self.options.retry = Some(retry);
        self
    }

    /// See [`Mutex::note`](crate::Mutex::note).
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.options.text = Some(text.into());
        self
    }

    /// See [`Mutex::label`](crate::Mutex::label).
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        let key = key.into();
        // Of two labels with one key, the last counts.
        self.options.labels.retain(|(before, _)| *before != key);
        self.options.labels.push((key, value.into()));
        self
    }

    /// See [`Mutex::trace_id`](crate::Mutex::trace_id).
    pub fn trace_id(mut self, trace: TraceId) -> Self {
        self.options.trace = Some(trace);
        self
    }

    /// See [`Mutex::local_handoff`](crate::Mutex::local_handoff).
    pub fn local_handoff(mut self, enabled: bool) -> Self {
        self.options.local_handoff = enabled;
        self
    }

    /// The clock by which this client judges leases; by default the machine's. For tests, see [`ManualClock`](crate::ManualClock).
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Whether child processes count as part of this process, in a store that watches processes (`sqlite:`): then a lock becomes free
    /// only when all of them have ended, or the lease has. For programs that hold a lock for a child. Set it before
    /// [`connect`](Self::connect).
    pub fn count_children(mut self, enabled: bool) -> Self {
        self.count_children = enabled;
        self
    }

    /// Appends the inputs of the client's engine, and a digest of their effects, to this file: a recording for a bug report, which
    /// `cargo xtask replay` of lockfast's repository steps through. The environment variable `LOCKFAST_RECORD` names a file for all
    /// clients of the process that do not set one. Several clients and processes can share a file.
    ///
    /// The file contains the names of locks, times, tickets, the hashes of claim ids, and the kinds of errors. It
    /// contains no secret of a claim, no sealed value but its length, no note, no label and no trace id. Every input is
    /// one write to the file, so locks become as slow as these writes are; the file grows until the client ends.
    ///
    /// A file that cannot be opened is [`Invalid`](Error::Invalid) when the client is built. When a later write fails, a
    /// warning is logged, the recording ends, and the locks go on.
    ///
    /// ```
    /// # use lockfast::{Locks, Memory};
    /// # use std::sync::Arc;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// let file = std::env::temp_dir().join(format!("lockfast-{}.jsonl", std::process::id()));
    /// let locks = Locks::builder().record_to(&file).build(Arc::new(Memory::new()))?;
    /// locks.mutex("account:123").lock().await?.release().await?;
    /// assert!(std::fs::read_to_string(&file).unwrap().contains("lock:account:123"));
    /// # std::fs::remove_file(&file).unwrap();
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "record")]
    pub fn record_to(mut self, file: impl Into<PathBuf>) -> Self {
        self.record_file = Some(file.into());
        self
    }

    #[cfg(feature = "record")]
    fn recording_file(&self) -> Option<PathBuf> {
        // An empty variable counts as unset.
        let from_env = || std::env::var_os("LOCKFAST_RECORD").filter(|file| !file.is_empty());
        self.record_file.clone().or_else(|| from_env().map(PathBuf::from))
    }

    #[cfg(not(feature = "record"))]
    fn recording_file(&self) -> Option<PathBuf> {
        None
    }

    /// A client of this store. Starts its keeper (watchdog) thread, which renews its locks.
    pub fn build(self, store: Arc<dyn Store>) -> Result<Locks> {
        let recording_file = self.recording_file();
        let prefix = self.prefix.unwrap_or_else(|| "lock:".to_owned());
        if prefix.len() > Name::LONGEST_PREFIX {
            return Err(Error::invalid(format!(
                "the prefix has {} bytes; use at most {}",
                prefix.len(),
                Name::LONGEST_PREFIX
            )));
        }
        self.options.check(&store.guarantees())?;
        let Options { text, labels, .. } = &self.options;
        let note = Note {
            host: host_name(),
            pid: std::process::id(),
            program: program_name(),
            text: text.clone(),
            labels: labels.clone(),
        };
        // Text and labels are in the client's note now, which every claim starts from.
        let defaults = Options { text: None, labels: Vec::new(), ..self.options };
        Client::start(store, self.clock, prefix, defaults, note, recording_file).map(Locks::from_handle)
    }
}

#[cfg(unix)]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "unknown".to_owned())
}

/// The program's name only: arguments carry secrets.
fn program_name() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
