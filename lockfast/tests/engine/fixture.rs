//! Fixtures on a scripted store: a held lock, a waiter, a keeper that has nothing left to do, and a keeper that is stopped.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use lockfast::store::{Admission, Change, Leaving, Standing};
use lockfast::store::{Claim, Ticket, Tickets};
use lockfast::{Guard, LostWhy, Mutex};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::script::{Call, Director};
use crate::steps::{PushBarrier, done};

/// The lease most tests use.
pub(crate) const TTL: Duration = Duration::from_secs(30);
/// How long it is valid here: less a hundredth, less two milliseconds.
pub(crate) const VALID: Duration = Duration::from_millis(29_698);
/// A recheck that never comes in a test.
pub(crate) const NEVER: Duration = Duration::from_secs(100_000);
/// Deadlines are seen to within about a millisecond.
pub(crate) const GRAIN: Duration = Duration::from_millis(2);

/// Awaits work that must end; only a failing test waits for long.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), work).await.expect("it happens soon")
}

/// Runs a test that must not block or deadlock on a thread of its own: if it does, the test fails instead of hanging.
pub(crate) fn must_not_block(test: impl Future<Output = ()> + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test);
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(10)).expect("it neither blocks nor fails");
}

/// Locks, granted at once.
pub(crate) async fn hold(store: &mut Director, mutex: &Mutex, ticket: u64) -> (Guard, Arc<Claim>) {
    let (guard, claim) = tokio::join!(mutex.lock(), store.grant(ticket));
    (guard.unwrap(), claim)
}

/// A request that waits in the queue with this ticket.
pub(crate) async fn wait(
    store: &mut Director,
    mutex: Mutex,
    ticket: u64,
) -> (JoinHandle<lockfast::Result<Guard>>, Arc<Claim>) {
    let waiting = store.locks.stats().waiting;
    let waiter = tokio::spawn(async move { mutex.lock().await });
    let claim = store.queue(ticket, NEVER).await;
    until(|| store.locks.stats().waiting > waiting).await;
    (waiter, claim)
}

/// Waits for the effect of another task or thread.
pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    soon(async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Answers the next renewal: all of them hold, with this ticket.
pub(crate) async fn renewed(store: &mut Director, ticket: u64) {
    let (leases, answer) = store.renew().await;
    answer.give(vec![Standing::Held(Tickets::new(Ticket(ticket), 1)); leases.len()]);
}

/// The release of one claim and the acquire of the next, in either order; the latter is granted.
pub(crate) async fn released_and_asked_anew(store: &mut Director, first: &Claim, ticket: u64) -> Arc<Claim> {
    let (mut left, mut second) = (false, None);
    while !left || second.is_none() {
        match store.call().await {
            Call::Acquire { claim, answer, .. } => {
                answer.give(Admission::Held(Tickets::new(Ticket(ticket), claim.block)));
                second = Some(claim);
            }
            Call::Release { leaving, .. } => {
                left |= matches!(
                    &leaving[..],
                    [Leaving::Done(gone) | Leaving::Unknown(gone)] if gone.id.hash() == first.id.hash()
                );
            }
            // The keeper asks about an acquire that takes long.
            Call::Renew { leases, .. } if leases.iter().all(|lease| lease.ttl.is_zero()) => {}
            other => panic!("expected a release and an acquire, got {other:?}"),
        }
    }
    second.unwrap()
}

/// Waits until the keeper has done all that is due now, and returns its calls meanwhile. The keeper sends releases last, so a
/// release that begins now arrives after everything else that is due.
pub(crate) async fn settle(store: &mut Director) -> Vec<Call> {
    let mutex = store.locks.mutex("settle").local_handoff(false);
    let taken = tokio::spawn(async move { mutex.lock().await });
    let mut calls = Vec::new();
    let mine = loop {
        match store.call().await {
            Call::Acquire { claim, answer, .. } if claim.demands[0].name.as_str() == "lock:settle" => {
                answer.give(Admission::Held(Tickets::new(Ticket(1), 1)));
                break claim;
            }
            other => calls.push(other),
        }
    };
    drop(taken.await.unwrap().unwrap());
    loop {
        match store.call().await {
            Call::Release { leaving, answer } if format!("{leaving:?}").contains(&mine.id.hash().to_string()) => {
                answer.give(vec![Standing::Gone(lockfast::store::Why::Left); leaving.len()]);
                assert_eq!(leaving.len(), 1, "nothing else leaves meanwhile");
                return calls;
            }
            other => calls.push(other),
        }
    }
}

/// Resolves when the keeper has run a guard's callback.
pub(crate) fn on_lost(guard: &Guard) -> oneshot::Receiver<LostWhy> {
    let (call, called) = oneshot::channel();
    guard.on_lost(move |why| call.send(why).unwrap());
    called
}

/// Sends a push that makes the keeper ask nothing, and waits until the keeper has handled it.
pub(crate) async fn push(store: &mut Director, change: Change) {
    let barrier = PushBarrier::join(store).await;
    store.push(change);
    drop(barrier.pass(store).await);
    // A call caused by the push would have come before this release.
    let left = store.let_go().await;
    assert!(done(&left).is_some_and(|claim| claim.demands[0].name.as_str() == "lock:barrier"), "{left:?}");
}

/// A keeper that is stopped until [`Stopped::go_on`].
pub(crate) struct Stopped {
    guard: Guard,
    gate: mpsc::Sender<()>,
}

impl Stopped {
    /// Returns the guard that stopped the keeper, so that the test decides when it is released.
    pub(crate) fn go_on(self) -> Guard {
        drop(self.gate);
        self.guard
    }
}

/// Stops the keeper by a callback that does not return. Moves the clock on by [`GRAIN`].
pub(crate) async fn stop_keeper(store: &mut Director) -> Stopped {
    let mutex = store.locks.mutex("stop").hold_at_most(Duration::from_nanos(1));
    let (guard, _) = hold(store, &mutex, 1).await;
    let (gate, opened) = mpsc::channel::<()>();
    let (stopped, is_stopped) = oneshot::channel();
    guard.on_lost(move |_| {
        let _ = stopped.send(());
        let _ = opened.recv();
    });
    store.manual_clock.advance(GRAIN);
    soon(is_stopped).await.unwrap();
    Stopped { guard, gate }
}
