//! Steps that many tests take.

use std::sync::Arc;
use std::time::Duration;

use lockfast::store::{Change, Leaving, Standing, Why};
use lockfast::store::{Claim, Ticket};
use lockfast::{Guard, Locks, Mutex, Result};
use tokio::task::JoinHandle;

use crate::script::Director;

/// A local acquisition on a task of its own.
pub(crate) type Request = JoinHandle<Result<Guard>>;

pub(crate) const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A task that requests the lock.
pub(crate) fn wants(mutex: Mutex) -> Request {
    tokio::spawn(async move { mutex.lock().await })
}

/// Awaits work that must end, or the test fails.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(secs(60), work).await.expect("this comes about")
}

/// The guard of a request that is granted.
pub(crate) async fn entered(request: Request) -> Guard {
    soon(request).await.expect("the task ends by itself").expect("it gets the lock")
}

/// Lets the tasks run until so many requests of this client wait.
pub(crate) async fn until_waiting(locks: &Locks, count: u64) {
    soon(async {
        while locks.stats().waiting != count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

pub(crate) fn is_same(one: &Arc<Claim>, other: &Arc<Claim>) -> bool {
    one.id.hash() == other.id.hash()
}

pub(crate) fn gone(count: usize) -> Vec<Standing> {
    vec![Standing::Gone(Why::Unknown); count]
}

pub(crate) fn waits(ticket: u64, recheck_in: Duration) -> Standing {
    Standing::Waiting { ticket: Ticket(ticket), recheck_in }
}

/// The claim of the only release, if the outcome of its acquire was unknown.
pub(crate) fn unknown(leaving: &[Leaving]) -> Option<&Arc<Claim>> {
    match leaving {
        [Leaving::Unknown(claim)] => Some(claim),
        _ => None,
    }
}

/// The claim of the only release, if it was an ordinary one.
pub(crate) fn done(leaving: &[Leaving]) -> Option<&Arc<Claim>> {
    match leaving {
        [Leaving::Done(claim)] => Some(claim),
        _ => None,
    }
}

/// A waiter for another name. The keeper takes pushes in order, and sends the effects of one before it takes the next: when the
/// barrier's request has entered, every push before its own has had its effect.
pub(crate) struct PushBarrier {
    claim: Arc<Claim>,
    request: Request,
}

impl PushBarrier {
    pub(crate) async fn join(store: &mut Director) -> Self {
        let waiting = store.locks.stats().waiting;
        let request = wants(store.locks.mutex("barrier").local_handoff(false));
        let claim = store.queue(1, secs(3600)).await;
        until_waiting(&store.locks, waiting + 1).await;
        Self { claim, request }
    }

    /// The test keeps the guard: a dropped guard would send a release.
    pub(crate) async fn pass(self, store: &Director) -> Guard {
        store.push(Change::Held(self.claim.id.hash(), Ticket(1)));
        entered(self.request).await
    }
}
