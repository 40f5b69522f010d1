//! One request: a local acquisition, from `lock()` to the end of its guard. Plain state; its phase moves by the table in
//! `phase.rs`.

use std::sync::Arc;
use std::time::Duration;

use crate::claim::{Claim, Ticket};
use crate::clock::Moment;
use crate::error::{Error, LostWhy};
use crate::planted::Rule;
use crate::store::Leaving;

use super::handoff::LocalQueueId;
use super::lease;
use super::phase::{CurrentPhase, Phase};
use super::requests::WheelPosition;
use super::terms::Terms;

#[derive(Debug)]
pub(super) struct Request {
    pub(super) terms: Arc<Terms>,
    pub(super) phase: CurrentPhase,
    /// The local queue that it is in, or leads.
    pub(super) local_queue: Option<LocalQueueId>,
    pub(super) claim: Option<Arc<Claim>>,
    /// Until when the last acknowledged lease is valid here.
    pub(super) lease_until: Moment,
    /// When to renew it.
    pub(super) renew_at: Moment,
    /// When it was asked for; then, when it was acquired.
    pub(super) since: Moment,
    pub(super) fence: Ticket,
    /// State that only waiters need: most locks are acquired at once, and then held for long.
    wait: Option<Box<WaitState>>,
    /// An acquire of this claim got no answer, and may still run, however late: its id has to be kept out when it leaves.
    pub(super) unsure: bool,
    /// A renewal, or an acquire that the keeper sent, is in flight.
    pub(super) in_flight: bool,
    /// A push said that the claim is gone, or may be: ask.
    pub(super) is_doubted: bool,
    /// How many calls in a row got no answer.
    pub(super) failures: u32,
    /// How many acquires were sent.
    pub(super) attempts: u32,
    /// How it was lost, once the loss is decided.
    pub(super) lost: Option<LostWhy>,
    /// Counted among the waiters.
    pub(super) is_counted_waiting: bool,
    /// Known to listings.
    pub(super) is_listed: bool,
    pub(super) wheel_position: Option<WheelPosition>,
}

impl Request {
    pub(super) fn new(terms: Arc<Terms>, now: Moment) -> Self {
        Self {
            terms,
            phase: CurrentPhase::start(),
            local_queue: None,
            claim: None,
            lease_until: Moment::START,
            renew_at: Moment::NEVER,
            since: now,
            fence: Ticket(0),
            wait: None,
            unsure: false,
            in_flight: false,
            is_doubted: false,
            failures: 0,
            attempts: 0,
            lost: None,
            is_counted_waiting: false,
            is_listed: false,
            wheel_position: None,
        }
    }

    /// The state that only waiters need, made if it is not there.
    pub(super) fn wait(&mut self) -> &mut WaitState {
        self.wait.get_or_insert_default()
    }

    /// It holds: the state that only waiters need is dropped.
    pub(super) fn drop_wait_state(&mut self) {
        self.wait = None;
    }

    pub(super) fn early_ticket(&self) -> Ticket {
        self.wait.as_ref().map_or(Ticket(0), |wait| wait.early_ticket)
    }

    pub(super) fn forget_early_ticket(&mut self) {
        if let Some(wait) = &mut self.wait {
            wait.early_ticket = Ticket(0);
        }
    }

    /// How many claims are ahead, at most, by the store's last answer.
    pub(super) fn position(&self) -> usize {
        self.wait.as_ref().map_or(usize::MAX, |wait| wait.position)
    }

    pub(super) fn last_error(&self) -> Option<&Error> {
        self.wait.as_ref()?.last_error.as_deref()
    }

    /// Whether this is its claim, and not that of an earlier attempt.
    pub(super) fn is_claim(&self, claim: &Arc<Claim>) -> bool {
        self.claim.as_ref().is_some_and(|current| Arc::ptr_eq(current, claim) || current.id.hash() == claim.id.hash())
    }

    /// The store has acknowledged a lease that was asked for at `sent`. A late answer to an early request changes nothing.
    pub(super) fn note_lease(&mut self, sent: Moment, ttl: Duration) {
        self.failures = 0;
        if !ttl.is_zero() {
            self.lease_until = self.lease_until.max(lease::valid_until(sent, ttl));
            self.renew_at = sent + self.period();
        }
    }

    /// A waiter in the queue, or on its way back into it, whose last request got no answer.
    pub(super) fn is_unanswered(&self) -> bool {
        self.is_counted_waiting
            && self.failures > 0
            && matches!(*self.phase, Phase::Waiting { .. } | Phase::Outside { .. })
    }

    /// How the claim leaves when nothing else is to be said.
    pub(super) fn leaving(&self, claim: Arc<Claim>) -> Leaving {
        if self.unsure { Leaving::Unknown(claim) } else { Leaving::Done(claim) }
    }

    /// How a hold that is not handed off leaves: it lingers for the rest of `hold_at_least`, unless it was lost.
    pub(super) fn last_word(&self, claim: Arc<Claim>, now: Moment) -> Leaving {
        let least = self.terms.hold_at_least.map(Duration::from);
        let rest = least.and_then(|least| least.checked_sub(now.since(self.since)));
        match rest.filter(|rest| !rest.is_zero() && !self.is_over(now)) {
            Some(rest) => Leaving::Linger(claim, rest),
            None => self.leaving(claim),
        }
    }

    /// Until when its holder may go on, and how the hold is lost then.
    pub(super) fn deadline(&self) -> (Moment, LostWhy) {
        let cap = self.cap();
        if cap < self.lease_until { (cap, LostWhy::HeldAtMost) } else { (self.lease_until, LostWhy::Expired) }
    }

    /// Where `hold_at_most` ends. It is the holder's own: a hold between two requests has none.
    pub(super) fn cap(&self) -> Moment {
        match (&*self.phase, self.terms.hold_at_most) {
            (Phase::Held, Some(most)) => self.since + most.into(),
            _ => Moment::NEVER,
        }
    }

    /// Whether the hold may not be trusted any more. Once it is over it stays over: no renewal is accepted after its deadline.
    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.lost.is_some() || self.deadline().0 <= now
    }

    /// How often its lease is renewed. A waiter keeps the pace of its requests: more often it would use them up, and its lease
    /// would end before the next.
    pub(super) fn period(&self) -> Duration {
        let period = self.terms.renew_every.map_or(self.terms.ttl() / 3, Duration::from);
        if matches!(*self.phase, Phase::Waiting { .. }) { period.max(RateLimit::PACE) } else { period }
    }

    /// How much of its lease has to be left when it is granted after a wait; with less, the keeper renews first. A lease that is
    /// not renewed later begins whole, but for a tenth, which is not worth a round trip.
    fn enough(&self) -> Duration {
        let ttl = self.terms.ttl();
        if self.terms.renew_every.is_some() { ttl / 2 } else { ttl - ttl / 10 }
    }

    /// Counted from when its last acquire or renewal was sent.
    pub(super) fn has_enough(&self, now: Moment) -> bool {
        self.lease_until.since(now) >= self.enough()
    }

    /// Whether its lease is worth renewing: wanted, and not known to reach beyond the cap already.
    pub(super) fn wants_renewal(&self) -> bool {
        match *self.phase {
            Phase::Held => self.terms.renew_every.is_some() && self.lease_until < self.cap(),
            _ => true,
        }
    }

    /// How it is lost, if it is over.
    pub(super) fn loss(&self, now: Moment) -> Option<LostWhy> {
        let (deadline, why) = self.deadline();
        self.lost.or((deadline <= now).then_some(why))
    }

    pub(super) fn grace(&self) -> Duration {
        grace(self.terms.ttl())
    }
}

/// How long a grant waits to be picked up before it is given back.
pub(super) fn grace(ttl: Duration) -> Duration {
    (ttl / 3).min(Duration::from_secs(2))
}

/// How long after an acquire the keeper asks the store about it, if its future has not been polled. The rest of `grace` shows whether
/// the future is polled.
pub(super) fn ask_beside_after(grace: Duration) -> Duration {
    grace * 3 / 4
}

/// State that only waiters need.
#[derive(Debug, Default)]
pub(super) struct WaitState {
    rate_limit: RateLimit,
    /// The ticket of a push that came before the answer to the acquire of its claim; zero, which is no ticket, without such a push.
    pub(super) early_ticket: Ticket,
    /// How many claims were ahead when it joined the queue.
    pub(super) position: usize,
    pub(super) last_error: Option<Box<Error>>,
}

/// Limits how often a waiter sends requests to the store, by when it sent the last five.
///
/// 1. At most five requests in any second, whatever goes wrong.
/// 2. With a lease below [`SHORT_TTL`](Self::SHORT_TTL), two at once and then one every [`PACE`](Self::PACE): that is at most five in a second too,
///    and the next one is always allowed before the lease ends. Five at once would keep the waiter from renewing for a second.
#[derive(Debug, Default)]
pub(super) struct RateLimit {
    /// When the last five were sent, as a ring.
    sent_at: [Moment; Self::MAX_REQUESTS],
    /// The index of the oldest, which the next one replaces.
    oldest: usize,
    /// When a waiter that keeps the pace would send its next request.
    paced: Moment,
}

impl RateLimit {
    const MAX_REQUESTS: usize = 5;
    const WINDOW: Duration = Duration::from_secs(1);
    /// Shorter leases are paced.
    const SHORT_TTL: Duration = Duration::from_millis(1500);
    /// A third of a second: with two requests at once, at most five in any second.
    const PACE: Duration = Duration::from_millis(334);

    /// From when on a waiter may send its next request.
    pub(super) fn allowed_from(request: &Request) -> Moment {
        Self::after(request, 0)
    }

    /// The same for a question beside an acquire that is in flight. Two of the five are kept: one for that acquire, which is noted only
    /// when it is answered, repeated or given back, and one for the acquire that follows if the answer comes too late to be trusted.
    pub(super) fn allowed_beside_from(request: &Request) -> Moment {
        Self::after(request, 2)
    }

    /// Whether all five were sent within the last second.
    pub(super) fn is_used_up(request: &Request, now: Moment) -> bool {
        let oldest = request
            .wait
            .as_deref()
            .map_or(Moment::START, |WaitState { rate_limit, .. }| rate_limit.sent_at[rate_limit.oldest]);
        oldest != Moment::START && now < oldest + Self::WINDOW && !Rule::FiveRequestsASecond.is_left_out()
    }

    /// From when on one more may be sent, if `kept` of the five are kept for later.
    fn after(request: &Request, kept: usize) -> Moment {
        let Some(WaitState { rate_limit, .. }) = request.wait.as_deref() else { return Moment::START };
        if Rule::FiveRequestsASecond.is_left_out() {
            return Moment::START;
        }
        let from = match rate_limit.sent_at[(rate_limit.oldest + kept) % Self::MAX_REQUESTS] {
            Moment::START => Moment::START,
            earlier => earlier + Self::WINDOW,
        };
        // A waiter that was handed the lock has one request to send, and does not wait after it.
        let is_settling = matches!(*request.phase, Phase::Waiting { settling: true, .. });
        let is_paced = request.terms.ttl() < Self::SHORT_TTL && !is_settling;
        if is_paced { from.max(rate_limit.paced.before(Self::PACE)) } else { from }
    }

    /// Every request is noted when it is sent; the acquire of the request's own future at the latest when it asks again.
    pub(super) fn note(request: &mut Request, now: Moment) {
        let limit = &mut request.wait().rate_limit;
        limit.sent_at[limit.oldest] = now;
        limit.oldest = (limit.oldest + 1) % Self::MAX_REQUESTS;
        limit.paced = limit.paced.max(now) + Self::PACE;
    }
}
