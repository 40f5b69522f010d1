//! A client receives answers and pushes.

use super::{InFlight, MARGIN, Phase, Reply};
use crate::messages::{Block, Call, Push, Verb};
use crate::notes::Notes;
use crate::rules::Rule;
use crate::setups::Setup;
use crate::table::ALL;
use crate::world::World;

/// For how many ticks a client trusts a lease that it requested `age` ticks ago.
fn valid_for(ttl: u8, age: u8, setup: &Setup) -> u8 {
    let age = if setup.rules.keeps(Rule::ValidFromSending) { age } else { 0 };
    ttl.saturating_sub(MARGIN + age)
}

impl World {
    /// The request gets a guard with this fence.
    pub(super) fn enter(&mut self, c: usize, fence: u8, setup: &Setup) {
        let plan = &setup.plans[c];
        self.clients[c].phase = Phase::Inside { fence };
        self.clients[c].early_ticket = 0;
        for (bit, fenced) in self.fenced.iter_mut().enumerate() {
            if plan.names & (1 << bit) == 0 {
                continue;
            }
            let below = if plan.weight == ALL { fenced.entered } else { fenced.entered_alone };
            if fence <= below {
                self.notes |= Notes::FENCE_FELL;
            }
            fenced.entered = fenced.entered.max(fence);
            if plan.weight == ALL {
                fenced.entered_alone = fenced.entered_alone.max(fence);
            }
        }
        let readers =
            self.clients.iter().zip(&setup.plans).filter(|(it, plan)| it.is_validly_inside() && plan.weight < ALL);
        if readers.count() > 1 {
            self.notes |= Notes::SHARED;
        }
    }

    /// The store has answered, or pushed, that the claim holds.
    fn on_grant(&mut self, c: usize, block: Block, was_just_renewed: bool, setup: &Setup) {
        let client = &mut self.clients[c];
        if client.valid_ticks == 0 {
            // Too late to be trusted; the claim may still hold in the store, so it is released.
            self.notes |= Notes::TOO_LATE_GIVEN_BACK;
            self.send_release(c, Verb::Done, setup);
            self.restart_request(c, setup);
        } else if !client.has_half_a_lease(setup.lease) && !was_just_renewed {
            client.block = block;
            client.phase = Phase::Waiting { is_settling: true, will_poll: true };
        } else {
            client.block = block;
            if let Phase::Waiting { is_settling, .. } = client.phase {
                if is_settling {
                    self.notes |= Notes::SETTLED_FIRST;
                }
                if setup.plans[c].names.count_ones() > 1 {
                    self.notes |= Notes::MULTI_ENTERED_AFTER_WAIT;
                }
            }
            self.enter(c, block.first, setup);
        }
    }

    fn rejoin(&mut self, c: usize, setup: &Setup) {
        self.restart_request(c, setup);
        if self.clients[c].phase == Phase::Acquiring {
            self.notes |= Notes::REJOINED;
        }
    }

    pub(crate) fn on_reply(&mut self, c: usize, setup: &Setup) {
        let in_flight = std::mem::replace(&mut self.clients[c].in_flight, InFlight::Nothing);
        let InFlight::Answered { verb, reply, age } = in_flight else { return };
        match verb {
            Verb::Acquire { .. } => self.on_acquire_reply(c, reply, valid_for(setup.lease, age, setup), setup),
            Verb::Renew { ttl, waits } => self.on_renewal_reply(c, reply, valid_for(ttl, age, setup), waits, setup),
            Verb::UnlessAlone { .. } => self.on_unless_alone_reply(c, reply, valid_for(setup.lease, age, setup), setup),
            Verb::Done | Verb::Unknown => {}
        }
    }

    fn on_acquire_reply(&mut self, c: usize, reply: Reply, valid_ticks: u8, setup: &Setup) {
        let client = &mut self.clients[c];
        match reply {
            Reply::Held(block) => {
                client.valid_ticks = client.valid_ticks.max(valid_ticks);
                let was_just_renewed = true;
                self.on_grant(c, block, was_just_renewed, setup);
            }
            Reply::Waiting { ticket, will_poll } => {
                client.valid_ticks = client.valid_ticks.max(valid_ticks);
                client.block.first = ticket;
                client.phase = Phase::Waiting { is_settling: false, will_poll };
                if std::mem::take(&mut client.early_ticket) == ticket {
                    let block = client.block;
                    self.on_held_push(c, block, setup);
                }
            }
            Reply::Gone => self.rejoin(c, setup),
        }
    }

    fn on_renewal_reply(&mut self, c: usize, reply: Reply, valid_ticks: u8, waits: bool, setup: &Setup) {
        let client = &mut self.clients[c];
        match (client.phase, reply) {
            // The store has lost the hand-off, or the claim.
            (Phase::Inside { .. }, Reply::Waiting { .. }) if !waits => client.valid_ticks = 0,
            (Phase::Inside { .. }, Reply::Gone) => client.valid_ticks = 0,
            // A hold that was over once stays over.
            (Phase::Inside { .. }, _) if client.valid_ticks > 0 => {
                client.valid_ticks = client.valid_ticks.max(valid_ticks)
            }
            (Phase::Waiting { is_settling, .. }, Reply::Held(block)) => {
                client.valid_ticks = client.valid_ticks.max(valid_ticks);
                self.on_grant(c, block, is_settling, setup);
            }
            (Phase::Waiting { .. }, Reply::Waiting { will_poll, .. }) => {
                client.valid_ticks = client.valid_ticks.max(valid_ticks);
                client.phase = Phase::Waiting { is_settling: false, will_poll };
            }
            (Phase::Waiting { .. }, Reply::Gone) => self.rejoin(c, setup),
            _ => {}
        }
    }

    fn on_unless_alone_reply(&mut self, c: usize, reply: Reply, valid_ticks: u8, setup: &Setup) {
        let client = &mut self.clients[c];
        let Reply::Held(block) = reply else {
            if client.has_unanswered_acquire && setup.rules.keeps(Rule::UnsureLeavesAsUnknown) {
                // The claim has left. One of its acquires may still run, so its id needs a tombstone all the same.
                self.send_release(c, Verb::Unknown, setup);
            }
            return self.start_next_task(c);
        };
        let was_over = client.valid_ticks == 0;
        client.valid_ticks = client.valid_ticks.max(valid_ticks);
        if was_over || !client.has_half_a_lease(setup.lease) || client.waiting_tasks == 0 {
            self.send_release(c, Verb::Done, setup);
            return self.start_next_task(c);
        }
        client.block = block;
        client.waiting_tasks -= 1;
        self.enter(c, block.first, setup);
    }

    /// A push has granted the lock to a waiting request.
    fn on_held_push(&mut self, c: usize, block: Block, setup: &Setup) {
        let client = &mut self.clients[c];
        let Phase::Waiting { is_settling, .. } = client.phase else { return };
        if !setup.rules.keeps(Rule::PushAddsNoTime) {
            client.valid_ticks = setup.lease - MARGIN;
        }
        if !client.has_half_a_lease(setup.lease) && !is_settling {
            client.phase = Phase::Waiting { is_settling: true, will_poll: true };
            return;
        }
        self.on_grant(c, block, is_settling, setup);
        if self.clients[c].is_validly_inside() {
            self.notes |= Notes::ENTERED_BY_PUSH;
        }
    }

    pub(crate) fn on_push(&mut self, c: usize, push: Push, setup: &Setup) {
        let client = &mut self.clients[c];
        if push.id() != client.id || client.phase == Phase::Idle {
            // The claim was in the queue after all, and holds a lock without a request.
            if matches!(push, Push::Held { .. }) && client.withdrawn_ids & (1 << push.id().serial) != 0 {
                self.send_unawaited(Call { id: push.id(), verb: Verb::Unknown, age: 0 });
            }
            return;
        }
        match (push, client.phase) {
            (Push::Held { ticket, block, .. }, Phase::Waiting { .. }) => {
                if ticket == client.block.first || !setup.rules.keeps(Rule::PushMatchesTicket) {
                    self.on_held_push(c, block, setup);
                } else {
                    self.notes |= Notes::STALE_PUSH_IGNORED;
                }
            }
            (Push::Held { ticket, .. }, Phase::Acquiring) => client.early_ticket = ticket,
            (Push::Gone { .. }, Phase::Waiting { .. }) if client.in_flight == InFlight::Nothing => {
                self.send_renewal(c, setup.lease)
            }
            (Push::Gone { .. }, Phase::Inside { .. })
                if client.valid_ticks > 0 && client.in_flight == InFlight::Nothing =>
            {
                self.send_renewal(c, setup.lease);
            }
            _ => {}
        }
    }
}
