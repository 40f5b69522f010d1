//! The client: makes all primitives, lists queues, breaks locks, shuts down.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use crate::claim::{Demand, Demands, Ticket};
use crate::client::{Client, Events, Handle, Stats};
use crate::error::Result;
use crate::store::{Counters, Guarantees, Names, Query, Resource, Store};

use super::once::DEFAULT_KEEP;
use super::requester::{Requester, without_prefix};
use super::{Builder, Cron, Election, Multi, Mutex, Once, RwLock, Semaphore};

/// How many resources one page of a listing has.
const PAGE_SIZE: usize = 1000;

/// A client of one store. Cheap to clone; all clones are one client, with one keeper (watchdog) thread.
///
/// ```
/// # use lockfast::Locks;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// let locks = Locks::connect("memory:").await?;
/// let guard = locks.mutex("account:123").lock().await?;
/// // .. of all tasks of all processes, only one at a time is here ..
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Locks {
    handle: Arc<Handle>,
}

impl Locks {
    /// A client of this store, with default settings. See [`Store`].
    ///
    /// ```
    /// # use lockfast::{Locks, Memory};
    /// # use std::sync::Arc;
    /// let locks = Locks::new(Arc::new(Memory::new()))?;
    /// # Ok::<(), lockfast::Error>(())
    /// ```
    pub fn new(store: Arc<dyn Store>) -> Result<Self> {
        Self::builder().build(store)
    }

    /// Sets the defaults for all locks of a client.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn from_handle(handle: Handle) -> Self {
        Self { handle: Arc::new(handle) }
    }

    /// Exclusive access to one name.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let guard = locks.mutex("account:123").lock().await?;
    /// # Ok(()) }
    /// ```
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        let name = self.client().name(name.as_ref());
        Mutex { requester: self.requester(), demands: name.map(|name| Demand::exclusive(name).into()) }
    }

    /// Many readers or one writer of one name.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let guard = locks.rwlock("catalog").read().await?;
    /// # Ok(()) }
    /// ```
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock { requester: self.requester(), name: self.client().name(name.as_ref()) }
    }

    /// At most `permits` permits held at once. All clients have to name the same number.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let guard = locks.semaphore("external-api", 5).acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore { requester: self.requester(), name: self.client().name(name.as_ref()), permits }
    }

    /// Exclusive access to several names, all or nothing.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let guard = locks.multi(["account:1", "account:2"]).lock().await?;
    /// # Ok(()) }
    /// ```
    pub fn multi<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Multi {
        let demand = |name: N| self.client().name(name.as_ref()).map(Demand::exclusive);
        let demands: Result<Vec<_>> = names.into_iter().map(demand).collect();
        let to_one_claim = |demands: Vec<Demand>| {
            Demands::of(demands.clone()).map_err(|error| self.client().in_users_words(error, &demands))
        };
        Multi { requester: self.requester(), demands: demands.and_then(to_one_claim) }
    }

    /// Work that is done once per name, with its result remembered for a day, or for as long as [`keep`](Once::keep) says.
    ///
    /// ```
    /// # use lockfast::{Error, Locks};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let outcome = locks.once("webhook:42").run(async |_| Ok::<_, Error>("paid")).await?;
    /// # Ok(()) }
    /// ```
    pub fn once(&self, name: impl AsRef<str>) -> Once {
        Once { requester: self.requester(), name: self.client().name(name.as_ref()), keep: DEFAULT_KEEP }
    }

    /// A job that every server starts, and one of them runs.
    ///
    /// ```
    /// # use lockfast::{Error, Locks};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// locks.cron("daily-report").run_for("2026-11-15", async |_| Ok::<_, Error>(())).await?;
    /// # Ok(()) }
    /// ```
    pub fn cron(&self, name: impl Into<String>) -> Cron {
        Cron::new(self.clone(), name.into())
    }

    /// One leader among all candidates under this name.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let leadership = locks.election("scheduler").campaign().await?;
    /// # Ok(()) }
    /// ```
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election {
            requester: self.requester(),
            name: self.client().name(name.as_ref()),
            on_elected: None,
            on_lost: None,
        }
    }

    /// The queues of all names that begin with `beginning`, in name order: holders and waiters.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let guard = locks.mutex("account:123").lock().await?;
    /// let accounts = locks.inspect("account:").await?;
    /// assert_eq!(accounts[0].name.as_str(), "account:123");
    /// assert_eq!(accounts[0].holders().count(), 1);
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self, beginning: &str) -> Result<Vec<Resource>> {
        let client = self.client();
        client.check_usable()?;
        let names = Names::Beginning(format!("{}{beginning}", client.prefix));
        let mut query = Query { names, after: None, limit: PAGE_SIZE, entries: usize::MAX };
        let mut resources = Vec::new();
        let explain = |error| client.explain_as(error, || format!("listing {beginning:?}"), iter::empty());
        loop {
            let page = client.inspect(&query).await.map_err(explain)?;
            resources.extend(page.resources.into_iter().map(|resource| without_prefix(client, resource)));
            match page.next {
                None => return Ok(resources),
                next => query.after = next,
            }
        }
    }

    /// This client's own counters, and how long it waited and held.
    pub fn stats(&self) -> Stats {
        self.client().stats()
    }

    /// The sum of the counters of all clients of the store. The counters of this client are up to date, those of other clients up
    /// to a second old.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// locks.mutex("account:123").lock().await?.release().await?;
    /// assert_eq!(locks.fleet_stats().await?.acquired, 1);
    /// # Ok(()) }
    /// ```
    pub async fn fleet_stats(&self) -> Result<Counters> {
        let client = self.client();
        client.report_now().await?;
        let names = Names::Beginning(client.prefix.clone());
        let page = client.inspect(&Query { names, after: None, limit: 1, entries: 1 }).await;
        let explain = |error| client.explain_as(error, || "reading the counters".to_owned(), iter::empty());
        Ok(page.map_err(explain)?.fleet)
    }

    /// The events of this client's locks from now on.
    pub fn events(&self) -> Events {
        self.client().events.listen()
    }

    /// The promises of the store.
    pub fn guarantees(&self) -> &Guarantees {
        &self.client().guarantees
    }

    /// Breaks the claim on `name` that has this fencing token, as an operator. A holder is notified that its lock is lost, and the
    /// lock passes to the next waiter once the holder has left or its lease has ended. `false` if there is no such claim any more. If
    /// the answer to a first request was lost, the first request may have broken the claim.
    ///
    /// ```
    /// # use lockfast::{Locks, LostWhy};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let guard = locks.mutex("report").lock().await?;
    /// assert!(locks.break_lock("report", guard.fence()?).await?);
    /// assert_eq!(guard.lost().await, LostWhy::Broken);
    /// # Ok(()) }
    /// ```
    pub async fn break_lock(&self, name: impl AsRef<str>, fence: u64) -> Result<bool> {
        let at_once = false;
        self.end_claim(name.as_ref(), fence, at_once).await
    }

    /// As [`break_lock`](Self::break_lock), but the lock passes to the next waiter at once, whether its holder has stopped or not. For a
    /// moment both may be at work: use the fencing token.
    pub async fn break_lock_now(&self, name: impl AsRef<str>, fence: u64) -> Result<bool> {
        let at_once = true;
        self.end_claim(name.as_ref(), fence, at_once).await
    }

    async fn end_claim(&self, name: &str, fence: u64, at_once: bool) -> Result<bool> {
        self.client().check_usable()?;
        let name = self.client().name(name)?;
        self.client().break_claim(name, Ticket(fence), at_once).await
    }

    /// Ends this client: waiters fail as [`Closed`](crate::Error::Closed), held locks are lost and released, and new requests are
    /// refused. Returns once the store has answered all releases, or fails after `timeout`.
    ///
    /// ```
    /// # use lockfast::{Error, Locks, LostWhy};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let guard = locks.mutex("account:123").lock().await?;
    /// locks.shutdown(Duration::from_secs(5)).await?;
    /// assert_eq!(guard.lost().await, LostWhy::Shutdown);
    /// assert!(matches!(locks.mutex("account:123").lock().await, Err(Error::Closed(_))));
    /// # Ok(()) }
    /// ```
    pub async fn shutdown(&self, timeout: Duration) -> Result<()> {
        self.client().shutdown(timeout).await
    }

    pub(crate) fn client(&self) -> &Client {
        &self.handle.0
    }

    pub(super) fn requester(&self) -> Requester {
        Requester::new(&self.handle)
    }
}
