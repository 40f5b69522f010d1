//! Invariants that need to know whether a process was healthy: how soon a lock is free, handed on and picked up, and in
//! which order.

use std::time::Duration;

use lockfast::LostWhy;

use crate::clock::Time;
use crate::invariants::{self, Check, Invariant, felt_for, violated};
use crate::ledger::{Exit, RemovedEntry, index_of};
use crate::process::of_client_id;
use crate::world::World;

/// When the last local hand-off of a run happens: 10 ms after its first holder entered, plus the drift of clocks and the delay of
/// woken tasks.
const MAX_RUN: Duration = Duration::from_micros(11_000);
/// How many hand-offs a run has at most.
const MAX_HANDOFFS: u32 = 64;

/// How long a release may take after a fault is over: a request without an answer is awaited for 10 s, the next one follows
/// within 2 s.
const RELEASED_WITHIN: Duration = Duration::from_secs(13);

impl World<'_> {
    /// How long a few round trips take at most, plus the 50 ms that the project promises.
    fn promptly(&self) -> Duration {
        Duration::from_millis(50) + self.plan.delay * 12
    }

    /// Whether nothing was felt of any fault at `from` and since.
    fn was_healthy(&self, client: u32, ttl: Duration, from: Time) -> bool {
        self.clients[client as usize].last_trouble_at + felt_for(ttl) <= from
    }

    /// A caller enters, having asked at `asked_at`.
    pub(crate) fn check_entering(&mut self, caller: u32, asked_at: Time) {
        let check = self.judge_entering(caller, asked_at);
        self.require(check);
    }

    fn judge_entering(&mut self, caller: u32, asked_at: Time) -> Check {
        let it = &self.callers[caller as usize];
        let guard = it.guard.as_ref().expect("it enters with a guard");
        let (fence, is_stale, claim) = (guard.fence, guard.is_stale, std::sync::Arc::clone(&guard.claim));
        if !is_stale {
            invariants::check_honest(&self.store, guard)?;
        }
        // I1: a fence belongs to one guard. After the store's clock went back, that is not true of earlier grants.
        let is_from_before_reset = is_stale && self.names.iter().any(|name| name.is_reset);
        if !is_from_before_reset && !self.fences.insert(fence) {
            return violated(Invariant::Fenced, "a fence of its own for each guard", format!("{fence} twice"));
        }
        for demand in claim.demands.iter() {
            let name = &mut self.names[index_of(&demand.name)];
            invariants::check_fences_rise_for_client(name, demand.weight, it.client, fence)?;
            invariants::check_fences_rise(name, demand.weight, fence, is_stale)?;
            if !is_stale {
                invariants::check_exclusive(self.now, name, &self.callers, demand.weight)?;
                self.judge_order(caller, index_of(&demand.name), demand.weight)?;
            }
        }
        self.judge_wake_up(caller, asked_at)
    }

    /// I5: a claim that could hold is picked up soon, by a caller that has waited and whose process is healthy; after
    /// faults, as soon as they are not felt any more.
    fn judge_wake_up(&self, caller: u32, asked_at: Time) -> Check {
        let it = &self.callers[caller as usize];
        let guard = it.guard.as_ref().expect("it enters with a guard");
        let Some(entry) = self.store.ledger.get(guard.claim.id.hash()).filter(|entry| !entry.entered) else {
            return Ok(());
        };
        let ttl = guard.claim.ttl;
        // Pushes that were lost with their connection are made up for by the resync.
        let since = entry.could_hold.max(asked_at).max(self.clients[it.client as usize].pushes_lost_until);
        let period = it.terms.as_ref().and_then(|terms| terms.renew_every).map_or(ttl / 3, Duration::from).max(ttl / 3);
        // A waiter that has used up its five requests asks a second after the first of them (I8).
        let local = self.clients[it.client as usize].skew.local(self.now);
        let held_up = match it.request_times.is_used_up(local) {
            true => Duration::from_secs(1),
            // With a short lease it keeps a pace, so that the next request is always allowed before the lease ends.
            false if ttl < Duration::from_millis(1500) => Duration::from_millis(334),
            false => Duration::ZERO,
        };
        // A waiter notices by its next renewal that a lease ahead ended earlier than the store had said.
        let unaware = if entry.was_unaware { period } else { Duration::ZERO };
        let (from, most) = match self.was_healthy(it.client, ttl, since) {
            true => (since, self.promptly() + held_up + unaware),
            false => (since.max(self.clients[it.client as usize].last_trouble_at), felt_for(ttl)),
        };
        if self.now.since(from) > most {
            let expected = format!("that caller {caller} holds within {most:?} of {from:?}");
            return violated(Invariant::NoLostWakeUp, expected, format!("after {:?}", self.now.since(from)));
        }
        Ok(())
    }

    /// I6: no caller enters while another, which cannot share with it, has an earlier entry in the queue, has its
    /// acknowledgement, and was healthy since. While a claim of another process waits, a run of local hand-offs ends after 64 of
    /// them, and with the first after 10 ms.
    fn judge_order(&self, caller: u32, name: usize, weight: u32) -> Check {
        let it = &self.callers[caller as usize];
        let guard = it.guard.as_ref().expect("it enters with a guard");
        let fence = guard.fence;
        let resource = &self.names[name];
        let run_is_over = self.store.ledger.get(guard.claim.id.hash()).is_some_and(|entry| {
            let handed_off = entry.left.unwrap_or(self.now);
            let is_long = entry.goes_on_since().is_some_and(|began| handed_off.since(began) > MAX_RUN);
            is_long || entry.run.handoffs >= MAX_HANDOFFS
        });
        for other in resource.callers.iter().copied().filter(|other| *other != caller) {
            let waiter = &self.callers[other as usize];
            let Some(ahead) = waiter.acknowledged else { continue };
            let is_overtaken = ahead.ticket < fence || (run_is_over && waiter.client != it.client);
            if !is_overtaken {
                continue;
            }
            let wants = self.plan.callers[other as usize].wants.iter().find(|(it, _)| *it == name);
            let cannot_share = wants.is_some_and(|(_, other)| other.saturating_add(weight) > resource.capacity);
            let ttl = self.plan.callers[other as usize].ttl;
            let is_there = self.store.ledger.get(ahead.owner).is_some_and(|entry| !entry.broken);
            if cannot_share && is_there && waiter.is_asking() && self.was_healthy(waiter.client, ttl, ahead.at) {
                let expected = format!("caller {other} first, with ticket {}", ahead.ticket);
                return violated(Invariant::InOrder, expected, format!("caller {caller} with fence {fence}"));
            }
        }
        Ok(())
    }

    /// A claim has left the store.
    pub(crate) fn check_removed(&mut self, removed: &RemovedEntry) {
        let check = match removed.how {
            Exit::Released => self.judge_left(removed),
            Exit::Expired => self.judge_expired(removed),
            Exit::Ended => Ok(()),
        };
        self.require(check);
    }

    /// I4: a lease that ran out was that of a dead process, and ran out in time; or of one that had trouble; or of a hold
    /// that was not to be renewed.
    fn judge_expired(&self, removed: &RemovedEntry) -> Check {
        let entry = &removed.entry;
        let (id, life) = of_client_id(entry.claim.client);
        let client = self.index_of[id as usize];
        let process = &self.clients[client as usize];
        let ttl = entry.claim.ttl;
        if entry.lingers || entry.broken || entry.is_ghost {
            return Ok(());
        }
        if let Some(death) = process.deaths.get(life as usize) {
            let last = death.died.max(death.last_ran);
            let latest = last + entry.longest.mul_f64(1.02) + Duration::from_millis(100);
            return match removed.at > latest {
                true => violated(Invariant::NoLeak, format!("free by {latest:?}"), format!("at {:?}", removed.at)),
                false => Ok(()),
            };
        }
        if let Some(left) = entry.left {
            let latest = left.max(process.last_trouble_at) + RELEASED_WITHIN;
            return match removed.at > latest {
                true => violated(Invariant::NoLeak, format!("released by {latest:?}"), format!("{entry:?} ran out")),
                false => Ok(()),
            };
        }
        if entry.runs_out || !self.was_healthy(client, ttl * 2, removed.at) {
            return Ok(());
        }
        let expected = format!("that client {id}, which is healthy, renews or releases its claims");
        violated(Invariant::NoLeak, expected, format!("{entry:?} ran out at {:?}", removed.at))
    }

    /// I4: a claim whose caller is done with it leaves soon. I5: one that was granted is not given back unused.
    fn judge_left(&self, removed: &RemovedEntry) -> Check {
        let entry = &removed.entry;
        let (id, life) = of_client_id(entry.claim.client);
        let client = self.index_of[id as usize];
        let process = &self.clients[client as usize];
        if process.life != life || !process.is_alive || entry.lingers {
            return Ok(());
        }
        let ttl = entry.claim.ttl;
        if let Some(left) = entry.left {
            let (from, most) = match self.was_healthy(client, ttl, left) {
                true => (left, self.promptly()),
                false => (left.max(process.last_trouble_at), RELEASED_WITHIN),
            };
            if removed.at.since(from) > most {
                let expected = format!("that it is free within {most:?} of {from:?}");
                return violated(Invariant::NoLeak, expected, format!("at {:?}: {entry:?}", removed.at));
            }
        } else if entry.holds && !entry.entered && !entry.broken && self.was_healthy(client, ttl, entry.could_hold) {
            let expected = "that a grant is picked up by its caller, which is polled";
            return violated(Invariant::NoLostWakeUp, expected, format!("{entry:?} was given back"));
        }
        Ok(())
    }

    /// I9: a healthy process whose hold is renewed does not lose it.
    pub(crate) fn check_needless_loss(&self, caller: u32, why: LostWhy) -> Check {
        let it = &self.callers[caller as usize];
        let Some(guard) = &it.guard else { return Ok(()) };
        let is_renewed = it.terms.as_ref().is_some_and(|terms| terms.renew_every.is_some());
        if why == LostWhy::Expired && is_renewed && self.was_healthy(it.client, guard.claim.ttl, self.now) {
            let expected = format!("that client {} renews in time", self.clients[it.client as usize].id);
            return violated(Invariant::LossNoticed, expected, format!("caller {caller} lost {guard:?}"));
        }
        Ok(())
    }
}
