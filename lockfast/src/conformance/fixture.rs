//! What the cases are written with: a store under test, its clients, and short forms of the verbs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::mpsc;

use crate::claim::{Claim, ClaimId, ClientId, Demand, Demands, Note, Ticket, Tickets};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::store::{
    Admission, Busy, BusyWith, Change, Guarantees, Lease, Leaving, Names, Page, Query, Resource, Scope, Standing,
    Store, Why,
};

use super::executor::{Task, spawn};
use super::users::{ChaosRun, Users};
use super::{Subject, Time, not_promised};

/// A TTL longer than any case takes.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// A store under test, with names that no other test uses.
pub struct Fixture {
    subject: Box<dyn Subject>,
    store: Arc<dyn Store>,
    guarantees: Guarantees,
    /// Random, and part of every name of this fixture.
    tag: String,
    /// All claims that the clients of this fixture made.
    claims: Mutex<Vec<Arc<Claim>>>,
    /// The clients that a case made with [`Fixture::user`].
    pub(super) users: Mutex<Users>,
    pub(super) chaos: Option<Mutex<ChaosRun>>,
}

impl Fixture {
    pub(super) async fn new(subject: Box<dyn Subject>, chaos: Option<ChaosRun>) -> Self {
        let store = subject.open().await;
        let tag = format!("{:016x}", random());
        let (claims, users, chaos) = (Mutex::default(), Mutex::default(), chaos.map(Mutex::new));
        Self { guarantees: store.guarantees(), subject, store, tag, claims, users, chaos }
    }

    /// A name of this fixture. All of them are in one slot of a store that maps names in braces to slots.
    pub fn name(&self, text: &str) -> Name {
        expect_valid(Name::prefixed(&self.prefix(), text))
    }

    /// The prefix of all names of this fixture.
    pub fn prefix(&self) -> String {
        format!("{{{}}}:", self.tag)
    }

    /// A name of this fixture that is only a random tag and `text`.
    pub fn plain_name(&self, text: &str) -> Name {
        expect_valid(Name::prefixed(&self.tag, text))
    }

    pub(super) async fn open(&self) -> Arc<dyn Store> {
        self.subject.open().await
    }

    /// The clock of this fixture's clients.
    pub fn clock(&self) -> Clock {
        self.subject.clock()
    }

    /// Another client, with a handle of its own.
    pub async fn client(&self) -> Client<'_> {
        Client::new(self, self.open().await, true)
    }

    /// Another client, without a subscription to pushes.
    pub(super) async fn client_without_subscription(&self) -> Client<'_> {
        Client::new(self, self.open().await, false)
    }

    /// What the store promises.
    pub fn guarantees(&self) -> &Guarantees {
        &self.guarantees
    }

    /// Ends the case, as not promised, unless the store promises `what` the case is about.
    pub fn require(&self, is_promised: bool, what: &str) {
        if !is_promised {
            not_promised(what);
        }
    }

    /// How time passes.
    pub fn time(&self) -> Time {
        self.subject.time()
    }

    /// A TTL that is short enough for a case to wait for its end.
    pub fn brief_ttl(&self) -> Duration {
        match self.time() {
            Time::Set => Duration::from_secs(10),
            Time::Real => self.guarantees.min_ttl.max(Duration::from_secs(1)),
        }
    }

    /// Lets time pass. The unit is one [`brief_ttl`](Self::brief_ttl): at 0.5, half of such a lease runs out.
    pub async fn advance_brief_ttls(&self, count: f64) {
        self.subject.advance(self.brief_ttl().mul_f64(count)).await;
    }

    /// Lets this much time pass for the leases in the store.
    pub async fn advance(&self, span: Duration) {
        self.subject.advance(span).await;
    }

    /// The queue of one name; `None` if it has neither a queue nor a seal.
    pub async fn inspect(&self, name: &Name) -> Option<Resource> {
        let query = Query { names: Names::One(name.clone()), after: None, limit: 10, entries: usize::MAX };
        let Page { resources, next, .. } = expect_supported(self.store.inspect(&query).await);
        assert!(resources.len() <= 1 && next.is_none(), "one name was requested, {resources:?} and {next:?} shown");
        resources.into_iter().next()
    }

    /// Releases every claim that the case made; after that, none of their names may be in use.
    pub(super) async fn assert_nothing_is_left(&self) {
        let claims = std::mem::take(&mut *self.claims.lock().unwrap_or_else(PoisonError::into_inner));
        for claim in &claims {
            expect_supported(self.store.release(&[Leaving::Done(Arc::clone(claim))]).await);
        }
        let names: BTreeMap<_, _> =
            claims.iter().flat_map(|claim| claim.demands.iter()).map(|it| (&it.name, ())).collect();
        let mut has_waited = false;
        for name in names.into_keys() {
            if !has_waited && self.inspect(name).await.is_some() {
                // A seal: it ends by time, and no claim can remove it. No case seals for more than 4 brief TTLs.
                self.advance_brief_ttls(4.0).await;
                has_waited = true;
            }
            assert_eq!(self.inspect(name).await, None, "left behind");
        }
    }
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixture").field("store", &self.store).field("tag", &self.tag).finish_non_exhaustive()
    }
}

/// A client that calls the verbs of the store directly: its handle, its pushes, and its own claims.
///
/// A [`User`](super::users::User) has a client of the library in between.
pub struct Client<'p> {
    fixture: &'p Fixture,
    store: Arc<dyn Store>,
    id: ClientId,
    push_sender: mpsc::UnboundedSender<Change>,
    pub(super) pushes: tokio::sync::Mutex<mpsc::UnboundedReceiver<Change>>,
    subscription: Task<()>,
}

impl<'p> Client<'p> {
    fn new(fixture: &'p Fixture, store: Arc<dyn Store>, is_subscribed: bool) -> Self {
        let id = ClientId(random());
        let (push_sender, pushes) = mpsc::unbounded_channel();
        let sender = push_sender.clone();
        // Subscribed all the time, as a real client is: some stores take a client without a subscription for dead.
        let stream = is_subscribed.then(|| store.watch(Scope::Client(id)));
        let store_of_task = Arc::clone(&store);
        let subscription = spawn(async move {
            let Some(mut stream) = stream else { return };
            loop {
                match stream.next().await {
                    Some(change) => drop(sender.send(change)),
                    None => {
                        drop(sender.send(Change::Resync));
                        tokio::task::yield_now().await;
                        stream = store_of_task.watch(Scope::Client(id));
                    }
                }
            }
        });
        Self { fixture, store, id, push_sender, pushes: tokio::sync::Mutex::new(pushes), subscription }
    }

    /// The bare store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The id of this client.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Ends its subscription, as the death of its process would.
    pub(super) fn unsubscribe(&self) {
        self.subscription.stop();
    }

    /// A new claim, with a TTL longer than the case.
    pub fn claim(&self, demands: impl Into<Demands>) -> Arc<Claim> {
        let claim = Arc::new(Claim {
            id: ClaimId::random().expect("the operating system gives random numbers"),
            client: self.id,
            demands: demands.into(),
            ttl: LONG,
            block: 1,
            floor: Ticket(0),
            detached: false,
            note: Arc::new(Note { host: "conformance".into(), pid: 1, program: "suite".into(), ..Note::default() }),
        });
        self.fixture.claims.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&claim));
        claim
    }

    /// A new exclusive claim.
    pub fn mutex(&self, text: &str) -> Arc<Claim> {
        self.claim(Demand::exclusive(self.fixture.name(text)))
    }

    /// A new exclusive claim with a lease that ends within the case.
    pub fn brief_mutex(&self, text: &str) -> Arc<Claim> {
        self.with(self.mutex(text), |claim| claim.ttl = self.fixture.brief_ttl())
    }

    /// A new shared claim.
    pub fn reader(&self, text: &str) -> Arc<Claim> {
        self.claim(Demand::shared(self.fixture.name(text)))
    }

    /// A new claim on permits.
    pub fn permits(&self, text: &str, weight: u32, capacity: u32) -> Arc<Claim> {
        self.claim(expect_valid(Demand::permits(self.fixture.name(text), weight, capacity)))
    }

    /// A new exclusive claim on several names.
    pub fn multi(&self, texts: &[&str]) -> Arc<Claim> {
        let demands = texts.iter().map(|text| Demand::exclusive(self.fixture.name(text))).collect();
        self.claim(expect_valid(Demands::of(demands)))
    }

    /// The same claim, changed before its first use.
    pub fn with(&self, claim: Arc<Claim>, change: impl FnOnce(&mut Claim)) -> Arc<Claim> {
        let mut claim = Arc::unwrap_or_clone(claim);
        change(&mut claim);
        Arc::new(claim)
    }

    /// Acquires with [`Busy::Wait`]. Returns at once: the claim holds, or is queued.
    pub async fn acquire(&self, claim: &Arc<Claim>) -> Admission {
        expect_supported(self.store.acquire(claim, Busy::Wait).await)
    }

    /// Acquires with [`Busy::Refuse`].
    pub async fn try_acquire(&self, claim: &Arc<Claim>) -> Admission {
        expect_supported(self.store.acquire(claim, Busy::Refuse).await)
    }

    /// Acquires, and must hold at once.
    pub async fn acquire_held(&self, claim: &Arc<Claim>) -> Tickets {
        match self.acquire(claim).await {
            Admission::Held(tickets) => tickets,
            other => panic!("{:?} should hold and was answered {other:?}", claim.demands),
        }
    }

    /// Acquires, and must be queued.
    pub async fn acquire_queued(&self, claim: &Arc<Claim>) -> Ticket {
        match self.acquire(claim).await {
            Admission::Queued { ticket, .. } => ticket,
            other => panic!("{:?} should wait and was answered {other:?}", claim.demands),
        }
    }

    /// Acquires, and must be refused.
    pub async fn acquire_refused(&self, claim: &Arc<Claim>) -> BusyWith {
        match self.try_acquire(claim).await {
            Admission::Refused(busy) => busy,
            other => panic!("{:?} should be refused and was answered {other:?}", claim.demands),
        }
    }

    /// Renews the lease to the claim's own TTL from now.
    pub async fn renew(&self, claim: &Arc<Claim>) -> Standing {
        self.renew_by(claim, claim.ttl).await
    }

    /// Renews the lease to this TTL from now.
    pub async fn renew_by(&self, claim: &Arc<Claim>, ttl: Duration) -> Standing {
        let lease = Lease { claim: Arc::clone(claim), ttl };
        only_reply(expect_supported(self.store.renew(&[lease]).await))
    }

    /// Asserts, by a renewal, that the claim holds.
    pub async fn assert_holds(&self, claim: &Arc<Claim>) -> Tickets {
        match self.renew(claim).await {
            Standing::Held(tickets) => tickets,
            other => panic!("{:?} should hold and is {other:?}", claim.demands),
        }
    }

    /// Asserts, by a renewal, that the claim waits.
    pub async fn assert_waits(&self, claim: &Arc<Claim>) -> Ticket {
        match self.renew(claim).await {
            Standing::Waiting { ticket, .. } => ticket,
            other => panic!("{:?} should wait and is {other:?}", claim.demands),
        }
    }

    /// Asserts, by a renewal, that the claim is gone.
    pub async fn assert_gone(&self, claim: &Arc<Claim>) -> Why {
        match self.renew(claim).await {
            Standing::Gone(why) => why,
            other => panic!("{:?} should be gone and is {other:?}", claim.demands),
        }
    }

    /// Ends a claim in this way: by a release, a linger, a seal or a break.
    pub async fn leave(&self, leaving: Leaving) -> Standing {
        match only_reply(expect_supported(self.store.release(&[leaving]).await)) {
            // A reply may carry the grant of this client's next claim: the same as a push.
            Standing::Gone(Why::PassedOn(owner, ticket)) => {
                drop(self.push_sender.send(Change::Held(owner, ticket)));
                Standing::Gone(Why::Left)
            }
            standing => standing,
        }
    }

    /// Releases the claim.
    pub async fn release(&self, claim: &Arc<Claim>) -> Standing {
        self.leave(Leaving::Done(Arc::clone(claim))).await
    }

    /// Ends a local hand-off sequence: releases, or goes on with a new block if no other claim waits.
    pub async fn release_unless_alone(&self, claim: &Arc<Claim>, block: u32, floor: Ticket) -> Standing {
        self.leave(Leaving::UnlessAlone { claim: Arc::clone(claim), block, floor }).await
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.subscription.stop();
    }
}

impl fmt::Debug for Client<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.id).field("store", &self.store).finish_non_exhaustive()
    }
}

/// Unwraps a reply. [`Error::Unsupported`] ends the case as not promised; any other error fails it.
pub(super) fn expect_supported<T>(reply: Result<T>) -> T {
    match reply {
        Ok(reply) => reply,
        Err(Error::Unsupported(what)) => not_promised(what),
        Err(error) => panic!("the store failed: {error}"),
    }
}

fn expect_valid<T>(built: Result<T>) -> T {
    built.expect("the suite makes valid claims only")
}

fn only_reply(mut replies: Vec<Standing>) -> Standing {
    assert_eq!(replies.len(), 1, "one reply for one request");
    replies.remove(0)
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
    u64::from_le_bytes(bytes)
}
