//! One party: somebody in this process who wants a lock, waits for it, or has it. Plain state; `book.rs` and its
//! neighbours move it along.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;

use crate::claim::{Claim, Demand, Demands, Note, Ticket};
use crate::clock::Moment;
use crate::error::{Error, LostWhy};
use crate::store::Leaving;

use super::lease::{self, Validity};
use super::slots::{Key, Spoke};
use super::turn::TurnId;

/// What is asked for; the same for the whole life of one acquisition.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) demands: Demands,
    pub(crate) ttl: Span,
    pub(crate) renew_every: Option<Span>,
    pub(crate) hold_at_least: Option<Span>,
    pub(crate) hold_at_most: Option<Span>,
    pub(crate) note: Arc<Note>,
    /// The bytes of its trace's number, which by itself would make room around it.
    pub(crate) trace: [u8; 16],
    /// Until when its guard may go on; over before there is one.
    pub(crate) validity: Validity,
    /// Whether tasks of this process that ask the same may pass the lock to each other.
    pub(crate) hands_over: bool,
    /// Whether it may outlive this process.
    pub(crate) detached: bool,
}

impl Request {
    pub(crate) fn ttl(&self) -> Duration {
        self.ttl.into()
    }
}

/// A duration that a client accepts, in half the room: each lock that is held has some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Span(NonZeroU64);

impl Span {
    pub(crate) fn of(span: Duration) -> Self {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN))
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        Self::from_nanos(span.0.get())
    }
}

/// Tasks of one process that want the same thing in the same way, and so may pass it to each other, have the same key.
#[derive(Clone, Debug)]
pub(crate) struct TurnKey(pub(crate) Arc<Request>);

impl TurnKey {
    fn wants(&self) -> (&Demand, Span, Option<Span>) {
        (&self.0.demands[0], self.0.ttl, self.0.renew_every)
    }
}

impl PartialEq for TurnKey {
    fn eq(&self, other: &Self) -> bool {
        self.wants() == other.wants()
    }
}

impl Eq for TurnKey {}

impl Hash for TurnKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.wants().hash(state);
    }
}

#[derive(Debug)]
pub(crate) enum Phase {
    /// Behind other tasks of this process in the local queue.
    Behind,
    /// To ask the store, at its next poll.
    Lead,
    /// Its future is asking the store, and may take until `until`. `is_held`: the store told the keeper that the claim
    /// holds, so the answer is there, and the future has not been polled since.
    Asking { until: Moment, is_held: bool },
    /// Not in line, though it should be: the keeper asks for it, until `give_up_at`.
    Outside { give_up_at: Moment },
    /// In line. `settling`: it was handed the lock with little time left, and the keeper renews before it may enter.
    Waiting { ticket: Ticket, settling: bool },
    /// Handed the lock, with `count` tickets from `first` on; its future has not been polled since `at`.
    Granted { first: Ticket, count: u32, settled: bool, at: Moment },
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
    Sealed(Box<Bytes>),
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
    /// When it was asked for; then, when it was acquired.
    pub(crate) since: Moment,
    pub(crate) fence: Ticket,
    pub(crate) watchers: Option<Box<Watchers>>,
    /// Most locks are got at once, and then held for long; they do without this.
    wait: Option<Box<Wait>>,
    /// An acquire of this claim got no answer, and may still run, however late: its id has to be kept out when it leaves.
    pub(crate) unsure: bool,
    /// A renewal or a rejoin is with the store.
    pub(crate) in_flight: bool,
    /// A push said it is gone: ask.
    pub(crate) doubted: bool,
    pub(crate) failures: u32,
    pub(crate) attempts: u32,
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
            since: now,
            fence: Ticket(0),
            watchers: None,
            wait: None,
            unsure: false,
            in_flight: false,
            doubted: false,
            failures: 0,
            attempts: 0,
            lost: false,
            counted: false,
            listed: false,
            spoke: None,
        }
    }

    pub(crate) fn take_waker(&mut self) -> Option<Waker> {
        self.wait.as_mut()?.waker.take()
    }

    pub(crate) fn wait(&mut self) -> &mut Wait {
        self.wait.get_or_insert_default()
    }

    pub(crate) fn early(&self) -> Ticket {
        self.wait.as_ref().map_or(Ticket(0), |wait| wait.early)
    }

    pub(crate) fn forget_early(&mut self) {
        if let Some(wait) = &mut self.wait {
            wait.early = Ticket(0);
        }
    }

    /// How many are ahead, at most, as far as it was told.
    pub(crate) fn position(&self) -> usize {
        self.wait.as_ref().map_or(usize::MAX, |wait| wait.position)
    }

    pub(crate) fn last_error(&self) -> Option<&Error> {
        self.wait.as_ref()?.last_error.as_deref()
    }

    /// It has got in. What is left of its waiting is dropped by the caller, away from the book.
    pub(crate) fn waited(&mut self) -> Option<Waker> {
        self.wait.take()?.waker
    }

    /// The store has acknowledged a lease that was asked for at `sent`. A late answer to an early question changes nothing.
    pub(crate) fn leased(&mut self, sent: Moment, ttl: Duration) {
        self.failures = 0;
        if !ttl.is_zero() {
            self.lease_until = self.lease_until.max(lease::valid_until(sent, ttl));
            self.renew_at = sent + self.period();
        }
    }

    /// A waiter in the queue, or on its way back into it, whose last question got no answer.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.counted && self.failures > 0 && matches!(self.phase, Phase::Waiting { .. } | Phase::Outside { .. })
    }

    /// How the claim leaves when nothing else is to be said.
    pub(crate) fn leaving(&self, claim: Arc<Claim>) -> Leaving {
        if self.unsure { Leaving::Unknown(claim) } else { Leaving::Done(claim) }
    }

    /// How a hold that is not passed on leaves: it stays for the rest of `hold_at_least`, unless it was lost.
    pub(crate) fn last_word(&self, claim: Arc<Claim>, now: Moment) -> Leaving {
        let least = self.request.hold_at_least.map(Duration::from);
        let rest = least.and_then(|least| least.checked_sub(now.since(self.since)));
        match rest.filter(|rest| !rest.is_zero() && !self.is_over(now)) {
            Some(rest) => Leaving::Linger(claim, rest),
            None => self.leaving(claim),
        }
    }

    /// Until when its holder may go on, and what ends it then.
    pub(crate) fn deadline(&self) -> (Moment, LostWhy) {
        let cap = self.cap();
        if cap < self.lease_until { (cap, LostWhy::HeldAtMost) } else { (self.lease_until, LostWhy::Expired) }
    }

    /// Where `hold_at_most` ends. It is the holder's own: what is on its way to the next one has none.
    pub(crate) fn cap(&self) -> Moment {
        match (&self.phase, self.request.hold_at_most) {
            (Phase::Held, Some(most)) => self.since + most.into(),
            _ => Moment::NEVER,
        }
    }

    pub(crate) fn is_over(&self, now: Moment) -> bool {
        self.request.validity.is_over(now)
    }

    /// How often its lease is renewed, if it is.
    pub(crate) fn period(&self) -> Duration {
        self.request.renew_every.map_or(self.request.ttl() / 3, Duration::from)
    }

    /// How much of its lease has to be left when it is granted after a wait; with less, the keeper renews first. A lease that is
    /// not renewed later begins whole, but for a tenth, which is not worth a round trip.
    pub(crate) fn enough(&self) -> Duration {
        let ttl = self.request.ttl();
        if self.request.renew_every.is_some() { ttl / 2 } else { ttl - ttl / 10 }
    }

    /// Whether its lease is worth renewing: wanted, and not known to reach beyond the cap already.
    pub(crate) fn wants_renewal(&self) -> bool {
        match self.phase {
            Phase::Held => self.request.renew_every.is_some() && self.lease_until < self.cap(),
            _ => true,
        }
    }
}

/// What only those need who do not get in at once.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    /// The future that waits.
    pub(crate) waker: Option<Waker>,
    /// When this waiter asked lately.
    asked: Asked,
    /// A push that came before the answer to the acquire it belongs to; no ticket is zero.
    pub(crate) early: Ticket,
    /// How many were ahead when it joined the line.
    pub(crate) position: usize,
    pub(crate) last_error: Option<Box<Error>>,
}

/// The last times a waiter asked: at most five in any second, whatever goes wrong.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    times: [Moment; Self::MOST],
    next: usize,
}

impl Asked {
    const MOST: usize = 5;
    const IN: Duration = Duration::from_secs(1);

    /// From when on it may ask again.
    pub(crate) fn allowed_from(slot: &Slot) -> Moment {
        match slot.wait.as_ref().map(|wait| wait.asked.times[wait.asked.next]) {
            Some(Moment::START) | None => Moment::START,
            Some(asked) => asked + Self::IN,
        }
    }

    pub(crate) fn note(slot: &mut Slot, now: Moment) {
        let asked = &mut slot.wait().asked;
        asked.times[asked.next] = now;
        asked.next = (asked.next + 1) % Self::MOST;
    }
}

impl std::fmt::Debug for Watchers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} wakers, {} callbacks", self.wakers.len(), self.callbacks.len())
    }
}
