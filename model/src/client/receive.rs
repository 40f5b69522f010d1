//! A client receives answers and pushes.

use super::{InFlight, MARGIN, Phase, Reply};
use crate::messages::{Block, Call, Push, Verb};
use crate::notes::Notes;
use crate::rules::Rule;
use crate::setups::Setup;
use crate::table::ALL;
use crate::world::World;

fn valid_for(ttl: u8, age: u8, setup: &Setup) -> u8 {
    let age = if setup.rules.keep(Rule::ValidFromSending) { age } else { 0 };
    ttl.saturating_sub(MARGIN + age)
}

impl World {
    /// There is a guard, with this fence.
    pub(super) fn enter(&mut self, c: usize, fence: u8, setup: &Setup) {
        let plan = &setup.plans[c];
        self.clients[c].phase = Phase::Inside { fence };
        self.clients[c].early = 0;
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

    /// The store has answered that the claim holds; `settled`: it was renewed just now.
    fn granted(&mut self, c: usize, block: Block, settled: bool, setup: &Setup) {
        let client = &mut self.clients[c];
        if client.valid == 0 {
            // Too late to be trusted; the claim may still hold in the store, so it is released.
            self.notes |= Notes::TOO_LATE_GIVEN_BACK;
            self.depart(c, false, setup);
            self.begin_anew(c, setup);
        } else if !client.has_enough(setup.lease) && !settled {
            client.block = block;
            client.phase = Phase::Waiting { settling: true, alarm: true };
        } else {
            client.block = block;
            if let Phase::Waiting { settling, .. } = client.phase {
                if settling {
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
        self.begin_anew(c, setup);
        if self.clients[c].phase == Phase::Asking {
            self.notes |= Notes::REJOINED;
        }
    }

    pub(crate) fn answered(&mut self, c: usize, setup: &Setup) {
        let in_flight = std::mem::replace(&mut self.clients[c].in_flight, InFlight::Nothing);
        let InFlight::Answered { verb, reply, age } = in_flight else { return };
        match verb {
            Verb::Acquire { .. } => self.admitted(c, reply, valid_for(setup.lease, age, setup), setup),
            Verb::Renew { ttl, waits } => self.renewed(c, reply, valid_for(ttl, age, setup), waits, setup),
            Verb::UnlessAlone { .. } => self.run_ended(c, reply, valid_for(setup.lease, age, setup), setup),
            Verb::Done | Verb::Unknown => {}
        }
    }

    fn admitted(&mut self, c: usize, reply: Reply, valid: u8, setup: &Setup) {
        let client = &mut self.clients[c];
        match reply {
            Reply::Held(block) => {
                client.valid = client.valid.max(valid);
                self.granted(c, block, true, setup);
            }
            Reply::Waiting { ticket, alarm } => {
                client.valid = client.valid.max(valid);
                client.block.first = ticket;
                client.phase = Phase::Waiting { settling: false, alarm };
                if std::mem::take(&mut client.early) == ticket {
                    let block = client.block;
                    self.handed(c, block, setup);
                }
            }
            Reply::Gone => self.rejoin(c, setup),
        }
    }

    fn renewed(&mut self, c: usize, reply: Reply, valid: u8, waits: bool, setup: &Setup) {
        let client = &mut self.clients[c];
        match (client.phase, reply) {
            // The store has forgotten the hand-off, or the claim.
            (Phase::Inside { .. }, Reply::Waiting { .. }) if !waits => client.valid = 0,
            (Phase::Inside { .. }, Reply::Gone) => client.valid = 0,
            // A hold that was over once stays over.
            (Phase::Inside { .. }, _) if client.valid > 0 => client.valid = client.valid.max(valid),
            (Phase::Waiting { settling, .. }, Reply::Held(block)) => {
                client.valid = client.valid.max(valid);
                self.granted(c, block, settling, setup);
            }
            (Phase::Waiting { .. }, Reply::Waiting { alarm, .. }) => {
                client.valid = client.valid.max(valid);
                client.phase = Phase::Waiting { settling: false, alarm };
            }
            (Phase::Waiting { .. }, Reply::Gone) => self.rejoin(c, setup),
            _ => {}
        }
    }

    fn run_ended(&mut self, c: usize, reply: Reply, valid: u8, setup: &Setup) {
        let client = &mut self.clients[c];
        let Reply::Held(block) = reply else {
            if client.unsure && setup.rules.keep(Rule::UnsureLeavesAsUnknown) {
                // It has left. If one of its acquires may still run, its id has to be kept out all the same.
                self.depart(c, true, setup);
            }
            return self.hand_lead_on(c);
        };
        let was_over = client.valid == 0;
        client.valid = client.valid.max(valid);
        if was_over || !client.has_enough(setup.lease) || client.behind == 0 {
            self.depart(c, false, setup);
            return self.hand_lead_on(c);
        }
        client.block = block;
        client.behind -= 1;
        self.enter(c, block.first, setup);
    }

    /// A push has granted the lock to a waiting request.
    fn handed(&mut self, c: usize, block: Block, setup: &Setup) {
        let client = &mut self.clients[c];
        let Phase::Waiting { settling, .. } = client.phase else { return };
        if !setup.rules.keep(Rule::PushAddsNoTime) {
            client.valid = setup.lease - MARGIN;
        }
        if !client.has_enough(setup.lease) && !settling {
            client.phase = Phase::Waiting { settling: true, alarm: true };
            return;
        }
        self.granted(c, block, settling, setup);
        if self.clients[c].is_validly_inside() {
            self.notes |= Notes::ENTERED_BY_PUSH;
        }
    }

    pub(crate) fn pushed(&mut self, c: usize, push: Push, setup: &Setup) {
        let client = &mut self.clients[c];
        if push.id() != client.id || client.phase == Phase::Idle {
            // The claim was in the queue after all, and holds a lock without a request.
            if matches!(push, Push::Held { .. }) && client.withdrawn & (1 << push.id().serial) != 0 {
                self.stray(Call { id: push.id(), verb: Verb::Unknown, age: 0 });
            }
            return;
        }
        match (push, client.phase) {
            (Push::Held { ticket, block, .. }, Phase::Waiting { .. }) => {
                if ticket == client.block.first || !setup.rules.keep(Rule::PushMatchesTicket) {
                    self.handed(c, block, setup);
                } else {
                    self.notes |= Notes::STALE_PUSH_IGNORED;
                }
            }
            (Push::Held { ticket, .. }, Phase::Asking) => client.early = ticket,
            (Push::Gone { .. }, Phase::Waiting { .. }) if client.in_flight == InFlight::Nothing => {
                self.renew(c, setup.lease)
            }
            (Push::Gone { .. }, Phase::Inside { .. }) if client.valid > 0 && client.in_flight == InFlight::Nothing => {
                self.renew(c, setup.lease);
            }
            _ => {}
        }
    }
}
