//! One resource's line: who stands in it, in ticket order, and how many at the front fit the capacity together.
//!
//! 1. Tickets rise from front to back.
//! 2. `fitting` is the length of the longest front part whose weights fit the capacity together, `used` their sum.
//! 3. Taking a place away never makes a fitting place unfitting, and newcomers stand at the back: so who fits, goes on
//!    fitting.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::claim::{ClaimHash, Demand, Ticket};
use crate::clock::Moment;

#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) ticket: Ticket,
    pub(super) owner: ClaimHash,
    weight: u32,
}

#[derive(Debug)]
pub(super) struct Seal {
    pub(super) value: Bytes,
    pub(super) until: Moment,
}

#[derive(Debug)]
pub(super) struct Line {
    capacity: u32,
    places: VecDeque<Place>,
    fitting: u32,
    used: u32,
    pub(super) seal: Option<Box<Seal>>,
}

impl Line {
    pub(super) fn new(capacity: u32) -> Self {
        Self { capacity, places: VecDeque::new(), fitting: 0, used: 0, seal: None }
    }

    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(super) fn places(&self) -> &VecDeque<Place> {
        &self.places
    }

    pub(super) fn is_unused(&self) -> bool {
        self.places.is_empty() && self.seal.is_none()
    }

    /// Whether a party with this opinion of the capacity may join: an empty line takes on a new one.
    pub(super) fn agrees_on(&self, capacity: u32) -> bool {
        self.places.is_empty() || self.capacity == capacity
    }

    /// Whether a newcomer would fit at once.
    pub(super) fn has_room_for(&self, demand: &Demand) -> bool {
        let capacity = if self.places.is_empty() { demand.capacity } else { self.capacity };
        self.fitting as usize == self.places.len() && self.used + demand.weight <= capacity
    }

    /// Puts a newcomer at the back and says whether it fits.
    pub(super) fn join(&mut self, demand: &Demand, ticket: Ticket, owner: ClaimHash) -> bool {
        debug_assert!(self.places.back().is_none_or(|last| last.ticket < ticket), "tickets rise");
        if self.places.is_empty() {
            self.capacity = demand.capacity;
        }
        if self.places.is_empty() {
            // Most lines have one claim; the next one to come makes room for more.
            self.places.reserve_exact(1);
        }
        self.places.push_back(Place { ticket, owner, weight: demand.weight });
        self.admit_next().is_some()
    }

    /// Takes a place away.
    pub(super) fn take(&mut self, ticket: Ticket) {
        let index = self.index_of(ticket);
        let place = self.places.remove(index).expect("`index_of` found it there");
        if index < self.fitting as usize {
            self.fitting -= 1;
            self.used -= place.weight;
        }
        if self.places.is_empty() {
            // Somebody's crowd is over; a line kept for its seal does not keep their memory.
            self.places = VecDeque::new();
        }
    }

    /// Moves the border of those who fit one place back, if there is room, and says whose place that was.
    pub(super) fn admit_next(&mut self) -> Option<ClaimHash> {
        let next = self.places.get(self.fitting as usize)?;
        if self.used + next.weight > self.capacity {
            return None;
        }
        self.fitting += 1;
        self.used += next.weight;
        Some(next.owner)
    }

    /// The first claim that does not fit.
    pub(super) fn first_waiter(&self) -> Option<ClaimHash> {
        self.places.get(self.fitting as usize).map(|place| place.owner)
    }

    /// How many are ahead of this ticket.
    pub(super) fn index_of(&self, ticket: Ticket) -> usize {
        self.places
            .binary_search_by_key(&ticket, |place| place.ticket)
            .expect("a claim in the table has a place in each line it names")
    }

    /// The last place whose ticket is not above this one.
    pub(super) fn at_or_before(&self, ticket: Ticket) -> Option<&Place> {
        let behind = self.places.partition_point(|place| place.ticket <= ticket);
        self.places.get(behind.checked_sub(1)?)
    }
}
