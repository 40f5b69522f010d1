//! The client engine: everything hard, once, for all primitives and all stores.
//!
//! ```text
//!  primitives ──ask──▶ admit ──acquire──▶ store            caller's task, hot path
//!      ▲                 │ waits on its slot
//!    guard ◀──enter──── book ◀── wakes ◀── pushes ┐
//!      │                 ▲  └── turn: local hand-over
//!      └──give back──────┘                        │        keeper's thread
//!                      keeper: due ──renew/join/release/record──▶ store
//!                              landing ◀──answers──┘
//! ```
//!
//! `slot` is one party, `slots` all of them and the wheel that says when to look at each, `lease` the local clock's verdict,
//! `joining` the way from asking to holding, `departing` a release on its way, `overdue` releases that the keeper repeats, `repeat` other requests without an answer, `explain` errors with the names that callers wrote, `alarm` sleeping for callers, `lost` waiting for a loss, `detached` locks that no process keeps, `report`, `stats` and `telling` what people get to see.

mod admit;
mod alarm;
mod book;
mod departing;
mod detached;
mod due;
mod explain;
mod guard;
mod joining;
mod keeper;
mod landing;
mod lease;
mod lost;
mod options;
mod overdue;
mod repeat;
mod report;
mod slot;
mod slots;
mod stats;
mod telling;
mod turn;
mod wakes;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::claim::{ClientId, Demands, Note};
use crate::clock::{Clock, Moment};
use crate::error::{Error, LostWhy, Result};
use crate::name::Name;
use crate::store::{BusyWith, Guarantees, Store};

pub(crate) use admit::{Attempt, Entered, FRONT, admit, attempt};
use alarm::Alarms;
use book::{Book, Outbox, Releases};
pub(crate) use keeper::is_keepers_thread;
pub(crate) use lease::Validity;
pub(crate) use options::{LONGEST_HOLD, Options, Renewal};
pub(crate) use repeat::MOST as MOST_REPEATS;
use repeat::Repeats;
use slot::{Callback, Phase};
pub(crate) use slot::{Request, Span};
pub(crate) use telling::Telling;

pub(crate) use crate::event::TraceId;
pub use guard::Guard;
pub use options::Retry;
pub use stats::{Percentiles, Stats};
pub use telling::Events;

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
    pub(crate) telling: Arc<Telling>,
    book: Mutex<Book>,
    releases: Arc<Releases>,
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
            self.0.with_book(|book, _, out| {
                book.abandoned = true;
                out.ring = true;
            });
        }
    }
}

impl Client {
    pub(crate) fn start(
        store: Arc<dyn Store>,
        clock: Clock,
        prefix: String,
        defaults: Options,
        note: Note,
    ) -> Result<Handle> {
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(|error| Error::unavailable("drawing a client id", error))?;
        let id = ClientId(u64::from_le_bytes(id));
        let forks = forkguard::Guard::try_new().map_err(|error| Error::unavailable("preparing for forks", error))?;
        let telling = Telling::new(clock.clone());
        let book = Book::new(id, Arc::clone(&telling));
        let client = Arc::new(Self {
            guarantees: store.guarantees(),
            releases: Arc::clone(&book.releases),
            book: Mutex::new(book),
            alarms: Alarms::new(),
            store,
            clock,
            id,
            prefix,
            defaults: Arc::new(defaults),
            note: Arc::new(note),
            telling,
            bell: Notify::new(),
            ended: Notify::new(),
            forks,
        });
        // Order matters: the pushes are there before anybody can ask for a lock.
        keeper::start(&client)?;
        Ok(Handle(client))
    }

    /// The only way to the book. What it leaves behind is done after the mutex is free: wakers and events run foreign code,
    /// and foreign destructors may well come back here.
    pub(crate) fn with_book<R>(&self, work: impl FnOnce(&mut Book, Moment, &mut Outbox) -> R) -> R {
        let mut out = Outbox::default();
        let (result, trash) = {
            let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.clock.now();
            let result = work(&mut book, now, &mut out);
            (result, std::mem::take(&mut book.trash))
        };
        drop(trash);
        if out.ring {
            self.bell.notify_one();
        }
        // Order matters: a subscriber that panics must not keep anybody asleep.
        for waker in out.wakers {
            waker.wake();
        }
        for event in out.events {
            self.telling.tell(event);
        }
        result
    }

    /// Whether this is the process that made it. The keeper's thread does not follow into a forked one, and two processes
    /// with one client would share claims: the child must neither ask for locks nor give back its parent's.
    fn is_at_home(&self) -> bool {
        // Of a copy, since the answer has to stay the same. Asking the kernel who we are would cost more than all else here.
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

    /// `position` is for those who were in line.
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

    /// Ends everything: those who wait are told, what is held is given back, and nobody gets in any more. Comes back when
    /// the store has heard of it all, or after `timeout`.
    pub(crate) async fn shutdown(&self, timeout: Duration) -> Result<()> {
        self.check_usable()?;
        let ended = self.ended.notified();
        let mut ended = std::pin::pin!(ended);
        ended.as_mut().enable();
        let (now, is_over) = self.with_book(|book, now, out| {
            if book.closed.replace("it was shut down").is_none() {
                book.close(now, out);
            }
            (now, book.unattended)
        });
        // Order matters: whether its end was told before is known only after listening for it.
        if !is_over {
            self.within(now, now + timeout, ended).await;
        }
        match self.with_book(|book, _, _| book.unattended) {
            true => Ok(()),
            false => Err(Error::unavailable(
                "shutting down",
                format!("not everything could be given back in {timeout:?}; leases end by themselves"),
            )),
        }
    }

    /// Whether it was shut down.
    pub(crate) fn is_closed(&self) -> bool {
        self.with_book(|book, _, _| book.closed.is_some())
    }

    /// Tells the store the counters now, instead of within a second.
    pub(crate) async fn report_now(&self) -> Result<()> {
        self.check_usable()?;
        let Some(report) = self.with_book(|book, now, _| book.report(now)) else { return Ok(()) };
        let now = self.clock.now();
        // A report that was counted twice is no worse than one that the keeper sends again.
        let told = self.ask(Repeats::of(now), now + book::UNAVAILABLE_AFTER, || self.store.record(&report)).await;
        self.with_book(|book, now, out| book.reported(report, told.answer.is_ok(), now, out));
        told.answer.map_err(|error| self.explain_as(error, || "reporting".to_owned(), std::iter::empty()))
    }
}

impl Book {
    /// The keeper leaves. Callbacks that came after its last look are its to run: from now on nobody adds any.
    fn end(&mut self) -> Vec<(Callback, LostWhy)> {
        self.unattended = true;
        std::mem::take(&mut self.callbacks)
    }

    fn close(&mut self, now: Moment, out: &mut Outbox) {
        let keys: Vec<_> = self.slots.keys().map(|(key, _)| key).collect();
        for key in keys {
            match self.slots.get(key).map(|slot| &slot.phase) {
                Some(Phase::Held | Phase::Between) => {
                    let slot = self.slots.get(key).expect("it was there a moment ago");
                    let last_word = slot.last_word(slot.claim.clone().expect("who holds has a claim"), now);
                    self.lose(key, LostWhy::Shutdown, now, out);
                    self.ended(key, true, now, out);
                    self.remove(key);
                    self.depart(last_word, now, out);
                }
                // A release on its way ends by itself; what asks, waits or is behind hears of it at its next poll.
                Some(Phase::Leaving) | None => {}
                Some(_) => {
                    let waker = self.slots.get_mut(key).and_then(|slot| slot.take_waker());
                    self.withdraw(key, now, out);
                    out.wakers.extend(waker);
                }
            }
        }
        self.turns.clear();
        self.report_at = now;
        out.ring = true;
    }
}
