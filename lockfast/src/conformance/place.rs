//! What the cases are written with: a place under test, its clients, and the verbs with less to write.

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
use super::users::{Users, Weather};
use super::{Subject, Time, not_promised};

/// Longer than any case takes.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// A store under test, with names that nobody else uses.
pub struct Place {
    subject: Box<dyn Subject>,
    store: Arc<dyn Store>,
    guarantees: Guarantees,
    tag: String,
    made: Mutex<Vec<Arc<Claim>>>,
    pub(super) users: Mutex<Users>,
    pub(super) weather: Option<Mutex<Weather>>,
}

impl Place {
    pub(super) async fn new(subject: Box<dyn Subject>, weather: Option<Weather>) -> Self {
        let store = subject.open().await;
        let tag = format!("{:016x}", random());
        let (made, users, weather) = (Mutex::default(), Mutex::default(), weather.map(Mutex::new));
        Self { guarantees: store.guarantees(), subject, store, tag, made, users, weather }
    }

    /// A name of this place. All of them fall into one slot where names in braces do that.
    pub fn name(&self, text: &str) -> Name {
        legal(Name::prefixed(&self.beginning(), text))
    }

    /// What all names of this place begin with.
    pub fn beginning(&self) -> String {
        format!("{{{}}}:", self.tag)
    }

    /// A name of this place that is nothing but a random tag and `text`.
    pub fn plain_name(&self, text: &str) -> Name {
        legal(Name::prefixed(&self.tag, text))
    }

    pub(super) async fn open(&self) -> Arc<dyn Store> {
        self.subject.open().await
    }

    /// The clock that clients of this place read.
    pub fn clock(&self) -> Clock {
        self.subject.clock()
    }

    /// Another client, with a handle of its own.
    pub async fn client(&self) -> Client<'_> {
        Client::new(self, self.open().await, true)
    }

    /// One that gets no pushes.
    pub(super) async fn client_without_subscription(&self) -> Client<'_> {
        Client::new(self, self.open().await, false)
    }

    /// What the store promises.
    pub fn guarantees(&self) -> &Guarantees {
        &self.guarantees
    }

    /// Ends a case that is about something the store does not promise.
    pub fn needs(&self, promised: bool, what: &str) {
        if !promised {
            not_promised(what);
        }
    }

    /// How time passes.
    pub fn time(&self) -> Time {
        self.subject.time()
    }

    /// A lease that a case can wait for.
    pub fn brief(&self) -> Duration {
        match self.time() {
            Time::Set => Duration::from_secs(10),
            Time::Real => self.guarantees.min_ttl.max(Duration::from_secs(1)),
        }
    }

    /// Lets this many brief leases pass.
    pub async fn pass(&self, briefs: f64) {
        self.subject.pass(self.brief().mul_f64(briefs)).await;
    }

    /// Lets this much time pass.
    pub async fn pass_time(&self, span: Duration) {
        self.subject.pass(span).await;
    }

    /// The line of one name; `None` when there is nothing.
    pub async fn look(&self, name: &Name) -> Option<Resource> {
        let query = Query { names: Names::One(name.clone()), after: None, limit: 10, entries: usize::MAX };
        let Page { resources, next, .. } = promised(self.store.inspect(&query).await);
        assert!(resources.len() <= 1 && next.is_none(), "one name was asked for, {resources:?} and {next:?} shown");
        resources.into_iter().next()
    }

    /// Every claim that a case made leaves; after that no name of theirs may be in use.
    pub(super) async fn assert_nothing_is_left(&self) {
        let made = std::mem::take(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner));
        for claim in &made {
            promised(self.store.release(&[Leaving::Done(Arc::clone(claim))]).await);
        }
        let names: BTreeMap<_, _> =
            made.iter().flat_map(|claim| claim.demands.iter()).map(|it| (&it.name, ())).collect();
        let mut waited = false;
        for name in names.into_keys() {
            if !waited && self.look(name).await.is_some() {
                // A seal, which has an end and no owner.
                self.pass(4.0).await;
                waited = true;
            }
            assert_eq!(self.look(name).await, None, "left behind");
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("store", &self.store).field("tag", &self.tag).finish_non_exhaustive()
    }
}

/// One client of the place: its handle, its pushes, and claims that are its own.
pub struct Client<'p> {
    place: &'p Place,
    store: Arc<dyn Store>,
    id: ClientId,
    tell: mpsc::UnboundedSender<Change>,
    pub(super) pushes: tokio::sync::Mutex<mpsc::UnboundedReceiver<Change>>,
    listener: Task<()>,
}

impl<'p> Client<'p> {
    fn new(place: &'p Place, store: Arc<dyn Store>, subscribes: bool) -> Self {
        let id = ClientId(random());
        let (tell, pushes) = mpsc::unbounded_channel();
        let sender = tell.clone();
        // Listens all the time, like a client: some stores take one that does not listen for dead.
        let stream = subscribes.then(|| store.watch(Scope::Client(id)));
        let again = Arc::clone(&store);
        let listener = spawn(async move {
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
        Self { place, store, id, tell, pushes: tokio::sync::Mutex::new(pushes), listener }
    }

    /// The bare store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Who this is.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Ends its subscription, as the death of its process would.
    pub(super) fn unsubscribe(&self) {
        self.listener.stop();
    }

    /// A new claim, with a lease longer than the case.
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
        self.place.made.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&claim));
        claim
    }

    /// A new exclusive claim.
    pub fn mutex(&self, text: &str) -> Arc<Claim> {
        self.claim(Demand::exclusive(self.place.name(text)))
    }

    /// The same with a lease that ends within the case.
    pub fn brief_mutex(&self, text: &str) -> Arc<Claim> {
        self.with(self.mutex(text), |claim| claim.ttl = self.place.brief())
    }

    /// A new shared claim.
    pub fn reader(&self, text: &str) -> Arc<Claim> {
        self.claim(Demand::shared(self.place.name(text)))
    }

    /// A new claim on permits.
    pub fn permits(&self, text: &str, weight: u32, capacity: u32) -> Arc<Claim> {
        self.claim(legal(Demand::permits(self.place.name(text), weight, capacity)))
    }

    /// A new exclusive claim on several names.
    pub fn multi(&self, texts: &[&str]) -> Arc<Claim> {
        let demands = texts.iter().map(|text| Demand::exclusive(self.place.name(text))).collect();
        self.claim(legal(Demands::of(demands)))
    }

    /// The same claim, changed before it is used.
    pub fn with(&self, claim: Arc<Claim>, change: impl FnOnce(&mut Claim)) -> Arc<Claim> {
        let mut claim = Arc::unwrap_or_clone(claim);
        change(&mut claim);
        Arc::new(claim)
    }

    /// Asks, ready to wait.
    pub async fn wait(&self, claim: &Arc<Claim>) -> Admission {
        promised(self.store.acquire(claim, Busy::Wait).await)
    }

    /// Asks, not ready to wait.
    pub async fn try_now(&self, claim: &Arc<Claim>) -> Admission {
        promised(self.store.acquire(claim, Busy::Refuse).await)
    }

    /// Asks, and holds at once.
    pub async fn held(&self, claim: &Arc<Claim>) -> Tickets {
        match self.wait(claim).await {
            Admission::Held(tickets) => tickets,
            other => panic!("{:?} should hold and was answered {other:?}", claim.demands),
        }
    }

    /// Asks, and waits.
    pub async fn queued(&self, claim: &Arc<Claim>) -> Ticket {
        match self.wait(claim).await {
            Admission::Queued { ticket, .. } => ticket,
            other => panic!("{:?} should wait and was answered {other:?}", claim.demands),
        }
    }

    /// Asks, and is refused.
    pub async fn refused(&self, claim: &Arc<Claim>) -> BusyWith {
        match self.try_now(claim).await {
            Admission::Refused(busy) => busy,
            other => panic!("{:?} should be refused and was answered {other:?}", claim.demands),
        }
    }

    /// Renews by the claim's own ttl.
    pub async fn renew(&self, claim: &Arc<Claim>) -> Standing {
        self.renew_by(claim, claim.ttl).await
    }

    /// Renews.
    pub async fn renew_by(&self, claim: &Arc<Claim>, ttl: Duration) -> Standing {
        let lease = Lease { claim: Arc::clone(claim), ttl };
        single(promised(self.store.renew(&[lease]).await))
    }

    /// Renews, and holds.
    pub async fn holds(&self, claim: &Arc<Claim>) -> Tickets {
        match self.renew(claim).await {
            Standing::Held(tickets) => tickets,
            other => panic!("{:?} should hold and is {other:?}", claim.demands),
        }
    }

    /// Renews, and waits.
    pub async fn waits(&self, claim: &Arc<Claim>) -> Ticket {
        match self.renew(claim).await {
            Standing::Waiting { ticket, .. } => ticket,
            other => panic!("{:?} should wait and is {other:?}", claim.demands),
        }
    }

    /// Renews, and is gone.
    pub async fn is_gone(&self, claim: &Arc<Claim>) -> Why {
        match self.renew(claim).await {
            Standing::Gone(why) => why,
            other => panic!("{:?} should be gone and is {other:?}", claim.demands),
        }
    }

    /// Leaves in some way.
    pub async fn leave(&self, leaving: Leaving) -> Standing {
        match single(promised(self.store.release(&[leaving]).await)) {
            // An answer may be a push at the same time.
            Standing::Gone(Why::PassedOn(owner, ticket)) => {
                drop(self.tell.send(Change::Held(owner, ticket)));
                Standing::Gone(Why::Left)
            }
            standing => standing,
        }
    }

    /// Leaves.
    pub async fn done(&self, claim: &Arc<Claim>) -> Standing {
        self.leave(Leaving::Done(Arc::clone(claim))).await
    }

    /// Ends a turn.
    pub async fn unless_alone(&self, claim: &Arc<Claim>, block: u32, floor: Ticket) -> Standing {
        self.leave(Leaving::UnlessAlone { claim: Arc::clone(claim), block, floor }).await
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.listener.stop();
    }
}

impl fmt::Debug for Client<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("id", &self.id).field("store", &self.store).finish_non_exhaustive()
    }
}

/// The answer of a store that promises to give one.
pub(super) fn promised<T>(answer: Result<T>) -> T {
    match answer {
        Ok(answer) => answer,
        Err(Error::Unsupported(what)) => not_promised(what),
        Err(error) => panic!("the store failed: {error}"),
    }
}

fn legal<T>(made: Result<T>) -> T {
    made.expect("the suite asks for what is legal")
}

fn single(mut answers: Vec<Standing>) -> Standing {
    assert_eq!(answers.len(), 1, "one answer for one question");
    answers.remove(0)
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
    u64::from_le_bytes(bytes)
}
