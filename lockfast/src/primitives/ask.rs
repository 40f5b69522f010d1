//! What all faces share: a client, the options, and the three ways to ask.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};

use crate::claim::{Demands, Note};
use crate::client::{
    Attempt, Client, Entered, FRONT, Guard, Handle, MOST_REPEATS, Options, Retry, Span, Terms, Validity, acquire,
    attempt,
};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::store::{Names, Query, Resource};

#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) handle: Arc<Handle>,
    /// The client's own until one is changed: most who ask want nothing special.
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

    /// Waits in line, or by attempts if the options say so, for as long as `patience` lasts.
    pub(crate) async fn wait(&self, demands: Demands, patience: Option<Duration>) -> Result<Guard> {
        let entered = self.enter(demands, patience, true).await?;
        self.unsealed(entered)
    }

    /// The same, for those who know what to do with a seal.
    pub(crate) async fn enter(
        &self,
        demands: Demands,
        patience: Option<Duration>,
        may_hand_off: bool,
    ) -> Result<Entered> {
        let until = patience.map_or(Moment::NEVER, |patience| self.client().clock.now() + patience);
        // Without patience there is nothing to wait for: one attempt, which leaves no entry in the queue.
        let retry = if patience == Some(Duration::ZERO) { Some(Retry::ONCE) } else { self.options.retry };
        let terms = self.terms(demands, may_hand_off && retry.is_none())?;
        match retry {
            // In a box, so that it takes no room in the futures of the many who do without.
            Some(retry) => Box::pin(self.by_attempts(terms, retry, until)).await,
            None => acquire(self.client(), terms, until).await,
        }
    }

    /// Asks once.
    pub(crate) async fn try_now(&self, demands: Demands) -> Result<Option<Guard>> {
        match self.attempt(demands).await? {
            Attempt::Entered(entered) => self.unsealed(entered).map(Some),
            Attempt::Refused(_) => Ok(None),
        }
    }

    pub(crate) async fn attempt(&self, demands: Demands) -> Result<Attempt> {
        let terms = self.terms(demands, false)?;
        attempt(self.client(), terms, Moment::NEVER, MOST_REPEATS).await
    }

    async fn by_attempts(&self, terms: Arc<Terms>, retry: Retry, until: Moment) -> Result<Entered> {
        let client = self.client();
        let start = client.clock.now();
        // A caller that says how often to ask again is not second-guessed: its next attempt is the repeat.
        let repeats = if retry.count == Some(0) { MOST_REPEATS } else { 0 };
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
        // Only for what two tasks cannot have at once: readers, and small numbers of permits, do not wait for each other.
        let cannot_share = matches!(&*demands, [demand] if demand.weight > demand.capacity / 2);
        // And not for leases that nobody renews, since each holder is promised a whole one; nor for what lingers.
        // Nor for who says something about itself, since what the store shows is the first holder's.
        let unnamed = Arc::ptr_eq(&note, &client.note);
        let plain = options.hold_at_least.is_none() && options.renew_every().is_some() && unnamed;
        // Nor for a claim whose right to release may be given to somebody else.
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

    /// The resource with this name, as it is now, with its whole line; `None` when nobody is in it.
    pub(crate) async fn look(&self, demands: &Result<Demands>) -> Result<Option<Resource>> {
        self.look_at(demands, usize::MAX).await
    }

    /// The same with the front of its line only.
    pub(crate) async fn look_at_front(&self, demands: &Result<Demands>) -> Result<Option<Resource>> {
        self.look_at(demands, FRONT).await
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

/// A resource under the name that the user knows.
pub(crate) fn shown(client: &Client, mut resource: Resource) -> Resource {
    if let Ok(name) = crate::name::Name::new(client.shown(&resource.name)) {
        resource.name = name;
    }
    resource
}

/// Does `work` under the lock, and stops it when the lock is lost.
pub(crate) async fn while_held<T>(guard: &Guard, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
    let lost = pin!(guard.lost());
    let work = pin!(work(guard));
    match select(lost, work).await {
        Either::Left(_) => Err(guard.lost_error()),
        Either::Right((value, _)) => Ok(value),
    }
}

/// The same, and gives the lock back.
pub(crate) async fn hold_while<T>(guard: Guard, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
    let value = while_held(&guard, work).await?;
    match guard.release().await {
        Err(error @ Error::Lost { .. }) => Err(error),
        // The work was done under the lock. That the store did not answer now is the keeper's business.
        _ => Ok(value),
    }
}

/// The options, the same on every face.
macro_rules! options {
    ($face:ty) => {
        /// Options, the same for every kind of lock.
        impl $face {
            /// How long the lease lives without being renewed: the longest that others wait after this process has died.
            /// Three to five times what the work takes; 30 s if not said.
            pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
                self.ask.options_mut().ttl = ttl;
                self
            }

            /// How often the lease is renewed; a third of it if not said.
            pub fn renew_every(mut self, span: std::time::Duration) -> Self {
                self.ask.options_mut().renewal = crate::client::Renewal::Every(span);
                self
            }

            /// The lease is not renewed: the lock is lost when it ends, unless
            /// [extended](crate::Guard::extend). Each holder begins with a whole lease, less a tenth at most: a lock that was
            /// waited for is renewed once, as it is handed over, and tasks of one process do not pass it to each other.
            pub fn no_renewal(mut self) -> Self {
                self.ask.options_mut().renewal = crate::client::Renewal::Off;
                self
            }

            /// Asks again and again instead of waiting in line.
            pub fn retry(mut self, retry: crate::Retry) -> Self {
                self.ask.options_mut().retry = Some(retry);
                self
            }

            /// Stays locked at least this long, counted from when it was acquired, even if it is released sooner: for jobs
            /// that are quicker than the clocks of the servers are apart.
            pub fn hold_at_least(mut self, span: std::time::Duration) -> Self {
                self.ask.options_mut().hold_at_least = Some(span);
                self
            }

            /// Is lost after this long, renewed or not: for work that must not go on for ever.
            pub fn hold_at_most(mut self, span: std::time::Duration) -> Self {
                self.ask.options_mut().hold_at_most = Some(span);
                self
            }

            /// Shown to whoever asks who holds it, before the host's name.
            pub fn note(mut self, text: impl Into<String>) -> Self {
                self.ask.options_mut().text = Some(text.into());
                self
            }

            /// Shown to whoever looks at who holds it. Never put a secret into it.
            pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
                self.ask.options_mut().labels.push((key.into(), value.into()));
                self
            }

            /// The trace that the events of this acquisition belong to; a random one if not said.
            pub fn trace_id(mut self, trace: crate::client::TraceId) -> Self {
                self.ask.options_mut().trace = Some(trace);
                self
            }

            /// Whether tasks of this process may pass the lock to each other before others get it, for at most one
            /// short turn; they may if not said. Without it, the order of arrival is strict.
            pub fn local_handoff(mut self, wanted: bool) -> Self {
                self.ask.options_mut().local_handoff = wanted;
                self
            }
        }
    };
}
pub(crate) use options;

/// The option of those whose guard can become a token.
macro_rules! detachable {
    ($face:ty) => {
        impl $face {
            /// May outlive this process: its guard can become a [`Token`](crate::Token) for others to renew and give back.
            /// From then on the lock is judged by its lease alone, never by whether a process lives. Until then it waits and
            /// holds like any other, and ends with its process.
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
