//! Makes a failing plan small: leaves out clients, callers, rounds and faults for as long as the same invariant breaks.

use crate::invariants::Invariant;
use crate::plan::{Fault, Plan};
use crate::run_plan;

/// How many plans are tried at most.
const MAX_TRIES: u32 = 4_000;

struct Shrinker {
    invariant: Invariant,
    left: u32,
}

/// The smallest plan found that breaks the same invariant.
pub fn shrink(plan: &Plan, invariant: Invariant) -> Plan {
    let mut shrinker = Shrinker { invariant, left: MAX_TRIES };
    let mut plan = plan.clone();
    loop {
        let before = size(&plan);
        plan = shrinker.without_some(plan, |plan| plan.clients.len(), without_client);
        plan = shrinker.without_some(plan, |plan| plan.callers.len(), |plan, index| drop(plan.callers.remove(index)));
        plan = shrinker.without_some(plan, |plan| plan.faults.len(), |plan, index| drop(plan.faults.remove(index)));
        plan = shrinker.simpler_callers(plan);
        if size(&plan) == before || shrinker.left == 0 {
            return plan;
        }
    }
}

fn size(plan: &Plan) -> (usize, usize, usize, u32) {
    let rounds = plan.callers.iter().map(|caller| caller.rounds).sum();
    (plan.clients.len(), plan.callers.len(), plan.faults.len(), rounds)
}

fn without_client(plan: &mut Plan, index: usize) {
    let id = plan.clients.remove(index).id;
    plan.callers.retain(|caller| caller.client != id);
    plan.faults.retain(|fault| {
        !matches!(fault.kind,
            Fault::Message { client, .. }
            | Fault::Disconnect { client, .. }
            | Fault::BlackHole { client, .. }
            | Fault::Pause { client, .. }
            | Fault::Kill { client, .. } if client == id)
    });
}

impl Shrinker {
    fn still_fails(&mut self, plan: &Plan) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        run_plan(plan, false).violation.is_some_and(|(_, broken)| broken.invariant == self.invariant)
    }

    /// Leaves out runs of things, from half of them down to single ones.
    fn without_some(&mut self, plan: Plan, count: impl Fn(&Plan) -> usize, remove: impl Fn(&mut Plan, usize)) -> Plan {
        let mut plan = plan;
        let mut run = count(&plan).div_ceil(2);
        while run > 0 {
            let mut from = 0;
            while from < count(&plan) {
                let mut smaller = plan.clone();
                for _ in 0..run.min(count(&plan) - from) {
                    remove(&mut smaller, from);
                }
                if self.still_fails(&smaller) {
                    plan = smaller;
                } else {
                    from += run;
                }
            }
            run = if run == 1 { 0 } else { run.div_ceil(2) };
        }
        plan
    }

    fn simpler_callers(&mut self, plan: Plan) -> Plan {
        let mut plan = plan;
        for index in 0..plan.callers.len() {
            let rounds = plan.callers[index].rounds;
            for fewer in [1, 2, rounds / 4, rounds / 2, rounds.saturating_sub(1)] {
                let mut smaller = plan.clone();
                if fewer == 0 || fewer >= rounds {
                    continue;
                }
                smaller.callers[index].rounds = fewer;
                if self.still_fails(&smaller) {
                    plan = smaller;
                    break;
                }
            }
        }
        plan
    }
}
