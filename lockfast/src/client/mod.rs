//! Drives the engine for one client: futures, guards, the keeper's thread, calls to the store, events. `engine/` decides what
//! happens to a request; this module carries out the effects.
//!
//! ```text
//!  primitives ──terms──▶ acquire ──acquire──▶ store             caller's task, hot path
//!      ▲                    │ waits until it is woken
//!    guard ◀──Enter──── carry: engine ◀──pushes, answers── keeper ──renew/acquire/release/record──▶ store
//!      └──release──────────▶┘                                   keeper's thread
//! ```
//!
//! | file | owns |
//! |---|---|
//! | `carry`, `wakers` | the mutex around the engine, its effects; the wakers of waiting futures |
//! | `acquire` | requests that do not hold yet, and the only loop that waits |
//! | `guard`, `lost`, `detached` | held locks, waiting for their loss, tokens |
//! | `release`, `release_call` | a release in flight and what its caller gets; the call that it makes |
//! | `repeat` | calls to the store without an answer, sent again |
//! | `keeper`, `alarm` | the client's thread; timers of callers |
//! | `options`, `explain` | settings; errors with the names that callers wrote |
//! | `events`, `recorder` | events; the engine's inputs in a file |

mod acquire;
mod alarm;
mod carry;
mod detached;
mod events;
mod explain;
mod guard;
mod keeper;
mod lost;
mod options;
#[cfg(feature = "record")]
mod recorder;
mod release;
mod release_call;
mod repeat;
mod wakers;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::claim::{ClientId, Demands, Note};
use crate::clock::Clock;
use crate::engine::{Closing, Input, Next, UNAVAILABLE_AFTER};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::store::{BusyWith, Guarantees, Store};

pub(crate) use acquire::{Attempt, Entered, MAX_ENTRIES_READ, acquire, attempt};
use alarm::Alarms;
use carry::Carrier;
pub(crate) use keeper::is_keeper_thread;
pub(crate) use options::{LONGEST_HOLD, Options, Renewal};
use repeat::Repeats;

pub(crate) use crate::engine::{MAX_REPEATS, Span, Terms, Validity};
pub use crate::engine::{Percentiles, Stats};
pub(crate) use crate::event::TraceId;
pub use events::Events;
pub(crate) use events::Sender;
pub use guard::Guard;
pub use options::Retry;

/// One client of one store. Guards and waiting futures keep it alive, and with it the keeper.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    pub(crate) id: ClientId,
    pub(crate) guarantees: Guarantees,
    pub(crate) prefix: String,
    pub(crate) defaults: Arc<Options>,
    pub(crate) note: Arc<Note>,
    pub(crate) events: Sender,
    carrier: Mutex<Carrier>,
    releases: Releases,
    alarms: Alarms,
    keeper_wakeup: Notify,
    ended: Notify,
    forks: forkguard::Guard,
}

/// What users hold: while one exists, locks can be requested.
#[derive(Debug)]
pub(crate) struct Handle(pub(crate) Arc<Client>);

impl Drop for Handle {
    fn drop(&mut self) {
        if self.0.is_same_process() {
            self.0.with_carrier(|carrier, _| {
                carrier.is_abandoned = true;
                carrier.wake_keeper();
            });
        }
    }
}

impl Client {
    /// `record`: the file in which the engine's inputs are recorded.
    #[cfg_attr(not(feature = "record"), expect(unused_variables, unused_mut, reason = "used only by the recorder"))]
    pub(crate) fn start(
        store: Arc<dyn Store>,
        clock: Clock,
        prefix: String,
        defaults: Options,
        note: Note,
        record: Option<PathBuf>,
    ) -> Result<Handle> {
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(|error| Error::unavailable("drawing a client id", error))?;
        let id = ClientId(u64::from_le_bytes(id));
        let forks = forkguard::Guard::try_new().map_err(|error| Error::unavailable("preparing for forks", error))?;
        let seed = fastrand::u64(..);
        let mut carrier = Carrier::new(id, seed);
        #[cfg(feature = "record")]
        if let Some(file) = record {
            carrier.record(recorder::Recorder::start(file, id, seed, clock.now())?);
        }
        let client = Arc::new(Self {
            guarantees: store.guarantees(),
            releases: Releases::default(),
            carrier: Mutex::new(carrier),
            events: Sender::new(clock.clone()),
            alarms: Alarms::new(),
            store,
            clock,
            id,
            prefix,
            defaults: Arc::new(defaults),
            note: Arc::new(note),
            keeper_wakeup: Notify::new(),
            ended: Notify::new(),
            forks,
        });
        // Order matters: the subscription exists before any caller can request a lock.
        keeper::start(&client)?;
        Ok(Handle(client))
    }

    /// Whether this is the process that made the client. A fork has no keeper's thread, and two processes with one client would
    /// share claims: the child must neither request locks nor release those of its parent.
    fn is_same_process(&self) -> bool {
        // Of a copy, since the guard reports a fork only once. Reading the process id from the kernel would cost more than all else
        // here.
        !self.forks.clone().detected_fork()
    }

    pub(crate) fn check_usable(&self) -> Result<()> {
        match self.is_same_process() {
            true => Ok(()),
            false => Err(Error::Closed("it was made before a fork, by another process; connect again in this one")),
        }
    }

    pub(crate) fn name(&self, text: &str) -> Result<Name> {
        Name::prefixed(&self.prefix, text)
    }

    /// The error of a request that gave up. `position` is for requests that waited in the queue.
    pub(crate) fn busy(
        &self,
        demands: &Demands,
        busy: BusyWith,
        position: Option<usize>,
        waited: Duration,
        attempts: u32,
    ) -> Error {
        Error::Busy {
            name: self.title(demands),
            holder: busy.holder.map(Box::new),
            held_for: busy.held_for,
            position,
            waited,
            attempts,
        }
    }

    /// Ends the client: waiters fail, held locks are released, and new requests are refused. Returns once the store has answered all
    /// releases, or after `timeout`.
    pub(crate) async fn shutdown(&self, timeout: Duration) -> Result<()> {
        self.check_usable()?;
        let ended = self.ended.notified();
        let mut ended = std::pin::pin!(ended);
        ended.as_mut().enable();
        let (now, is_over) = self.with_carrier(|carrier, now| {
            carrier.tell(Input::Close(Closing::ShutDown), now);
            (now, carrier.is_unattended)
        });
        // Order matters: `ended` listens before `is_unattended` is read, or an end between the two would be missed.
        if !is_over {
            self.within(now, now + timeout, ended).await;
        }
        match self.with_carrier(|carrier, _| carrier.is_unattended) {
            true => Ok(()),
            false => Err(Error::unavailable(
                "shutting down",
                format!("not everything could be released in {timeout:?}; leases end by themselves"),
            )),
        }
    }

    /// Whether it was shut down.
    pub(crate) fn is_closed(&self) -> bool {
        self.with_carrier(|carrier, _| carrier.engine().closed().is_some())
    }

    /// Whether the keeper has done all that is due by now, as far as the engine knows.
    #[cfg(feature = "conformance")]
    pub(crate) fn is_settled(&self) -> bool {
        self.with_carrier(|carrier, now| carrier.is_unattended || carrier.engine().is_settled(now))
    }

    pub(crate) fn stats(&self) -> Stats {
        self.with_carrier(|carrier, _| carrier.engine().stats())
    }

    /// Sends the counters to the store now, instead of within a second.
    pub(crate) async fn report_now(&self) -> Result<()> {
        self.check_usable()?;
        let Next::Report(report) = self.tell(Input::ReportNow) else { return Ok(()) };
        let now = self.clock.now();
        // A repeat may count a report twice; so may the keeper's next report.
        let reply = self.ask(Repeats::of(now), now + UNAVAILABLE_AFTER, || self.store.record(&report)).await;
        self.tell(Input::Reported { report: *report, is_ok: reply.answer.is_ok() });
        reply.answer.map_err(|error| self.explain_as(error, || "reporting".to_owned(), std::iter::empty()))
    }
}

/// Counts the releases that callers have in flight. The keeper may have to repeat one, so it runs until there are none. Atomics
/// beside the engine's mutex, since every release counts here, and nearly none needs anything else.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    in_flight: AtomicUsize,
    /// The keeper ends when there are none.
    is_awaited: AtomicBool,
}

impl Releases {
    fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether the keeper has to be notified.
    #[must_use]
    fn end(&self) -> bool {
        // Order matters, here and in `await_last`: each writes its own variable before it reads the other's, so at least one of the
        // two sees the other's write.
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        self.is_awaited.load(Ordering::SeqCst)
    }

    /// Whether the last release has ended; one that ends later notifies the keeper.
    fn await_last(&self) -> bool {
        self.is_awaited.store(true, Ordering::SeqCst);
        self.in_flight.load(Ordering::SeqCst) == 0
    }
}
