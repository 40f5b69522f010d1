//! Carries out the faults of a plan.

use std::time::Duration;

use lockfast::engine::Key;

use crate::caller::State;
use crate::clock::Time;
use crate::faults::Kind;
use crate::invariants;
use crate::plan::{Fault, Link};
use crate::schedule::{Event, Tick};
use crate::world::World;

impl World<'_> {
    pub(crate) fn inject(&mut self, index: u32) {
        let plan = self.plan;
        let fault = &plan.faults[index as usize].kind;
        if self.trace.is_on() {
            self.trace.fault(self.now, fault);
        }
        match fault {
            Fault::Message { client, link, message, count } => {
                if let Some(client) = self.living_client(*client) {
                    let armed = &mut self.clients[client as usize].connections[*link as usize].armed;
                    armed.extend(std::iter::repeat_n(*message, *count as usize));
                }
            }
            Fault::Disconnect { client, links, lasts } => {
                let Some(client) = self.living_client(*client) else { return };
                for link in links {
                    self.cut(client, *link, *lasts);
                }
            }
            Fault::BlackHole { client, link, requests, answers, lasts } => {
                let Some(client) = self.living_client(*client) else { return };
                let until = self.now + *lasts;
                let connection = &mut self.clients[client as usize].connections[*link as usize];
                if *requests {
                    connection.requests_vanish_until = until;
                }
                if *answers {
                    connection.answers_vanish_until = until;
                }
            }
            Fault::Pause { client, lasts } => self.pause(*client, *lasts),
            Fault::Kill { client, replaced } => self.kill(*client, *replaced),
            Fault::Restart { lasts, loses_data, behind } => self.stop_store(*lasts, loses_data.then_some(*behind)),
            Fault::Stall { lasts } => self.store.stalled_until = self.now + *lasts,
            Fault::Break { name, position, at_once } => {
                if *name < self.names.len() && self.store.is_up && self.break_claim(*name, *position, *at_once) {
                    self.bites.note(if *at_once { Kind::BrokenAtOnce } else { Kind::Broken });
                }
            }
            Fault::Doze { caller, lasts } => self.doze(*caller, *lasts),
        }
    }

    /// The index of a living process.
    fn living_client(&self, id: u32) -> Option<u32> {
        let index = *self.index_of.get(id as usize)?;
        self.clients.get(index as usize).filter(|process| process.is_alive).map(|_| index)
    }

    fn cut(&mut self, client: u32, link: Link, lasts: Duration) {
        self.disconnect(client, link);
        let process = &mut self.clients[client as usize];
        process.note_cut(link, self.now + lasts);
        let cut = process.connections[link as usize].cut;
        self.schedule.put(self.now + lasts, Event::Reconnect { client, link, cut });
    }

    fn pause(&mut self, id: u32, lasts: Duration) {
        let Some(client) = self.living_client(id) else { return };
        let until = self.now + lasts;
        let holders = self.clients[client as usize].guards.iter();
        let leases = holders.map(|(_, caller)| self.plan.callers[*caller as usize].ttl);
        if let Some(ttl) = leases.min() {
            self.bites.note(if lasts < ttl { Kind::PauseWithinLease } else { Kind::PauseBeyondLease });
        }
        let process = &mut self.clients[client as usize];
        process.paused_until = process.paused_until.max(until);
        process.resumed_at = process.paused_until;
        process.note_trouble(process.paused_until);
    }

    fn kill(&mut self, id: u32, replaced: Option<Duration>) {
        let Some(client) = self.living_client(id) else { return };
        let process = &mut self.clients[client as usize];
        if !process.waiting.is_empty() || !process.guards.is_empty() {
            self.bites.note(Kind::Killed);
        }
        process.die(self.now);
        self.calls.forget(client);
        // A process that replaces it has seen none of its tickets.
        self.names.iter_mut().for_each(|name| {
            name.fence_by_client.remove(&client);
        });
        for caller in
            (0..self.callers.len() as u32).filter(|it| self.callers[*it as usize].client == client).collect::<Vec<_>>()
        {
            let it = &mut self.callers[caller as usize];
            it.forget_round();
            it.dozes_until = Time(0);
            it.state = if replaced.is_some() && it.state != State::Finished { State::Resting } else { State::Finished };
            // Events of this round are dropped.
            it.round += 1;
            self.names.iter_mut().for_each(|name| name.inside.retain(|(inside, _)| *inside != caller));
        }
        self.last_progress_at = self.now;
        if let Some(after) = replaced {
            self.schedule.put(self.now + after, Event::Replace { client });
        }
    }

    /// Another process replaces one that died, and its callers go on.
    pub(crate) fn replace(&mut self, client: u32) {
        let is_up = self.store.is_up;
        let process = &mut self.clients[client as usize];
        process.replace();
        process.connections.iter_mut().for_each(|connection| connection.is_up = is_up);
        for caller in 0..self.callers.len() as u32 {
            let it = &mut self.callers[caller as usize];
            if it.client == client && it.state == State::Resting {
                let begins = self.now.max(self.plan.callers[caller as usize].begins)
                    + Duration::from_millis(u64::from(caller % 16));
                self.schedule.put(begins, Event::Caller { caller, round: it.round, tick: Tick::Begin });
            }
        }
    }

    /// A task is not polled for a while, or never again. A holder comes back: others may wait for it as long as it likes.
    fn doze(&mut self, id: u32, lasts: Option<Duration>) {
        let Some(caller) = self.plan.callers.iter().position(|it| it.id == id) else { return };
        let ttl = self.plan.callers[caller].ttl;
        let it = &mut self.callers[caller];
        let until = match (it.state, lasts) {
            (State::Resting | State::Finished, _) => return,
            _ if it.dozes_until == Time::NEVER => return,
            (_, Some(lasts)) => self.now + lasts,
            (State::Holding, None) => self.now + ttl * 2,
            (_, None) => Time::NEVER,
        };
        it.dozes_until = until;
        let process = &mut self.clients[it.client as usize];
        let is_for_ever = until == Time::NEVER;
        process.note_trouble(if is_for_ever { self.now } else { until });
        self.bites.note(if is_for_ever { Kind::NeverPolled } else { Kind::PolledLate });
    }

    /// A waiter sends one more request.
    pub(crate) fn count_request(&mut self, client: u32, key: Key) {
        let process = &self.clients[client as usize];
        let Some((_, caller)) = process.waiting.iter().find(|(it, _)| *it == key).copied() else { return };
        let local = process.skew.local(self.now);
        let check = invariants::check_request_rate(caller, &mut self.callers[caller as usize], local);
        self.require(check);
    }

    /// A caller is done with a request that does not hold.
    pub(crate) fn abandon(&mut self, client: u32, key: Key) {
        if let Some((claim, _)) = self.clients[client as usize].engine.claim(key) {
            let owner = claim.id.hash();
            self.store.note_left(owner, self.now);
        }
    }
}
