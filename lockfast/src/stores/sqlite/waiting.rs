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
use super::inside::Inside;
use super::ledger::News;
use super::transaction::{Done, Undone};

/// How often a caller's own thread tries: about a millisecond in all.
const BRIEFLY: u32 = 8;

/// How long a transaction may wait for the file.
#[derive(Clone, Copy)]
pub(super) enum Patience<'a> {
    /// For as long as transactions of other processes usually take. On any thread.
    Brief,
    /// Until then, and while the reply is wanted. Only on the file-wait thread.
    Long { until: Moment, is_wanted: &'a dyn Fn() -> bool },
}

impl Patience<'_> {
    /// Sleeps before the next try; `false` when there is none.
    pub(super) fn pause(self, tries: u32, waiting: &Waiting) -> bool {
        let goes_on = match self {
            // While other jobs wait, further tries would fail too.
            Self::Brief => tries < BRIEFLY && !waiting.jobs().is_attended,
            Self::Long { until, is_wanted } => Clock::boot().now() < until && is_wanted(),
        };
        if goes_on {
            let pause = if tries < 20 { fastrand::u64(20..100) } else { fastrand::u64(500..1500) };
            std::thread::sleep(Duration::from_micros(pause));
        }
        goes_on
    }
}

type Job = Box<dyn FnOnce(&Arc<Inside>) + Send>;

/// The jobs of the file-wait thread, first come, first served.
#[derive(Default)]
pub(super) struct Waiting(Mutex<Jobs>);

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Job>,
    /// Whether the thread runs. It ends only with an empty queue.
    is_attended: bool,
}

impl Waiting {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Job> {
        let mut jobs = self.jobs();
        let next = jobs.queue.pop_front();
        jobs.is_attended = next.is_some();
        next
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}

impl Inside {
    /// Runs `act` on the file-wait thread and returns its reply. If the future is dropped before `act` has begun, `act`
    /// does not run.
    pub(super) fn wait_with<T, A>(self: &Arc<Self>, act: A) -> impl Future<Output = Result<T>> + Send + use<T, A>
    where
        T: Send + 'static,
        A: FnOnce(&Arc<Self>, Patience<'_>) -> Done<T> + Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        let until = Clock::boot().now() + PATIENCE;
        self.submit(Box::new(move |inside| {
            let answer = act(inside, Patience::Long { until, is_wanted: &|| !tell.is_closed() });
            let _ = tell.send(answer);
        }));
        async move {
            let ended = || Error::unavailable("waiting for the file of locks", "the thread that waits for it has ended");
            told.await.map_err(|_| ended())?.map_err(Undone::into_error)
        }
    }

    /// Runs work that follows from a verb and that no caller awaits: here, or on the file-wait thread if the file is
    /// locked. Returns the messages that follow; the file-wait thread delivers them itself.
    pub(super) fn follow_up(
        self: &Arc<Self>,
        act: impl Fn(&Arc<Self>, Patience<'_>) -> Done<News> + Send + 'static,
    ) -> News {
        match act(self, Patience::Brief) {
            Ok(news) => news,
            // Another process does the same work, or the lease makes it unnecessary.
            Err(Undone::Failed(_)) => News::new(),
            Err(Undone::Busy) => {
                let until = Clock::boot().now() + PATIENCE;
                self.submit(Box::new(move |inside| {
                    let news = act(inside, Patience::Long { until, is_wanted: &|| true });
                    inside.deliver(news.unwrap_or_default());
                }));
                News::new()
            }
        }
    }

    fn submit(self: &Arc<Self>, job: Job) {
        let mut jobs = self.waiting.jobs();
        jobs.queue.push_back(job);
        if std::mem::replace(&mut jobs.is_attended, true) {
            return;
        }
        drop(jobs);
        let inside = Arc::clone(self);
        let attend = move || {
            while let Some(job) = inside.waiting.next() {
                // A job that panics sends no reply; the jobs behind it still run.
                let _ = catch_unwind(AssertUnwindSafe(|| job(&inside)));
            }
        };
        if std::thread::Builder::new().name("lockfast-waiting".to_owned()).spawn(attend).is_err() {
            // No thread could be started: the jobs are dropped, and their callers get an error.
            let dropped = std::mem::take(&mut *self.waiting.jobs());
            drop(dropped);
        }
    }
}
