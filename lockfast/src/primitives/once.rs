//! Idempotency: work that is done once per name, with its result remembered.

use std::ops::Deref;
use std::time::Duration;

use bytes::Bytes;

use crate::claim::{Demand, Demands};
use crate::client::{Attempt, Entered, Guard, LONGEST_HOLD};
use crate::error::{Error, Result};
use crate::name::Name;

use super::requester::{LocalHandOff, Requester, options, run_while_held};

/// How long a result is remembered at least. Waiters have to get it in this time, or they would run the work again.
const MIN_KEEP: Duration = Duration::from_secs(1);
/// How long a result is remembered by default.
pub(super) const DEFAULT_KEEP: Duration = Duration::from_secs(24 * 3600);

/// Work that succeeds at most once for each name, with its result remembered: a webhook that is delivered twice, a request with an
/// idempotency key.
///
/// The first caller runs the work. A caller that comes while it runs waits and gets the result; a later caller gets the result at
/// once. It counts as done only if the work has succeeded: after a failure, or a crash, the next caller runs it.
///
/// ```
/// # use lockfast::{Locks, Outcome};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// let webhook = locks.once("webhook:42");
/// let first = webhook.run(async |_| lockfast::Result::Ok("paid")).await?;
/// let again = webhook.run(async |_| lockfast::Result::Ok("paid twice?")).await?;
/// assert_eq!(first, Outcome::Ran("paid".into()));
/// assert_eq!(again, Outcome::AlreadyDone("paid".into()));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Once {
    pub(super) requester: Requester,
    pub(super) name: Result<Name>,
    pub(super) keep: Duration,
}

options!(Once);

/// The outcome of [`Once::run`].
///
/// ```
/// # use lockfast::Outcome;
/// assert_eq!(Outcome::AlreadyDone("paid").into_value(), Some("paid"));
/// assert_eq!(Outcome::<&str>::InProgress.into_value(), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome<T> {
    /// The work ran now, in this call.
    Ran(T),
    /// The work had been done before, with this result.
    AlreadyDone(T),
    /// Another caller runs the work, and this call did not wait for its end.
    InProgress,
}

impl<T> Outcome<T> {
    /// The result, of this call or an earlier one; `None` while the work is in progress.
    pub fn into_value(self) -> Option<T> {
        match self {
            Self::Ran(value) | Self::AlreadyDone(value) => Some(value),
            Self::InProgress => None,
        }
    }

    #[cfg(feature = "serde")]
    fn try_map<U>(self, with: impl FnOnce(T) -> Result<U>) -> Result<Outcome<U>> {
        Ok(match self {
            Self::Ran(value) => Outcome::Ran(with(value)?),
            Self::AlreadyDone(value) => Outcome::AlreadyDone(with(value)?),
            Self::InProgress => Outcome::InProgress,
        })
    }
}

/// The outcome of [`Once::begin`].
///
/// ```
/// # use lockfast::{OnceState, Locks};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// let OnceState::Ours(doing) = locks.once("order:7").begin().await? else { panic!("it was done before") };
/// drop(doing); // failed: the next caller does it
/// assert!(matches!(locks.once("order:7").begin().await?, OnceState::Ours(_)));
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the next caller does the work when this is dropped"]
pub enum OnceState {
    /// This caller does the work.
    Ours(OnceGuard),
    /// The work had been done before, with this result.
    AlreadyDone(Bytes),
}

/// The right to do the work of a [`Once`]: a [`Guard`] that also stores the result. If it is dropped or released, the next caller does
/// the work.
///
/// ```
/// # use lockfast::{OnceState, Locks};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// let OnceState::Ours(doing) = locks.once("order:7").begin().await? else { panic!("it was done before") };
/// doing.check()?; // still held? as with every guard
/// doing.done("shipped").await?;
/// assert_eq!(locks.once("order:7").result().await?, Some("shipped".into()));
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the next caller does the work as soon as this is dropped"]
pub struct OnceGuard {
    guard: Guard,
    keep: Duration,
}

impl OnceGuard {
    /// Stores the result, in one step with the release. Fails as [`Lost`](Error::Lost) if the lock was not held to the end; then
    /// nothing is remembered.
    ///
    /// # Cancel safety
    ///
    /// After this future was dropped, the result may be remembered or not.
    pub async fn done(self, value: impl Into<Bytes>) -> Result<()> {
        self.guard.seal(value.into(), self.keep).await
    }

    /// The work was not done: the next caller does it.
    ///
    /// # Cancel safety
    ///
    /// As for [`Guard::release`].
    pub async fn release(self) -> Result<()> {
        self.guard.release().await
    }
}

impl Deref for OnceGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl Once {
    /// How long the result is remembered, at least a second; by default a day.
    pub fn keep(mut self, span: Duration) -> Self {
        self.keep = span;
        self
    }

    /// Runs `work`, or waits while another caller runs it and returns that result. The work gets the guard, for its fence. It is
    /// stopped when the lock is lost. If it succeeds, its result is remembered in one step with the release.
    ///
    /// An error of the work is returned as it is, and nothing is remembered. If remembering fails, that is an error too, although
    /// the work was done: the store does not know the result, so the next caller runs the work again.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future drops the work; the next caller runs it.
    pub async fn run<V, E>(&self, work: impl AsyncFnOnce(&Guard) -> Result<V, E>) -> Result<Outcome<Bytes>, E>
    where
        V: Into<Bytes>,
        E: From<Error>,
    {
        self.check_keep()?;
        let demands = self.demands()?;
        let entered = self.requester.enter(demands, None, LocalHandOff::Never).await?;
        self.run_and_seal(entered, work).await
    }

    /// As [`run`](Self::run), but waits for another caller for at most `patience`; then the outcome is
    /// [`InProgress`](Outcome::InProgress).
    ///
    /// # Cancel safety
    ///
    /// As for [`run`](Self::run).
    pub async fn run_within<V, E>(
        &self,
        patience: Duration,
        work: impl AsyncFnOnce(&Guard) -> Result<V, E>,
    ) -> Result<Outcome<Bytes>, E>
    where
        V: Into<Bytes>,
        E: From<Error>,
    {
        self.check_keep()?;
        let demands = self.demands()?;
        match self.requester.enter(demands, Some(patience), LocalHandOff::Never).await {
            Ok(entered) => self.run_and_seal(entered, work).await,
            Err(Error::Busy { .. }) => Ok(Outcome::InProgress),
            Err(error) => Err(error.into()),
        }
    }

    /// As [`run`](Self::run), but does not wait for another caller: the outcome is [`InProgress`](Outcome::InProgress) at once.
    ///
    /// # Cancel safety
    ///
    /// As for [`run`](Self::run).
    ///
    /// ```
    /// # use lockfast::{Error, Locks, Outcome};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let webhook = locks.once("webhook:42");
    /// let outer = webhook.run(async |_| {
    ///     let meanwhile = locks.once("webhook:42").try_run(async |_| Ok::<_, Error>("no")).await?;
    ///     assert_eq!(meanwhile, Outcome::InProgress);
    ///     Ok::<_, Error>("yes")
    /// });
    /// assert_eq!(outer.await?, Outcome::Ran("yes".into()));
    /// # Ok(()) }
    /// ```
    pub async fn try_run<V, E>(&self, work: impl AsyncFnOnce(&Guard) -> Result<V, E>) -> Result<Outcome<Bytes>, E>
    where
        V: Into<Bytes>,
        E: From<Error>,
    {
        self.check_keep()?;
        let demands = self.demands()?;
        match self.requester.attempt(demands).await? {
            Attempt::Entered(entered) => self.run_and_seal(entered, work).await,
            Attempt::Refused(_) => Ok(Outcome::InProgress),
        }
    }

    /// For work that is no future, for example another program: returns whether this caller does the work. The caller calls
    /// [`done`](OnceGuard::done) when it has succeeded. While another caller does it, this waits, or makes attempts if
    /// [`retry`](Self::retry) is set.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future leaves the queue. If the work had just been granted to this caller, the next one does it.
    ///
    /// ```
    /// # use lockfast::{OnceState, Locks};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// match locks.once("webhook:42").begin().await? {
    ///     OnceState::Ours(doing) => doing.done("paid").await?,
    ///     OnceState::AlreadyDone(_) => unreachable!("this is the first caller"),
    /// }
    /// assert!(matches!(locks.once("webhook:42").begin().await?, OnceState::AlreadyDone(value) if value == "paid"));
    /// # Ok(()) }
    /// ```
    pub async fn begin(&self) -> Result<OnceState> {
        self.begin_with(None).await
    }

    /// As [`begin`](Self::begin), but fails as [`Busy`](Error::Busy) if another caller works for longer than `patience`.
    ///
    /// # Cancel safety
    ///
    /// As for [`begin`](Self::begin).
    pub async fn begin_within(&self, patience: Duration) -> Result<OnceState> {
        self.begin_with(Some(patience)).await
    }

    async fn begin_with(&self, patience: Option<Duration>) -> Result<OnceState> {
        self.check_keep()?;
        let demands = self.demands()?;
        Ok(match self.requester.enter(demands, patience, LocalHandOff::Never).await? {
            Entered::Held(guard) => OnceState::Ours(OnceGuard { guard, keep: self.keep }),
            Entered::Sealed(value) => OnceState::AlreadyDone(value),
        })
    }

    /// The remembered result, if the work has been done. Takes no lock while it has not, so it delays no other caller.
    ///
    /// ```
    /// # use lockfast::{Error, Locks};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// assert_eq!(locks.once("webhook:42").result().await?, None);
    /// locks.once("webhook:42").run(async |_| Ok::<_, Error>("paid")).await?;
    /// assert_eq!(locks.once("webhook:42").result().await?, Some("paid".into()));
    /// # Ok(()) }
    /// ```
    pub async fn result(&self) -> Result<Option<Bytes>> {
        // Order matters: the seal is read first. Requesting the lock of work that is not done would, for a moment, keep a caller from
        // doing it, and a `try_run` would return `InProgress`.
        match self.requester.inspect_front(&self.demands()).await? {
            Some(resource) if resource.sealed_for.is_some() => {}
            _ => return Ok(None),
        }
        let demands = self.demands()?;
        match self.requester.attempt(demands).await? {
            Attempt::Entered(Entered::Sealed(value)) => Ok(Some(value)),
            Attempt::Entered(Entered::Held(guard)) => guard.release().await.map(|()| None),
            Attempt::Refused(_) => Ok(None),
        }
    }

    /// As [`run`](Self::run), with a result of any type that can be written and read as JSON.
    ///
    /// ```
    /// # use lockfast::{Error, Locks, Outcome};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let order = locks.once("order:7");
    /// assert_eq!(order.run_json(async |_| Ok::<_, Error>((7, true))).await?, Outcome::Ran((7, true)));
    /// assert_eq!(order.run_json(async |_| Ok::<_, Error>((8, false))).await?, Outcome::AlreadyDone((7, true)));
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "serde")]
    pub async fn run_json<T, E>(&self, work: impl AsyncFnOnce(&Guard) -> Result<T, E>) -> Result<Outcome<T>, E>
    where
        T: serde::Serialize + serde::de::DeserializeOwned,
        E: From<Error>,
    {
        let json_error =
            |error: serde_json::Error| Error::invalid(format!("the result does not fit its type: {error}"));
        let mut own_value = None;
        let run = self.run(async |guard: &Guard| {
            let value = work(guard).await?;
            let bytes = serde_json::to_vec(&value).map_err(|error| E::from(json_error(error)))?;
            // A result that cannot be read back must not be remembered: every later caller would fail on it.
            serde_json::from_slice::<T>(&bytes).map_err(|error| E::from(json_error(error)))?;
            own_value = Some(value);
            Ok::<_, E>(bytes)
        });
        let outcome = run.await?;
        match (outcome, own_value) {
            (Outcome::Ran(_), Some(value)) => Ok(Outcome::Ran(value)),
            (outcome, _) => {
                outcome.try_map(|bytes| serde_json::from_slice(&bytes).map_err(json_error)).map_err(E::from)
            }
        }
    }

    async fn run_and_seal<V, E>(
        &self,
        entered: Entered,
        work: impl AsyncFnOnce(&Guard) -> Result<V, E>,
    ) -> Result<Outcome<Bytes>, E>
    where
        V: Into<Bytes>,
        E: From<Error>,
    {
        let guard = match entered {
            Entered::Held(guard) => guard,
            Entered::Sealed(value) => return Ok(Outcome::AlreadyDone(value)),
        };
        let value: Bytes = run_while_held(&guard, work).await??.into();
        guard.seal(value.clone(), self.keep).await?;
        Ok(Outcome::Ran(value))
    }

    fn demands(&self) -> Result<Demands> {
        Ok(Demand::exclusive(self.name.clone()?).into())
    }

    fn check_keep(&self) -> Result<()> {
        match (MIN_KEEP..=LONGEST_HOLD).contains(&self.keep) {
            true => Ok(()),
            false => Err(Error::invalid("a result is kept for 1 s to 366 days; a day if in doubt")),
        }
    }
}
