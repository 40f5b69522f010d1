//! The keeper: one thread, with a small runtime of its own, that renews, rejoins, releases, reports and decides "lost".
//! It goes on while the caller's runtime is blocked, and after it is gone.
//!
//! 1. Lost is decided here, on time, by the local clock; a failed renewal is unknown, not lost, and is tried again as long
//!    as there is time. Only the store's own word, or the deadline, ends a hold.
//! 2. It never waits for the store with its hands tied: what is with the store is a flight, and every deadline is on the
//!    wheel while its flight is in the air.
//! 3. Renewals go in batches of [`BATCH`]; waiting parties ask at most five times a second, whatever goes wrong.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{BoxStream, FuturesUnordered, StreamExt};

use crate::claim::Ticket;
use crate::clock::{Moment, Timer};
use crate::error::{Error, LostWhy, Result};
use crate::store::{Admission, Busy, Change, Lease, Report, Scope, Standing};

use super::Client;
use super::book::{Departure, backoff};
use super::due::{Renewal, Work};
use super::joining::Asking;
use super::slot::Callback;

/// How many renewals or releases go into one call.
pub(crate) const BATCH: usize = 282;
/// How long one call may take before the keeper stops waiting for it. The store has limits of its own; this is for those
/// that do not keep them.
const FLIGHT: Duration = Duration::from_secs(10);

/// What came back from the store.
pub(super) enum Landing {
    Renewed { renewals: Vec<Renewal>, leases: Vec<Lease>, sent: Moment, answer: Result<Vec<Standing>> },
    Joined { asked: Asking, stood: Option<Ticket>, answer: Result<Admission> },
    Released { departures: Vec<Departure>, sent: Moment, answer: Result<Vec<Standing>> },
    Reported { report: Report, answer: Result<()> },
}

thread_local! {
    static KEEPS: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is a keeper's own thread, which must not wait for locks: it is the one that hands them over.
pub(crate) fn is_keepers_thread() -> bool {
    KEEPS.get()
}

/// Ends the client when its keeper ends, also by a panic: nobody may wait for a keeper that is gone.
struct Ending(Arc<Client>);

impl Drop for Ending {
    fn drop(&mut self) {
        let callbacks = self.0.with_book(|book, now, out| {
            if book.closed.is_none() && !book.abandoned {
                book.closed = Some("its keeper's thread has panicked; connect again");
                book.close(now, out);
            }
            book.end()
        });
        // Order matters: whoever wakes up finds the client closed.
        self.0.alarms.end();
        call_back(callbacks);
        self.0.ended.notify_waiters();
    }
}

/// Starts the thread, and comes back when pushes are on their way: before anybody can ask for a lock.
pub(crate) fn start(client: &Arc<Client>) -> Result<()> {
    let failed = |error: std::io::Error| Error::unavailable("starting the keeper's thread", error);
    let (tell, told) = std::sync::mpsc::channel();
    let client = Arc::clone(client);
    let keep = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(async {
            KEEPS.set(true);
            let _ending = Ending(Arc::clone(&client));
            let pushes = client.store.watch(Scope::Client(client.id));
            let _ = tell.send(Ok(()));
            run(client, pushes).await;
        }),
        Err(error) => drop(tell.send(Err(error))),
    };
    std::thread::Builder::new().name("lockfast-keeper".to_owned()).spawn(keep).map_err(failed)?;
    match told.recv() {
        Ok(started) => started.map_err(failed),
        Err(_) => Err(Error::unavailable("starting the keeper's thread", "the store's watch panicked")),
    }
}

async fn run(client: Arc<Client>, mut pushes: BoxStream<'static, Change>) {
    let mut timer = Timer::new(client.clock.clone());
    let mut flights: FuturesUnordered<BoxFuture<'static, Landing>> = FuturesUnordered::new();
    let mut watch_again_at = Moment::NEVER;
    loop {
        let mut work = client.with_book(|book, now, out| book.due(now, watch_again_at, out));
        // Order matters: who is woken need not wait for what others do when they are called back.
        let next = client.alarms.due(client.clock.now(), work.next);
        call_back(std::mem::take(&mut work.callbacks));
        if work.is_over && flights.is_empty() {
            return;
        }
        launch(&client, work, &flights);
        if client.clock.now() >= watch_again_at {
            let watch = || client.store.watch(Scope::Client(client.id));
            pushes = catch_unwind(AssertUnwindSafe(watch)).unwrap_or_else(|_| futures::stream::empty().boxed());
            watch_again_at = Moment::NEVER;
            client.with_book(|book, _, out| book.resync(out));
            continue;
        }
        tokio::select! {
            biased;
            Some(landing) = flights.next() => client.with_book(|book, now, out| book.landed(landing, now, out)),
            // A panic in somebody's store ends its pushes, not everybody's renewals.
            change = AssertUnwindSafe(pushes.next()).catch_unwind() => match change.unwrap_or_default() {
                Some(change) => client.with_book(|book, now, out| book.push(&change, now, out)),
                None => {
                    pushes = futures::stream::pending().boxed();
                    watch_again_at = client.clock.now() + backoff(1);
                }
            },
            () = client.bell.notified() => {}
            () = timer.sleep_until(next) => {}
        }
    }
}

fn call_back(callbacks: Vec<(Callback, LostWhy)>) {
    for (callback, why) in callbacks {
        // A panic in somebody's callback must not take everybody's renewals with it.
        let _ = catch_unwind(AssertUnwindSafe(|| callback(why)));
    }
}

fn launch(client: &Arc<Client>, work: Work, flights: &FuturesUnordered<BoxFuture<'static, Landing>>) {
    let sent = client.clock.now();
    for (renewals, leases) in chunks(work.renewals).zip(chunks(work.leases)) {
        let client = Arc::clone(client);
        flights.push(Box::pin(async move {
            // Dropping a call that takes too long leaves time to try again before the lease ends.
            let shortest = leases.iter().map(|lease| lease.claim.ttl).min().unwrap_or(FLIGHT);
            let answer = in_time(shortest / 4, client.store.renew(&leases)).await;
            let names = || leases.iter().flat_map(|lease| lease.claim.demands.iter()).map(|demand| &demand.name);
            let answer = answer.map_err(|error| client.in_written_names(error, names()));
            Landing::Renewed { renewals, leases, sent, answer }
        }));
    }
    for (asked, stood) in work.joins {
        let client = Arc::clone(client);
        flights.push(Box::pin(async move {
            let answer = in_time(FLIGHT, client.store.acquire(&asked.claim, Busy::Wait)).await;
            let answer = answer.map_err(|error| client.explain(error, "asking for", &asked.claim.demands));
            Landing::Joined { asked, stood, answer }
        }));
    }
    let (alone, together): (Vec<_>, Vec<_>) = work.departures.into_iter().partition(|departure| departure.alone);
    for departures in alone.into_iter().map(|departure| vec![departure]).chain(chunks(together)) {
        let client = Arc::clone(client);
        flights.push(Box::pin(async move {
            let batch: Vec<_> = departures.iter().map(|departure| departure.leaving.clone()).collect();
            let answer = in_time(FLIGHT, Box::pin(client.release(&batch))).await;
            Landing::Released { departures, sent, answer }
        }));
    }
    if let Some(report) = work.report {
        let client = Arc::clone(client);
        flights.push(Box::pin(async move {
            let answer = in_time(FLIGHT, client.store.record(&report)).await;
            Landing::Reported { report, answer }
        }));
    }
}

async fn in_time<T>(limit: Duration, call: Pin<Box<dyn Future<Output = Result<T>> + Send + '_>>) -> Result<T> {
    let limit = limit.clamp(Duration::from_millis(100), FLIGHT);
    match tokio::time::timeout(limit, AssertUnwindSafe(call).catch_unwind()).await {
        Ok(Ok(answer)) => answer,
        // A panic in somebody's store must not take the renewals of everything else with it.
        Ok(Err(_)) => Err(Error::unavailable("asking the store", "it panicked")),
        Err(_) => Err(Error::unavailable("waiting for the store's answer", format!("none in {limit:?}"))),
    }
}

fn chunks<T>(all: Vec<T>) -> impl Iterator<Item = Vec<T>> {
    let mut all = all.into_iter().peekable();
    std::iter::from_fn(move || {
        all.peek()?;
        Some(all.by_ref().take(BATCH).collect())
    })
}
