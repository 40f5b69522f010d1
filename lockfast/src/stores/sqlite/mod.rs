//! The store in one file, for the processes of one machine.
//!
//! The queues are rows of a SQLite database. Every verb is one transaction, run on the caller's thread, or on a thread
//! of the store if another process has the file locked ([`file_wait`]). Processes notify each other of hand-offs by
//! datagrams, and see each other's deaths by the end of a liveness pipe ([`runtime_dir`]); one thread per open store
//! waits for both ([`deaths`]).

mod boot_time;
mod entry;
mod file;
mod home;
mod inside;
mod leave;
mod ledger;
mod lookout;
mod pack;
mod post;
mod records;
mod rule;
mod transaction;
mod verbs;
mod waiting;

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
use file::File;
use home::{Residence, Street};
use inside::{Inside, Kept};
use lookout::Lookout;
use post::Post;
use transaction::{Lasting, Undone};
use waiting::{Patience, Waiting};

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
    inside: Arc<Inside>,
}

/// How a [`Sqlite`] is opened.
///
/// ```
/// # use lockfast::{ManualClock, Sqlite, SqliteOptions};
/// # fn main() -> lockfast::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("lockfast-doc-options-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// let hand = ManualClock::new();
/// let store = SqliteOptions::default().clock(hand.clock()).open(folder.join("locks.db"))?;
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
    pub fn count_children(mut self, wanted: bool) -> Self {
        self.count_children = wanted;
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
        let residence = Residence::move_in(Street::beside(&path)?, options.count_children)?;
        let inside = Arc::new(Inside {
            path,
            time,
            kept: Mutex::new(Kept { file: Some(file), known: ClaimMap::default() }),
            subscribers: Mutex::default(),
            residence,
            lookout: Lookout::new()?,
            post: Post::default(),
            waiting: Waiting::default(),
        });
        for home in inside.residence.street.dead() {
            inside.deliver(inside.follow_up(move |inside, patience| inside.bury(home, patience)));
        }
        let for_thread = Arc::clone(&inside);
        std::thread::Builder::new()
            .name("lockfast-lookout".to_owned())
            .spawn(move || for_thread.look_out())
            .map_err(|error| Error::unavailable("starting a thread", error))?;
        Ok(Arc::new(Self { inside }))
    }
}

#[async_trait]
impl Store for Sqlite {
    fn guarantees(&self) -> Guarantees {
        Guarantees { shared: SharedBy::Machine, survives: Survives::Restart, ..Guarantees::in_process() }
    }

    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission> {
        match self.inside.acquire(claim, busy, Patience::Brief) {
            Err(Undone::Busy) => {
                let claim = Arc::clone(claim);
                self.inside.wait_with(move |inside, patience| inside.acquire(&claim, busy, patience)).await
            }
            done => done.map_err(Undone::into_error),
        }
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        match self.inside.renew(leases, Patience::Brief) {
            Err(Undone::Busy) => {
                let leases = leases.to_vec();
                self.inside.wait_with(move |inside, patience| inside.renew(&leases, patience)).await
            }
            done => done.map_err(Undone::into_error),
        }
    }

    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        // A seal must survive a power cut. Its transaction waits for the disk, so it never runs on the caller's thread.
        let is_seal = |one: &Leaving| matches!(one, Leaving::Seal { .. });
        let lasting = if leaving.iter().any(is_seal) { Lasting::Yes } else { Lasting::No };
        let tried = match lasting {
            Lasting::No => self.inside.release(leaving, lasting, Patience::Brief),
            Lasting::Yes => Err(Undone::Busy),
        };
        match tried {
            Err(Undone::Busy) => {
                let leaving = leaving.to_vec();
                self.inside.wait_with(move |inside, patience| inside.release(&leaving, lasting, patience)).await
            }
            done => done.map_err(Undone::into_error),
        }
    }

    async fn inspect(&self, query: &Query) -> Result<Page> {
        match self.inside.inspect(query, Patience::Brief) {
            Err(Undone::Busy) => {
                let query = query.clone();
                self.inside.wait_with(move |inside, patience| inside.inspect(&query, patience)).await
            }
            done => done.map_err(Undone::into_error),
        }
    }

    async fn record(&self, report: &Report) -> Result<()> {
        let counters = report.counters;
        match self.inside.record(&counters, Patience::Brief) {
            Err(Undone::Busy) => {
                self.inside.wait_with(move |inside, patience| inside.record(&counters, patience)).await
            }
            done => done.map_err(Undone::into_error),
        }
    }

    fn watch(&self, scope: Scope) -> BoxStream<'static, Change> {
        let reader = self.inside.subscribers().subscribe(scope.clone());
        let Scope::Queues(beginning) = scope else { return reader.boxed() };
        match self.inside.watch(&beginning, Patience::Brief) {
            Ok(()) => reader.boxed(),
            // The stream ends at once; its reader watches again.
            Err(Undone::Failed(_)) => stream::empty().boxed(),
            Err(Undone::Busy) => {
                let begun = self.inside.wait_with(move |inside, patience| inside.watch(&beginning, patience));
                // Changes before the subscription began are unknown.
                let late = |begun: Result<()>| match begun {
                    Ok(()) => stream::iter([Change::Resync]).chain(reader).boxed(),
                    Err(_) => stream::empty().boxed(),
                };
                begun.map(late).flatten_stream().boxed()
            }
        }
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.inside.subscribers().close();
        self.inside.lookout.end();
        if !self.inside.has_claims() {
            // With claims left, the files stay: the end of the pipe shows other processes that the claims' owner is
            // gone, and they remove both.
            self.inside.residence.street.clear(self.inside.residence.home);
        }
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.inside.path).finish_non_exhaustive()
    }
}
