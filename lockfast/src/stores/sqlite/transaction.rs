//! One transaction in the file: how it begins, commits, and fails.

use std::sync::MutexGuard;

use crate::error::Error;

use super::file::{self, File};
use super::inside::{Inside, Kept};
use super::ledger::{Ledger, News};
use super::rule::Failure;
use super::waiting::Patience;

/// Why a transaction was not committed.
#[derive(Debug)]
pub(super) enum Undone {
    /// Another process has the file locked, or it has to be opened again. Nothing has happened yet, and waiting may
    /// take a while.
    Busy,
    Failed(Error),
}

impl Undone {
    /// For a caller that does not wait.
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Busy => Error::unavailable("waiting for the file of locks", "the caller did not wait for it"),
            Self::Failed(error) => error,
        }
    }
}

pub(super) type Done<T> = std::result::Result<T, Undone>;

/// Whether the transaction must survive a power cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasting {
    No,
    Yes,
}

impl Inside {
    /// Runs one transaction. Returns its reply, and the messages to deliver.
    pub(super) fn transaction<T>(
        &self,
        doing: &str,
        lasting: Lasting,
        patience: Patience<'_>,
        act: impl FnOnce(&mut Ledger<'_>) -> std::result::Result<T, Failure>,
    ) -> Done<(T, News)> {
        let mut kept = self.begin(doing, lasting, patience)?;
        let Kept { file, known } = &mut *kept;
        let open = file.as_mut().expect("a transaction has begun in it");
        let done = in_transaction(open, |file| {
            // Read once, while no other process can write: so time never goes back for the rows.
            let now = self.time.now();
            let Some(mut ledger) = Ledger::open(&file.connection, file.boot(), now, self.residence.home, known)? else {
                return Err(Failure::Refused(Error::unavailable(
                    "using the file of locks",
                    "another machine uses it too, or it is a copy of another machine's; give each machine its own",
                )));
            };
            ledger.settle()?;
            let answer = act(&mut ledger)?;
            ledger.close()?;
            ledger.tell_watchers()?;
            Ok((answer, std::mem::take(&mut ledger.news)))
        });
        if lasting == Lasting::Yes {
            // If this fails, later transactions are only slower.
            let _ = open.connection.pragma_update(None, "synchronous", "NORMAL");
        }
        if !open.connection.is_autocommit() {
            // The rollback failed. A new connection knows nothing of this transaction.
            *file = None;
        }
        done.map_err(|failure| match failure {
            Failure::Refused(error) => Undone::Failed(error),
            Failure::File(error) => Undone::Failed(file::explain(doing, &self.path, &error)),
        })
    }

    /// Begins a transaction. The mutex is not held between two tries: a caller that only tries must not wait for one
    /// that may wait long.
    fn begin(&self, doing: &str, lasting: Lasting, patience: Patience<'_>) -> Done<MutexGuard<'_, Kept>> {
        let mut tries = 0;
        loop {
            if let Patience::Long { is_wanted, .. } = patience
                && !is_wanted()
            {
                return Err(Undone::Busy);
            }
            let mut kept = self.kept();
            if !kept.is_in_place() {
                kept = self.open_anew(kept, patience)?;
            }
            if matches!(patience, Patience::Long { .. }) && self.lookout.is_over() {
                // Order matters: `Drop` checks for claims after the store is stopped, under the same mutex.
                return Err(Undone::Failed(Error::unavailable(doing, "the store was closed")));
            }
            let open = kept.file.as_ref().expect("it is in place");
            match begin(open, lasting) {
                Ok(()) => return Ok(kept),
                Err(error) if file::is_busy(&error) => {
                    drop(kept);
                    if !patience.pause(tries, &self.waiting) {
                        return Err(match patience {
                            Patience::Brief => Undone::Busy,
                            Patience::Long { .. } => Undone::Failed(file::explain(doing, &self.path, &error)),
                        });
                    }
                    tries += 1;
                }
                Err(error) => return Err(Undone::Failed(file::explain(doing, &self.path, &error))),
            }
        }
    }

    /// Opens the path again. No other process sees rows in a file that was removed, and the new file does not know the
    /// claims of this process. Opening may take as long as waiting, so only the file-wait thread does it, and without
    /// the mutex.
    fn open_anew<'a>(&'a self, mut kept: MutexGuard<'a, Kept>, patience: Patience<'_>) -> Done<MutexGuard<'a, Kept>> {
        if matches!(patience, Patience::Brief) {
            return Err(Undone::Busy);
        }
        kept.file = None;
        drop(kept);
        let file = File::open(&self.path, &self.time).map_err(Undone::Failed)?;
        let mut kept = self.kept();
        kept.file = Some(file);
        kept.known.clear();
        Ok(kept)
    }
}

fn begin(file: &File, lasting: Lasting) -> rusqlite::Result<()> {
    let rows = &file.connection;
    if lasting == Lasting::No {
        return rows.prepare_cached("BEGIN IMMEDIATE")?.execute([]).map(drop);
    }
    rows.pragma_update(None, "synchronous", "FULL")?;
    let begun = rows.prepare_cached("BEGIN IMMEDIATE")?.execute([]).map(drop);
    if begun.is_err() {
        let _ = rows.pragma_update(None, "synchronous", "NORMAL");
    }
    begun
}

/// Commits what `act` does, or nothing of it.
fn in_transaction<T>(
    file: &File,
    act: impl FnOnce(&File) -> std::result::Result<T, Failure>,
) -> std::result::Result<T, Failure> {
    let rows = &file.connection;
    let done = act(file).and_then(|done| {
        rows.prepare_cached("COMMIT")?.execute([])?;
        Ok(done)
    });
    if done.is_err() && !rows.is_autocommit() {
        let _ = rows.execute_batch("ROLLBACK");
    }
    done
}
