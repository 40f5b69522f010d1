//! Leader election: one leader among many candidates.

use std::fmt;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use futures::stream::{self, BoxStream, Stream, StreamExt};

use crate::claim::{Demand, Demands, Note};
use crate::client::{Entered, Guard};
use crate::clock::Moment;
use crate::error::{Error, LostWhy, Result};
use crate::name::Name;
use crate::store::{Change, Entry, Scope};

use super::requester::{LocalHandOff, Requester, options, run_while_held};

/// After this long without a push, an observer reads the queue: the store may have no pushes.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);
/// The pause before the next request to a store that did not answer, and before campaigning again after a very short leadership.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Leader election: one leader among all processes that campaign under a name. The other candidates wait in the queue; the next one
/// takes over when the leader steps down, or when its lease has ended after a crash.
///
/// ```
/// # use lockfast::Locks;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// let election = locks.election("scheduler").note("10.0.0.5:8080");
/// let leadership = election.campaign().await?;
/// let leader = election.leader().await?.unwrap();
/// assert_eq!(leader.note.text.as_deref(), Some("10.0.0.5:8080"));
/// assert_eq!(leader.fence, leadership.fence()?);
/// leadership.step_down().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Election {
    pub(super) requester: Requester,
    pub(super) name: Result<Name>,
    pub(super) on_elected: Option<Arc<dyn Fn(u64) + Send + Sync>>,
    pub(super) on_lost: Option<Arc<dyn Fn(LostWhy) + Send + Sync>>,
}

options!(Election);

/// Leadership: a [`Guard`], with its fence, its `check()` and its `lost()`. Dropping it steps down.
///
/// ```
/// # use lockfast::Locks;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// let leadership = locks.election("scheduler").campaign().await?;
/// leadership.check()?;
/// leadership.step_down().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "leadership ends as soon as this is dropped"]
pub struct Leadership(Guard);

impl Leadership {
    /// Releases the leadership, and waits for the answer. The next candidate leads.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future steps down all the same.
    pub async fn step_down(self) -> Result<()> {
        self.0.release().await
    }
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

/// The present leader.
///
/// ```
/// # use lockfast::Locks;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// let leadership = locks.election("scheduler").note("10.0.0.5:8080").campaign().await?;
/// let leader = locks.election("scheduler").leader().await?.unwrap();
/// println!("{} leads with fence {}", leader.note, leader.fence);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// What it says about itself: its [`note`](Election::note), usually its address, and the process it runs in.
    pub note: Arc<Note>,
    /// Its fencing token: higher than that of every leader before it.
    pub fence: u64,
    /// How long it has led.
    pub leads_for: Duration,
}

impl From<&Entry> for Leader {
    fn from(entry: &Entry) -> Self {
        Self { note: Arc::clone(&entry.note), fence: entry.tickets.first.0, leads_for: entry.since }
    }
}

impl Election {
    /// Sets a callback that gets the fence each time that [`campaign`](Self::campaign) or [`lead`](Self::lead) has won.
    pub fn on_elected(mut self, callback: impl Fn(u64) + Send + Sync + 'static) -> Self {
        self.on_elected = Some(Arc::new(callback));
        self
    }

    /// Sets a callback for each loss of leadership. It runs on the keeper's own thread, so on time even while everything else is
    /// blocked. It must return quickly.
    pub fn on_lost(mut self, callback: impl Fn(LostWhy) + Send + Sync + 'static) -> Self {
        self.on_lost = Some(Arc::new(callback));
        self
    }

    /// Waits in the queue until it leads.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future leaves the queue. If it had just been elected, the next candidate leads.
    pub async fn campaign(&self) -> Result<Leadership> {
        // Without local hand-off: the store shows each leader's own note.
        let demands = self.demands()?;
        match self.requester.enter(demands, None, LocalHandOff::Never).await? {
            Entered::Held(guard) => {
                if let (Some(callback), Ok(fence)) = (&self.on_elected, guard.fence()) {
                    callback(fence);
                }
                if let Some(callback) = self.on_lost.clone() {
                    guard.on_lost(move |why| callback(why));
                }
                Ok(Leadership(guard))
            }
            Entered::Sealed(_) => Err(Error::invalid("this name was used for something that runs once; use another")),
        }
    }

    /// Campaigns, runs `work` while it leads, and campaigns again when leadership is lost, until the work returns; then it
    /// steps down. The work is stopped (its future dropped) before another candidate can lead. Work that blocks its thread cannot be
    /// stopped: it has to call [`check`](Guard::check), or send the fence with its writes. A shutdown of the client is the one
    /// exception: it releases everything at once.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future drops the work and steps down.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let election = locks.election("scheduler");
    /// let leading = tokio::spawn(async move { election.lead(async move |leadership| leadership.fence()).await });
    /// assert!(leading.await.unwrap()?? > 0);
    /// # Ok(()) }
    /// ```
    pub async fn lead<T>(&self, mut work: impl AsyncFnMut(&Leadership) -> T) -> Result<T> {
        loop {
            let leadership = match self.campaign().await {
                Ok(leadership) => leadership,
                Err(error) if error.is_retryable() => {
                    self.pause(RETRY_AFTER).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let led_since = self.requester.client().clock.now();
            let outcome = run_while_held(&leadership, async |_: &Guard| work(&leadership).await).await;
            match outcome {
                Ok(value) => {
                    // The work is done; if the store does not answer, the keeper repeats the release.
                    let _ = leadership.step_down().await;
                    return Ok(value);
                }
                Err(Error::Lost { why: LostWhy::Shutdown, .. }) => return Err(Error::Closed("it was shut down")),
                // A very short `hold_at_most` must not cause campaigns without a pause.
                Err(Error::Lost { why: LostWhy::HeldAtMost, .. }) if self.has_led_briefly(led_since) => {
                    drop(leadership);
                    self.pause(RETRY_AFTER).await;
                }
                Err(_) => {}
            }
        }
    }

    /// The present leader, if there is one.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        let resource = self.requester.inspect_front(&self.demands()).await?;
        // A lingering entry has no owner: it does not lead.
        let is_leader = |entry: &&Entry| !entry.lingers;
        Ok(resource.and_then(|resource| resource.holders().find(is_leader).map(Leader::from)))
    }

    /// The leader, now and whenever it changes; `None` while there is none. While the store does not answer, nothing is yielded. Ends
    /// when this client is shut down.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # use futures::StreamExt;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let election = locks.election("scheduler");
    /// let mut leaders = election.observe()?;
    /// assert!(leaders.next().await.unwrap().is_none());
    /// let leadership = election.campaign().await?;
    /// assert_eq!(leaders.next().await.unwrap().unwrap().fence, leadership.fence()?);
    /// # Ok(()) }
    /// ```
    pub fn observe(&self) -> Result<impl Stream<Item = Option<Leader>> + Send + Unpin + use<>> {
        self.requester.client().check_usable()?;
        let name = self.name.clone()?;
        let scope = Scope::Queues(name.as_str().to_owned());
        let changes = self.requester.client().store.watch(scope.clone());
        let observer = Observer { election: self.clone(), name, scope, changes, last_yielded: None };
        let leaders = stream::unfold(observer, |mut observer| async move {
            let leader = observer.next().await?;
            Some((leader, observer))
        });
        Ok(leaders.boxed())
    }

    fn has_led_briefly(&self, led_since: Moment) -> bool {
        self.requester.client().clock.now().since(led_since) < RETRY_AFTER
    }

    async fn pause(&self, span: Duration) {
        let client = self.requester.client();
        client.sleep_until(client.clock.now() + span).await;
    }

    fn demands(&self) -> Result<Demands> {
        Ok(Demand::exclusive(self.name.clone()?).into())
    }
}

/// The state of the stream that [`Election::observe`] returns.
struct Observer {
    election: Election,
    name: Name,
    scope: Scope,
    changes: BoxStream<'static, Change>,
    /// The fence of the last yielded leader, `Some(None)` if there was no leader; `None` before the first item.
    last_yielded: Option<Option<u64>>,
}

impl Observer {
    /// The next leader that differs from the last one; `None` once the client is closed.
    async fn next(&mut self) -> Option<Option<Leader>> {
        // A closed client has no timers: waiting on one would never end, or never wait.
        while !self.election.requester.client().is_closed() {
            match self.election.leader().await {
                Ok(leader) => {
                    let fence = leader.as_ref().map(|leader| leader.fence);
                    if self.last_yielded.replace(fence) != Some(fence) {
                        return Some(leader);
                    }
                    self.wait_for_change().await;
                }
                // The last push may be about a change that this call could not read: read again.
                Err(_) => self.election.pause(RETRY_AFTER).await,
            }
        }
        None
    }

    /// Waits until the queue has changed, or may have changed without a push.
    async fn wait_for_change(&mut self) {
        let election = self.election.clone();
        let silence = pin!(election.pause(SILENCE_LIMIT));
        // `false` once the subscription has ended.
        let next_push = async {
            loop {
                match self.changes.next().await {
                    Some(Change::Resource(name)) if name != self.name => {}
                    Some(_) => return true,
                    None => return false,
                }
            }
        };
        if let Either::Left((false, silence)) = select(pin!(next_push), silence).await {
            silence.await;
            self.changes = self.election.requester.client().store.watch(self.scope.clone());
        }
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election").field("name", &self.name).finish_non_exhaustive()
    }
}
