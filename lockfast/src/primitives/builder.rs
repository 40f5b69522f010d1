//! How the locks of one client behave unless their caller says otherwise.

use std::sync::Arc;
use std::time::Duration;

use crate::claim::Note;
use crate::client::{Client, Options, Renewal, Retry, TraceId};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::store::Store;

use super::Locks;

/// Settings of a client, then the client.
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
}

impl Default for Builder {
    fn default() -> Self {
        let (options, clock) = (Options::default(), Clock::boot());
        Self { prefix: None, options, clock, count_children: false }
    }
}

impl Builder {
    /// Put before every name, so that a mutex named `a` is `lock:a` in the store; `lock:` if not said, and may be empty.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// The prefix of a URL, unless the caller said another.
    pub(crate) fn or_prefix(mut self, prefix: Option<String>) -> Self {
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
        // Said twice, the last counts.
        self.options.labels.retain(|(before, _)| *before != key);
        self.options.labels.push((key, value.into()));
        self
    }

    /// See [`Mutex::trace_id`](crate::Mutex::trace_id).
    pub fn trace_id(mut self, trace: TraceId) -> Self {
        self.options.trace = Some(trace);
        self
    }

    /// See [`Mutex::local_handover`](crate::Mutex::local_handover).
    pub fn local_handover(mut self, wanted: bool) -> Self {
        self.options.local_handover = wanted;
        self
    }

    /// The clock that judges leases here; the machine's if not said. For tests, see [`ManualClock`](crate::ManualClock).
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Processes that this one starts count as part of it, where the store can tell: what it holds is not free before they
    /// are all gone, or the lease has ended. For programs that hold a lock for a child. Said before
    /// [`connect`](Self::connect).
    pub fn count_children(mut self, wanted: bool) -> Self {
        self.count_children = wanted;
        self
    }

    /// A client of this store, and the thread that keeps its locks.
    pub fn build(self, store: Arc<dyn Store>) -> Result<Locks> {
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
            host: host(),
            pid: std::process::id(),
            program: program(),
            text: text.clone(),
            labels: labels.clone(),
        };
        // They are in the client's note now, which every claim begins with.
        let defaults = Options { text: None, labels: Vec::new(), ..self.options };
        Client::start(store, self.clock, prefix, defaults, note).map(Locks::of)
    }
}

#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "unknown".to_owned())
}

/// The program's name and nothing else of how it was called: arguments carry secrets.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
