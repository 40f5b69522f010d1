//! Who is let into a line.

use bytes::Bytes;

use crate::claim::{Claim, Demand};
use crate::error::{Error, Result};

use super::Table;

impl Table {
    pub(super) fn check_at_the_door(&self, demand: &Demand) -> Result<()> {
        if demand.weight == 0 || demand.weight > demand.capacity {
            // By 2: it could never hold, and everybody behind it would wait for ever.
            return Err(Error::invalid(format!(
                "cannot take {} of the {} that {:?} has",
                demand.weight, demand.capacity, demand.name
            )));
        }
        match self.lines.get(&demand.name) {
            Some(line) if !line.agrees_on(demand.capacity) => Err(Error::invalid(format!(
                "{:?} is in use with {}, and was asked for with {}; use the same everywhere, or wait until nobody uses it",
                demand.name,
                capacity_in_words(line.capacity()),
                capacity_in_words(demand.capacity)
            ))),
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

fn capacity_in_words(capacity: u32) -> String {
    match capacity {
        Demand::ALL => "a mutex or reader-writer lock".to_owned(),
        permits => format!("a semaphore of {permits}"),
    }
}
