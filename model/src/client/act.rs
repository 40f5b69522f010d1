//! A client acts: it asks, renews, hands off, leaves, gives up, dies.

use super::{InFlight, Pace, Phase};
use crate::messages::{Block, Call, Verb};
use crate::notes::Notes;
use crate::rules::Rule;
use crate::setups::Setup;
use crate::world::World;

impl World {
    /// A new request asks, if the client has one left.
    pub(crate) fn begin(&mut self, c: usize) {
        self.be_idle(c);
        let client = &mut self.clients[c];
        if client.asks > 0 {
            client.asks -= 1;
            client.id.serial += 1;
            client.phase = Phase::Asking;
            client.block.count = 1 + client.behind;
            self.ask(c);
        }
    }

    /// Asks again for a request whose claim is gone, or was given back.
    pub(super) fn begin_anew(&mut self, c: usize, setup: &Setup) {
        self.begin(c);
        let client = &mut self.clients[c];
        if client.phase == Phase::Asking && !setup.rules.keep(Rule::NewIdAfterGone) {
            client.id.serial -= 1;
            self.ask(c);
        }
    }

    pub(crate) fn ask(&mut self, c: usize) {
        let client = &mut self.clients[c];
        let verb = Verb::Acquire { block: client.block.count, floor: 0 };
        client.in_flight = InFlight::Asked(Call { id: client.id, verb, age: 0 });
    }

    pub(crate) fn renew(&mut self, c: usize, ttl: u8) {
        self.let_go(c);
        let client = &mut self.clients[c];
        let waits = matches!(client.phase, Phase::Waiting { .. });
        client.in_flight = InFlight::Asked(Call { id: client.id, verb: Verb::Renew { ttl, waits }, age: 0 });
    }

    /// Stops waiting for an answer; a call that has not run yet still may.
    fn let_go(&mut self, c: usize) {
        if let InFlight::Asked(call) = std::mem::replace(&mut self.clients[c].in_flight, InFlight::Nothing) {
            self.stray(call);
        }
    }

    /// Sends a release of the claim.
    pub(super) fn depart(&mut self, c: usize, is_unknown: bool, setup: &Setup) {
        self.let_go(c);
        let client = &mut self.clients[c];
        let unsure = client.unsure && setup.rules.keep(Rule::UnsureLeavesAsUnknown);
        let verb = if is_unknown || unsure { Verb::Unknown } else { Verb::Done };
        if verb == Verb::Unknown {
            client.withdrawn |= 1 << client.id.serial;
        }
        let id = client.id;
        self.stray(Call { id, verb, age: 0 });
    }

    fn be_idle(&mut self, c: usize) {
        let client = &mut self.clients[c];
        (client.phase, client.in_flight, client.valid) = (Phase::Idle, InFlight::Nothing, 0);
        (client.block, client.early, client.unsure) = (Block::default(), 0, false);
    }

    /// The request has ended; the next task of the process, if any, asks for itself.
    pub(super) fn hand_lead_on(&mut self, c: usize) {
        self.be_idle(c);
        if self.clients[c].behind > 0 {
            self.clients[c].behind -= 1;
            self.begin(c);
        }
    }

    pub(crate) fn release(&mut self, c: usize, setup: &Setup) {
        let client = &mut self.clients[c];
        let Phase::Inside { fence } = client.phase else { return };
        if client.valid > 0 && client.behind > 0 {
            if client.block.contains(fence + 1) && client.has_enough(setup.lease) {
                client.behind -= 1;
                self.enter(c, fence + 1, setup);
                self.notes |= Notes::HANDED_OFF_LOCALLY;
                return;
            }
            // Only the tickets of this claim matter as the floor: the model's store never loses its counter.
            let (block, floor, id) = (client.behind, client.block.last(), client.id);
            self.let_go(c);
            self.clients[c].phase = Phase::Leaving;
            self.clients[c].in_flight = InFlight::Asked(Call { id, verb: Verb::UnlessAlone { block, floor }, age: 0 });
            return;
        }
        self.depart(c, false, setup);
        self.hand_lead_on(c);
    }

    pub(crate) fn cancel(&mut self, c: usize, setup: &Setup) {
        let is_asking = self.clients[c].phase == Phase::Asking;
        self.depart(c, is_asking, setup);
        self.hand_lead_on(c);
    }

    pub(crate) fn crash(&mut self, c: usize) {
        self.let_go(c);
        self.be_idle(c);
        let client = &mut self.clients[c];
        (client.phase, client.asks, client.behind, client.to_come) = (Phase::Crashed, 0, 0, 0);
        client.pace = Pace::Running;
        (client.withdrawn, client.extended) = (0, true);
        self.pushes.retain(|push| usize::from(push.id().client) != c);
    }

    pub(crate) fn timeout(&mut self, c: usize, setup: &Setup) {
        self.let_go(c);
        match self.clients[c].phase {
            Phase::Asking => self.clients[c].unsure = true,
            Phase::Leaving => {
                // It may still hold; local waiters do not wait to find out.
                self.depart(c, false, setup);
                self.hand_lead_on(c);
            }
            _ => {}
        }
    }
}
