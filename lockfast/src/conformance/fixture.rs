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

/// Longer than any case takes.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// A store under test, with names that no other test uses.
pub struct Fixture {
    subject: Box<dyn Subject>,
    store: Arc<dyn Store>,
    guarantees: Guarantees,
    tag: String,
    made: Mutex<Vec<Arc<Claim>>>,
    pub(super) users: Mutex<Users>,
    pub(super) chaos: Option<Mutex<ChaosRun>>,
}

impl Fixture {
    pub(super) async fn new(subject: Box<dyn Subject>, chaos: Option<ChaosRun>) -> Self {
        let store = subject.open().await;
        let tag = format!("{:016x}", random());
        let (made, users, chaos) = (Mutex::default(), Mutex::default(), chaos.map(Mutex::new));
        Self { guarantees: store.guarantees(), subject, store, tag, made, users, chaos }
    }

    /// A name of this fixture. All of them are in one slot of a store that maps names in braces to slots.
    pub fn name(&self, text: &str) -> Name {
        legal(Name::prefixed(&self.prefix(), text))
    }

    /// The prefix of all names of this fixture.
    pub fn prefix(&self) -> String {
        format!("{{{}}}:", self.tag)
    }

    /// A name of this fixture that is only a random tag and `text`.
    pub fn plain_name(&self, text: &str) -> Name {
        legal(Name::prefixed(&self.tag, text))
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

    /// Ends a case about something that the store does not promise.
    pub fn needs(&self, promised: bool, what: &str) {
        if !promised {
            not_promised(what);
        }
    }

    /// How time passes.
    pub fn time(&self) -> Time {
        self.subject.time()
    }

    /// A TTL that is short enough for a case to wait for its end.
    pub fn brief(&self) -> Duration {
        match self.time() {
            Time::Set => Duration::from_secs(10),
            Time::Real => self.guarantees.min_ttl.max(Duration::from_secs(1)),
        }
    }

    /// Lets this many brief TTLs pass.
    pub async fn pass(&self, briefs: f64) {
        self.subject.pass(self.brief().mul_f64(briefs)).await;
    }

    /// Lets this much time pass.
    pub async fn pass_time(&self, span: Duration) {
        self.subject.pass(span).await;
    }

    /// The queue of one name; `None` if it has neither a queue nor a seal.
    pub async fn inspect(&self, name: &Name) -> Option<Resource> {
        let query = Query { names: Names::One(name.clone()), after: None, limit: 10, entries: usize::MAX };
        let Page { resources, next, .. } = promised(self.store.inspect(&query).await);
        assert!(resources.len() <= 1 && next.is_none(), "one name was requested, {resources:?} and {next:?} shown");
        resources.into_iter().next()
    }

    /// Releases every claim that the case made; after that, none of their names may be in use.
    pub(super) async fn assert_nothing_is_left(&self) {
        let made = std::mem::take(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner));
        for claim in &made {
            promised(self.store.release(&[Leaving::Done(Arc::clone(claim))]).await);
        }
        let names: BTreeMap<_, _> =
            made.iter().flat_map(|claim| claim.demands.iter()).map(|it| (&it.name, ())).collect();
        let mut waited = false;
        for name in names.into_keys() {
            if !waited && self.inspect(name).await.is_some() {
                // A seal: it ends by time, and no claim can remove it.
                self.pass(4.0).await;
                waited = true;
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

/// One client of the store: its handle, its pushes, and its own claims.
pub struct Client<'p> {
    fixture: &'p Fixture,
    store: Arc<dyn Store>,
    id: ClientId,
    push_sender: mpsc::UnboundedSender<Change>,
    pub(super) pushes: tokio::sync::Mutex<mpsc::UnboundedReceiver<Change>>,
    subscription: Task<()>,
}

impl<'p> Client<'p> {
    fn new(fixture: &'p Fixture, store: Arc<dyn Store>, subscribes: bool) -> Self {
        let id = ClientId(random());
        let (push_sender, pushes) = mpsc::unbounded_channel();
        let sender = push_sender.clone();
        // Subscribed all the time, as a real client is: some stores take a client without a subscription for dead.
        let stream = subscribes.then(|| store.watch(Scope::Client(id)));
        let again = Arc::clone(&store);
        let subscription = spawn(async move {
            let Some(mut stream) = stream else { return };
            loop {
                match stream.next().await {
                    Some(change) => drop(sender.send(change)),
                    None => {
                        drop(sender.send(Change::Resync));
                        tokio::task::yield_now().await;
                        stream = again.watch(Scope::Client(id));
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
        self.fixture.made.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&claim));
        claim
    }

    /// A new exclusive claim.
    pub fn mutex(&self, text: &str) -> Arc<Claim> {
        self.claim(Demand::exclusive(self.fixture.name(text)))
    }

    /// A new exclusive claim with a lease that ends within the case.
    pub fn brief_mutex(&self, text: &str) -> Arc<Claim> {
        self.with(self.mutex(text), |claim| claim.ttl = self.fixture.brief())
    }

    /// A new shared claim.
    pub fn reader(&self, text: &str) -> Arc<Claim> {
        self.claim(Demand::shared(self.fixture.name(text)))
    }

    /// A new claim on permits.
    pub fn permits(&self, text: &str, weight: u32, capacity: u32) -> Arc<Claim> {
        self.claim(legal(Demand::permits(self.fixture.name(text), weight, capacity)))
    }

    /// A new exclusive claim on several names.
    pub fn multi(&self, texts: &[&str]) -> Arc<Claim> {
        let demands = texts.iter().map(|text| Demand::exclusive(self.fixture.name(text))).collect();
        self.claim(legal(Demands::of(demands)))
    }

    /// The same claim, changed before its first use.
    pub fn with(&self, claim: Arc<Claim>, change: impl FnOnce(&mut Claim)) -> Arc<Claim> {
        let mut claim = Arc::unwrap_or_clone(claim);
        change(&mut claim);
        Arc::new(claim)
    }

    /// Acquires with [`Busy::Wait`].
    pub async fn wait(&self, claim: &Arc<Claim>) -> Admission {
        promised(self.store.acquire(claim, Busy::Wait).await)
    }

    /// Acquires with [`Busy::Refuse`].
    pub async fn try_now(&self, claim: &Arc<Claim>) -> Admission {
        promised(self.store.acquire(claim, Busy::Refuse).await)
    }

    /// Acquires, and must hold at once.
    pub async fn held(&self, claim: &Arc<Claim>) -> Tickets {
        match self.wait(claim).await {
            Admission::Held(tickets) => tickets,
            other => panic!("{:?} should hold and was answered {other:?}", claim.demands),
        }
    }

    /// Acquires, and must be queued.
    pub async fn queued(&self, claim: &Arc<Claim>) -> Ticket {
        match self.wait(claim).await {
            Admission::Queued { ticket, .. } => ticket,
            other => panic!("{:?} should wait and was answered {other:?}", claim.demands),
        }
    }

    /// Acquires, and must be refused.
    pub async fn refused(&self, claim: &Arc<Claim>) -> BusyWith {
        match self.try_now(claim).await {
            Admission::Refused(busy) => busy,
            other => panic!("{:?} should be refused and was answered {other:?}", claim.demands),
        }
    }

    /// Renews by the claim's own TTL.
    pub async fn renew(&self, claim: &Arc<Claim>) -> Standing {
        self.renew_by(claim, claim.ttl).await
    }

    /// Renews by this TTL.
    pub async fn renew_by(&self, claim: &Arc<Claim>, ttl: Duration) -> Standing {
        let lease = Lease { claim: Arc::clone(claim), ttl };
        single(promised(self.store.renew(&[lease]).await))
    }

    /// Renews, and must hold.
    pub async fn holds(&self, claim: &Arc<Claim>) -> Tickets {
        match self.renew(claim).await {
            Standing::Held(tickets) => tickets,
            other => panic!("{:?} should hold and is {other:?}", claim.demands),
        }
    }

    /// Renews, and must wait.
    pub async fn waits(&self, claim: &Arc<Claim>) -> Ticket {
        match self.renew(claim).await {
            Standing::Waiting { ticket, .. } => ticket,
            other => panic!("{:?} should wait and is {other:?}", claim.demands),
        }
    }

    /// Renews, and must be gone.
    pub async fn is_gone(&self, claim: &Arc<Claim>) -> Why {
        match self.renew(claim).await {
            Standing::Gone(why) => why,
            other => panic!("{:?} should be gone and is {other:?}", claim.demands),
        }
    }

    /// Releases in some way.
    pub async fn leave(&self, leaving: Leaving) -> Standing {
        match single(promised(self.store.release(&[leaving]).await)) {
            // A reply may carry the grant of this client's next claim: the same as a push.
            Standing::Gone(Why::PassedOn(owner, ticket)) => {
                drop(self.push_sender.send(Change::Held(owner, ticket)));
                Standing::Gone(Why::Left)
            }
            standing => standing,
        }
    }

    /// Releases.
    pub async fn done(&self, claim: &Arc<Claim>) -> Standing {
        self.leave(Leaving::Done(Arc::clone(claim))).await
    }

    /// Ends a local hand-off sequence: releases, or goes on with a new block if no other claim waits.
    pub async fn unless_alone(&self, claim: &Arc<Claim>, block: u32, floor: Ticket) -> Standing {
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

/// The reply of a store that promises to give one.
pub(super) fn promised<T>(reply: Result<T>) -> T {
    match reply {
        Ok(reply) => reply,
        Err(Error::Unsupported(what)) => not_promised(what),
        Err(error) => panic!("the store failed: {error}"),
    }
}

fn legal<T>(made: Result<T>) -> T {
    made.expect("the suite makes valid claims only")
}

fn single(mut answers: Vec<Standing>) -> Standing {
    assert_eq!(answers.len(), 1, "one reply for one request");
    answers.remove(0)
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
    u64::from_le_bytes(bytes)
}
