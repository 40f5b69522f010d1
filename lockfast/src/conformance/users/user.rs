//! What the cases are written with: [`User`]s, each a client as programs have it, whose link to the store a case can
//! cut.

use std::ops::Deref;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use futures::StreamExt;

use crate::client::Guard;
use crate::clock::{Clock, Moment};
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::primitives::{Builder, Locks};

use super::super::Time;
use super::super::chaos::{Chaos, Faults};
use super::super::executor::{Task, sleep, spawn, within};
use super::super::fixture::{Fixture, LONG, expect_supported};
use super::link::Link;

/// The limit for a result; only a failing case waits that long.
const PATIENCE: Duration = Duration::from_secs(30);
/// The TTL under [`Chaos`]: a claim that was left in a queue must end within the test.
const CHAOTIC_TTL: Duration = Duration::from_secs(2);

/// The faults between the users of a fixture and its store.
#[derive(Debug)]
pub(in crate::conformance) struct ChaosRun {
    pub(in crate::conformance) faults: Faults,
    pub(in crate::conformance) rng: Rng,
}

/// All users that a fixture made.
#[derive(Debug, Default)]
pub(in crate::conformance) struct Users {
    /// Without the users that the case has dropped.
    present: Vec<User>,
    /// Of all users, including those dropped. A link knows the names that its user acquired.
    links: Vec<Arc<Link>>,
}

/// One client of the library, as a program has it: it derefs to its [`Locks`]. Its link to the store counts calls, and
/// can be cut, which to the store looks like the death of the program.
#[derive(Clone, Debug)]
pub struct User {
    locks: Locks,
    link: Arc<Link>,
    is_reliable: bool,
}

impl Deref for User {
    type Target = Locks;

    fn deref(&self) -> &Locks {
        &self.locks
    }
}

/// A running acquisition of a lock, or of something that needs one, in a task of its own.
#[derive(Debug)]
pub struct Request<T = Guard>(Task<Result<T>>);

impl<T> Request<T> {
    /// Waits for the result, which must be a success.
    pub async fn expect_held(self) -> T {
        expect_supported(self.result().await)
    }

    /// Waits for the result.
    pub async fn result(self) -> Result<T> {
        soon(self.0.join()).await
    }

    /// Drops the acquisition, at whatever point it is.
    pub async fn cancel(self) {
        self.0.cancel().await;
    }

    /// Whether there is a result.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }
}

impl User {
    /// The client itself.
    pub fn locks(&self) -> Locks {
        self.locks.clone()
    }

    /// Cuts the link: for the store, this client's process has died.
    pub fn die(&self) {
        self.link.cut();
    }

    /// How many `acquire` and `renew` calls this user's client has made.
    pub fn calls(&self) -> usize {
        self.link.calls()
    }

    /// Whether every reply arrives, once and in time.
    pub fn is_reliable(&self) -> bool {
        self.is_reliable
    }

    /// Starts an acquisition.
    pub fn request<T: Send + 'static>(&self, request: impl Future<Output = Result<T>> + Send + 'static) -> Request<T> {
        Request(spawn(request))
    }

    /// Starts an acquisition, and returns once the store has acknowledged that it waits.
    pub async fn enqueue<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Request<T> {
        let mut events = self.events();
        let task = spawn(request);
        loop {
            let event = soon(events.next()).await.expect("the events end after the case");
            match event.kind {
                EventKind::Waiting => return Request(task),
                EventKind::Acquired { .. } => panic!("{:?} should wait and holds", event.demands),
                _ => {}
            }
        }
    }

    /// Repeats a call until its reply arrives; it must be a success.
    pub async fn retry<T>(&self, call: impl AsyncFn() -> Result<T>) -> T {
        expect_supported(self.retry_result(call).await)
    }

    /// Repeats a call until its reply arrives.
    pub async fn retry_result<T>(&self, call: impl AsyncFn() -> Result<T>) -> Result<T> {
        loop {
            match call().await {
                Err(Error::Unavailable { .. }) if !self.is_reliable => {}
                reply => return reply,
            }
        }
    }

    /// Releases a guard, which must have held to the end; unless the reply got lost, or a repeated release found no
    /// claim.
    pub async fn release(&self, guard: Guard) {
        match guard.release().await {
            Ok(()) => {}
            Err(Error::Unavailable { .. } | Error::Lost { .. }) if !self.is_reliable => {}
            Err(error) => panic!("a held lock could not be released: {error}"),
        }
    }
}

impl Fixture {
    /// Another user, whose names all begin with [`Fixture::prefix`].
    pub async fn user(&self) -> User {
        self.user_with(|builder| builder).await
    }

    /// Another user, with other settings.
    pub async fn user_with(&self, settings: impl FnOnce(Builder) -> Builder) -> User {
        let mut store = self.open().await;
        if let Some(chaos) = &self.chaos {
            let mut chaos = chaos.lock().unwrap_or_else(PoisonError::into_inner);
            store = Arc::new(Chaos::around(store, chaos.faults, chaos.rng.u64(..)));
        }
        let link = Arc::new(Link::to(store));
        let builder = Locks::builder().prefix(self.prefix()).clock(self.clock()).ttl(self.ttl());
        let locks = expect_supported(settings(builder).build(Arc::clone(&link) as _));
        let user = User { locks, link, is_reliable: self.is_reliable() };
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.links.push(Arc::clone(&user.link));
        users.present.push(user.clone());
        user
    }

    /// Drops the user's handle as a program would; guards made with it stay.
    pub fn drop_user(&self, user: User) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.present.retain(|present| !Arc::ptr_eq(&present.link, &user.link));
    }

    /// Three users.
    pub async fn three_users(&self) -> [User; 3] {
        [self.user().await, self.user().await, self.user().await]
    }

    /// A TTL that no case waits for.
    pub fn ttl(&self) -> Duration {
        if self.is_reliable() { LONG } else { CHAOTIC_TTL.max(self.guarantees().min_ttl) }
    }

    /// Whether every reply arrives, once and in time: not so under [`Chaos`].
    pub fn is_reliable(&self) -> bool {
        self.chaos.is_none()
    }

    /// How often to repeat something: fewer times where each takes long.
    pub fn rounds(&self, healthy: usize) -> usize {
        if self.is_reliable() { healthy } else { healthy.div_ceil(3) }
    }

    /// Advances time in steps until the lock is held, by at most this many [brief TTLs](Self::brief_ttl).
    pub async fn held_within(&self, brief_ttls: f64, request: Request) -> Guard {
        self.ended_within(brief_ttls, request).await.expect_held().await
    }

    /// Advances time in steps until there is a result, by at most this many [brief TTLs](Self::brief_ttl).
    pub async fn ended_within<T>(&self, brief_ttls: f64, request: Request<T>) -> Request<T> {
        let steps = 20;
        for _ in 0..steps {
            if request.is_over() {
                break;
            }
            self.advance_brief_ttls(brief_ttls / f64::from(steps)).await;
            self.let_clients_settle().await;
        }
        request
    }

    /// Where time is set, waits until all clients have done what is due by now: their threads need real time.
    pub async fn let_clients_settle(&self) {
        if self.time() == Time::Set {
            sleep(Duration::from_millis(5)).await;
            let users = self.users.lock().unwrap_or_else(PoisonError::into_inner).present.clone();
            let settle = async {
                while !users.iter().all(|user| user.locks.client().is_settled()) {
                    sleep(Duration::from_millis(1)).await;
                }
            };
            soon(settle).await;
        }
    }

    /// Asserts that no name the users used is in use, while all clients live; then shuts all users down, and asserts it
    /// again.
    pub(in crate::conformance) async fn assert_users_leave_nothing(&self) {
        let users = std::mem::take(&mut *self.users.lock().unwrap_or_else(PoisonError::into_inner));
        self.wait_until_empty(&users).await;
        for user in users.present.iter().filter(|user| !user.link.is_cut()) {
            let stats = user.stats();
            assert_eq!((stats.held, stats.waiting), (0, 0), "the client counts a holder or waiter that does not exist");
            let left = soon(user.shutdown(PATIENCE)).await;
            assert!(left.is_ok() || !self.is_reliable(), "{left:?}");
        }
        self.wait_until_empty(&users).await;
    }

    async fn wait_until_empty(&self, users: &Users) {
        let has_deaths = users.links.iter().any(|link| link.is_cut());
        let since = Clock::boot().now();
        for name in users.links.iter().flat_map(|link| link.names()) {
            while let Some(left) = self.inspect(&name).await {
                if self.time() == Time::Real && left.queue.is_empty() && left.sealed_for.is_some() {
                    // A seal: it ends by time, and no claim can remove it. The case waits for it only where that costs
                    // no time.
                    break;
                }
                let (limit, has_an_end) = match self.is_reliable() {
                    // Claims of the dead and lingering claims end with their lease; a dropped guard's release is in
                    // flight.
                    true => (PATIENCE, has_deaths || left.queue.iter().all(|entry| entry.lingers)),
                    false => (self.ttl() * 4, true),
                };
                assert!(elapsed_since(since) < limit, "left behind: {left:?}");
                if has_an_end {
                    self.advance_brief_ttls(0.1).await;
                }
                self.let_clients_settle().await;
            }
        }
    }
}

/// The result of `work`; the case fails if it takes longer than [`PATIENCE`].
pub(super) async fn soon<T>(work: impl Future<Output = T>) -> T {
    within(PATIENCE, work).await.expect("a result within half a minute")
}

/// Spawns a task for each future, and returns all results, in the order of the futures.
pub(super) async fn join_all<T: Send + 'static>(
    tasks: impl IntoIterator<Item: Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let tasks: Vec<_> = tasks.into_iter().map(spawn).collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(soon(task.join()).await);
    }
    results
}

/// The time since a moment of [`Clock::boot`].
pub(super) fn elapsed_since(since: Moment) -> Duration {
    Clock::boot().now().since(since)
}
