//! The rules that keep the laws, each with a switch. All are on in the protocol; a test switches one off and expects the
//! search to find what breaks.

/// One rule of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A push counts only if its ticket is the one the client waits with, not just its claim.
    PushMatchesTicket,
    /// After a claim is gone or given back, its party asks with a new id.
    NewIdAfterGone,
    /// No renewal shortens a lease.
    NothingShortens,
    /// An acquire of a claim that is in line renews it.
    RepeatedAcquireRenews,
    /// Validity counts from before the request was sent, not from its answer.
    ValidFromSending,
    /// A hand-off by push is worth what is left of the last lease the store acknowledged; nothing left is gone.
    PushAddsNoTime,
    /// A claim's whole block of tickets is reserved when it joins, not when it is granted.
    BlockReservedAtJoin,
    /// A block grows only when nobody waits behind the claim.
    BlockGrowsOnlyAlone,
    /// An `UnlessAlone` from before the claim's present tickets changes nothing.
    LateTurnEndsNothing,
    /// A release after an unknown acquire keeps its id out for one lease.
    UnknownLeavesMark,
    /// Who has an acquire without an answer says so when it leaves, even after it held.
    UnsureLeavesAsUnknown,
    /// A call that was answered does not run again: what a driver repeats on its own it must not answer for.
    AnsweredAcquireIsOver,
    /// A store that takes a waiter out keeps its id out too.
    SkippedIsMarked,
    /// The store drops what has run out before it answers.
    SettleBeforeAnswer,
    /// Everybody who waits asks again when the leases ahead have run out, not just the first.
    EverybodyRechecks,
    /// A store decides who is next, then tells that one; it never tells somebody it then passes over.
    DecideThenTell,
    /// A resource without a holder is not free while somebody stands in its line.
    LineBeforeKey,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::PushMatchesTicket,
        Self::NewIdAfterGone,
        Self::NothingShortens,
        Self::RepeatedAcquireRenews,
        Self::ValidFromSending,
        Self::PushAddsNoTime,
        Self::BlockReservedAtJoin,
        Self::BlockGrowsOnlyAlone,
        Self::LateTurnEndsNothing,
        Self::UnknownLeavesMark,
        Self::UnsureLeavesAsUnknown,
        Self::AnsweredAcquireIsOver,
        Self::SkippedIsMarked,
        Self::SettleBeforeAnswer,
        Self::EverybodyRechecks,
        Self::DecideThenTell,
        Self::LineBeforeKey,
    ];
}

/// Which rules are kept: all, or all but one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    off: Option<Rule>,
}

impl Rules {
    /// All of them.
    pub const KEPT: Self = Self { off: None };

    /// All but this one.
    pub fn without(rule: Rule) -> Self {
        Self { off: Some(rule) }
    }

    /// Whether this one is kept.
    pub fn keep(self, rule: Rule) -> bool {
        self.off != Some(rule)
    }
}
