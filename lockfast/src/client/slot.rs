//! One party: somebody in this process who wants a lock, waits for it, or has it. Plain state; `book.rs` and its
//! neighbours move it along.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;

use crate::claim::{Claim, Demand, Demands, Note, Ticket, Tickets};
use crate::clock::Moment;
use crate::error::{Error, LostWhy};
use crate::event::TraceId;
use crate::store::Leaving;

use super::lease::{self, Validity};
use super::slots::{Key, Spoke};
use super::turn::TurnId;

/// What is asked for; the same for the whole life of one acquisition.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) demands: Demands,
    pub(crate) ttl: Duration,
    pub(crate) renew_every: Option<Duration>,
    pub(crate) hold_at_least: Option<Duration>,
    pub(crate) hold_at_most: Option<Duration>,
    pub(crate) note: Arc<Note>,
    pub(crate) trace: TraceId,
    /// Until when its guard may go on; over before there is one.
    pub(crate) validity: Validity,
    /// Whether tasks of this process that ask the same may pass the lock to each other.
    pub(crate) hands_over: bool,
    /// Whether it may outlive this process.
    pub(crate) detached: bool,
}

impl Request {
    /// Those who may pass the lock to each other have the same key.
    pub(crate) fn turn_key(&self) -> TurnKey {
        let nanos = |span: Duration| span.as_nanos() as u64;
        TurnKey {
            demand: self.demands[0].clone(),
            ttl: nanos(self.ttl),
            renew_every: self.renew_every.map_or(0, nanos),
        }
    }
}

/// Tasks of one process that want the same thing in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TurnKey {
    demand: Demand,
    ttl: u64,
    renew_every: u64,
}

#[derive(Debug)]
pub(crate) enum Phase {
    /// Behind other tasks of this process in the local queue.
    Behind,
    /// To ask the store, at its next poll.
    Lead,
    /// Its future is asking the store.
    Asking,
    /// Not in line, though it should be: the keeper asks for it, until `give_up_at`.
    Outside { give_up_at: Moment },
    /// In line. `settling`: it was handed the lock with little time left, and the keeper renews before it may enter.
    Waiting { ticket: Ticket, settling: bool },
    /// Handed the lock; its future has not been polled since `at`.
    Granted { tickets: Tickets, settled: bool, at: Moment },
    /// Was handed the lock, did not pick it up, and has given it back; begins anew when polled.
    GivenBack,
    /// Handed the hold of another task of this process.
    Passed { hold: Key, ticket: Ticket },
    /// There is a guard.
    Held,
    /// Held by this process, on its way from one of its tasks to the next.
    Between,
    /// Its release is with the store.
    Leaving,
    /// The resource is sealed, with this value.
    Sealed(Bytes),
    /// It will never hold.
    Failed(Box<Error>),
}

pub(crate) type Callback = Box<dyn FnOnce(LostWhy) + Send>;

/// Who wants to know when it is lost.
#[derive(Default)]
pub(crate) struct Watchers {
    pub(crate) wakers: BTreeMap<u64, Waker>,
    pub(crate) callbacks: Vec<Callback>,
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) request: Arc<Request>,
    pub(crate) phase: Phase,
    /// Which local queue it is in, or leads.
    pub(crate) turn: Option<TurnId>,
    pub(crate) claim: Option<Arc<Claim>>,
    /// Until when the last acknowledged lease is valid here.
    pub(crate) lease_until: Moment,
    /// When to renew it.
    pub(crate) renew_at: Moment,
    /// Where `hold_at_most` ends.
    pub(crate) cap: Moment,
    /// When it was asked for; then, when it was acquired.
    pub(crate) since: Moment,
    pub(crate) fence: Ticket,
    /// The future that waits.
    pub(crate) waker: Option<Waker>,
    pub(crate) watchers: Option<Box<Watchers>>,
    /// When this waiter asked lately.
    pub(crate) asked: Option<Box<Asked>>,
    /// A push that came before the answer to the acquire it belongs to; no ticket is zero.
    pub(crate) early: Ticket,
    /// An acquire of this claim got no answer, and may still run, however late: its id has to be kept out when it leaves.
    pub(crate) unsure: bool,
    /// A renewal or a rejoin is with the store.
    pub(crate) in_flight: bool,
    /// A push said it is gone: ask.
    pub(crate) doubted: bool,
    pub(crate) failures: u32,
    pub(crate) attempts: u32,
    pub(crate) last_error: Option<Box<Error>>,
    /// Its loss has been told.
    pub(crate) lost: bool,
    /// Counted among those who wait.
    pub(crate) counted: bool,
    /// Known to listings.
    pub(crate) listed: bool,
    pub(crate) spoke: Option<Spoke>,
}

impl Slot {
    pub(crate) fn new(request: Arc<Request>, phase: Phase, now: Moment) -> Self {
        Self {
            request,
            phase,
            turn: None,
            claim: None,
            lease_until: Moment::START,
            renew_at: Moment::NEVER,
            cap: Moment::NEVER,
            since: now,
            fence: Ticket(0),
            waker: None,
            watchers: None,
            asked: None,
            early: Ticket(0),
            unsure: false,
            in_flight: false,
            doubted: false,
            failures: 0,
            attempts: 0,
            last_error: None,
            lost: false,
            counted: false,
            listed: false,
            spoke: None,
        }
    }

    /// The store has acknowledged a lease that was asked for at `sent`. A late answer to an early question changes nothing.
    pub(crate) fn leased(&mut self, sent: Moment, ttl: Duration) {
        self.failures = 0;
        if !ttl.is_zero() {
            self.lease_until = self.lease_until.max(lease::valid_until(sent, ttl));
            self.renew_at = sent + self.period();
        }
    }

    /// How the claim leaves when nothing else is to be said.
    pub(crate) fn leaving(&self, claim: Arc<Claim>) -> Leaving {
        if self.unsure { Leaving::Unknown(claim) } else { Leaving::Done(claim) }
    }

    /// How a hold that is not passed on leaves: it stays for the rest of `hold_at_least`, unless it was lost.
    pub(crate) fn last_word(&self, claim: Arc<Claim>, now: Moment) -> Leaving {
        let rest = self.request.hold_at_least.and_then(|least| least.checked_sub(now.since(self.since)));
        match rest.filter(|rest| !rest.is_zero() && !self.is_over(now)) {
            Some(rest) => Leaving::Linger(claim, rest),
            None => self.leaving(claim),
        }
    }

    /// Until when its holder may go on, and what ends it then.
    pub(crate) fn deadline(&self) -> (Moment, LostWhy) {
        if self.cap < self.lease_until { (self.cap, LostWhy::HeldAtMost) } else { (self.lease_until, LostWhy::Expired) }
    }

    pub(crate) fn is_over(&self, now: Moment) -> bool {
        self.request.validity.is_over(now)
    }

    /// How often its lease is renewed, if it is.
    pub(crate) fn period(&self) -> Duration {
        self.request.renew_every.unwrap_or(self.request.ttl / 3)
    }

    /// Whether its lease is worth renewing: wanted, and not known to reach beyond the cap already.
    pub(crate) fn wants_renewal(&self) -> bool {
        match self.phase {
            Phase::Held => self.request.renew_every.is_some() && self.lease_until < self.cap,
            _ => true,
        }
    }
}

/// The last times a waiter asked: at most five in any second, whatever goes wrong.
#[derive(Debug)]
pub(crate) struct Asked {
    times: [Moment; Self::MOST],
    next: usize,
}

impl Asked {
    const MOST: usize = 5;
    const IN: Duration = Duration::from_secs(1);

    /// From when on it may ask again.
    pub(crate) fn allowed_from(slot: &Slot) -> Moment {
        match &slot.asked {
            Some(asked) if asked.times[asked.next] != Moment::START => asked.times[asked.next] + Self::IN,
            _ => Moment::START,
        }
    }

    pub(crate) fn note(slot: &mut Slot, now: Moment) {
        let fresh = || Box::new(Self { times: [Moment::START; Self::MOST], next: 0 });
        let asked = slot.asked.get_or_insert_with(fresh);
        asked.times[asked.next] = now;
        asked.next = (asked.next + 1) % Self::MOST;
    }
}

impl std::fmt::Debug for Watchers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} wakers, {} callbacks", self.wakers.len(), self.callbacks.len())
    }
}
