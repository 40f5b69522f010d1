//! The store in one file, for the processes of one machine.
//!
//! The queues are rows of a SQLite database. Every verb is one transaction, run on the caller's thread, or on a thread
//! of the store if another process has the file locked ([`file_wait`]). Processes notify each other of hand-offs by
//! datagrams, and see each other's deaths by the end of a liveness pipe ([`runtime_dir`]); one thread per open store
//! waits for both ([`deaths`]).
//!
//! | file | content |
//! |---|---|
//! | `verbs.rs`, `open_store.rs` | the verbs; the state of one open store |
//! | `rule.rs`, `leave.rs` | the rule over rows; every way a claim leaves |
//! | `transaction.rs`, `view.rs`, `entry.rs`, `records.rs`, `schema.sql` | one transaction; the tables as it sees them |
//! | `file.rs`, `file_wait.rs` | opening the file; waiting for it while it is locked |
//! | `boot_time.rs`, `encoding.rs` | the clock of stored moments; byte encodings |
//! | `runtime_dir.rs`, `datagrams.rs`, `deaths.rs` | liveness pipes; notifications; the thread that waits for both |

mod boot_time;
mod datagrams;
mod deaths;
mod encoding;
mod entry;
mod file;
mod file_wait;
mod leave;
mod open_store;
mod records;
mod rule;
mod runtime_dir;
mod transaction;
mod verbs;
mod view;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};

use crate::claim::{Claim, ClaimMap};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::store::{
    Admission, Busy, Change, Guarantees, Lease, Leaving, Page, Query, Report, Scope, Shared as SharedBy, Standing,
    Store, Survives,
};

use boot_time::BootTime;
use datagrams::DatagramSender;
use deaths::DeathWatch;
use file::File;
use file_wait::{FileWait, Patience};
use open_store::{FileState, OpenStore};
use runtime_dir::{Endpoint, RuntimeDir};
use transaction::{Durable, TransactionError};

/// Locks among the processes of one machine, in one file. A process that dies is noticed at once, however it dies.
///
/// ```
/// # use lockfast::{Locks, Sqlite};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("lockfast-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// let locks = Locks::new(Sqlite::open(folder.join("locks.db"))?)?;
/// let guard = locks.mutex("nightly").lock().await?;
/// // .. no other process on this machine that uses the same file gets here meanwhile ..
/// guard.release().await?;
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(()) }
/// ```
pub struct Sqlite {
    store: Arc<OpenStore>,
}

/// How a [`Sqlite`] is opened.
///
/// ```
/// # use lockfast::{ManualClock, Sqlite, SqliteOptions};
/// # fn main() -> lockfast::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("lockfast-doc-options-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// let manual_clock = ManualClock::new();
/// let store = SqliteOptions::default().clock(manual_clock.clock()).open(folder.join("locks.db"))?;
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct SqliteOptions {
    clock: Clock,
    count_children: bool,
}

impl SqliteOptions {
    /// The clock that decides when leases end; the machine's by default. All users of one file must use the same clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Processes that this one starts from now on count as part of it: its locks are not free before all of them have
    /// ended, or the lease has. For programs that hold a lock for a child.
    pub fn count_children(mut self, is_counted: bool) -> Self {
        self.count_children = is_counted;
        self
    }

    /// Opens the file, which is created if it is missing.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Arc<Sqlite>> {
        Sqlite::open_with(path.as_ref(), self)
    }
}

impl Sqlite {
    /// Opens the file, which is created if it is missing; its directory must exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Arc<Self>> {
        SqliteOptions::default().open(path)
    }

    /// The file that `sqlite:` without a path means: `lockfast/locks.db` in the user's state directory, which is
    /// created if it is missing.
    pub fn default_path() -> Result<PathBuf> {
        file::default_path(|key| std::env::var(key).ok())
    }

    fn open_with(path: &Path, options: SqliteOptions) -> Result<Arc<Self>> {
        let path = file::real_path(path)?;
        let time = BootTime::of(options.clock)?;
        let file = File::open(&path, &time)?;
        let endpoint = Endpoint::create(RuntimeDir::beside(&path)?, options.count_children)?;
        let store = Arc::new(OpenStore {
            path,
            time,
            file_state: Mutex::new(FileState { file: Some(file), known_tickets: ClaimMap::default() }),
            subscribers: Mutex::default(),
            endpoint,
            death_watch: DeathWatch::new()?,
            datagrams: DatagramSender::default(),
            file_wait: FileWait::default(),
        });
        for process in store.endpoint.dir.dead_processes() {
            store.deliver(store.follow_up(move |store, patience| store.remove_dead_process(process, patience)));
        }
        let store_of_thread = Arc::clone(&store);
        std::thread::Builder::new()
            .name("lockfast-deaths".to_owned())
            .spawn(move || store_of_thread.watch_loop())
            .map_err(|error| Error::unavailable("starting a thread", error))?;
        Ok(Arc::new(Self { store }))
    }
}

#[async_trait]
impl Store for Sqlite {
    fn guarantees(&self) -> Guarantees {
        Guarantees { shared: SharedBy::Machine, survives: Survives::Restart, ..Guarantees::in_process() }
    }

    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission> {
        match self.store.acquire(claim, busy, Patience::Brief) {
            Err(TransactionError::Busy) => {
                let claim = Arc::clone(claim);
                self.store.run_on_wait_thread(move |store, patience| store.acquire(&claim, busy, patience)).await
            }
            done => done.map_err(TransactionError::into_error),
        }
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        match self.store.renew(leases, Patience::Brief) {
            Err(TransactionError::Busy) => {
                let leases = leases.to_vec();
                self.store.run_on_wait_thread(move |store, patience| store.renew(&leases, patience)).await
            }
            done => done.map_err(TransactionError::into_error),
        }
    }

    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        // A seal must survive a power cut. Its transaction waits for the disk, so it never runs on the caller's thread.
        let is_seal = |one: &Leaving| matches!(one, Leaving::Seal { .. });
        let durable = if leaving.iter().any(is_seal) { Durable::Yes } else { Durable::No };
        let first_try = match durable {
            Durable::No => self.store.release(leaving, durable, Patience::Brief),
            Durable::Yes => Err(TransactionError::Busy),
        };
        match first_try {
            Err(TransactionError::Busy) => {
                let leaving = leaving.to_vec();
                self.store.run_on_wait_thread(move |store, patience| store.release(&leaving, durable, patience)).await
            }
            done => done.map_err(TransactionError::into_error),
        }
    }

    async fn inspect(&self, query: &Query) -> Result<Page> {
        match self.store.inspect(query, Patience::Brief) {
            Err(TransactionError::Busy) => {
                let query = query.clone();
                self.store.run_on_wait_thread(move |store, patience| store.inspect(&query, patience)).await
            }
            done => done.map_err(TransactionError::into_error),
        }
    }

    async fn record(&self, report: &Report) -> Result<()> {
        let counters = report.counters;
        match self.store.record(&counters, Patience::Brief) {
            Err(TransactionError::Busy) => {
                self.store.run_on_wait_thread(move |store, patience| store.record(&counters, patience)).await
            }
            done => done.map_err(TransactionError::into_error),
        }
    }

    fn watch(&self, scope: Scope) -> BoxStream<'static, Change> {
        let reader = self.store.subscribers().subscribe(scope.clone());
        let Scope::Queues(prefix) = scope else { return reader.boxed() };
        match self.store.watch(&prefix, Patience::Brief) {
            Ok(()) => reader.boxed(),
            // The stream ends at once; its reader watches again.
            Err(TransactionError::Failed(_)) => stream::empty().boxed(),
            Err(TransactionError::Busy) => {
                let subscribing = self.store.run_on_wait_thread(move |store, patience| store.watch(&prefix, patience));
                // Changes before the subscription began are unknown.
                let begin_with_resync = |subscribed: Result<()>| match subscribed {
                    Ok(()) => stream::iter([Change::Resync]).chain(reader).boxed(),
                    Err(_) => stream::empty().boxed(),
                };
                subscribing.map(begin_with_resync).flatten_stream().boxed()
            }
        }
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.store.subscribers().close();
        self.store.death_watch.stop();
        if !self.store.has_claims() {
            // With claims left, the files stay: the end of the pipe shows other processes that the claims' owner is
            // gone, and they remove both.
            self.store.endpoint.dir.remove_files_of(self.store.endpoint.process);
        }
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.store.path).finish_non_exhaustive()
    }
}
