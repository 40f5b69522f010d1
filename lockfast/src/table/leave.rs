//! The ways out of a line.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::claim::{Claim, Ticket};
use crate::clock::Moment;
use crate::name::Name;
use crate::planted::Rule;
use crate::store::{Change, Leaving, Standing, Why};

use super::line::Seal;
use super::{Mark, Table, What};

impl Table {
    /// What [`Store::release`](crate::store::Store::release) promises, for one departure.
    pub fn release(&mut self, leaving: &Leaving, now: Moment) -> Standing {
        self.settle(now);
        match leaving {
            Leaving::Done(claim) => self.done(claim, now),
            Leaving::Unknown(claim) => {
                let standing = self.done(claim, now);
                // What a copy of this is told: that the claim left only if it did by this.
                let Standing::Gone(why) = standing else { return standing };
                self.bury(claim, why, now + claim.tombstone());
                standing
            }
            Leaving::Linger(claim, span) => self.linger(claim, *span, now),
            Leaving::Seal { claim, value, keep } => self.seal(claim, value, now + *keep, now),
            Leaving::UnlessAlone { claim, block, floor } => self.unless_alone(claim, *block, *floor, now),
            Leaving::Break { name, ticket, at_once } => self.break_claim(name, *ticket, *at_once, now),
        }
    }

    fn done(&mut self, claim: &Claim, now: Moment) -> Standing {
        let owner = claim.id.hash();
        Standing::Gone(match self.remove(owner, now) {
            Some(entry) if entry.expires <= now => Why::Expired,
            Some(entry) if entry.broken => Why::Broken,
            Some(_) => Why::Left,
            None => self.marks.get(&owner).map_or(Why::Unknown, |mark| mark.why),
        })
    }

    /// Keeps the id of a claim out until then.
    fn bury(&mut self, claim: &Claim, why: Why, until: Moment) {
        let owner = claim.id.hash();
        let mark = self.marks.entry(owner).or_insert(Mark { until, why });
        mark.until = mark.until.max(until);
        self.look_at(until, What::Mark(owner));
    }

    fn linger(&mut self, claim: &Claim, span: Duration, now: Moment) -> Standing {
        let owner = claim.id.hash();
        match self.living(owner, now) {
            Some(entry) if entry.holds() && !entry.broken && !span.is_zero() => {
                // Said twice, the first counts: a repeated call must not hold it longer.
                if !entry.lingers {
                    entry.lingers = true;
                    entry.expires = now + span;
                    self.look_at(now + span, What::Claim(owner));
                    self.touch(claim);
                    self.tell_first_waiters(claim, span);
                }
                Standing::Gone(Why::Left)
            }
            _ => self.done(claim, now),
        }
    }

    /// The lease of `claim` ends after `span`, earlier than those behind it were told.
    fn tell_first_waiters(&mut self, claim: &Claim, span: Duration) {
        let waiters = claim.demands.iter().filter_map(|demand| self.lines[&demand.name].first_waiter());
        let told: BTreeSet<_> = waiters.collect();
        let message = |owner| (self.claims[&owner].claim.client, Change::Recheck(owner, span));
        self.news.extend(told.into_iter().map(message));
    }

    fn seal(&mut self, claim: &Claim, value: &Bytes, until: Moment, now: Moment) -> Standing {
        let owner = claim.id.hash();
        let sealer = self.living(owner, now).filter(|entry| entry.is_at_work() && entry.is_exclusive());
        if let Some(sealer) = sealer.map(|entry| Arc::clone(&entry.claim)) {
            for demand in sealer.demands.iter() {
                // Order matters: the waiters go while the sealer still holds, so none of them is handed the lock to run
                // again what was just sealed.
                let line = &self.lines[&demand.name];
                let waiting: Vec<_> = line.places().iter().map(|place| place.owner).filter(|it| *it != owner).collect();
                let waiting = waiting.into_iter().filter(|_| !Rule::SealEmptiesQueue.is_left_out());
                for waiter in waiting {
                    self.expire(waiter, now);
                }
                let line = self.lines.get_mut(&demand.name).expect("the sealer stands in it");
                line.seal = Some(Box::new(Seal { value: value.clone(), until }));
                self.look_at(until, What::Seal(demand.name.clone()));
            }
        }
        self.done(claim, now)
    }

    fn unless_alone(&mut self, claim: &Claim, block: u32, floor: Ticket, now: Moment) -> Standing {
        let owner = claim.id.hash();
        let Some(entry) = self.living(owner, now).filter(|entry| entry.holds()) else {
            return self.done(claim, now);
        };
        let (claim, tickets) = (Arc::clone(&entry.claim), entry.tickets);
        if tickets.first > floor && !Rule::LateUnlessAloneIsHarmless.is_left_out() {
            // It was sent before its client saw the numbers the claim has now: repeated, or late. To leave by it would take
            // the lock from an owner who was told since to go on, and who may still work though the claim was broken.
            if !entry.is_at_work() {
                return Standing::Gone(if entry.broken { Why::Broken } else { Why::Left });
            }
            entry.extend(now + claim.ttl);
            return Standing::Held(tickets);
        }
        if !entry.is_at_work() {
            return self.done(&claim, now);
        }
        if !claim.demands.iter().all(|demand| self.nobody_waits_behind(&demand.name, tickets.first)) {
            return self.done(&claim, now);
        }
        let fresh = self.draw(block, floor);
        let entry = self.claims.get_mut(&owner).expect("it was there a moment ago");
        entry.tickets = fresh;
        entry.extend(now + claim.ttl);
        self.touch(&claim);
        for demand in claim.demands.iter() {
            // Everybody behind holds, so moving behind them changes nobody's standing; and nobody else fits by it.
            let line = self.lines.get_mut(&demand.name).expect("a holder stands in its lines");
            line.take(tickets.first);
            let fits = line.join(demand, fresh.first, owner);
            debug_assert!(fits, "what it just gave up is free");
        }
        Standing::Held(fresh)
    }

    fn nobody_waits_behind(&self, name: &Name, ticket: Ticket) -> bool {
        let line = &self.lines[name];
        let mut behind = line.places().range(line.index_of(ticket) + 1..);
        behind.all(|place| self.claims[&place.owner].holds()) || Rule::UnlessAloneYields.is_left_out()
    }

    fn break_claim(&mut self, name: &Name, ticket: Ticket, at_once: bool, now: Moment) -> Standing {
        let place = self.lines.get(name).and_then(|line| line.at_or_before(ticket)).copied();
        let Some(entry) = place.and_then(|place| self.claims.get_mut(&place.owner)) else {
            return Standing::Gone(Why::Unknown);
        };
        if !entry.tickets.contains(ticket) {
            return Standing::Gone(Why::Unknown);
        }
        let (claim, owner) = (Arc::clone(&entry.claim), entry.claim.id.hash());
        if at_once || entry.lingers || !entry.holds() {
            self.expire(owner, now);
            // Its client learns of it from its next renewal, which comes within one lease.
            self.bury(&claim, Why::Broken, now + claim.ttl);
        } else if !entry.broken {
            entry.broken = true;
            self.news.push((claim.client, Change::Gone(owner)));
            self.touch(&claim);
        }
        Standing::Gone(Why::Broken)
    }
}
