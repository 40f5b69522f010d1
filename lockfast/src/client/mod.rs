//! Drives the engine for one client: futures, guards, the keeper's thread, calls to the store, events. What happens to a
//! request is decided in `engine/`; here its effects are carried out.
//!
//! ```text
//!  primitives ──terms──▶ acquire ──acquire──▶ store             caller's task, hot path
//!      ▲                    │ waits until it is woken
//!    guard ◀──Enter──── carry: engine ◀──pushes, answers── keeper ──renew/acquire/release/record──▶ store
//!      └──release──────────▶┘                                   keeper's thread
//! ```
//!
//! `carry` is the way to the engine, `wakers` the futures that wait; `acquire` the loop that waits, `release` a release in
//! flight and what its caller is told, `releasing` the call that it makes; `repeat` requests without an answer, sent again;
//! `keeper` the thread; `guard`, `lost` and `detached` what a holder has; `alarm` sleeping for callers; `explain` errors with the
//! names that callers wrote; `options` and `events` what callers choose, and what people see; `recorder` what the engine is told,
//! in a file.

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
mod releasing;
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

pub(crate) use acquire::{Attempt, Entered, FRONT, acquire, attempt};
use alarm::Alarms;
use carry::Carrier;
pub(crate) use keeper::is_keepers_thread;
pub(crate) use options::{LONGEST_HOLD, Options, Renewal};
use repeat::Repeats;

pub(crate) use crate::engine::{MOST_REPEATS, Span, Terms, Validity};
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
    bell: Notify,
    ended: Notify,
    forks: forkguard::Guard,
}

/// What users hold: while one exists, locks can be asked for.
#[derive(Debug)]
pub(crate) struct Handle(pub(crate) Arc<Client>);

impl Drop for Handle {
    fn drop(&mut self) {
        if self.0.is_at_home() {
            self.0.with_engine(|carrier, _| {
                carrier.is_abandoned = true;
                carrier.wake_keeper();
            });
        }
    }
}

impl Client {
    /// `record`: the file in which it is recorded what the engine is told.
    #[cfg_attr(not(feature = "record"), expect(unused_variables, unused_mut, reason = "there is nothing to record"))]
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
            bell: Notify::new(),
            ended: Notify::new(),
            forks,
        });
        // Order matters: the pushes are there before any caller can ask for a lock.
        keeper::start(&client)?;
        Ok(Handle(client))
    }

    /// Whether this is the process that made it. The keeper's thread does not follow into a forked one, and two processes
    /// with one client would share claims: the child must neither ask for locks nor give back its parent's.
    fn is_at_home(&self) -> bool {
        // Of a copy, since the answer has to stay the same. Asking the kernel for the process id would cost more than all else here.
        !self.forks.clone().detected_fork()
    }

    pub(crate) fn check_usable(&self) -> Result<()> {
        match self.is_at_home() {
            true => Ok(()),
            false => Err(Error::Closed("it was made before a fork, by another process; connect again in this one")),
        }
    }

    pub(crate) fn name(&self, text: &str) -> Result<Name> {
        Name::prefixed(&self.prefix, text)
    }

    /// `position` is for requests that were in the queue.
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

    /// Ends everything: waiters are told, what is held is given back, and no request is admitted any more. Comes back when
    /// the store has heard of it all, or after `timeout`.
    pub(crate) async fn shutdown(&self, timeout: Duration) -> Result<()> {
        self.check_usable()?;
        let ended = self.ended.notified();
        let mut ended = std::pin::pin!(ended);
        ended.as_mut().enable();
        let (now, is_over) = self.with_engine(|carrier, now| {
            carrier.tell(Input::Close(Closing::ShutDown), now);
            (now, carrier.is_unattended)
        });
        // Order matters: whether the end was told before is known only after listening for it.
        if !is_over {
            self.within(now, now + timeout, ended).await;
        }
        match self.with_engine(|carrier, _| carrier.is_unattended) {
            true => Ok(()),
            false => Err(Error::unavailable(
                "shutting down",
                format!("not everything could be given back in {timeout:?}; leases end by themselves"),
            )),
        }
    }

    /// Whether it was shut down.
    pub(crate) fn is_closed(&self) -> bool {
        self.with_engine(|carrier, _| carrier.engine().closed().is_some())
    }

    /// Whether the keeper has done all that is due by now, as far as the engine knows.
    #[cfg(feature = "conformance")]
    pub(crate) fn is_settled(&self) -> bool {
        self.with_engine(|carrier, now| carrier.is_unattended || carrier.engine().is_settled(now))
    }

    pub(crate) fn stats(&self) -> Stats {
        self.with_engine(|carrier, _| carrier.engine().stats())
    }

    /// Tells the store the counters now, instead of within a second.
    pub(crate) async fn report_now(&self) -> Result<()> {
        self.check_usable()?;
        let Next::Report(report) = self.tell(Input::ReportNow) else { return Ok(()) };
        let now = self.clock.now();
        // A report that was counted twice is no worse than one that the keeper sends again.
        let told = self.ask(Repeats::of(now), now + UNAVAILABLE_AFTER, || self.store.record(&report)).await;
        self.tell(Input::Reported { report: *report, is_ok: told.answer.is_ok() });
        told.answer.map_err(|error| self.explain_as(error, || "reporting".to_owned(), std::iter::empty()))
    }
}

/// Releases that callers have in flight. What comes of them may be the keeper's to repeat, so it stays as long as there are any.
/// Apart from the engine, since every release ends here, and seldom with anything more to do.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    in_flight: AtomicUsize,
    /// The keeper leaves when there are none.
    is_awaited: AtomicBool,
}

impl Releases {
    fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether the keeper has to be told.
    #[must_use]
    fn end(&self) -> bool {
        // Order matters, here and where it is awaited: one of the two sees what the other has done.
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        self.is_awaited.load(Ordering::SeqCst)
    }

    /// Whether the last has ended; one that ends later says so.
    fn await_last(&self) -> bool {
        self.is_awaited.store(true, Ordering::SeqCst);
        self.in_flight.load(Ordering::SeqCst) == 0
    }
}
