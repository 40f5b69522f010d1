//! The keeper (watchdog): one thread, with a small runtime of its own, that gives the engine time, pushes and answers as inputs, and
//! sends the calls that the engine wants. It works while the caller's runtime is blocked, and after that runtime has ended.
//!
//! 1. The engine decides *lost* by the local clock, and this thread gives it the time at every deadline. A failed renewal is
//!    unknown, not lost, and is tried again as long as there is time. Only the store's answer, or the deadline, ends a hold.
//! 2. It never blocks on the store: calls in flight are concurrent futures, and every deadline is kept meanwhile.
//! 3. Renewals and releases go in batches of [`MAX_BATCH`]; waiters poll at most five times a second, whatever goes wrong.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{BoxStream, FuturesUnordered, StreamExt};

use crate::clock::{Moment, Timer};
use crate::engine::{Closing, Effect, Input, Next, jittered};
use crate::error::{Error, LostWhy, Result};
use crate::store::{Busy, Change, Lease, Scope};

use super::Client;
use super::carry::Callback;

/// How many renewals or releases go into one call: three full runs of the Redis store's script, which has at most 94 names
/// (`MAX_NAMES_PER_RUN`), if each claim has one name.
pub(crate) const MAX_BATCH: usize = 282;
/// The keeper abandons a call after this long. A store times out by itself sooner; this guards against one that does not.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

thread_local! {
    /// Whether this thread is the keeper of a client.
    static IS_KEEPER_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is the keeper of a client. Such a thread must not wait for locks, since it delivers them.
pub(crate) fn is_keeper_thread() -> bool {
    IS_KEEPER_THREAD.get()
}

/// Dropped when the keeper ends, also by a panic, and ends the client then: no future may wait for a keeper that has ended.
struct ClientEnd(Arc<Client>);

impl Drop for ClientEnd {
    fn drop(&mut self) {
        let (_, callbacks) = self.0.with_carrier(|carrier, now| {
            if !carrier.is_abandoned && carrier.engine().closed().is_none() {
                carrier.tell(Input::Close(Closing::KeeperPanicked), now);
            }
            carrier.is_unattended = true;
            // `is_unattended` stops new callbacks: these are the last.
            carrier.take_work()
        });
        // Order matters: the client is closed before its futures are woken.
        self.0.alarms.end();
        call_back(callbacks);
        self.0.ended.notify_waiters();
    }
}

/// Starts the thread, and returns once the subscription exists: before any caller can request a lock.
pub(crate) fn start(client: &Arc<Client>) -> Result<()> {
    let failed = |error: std::io::Error| Error::unavailable("starting the keeper's thread", error);
    let (sender, started) = std::sync::mpsc::channel();
    let client = Arc::clone(client);
    let keep = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(async {
            IS_KEEPER_THREAD.set(true);
            let _end = ClientEnd(Arc::clone(&client));
            let pushes = client.store.watch(Scope::Client(client.id));
            let _ = sender.send(Ok(()));
            run(client, pushes).await;
        }),
        Err(error) => drop(sender.send(Err(error))),
    };
    std::thread::Builder::new().name("lockfast-keeper".to_owned()).spawn(keep).map_err(failed)?;
    match started.recv() {
        Ok(result) => result.map_err(failed),
        Err(_) => Err(Error::unavailable("starting the keeper's thread", "the store's watch panicked")),
    }
}

async fn run(client: Arc<Client>, mut pushes: BoxStream<'static, Change>) {
    let mut timer = Timer::new(client.clock.clone());
    let mut in_flight: FuturesUnordered<BoxFuture<'static, Input>> = FuturesUnordered::new();
    let mut watch_again_at = Moment::NEVER;
    loop {
        let (next, (calls, callbacks), is_over) = client.with_carrier(|carrier, now| {
            let next = match carrier.tell(Input::Elapsed, now) {
                Next::At(next) => next.min(watch_again_at),
                _ => now,
            };
            let work = carrier.take_work();
            // Order matters: a release that leaves work behind gives it to the engine before it ends, so `await_last` comes before
            // `is_idle`. And it is called even if the engine is not idle: if the last request ends with a release, that release
            // has to notify the keeper.
            let is_ending = carrier.is_abandoned || carrier.engine().closed().is_some();
            let has_no_release = is_ending && client.releases.await_last();
            let is_over = has_no_release && carrier.engine().is_idle() && work.0.is_empty();
            (next, work, is_over)
        });
        // Order matters: futures are woken first, so that they do not wait for callbacks.
        let next = client.alarms.due(client.clock.now(), next);
        call_back(callbacks);
        if is_over && in_flight.is_empty() {
            return;
        }
        send(&client, calls, &in_flight);
        if client.clock.now() >= watch_again_at {
            let watch = || client.store.watch(Scope::Client(client.id));
            pushes = catch_unwind(AssertUnwindSafe(watch)).unwrap_or_else(|_| futures::stream::empty().boxed());
            watch_again_at = Moment::NEVER;
            client.tell(Input::Pushed(Change::Resync));
            continue;
        }
        tokio::select! {
            biased;
            Some(answer) = in_flight.next() => drop(client.tell(answer)),
            // A panic in a foreign store ends its subscription, not the renewals.
            change = AssertUnwindSafe(pushes.next()).catch_unwind() => match change.unwrap_or_default() {
                Some(change) => drop(client.tell(Input::Pushed(change))),
                None => {
                    pushes = futures::stream::pending().boxed();
                    watch_again_at = client.clock.now() + jittered(1, fastrand::f64());
                }
            },
            () = client.keeper_wakeup.notified() => {}
            () = timer.sleep_until(next) => {}
        }
    }
}

fn call_back(callbacks: Vec<(Callback, LostWhy)>) {
    for (callback, why) in callbacks {
        // A panic in a foreign callback must not end the renewals.
        let _ = catch_unwind(AssertUnwindSafe(|| callback(why)));
    }
}

/// Sends the engine's calls; renewals and releases in batches.
fn send(client: &Arc<Client>, calls: Vec<Effect>, in_flight: &FuturesUnordered<BoxFuture<'static, Input>>) {
    let sent = client.clock.now();
    let (mut renewals, mut acquires, mut releases, mut reports) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for call in calls {
        match call {
            Effect::Renew(renewal) => renewals.push(renewal),
            Effect::Acquire(asked, stood) => acquires.push((asked, stood)),
            Effect::Release(release) => releases.push(*release),
            Effect::Record(report) => reports.push(report),
            Effect::Wake(_) | Effect::Trust { .. } | Effect::Lost { .. } | Effect::Emit(_) | Effect::Tell(..) => {}
        }
    }
    for renewals in chunks(renewals) {
        let client = Arc::clone(client);
        let leases: Vec<_> =
            renewals.iter().map(|renewal| Lease { claim: Arc::clone(&renewal.claim), ttl: renewal.ttl }).collect();
        in_flight.push(Box::pin(async move {
            // A slow call is dropped after a quarter of the lease: there is time to try again before the lease ends.
            let shortest = leases.iter().map(|lease| lease.claim.ttl).min().unwrap_or(CALL_TIMEOUT);
            let answer = with_timeout(shortest / 4, client.store.renew(&leases)).await;
            let names = || leases.iter().flat_map(|lease| lease.claim.demands.iter()).map(|demand| &demand.name);
            let answer = answer.map_err(|error| client.in_written_names(error, names()));
            Input::Renewed { renewals, sent, answer }
        }));
    }
    // Order matters: renewals are sent before acquires. Many acquires keep a store busy, and leases would end meanwhile.
    for (asked, stood) in acquires {
        let client = Arc::clone(client);
        in_flight.push(Box::pin(async move {
            let answer = with_timeout(CALL_TIMEOUT, client.store.acquire(&asked.claim, Busy::Wait)).await;
            let answer = answer.map_err(|error| client.explain(error, "asking for", &asked.claim.demands));
            Input::Joined { asked, stood, answer }
        }));
    }
    let (alone, together): (Vec<_>, Vec<_>) = releases.into_iter().partition(|release| release.alone);
    for releases in alone.into_iter().map(|release| vec![release]).chain(chunks(together)) {
        let client = Arc::clone(client);
        in_flight.push(Box::pin(async move {
            let batch: Vec<_> = releases.iter().map(|release| release.leaving.clone()).collect();
            let answer = with_timeout(CALL_TIMEOUT, Box::pin(client.release(&batch))).await;
            Input::Released { releases, sent, answer }
        }));
    }
    for report in reports {
        let client = Arc::clone(client);
        in_flight.push(Box::pin(async move {
            let is_ok = with_timeout(CALL_TIMEOUT, client.store.record(&report)).await.is_ok();
            Input::Reported { report: *report, is_ok }
        }));
    }
}

async fn with_timeout<T>(limit: Duration, call: Pin<Box<dyn Future<Output = Result<T>> + Send + '_>>) -> Result<T> {
    let limit = limit.clamp(Duration::from_millis(100), CALL_TIMEOUT);
    match tokio::time::timeout(limit, AssertUnwindSafe(call).catch_unwind()).await {
        Ok(Ok(answer)) => answer,
        // A panic in a foreign store must not end the renewals of other locks.
        Ok(Err(_)) => Err(Error::unavailable("asking the store", "it panicked")),
        Err(_) => Err(Error::unavailable("waiting for the store's answer", format!("none in {limit:?}"))),
    }
}

fn chunks<T>(all: Vec<T>) -> impl Iterator<Item = Vec<T>> {
    let mut all = all.into_iter().peekable();
    std::iter::from_fn(move || {
        all.peek()?;
        Some(all.by_ref().take(MAX_BATCH).collect())
    })
}
