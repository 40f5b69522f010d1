//! Steps that many tests take.

use std::sync::Arc;
use std::time::Duration;

use lockfast::store::{Change, Leaving, Standing, Why};
use lockfast::store::{Claim, Ticket};
use lockfast::{Guard, Locks, Mutex, Result};
use tokio::task::JoinHandle;

use crate::script::Director;

pub(crate) type Party = JoinHandle<Result<Guard>>;

pub(crate) const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A task that wants the lock.
pub(crate) fn wants(mutex: Mutex) -> Party {
    tokio::spawn(async move { mutex.lock().await })
}

/// What must come about, or the test fails.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(secs(60), work).await.expect("this comes about")
}

/// The guard that a task gets.
pub(crate) async fn entered(party: Party) -> Guard {
    soon(party).await.expect("the task ends by itself").expect("it gets the lock")
}

/// Lets the tasks run until so many of this client's parties wait.
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

/// The claim of the only departure, if its outcome was unknown.
pub(crate) fn unknown(leaving: &[Leaving]) -> Option<&Arc<Claim>> {
    match leaving {
        [Leaving::Unknown(claim)] => Some(claim),
        _ => None,
    }
}

/// The claim of the only departure, if it was an ordinary one.
pub(crate) fn done(leaving: &[Leaving]) -> Option<&Arc<Claim>> {
    match leaving {
        [Leaving::Done(claim)] => Some(claim),
        _ => None,
    }
}

/// Somebody in line for another name. Pushes are heard in order, and what the keeper decided is sent before it hears the
/// next one: so when the canary has entered, everything before its push has had its effect.
pub(crate) struct Canary {
    claim: Arc<Claim>,
    party: Party,
}

impl Canary {
    pub(crate) async fn perch(store: &mut Director) -> Self {
        let waiting = store.locks.stats().waiting;
        let party = wants(store.locks.mutex("canary").local_handoff(false));
        let claim = store.queue(1, secs(3600)).await;
        until_waiting(&store.locks, waiting + 1).await;
        Self { claim, party }
    }

    /// The guard is for the test to keep: dropped, it would ask the store for its release.
    pub(crate) async fn sings(self, store: &Director) -> Guard {
        store.push(Change::Held(self.claim.id.hash(), Ticket(1)));
        entered(self.party).await
    }
}
