//! The store inside this process: a [`Table`] behind a mutex.
//!
//! Every verb reads the clock once, under the mutex, so that time never goes back for the table. The pushes of a verb are added to
//! inboxes under the mutex too, in order; subscribers are woken once the mutex is free. No task runs in the background: an expired
//! lease is noticed by the next verb, at the latest by a waiter's recheck.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::claim::{Claim, Ticket};
use crate::clock::{Clock, Moment};
use crate::error::Result;
use crate::store::{
    Admission, Busy, Change, Counters, Guarantees, Lease, Leaving, Page, Query, Report, Scope, Standing, Store,
};
use crate::table::Table;

use super::subscribers::{Inbox, Subscribers};

/// Locks among the tasks and threads of one process; they end with the process. For tests, for programs that run once, and
/// for trying things out: with a [`ManualClock`](crate::ManualClock) a test decides when leases end.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use lockfast::{store::*, *};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let manual_clock = ManualClock::new();
/// let store = Memory::with_clock(manual_clock.clock());
/// let claim = || -> Result<_> {
///     Ok(Arc::new(Claim {
///         id: ClaimId::random()?, client: ClientId(1), ttl: Duration::from_secs(30), block: 1, floor: Ticket(0),
///         demands: Demand::exclusive(Name::new("account:123")?).into(), detached: false, note: Arc::default(),
///     }))
/// };
/// assert!(matches!(store.acquire(&claim()?, Busy::Refuse).await?, Admission::Held(_)));
/// assert!(matches!(store.acquire(&claim()?, Busy::Refuse).await?, Admission::Refused(_)));
///
/// manual_clock.advance(Duration::from_secs(30)); // the lease was not renewed
/// assert!(matches!(store.acquire(&claim()?, Busy::Refuse).await?, Admission::Held(_)));
/// # Ok(())
/// # }
/// ```
pub struct Memory {
    clock: Clock,
    inner: Mutex<Inner>,
}

struct Inner {
    table: Table,
    /// The sums of the counters that all clients have reported.
    fleet: Counters,
    subscribers: Subscribers,
}

/// The stores of [`Memory::named`] that are still in use.
static NAMED: Mutex<BTreeMap<String, Weak<Memory>>> = Mutex::new(BTreeMap::new());

impl Memory {
    /// An empty store on the machine's clock. No other store shares its locks.
    pub fn new() -> Self {
        Self::with_clock(Clock::boot())
    }

    /// An empty store whose leases are judged by `clock`.
    pub fn with_clock(clock: Clock) -> Self {
        let wall = clock.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = Ticket(u64::try_from(wall.as_micros()).unwrap_or(u64::MAX / 2));
        let (fleet, subscribers) = Default::default();
        Self { clock, inner: Mutex::new(Inner { table: Table::new(seed), fleet, subscribers }) }
    }

    /// The store of this name in this process. All calls with the same name return the same store, as long as it is in use.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use lockfast::Memory;
    /// let jobs = Memory::named("jobs");
    /// assert!(Arc::ptr_eq(&jobs, &Memory::named("jobs")));
    /// assert!(!Arc::ptr_eq(&jobs, &Memory::named("mail")));
    /// ```
    pub fn named(name: &str) -> Arc<Self> {
        let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = named.get(name).and_then(Weak::upgrade) {
            return store;
        }
        named.retain(|_, store| store.strong_count() > 0);
        let store = Arc::new(Self::new());
        named.insert(name.to_owned(), Arc::downgrade(&store));
        store
    }

    /// Runs one verb under the mutex, at one moment, and wakes the subscribers that it has pushes for.
    fn run_verb<T>(&self, act: impl FnOnce(&mut Inner, Moment) -> T) -> T {
        let mut inner = self.inner();
        let reply = act(&mut inner, self.clock.now());
        let to_wake = inner.enqueue_pushes();
        drop(inner);
        to_wake.iter().for_each(|inbox| inbox.wake());
        reply
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Adds the pushes of a verb to inboxes, and returns the inboxes to wake. Without pushes it does not allocate.
    fn enqueue_pushes(&mut self) -> Vec<Arc<Inbox>> {
        let mut to_wake = Vec::new();
        for (client, change) in self.table.take_pushes() {
            self.subscribers.push_to_client(client, &change, &mut to_wake);
        }
        for name in self.table.take_touched() {
            self.subscribers.push_queue_change(&name, &mut to_wake);
        }
        if !self.subscribers.has_queue_watchers() {
            self.table.record_touched(false);
        }
        to_wake
    }
}

#[async_trait]
impl Store for Memory {
    fn guarantees(&self) -> Guarantees {
        Guarantees::in_process()
    }

    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission> {
        self.run_verb(|inner, now| inner.table.acquire(claim, busy, now))
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        Ok(self.run_verb(|inner, now| leases.iter().map(|lease| inner.table.renew(lease, now)).collect()))
    }

    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        Ok(self.run_verb(|inner, now| leaving.iter().map(|leaving| inner.table.release(leaving, now)).collect()))
    }

    async fn inspect(&self, query: &Query) -> Result<Page> {
        Ok(self.run_verb(|inner, now| Page { fleet: inner.fleet, ..inner.table.inspect(query, now) }))
    }

    async fn record(&self, report: &Report) -> Result<()> {
        // `inspect` reads the table itself, so there is no listing to keep up to date.
        self.run_verb(|inner, _| {
            let (fleet, increase) = (&mut inner.fleet, &report.counters);
            fleet.acquired += increase.acquired;
            fleet.released += increase.released;
            fleet.contended += increase.contended;
            fleet.lost += increase.lost;
        });
        Ok(())
    }

    fn watch(&self, scope: Scope) -> BoxStream<'static, Change> {
        let mut inner = self.inner();
        let pushes = inner.subscribers.subscribe(scope);
        if inner.subscribers.has_queue_watchers() {
            inner.table.record_touched(true);
        }
        pushes.boxed()
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner).subscribers.close();
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("kept", &self.inner().table.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::claim::{ClaimId, ClientId, Demand};
    use crate::clock::ManualClock;
    use crate::name::Name;

    fn claim(client: u64) -> Arc<Claim> {
        Arc::new(Claim {
            id: ClaimId::random().unwrap(),
            client: ClientId(client),
            demands: Demand::exclusive(Name::new("a").unwrap()).into(),
            ttl: Duration::from_secs(30),
            block: 1,
            floor: Ticket(0),
            detached: false,
            note: Arc::default(),
        })
    }

    #[tokio::test]
    async fn tickets_begin_at_the_time_of_day() {
        let clock = ManualClock::new().clock();
        let store = Memory::with_clock(clock.clone());
        let Admission::Held(tickets) = store.acquire(&claim(1), Busy::Wait).await.unwrap() else {
            panic!("the name is free")
        };
        let wall = clock.wall().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
        assert_eq!(tickets.first, Ticket(wall + 1));
    }

    #[tokio::test]
    async fn dropped_streams_are_forgotten() {
        let store = Memory::new();
        for client in 0..100 {
            drop((store.watch(Scope::Client(ClientId(client))), store.watch(Scope::Queues(String::new()))));
        }
        let _kept = store.watch(Scope::Client(ClientId(7)));
        assert_eq!(store.inner().subscribers.counts(), (1, 0));
    }

    #[tokio::test]
    async fn queue_changes_are_noted_only_while_watched() {
        let store = Memory::new();
        let mut queues = store.watch(Scope::Queues("a".to_owned()));
        store.acquire(&claim(1), Busy::Wait).await.unwrap();
        assert_eq!(queues.next().await, Some(Change::Resource(Name::new("a").unwrap())));
        drop(queues);
        store.acquire(&claim(2), Busy::Wait).await.unwrap();
        store.acquire(&claim(3), Busy::Wait).await.unwrap();
        assert!(!store.inner().subscribers.has_queue_watchers() && store.inner().table.take_touched().is_empty());
    }

    #[tokio::test]
    async fn a_stream_ends_with_its_store_after_its_last_push() {
        let store = Memory::new();
        let mut pushes = store.watch(Scope::Client(ClientId(2)));
        let (holder, waiter) = (claim(1), claim(2));
        store.acquire(&holder, Busy::Wait).await.unwrap();
        store.acquire(&waiter, Busy::Wait).await.unwrap();
        store.release(&[Leaving::Done(holder)]).await.unwrap();
        drop(store);
        assert!(matches!(pushes.next().await, Some(Change::Held(owner, _)) if owner == waiter.id.hash()));
        assert_eq!(pushes.next().await, None);
    }

    #[tokio::test]
    async fn a_stream_on_another_thread_is_woken() {
        let store = Arc::new(Memory::new());
        let mut pushes = store.watch(Scope::Client(ClientId(2)));
        let (holder, waiter) = (claim(1), claim(2));
        store.acquire(&holder, Busy::Wait).await.unwrap();
        store.acquire(&waiter, Busy::Wait).await.unwrap();
        let next = tokio::spawn(async move { pushes.next().await });
        tokio::task::yield_now().await;
        store.release(&[Leaving::Done(holder)]).await.unwrap();
        assert!(matches!(next.await.unwrap(), Some(Change::Held(..))));
    }
}
