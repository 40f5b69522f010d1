//! Calls in flight. A call ends once: by its answer, by an error, or at its limit. An answer that arrives afterwards finds no
//! call, and changes nothing.

use crate::clock::Time;
use crate::network::CallPurpose;
use crate::plan::Link;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallId {
    index: u32,
    generation: u32,
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) client: u32,
    pub(crate) link: Link,
    /// When the process waits no longer.
    pub(crate) deadline: Time,
    pub(crate) purpose: CallPurpose,
}

/// All calls whose answers are awaited.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    all: Vec<(u32, Option<Call>)>,
    free: Vec<u32>,
}

impl Calls {
    pub(crate) fn insert(&mut self, call: Call) -> CallId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push((0, None));
            (self.all.len() - 1) as u32
        });
        let cell = &mut self.all[index as usize];
        cell.1 = Some(call);
        CallId { index, generation: cell.0 }
    }

    pub(crate) fn get(&self, id: CallId) -> Option<&Call> {
        let (generation, call) = &self.all[id.index as usize];
        call.as_ref().filter(|_| *generation == id.generation)
    }

    pub(crate) fn end(&mut self, id: CallId) -> Option<Call> {
        self.get(id)?;
        let cell = &mut self.all[id.index as usize];
        cell.0 = cell.0.wrapping_add(1);
        self.free.push(id.index);
        cell.1.take()
    }

    pub(crate) fn of(&self, client: u32, link: Option<Link>) -> Vec<CallId> {
        let is_meant = |call: &Call| call.client == client && link.is_none_or(|link| call.link == link);
        let ids = self.all.iter().enumerate().filter(|(_, (_, call))| call.as_ref().is_some_and(is_meant));
        ids.map(|(index, (generation, _))| CallId { index: index as u32, generation: *generation }).collect()
    }

    /// Forgets the calls of a process that died.
    pub(crate) fn forget(&mut self, client: u32) {
        for id in self.of(client, None) {
            self.end(id);
        }
    }
}
