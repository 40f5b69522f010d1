//! `release`: every way a claim leaves its queues, over the rows of the file.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::Result;

use crate::claim::{Claim, Ticket};
use crate::clock::Moment;
use crate::name::Name;
use crate::store::{Change, Leaving, Standing, Why};

use super::view::TransactionView;

impl TransactionView<'_> {
    pub(super) fn release(&mut self, leaving: &Leaving) -> Result<Standing> {
        match leaving {
            Leaving::Done(claim) => self.leave(claim),
            Leaving::Unknown(claim) => {
                let standing = self.leave(claim)?;
                // A repeated release gets the reply of the first one: the tombstone keeps the reason.
                if let Standing::Gone(why) = standing {
                    self.add_tombstone(claim.id.hash(), why, self.now + claim.tombstone())?;
                }
                Ok(standing)
            }
            Leaving::Linger(claim, span) => self.linger_for(claim, *span),
            Leaving::Seal { claim, value, keep } => self.seal_for(claim, value, self.now + *keep),
            Leaving::UnlessAlone { claim, block, floor } => self.unless_alone(claim, *block, *floor),
            Leaving::Break { name, ticket, at_once } => self.break_claim(name, *ticket, *at_once),
        }
    }

    fn leave(&mut self, claim: &Claim) -> Result<Standing> {
        Ok(Standing::Gone(match self.entry_of(claim)? {
            Some(entry) => {
                self.remove(&entry)?;
                match entry.expires <= self.now {
                    true => Why::Expired,
                    false if entry.is_broken() => Why::Broken,
                    false => Why::Left,
                }
            }
            None => self.tombstone(claim.id.hash())?.unwrap_or(Why::Unknown),
        }))
    }

    fn linger_for(&mut self, claim: &Claim, span: Duration) -> Result<Standing> {
        match self.living_entry_of(claim)? {
            Some(entry) if entry.holds() && !entry.is_broken() && !span.is_zero() => {
                // The first call counts: a repeated one must not extend the linger.
                if !entry.lingers() {
                    self.linger(&entry, self.now + span)?;
                    self.changed_queues.extend(entry.names().iter().cloned());
                    let mut notified = BTreeSet::new();
                    for name in entry.names() {
                        if let Some(first) = self.first_that_does_not_fit(name)?.filter(|it| notified.insert(it.owner))
                        {
                            self.notify(&first, Change::Recheck(first.owner, span));
                        }
                    }
                }
                Ok(Standing::Gone(Why::Left))
            }
            _ => self.leave(claim),
        }
    }

    fn seal_for(&mut self, claim: &Claim, value: &Bytes, until: Moment) -> Result<Standing> {
        if let Some(sealer) = self.living_entry_of(claim)?
            && sealer.is_at_work()
            && self.is_exclusive(&sealer)?
        {
            for name in sealer.names() {
                // Order matters: waiters are removed while the sealer still holds. Otherwise one of them would be
                // granted the lock and run again what was just sealed.
                for waiter in self.queue(name)? {
                    if waiter.owner != sealer.owner && self.entry(name, waiter.tickets.first)?.is_some() {
                        self.expire(&waiter)?;
                    }
                }
                self.add_seal(name, value, until)?;
            }
        }
        self.leave(claim)
    }

    fn unless_alone(&mut self, claim: &Claim, block: u32, floor: Ticket) -> Result<Standing> {
        let Some(entry) = self.living_entry_of(claim)?.filter(|entry| entry.holds()) else {
            return self.leave(claim);
        };
        let until = self.now + entry.ttl;
        if entry.tickets.first > floor {
            // The call was sent before its client saw the tickets the claim has now: it is repeated or late. Leaving
            // because of it would take the lock from an owner that has since received a reply to go on, and that may
            // still work although the claim was broken.
            if !entry.is_at_work() {
                return Ok(Standing::Gone(if entry.is_broken() { Why::Broken } else { Why::Left }));
            }
            self.extend(&entry, until)?;
            return Ok(Standing::Held(entry.tickets));
        }
        if !entry.is_at_work() {
            return self.leave(claim);
        }
        for name in entry.names() {
            if self.has_waiter_behind(name, entry.tickets.first)? {
                return self.leave(claim);
            }
        }
        // All claims behind hold, so moving behind them changes no standing and grants nothing.
        let fresh = self.draw_tickets(block, floor);
        self.move_to_end(&entry, fresh, until)?;
        self.changed_queues.extend(entry.names().iter().cloned());
        Ok(Standing::Held(fresh))
    }

    fn break_claim(&mut self, name: &Name, ticket: Ticket, at_once: bool) -> Result<Standing> {
        let entry = self.at_or_before(name, ticket)?.filter(|entry| entry.tickets.contains(ticket));
        let Some(entry) = entry else { return Ok(Standing::Gone(Why::Unknown)) };
        if at_once || entry.lingers() || !entry.holds() {
            self.expire(&entry)?;
            self.add_tombstone(entry.owner, Why::Broken, self.now + entry.ttl)?;
        } else if !entry.is_broken() {
            self.set_broken(&entry)?;
            self.notify(&entry, Change::Gone(entry.owner));
            self.changed_queues.extend(entry.names().iter().cloned());
        }
        Ok(Standing::Gone(Why::Broken))
    }
}
