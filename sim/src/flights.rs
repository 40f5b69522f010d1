//! Calls in flight. A call ends once: by its answer, by an error, or at its limit. An answer that arrives afterwards finds no
//! call, and changes nothing.

use crate::clock::Time;
use crate::network::Awaited;
use crate::plan::Line;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlightId {
    index: u32,
    generation: u32,
}

#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) client: u32,
    pub(crate) line: Line,
    /// When the process waits no longer.
    pub(crate) deadline: Time,
    pub(crate) awaited: Awaited,
}

/// All calls whose answers are awaited.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    all: Vec<(u32, Option<Flight>)>,
    free: Vec<u32>,
}

impl Flights {
    pub(crate) fn insert(&mut self, flight: Flight) -> FlightId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push((0, None));
            (self.all.len() - 1) as u32
        });
        let slot = &mut self.all[index as usize];
        slot.1 = Some(flight);
        FlightId { index, generation: slot.0 }
    }

    pub(crate) fn get(&self, id: FlightId) -> Option<&Flight> {
        let (generation, flight) = &self.all[id.index as usize];
        flight.as_ref().filter(|_| *generation == id.generation)
    }

    pub(crate) fn end(&mut self, id: FlightId) -> Option<Flight> {
        self.get(id)?;
        let slot = &mut self.all[id.index as usize];
        slot.0 = slot.0.wrapping_add(1);
        self.free.push(id.index);
        slot.1.take()
    }

    pub(crate) fn of(&self, client: u32, line: Option<Line>) -> Vec<FlightId> {
        let is_meant = |flight: &Flight| flight.client == client && line.is_none_or(|line| flight.line == line);
        let ids = self.all.iter().enumerate().filter(|(_, (_, flight))| flight.as_ref().is_some_and(is_meant));
        ids.map(|(index, (generation, _))| FlightId { index: index as u32, generation: *generation }).collect()
    }

    /// Forgets what a process that died was waiting for.
    pub(crate) fn forget(&mut self, client: u32) {
        for id in self.of(client, None) {
            self.end(id);
        }
    }
}
