//! The rules that keep the laws, each with a switch. All are on in the protocol; a test switches one off and expects the
//! search to find a broken law.

/// One rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A push counts only if its ticket is the one the client waits with, not just its claim.
    PushMatchesTicket,
    /// After a claim is gone or given back, its request acquires with a new id.
    NewIdAfterGone,
    /// No renewal shortens a lease.
    NothingShortens,
    /// An acquire of a claim that is in the queue renews it.
    RepeatedAcquireRenews,
    /// Validity counts from before the call was sent, not from its answer.
    ValidFromSending,
    /// A grant by push is valid for the rest of the last lease that the store acknowledged; if that has ended, it is given back.
    PushAddsNoTime,
    /// A claim's whole block of tickets is reserved when it joins, not when it is granted.
    BlockReservedAtJoin,
    /// A block grows only when no claim waits behind its own.
    BlockGrowsOnlyAlone,
    /// An `UnlessAlone` that was sent before the claim's present tickets were drawn changes nothing.
    LateUnlessAloneIsHarmless,
    /// A release after an acquire with an unknown outcome leaves a tombstone for one lease.
    UnknownLeavesTombstone,
    /// A claim that has an acquire without an answer is released as unknown, even after it held.
    UnsureLeavesAsUnknown,
    /// An acquire that was answered does not run again: a driver that repeats calls on its own must not deliver both answers.
    AnsweredAcquireIsOver,
    /// A store that evicts a waiter leaves a tombstone too.
    SkippedLeavesTombstone,
    /// The store drops claims whose lease has ended before it answers.
    SettleBeforeAnswer,
    /// Every waiter polls when the leases ahead of it have ended, not just the first.
    AllWaitersRecheck,
    /// A store decides which waiter is next, then pushes to it; it never pushes a grant to a waiter that it then skips.
    DecideThenPush,
    /// A resource without a holder is not free while a claim is in its queue.
    QueueBeforeKey,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 17] = [
        Self::PushMatchesTicket,
        Self::NewIdAfterGone,
        Self::NothingShortens,
        Self::RepeatedAcquireRenews,
        Self::ValidFromSending,
        Self::PushAddsNoTime,
        Self::BlockReservedAtJoin,
        Self::BlockGrowsOnlyAlone,
        Self::LateUnlessAloneIsHarmless,
        Self::UnknownLeavesTombstone,
        Self::UnsureLeavesAsUnknown,
        Self::AnsweredAcquireIsOver,
        Self::SkippedLeavesTombstone,
        Self::SettleBeforeAnswer,
        Self::AllWaitersRecheck,
        Self::DecideThenPush,
        Self::QueueBeforeKey,
    ];
}

/// Which rules are kept: all, or all but one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    left_out: Option<Rule>,
}

impl Rules {
    /// All rules.
    pub const KEPT: Self = Self { left_out: None };

    /// All rules but this one.
    pub fn without(rule: Rule) -> Self {
        Self { left_out: Some(rule) }
    }

    /// Whether this rule is kept.
    pub fn keeps(self, rule: Rule) -> bool {
        self.left_out != Some(rule)
    }
}
