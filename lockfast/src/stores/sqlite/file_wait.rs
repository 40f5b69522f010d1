//! Waiting for a file that another process has locked: on the file-wait thread of the store, never on a caller's.
//!
//! A transaction of another process takes microseconds, unless that process is stopped in it. So a verb is first tried
//! on the caller's thread ([`Patience::Brief`]). If the file stays locked, the verb becomes a job of the file-wait
//! thread, and its caller awaits the reply. Two things must stay true, since one of the callers is the keeper, which
//! decides *lost*:
//!
//! 1. No other thread sleeps for longer than [`BRIEF_TRIES`] tries.
//! 2. The mutex around the file is free while the file-wait thread sleeps (see `transaction.rs`).
//!
//! The thread starts with the first job and ends after the last: most stores never need it.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::{Clock, Moment};
use crate::error::{Error, Result};

use super::file::PATIENCE;
use super::open_store::OpenStore;
use super::transaction::{TransactionError, TransactionResult};
use super::view::Messages;

/// How many times a caller's own thread tries, with pauses of up to 0.1 ms: about a millisecond in all.
const BRIEF_TRIES: u32 = 8;

/// How long a transaction may wait for the file.
#[derive(Clone, Copy)]
pub(super) enum Patience<'a> {
    /// For as long as transactions of other processes usually take. On any thread.
    Brief,
    /// Until this moment, and while the reply is wanted. Only on the file-wait thread.
    Long { until: Moment, is_wanted: &'a dyn Fn() -> bool },
}

impl Patience<'_> {
    /// Sleeps before the next try. Returns `false` if there is to be none.
    pub(super) fn sleep_before_retry(self, tries: u32, file_wait: &FileWait) -> bool {
        let may_retry = match self {
            // While other jobs wait, further tries would fail too.
            Self::Brief => tries < BRIEF_TRIES && !file_wait.jobs().has_thread,
            Self::Long { until, is_wanted } => Clock::boot().now() < until && is_wanted(),
        };
        if may_retry {
            // Short at first, as transactions are; then longer, since the other process may be stopped.
            let pause_micros = if tries < 20 { fastrand::u64(20..100) } else { fastrand::u64(500..1500) };
            std::thread::sleep(Duration::from_micros(pause_micros));
        }
        may_retry
    }
}

type Job = Box<dyn FnOnce(&Arc<OpenStore>) + Send>;

/// The jobs of the file-wait thread, first come, first served.
#[derive(Default)]
pub(super) struct FileWait(Mutex<Jobs>);

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Job>,
    /// Whether the thread runs. It ends only with an empty queue.
    has_thread: bool,
}

impl FileWait {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Job> {
        let mut jobs = self.jobs();
        let next = jobs.queue.pop_front();
        jobs.has_thread = next.is_some();
        next
    }
}

impl fmt::Debug for FileWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileWait").finish_non_exhaustive()
    }
}

impl OpenStore {
    /// Runs `act` on the file-wait thread and returns its reply. If the future is dropped before `act` has begun, `act`
    /// does not run.
    pub(super) fn run_on_wait_thread<T, A>(
        self: &Arc<Self>,
        act: A,
    ) -> impl Future<Output = Result<T>> + Send + use<T, A>
    where
        T: Send + 'static,
        A: FnOnce(&Arc<Self>, Patience<'_>) -> TransactionResult<T> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let until = Clock::boot().now() + PATIENCE;
        self.submit(Box::new(move |store| {
            let reply = act(store, Patience::Long { until, is_wanted: &|| !sender.is_closed() });
            let _ = sender.send(reply);
        }));
        async move {
            let thread_ended =
                || Error::unavailable("waiting for the file of locks", "the thread that waits for it has ended");
            receiver.await.map_err(|_| thread_ended())?.map_err(TransactionError::into_error)
        }
    }

    /// Runs work that follows from a verb and that no caller awaits: here, or on the file-wait thread if the file is
    /// locked. Returns the messages that follow; the file-wait thread delivers them itself.
    pub(super) fn follow_up(
        self: &Arc<Self>,
        act: impl Fn(&Arc<Self>, Patience<'_>) -> TransactionResult<Messages> + Send + 'static,
    ) -> Messages {
        match act(self, Patience::Brief) {
            Ok(messages) => messages,
            // Another process does the same work, or the lease makes it unnecessary.
            Err(TransactionError::Failed(_)) => Messages::new(),
            Err(TransactionError::Busy) => {
                let until = Clock::boot().now() + PATIENCE;
                self.submit(Box::new(move |store| {
                    let messages = act(store, Patience::Long { until, is_wanted: &|| true });
                    store.deliver(messages.unwrap_or_default());
                }));
                Messages::new()
            }
        }
    }

    fn submit(self: &Arc<Self>, job: Job) {
        let mut jobs = self.file_wait.jobs();
        jobs.queue.push_back(job);
        if std::mem::replace(&mut jobs.has_thread, true) {
            return;
        }
        drop(jobs);
        let store = Arc::clone(self);
        let run_jobs = move || {
            while let Some(job) = store.file_wait.next() {
                // A job that panics sends no reply; the jobs behind it still run.
                let _ = catch_unwind(AssertUnwindSafe(|| job(&store)));
            }
        };
        if std::thread::Builder::new().name("lockfast-file".to_owned()).spawn(run_jobs).is_err() {
            // No thread could be started: the jobs are dropped, and their callers get an error.
            let dropped = std::mem::take(&mut *self.file_wait.jobs());
            drop(dropped);
        }
    }
}
