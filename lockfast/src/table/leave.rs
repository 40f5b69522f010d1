//! How claims leave their queues: released, withdrawn, lingering, sealed, broken.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::claim::{Claim, Ticket};
use crate::clock::Moment;
use crate::name::Name;
use crate::planted::Rule;
use crate::store::{Change, Leaving, Standing, Why};

use super::queue::Seal;
use super::{ExpiryTarget, Table, Tombstone};

impl Table {
    /// What [`Store::release`](crate::store::Store::release) promises, for one leaving claim.
    pub fn release(&mut self, leaving: &Leaving, now: Moment) -> Standing {
        self.settle(now);
        match leaving {
            Leaving::Done(claim) => self.remove_and_explain(claim, now),
            Leaving::Unknown(claim) => {
                let standing = self.remove_and_explain(claim, now);
                // A copy of this request is answered from the tombstone: `Left` only if this request removed the claim.
                let Standing::Gone(why) = standing else { return standing };
                self.leave_tombstone(claim, why, now + claim.tombstone());
                standing
            }
            Leaving::Linger(claim, span) => self.linger(claim, *span, now),
            Leaving::Seal { claim, value, keep } => self.seal(claim, value, now + *keep, now),
            Leaving::UnlessAlone { claim, block, floor } => self.leave_unless_alone(claim, *block, *floor, now),
            Leaving::Break { name, ticket, at_once } => self.break_claim(name, *ticket, *at_once, now),
        }
    }

    /// Removes the claim, and answers why it is not in its queues.
    fn remove_and_explain(&mut self, claim: &Claim, now: Moment) -> Standing {
        let owner = claim.id.hash();
        Standing::Gone(match self.remove(owner, now) {
            Some(state) if state.expires_at <= now => Why::Expired,
            Some(state) if state.broken => Why::Broken,
            Some(_) => Why::Left,
            None => self.tombstones.get(&owner).map_or(Why::Unknown, |tombstone| tombstone.why),
        })
    }

    /// Leaves a tombstone: the claim's id is refused until `until`.
    fn leave_tombstone(&mut self, claim: &Claim, why: Why, until: Moment) {
        let owner = claim.id.hash();
        let tombstone = self.tombstones.entry(owner).or_insert(Tombstone { until, why });
        tombstone.until = tombstone.until.max(until);
        self.schedule_expiry(until, ExpiryTarget::Tombstone(owner));
    }

    fn linger(&mut self, claim: &Claim, span: Duration, now: Moment) -> Standing {
        let owner = claim.id.hash();
        match self.find_alive(owner, now) {
            Some(state) if state.holds() && !state.broken && !span.is_zero() => {
                // Of two calls the first counts: a repeated call must not extend the linger.
                if !state.lingers {
                    state.lingers = true;
                    state.expires_at = now + span;
                    self.schedule_expiry(now + span, ExpiryTarget::Claim(owner));
                    self.touch(claim);
                    self.notify_first_waiters(claim, span);
                }
                Standing::Gone(Why::Left)
            }
            _ => self.remove_and_explain(claim, now),
        }
    }

    /// The lease of `claim` ends after `span`, earlier than the `recheck_in` of the waiters behind it says. The first waiter of
    /// each queue gets a push.
    fn notify_first_waiters(&mut self, claim: &Claim, span: Duration) {
        let waiters = claim.demands.iter().filter_map(|demand| self.queues[&demand.name].first_waiter());
        let unique: BTreeSet<_> = waiters.collect();
        let message = |owner| (self.claims[&owner].claim.client, Change::Recheck(owner, span));
        self.pushes.extend(unique.into_iter().map(message));
    }

    fn seal(&mut self, claim: &Claim, value: &Bytes, until: Moment, now: Moment) -> Standing {
        let owner = claim.id.hash();
        let sealer = self.find_alive(owner, now).filter(|state| state.is_at_work() && state.is_exclusive());
        if let Some(sealer) = sealer.map(|state| Arc::clone(&state.claim)) {
            for demand in sealer.demands.iter() {
                // Order matters: the waiters are removed while the sealer still holds. Otherwise the next one would be granted
                // the lock, and would run again what was just sealed.
                let queue = &self.queues[&demand.name];
                let waiters: Vec<_> =
                    queue.entries().iter().map(|entry| entry.owner).filter(|it| *it != owner).collect();
                let waiters = waiters.into_iter().filter(|_| !Rule::SealEmptiesQueue.is_left_out());
                for waiter in waiters {
                    self.expire(waiter, now);
                }
                let queue = self.queues.get_mut(&demand.name).expect("the sealer has an entry in it");
                queue.seal = Some(Box::new(Seal { value: value.clone(), until }));
                self.schedule_expiry(until, ExpiryTarget::Seal(demand.name.clone()));
            }
        }
        self.remove_and_explain(claim, now)
    }

    fn leave_unless_alone(&mut self, claim: &Claim, block: u32, floor: Ticket, now: Moment) -> Standing {
        let owner = claim.id.hash();
        let Some(state) = self.find_alive(owner, now).filter(|state| state.holds()) else {
            return self.remove_and_explain(claim, now);
        };
        let (claim, tickets) = (Arc::clone(&state.claim), state.tickets);
        if tickets.first > floor && !Rule::LateUnlessAloneIsHarmless.is_left_out() {
            // The request was sent before its client saw the claim's present tickets: it is a repeat, or late. Leaving now
            // would take the lock from an owner that was since told to keep it, and that may be working even if the claim is
            // broken.
            if !state.is_at_work() {
                return Standing::Gone(if state.broken { Why::Broken } else { Why::Left });
            }
            state.extend(now + claim.ttl);
            return Standing::Held(tickets);
        }
        if !state.is_at_work() {
            return self.remove_and_explain(&claim, now);
        }
        if !claim.demands.iter().all(|demand| self.has_no_waiter_behind(&demand.name, tickets.first)) {
            return self.remove_and_explain(&claim, now);
        }
        let fresh = self.draw_tickets(block, floor);
        let state = self.claims.get_mut(&owner).expect("`find_alive` found it, and nothing was removed since");
        state.tickets = fresh;
        state.extend(now + claim.ttl);
        self.touch(&claim);
        for demand in claim.demands.iter() {
            // All claims behind it hold, so moving behind them changes no claim's standing, and no other claim fits by it.
            let queue = self.queues.get_mut(&demand.name).expect("a holder has an entry in each of its queues");
            queue.remove(tickets.first);
            let is_fitting = queue.join(demand, fresh.first, owner);
            debug_assert!(is_fitting, "the room it just left is free");
        }
        Standing::Held(fresh)
    }

    fn has_no_waiter_behind(&self, name: &Name, ticket: Ticket) -> bool {
        let queue = &self.queues[name];
        let mut behind = queue.entries().range(queue.index_of(ticket) + 1..);
        behind.all(|entry| self.claims[&entry.owner].holds()) || Rule::UnlessAloneYields.is_left_out()
    }

    fn break_claim(&mut self, name: &Name, ticket: Ticket, at_once: bool, now: Moment) -> Standing {
        let entry = self.queues.get(name).and_then(|queue| queue.at_or_before(ticket)).copied();
        let Some(state) = entry.and_then(|entry| self.claims.get_mut(&entry.owner)) else {
            return Standing::Gone(Why::Unknown);
        };
        if !state.tickets.contains(ticket) {
            return Standing::Gone(Why::Unknown);
        }
        let (claim, owner) = (Arc::clone(&state.claim), state.claim.id.hash());
        if at_once || state.lingers || !state.holds() {
            self.expire(owner, now);
            // The tombstone answers the client's next renewal, which comes within one lease.
            self.leave_tombstone(&claim, Why::Broken, now + claim.ttl);
        } else if !state.broken {
            state.broken = true;
            self.pushes.push((claim.client, Change::Gone(owner)));
            self.touch(&claim);
        }
        Standing::Gone(Why::Broken)
    }
}
