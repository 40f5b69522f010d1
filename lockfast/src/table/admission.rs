//! What is checked before a claim joins its queues: weight, capacity, seals, room.

use bytes::Bytes;

use crate::claim::{Claim, Demand};
use crate::error::Result;

use super::Table;

impl Table {
    pub(super) fn check_demand(&self, demand: &Demand) -> Result<()> {
        // By 2: a claim heavier than the capacity could never hold.
        demand.check_weight()?;
        match self.queues.get(&demand.name) {
            Some(queue) if !queue.accepts_capacity(demand.capacity) => Err(demand.capacity_error(queue.capacity())),
            _ => Ok(()),
        }
    }

    pub(super) fn find_seal(&self, claim: &Claim) -> Option<Bytes> {
        let mut seals = claim.demands.iter().filter_map(|demand| self.queues.get(&demand.name)?.seal.as_ref());
        seals.next().map(|seal| seal.value.clone())
    }

    pub(super) fn has_room_for(&self, demand: &Demand) -> bool {
        self.queues.get(&demand.name).is_none_or(|queue| queue.has_room_for(demand))
    }
}
