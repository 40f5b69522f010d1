//! The kinds of faults, and how often each changed something.

use std::fmt;

/// A kind of fault. A fault is counted when it bit: when a message really was lost, a copy really ran, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Kind {
    RequestLost,
    AnswerLost,
    RequestDuplicated,
    RequestReordered,
    RequestLate,
    RequestAfterTombstone,
    AnswerLate,
    PushLost,
    PushLate,
    PushDuplicated,
    Disconnected,
    RequestRanAfterDisconnect,
    BlackHole,
    PauseWithinLease,
    PauseBeyondLease,
    Killed,
    StoreRestarted,
    StoreLostData,
    StoreClockBehind,
    StoreStalled,
    Broken,
    BrokenAtOnce,
    CancelledAsking,
    CancelledWaiting,
    CancelledAtGrant,
    CancelledReleasing,
    PolledLate,
    NeverPolled,
    GuardDropped,
    PatienceOver,
}

/// How many kinds there are.
pub const KINDS: usize = Kind::PatienceOver as usize + 1;

/// All kinds, in order.
pub const ALL: [Kind; KINDS] = [
    Kind::RequestLost,
    Kind::AnswerLost,
    Kind::RequestDuplicated,
    Kind::RequestReordered,
    Kind::RequestLate,
    Kind::RequestAfterTombstone,
    Kind::AnswerLate,
    Kind::PushLost,
    Kind::PushLate,
    Kind::PushDuplicated,
    Kind::Disconnected,
    Kind::RequestRanAfterDisconnect,
    Kind::BlackHole,
    Kind::PauseWithinLease,
    Kind::PauseBeyondLease,
    Kind::Killed,
    Kind::StoreRestarted,
    Kind::StoreLostData,
    Kind::StoreClockBehind,
    Kind::StoreStalled,
    Kind::Broken,
    Kind::BrokenAtOnce,
    Kind::CancelledAsking,
    Kind::CancelledWaiting,
    Kind::CancelledAtGrant,
    Kind::CancelledReleasing,
    Kind::PolledLate,
    Kind::NeverPolled,
    Kind::GuardDropped,
    Kind::PatienceOver,
];

/// How often each kind bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bites([u64; KINDS]);

impl Bites {
    pub(crate) fn note(&mut self, kind: Kind) {
        self.0[kind as usize] += 1;
    }

    /// How often this kind bit.
    pub fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    /// Adds those of another world.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(all, more)| *all += more);
    }

    /// The kinds that never bit.
    pub fn missing(&self) -> impl Iterator<Item = Kind> {
        ALL.into_iter().filter(|kind| self.of(*kind) == 0)
    }
}

impl fmt::Display for Bites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ALL.iter().try_for_each(|kind| writeln!(f, "  {:>12}  {}", self.of(*kind), spaced(*kind)))
    }
}

/// `RequestLost` as `request lost`.
fn spaced(kind: Kind) -> String {
    let mut text = String::new();
    for letter in format!("{kind:?}").chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push(' ');
        }
        text.extend(letter.to_lowercase());
    }
    text
}
