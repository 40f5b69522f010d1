//! What happened in the step that led to a state: the interesting, which the search must reach, and the forbidden, which
//! it must not. Part of the state, so a path to each can be shown; gone again with the next step.

use std::ops::BitOrAssign;

/// A set of things that happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Notes(pub u32);

impl BitOrAssign for Notes {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl Notes {
    /// A waiter entered by a push.
    pub const ENTERED_BY_PUSH: Self = Self(1);
    /// The store handed on what somebody's lease had kept.
    pub const HANDED_AFTER_EXPIRY: Self = Self(1 << 1);
    /// A party whose claim was gone asked with a new id.
    pub const REJOINED: Self = Self(1 << 2);
    /// An acquire that came after its release was refused.
    pub const LATE_ACQUIRE_REFUSED: Self = Self(1 << 3);
    /// A push about an earlier life of a claim was ignored.
    pub const STALE_PUSH_IGNORED: Self = Self(1 << 4);
    /// Somebody wrote after its validity, and was refused because a later holder had written.
    pub const STALE_WRITE_REFUSED: Self = Self(1 << 5);
    /// A task passed the lock to the next task of its process.
    pub const PASSED_LOCALLY: Self = Self(1 << 6);
    /// A turn ended, nobody waited, and it went on.
    pub const WENT_ON_ALONE: Self = Self(1 << 7);
    /// A turn ended, somebody waited, and the claim left.
    pub const LEFT_TO_OTHERS: Self = Self(1 << 8);
    /// A claim on two resources had to wait, and then held both.
    pub const MULTI_ENTERED_AFTER_WAIT: Self = Self(1 << 9);
    /// Holder and first waiter had died; the second waiter got the lock.
    pub const TAKEN_FROM_TWO_DEAD: Self = Self(1 << 10);
    /// A grant arrived with no validity left and was given back.
    pub const TOO_LATE_GIVEN_BACK: Self = Self(1 << 11);
    /// A waiter was handed the lock with little time left, and renewed before it entered.
    pub const SETTLED_FIRST: Self = Self(1 << 12);
    /// The store passed over a waiter that it took for unreachable.
    pub const SKIPPED: Self = Self(1 << 13);
    /// Two readers were inside together.
    pub const SHARED: Self = Self(1 << 14);
    /// A late `UnlessAlone` changed nothing.
    pub const LATE_TURN_END_IGNORED: Self = Self(1 << 15);
    /// Forbidden: a write inside validity was refused.
    pub const VALID_WRITE_REFUSED: Self = Self(1 << 30);
    /// Forbidden: somebody entered with a fence that is not above those it cannot share with.
    pub const FENCE_FELL: Self = Self(1 << 31);

    /// Whether it is among these.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// These and those.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those of these that somebody wants to see, and all that is forbidden.
    #[must_use]
    pub fn only(self, wanted: Self) -> Self {
        Self(self.0 & (wanted.0 | Self::VALID_WRITE_REFUSED.0 | Self::FENCE_FELL.0))
    }
}

/// The interesting, by name.
pub const MILESTONES: [(Notes, &str); 16] = [
    (Notes::ENTERED_BY_PUSH, "a waiter enters by a push"),
    (Notes::HANDED_AFTER_EXPIRY, "the lock is handed on after an expiry"),
    (Notes::REJOINED, "a party rejoins with a new id"),
    (Notes::LATE_ACQUIRE_REFUSED, "a late acquire is refused by a gone-mark"),
    (Notes::STALE_PUSH_IGNORED, "a stale push is ignored"),
    (Notes::STALE_WRITE_REFUSED, "a stale write is refused"),
    (Notes::PASSED_LOCALLY, "a task passes the lock to the next"),
    (Notes::WENT_ON_ALONE, "a turn ends and goes on alone"),
    (Notes::LEFT_TO_OTHERS, "a turn ends and leaves to others"),
    (Notes::MULTI_ENTERED_AFTER_WAIT, "a multi waits and then holds"),
    (Notes::TAKEN_FROM_TWO_DEAD, "holder and first waiter die and the second takes over"),
    (Notes::TOO_LATE_GIVEN_BACK, "a grant that came too late is given back"),
    (Notes::SETTLED_FIRST, "a waiter with little time left renews, then enters"),
    (Notes::SKIPPED, "an unreachable waiter is passed over"),
    (Notes::SHARED, "two readers are inside together"),
    (Notes::LATE_TURN_END_IGNORED, "a late end of a turn changes nothing"),
];
