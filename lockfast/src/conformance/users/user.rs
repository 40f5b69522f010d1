//! What the cases are written with: users of the place, each with a client of their own.

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
use super::super::place::{LONG, Place, promised};
use super::wire::Wire;

/// What takes longer than this does not come; only a failing case waits that long.
const PATIENCE: Duration = Duration::from_secs(30);
/// A lease under [`Chaos`]: it has to end within the test if somebody was forgotten in a line.
const CHAOTIC_TTL: Duration = Duration::from_secs(2);

/// What goes wrong between the users of a place and its store.
#[derive(Debug)]
pub(in crate::conformance) struct Weather {
    pub(in crate::conformance) faults: Faults,
    pub(in crate::conformance) rng: Rng,
}

/// Those who ever were in a place, and the names they used.
#[derive(Debug, Default)]
pub(in crate::conformance) struct Users {
    present: Vec<User>,
    wires: Vec<Arc<Wire>>,
}

/// One user of the place: a client as programs use it, with a way to the store that can be watched and cut.
#[derive(Clone, Debug)]
pub struct User {
    locks: Locks,
    wire: Arc<Wire>,
    is_exact: bool,
}

impl Deref for User {
    type Target = Locks;

    fn deref(&self) -> &Locks {
        &self.locks
    }
}

/// A user who asks for a lock, or for what comes with one, in a task of their own.
#[derive(Debug)]
pub struct Asking<T = Guard>(Task<Result<T>>);

impl<T> Asking<T> {
    /// Gets it.
    pub async fn held(self) -> T {
        promised(self.ended().await)
    }

    /// What came of it.
    pub async fn ended(self) -> Result<T> {
        soon(self.0.join()).await
    }

    /// Stops asking, at whatever point it is.
    pub async fn cancel(self) {
        self.0.cancel().await;
    }

    /// Whether there is an answer.
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }
}

impl User {
    /// The client itself.
    pub fn locks(&self) -> Locks {
        self.locks.clone()
    }

    /// Dies, as far as the store can tell: nothing gets through to it any more, and nothing back.
    pub fn die(&self) {
        self.wire.cut();
    }

    /// How often this user's client has asked the store where it stands.
    pub fn questions(&self) -> usize {
        self.wire.questions()
    }

    /// Whether every answer arrives, once and in time.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Starts asking.
    pub fn asking<T: Send + 'static>(&self, asking: impl Future<Output = Result<T>> + Send + 'static) -> Asking<T> {
        Asking(spawn(asking))
    }

    /// Starts asking, and comes back when the store has acknowledged that it is in line.
    pub async fn in_line<T: Send + 'static>(
        &self,
        asking: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Asking<T> {
        let mut events = self.events();
        let task = spawn(asking);
        loop {
            let event = soon(events.next()).await.expect("the events end after the case");
            match event.kind {
                EventKind::Waiting => return Asking(task),
                EventKind::Acquired { .. } => panic!("{:?} should wait and holds", event.demands),
                _ => {}
            }
        }
    }

    /// Asks for something that has an answer, again if the answer got lost.
    pub async fn surely<T>(&self, ask: impl AsyncFn() -> Result<T>) -> T {
        promised(self.at_last(ask).await)
    }

    /// The same, and what it fails with in the end.
    pub async fn at_last<T>(&self, ask: impl AsyncFn() -> Result<T>) -> Result<T> {
        loop {
            match ask().await {
                Err(Error::Unavailable { .. }) if !self.is_exact => {}
                answer => return answer,
            }
        }
    }

    /// Gives back, and hears that it was held to the end; unless the answer got lost, or a repeated release found nothing.
    pub async fn let_go(&self, guard: Guard) {
        match guard.release().await {
            Ok(()) => {}
            Err(Error::Unavailable { .. } | Error::Lost { .. }) if !self.is_exact => {}
            Err(error) => panic!("a lock that was held could not be given back: {error}"),
        }
    }
}

impl Place {
    /// Another user, whose names all begin with [`Place::beginning`].
    pub async fn user(&self) -> User {
        self.user_with(|builder| builder).await
    }

    /// Another user, with other settings.
    pub async fn user_with(&self, settings: impl FnOnce(Builder) -> Builder) -> User {
        let mut store = self.open().await;
        if let Some(weather) = &self.weather {
            let mut weather = weather.lock().unwrap_or_else(PoisonError::into_inner);
            store = Arc::new(Chaos::around(store, weather.faults, weather.rng.u64(..)));
        }
        let wire = Arc::new(Wire::to(store));
        let builder = Locks::builder().prefix(self.beginning()).clock(self.clock()).ttl(self.ttl());
        let locks = promised(settings(builder).build(Arc::clone(&wire) as _));
        let user = User { locks, wire, is_exact: self.is_exact() };
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.wires.push(Arc::clone(&user.wire));
        users.present.push(user.clone());
        user
    }

    /// The user's handle is dropped, like any other; what was made with it stays.
    pub fn dismiss(&self, user: User) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.present.retain(|present| !Arc::ptr_eq(&present.wire, &user.wire));
    }

    /// Three users.
    pub async fn three(&self) -> [User; 3] {
        [self.user().await, self.user().await, self.user().await]
    }

    /// A lease that nobody waits for.
    pub fn ttl(&self) -> Duration {
        if self.is_exact() { LONG } else { CHAOTIC_TTL.max(self.guarantees().min_ttl) }
    }

    /// Whether every answer arrives, once and in time: not so under [`Chaos`].
    pub fn is_exact(&self) -> bool {
        self.weather.is_none()
    }

    /// How often to repeat something: fewer times when each takes long.
    pub fn rounds(&self, healthy: usize) -> usize {
        if self.is_exact() { healthy } else { healthy.div_ceil(3) }
    }

    /// Lets time pass in steps until it is there, at most this many brief leases.
    pub async fn held_within(&self, briefs: f64, asking: Asking) -> Guard {
        self.over_within(briefs, asking).await.held().await
    }

    /// Lets time pass in steps until there is an answer, at most this many brief leases.
    pub async fn over_within<T>(&self, briefs: f64, asking: Asking<T>) -> Asking<T> {
        let steps = 20;
        for _ in 0..steps {
            if asking.is_over() {
                break;
            }
            self.pass(briefs / f64::from(steps)).await;
            self.let_others_work().await;
        }
        asking
    }

    /// Where time stands still, other threads need some all the same: until all clients have done what is due by now.
    pub async fn let_others_work(&self) {
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

    /// Nobody is inside or waits any more, and all clients live: so no name they used is in use. Then all users leave, and
    /// still none is.
    pub(in crate::conformance) async fn assert_users_leave_nothing(&self) {
        let users = std::mem::take(&mut *self.users.lock().unwrap_or_else(PoisonError::into_inner));
        self.is_empty_soon(&users).await;
        for user in users.present.iter().filter(|user| !user.wire.is_cut()) {
            let stats = user.stats();
            assert_eq!((stats.held, stats.waiting), (0, 0), "it believes that somebody is there");
            let left = soon(user.shutdown(PATIENCE)).await;
            assert!(left.is_ok() || !self.is_exact(), "{left:?}");
        }
        self.is_empty_soon(&users).await;
    }

    async fn is_empty_soon(&self, users: &Users) {
        let somebody_died = users.wires.iter().any(|wire| wire.is_cut());
        let since = Clock::boot().now();
        for name in users.wires.iter().flat_map(|wire| wire.names()) {
            while let Some(left) = self.look(&name).await {
                if self.time() == Time::Real && left.queue.is_empty() && left.sealed_for.is_some() {
                    // A seal, which has an end and no owner. It is waited for where that costs no time.
                    break;
                }
                let (limit, has_an_end) = match self.is_exact() {
                    // The dead, and what lingers, are gone when their lease has ended; a dropped guard's release is on its way.
                    true => (PATIENCE, somebody_died || left.queue.iter().all(|entry| entry.lingers)),
                    false => (self.ttl() * 4, true),
                };
                assert!(spent(since) < limit, "left behind: {left:?}");
                if has_an_end {
                    self.pass(0.1).await;
                }
                self.let_others_work().await;
            }
        }
    }
}

/// The result, which comes soon or not at all.
pub(super) async fn soon<T>(work: impl Future<Output = T>) -> T {
    within(PATIENCE, work).await.expect("this takes no half minute")
}

/// Runs tasks side by side, on several threads, until all have ended.
pub(super) async fn together<T: Send + 'static>(
    tasks: impl IntoIterator<Item: Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let tasks: Vec<_> = tasks.into_iter().map(spawn).collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(soon(task.join()).await);
    }
    results
}

/// How long ago that was, on the machine's clock.
pub(super) fn spent(since: Moment) -> Duration {
    Clock::boot().now().since(since)
}
