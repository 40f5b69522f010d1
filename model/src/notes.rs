//! Notes about the step that led to a state: milestones, which the search must reach, and violations, which it must not. They
//! are part of the state, so a path to each can be shown; the next step clears them.

use std::ops::BitOrAssign;

/// A set of notes.
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
    /// The store granted a lock after the lease of a claim ahead ended.
    pub const HANDED_AFTER_EXPIRY: Self = Self(1 << 1);
    /// A request whose claim was gone acquired with a new id.
    pub const REJOINED: Self = Self(1 << 2);
    /// An acquire that came after its release was refused.
    pub const LATE_ACQUIRE_REFUSED: Self = Self(1 << 3);
    /// A push with the ticket of an earlier claim was ignored.
    pub const STALE_PUSH_IGNORED: Self = Self(1 << 4);
    /// A holder wrote after its validity, and was refused because a later holder had written.
    pub const STALE_WRITE_REFUSED: Self = Self(1 << 5);
    /// A task handed the lock off to the next task of its process.
    pub const HANDED_OFF_LOCALLY: Self = Self(1 << 6);
    /// A run of hand-offs ended, no other claim waited, and the claim kept the lock.
    pub const WENT_ON_ALONE: Self = Self(1 << 7);
    /// A run of hand-offs ended, another claim waited, and the claim left.
    pub const LEFT_FOR_WAITERS: Self = Self(1 << 8);
    /// A claim on two resources had to wait, and then held both.
    pub const MULTI_ENTERED_AFTER_WAIT: Self = Self(1 << 9);
    /// Holder and first waiter had died; the second waiter got the lock.
    pub const TAKEN_FROM_TWO_DEAD: Self = Self(1 << 10);
    /// A grant arrived after the validity of its lease had ended, and was given back.
    pub const TOO_LATE_GIVEN_BACK: Self = Self(1 << 11);
    /// A waiter was granted the lock with little of its lease left, and renewed before it entered.
    pub const SETTLED_FIRST: Self = Self(1 << 12);
    /// The store skipped a waiter that it took for unreachable.
    pub const SKIPPED: Self = Self(1 << 13);
    /// Two readers were inside together.
    pub const SHARED: Self = Self(1 << 14);
    /// A late `UnlessAlone` changed nothing.
    pub const LATE_UNLESS_ALONE_IGNORED: Self = Self(1 << 15);
    /// Forbidden: a write inside validity was refused.
    pub const VALID_WRITE_REFUSED: Self = Self(1 << 30);
    /// Forbidden: a holder entered with a fence that is not above all fences that it cannot share with.
    pub const FENCE_FELL: Self = Self(1 << 31);

    /// Whether the sets have a note in common.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The notes of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The wanted notes among these, and all that are forbidden.
    #[must_use]
    pub fn only(self, wanted: Self) -> Self {
        Self(self.0 & (wanted.0 | Self::VALID_WRITE_REFUSED.0 | Self::FENCE_FELL.0))
    }
}

/// The milestones, by name.
pub const MILESTONES: [(Notes, &str); 16] = [
    (Notes::ENTERED_BY_PUSH, "a waiter enters by a push"),
    (Notes::HANDED_AFTER_EXPIRY, "the lock is granted after an expiry"),
    (Notes::REJOINED, "a request rejoins with a new id"),
    (Notes::LATE_ACQUIRE_REFUSED, "a late acquire is refused by a tombstone"),
    (Notes::STALE_PUSH_IGNORED, "a stale push is ignored"),
    (Notes::STALE_WRITE_REFUSED, "a stale write is refused"),
    (Notes::HANDED_OFF_LOCALLY, "a task hands the lock off to the next"),
    (Notes::WENT_ON_ALONE, "a run of hand-offs ends and goes on alone"),
    (Notes::LEFT_FOR_WAITERS, "a run of hand-offs ends and leaves for waiters"),
    (Notes::MULTI_ENTERED_AFTER_WAIT, "a multi waits and then holds"),
    (Notes::TAKEN_FROM_TWO_DEAD, "holder and first waiter die and the second takes over"),
    (Notes::TOO_LATE_GIVEN_BACK, "a grant that came too late is given back"),
    (Notes::SETTLED_FIRST, "a waiter with little time left renews, then enters"),
    (Notes::SKIPPED, "an unreachable waiter is skipped"),
    (Notes::SHARED, "two readers are inside together"),
    (Notes::LATE_UNLESS_ALONE_IGNORED, "a late end of a run changes nothing"),
];
