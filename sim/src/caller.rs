//! A caller: one task of a process, and its state from asking for a lock until the lock is given back.

use std::sync::Arc;
use std::time::Duration;

use lockfast::LostWhy;
use lockfast::engine::{AcquireCall, Key, ReleaseId, Terms};
use lockfast::store::Leaving;
use lockfast::store::{Claim, ClaimHash, Moment, Ticket};

use crate::calls::CallId;
use crate::clock::Time;
use crate::plan::CallerPlan;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Between two rounds.
    Resting,
    /// Its acquire is with the store.
    Asking,
    /// It sleeps before it repeats its acquire.
    Pausing,
    /// It waits until it is woken.
    Sleeping,
    /// It was woken, and runs in a moment.
    Woken,
    /// It has a guard.
    Holding,
    /// Its release is with the store.
    Leaving,
    /// It waits for the store's answer to the keeper about its release.
    AwaitingOutcome(ReleaseId),
    /// It does nothing any more.
    Finished,
}

#[derive(Debug)]
pub(crate) struct Caller {
    /// Its process, by its index in the world.
    pub(crate) client: u32,
    pub(crate) state: State,
    pub(crate) round: u32,
    pub(crate) random: fastrand::Rng,
    /// Its task is not polled until then.
    pub(crate) dozes_until: Time,
    /// When it asked for the lock, or began to hold it.
    pub(crate) since: Time,
    pub(crate) key: Option<Key>,
    pub(crate) terms: Option<Arc<Terms>>,
    /// When it gives up, by its own clock.
    pub(crate) patience: Moment,
    pub(crate) call: Option<CallId>,
    pub(crate) repeats: Repeats,
    /// Its entry in the queue, once the store has acknowledged it.
    pub(crate) acknowledged: Option<AcknowledgedEntry>,
    pub(crate) request_times: RequestTimes,
    pub(crate) guard: Option<Guard>,
    pub(crate) pending: Option<PendingRelease>,
}

/// How often and until when an acquire is repeated while its outcome is unknown.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// The acquire to be repeated, during the pause before it.
    pub(crate) asked: Option<AcquireCall>,
    /// No repeat begins at this moment or later.
    pub(crate) begin_before: Moment,
    /// Until when the answer to a repeat is awaited.
    pub(crate) limit: Moment,
    /// How many repeats were sent.
    pub(crate) count: u32,
}

/// A waiter's entry in the queue, as the store acknowledged it at `at`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcknowledgedEntry {
    pub(crate) owner: ClaimHash,
    pub(crate) ticket: Ticket,
    pub(crate) at: Time,
}

/// When a waiter sent its last requests, by its own clock.
#[derive(Debug, Default)]
pub(crate) struct RequestTimes {
    /// When the last five were sent, as a ring.
    sent_at: [Moment; Self::MAX_PER_SECOND],
    /// The index of the oldest, which the next one replaces.
    oldest: usize,
}

impl RequestTimes {
    /// How many requests a waiter may send in a second.
    pub(crate) const MAX_PER_SECOND: usize = 5;

    /// Notes a request that is sent now. Returns when the fifth request before it was sent, if there was one.
    pub(crate) fn note(&mut self, now: Moment) -> Option<Moment> {
        let fifth = std::mem::replace(&mut self.sent_at[self.oldest], now);
        self.oldest = (self.oldest + 1) % Self::MAX_PER_SECOND;
        (fifth != Moment::START).then_some(fifth)
    }

    /// Whether five requests were sent within the last two seconds, so that the next one may have had to wait.
    pub(crate) fn is_used_up(&self, now: Moment) -> bool {
        let oldest = self.sent_at[self.oldest];
        oldest != Moment::START && now.since(oldest) < Duration::from_secs(2)
    }
}

#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) hold: Key,
    pub(crate) claim: Arc<Claim>,
    pub(crate) fence: Ticket,
    /// When its validity ends, by its own clock and in true time.
    pub(crate) until: Moment,
    pub(crate) until_time: Time,
    /// How it was lost, once the engine has said so.
    pub(crate) lost: Option<LostWhy>,
    /// The store ended the claim while the guard could not know: only its fence protects the resource.
    pub(crate) is_stale: bool,
}

/// A release that the caller sent.
#[derive(Debug)]
pub(crate) struct PendingRelease {
    pub(crate) leaving: Leaving,
    pub(crate) hold: Key,
    pub(crate) keeps: bool,
    pub(crate) lost: bool,
    pub(crate) sent: Moment,
    pub(crate) watched: Option<ReleaseId>,
}

impl Caller {
    pub(crate) fn new(plan: &CallerPlan, client: u32, seed: u64) -> Self {
        let seed = seed ^ u64::from(plan.id).wrapping_mul(0xd134_2543_de82_ef95);
        Self {
            client,
            state: State::Resting,
            round: 0,
            random: fastrand::Rng::with_seed(seed),
            dozes_until: Time(0),
            since: Time(0),
            key: None,
            terms: None,
            patience: Moment::NEVER,
            call: None,
            repeats: Repeats::default(),
            acknowledged: None,
            request_times: RequestTimes::default(),
            guard: None,
            pending: None,
        }
    }

    /// Nothing of this round is left.
    pub(crate) fn forget_round(&mut self) {
        self.key = None;
        self.terms = None;
        self.call = None;
        self.repeats = Repeats::default();
        self.acknowledged = None;
        self.request_times = RequestTimes::default();
        self.guard = None;
        self.pending = None;
    }

    pub(crate) fn is_asking(&self) -> bool {
        matches!(self.state, State::Asking | State::Pausing | State::Sleeping | State::Woken)
    }

    /// The pause before a repeat, as the client makes it.
    pub(crate) fn backoff(&mut self, failures: u32) -> Duration {
        let longest = Duration::from_millis(50) * (1 << failures.min(5));
        longest.mul_f64(0.5 + self.random.f64() / 2.0)
    }
}

/// The claim of a release, unless it is an operator's.
pub(crate) fn claim_of(leaving: &Leaving) -> Option<&Arc<Claim>> {
    match leaving {
        Leaving::Done(claim)
        | Leaving::Unknown(claim)
        | Leaving::Linger(claim, _)
        | Leaving::Seal { claim, .. }
        | Leaving::UnlessAlone { claim, .. } => Some(claim),
        _ => None,
    }
}
