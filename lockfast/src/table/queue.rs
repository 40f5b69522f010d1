//! One resource's queue: its entries in ticket order, and how many at the front fit the capacity together.
//!
//! 1. Tickets rise from front to back.
//! 2. `fitting_count` is the length of the longest front part whose weights fit the capacity together, `used_weight` their
//!    sum.
//! 3. Removing an entry never makes a fitting entry unfitting, and new entries join at the back: an entry that fits, fits
//!    until it is removed.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::claim::{ClaimHash, Demand, Ticket};
use crate::clock::Moment;

/// The place of one claim in this queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueEntry {
    pub(super) ticket: Ticket,
    pub(super) owner: ClaimHash,
    weight: u32,
}

/// A value that answers every acquire of the resource until a moment.
#[derive(Debug)]
pub(super) struct Seal {
    pub(super) value: Bytes,
    pub(super) until: Moment,
}

#[derive(Debug)]
pub(super) struct Queue {
    capacity: u32,
    entries: VecDeque<QueueEntry>,
    /// How many entries at the front fit the capacity together.
    fitting_count: u32,
    /// The sum of the weights of these entries.
    used_weight: u32,
    pub(super) seal: Option<Box<Seal>>,
}

impl Queue {
    pub(super) fn new(capacity: u32) -> Self {
        Self { capacity, entries: VecDeque::new(), fitting_count: 0, used_weight: 0, seal: None }
    }

    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(super) fn entries(&self) -> &VecDeque<QueueEntry> {
        &self.entries
    }

    pub(super) fn is_unused(&self) -> bool {
        self.entries.is_empty() && self.seal.is_none()
    }

    /// Whether a demand with this capacity may join: an empty queue adopts a new capacity.
    pub(super) fn accepts_capacity(&self, capacity: u32) -> bool {
        self.entries.is_empty() || self.capacity == capacity
    }

    /// Whether a new entry would fit at once.
    pub(super) fn has_room_for(&self, demand: &Demand) -> bool {
        let capacity = if self.entries.is_empty() { demand.capacity } else { self.capacity };
        self.fitting_count as usize == self.entries.len() && self.used_weight + demand.weight <= capacity
    }

    /// Appends an entry and returns whether it fits.
    pub(super) fn join(&mut self, demand: &Demand, ticket: Ticket, owner: ClaimHash) -> bool {
        debug_assert!(self.entries.back().is_none_or(|last| last.ticket < ticket), "tickets rise");
        if self.entries.is_empty() {
            self.capacity = demand.capacity;
            // Most queues have one entry; a second one makes the buffer grow as usual.
            self.entries.reserve_exact(1);
        }
        self.entries.push_back(QueueEntry { ticket, owner, weight: demand.weight });
        self.admit_next().is_some()
    }

    /// Removes the entry with this ticket.
    pub(super) fn remove(&mut self, ticket: Ticket) {
        let index = self.index_of(ticket);
        let entry = self.entries.remove(index).expect("`index_of` found it there");
        if index < self.fitting_count as usize {
            self.fitting_count -= 1;
            self.used_weight -= entry.weight;
        }
        if self.entries.is_empty() {
            // A queue kept for its seal does not keep the memory of many former waiters.
            self.entries = VecDeque::new();
        }
    }

    /// Lets the first waiting entry fit, if there is room, and returns its owner.
    pub(super) fn admit_next(&mut self) -> Option<ClaimHash> {
        let next = self.entries.get(self.fitting_count as usize)?;
        if self.used_weight + next.weight > self.capacity {
            return None;
        }
        self.fitting_count += 1;
        self.used_weight += next.weight;
        Some(next.owner)
    }

    /// The owner of the first entry that does not fit.
    pub(super) fn first_waiter(&self) -> Option<ClaimHash> {
        self.entries.get(self.fitting_count as usize).map(|entry| entry.owner)
    }

    /// How many entries are ahead of this ticket.
    pub(super) fn index_of(&self, ticket: Ticket) -> usize {
        self.entries
            .binary_search_by_key(&ticket, |entry| entry.ticket)
            .expect("a claim in the table has an entry in each queue it names")
    }

    /// The last entry whose ticket is not above this one.
    pub(super) fn at_or_before(&self, ticket: Ticket) -> Option<&QueueEntry> {
        let behind = self.entries.partition_point(|entry| entry.ticket <= ticket);
        self.entries.get(behind.checked_sub(1)?)
    }
}
