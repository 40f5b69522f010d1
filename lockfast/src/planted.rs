//! Rules that can be left out on purpose, one at a time, to show that the simulation notices. Only with the cargo feature
//! `planted-faults`, which no build enables by default; without it every rule is kept, at no cost.

#![allow(unreachable_pub, reason = "public only with the feature `planted-faults`")]

/// One rule of the engine or of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A lease counts from before its request was sent.
    LeaseCountsFromSending,
    /// A push counts only if claim and ticket match.
    PushMatchesTicket,
    /// A release whose acquire has an unknown outcome leaves a tombstone.
    UnknownLeavesTombstone,
    /// A grant whose future is not polled is released.
    UnpolledGrantIsGivenBack,
    /// A push that overtakes the answer to its acquire is kept.
    EarlyPushIsKept,
    /// Waiters renew their claims.
    WaitersRenew,
    /// A hold is lost at its deadline, whether or not the store answers.
    LostAtDeadline,
    /// A renewal without an answer is no loss.
    UnknownIsNotLost,
    /// A waiter polls the store at most five times a second.
    FiveRequestsASecond,
    /// A run of local hand-offs ends.
    RunsEnd,
    /// Fences of local hand-offs come from the reserved block.
    TicketsAreReserved,
    /// A release without an answer is sent again.
    ReleaseIsRepeated,
    /// A claim carries the largest ticket that its client has seen.
    FloorIsCarried,
    /// The claim of an acquire that is answered too late is withdrawn.
    LateAnswerIsWithdrawn,
    /// A request that ends without a lock withdraws its claim.
    CancelledClaimIsWithdrawn,
    /// A waiter polls when all leases ahead of it should have ended.
    RecheckCoversLeasesAhead,
    /// After a gap in the pushes, all waiters poll.
    ResyncAsksAll,
    /// In the store, no verb shortens a lease.
    NoVerbShortens,
    /// In the store, the id of a tombstone is refused.
    TombstoneKeepsOut,
    /// In the store, `UnlessAlone` ends the hold while a claim waits behind it.
    UnlessAloneYields,
    /// In the store, a late copy of `UnlessAlone` changes nothing.
    LateUnlessAloneIsHarmless,
    /// In the store, a repeated acquire renews.
    RepeatedAcquireRenews,
    /// In the store, tickets are above the floor of their claim.
    TicketsAboveFloor,
    /// In the store, sealing empties the queue.
    SealEmptiesQueue,
}

impl Rule {
    /// Every rule.
    #[cfg(feature = "planted-faults")]
    pub const ALL: [Self; 24] = [
        Self::LeaseCountsFromSending,
        Self::PushMatchesTicket,
        Self::UnknownLeavesTombstone,
        Self::UnpolledGrantIsGivenBack,
        Self::EarlyPushIsKept,
        Self::WaitersRenew,
        Self::LostAtDeadline,
        Self::UnknownIsNotLost,
        Self::FiveRequestsASecond,
        Self::RunsEnd,
        Self::TicketsAreReserved,
        Self::ReleaseIsRepeated,
        Self::FloorIsCarried,
        Self::LateAnswerIsWithdrawn,
        Self::CancelledClaimIsWithdrawn,
        Self::RecheckCoversLeasesAhead,
        Self::ResyncAsksAll,
        Self::NoVerbShortens,
        Self::TombstoneKeepsOut,
        Self::UnlessAloneYields,
        Self::LateUnlessAloneIsHarmless,
        Self::RepeatedAcquireRenews,
        Self::TicketsAboveFloor,
        Self::SealEmptiesQueue,
    ];

    /// Whether this thread leaves the rule out.
    #[cfg(feature = "planted-faults")]
    #[inline]
    pub(crate) fn is_left_out(self) -> bool {
        LEFT_OUT.get() == Some(self)
    }

    #[cfg(not(feature = "planted-faults"))]
    #[inline(always)]
    pub(crate) const fn is_left_out(self) -> bool {
        false
    }
}

#[cfg(feature = "planted-faults")]
thread_local! {
    static LEFT_OUT: std::cell::Cell<Option<Rule>> = const { std::cell::Cell::new(None) };
}

/// From now on this thread leaves out this rule only; with `None`, it keeps all rules.
#[cfg(feature = "planted-faults")]
pub fn leave_out(rule: Option<Rule>) {
    LEFT_OUT.set(rule);
}
