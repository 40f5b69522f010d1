//! A client acts: it acquires, renews, hands off, leaves, gives up, dies.

use super::{InFlight, Pace, Phase};
use crate::messages::{Block, Call, Verb};
use crate::notes::Notes;
use crate::rules::Rule;
use crate::setups::Setup;
use crate::world::World;

impl World {
    /// Starts a new request, if the client has one left.
    pub(crate) fn start_request(&mut self, c: usize) {
        self.become_idle(c);
        let client = &mut self.clients[c];
        if client.requests_left > 0 {
            client.requests_left -= 1;
            client.id.serial += 1;
            client.phase = Phase::Acquiring;
            client.block.count = 1 + client.waiting_tasks;
            self.send_acquire(c);
        }
    }

    /// Starts a request anew after its claim is gone, or was given back.
    pub(super) fn restart_request(&mut self, c: usize, setup: &Setup) {
        self.start_request(c);
        let client = &mut self.clients[c];
        if client.phase == Phase::Acquiring && !setup.rules.keeps(Rule::NewIdAfterGone) {
            client.id.serial -= 1;
            self.send_acquire(c);
        }
    }

    /// Sends the acquire of the present request.
    pub(crate) fn send_acquire(&mut self, c: usize) {
        let client = &mut self.clients[c];
        let verb = Verb::Acquire { block: client.block.count, floor: 0 };
        client.in_flight = InFlight::Sent(Call { id: client.id, verb, age: 0 });
    }

    pub(crate) fn send_renewal(&mut self, c: usize, ttl: u8) {
        self.abandon_call(c);
        let client = &mut self.clients[c];
        let waits = matches!(client.phase, Phase::Waiting { .. });
        client.in_flight = InFlight::Sent(Call { id: client.id, verb: Verb::Renew { ttl, waits }, age: 0 });
    }

    /// Stops waiting for an answer; a call that has not run yet still may.
    fn abandon_call(&mut self, c: usize) {
        if let InFlight::Sent(call) = std::mem::replace(&mut self.clients[c].in_flight, InFlight::Nothing) {
            self.send_unawaited(call);
        }
    }

    /// Sends a release of the claim: `Done`, or `Unknown` if an acquire of it may still run.
    pub(super) fn send_release(&mut self, c: usize, verb: Verb, setup: &Setup) {
        self.abandon_call(c);
        let client = &mut self.clients[c];
        let is_unsure = client.has_unanswered_acquire && setup.rules.keeps(Rule::UnsureLeavesAsUnknown);
        let verb = if is_unsure { Verb::Unknown } else { verb };
        if verb == Verb::Unknown {
            client.withdrawn_ids |= 1 << client.id.serial;
        }
        let id = client.id;
        self.send_unawaited(Call { id, verb, age: 0 });
    }

    fn become_idle(&mut self, c: usize) {
        let client = &mut self.clients[c];
        (client.phase, client.in_flight, client.valid_ticks) = (Phase::Idle, InFlight::Nothing, 0);
        (client.block, client.early_ticket, client.has_unanswered_acquire) = (Block::default(), 0, false);
    }

    /// The request has ended. The next waiting task of the process, if there is one, starts a request.
    pub(super) fn start_next_task(&mut self, c: usize) {
        self.become_idle(c);
        if self.clients[c].waiting_tasks > 0 {
            self.clients[c].waiting_tasks -= 1;
            self.start_request(c);
        }
    }

    pub(crate) fn release(&mut self, c: usize, setup: &Setup) {
        let client = &mut self.clients[c];
        let Phase::Inside { fence } = client.phase else { return };
        if client.valid_ticks > 0 && client.waiting_tasks > 0 {
            if client.block.contains(fence + 1) && client.has_half_a_lease(setup.lease) {
                client.waiting_tasks -= 1;
                self.enter(c, fence + 1, setup);
                self.notes |= Notes::HANDED_OFF_LOCALLY;
                return;
            }
            // Only the tickets of this claim matter as the floor: the model's store never loses its counter.
            let (block, floor, id) = (client.waiting_tasks, client.block.last(), client.id);
            self.abandon_call(c);
            self.clients[c].phase = Phase::Leaving;
            self.clients[c].in_flight = InFlight::Sent(Call { id, verb: Verb::UnlessAlone { block, floor }, age: 0 });
            return;
        }
        self.send_release(c, Verb::Done, setup);
        self.start_next_task(c);
    }

    pub(crate) fn cancel(&mut self, c: usize, setup: &Setup) {
        let verb = if self.clients[c].phase == Phase::Acquiring { Verb::Unknown } else { Verb::Done };
        self.send_release(c, verb, setup);
        self.start_next_task(c);
    }

    pub(crate) fn crash(&mut self, c: usize) {
        self.abandon_call(c);
        self.become_idle(c);
        let client = &mut self.clients[c];
        (client.phase, client.requests_left, client.waiting_tasks, client.later_tasks) = (Phase::Crashed, 0, 0, 0);
        client.pace = Pace::Running;
        (client.withdrawn_ids, client.has_extended) = (0, true);
        self.pushes.retain(|push| usize::from(push.id().client) != c);
    }

    pub(crate) fn timeout(&mut self, c: usize, setup: &Setup) {
        self.abandon_call(c);
        match self.clients[c].phase {
            Phase::Acquiring => self.clients[c].has_unanswered_acquire = true,
            Phase::Leaving => {
                // The claim may still hold; the local waiters do not wait to find out.
                self.send_release(c, Verb::Done, setup);
                self.start_next_task(c);
            }
            _ => {}
        }
    }
}
