//! Events in the order of true time; events of the same time in the order in which they were put in.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use lockfast::store::Change;

use crate::calls::CallId;
use crate::clock::Time;
use crate::network::{Delivery, Reply};
use crate::plan::Link;

/// Something that happens at one moment.
#[derive(Debug)]
pub(crate) enum Event {
    /// A request reaches the store.
    Arrive(Box<Delivery>),
    /// An answer reaches a process.
    Answer(CallId, Reply),
    /// A process waits no longer for an answer.
    Limit(CallId),
    /// A push reaches a process.
    Push { client: u32, life: u32, change: Change },
    /// The keeper looks at what is due.
    Keeper { client: u32, generation: u32 },
    /// A caller goes on.
    Caller { caller: u32, round: u32, tick: Tick },
    /// A fault of the plan begins.
    Fault(u32),
    /// A connection is open again.
    Reconnect { client: u32, link: Link, cut: u32 },
    /// The store is up again.
    Restarted,
    /// A new process replaces a dead one.
    Replace { client: u32 },
}

/// The next action of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tick {
    Begin,
    Poll,
    Repeat,
    Patience,
    Cancel,
    CancelRelease,
    Write,
    Extend,
    Exit,
    OutcomeLimit,
}

#[derive(Debug, Default)]
pub(crate) struct Schedule {
    heap: BinaryHeap<Reverse<Entry>>,
    serial: u64,
}

#[derive(Debug)]
struct Entry {
    at: Time,
    serial: u64,
    event: Event,
}

impl Schedule {
    pub(crate) fn put(&mut self, at: Time, event: Event) {
        if at < Time::NEVER {
            self.serial += 1;
            self.heap.push(Reverse(Entry { at, serial: self.serial, event }));
        }
    }

    pub(crate) fn take(&mut self, until: Time) -> Option<(Time, Event)> {
        let Reverse(first) = self.heap.peek()?;
        if first.at > until {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.serial == other.serial
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}
