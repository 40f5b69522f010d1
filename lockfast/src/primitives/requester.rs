//! What all primitives share: a client, the options, and the three ways to request a lock (wait, attempts, one attempt).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};

use crate::claim::{Demands, Note};
use crate::client::{
    Attempt, Client, Entered, Guard, Handle, MAX_ENTRIES_READ, MAX_REPEATS, Options, Retry, Span, Terms, Validity,
    acquire, attempt,
};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::store::{Names, Query, Resource};

/// A client and the options of its requests: sends the requests of one primitive.
#[derive(Clone, Debug)]
pub(crate) struct Requester {
    pub(crate) handle: Arc<Handle>,
    /// Shared with the client until an option is changed: most requests use the defaults.
    options: Arc<Options>,
}

/// Whether a task may hand the lock to the next task of its process without a round trip to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalHandOff {
    /// If the options and the demands permit it.
    IfPossible,
    /// Each holder is granted the lock by the store.
    Never,
}

impl Requester {
    pub(crate) fn new(handle: &Arc<Handle>) -> Self {
        Self { handle: Arc::clone(handle), options: Arc::clone(&handle.0.defaults) }
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.handle.0
    }

    pub(crate) fn options_mut(&mut self) -> &mut Options {
        Arc::make_mut(&mut self.options)
    }

    /// Waits in the queue, or makes attempts if the options say so, for as long as `patience` lasts.
    pub(crate) async fn acquire(&self, demands: Demands, patience: Option<Duration>) -> Result<Guard> {
        let entered = self.enter(demands, patience, LocalHandOff::IfPossible).await?;
        self.refuse_sealed(entered)
    }

    /// As [`acquire`](Self::acquire), but a sealed name is an outcome instead of an error.
    pub(crate) async fn enter(
        &self,
        demands: Demands,
        patience: Option<Duration>,
        hand_off: LocalHandOff,
    ) -> Result<Entered> {
        let until = patience.map_or(Moment::NEVER, |patience| self.client().clock.now() + patience);
        // Zero patience: one attempt, which leaves no entry in the queue.
        let retry = if patience == Some(Duration::ZERO) { Some(Retry::ONCE) } else { self.options.retry };
        // Repeated attempts do not wait in the queue, so there is no local waiter to hand off to.
        let hand_off = if retry.is_none() { hand_off } else { LocalHandOff::Never };
        let terms = self.terms(demands, hand_off)?;
        match retry {
            // Boxed: the futures of requests without a retry stay small.
            Some(retry) => Box::pin(self.repeat_attempts(terms, retry, until)).await,
            None => acquire(self.client(), terms, until).await,
        }
    }

    /// One attempt; `None` if it was refused.
    pub(crate) async fn try_acquire(&self, demands: Demands) -> Result<Option<Guard>> {
        match self.attempt(demands).await? {
            Attempt::Entered(entered) => self.refuse_sealed(entered).map(Some),
            Attempt::Refused(_) => Ok(None),
        }
    }

    /// One attempt, for callers that handle a seal or a refusal.
    pub(crate) async fn attempt(&self, demands: Demands) -> Result<Attempt> {
        let terms = self.terms(demands, LocalHandOff::Never)?;
        attempt(self.client(), terms, Moment::NEVER, MAX_REPEATS).await
    }

    async fn repeat_attempts(&self, terms: Arc<Terms>, retry: Retry, until: Moment) -> Result<Entered> {
        let client = self.client();
        let start = client.clock.now();
        // Only a single attempt repeats a request without an answer. With several attempts, the next attempt is the repeat.
        let repeats = if retry.count == Some(0) { MAX_REPEATS } else { 0 };
        let mut pauses = retry.pauses();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let failure = match attempt(client, Arc::clone(&terms), until, repeats).await {
                Ok(Attempt::Entered(entered)) => return Ok(entered),
                Ok(Attempt::Refused(busy)) => {
                    // An attempt leaves no entry in the queue.
                    let position = None;
                    client.busy(&terms.demands, busy, position, client.clock.now().since(start), attempts)
                }
                Err(error) if error.is_retryable() => error,
                Err(error) => return Err(error),
            };
            let now = client.clock.now();
            match pauses.next() {
                Some(pause) if now + pause < until => client.sleep_until(now + pause).await,
                _ => return Err(failure),
            }
        }
    }

    fn terms(&self, demands: Demands, hand_off: LocalHandOff) -> Result<Arc<Terms>> {
        let (client, options) = (self.client(), &self.options);
        options.check(&client.guarantees)?;
        let note = match options.labels.is_empty() && options.text.is_none() {
            true => Arc::clone(&client.note),
            false => {
                let text = options.text.clone().or_else(|| client.note.text.clone());
                let labels = client.note.labels.iter().chain(&options.labels).cloned().collect();
                Arc::new(Note { text, labels, ..Note::clone(&client.note) })
            }
        };
        let hands_off = hand_off == LocalHandOff::IfPossible
            && options.local_handoff
            // Two tasks cannot hold this claim's demand at once. Readers, and small numbers of permits, do not wait for each other.
            && matches!(&*demands, [demand] if demand.weight > demand.capacity / 2)
            // Without renewal, each holder is promised a whole lease.
            && options.renew_every().is_some()
            // A linger belongs to one holder.
            && options.hold_at_least.is_none()
            // The store shows the note of the first holder, so all holders must have the same note.
            && Arc::ptr_eq(&note, &client.note)
            // The token of a detached claim lets another process release it.
            && !options.detached;
        Ok(Arc::new(Terms {
            demands,
            ttl: Span::of(options.ttl),
            renew_every: options.renew_every().map(Span::of),
            hold_at_least: options.hold_at_least.map(Span::of),
            hold_at_most: options.hold_at_most.map(Span::of),
            note,
            trace: options.trace.map_or_else(|| fastrand::u128(1..), |trace| trace.0).to_ne_bytes(),
            validity: Validity::new(),
            hands_off,
            detached: options.detached,
        }))
    }

    fn refuse_sealed(&self, entered: Entered) -> Result<Guard> {
        match entered {
            Entered::Held(guard) => Ok(guard),
            Entered::Sealed(_) => Err(Error::invalid(
                "this name was used for something that runs once, and it has run; use another name for a lock",
            )),
        }
    }

    /// The resource with this name, as it is now, with its whole queue; `None` if its queue is empty and it is not sealed.
    pub(crate) async fn inspect(&self, demands: &Result<Demands>) -> Result<Option<Resource>> {
        self.inspect_entries(demands, usize::MAX).await
    }

    /// As [`inspect`](Self::inspect), with only the front of the queue.
    pub(crate) async fn inspect_front(&self, demands: &Result<Demands>) -> Result<Option<Resource>> {
        self.inspect_entries(demands, MAX_ENTRIES_READ).await
    }

    async fn inspect_entries(&self, demands: &Result<Demands>, max_entries: usize) -> Result<Option<Resource>> {
        self.client().check_usable()?;
        let demands = demands.clone()?;
        let query = Query { names: Names::One(demands[0].name.clone()), after: None, limit: 1, entries: max_entries };
        let client = self.client();
        let page = client.inspect(&query).await.map_err(|error| client.explain(error, "looking at", &demands))?;
        Ok(page.resources.into_iter().next().map(|resource| without_prefix(self.client(), resource)))
    }
}

/// The resource under the name that the user wrote: without the client's prefix.
pub(crate) fn without_prefix(client: &Client, mut resource: Resource) -> Resource {
    if let Ok(name) = crate::name::Name::new(client.shown(&resource.name)) {
        resource.name = name;
    }
    resource
}

/// Runs `work` under the lock, and drops its future when the lock is lost.
pub(crate) async fn run_while_held<T>(guard: &Guard, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
    let lost = pin!(guard.lost());
    let work = pin!(work(guard));
    match select(lost, work).await {
        Either::Left(_) => Err(guard.lost_error()),
        Either::Right((value, _)) => Ok(value),
    }
}

/// Runs `work` under the lock like [`run_while_held`], then releases the lock.
pub(crate) async fn run_and_release<T>(guard: Guard, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
    let value = run_while_held(&guard, work).await?;
    match guard.release().await {
        Err(error @ Error::Lost { .. }) => Err(error),
        // The work was done under the lock. If the store does not answer now, the keeper repeats the release.
        _ => Ok(value),
    }
}

/// Defines the methods that set options: the same on every primitive.
macro_rules! options {
    ($primitive:ty) => {
        /// Options, the same for every kind of lock.
        impl $primitive {
            /// The lease (TTL): how long the lock lives without a renewal, and so how long waiters wait at most after this process has
            /// died. Choose three to five times what the work takes; the default is 30 s.
            pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
                self.requester.options_mut().ttl = ttl;
                self
            }

            /// How often the lease is renewed; by default every third of it.
            pub fn renew_every(mut self, span: std::time::Duration) -> Self {
                self.requester.options_mut().renewal = crate::client::Renewal::Every(span);
                self
            }

            /// Turns renewal off: the lock is lost when its lease ends, unless it is
            /// [extended](crate::Guard::extend). Each holder begins with at least nine tenths of a lease: a lock that was waited for is
            /// renewed once at the hand-off, and there is no local hand-off.
            pub fn no_renewal(mut self) -> Self {
                self.requester.options_mut().renewal = crate::client::Renewal::Off;
                self
            }

            /// Makes repeated attempts instead of waiting in the queue.
            pub fn retry(mut self, retry: crate::Retry) -> Self {
                self.requester.options_mut().retry = Some(retry);
                self
            }

            /// Keeps the name locked at least this long, counted from when it was acquired, even if it is released sooner: for jobs
            /// that take less time than the clocks of the servers differ by.
            pub fn hold_at_least(mut self, span: std::time::Duration) -> Self {
                self.requester.options_mut().hold_at_least = Some(span);
                self
            }

            /// Limits the hold: the lock is lost after this long, renewed or not. For work that must not run for ever.
            pub fn hold_at_most(mut self, span: std::time::Duration) -> Self {
                self.requester.options_mut().hold_at_most = Some(span);
                self
            }

            /// A text that errors and listings show for this holder, before the host's name. Never put a secret into it.
            pub fn note(mut self, text: impl Into<String>) -> Self {
                self.requester.options_mut().text = Some(text.into());
                self
            }

            /// A pair of key and value that listings show for this holder. Never put a secret into it.
            pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
                self.requester.options_mut().labels.push((key.into(), value.into()));
                self
            }

            /// The trace that the events of this acquisition belong to; by default a random one.
            pub fn trace_id(mut self, trace: crate::client::TraceId) -> Self {
                self.requester.options_mut().trace = Some(trace);
                self
            }

            /// Whether tasks of this process may hand the lock to each other without a round trip to the store, before waiters of other
            /// processes get it: at most 64 times in a row, and for at most 10 ms. On by default. Without it, the order of arrival is
            /// strict.
            pub fn local_handoff(mut self, enabled: bool) -> Self {
                self.requester.options_mut().local_handoff = enabled;
                self
            }
        }
    };
}
pub(crate) use options;

/// Defines the option of the primitives whose guard can become a token.
macro_rules! detachable {
    ($primitive:ty) => {
        impl $primitive {
            /// Allows the lock to outlive this process: its guard can become a [`Token`](crate::Token), which any process can renew and
            /// release. From then on only the lease decides whether the lock is held. Until then it waits and holds like any other lock,
            /// and ends with its process.
            ///
            /// ```
            /// # use lockfast::Locks;
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
            /// # let locks = Locks::in_memory();
            /// let token = locks.mutex("deploy").detached().lock().await?.into_token().await?;
            /// locks.renew_token(&token, token.ttl()).await?;
            /// locks.release_token(&token).await?;
            /// # Ok(()) }
            /// ```
            pub fn detached(mut self) -> Self {
                self.requester.options_mut().detached = true;
                self
            }
        }
    };
}
pub(crate) use detachable;
