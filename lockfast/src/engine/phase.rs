//! The phases of a request, and the one table of how it goes from phase to phase.
//!
//! ```text
//!  Enter ─▶ Lead ──Polled──▶ Asking ──Held, inline──────────▶ Granted ──Polled──▶ Held ──AsksIfAlone──▶ Releasing
//!            │ ▲              │ │                              ▲  ▲               │ ▲                      │
//!    Follows │ │ Leads        │ └─Queued──▶ Waiting ──Pushed,──┘  │      HandsOff │ │ Taken                │
//!            ▼ │              │             ▲    │    Renewed     │               ▼ │                      │
//!           Behind            │ Unknown,    │    │ Gone           │             Between ◀──HandsOff────────┘
//!            │                │ Out   Queued│    ▼                │                       (the store: alone)
//!            │ Handed         └──────────▶ Outside ──Held─────────┘
//!            ▼
//!          Handed ──Polled──▶ takes over the hold that is Between, and is gone
//!
//!  Lead     ── Polled, and its requests of this second are used up ──▶ Outside
//!  Handed   ── Polled, and that hold is over ──▶ Lead
//!  Granted  ── Polled: nothing left of its lease ──▶ Lead;  little left ──▶ Waiting, settling;  Renewed: Gone ──▶ Outside
//!  Waiting  ── Pushed, and little is left of its lease ──▶ Waiting, settling ── Renewed: Waiting ──▶ Waiting
//!  Asking   ── AskedBeside: Held ──▶ Asking, is_held ── Repeats ──▶ Asking
//!  Between  ── AsksIfAlone (it was handed back) ──▶ Releasing;  HandsOff, to the next ──▶ Between
//!  Outside  ── Admitted: Out ──▶ Outside, without an end
//!  Lead, Handed, Granted, Asking ── Due, and not polled in time ──▶ GivenBack ── Polled ──▶ Lead
//!  Asking, Outside ── Sealed ──▶ Sealed          any that does not hold ── Fails ──▶ Failed
//! ```
//!
//! A request leaves for good from any phase: its hold ends, its future is dropped, its patience ends, the client closes. A
//! loss is no phase: the guard of a lost hold stays until it is dropped (`Request::lost`).
//!
//! 1. [`CurrentPhase::change`] is the only place where a phase changes, and [`next`] the only table. It decides by phase, event and
//!    the lease of the request; the [`Action`] names the rest of the work, and its file.
//! 2. A claim that may be in the store's queue is never left alone: every row that parts a request from its claim has an
//!    action that releases it. `Sealed` and `Fails` are the exceptions: `acquire.rs` and `rejoin.rs` release before.

use std::ops::Deref;

use bytes::Bytes;

use crate::claim::{Ticket, Tickets};
use crate::clock::Moment;
use crate::error::{Error, LostWhy};
use crate::planted::Rule;
use crate::store::{Standing, Why};

use super::UNAVAILABLE_AFTER;
use super::action::{AcquireAnswer, Action, On, Rest};
use super::request::{RateLimit, Request};
use super::requests::Key;

/// How far a request has come.
#[derive(Clone, Debug)]
pub enum Phase {
    /// In the local queue, behind other requests of this process.
    Behind,
    /// To ask the store at its next poll.
    Lead,
    /// Its future is asking the store, until `until` at most. `is_held`: the keeper knows from the store that the claim holds,
    /// so the answer has arrived, and the future has not been polled since.
    Asking {
        /// When the keeper stops waiting for the future.
        until: Moment,
        /// The claim holds.
        is_held: bool,
    },
    /// Not in the queue, though it should be: the keeper asks for it, until `give_up_at`.
    Outside {
        /// When it fails.
        give_up_at: Moment,
    },
    /// In the queue. `settling`: it was handed the lock with little of its lease left, and the keeper renews first.
    Waiting {
        /// Its ticket.
        ticket: Ticket,
        /// Whether a renewal comes first.
        settling: bool,
    },
    /// Handed the lock, with `count` tickets from `first` on. Its future has not been polled since `at`.
    Granted {
        /// The first ticket.
        first: Ticket,
        /// How many tickets.
        count: u32,
        /// Whether its lease was renewed after the hand-off.
        settled: bool,
        /// Since when.
        at: Moment,
    },
    /// Its future was not polled in time. Its grant was given back to the next waiter; it begins anew when polled.
    GivenBack,
    /// Handed the hold of another request of this process.
    Handed {
        /// The request that holds.
        hold: Key,
        /// With this fencing token.
        ticket: Ticket,
    },
    /// There is a guard.
    Held,
    /// Held by this process, between two of its requests.
    Between,
    /// Its release is with the store.
    Releasing,
    /// The resource is sealed with this value.
    Sealed(Box<Bytes>),
    /// It will never hold.
    Failed(Box<Error>),
}

/// The phase of a request. Only [`change`](Self::change) moves it.
#[derive(Debug)]
pub(super) struct CurrentPhase(Phase);

impl CurrentPhase {
    pub(super) fn start() -> Self {
        Self(Phase::Lead)
    }

    #[inline(always)]
    pub(super) fn change(request: &mut Request, on: On<'_>, now: Moment) -> Action {
        let (phase, action) = next(request, on, now);
        if let Some(phase) = phase {
            request.phase.0 = phase;
        }
        action
    }
}

impl Deref for CurrentPhase {
    type Target = Phase;

    fn deref(&self) -> &Phase {
        &self.0
    }
}

/// The table. `None`: the phase stays.
#[inline(always)]
fn next(request: &Request, on: On<'_>, now: Moment) -> (Option<Phase>, Action) {
    use Phase::{
        Asking, Behind, Between, Failed, GivenBack, Granted, Handed, Held, Lead, Outside, Releasing, Sealed, Waiting,
    };
    let phase = &*request.phase;
    let to = |phase, action| (Some(phase), action);
    let stay = |action| (None, action);
    match (phase, on) {
        // The future of the request is polled.
        // It has asked too often lately: the keeper asks for it as soon as it may.
        (Lead, On::Polled { .. }) if RateLimit::is_used_up(request, now) => {
            let give_up_at = now + UNAVAILABLE_AFTER;
            to(Outside { give_up_at }, Action::AskLater(give_up_at))
        }
        (Lead, On::Polled { .. }) => {
            let until = now + UNAVAILABLE_AFTER + request.grace();
            to(Asking { until, is_held: false }, Action::Ask)
        }
        (GivenBack, On::Polled { .. }) => to(Lead, Action::Restart),
        (Granted { .. }, On::Polled { .. }) if request.lease_until <= now => to(Lead, Action::AskAnew),
        (Granted { first, settled: false, .. }, On::Polled { .. }) if !request.has_enough(now) => {
            to(Waiting { ticket: *first, settling: true }, Action::RenewFirst)
        }
        (Granted { first, count, .. }, On::Polled { .. }) => to(Held, Action::Enter(Tickets::new(*first, *count))),
        (Handed { hold, .. }, On::Polled { hold_is_over: true, .. }) => to(Lead, Action::TakeLead(*hold)),
        (Handed { hold, ticket }, On::Polled { .. }) => stay(Action::TakeOver(*hold, *ticket)),
        (Sealed(_) | Failed(_), On::Polled { .. }) => stay(Action::Answer),
        (Behind | Asking { .. } | Outside { .. } | Waiting { .. } | Held | Between | Releasing, On::Polled { .. }) => {
            stay(Action::Wait)
        }

        // Local hand-off.
        (Lead, On::Follows) => to(Behind, Action::CountWaiting),
        (Behind, On::Leads) => to(Lead, Action::WakeForGrace),
        (Behind, On::Handed { hold, ticket }) => to(Handed { hold, ticket }, Action::WakeForGrace),
        (Held | Releasing | Between, On::HandsOff) => to(Between, Action::Nothing),
        (Between, On::Taken) => to(Held, Action::Nothing),
        (Held | Between, On::AsksIfAlone) => to(Releasing, Action::Nothing),

        // The store answered the acquire.
        (Asking { .. } | Outside { .. }, On::Admitted(answer)) => match (phase, answer) {
            // How long the answer took, waiting does not mend: the poll that brought it enters.
            (_, AcquireAnswer::Held { tickets: Tickets { first, count }, ack, inline: true }) => {
                to(Granted { first, count, settled: true, at: now }, Action::PickUp(ack))
            }
            (_, AcquireAnswer::Held { tickets, ack, inline: false }) => {
                let Tickets { first, count } = tickets;
                to(Granted { first, count, settled: false, at: now }, Action::Grant(tickets, Some(ack)))
            }
            (_, AcquireAnswer::Queued { ticket, ack, recheck_in }) => {
                to(Waiting { ticket, settling: false }, Action::Queue { ticket, ack, recheck_in })
            }
            (_, AcquireAnswer::Sealed(value)) => to(Sealed(Box::new(value)), Action::End),
            (_, AcquireAnswer::Out) => to(Outside { give_up_at: Moment::NEVER }, Action::AskWithNewClaim),
            (Outside { give_up_at }, AcquireAnswer::Unknown { .. }) => stay(Action::AskLater(*give_up_at)),
            (_, AcquireAnswer::Unknown { give_up_at }) => to(Outside { give_up_at }, Action::AskLater(give_up_at)),
        },
        // `acquire.rs` withdraws the claim of such an answer: the request has another one, or none.
        (_, On::Admitted(_)) => stay(Action::Nothing),
        // Its future is polled, or it would not repeat.
        (Asking { until, .. }, On::Repeats) => to(Asking { until: *until, is_held: false }, Action::Nothing),
        (Asking { until, .. }, On::AskedBeside { standing: Standing::Held(_) }) => {
            to(Asking { until: *until, is_held: true }, Action::ExpectPoll)
        }

        // The store grants by push. A push with another ticket is about an earlier life of the claim.
        (Waiting { ticket: mine, .. }, On::Pushed { ticket, .. })
            if *mine != ticket && !Rule::PushMatchesTicket.is_left_out() =>
        {
            stay(Action::Nothing)
        }
        (Waiting { settling: false, .. }, On::Pushed { ticket, .. }) if !request.has_enough(now) => {
            to(Waiting { ticket, settling: true }, Action::RenewFirst)
        }
        (Waiting { settling, .. }, On::Pushed { ticket, block }) => {
            let granted = Granted { first: ticket, count: block, settled: *settling, at: now };
            to(granted, Action::Grant(Tickets::new(ticket, block), None))
        }
        // The push has overtaken the answer to the acquire, which says whether the ticket is that of this claim.
        (Asking { .. } | Outside { .. }, On::Pushed { ticket, .. }) if !Rule::EarlyPushIsKept.is_left_out() => {
            stay(Action::NoteEarly(ticket))
        }

        // The store answered a renewal. If it was sent while holding and finds the claim waiting, the store has forgotten the
        // hand-off, and counts another claim as the holder.
        (Held | Between, On::Renewed { standing: Standing::Waiting { .. }, waited: false, .. }) => {
            stay(Action::Lose(LostWhy::Evicted))
        }
        // An answer after the deadline comes too late: the holder may have seen the deadline pass. An answer "waiting" was sent before
        // the hand-off.
        (Held | Between, On::Renewed { standing: Standing::Held(_) | Standing::Waiting { .. }, ack, .. }) => {
            stay(request.loss(now).map_or(Action::Extend(ack), Action::Lose))
        }
        (Held | Between, On::Renewed { standing: Standing::Gone(why), .. }) => stay(Action::Lose(match why {
            Why::Broken => LostWhy::Broken,
            Why::Expired => LostWhy::Expired,
            _ => LostWhy::Evicted,
        })),
        (Granted { first, .. } | Waiting { ticket: first, .. }, On::Renewed { standing: Standing::Gone(_), .. }) => {
            to(Outside { give_up_at: Moment::NEVER }, Action::Rejoin(*first))
        }
        (Granted { .. }, On::Renewed { ack, .. }) => stay(Action::Lease(ack)),
        // Its lease was renewed just now. How long the answer took, another renewal would not mend.
        (Waiting { .. }, On::Renewed { standing: Standing::Held(tickets), ack, .. }) => {
            let granted = Granted { first: tickets.first, count: tickets.count, settled: true, at: now };
            to(granted, Action::Grant(*tickets, Some(ack)))
        }
        // It was handed the lock, and this answer may be from before that: the next one is not.
        (Waiting { ticket, settling: true }, On::Renewed { ack, .. }) => {
            to(Waiting { ticket: *ticket, settling: false }, Action::AskOnceMore(ack))
        }
        (Waiting { .. }, On::Renewed { standing: Standing::Waiting { recheck_in, .. }, ack, .. }) => {
            stay(Action::StillWaiting { ack, recheck_in: *recheck_in })
        }

        // The moment of the request has come.
        (Held | Between, On::Due) if request.is_over(now) && !Rule::LostAtDeadline.is_left_out() => {
            stay(Action::Lose(request.deadline().1))
        }
        (Held | Between, On::Due) => stay(Action::Renew),
        (Waiting { .. }, On::Due) if !request.in_flight => stay(Action::Recheck),
        (Granted { at, .. }, On::Due) if now < *at + request.grace() => stay(Action::LookAgain(*at + request.grace())),
        (Granted { .. }, On::Due) if Rule::UnpolledGrantIsGivenBack.is_left_out() => stay(Action::Nothing),
        // Its future is not polled any more, or not for a long time. Other waiters are.
        (Granted { .. }, On::Due) => to(GivenBack, Action::GiveBack { is_unknown: false }),
        (Asking { until, is_held: false }, On::Due) if now < *until => stay(Action::AskBeside(*until)),
        (Asking { .. }, On::Due) => to(GivenBack, Action::GiveBack { is_unknown: true }),
        (Outside { give_up_at }, On::Due) if !request.in_flight && now >= *give_up_at => stay(Action::GiveUp),
        (Outside { .. }, On::Due) if !request.in_flight => stay(Action::Join),
        (Lead, On::Due) => to(GivenBack, Action::StepAside),
        (Handed { hold, .. }, On::Due) => to(GivenBack, Action::HandBack(*hold)),
        (Releasing, On::Due) => stay(Action::GoOnWithoutAnswer),

        (Held | Between | Releasing, On::Fails(_)) => stay(Action::Nothing),
        (_, On::Fails(error)) => to(Failed(error), Action::End),

        // The request is about to be forgotten. With an acquire of the keeper in flight, its answer withdraws the claim,
        // and its outcome is known then.
        (Behind, On::Withdrawn) => stay(Action::Forget(Rest::LocalEntry)),
        (Handed { hold, .. }, On::Withdrawn) => stay(Action::Forget(Rest::Hold(*hold))),
        (Outside { .. }, On::Withdrawn) if request.in_flight => stay(Action::Forget(Rest::Nothing)),
        (Asking { .. } | Outside { .. }, On::Withdrawn) => stay(Action::Forget(Rest::Claim { is_unknown: true })),
        (Waiting { .. } | Granted { .. }, On::Withdrawn) => stay(Action::Forget(Rest::Claim { is_unknown: false })),
        (Lead | GivenBack | Sealed(_) | Failed(_) | Held | Between | Releasing, On::Withdrawn) => {
            stay(Action::Forget(Rest::Nothing))
        }

        // An event that comes too late, or twice, changes nothing.
        (_, On::Follows | On::Leads | On::Handed { .. } | On::HandsOff | On::Taken | On::AsksIfAlone) => {
            stay(Action::Nothing)
        }
        (_, On::Repeats | On::AskedBeside { .. } | On::Pushed { .. } | On::Renewed { .. }) => stay(Action::Nothing),
        (_, On::Due) => stay(Action::Nothing),
    }
}
