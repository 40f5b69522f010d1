//! Who is let into a line.

use bytes::Bytes;

use crate::claim::{Claim, Demand};
use crate::error::Result;

use super::Table;

impl Table {
    pub(super) fn check_at_the_door(&self, demand: &Demand) -> Result<()> {
        // By 2: too heavy a claim could never hold.
        demand.check_weight()?;
        match self.lines.get(&demand.name) {
            Some(line) if !line.agrees_on(demand.capacity) => Err(demand.disagrees_with(line.capacity())),
            _ => Ok(()),
        }
    }

    pub(super) fn seal_on(&self, claim: &Claim) -> Option<Bytes> {
        let mut seals = claim.demands.iter().filter_map(|demand| self.lines.get(&demand.name)?.seal.as_ref());
        seals.next().map(|seal| seal.value.clone())
    }

    pub(super) fn has_room_for(&self, demand: &Demand) -> bool {
        self.lines.get(&demand.name).is_none_or(|line| line.has_room_for(demand))
    }
}
