//! A caller under a lock: it enters, writes to a fenced resource, extends, and learns of a loss.

use std::sync::Arc;

use lockfast::LostWhy;
use lockfast::engine::{GuardParts, Input, Renewal};
use lockfast::store::Lease;
use lockfast::store::Moment;

use crate::caller::{Guard, State};
use crate::invariants::{self, Invariant};
use crate::keeper::standings;
use crate::network::{CallPurpose, Reply, Request};
use crate::plan::Link;
use crate::schedule::{Event, Tick};
use crate::world::World;

/// How long the answer to an extension is awaited.
const CALL_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

impl World<'_> {
    /// From here on there is a guard.
    pub(crate) fn enter(&mut self, caller: u32, held: GuardParts) {
        let now = self.now;
        let it = &mut self.callers[caller as usize];
        let (client, asked_at) = (it.client, it.since);
        let process = &mut self.clients[client as usize];
        held.terms.validity.grant(held.until, held.why);
        process.waiting.retain(|(_, waiting)| *waiting != caller);
        let Some(claim) = process.engine.claim(held.hold).map(|(claim, _)| claim) else {
            return self.fail(Invariant::Interface, "a hold that was asked for", format!("caller {caller}: {held:?}"));
        };
        process.guards.push((held.hold, caller));
        let until_time = process.skew.time_of(held.until);
        let owner = claim.id.hash();
        let is_stale = self.store.has_ended(owner, held.fence);
        it.state = State::Holding;
        it.since = now;
        it.key = None;
        it.terms = Some(held.terms);
        it.guard = Some(Guard {
            hold: held.hold,
            claim: Arc::clone(&claim),
            fence: held.fence,
            until: held.until,
            until_time,
            lost: None,
            is_stale,
        });
        self.last_progress_at = now;
        self.grants += 1;
        self.check_entering(caller, asked_at);
        if let Some(entry) = self.store.ledger.get_mut(owner) {
            entry.enter(now, self.plan.callers[caller as usize].renew_every.is_none());
        }
        let it = &mut self.callers[caller as usize];
        it.acknowledged = None;
        for demand in claim.demands.iter() {
            let name = &mut self.names[crate::ledger::index_of(&demand.name)];
            name.inside.push((caller, demand.weight));
        }
        self.write(caller);
        self.schedule_work(caller);
    }

    fn schedule_work(&mut self, caller: u32) {
        let plan = &self.plan.callers[caller as usize];
        let it = &mut self.callers[caller as usize];
        let works = plan.works.mul_f64(0.25 + it.random.f64() * 1.5);
        let event = |tick| Event::Caller { caller, round: it.round, tick };
        self.schedule.put(self.now + works, event(Tick::Exit));
        if plan.extends.is_some() {
            self.schedule.put(self.now + works / 2, event(Tick::Extend));
        }
        if works > plan.ttl / 8 {
            self.schedule.put(self.now + works.mul_f64(it.random.f64()), event(Tick::Write));
        }
    }

    /// Writes to the resources that the lock protects, if the guard is valid by its own clock.
    pub(crate) fn write(&mut self, caller: u32) {
        let it = &self.callers[caller as usize];
        let (Some(guard), Some(terms)) = (&it.guard, &it.terms) else { return };
        let local = self.clients[it.client as usize].skew.local(self.now);
        if terms.validity.is_over(local) {
            return;
        }
        let claim = Arc::clone(&guard.claim);
        let (fence, is_stale) = (guard.fence, guard.is_stale);
        for demand in claim.demands.iter().filter(|demand| demand.weight == demand.capacity) {
            let name = &mut self.names[crate::ledger::index_of(&demand.name)];
            let check = invariants::check_write(name, fence, is_stale);
            self.require(check);
        }
        if !is_stale {
            let check = invariants::check_honest(&self.store, guard_of(&self.callers[caller as usize]));
            self.require(check);
        }
    }

    /// The hold may be trusted for longer.
    pub(crate) fn trust(&mut self, caller: u32, until: Moment, why: LostWhy) {
        let it = &mut self.callers[caller as usize];
        let (Some(guard), Some(terms)) = (&mut it.guard, &it.terms) else { return };
        let skew = self.clients[it.client as usize].skew;
        if terms.validity.extend(until, why, skew.local(self.now)) {
            guard.until = guard.until.max(until);
            guard.until_time = skew.time_of(guard.until);
            if !guard.is_stale {
                let check = invariants::check_honest(&self.store, guard);
                self.require(check);
            }
        } else {
            let (client, hold) = (it.client, guard.hold);
            self.handle(client, Input::SeenOver(hold));
        }
    }

    /// The engine says that a hold is lost.
    pub(crate) fn lose(&mut self, caller: u32, why: LostWhy) {
        let it = &self.callers[caller as usize];
        let process = &self.clients[it.client as usize];
        let check = invariants::check_loss(self.now, it, process, &self.store, why);
        let check = check.and_then(|()| self.check_needless_loss(caller, why));
        self.require(check);
        self.losses += 1;
        let it = &mut self.callers[caller as usize];
        let (Some(guard), Some(terms)) = (&mut it.guard, &it.terms) else { return };
        terms.validity.end(why);
        guard.lost = Some(why);
        if let Some(entry) = self.store.ledger.get_mut(guard.claim.id.hash()) {
            entry.runs_out = true;
        }
        // The caller stops its work, sooner or later.
        let stops = std::time::Duration::from_micros(it.random.u64(100..100_000));
        self.schedule.put(self.now + stops, Event::Caller { caller, round: it.round, tick: Tick::Exit });
    }

    /// The holder extends its lease.
    pub(crate) fn extend(&mut self, caller: u32) {
        let plan = &self.plan.callers[caller as usize];
        let it = &self.callers[caller as usize];
        let (Some(guard), Some(terms), Some(span)) = (&it.guard, &it.terms, plan.extends) else { return };
        let sent = self.clients[it.client as usize].skew.local(self.now);
        let is_capped = plan.hold_at_most.is_some_and(|most| self.now.since(it.since) + span > most);
        if terms.validity.is_over(sent) || is_capped || it.call.is_some() {
            return;
        }
        let ttl = span + invariants::margin(span) * 2;
        let claim = Arc::clone(&guard.claim);
        let renewal = Renewal { key: guard.hold, claim: Arc::clone(&claim), ttl, waits: false, is_beside: false };
        let request = Request::Renew(vec![Lease { claim, ttl }]);
        let purpose = CallPurpose::Extend { caller, renewal, sent };
        let call = self.send(it.client, Link::Callers, request, CALL_TIMEOUT, purpose);
        self.callers[caller as usize].call = Some(call);
    }

    pub(crate) fn on_extend_reply(&mut self, caller: u32, renewal: Renewal, sent: Moment, reply: Option<Reply>) {
        let it = &mut self.callers[caller as usize];
        it.call = None;
        let client = it.client;
        let answer = reply.map_or(Ok(Vec::new()), standings);
        if let Some(standing) = answer.ok().and_then(|standings| standings.into_iter().next()) {
            self.handle(client, Input::Extended { renewal, sent, standing });
        }
    }
}

fn guard_of(caller: &crate::caller::Caller) -> &Guard {
    caller.guard.as_ref().expect("it was there a moment ago")
}
