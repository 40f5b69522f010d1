//! A job that every server starts, and one of them runs.

use std::time::Duration;

use crate::client::Guard;
use crate::error::{Error, Result};

use super::once::{DEFAULT_KEEP, Once, Outcome};
use super::requester::run_and_release;
use super::{Locks, Mutex};

/// A job that every server starts at the same time, and one of them runs.
///
/// ```
/// # use lockfast::{Error, Locks, Outcome};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// let report = locks.cron("daily-report").at_most(Duration::from_secs(3600));
/// for server in 1..=3 {
///     let outcome = report.run_for("2026-11-15T02:00", async |_| Ok::<_, Error>(())).await?;
///     assert_eq!(outcome == Outcome::Ran(()), server == 1);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Cron {
    locks: Locks,
    name: String,
    ttl: Option<Duration>,
    hold_at_least: Option<Duration>,
    hold_at_most: Option<Duration>,
    keep: Duration,
}

impl Cron {
    pub(super) fn new(locks: Locks, name: String) -> Self {
        Self { locks, name, ttl: None, hold_at_least: None, hold_at_most: None, keep: DEFAULT_KEEP }
    }

    /// See [`Mutex::ttl`]: how long the job stays locked after the server that runs it has died.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long the job stays locked at least, counted from its start, even if it ends sooner. Choose more than the servers' clocks
    /// differ by, so that a late server does not run it again. For [`run`](Self::run).
    pub fn at_least(mut self, span: Duration) -> Self {
        self.hold_at_least = Some(span);
        self
    }

    /// How long the job may run: after this it is stopped.
    pub fn at_most(mut self, span: Duration) -> Self {
        self.hold_at_most = Some(span);
        self
    }

    /// How long a finished slot is remembered; by default a day. For [`run_for`](Self::run_for).
    pub fn keep(mut self, span: Duration) -> Self {
        self.keep = span;
        self
    }

    /// Runs the job. `None` if another server runs it, or has started it less than `at_least` ago.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future drops the work and releases the job.
    ///
    /// ```
    /// # use lockfast::{Error, Locks};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let tidy = locks.cron("tidy").at_least(Duration::from_secs(30));
    /// assert_eq!(tidy.run(async |_| Ok::<_, Error>("done")).await?, Some("done"));
    /// assert_eq!(tidy.run(async |_| Ok::<_, Error>("done")).await?, None);
    /// # Ok(()) }
    /// ```
    pub async fn run<T, E: From<Error>>(&self, work: impl AsyncFnOnce(&Guard) -> Result<T, E>) -> Result<Option<T>, E> {
        let mut mutex: Mutex = self.locks.mutex(&self.name);
        if let Some(ttl) = self.ttl {
            mutex = mutex.ttl(ttl);
        }
        if let Some(span) = self.hold_at_least {
            mutex = mutex.hold_at_least(span);
        }
        if let Some(span) = self.hold_at_most {
            mutex = mutex.hold_at_most(span);
        }
        match mutex.try_lock().await? {
            Some(guard) => run_and_release(guard, work).await?.map(Some),
            None => Ok(None),
        }
    }

    /// Runs the job once for each scheduled `slot` (for example the time it was due, as text), whatever the servers' clocks show and
    /// however short it is. While another server runs it, the outcome is [`InProgress`](Outcome::InProgress), without waiting.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future drops the work; the next server runs it.
    pub async fn run_for<E: From<Error>>(
        &self,
        slot: impl AsRef<str>,
        work: impl AsyncFnOnce(&Guard) -> Result<(), E>,
    ) -> Result<Outcome<()>, E> {
        // The first `@` ends the job's name, so an `@` in the name is escaped, and with it the `%` of the escape.
        let escaped_name = self.name.replace('%', "%25").replace('@', "%40");
        let mut once: Once = self.locks.once(format!("{escaped_name}@{}", slot.as_ref())).keep(self.keep);
        if let Some(ttl) = self.ttl {
            once = once.ttl(ttl);
        }
        if let Some(span) = self.hold_at_most {
            once = once.hold_at_most(span);
        }
        Ok(match once.try_run(async |guard: &Guard| work(guard).await.map(|()| "")).await? {
            Outcome::Ran(_) => Outcome::Ran(()),
            Outcome::AlreadyDone(_) => Outcome::AlreadyDone(()),
            Outcome::InProgress => Outcome::InProgress,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn jobs_with_any_names_never_share_a_slot() {
        let locks = Locks::in_memory();
        for (name, slot) in
            [("a", "b@c"), ("a@b", "c"), ("a%40b", "c"), ("a%2540b", "c"), ("a", "b%40c"), ("a@", "b@c")]
        {
            let outcome = locks.cron(name).run_for(slot, async |_| Ok::<_, Error>(())).await.unwrap();
            assert_eq!(outcome, Outcome::Ran(()), "{name} for {slot}");
            let again = locks.cron(name).run_for(slot, async |_| Ok::<_, Error>(())).await.unwrap();
            assert_eq!(again, Outcome::AlreadyDone(()), "{name} for {slot}");
        }
    }
}
