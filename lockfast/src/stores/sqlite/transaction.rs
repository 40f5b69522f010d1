//! One transaction in the file: how it begins, commits, and fails.

use std::sync::MutexGuard;

use crate::error::Error;

use super::file::{self, File};
use super::file_wait::Patience;
use super::open_store::{FileState, OpenStore};
use super::rule::Failure;
use super::view::{Messages, TransactionView};

/// Why a transaction was not committed.
#[derive(Debug)]
pub(super) enum TransactionError {
    /// Another process has the file locked, or the file has to be opened again. Nothing has happened yet, and waiting
    /// may take a while.
    Busy,
    Failed(Error),
}

impl TransactionError {
    /// For a caller that does not wait.
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Busy => Error::unavailable("waiting for the file of locks", "the caller did not wait for it"),
            Self::Failed(error) => error,
        }
    }
}

pub(super) type TransactionResult<T> = std::result::Result<T, TransactionError>;

/// Whether the transaction must survive a power cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Durable {
    No,
    Yes,
}

impl OpenStore {
    /// Runs one transaction. Returns its reply, and the messages to deliver.
    pub(super) fn transaction<T>(
        &self,
        doing: &str,
        durable: Durable,
        patience: Patience<'_>,
        act: impl FnOnce(&mut TransactionView<'_>) -> std::result::Result<T, Failure>,
    ) -> TransactionResult<(T, Messages)> {
        let mut file_state = self.begin(doing, durable, patience)?;
        let FileState { file, known_tickets } = &mut *file_state;
        let open = file.as_mut().expect("a transaction has begun in it");
        let result = commit_or_roll_back(open, |file| {
            // Read once, while no other process can write: so time never goes back for the rows.
            let now = self.time.now();
            let Some(mut view) =
                TransactionView::open(&file.connection, file.boot_id(), now, self.endpoint.process, known_tickets)?
            else {
                return Err(Failure::Refused(Error::unavailable(
                    "using the file of locks",
                    "another machine uses it too, or it is a copy of another machine's; give each machine its own",
                )));
            };
            view.settle()?;
            let reply = act(&mut view)?;
            view.close()?;
            view.notify_watchers()?;
            Ok((reply, std::mem::take(&mut view.messages)))
        });
        if durable == Durable::Yes {
            // If the reset fails, later transactions are durable too, and only slower.
            let _ = open.connection.pragma_update(None, "synchronous", "NORMAL");
        }
        if !open.connection.is_autocommit() {
            // The rollback failed. A new connection knows nothing of this transaction.
            *file = None;
        }
        result.map_err(|failure| match failure {
            Failure::Refused(error) => TransactionError::Failed(error),
            Failure::File(error) => TransactionError::Failed(file::explain(doing, &self.path, &error)),
        })
    }

    /// Begins a transaction. The mutex is not held between two tries: a caller with [`Patience::Brief`] must not
    /// wait for one with [`Patience::Long`].
    fn begin(
        &self,
        doing: &str,
        durable: Durable,
        patience: Patience<'_>,
    ) -> TransactionResult<MutexGuard<'_, FileState>> {
        let mut tries = 0;
        loop {
            if let Patience::Long { is_wanted, .. } = patience
                && !is_wanted()
            {
                return Err(TransactionError::Busy);
            }
            let mut file_state = self.file_state();
            if !file_state.is_current() {
                file_state = self.reopen(file_state, patience)?;
            }
            if matches!(patience, Patience::Long { .. }) && self.death_watch.is_stopped() {
                // Order matters: `Drop` checks for claims after the store is stopped, under the same mutex.
                return Err(TransactionError::Failed(Error::unavailable(doing, "the store was closed")));
            }
            let open = file_state.file.as_ref().expect("it is current");
            match begin(open, durable) {
                Ok(()) => return Ok(file_state),
                Err(error) if file::is_busy(&error) => {
                    drop(file_state);
                    if !patience.sleep_before_retry(tries, &self.file_wait) {
                        return Err(match patience {
                            Patience::Brief => TransactionError::Busy,
                            Patience::Long { .. } => TransactionError::Failed(file::explain(doing, &self.path, &error)),
                        });
                    }
                    tries += 1;
                }
                Err(error) => return Err(TransactionError::Failed(file::explain(doing, &self.path, &error))),
            }
        }
    }

    /// Opens the path again. No other process sees rows in a file that was removed, and the new file does not know the
    /// claims of this process. Opening may take as long as waiting, so only the file-wait thread does it, and without
    /// the mutex.
    fn reopen<'a>(
        &'a self,
        mut file_state: MutexGuard<'a, FileState>,
        patience: Patience<'_>,
    ) -> TransactionResult<MutexGuard<'a, FileState>> {
        if matches!(patience, Patience::Brief) {
            return Err(TransactionError::Busy);
        }
        file_state.file = None;
        drop(file_state);
        let file = File::open(&self.path, &self.time).map_err(TransactionError::Failed)?;
        let mut file_state = self.file_state();
        file_state.file = Some(file);
        file_state.known_tickets.clear();
        Ok(file_state)
    }
}

/// Begins a transaction in the file. A durable one also syncs the disk when it commits.
fn begin(file: &File, durable: Durable) -> rusqlite::Result<()> {
    let connection = &file.connection;
    if durable == Durable::No {
        return connection.prepare_cached("BEGIN IMMEDIATE")?.execute([]).map(drop);
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    let begun = connection.prepare_cached("BEGIN IMMEDIATE")?.execute([]).map(drop);
    if begun.is_err() {
        let _ = connection.pragma_update(None, "synchronous", "NORMAL");
    }
    begun
}

/// Runs `act` in the transaction that has begun, and commits. If `act` or the commit fails, nothing of it stays.
fn commit_or_roll_back<T>(
    file: &File,
    act: impl FnOnce(&File) -> std::result::Result<T, Failure>,
) -> std::result::Result<T, Failure> {
    let connection = &file.connection;
    let result = act(file).and_then(|result| {
        connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(result)
    });
    if result.is_err() && !connection.is_autocommit() {
        let _ = connection.execute_batch("ROLLBACK");
    }
    result
}
