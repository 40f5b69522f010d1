//! Everything one client knows about its parties, behind one mutex.
//!
//! What must stay true:
//!
//! 1. A claim that may be in the store's line belongs to a slot, or there is a departure for it, or it is with a flight of
//!    the keeper's whose landing makes one of the two. So nothing is left in line that nobody renews or withdraws.
//! 2. A claim is in `by_hash` before it is sent, so that no push finds it unknown.
//! 3. Nothing here runs foreign code while the mutex is held: wakers and events go into the [`Outbox`], callbacks to the
//!    keeper.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::claim::{Claim, ClaimHash, ClaimIds, ClaimMap, ClientId, Ticket};
use crate::clock::Moment;
use crate::error::{Error, LostWhy, Result};
use crate::event::{Event, Happening};
use crate::name::Name;
use crate::store::{Counters, Leaving, Standing};

use super::overdue::Sent;
use super::slot::{Callback, Slot, Watchers};
use super::slots::{Key, Slots};
use super::telling::Telling;
use super::turn::Turns;

/// How long a party that has never been in line keeps asking a store that does not answer.
pub(crate) const UNAVAILABLE_AFTER: Duration = Duration::from_secs(10);

pub(crate) struct Book {
    pub(crate) slots: Slots,
    pub(crate) by_hash: ClaimMap<Key>,
    pub(crate) turns: Turns,
    /// What has to be told to the store, and when.
    pub(crate) departures: BTreeMap<(Moment, u64), Departure>,
    /// Releases that callers have sent, the oldest first; those that were answered may still be here.
    pub(crate) sent: VecDeque<Sent>,
    /// Parties that fell out of the line, in the order in which they stood there, and when they fell out.
    pub(crate) rejoining: BTreeMap<(Ticket, Key), Moment>,
    /// Claims withdrawn while nobody knew whether they were in line; should a push find one there, it is withdrawn again.
    pub(crate) withdrawn: ClaimMap<(Moment, Arc<Claim>)>,
    /// For the keeper's thread to run.
    pub(crate) callbacks: Vec<(Callback, LostWhy)>,
    /// Listed claims that left since the last report.
    pub(crate) unlisted: Vec<ClaimHash>,
    /// When to report, if there is something to say.
    pub(crate) report_at: Moment,
    /// How many renewals of waiting parties are with the store: their answers may name more who fell out.
    pub(crate) asking: usize,
    /// How many rejoins are with the store.
    pub(crate) rejoins: usize,
    /// How many may be with it at once: one until it has answered one.
    pub(crate) most_rejoins: usize,
    /// Names about which an answer was not heard that may have said who holds now: those who want them have to ask.
    pub(crate) missed: Vec<Name>,
    pub(crate) releases: Arc<Releases>,
    /// Until when the keeper means to sleep at most, for all that is in the book.
    pub(crate) wakes_at: Moment,
    /// Why nobody may enter any more.
    pub(crate) closed: Option<&'static str>,
    /// Nobody can ask for a lock any more; the keeper ends when the last party has left.
    pub(crate) abandoned: bool,
    /// The keeper has ended: nobody rings, wakes or renews any more.
    pub(crate) unattended: bool,
    pub(crate) telling: Arc<Telling>,
    /// What the store has been told so far.
    pub(crate) reported: Counters,
    /// When it was told.
    pub(crate) heard_at: Moment,
    /// Foreign things whose destructors may do anything, so not while the mutex is held.
    pub(crate) trash: (Vec<Waker>, Vec<Watchers>),
    /// No claim of this client has a lease that ends later, unless it is an ordinary one.
    pub(crate) extended_until: Moment,
    /// The largest ticket seen.
    pub(crate) floor: Ticket,
    pub(crate) client: ClientId,
    ids: ClaimIds,
    serial: u64,
}

/// Releases that are with the store by their callers' own doing; what comes of them may be the keeper's to mend, so it stays as
/// long as there are any. Apart from the book, since every release ends here, and seldom with anything more to do.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    under_way: AtomicUsize,
    /// The keeper leaves when there are none.
    is_awaited: AtomicBool,
}

impl Releases {
    pub(crate) fn begin(&self) {
        self.under_way.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether the keeper has to be told.
    #[must_use]
    pub(crate) fn end(&self) -> bool {
        // Order matters, here and where it is awaited: one of the two sees what the other has done.
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        self.is_awaited.load(Ordering::SeqCst)
    }

    /// Whether the last has ended; whoever ends later says so.
    pub(super) fn await_last(&self) -> bool {
        self.is_awaited.store(true, Ordering::SeqCst);
        self.under_way.load(Ordering::SeqCst) == 0
    }
}

/// Something to tell the store.
#[derive(Debug)]
pub(crate) struct Departure {
    pub(crate) leaving: Leaving,
    /// The slot that waits for the answer.
    pub(crate) hold: Option<Key>,
    /// Later than this the lease has ended anyway.
    pub(crate) until: Moment,
    pub(crate) tries: u32,
    /// A caller wants to know what came of it.
    pub(crate) tell: Option<oneshot::Sender<Result<Standing>>>,
    /// Sent by itself, because the store refused the batch that it was in.
    pub(crate) alone: bool,
}

/// What to do once the mutex is free again.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) wakers: Vec<Waker>,
    pub(crate) events: Vec<Event>,
    /// The keeper has something to do before it meant to wake up.
    pub(crate) ring: bool,
}

impl Book {
    pub(crate) fn new(client: ClientId, telling: Arc<Telling>) -> Self {
        Self {
            slots: Slots::default(),
            by_hash: ClaimMap::default(),
            turns: Turns::default(),
            departures: BTreeMap::new(),
            sent: VecDeque::new(),
            rejoining: BTreeMap::new(),
            withdrawn: ClaimMap::default(),
            callbacks: Vec::new(),
            unlisted: Vec::new(),
            report_at: Moment::NEVER,
            asking: 0,
            rejoins: 0,
            most_rejoins: 1,
            missed: Vec::new(),
            releases: Arc::default(),
            wakes_at: Moment::NEVER,
            closed: None,
            abandoned: false,
            unattended: false,
            telling,
            reported: Counters::default(),
            heard_at: Moment::START,
            trash: Default::default(),
            extended_until: Moment::START,
            floor: Ticket(0),
            client,
            ids: ClaimIds::default(),
            serial: 0,
        }
    }

    pub(crate) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub(crate) fn saw(&mut self, ticket: Ticket) {
        self.floor = self.floor.max(ticket);
    }

    /// Makes a claim for a party that is about to ask. By 2, it can be found from now on.
    pub(crate) fn new_claim(&mut self, key: Key) -> Result<Arc<Claim>> {
        let id = self.ids.draw()?;
        self.forget_claim(key);
        let block = self.block_for(key);
        let slot = self.slots.get_mut(key).ok_or(Error::Closed("it was shut down"))?;
        let claim = Arc::new(Claim {
            id,
            client: self.client,
            demands: slot.request.demands.clone(),
            ttl: slot.request.ttl(),
            block,
            floor: self.floor,
            // Only a renewal exempts it from liveness, once it holds and its token was delivered.
            detached: false,
            note: Arc::clone(&slot.request.note),
        });
        self.by_hash.insert(claim.id.hash(), key);
        slot.claim = Some(Arc::clone(&claim));
        slot.lease_until = Moment::START;
        slot.forget_early();
        slot.unsure = false;
        slot.doubted = false;
        // What is still with the store is about an earlier claim, and its answer will be ignored.
        slot.in_flight = false;
        Ok(claim)
    }

    pub(crate) fn forget_claim(&mut self, key: Key) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        let Some(claim) = slot.claim.take() else { return };
        self.by_hash.remove(&claim.id.hash());
        if std::mem::take(&mut slot.listed) {
            self.unlisted.push(claim.id.hash());
        }
    }

    pub(crate) fn count_waiting(&mut self, key: Key, now: Moment, out: &mut Outbox) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        if !std::mem::replace(&mut slot.counted, true) {
            self.telling.tally.began_waiting();
            self.happened(key, Happening::Waiting, out);
            self.report_soon(now, out);
        }
    }

    pub(crate) fn happened(&self, key: Key, what: Happening, out: &mut Outbox) {
        if self.telling.is_heard(&what)
            && let Some(slot) = self.slots.get(key)
        {
            out.events.push(self.telling.event(slot, what));
        }
    }

    /// Asks the keeper to tell the store something.
    pub(crate) fn depart(&mut self, leaving: Leaving, now: Moment, out: &mut Outbox) {
        self.depart_for(leaving, None, now, out);
    }

    pub(crate) fn depart_for(&mut self, leaving: Leaving, hold: Option<Key>, now: Moment, out: &mut Outbox) {
        self.depart_as(leaving, hold, None, now, out);
    }

    pub(crate) fn depart_as(
        &mut self,
        leaving: Leaving,
        hold: Option<Key>,
        tell: Option<oneshot::Sender<Result<Standing>>>,
        now: Moment,
        out: &mut Outbox,
    ) {
        let ttl = leaving.claim().map_or(UNAVAILABLE_AFTER, |claim| claim.ttl);
        let until = self.extended_until.max(now + ttl);
        if let Leaving::Unknown(claim) = &leaving {
            self.withdrawn.insert(claim.id.hash(), (now + claim.tombstone(), claim.clone()));
            self.report_soon(now, out);
        }
        let serial = self.serial();
        self.departures.insert((now, serial), Departure { leaving, hold, until, tries: 0, tell, alone: false });
        out.ring = true;
    }

    /// Takes a party out of the book; its claim, if any, is somebody else's business from now on.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Slot> {
        let claim = self.slots.get(key)?.claim.clone();
        self.forget_claim(key);
        let mut slot = self.slots.remove(key)?;
        slot.claim = claim;
        self.trash.0.extend(slot.take_waker());
        self.trash.1.extend(slot.watchers.take().map(|watchers| *watchers));
        if slot.counted {
            self.telling.tally.stopped_waiting();
        }
        Some(slot)
    }

    /// When to look at a waiter again: at its next renewal, or when all leases ahead of it have run out.
    pub(crate) fn schedule_waiting(&mut self, key: Key, recheck_at: Moment, out: &mut Outbox) {
        let Some(slot) = self.slots.get(key) else { return };
        let at = slot.renew_at.min(recheck_at + Duration::from_millis(1));
        if at == slot.renew_at {
            let period = slot.period();
            self.slots.schedule_roughly(key, at, period);
        } else {
            self.slots.schedule(key, at);
        }
        self.look_again_if_doubted(key);
        self.note_next(out);
    }

    /// A push said that the claim is gone while there was no way to ask.
    fn look_again_if_doubted(&mut self, key: Key) {
        if self.slots.get(key).is_some_and(|slot| slot.doubted && !slot.in_flight) {
            self.slots.schedule_now(key);
        }
    }

    /// When to look at a holder again: at its next renewal, or when it is lost.
    pub(crate) fn schedule_held(&mut self, key: Key, out: &mut Outbox) {
        let Some(slot) = self.slots.get(key) else { return };
        let (deadline, _) = slot.deadline();
        if slot.wants_renewal() && slot.renew_at < deadline {
            let (at, period) = (slot.renew_at, slot.period());
            self.slots.schedule_roughly(key, at, period);
        } else {
            self.slots.schedule(key, deadline);
        }
        self.look_again_if_doubted(key);
        self.note_next(out);
    }

    /// Wakes the keeper if it means to sleep for too long.
    pub(crate) fn note_next(&mut self, out: &mut Outbox) {
        out.ring |= self.slots.next_at() < self.wakes_at;
    }

    /// There is something to report, within a second.
    pub(crate) fn report_soon(&mut self, now: Moment, out: &mut Outbox) {
        let soon = now + Duration::from_secs(1);
        if soon < self.report_at {
            self.report_at = soon;
            out.ring |= soon < self.wakes_at;
        }
    }
}

impl std::fmt::Debug for Book {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Book").field("parties", &self.slots.len()).field("closed", &self.closed).finish_non_exhaustive()
    }
}

/// How long a grant waits to be picked up before it is given back.
pub(crate) fn grace(ttl: Duration) -> Duration {
    (ttl / 3).min(Duration::from_secs(2))
}

/// The pause before asking again after so many failures, with jitter.
pub(crate) fn backoff(failures: u32) -> Duration {
    let longest = Duration::from_millis(50) * (1 << failures.min(5));
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}
