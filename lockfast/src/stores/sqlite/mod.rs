//! The store in one file, for the processes of one machine.
//!
//! The lines are rows of a SQLite database; every verb is one transaction, run where it is called. Processes tell each other
//! of hand-offs by datagrams, and see each other's deaths by the end of a pipe ([`home`]); the [`lookout`] hears both.

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
mod seat;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::claim::{Claim, ClaimMap};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::store::{
    Admission, Busy, Change, Guarantees, Lease, Leaving, Page, Query, Report, Scope, Shared as SharedBy, Standing,
    Store, Survives,
};

use file::File;
use home::{Life, Residence, Street};
use inside::{Inside, Kept};
use lookout::Lookout;
use post::Post;
use rule::Failure;

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
    /// The clock that judges leases; the machine's if not said. All who use one file must use the same.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Processes that this one starts from now on count as part of it: what it holds is not free before they are all gone,
    /// or the lease has ended. For programs that hold a lock for a child.
    pub fn count_children(mut self, wanted: bool) -> Self {
        self.count_children = wanted;
        self
    }

    /// Opens the file, which is made if it is not there.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Arc<Sqlite>> {
        Sqlite::open_with(path.as_ref(), self)
    }
}

impl Sqlite {
    /// Opens the file, which is made if it is not there; its directory must be.
    pub fn open(path: impl AsRef<Path>) -> Result<Arc<Self>> {
        SqliteOptions::default().open(path)
    }

    /// The file that `sqlite:` alone means: `lockfast/locks.db` in the user's state directory, which is made if need be.
    pub fn default_path() -> Result<PathBuf> {
        file::default_path(|key| std::env::var(key).ok())
    }

    fn open_with(path: &Path, options: SqliteOptions) -> Result<Arc<Self>> {
        let path = file::real_path(path)?;
        let file = File::open(&path, &options.clock)?;
        let residence = Residence::move_in(Street::beside(&path)?, options.count_children)?;
        let inside = Arc::new(Inside {
            path,
            clock: options.clock,
            kept: Mutex::new(Kept { file: Some(file), known: ClaimMap::default() }),
            subscribers: Mutex::default(),
            residence,
            lookout: Lookout::new()?,
            post: Post::default(),
        });
        for home in inside.residence.street.dead() {
            inside.deliver(inside.bury(home).unwrap_or_default());
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
        let inside = &self.inside;
        let is_dead = |home| matches!(inside.residence.street.look_at(home), Life::Dead);
        let asked = inside.verb("acquiring in", false, |ledger| {
            let admission = ledger.acquire(claim, busy, &is_dead)?;
            let dead = match admission {
                Admission::Queued { .. } => inside.look_out_for(ledger, claim)?,
                _ => Vec::new(),
            };
            Ok((admission, dead))
        });
        if !matches!(asked, Ok((Admission::Queued { .. }, _))) {
            inside.lookout.forget(claim.id.hash());
        }
        let (admission, dead) = asked?;
        inside.deliver(inside.bury_those_ahead(claim, dead));
        Ok(admission)
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        let inside = &self.inside;
        let standings = inside.verb("renewing in", false, |ledger| {
            let mut standings = Vec::with_capacity(leases.len());
            for lease in leases {
                let standing = ledger.renew(lease)?;
                let dead = match standing {
                    // Whatever became of the letters, who waits looks out for the right ones from now on.
                    Standing::Waiting { .. } => inside.look_out_for(ledger, &lease.claim)?,
                    _ => {
                        inside.lookout.forget(lease.claim.id.hash());
                        Vec::new()
                    }
                };
                standings.push((standing, dead));
            }
            Ok(standings)
        })?;
        let looked_after = standings.into_iter().zip(leases).map(|((standing, dead), lease)| {
            inside.deliver(inside.bury_those_ahead(&lease.claim, dead));
            standing
        });
        Ok(looked_after.collect())
    }

    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        let inside = &self.inside;
        // A seal is what somebody relies on after a power cut.
        let lasting = leaving.iter().any(|one| matches!(one, Leaving::Seal { .. }));
        let standings = inside.verb("releasing in", lasting, |ledger| {
            leaving
                .iter()
                .map(|one| ledger.release(one).map_err(Failure::from))
                .collect::<std::result::Result<Vec<_>, _>>()
        })?;
        for one in leaving {
            if let Some(claim) = one.claim() {
                inside.lookout.forget(claim.id.hash());
            }
        }
        Ok(standings)
    }

    async fn inspect(&self, query: &Query) -> Result<Page> {
        let inside = &self.inside;
        inside.verb("reading", false, |ledger| {
            for home in ledger.homes_shown(query)? {
                if matches!(inside.residence.street.look_at(home), Life::Dead) {
                    ledger.bury(home)?;
                }
            }
            Ok(ledger.inspect(query)?)
        })
    }

    async fn record(&self, report: &Report) -> Result<()> {
        // Lines are looked at as they are, so there is no listing to keep up.
        self.inside.verb("counting in", false, |ledger| Ok(ledger.count(&report.counters)?))
    }

    fn watch(&self, scope: Scope) -> BoxStream<'static, Change> {
        let reader = self.inside.subscribers().subscribe(scope.clone());
        if let Scope::Lines(beginning) = &scope {
            let told = self.inside.verb("watching", false, |ledger| Ok(ledger.add_watcher(beginning)?));
            if told.is_err() {
                // The stream ends at once; whoever watches asks for another.
                return futures::stream::empty().boxed();
            }
        }
        reader.boxed()
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.inside.subscribers().close();
        self.inside.lookout.end();
        if !self.inside.has_claims() {
            // Otherwise the pipe shows that those who had the claims are gone, and whoever sees that takes it away.
            self.inside.residence.street.clear(self.inside.residence.home);
        }
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.inside.path).finish_non_exhaustive()
    }
}
