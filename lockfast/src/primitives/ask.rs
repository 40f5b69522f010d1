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

#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) handle: Arc<Handle>,
    /// Shared with the client until an option is changed: most requests use the defaults.
    options: Arc<Options>,
}

impl Ask {
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
    pub(crate) async fn wait(&self, demands: Demands, patience: Option<Duration>) -> Result<Guard> {
        let entered = self.enter(demands, patience, true).await?;
        self.unsealed(entered)
    }

    /// The same, for callers that handle a seal.
    pub(crate) async fn enter(
        &self,
        demands: Demands,
        patience: Option<Duration>,
        may_hand_off: bool,
    ) -> Result<Entered> {
        let until = patience.map_or(Moment::NEVER, |patience| self.client().clock.now() + patience);
        // Zero patience: one attempt, which leaves no entry in the queue.
        let retry = if patience == Some(Duration::ZERO) { Some(Retry::ONCE) } else { self.options.retry };
        let terms = self.terms(demands, may_hand_off && retry.is_none())?;
        match retry {
            // Boxed, so that it takes no room in the futures of requests without it.
            Some(retry) => Box::pin(self.by_attempts(terms, retry, until)).await,
            None => acquire(self.client(), terms, until).await,
        }
    }

    /// One attempt.
    pub(crate) async fn try_now(&self, demands: Demands) -> Result<Option<Guard>> {
        match self.attempt(demands).await? {
            Attempt::Entered(entered) => self.unsealed(entered).map(Some),
            Attempt::Refused(_) => Ok(None),
        }
    }

    pub(crate) async fn attempt(&self, demands: Demands) -> Result<Attempt> {
        let terms = self.terms(demands, false)?;
        attempt(self.client(), terms, Moment::NEVER, MAX_REPEATS).await
    }

    async fn by_attempts(&self, terms: Arc<Terms>, retry: Retry, until: Moment) -> Result<Entered> {
        let client = self.client();
        let start = client.clock.now();
        // If the caller set a number of attempts, the next attempt is the repeat: no further ones are added.
        let repeats = if retry.count == Some(0) { MAX_REPEATS } else { 0 };
        let mut pauses = retry.pauses();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let not_yet = match attempt(client, Arc::clone(&terms), until, repeats).await {
                Ok(Attempt::Entered(entered)) => return Ok(entered),
                Ok(Attempt::Refused(busy)) => {
                    client.busy(&terms.demands, busy, None, client.clock.now().since(start), attempts)
                }
                Err(error) if error.is_retryable() => error,
                Err(error) => return Err(error),
            };
            let now = client.clock.now();
            match pauses.next() {
                Some(pause) if now + pause < until => client.sleep_until(now + pause).await,
                _ => return Err(not_yet),
            }
        }
    }

    fn terms(&self, demands: Demands, may_hand_off: bool) -> Result<Arc<Terms>> {
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
        // Local hand-off is only for claims that two tasks cannot hold at once: readers, and small numbers of permits, do not wait
        // for each other.
        let cannot_share = matches!(&*demands, [demand] if demand.weight > demand.capacity / 2);
        // Not without renewal, since each holder is promised a whole lease; not with a linger; and not with a note of its own, since
        // the store shows the note of the first holder.
        let unnamed = Arc::ptr_eq(&note, &client.note);
        let plain = options.hold_at_least.is_none() && options.renew_every().is_some() && unnamed;
        // Not for a detached claim, whose token may let another process release it.
        let hands_off = may_hand_off && options.local_handoff && cannot_share && plain && !options.detached;
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

    fn unsealed(&self, entered: Entered) -> Result<Guard> {
        match entered {
            Entered::Held(guard) => Ok(guard),
            Entered::Sealed(_) => Err(Error::invalid(
                "this name was used for something that runs once, and it has run; use another name for a lock",
            )),
        }
    }

    /// The resource with this name, as it is now, with its whole queue; `None` if its queue is empty and it is not sealed.
    pub(crate) async fn look(&self, demands: &Result<Demands>) -> Result<Option<Resource>> {
        self.look_at(demands, usize::MAX).await
    }

    /// The same with the front of its queue only.
    pub(crate) async fn look_at_front(&self, demands: &Result<Demands>) -> Result<Option<Resource>> {
        self.look_at(demands, MAX_ENTRIES_READ).await
    }

    async fn look_at(&self, demands: &Result<Demands>, entries: usize) -> Result<Option<Resource>> {
        self.client().check_usable()?;
        let demands = demands.clone()?;
        let query = Query { names: Names::One(demands[0].name.clone()), after: None, limit: 1, entries };
        let client = self.client();
        let page = client.inspect(&query).await.map_err(|error| client.explain(error, "looking at", &demands))?;
        Ok(page.resources.into_iter().next().map(|resource| shown(self.client(), resource)))
    }
}

/// A resource under the name that the user wrote.
pub(crate) fn shown(client: &Client, mut resource: Resource) -> Resource {
    if let Ok(name) = crate::name::Name::new(client.shown(&resource.name)) {
        resource.name = name;
    }
    resource
}

/// Runs `work` under the lock, and drops its future when the lock is lost.
pub(crate) async fn while_held<T>(guard: &Guard, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
    let lost = pin!(guard.lost());
    let work = pin!(work(guard));
    match select(lost, work).await {
        Either::Left(_) => Err(guard.lost_error()),
        Either::Right((value, _)) => Ok(value),
    }
}

/// The same, and releases the lock.
pub(crate) async fn hold_while<T>(guard: Guard, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
    let value = while_held(&guard, work).await?;
    match guard.release().await {
        Err(error @ Error::Lost { .. }) => Err(error),
        // The work was done under the lock. If the store does not answer now, the keeper repeats the release.
        _ => Ok(value),
    }
}

/// The options, the same on every primitive.
macro_rules! options {
    ($primitive:ty) => {
        /// Options, the same for every kind of lock.
        impl $primitive {
            /// The lease (TTL): how long the lock lives without a renewal, and so how long waiters wait at most after this process has
            /// died. Choose three to five times what the work takes; the default is 30 s.
            pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
                self.ask.options_mut().ttl = ttl;
                self
            }

            /// How often the lease is renewed; by default every third of it.
            pub fn renew_every(mut self, span: std::time::Duration) -> Self {
                self.ask.options_mut().renewal = crate::client::Renewal::Every(span);
                self
            }

            /// Turns renewal off: the lock is lost when its lease ends, unless it is
            /// [extended](crate::Guard::extend). Each holder begins with at least nine tenths of a lease: a lock that was waited for is
            /// renewed once at the hand-off, and there is no local hand-off.
            pub fn no_renewal(mut self) -> Self {
                self.ask.options_mut().renewal = crate::client::Renewal::Off;
                self
            }

            /// Makes repeated attempts instead of waiting in the queue.
            pub fn retry(mut self, retry: crate::Retry) -> Self {
                self.ask.options_mut().retry = Some(retry);
                self
            }

            /// Keeps the name locked at least this long, counted from when it was acquired, even if it is released sooner: for jobs
            /// that take less time than the clocks of the servers differ by.
            pub fn hold_at_least(mut self, span: std::time::Duration) -> Self {
                self.ask.options_mut().hold_at_least = Some(span);
                self
            }

            /// Limits the hold: the lock is lost after this long, renewed or not. For work that must not run for ever.
            pub fn hold_at_most(mut self, span: std::time::Duration) -> Self {
                self.ask.options_mut().hold_at_most = Some(span);
                self
            }

            /// A text that errors and listings show for this holder, before the host's name. Never put a secret into it.
            pub fn note(mut self, text: impl Into<String>) -> Self {
                self.ask.options_mut().text = Some(text.into());
                self
            }

            /// A pair of key and value that listings show for this holder. Never put a secret into it.
            pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
                self.ask.options_mut().labels.push((key.into(), value.into()));
                self
            }

            /// The trace that the events of this acquisition belong to; by default a random one.
            pub fn trace_id(mut self, trace: crate::client::TraceId) -> Self {
                self.ask.options_mut().trace = Some(trace);
                self
            }

            /// Whether tasks of this process may hand the lock to each other without a round trip to the store, before waiters of other
            /// processes get it: at most 64 times in a row, and for at most 10 ms. On by default. Without it, the order of arrival is
            /// strict.
            pub fn local_handoff(mut self, wanted: bool) -> Self {
                self.ask.options_mut().local_handoff = wanted;
                self
            }
        }
    };
}
pub(crate) use options;

/// The option of the primitives whose guard can become a token.
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
                self.ask.options_mut().detached = true;
                self
            }
        }
    };
}
pub(crate) use detachable;
