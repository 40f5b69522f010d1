//! A store around a store that behaves like a faulty network: it delays calls, repeats them, loses replies, and runs
//! calls that were given up. The code above it must be as safe as without it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use tokio::runtime::Handle;

use crate::claim::Claim;
use crate::error::{Error, Result};
use crate::store::{Admission, Busy, Change, Guarantees, Lease, Leaving, Page, Query, Report, Scope, Standing, Store};

/// Which faults occur, and how often: each chance is between 0 (never) and 1 (always).
///
/// ```
/// # use lockfast::conformance::Faults;
/// let only_slow = Faults { delayed: 1.0, ..Faults::NONE };
/// # let _ = only_slow;
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// The chance that a verb waits before it runs.
    pub delayed: f64,
    /// The longest delay of a delayed or late verb.
    pub delay: Duration,
    /// The chance that a verb runs, and its reply is lost.
    pub unanswered: f64,
    /// The chance that a verb is reported lost at once, and still runs after a delay.
    pub late: f64,
    /// The chance that a verb runs twice; either reply is returned.
    pub repeated: f64,
    /// The chance that a push is lost. [`Change::Resync`] follows, as the contract demands.
    pub unpushed: f64,
}

impl Faults {
    /// No faults. A dropped future still runs to its end.
    pub const NONE: Self = Self {
        delayed: 0.0,
        delay: Duration::from_millis(20),
        unanswered: 0.0,
        late: 0.0,
        repeated: 0.0,
        unpushed: 0.0,
    };

    /// A fault in about every third verb.
    pub const BAD_DAY: Self =
        Self { delayed: 0.2, unanswered: 0.05, late: 0.05, repeated: 0.1, unpushed: 0.1, ..Self::NONE };
}

/// A store that passes every verb on to another, with [`Faults`]. The same seed makes the same choices.
///
/// Verbs run in tasks of their own: a verb whose future was dropped still runs, as it would on a server.
///
/// ```
/// # use std::sync::Arc;
/// # use lockfast::{Memory, conformance::{Chaos, Faults}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let store = Chaos::around(Arc::new(Memory::new()), Faults::BAD_DAY, 42);
/// # let _ = store;
/// # }
/// ```
#[derive(Debug)]
pub struct Chaos {
    store: Arc<dyn Store>,
    faults: Faults,
    rng: Mutex<Rng>,
    runtime: Handle,
}

/// The faults of one call.
#[derive(Debug)]
struct CallFaults {
    delay: Option<Duration>,
    unanswered: bool,
    late: bool,
    repeated: bool,
    /// Of a repeated call, the second reply is returned.
    returns_second: bool,
}

impl Chaos {
    /// A store that passes on to `store`.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, which runs the verbs.
    pub fn around(store: Arc<dyn Store>, faults: Faults, seed: u64) -> Self {
        Self { store, faults, rng: Mutex::new(Rng::with_seed(seed)), runtime: Handle::current() }
    }

    /// Draws the faults of the next call.
    fn draw_faults(&self) -> CallFaults {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let mut happens = |chance: f64| rng.f64() < chance;
        let faults = &self.faults;
        let (delayed, unanswered) = (happens(faults.delayed), happens(faults.unanswered));
        let (late, repeated, returns_second) = (happens(faults.late), happens(faults.repeated), happens(0.5));
        let delay = (delayed || late).then(|| faults.delay.mul_f64(rng.f64()));
        CallFaults { delay, unanswered, late, repeated, returns_second }
    }

    async fn pass_on<T: Send + 'static>(
        &self,
        doing: &'static str,
        verb: impl Fn(Arc<dyn Store>) -> BoxFuture<'static, Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (call, store) = (self.draw_faults(), Arc::clone(&self.store));
        let (late, unanswered) = (call.late, call.unanswered);
        let running = self.runtime.spawn(async move {
            if let Some(delay) = call.delay {
                tokio::time::sleep(delay).await;
            }
            let mut reply = verb(Arc::clone(&store)).await;
            if call.repeated {
                let second = verb(store).await;
                if call.returns_second {
                    reply = second;
                }
            }
            reply
        });
        if late {
            return Err(Error::unavailable(doing, "chaos: reported lost, and runs late"));
        }
        let reply = running.await.map_err(|error| Error::unavailable(doing, error))?;
        if unanswered { Err(Error::unavailable(doing, "chaos: the reply was lost")) } else { reply }
    }
}

#[async_trait]
impl Store for Chaos {
    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission> {
        let claim = Arc::clone(claim);
        let verb = move |store: Arc<dyn Store>| {
            let claim = Arc::clone(&claim);
            async move { store.acquire(&claim, busy).await }.boxed()
        };
        self.pass_on("acquiring", verb).await
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        let leases = leases.to_vec();
        let verb = move |store: Arc<dyn Store>| {
            let leases = leases.clone();
            async move { store.renew(&leases).await }.boxed()
        };
        self.pass_on("renewing", verb).await
    }

    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        let leaving = leaving.to_vec();
        let verb = move |store: Arc<dyn Store>| {
            let leaving = leaving.clone();
            async move { store.release(&leaving).await }.boxed()
        };
        self.pass_on("releasing", verb).await
    }

    async fn inspect(&self, query: &Query) -> Result<Page> {
        let query = query.clone();
        let verb = move |store: Arc<dyn Store>| {
            let query = query.clone();
            async move { store.inspect(&query).await }.boxed()
        };
        self.pass_on("inspecting", verb).await
    }

    /// Passed on without faults: `record` need not be idempotent.
    async fn record(&self, report: &Report) -> Result<()> {
        self.store.record(report).await
    }

    fn watch(&self, scope: Scope) -> BoxStream<'static, Change> {
        let chance = self.faults.unpushed;
        let seed = self.rng.lock().unwrap_or_else(PoisonError::into_inner).u64(..);
        let pushes = self.store.watch(scope).scan(Rng::with_seed(seed), move |rng, change| {
            // Replaces the lost push: a client that receives it polls.
            futures::future::ready(Some(if rng.f64() < chance { Change::Resync } else { change }))
        });
        pushes.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{ClaimId, ClientId, Demand, Ticket};
    use crate::name::Name;
    use crate::store::Names;
    use crate::stores::Memory;

    fn claim() -> Arc<Claim> {
        Arc::new(Claim {
            id: ClaimId::random().unwrap(),
            client: ClientId(1),
            demands: Demand::exclusive(name()).into(),
            ttl: Duration::from_secs(30),
            block: 1,
            floor: Ticket(0),
            detached: false,
            note: Arc::default(),
        })
    }

    fn name() -> Name {
        Name::new("a").unwrap()
    }

    async fn queue_length(store: &dyn Store) -> usize {
        let query = Query { names: Names::One(name()), after: None, limit: 1, entries: usize::MAX };
        store.inspect(&query).await.unwrap().resources.first().map_or(0, |resource| resource.queue.len())
    }

    fn around_memory(faults: Faults) -> (Arc<Memory>, Chaos) {
        let memory = Arc::new(Memory::new());
        (Arc::clone(&memory), Chaos::around(memory, faults, 7))
    }

    #[tokio::test]
    async fn without_faults_replies_pass_through() {
        let (_, chaos) = around_memory(Faults::NONE);
        let claim = claim();
        assert!(matches!(chaos.acquire(&claim, Busy::Wait).await, Ok(Admission::Held(_))));
        let answers = chaos.release(&[Leaving::Done(claim)]).await.unwrap();
        assert_eq!(answers, [Standing::Gone(crate::store::Why::Left)]);
    }

    #[tokio::test]
    async fn a_lost_reply_hides_a_claim_that_holds() {
        let (memory, chaos) = around_memory(Faults { unanswered: 1.0, ..Faults::NONE });
        let lost = chaos.acquire(&claim(), Busy::Wait).await;
        assert!(matches!(lost, Err(Error::Unavailable { .. })), "{lost:?}");
        assert_eq!(queue_length(&*memory).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_verb_runs_after_it_was_reported_lost() {
        let (memory, chaos) = around_memory(Faults { late: 1.0, ..Faults::NONE });
        assert!(chaos.acquire(&claim(), Busy::Wait).await.is_err());
        assert_eq!(queue_length(&*memory).await, 0);
        tokio::time::sleep(Faults::NONE.delay).await;
        assert_eq!(queue_length(&*memory).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_verb_still_runs() {
        let (memory, chaos) = around_memory(Faults { delayed: 1.0, ..Faults::NONE });
        let claim = claim();
        assert!(chaos.acquire(&claim, Busy::Wait).now_or_never().is_none());
        assert_eq!(queue_length(&*memory).await, 0);
        tokio::time::sleep(Faults::NONE.delay).await;
        assert_eq!(queue_length(&*memory).await, 1);
    }

    #[tokio::test]
    async fn a_repeated_release_gives_either_reply() {
        let (_, chaos) = around_memory(Faults { repeated: 1.0, ..Faults::NONE });
        let mut answers = Vec::new();
        for _ in 0..50 {
            let claim = claim();
            chaos.acquire(&claim, Busy::Wait).await.unwrap();
            answers.extend(chaos.release(&[Leaving::Done(claim)]).await.unwrap());
        }
        let first = answers.iter().filter(|it| **it == Standing::Gone(crate::store::Why::Left)).count();
        assert!((1..50).contains(&first), "{first} of 50 were the first reply");
    }

    #[tokio::test]
    async fn a_lost_push_is_followed_by_resync() {
        let (memory, chaos) = around_memory(Faults { unpushed: 1.0, ..Faults::NONE });
        let mut pushes = chaos.watch(Scope::Client(ClientId(1)));
        let (holder, waiter) = (claim(), claim());
        memory.acquire(&holder, Busy::Wait).await.unwrap();
        memory.acquire(&waiter, Busy::Wait).await.unwrap();
        memory.release(&[Leaving::Done(holder)]).await.unwrap();
        assert_eq!(pushes.next().await, Some(Change::Resync));
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_seed_makes_the_same_choices() {
        let mut outcomes = Vec::new();
        for _ in 0..2 {
            let (_, chaos) = around_memory(Faults::BAD_DAY);
            let mut answered = Vec::new();
            for _ in 0..100 {
                answered.push(chaos.acquire(&claim(), Busy::Refuse).await.is_ok());
            }
            outcomes.push(answered);
        }
        assert_eq!(outcomes[0], outcomes[1]);
        assert!(outcomes[0].contains(&false));
    }
}
