//! The rule of a queue, small enough to be hashed a million times: one list of claims in ticket order, and sums over it.
//! Follows `lockfast/src/table.rs`, with leases counted down in ticks instead of ending at a moment;
//! `model/tests/table_agrees.rs` compares the two, verb by verb.

use crate::messages::{Block, Call, Id, Push, Standing, Verb};
use crate::notes::Notes;
use crate::rules::{Rule, Rules};

/// How much there is of each resource, and the weight of an exclusive claim. A shared one weighs 1.
pub const ALL: u8 = 8;

/// The names, weight and lease of a claim. They never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimSpec {
    /// One bit for each resource.
    pub names: u8,
    /// How much of each.
    pub weight: u8,
    /// How many ticks it lives without being renewed.
    pub ttl: u8,
}

/// A claim in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Its id.
    pub id: Id,
    /// In which queues, one bit for each.
    pub names: u8,
    /// Its weight.
    pub weight: u8,
    /// Its ticket, by which the queue is ordered.
    pub ticket: u8,
    /// Its fencing tokens. Begins with `ticket`, if blocks are reserved at join.
    pub block: Block,
    /// How many ticks are left; with none left it is dropped by the next verb that settles.
    pub lease: u8,
    /// It holds although claims are ahead of it: only without the rule that the queue is looked at before the key.
    pub has_barged: bool,
}

/// A claim id that may not come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tombstone {
    /// The refused id.
    pub id: Id,
    /// For how many more ticks.
    pub ticks_left: u8,
}

/// All queues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Table {
    /// In ticket order.
    pub entries: Vec<Entry>,
    /// In the order of their ids.
    pub tombstones: Vec<Tombstone>,
    /// The last ticket drawn.
    pub last: u8,
}

/// Whether the store can reach the first waiter that a verb grants the lock to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextWaiter {
    /// It gets the lock.
    Reachable,
    /// It is skipped: evicted from the queue.
    Unreachable,
}

/// The execution of one verb: its rules, and its side effects.
#[derive(Debug)]
pub struct Execution {
    /// Which rules are kept.
    pub rules: Rules,
    /// Whether the first waiter that is granted the lock can be reached.
    pub next_waiter: NextWaiter,
    /// The pushes to send.
    pub pushes: Vec<Push>,
    /// Milestones and violations.
    pub notes: Notes,
    /// Claims that ended because their lease ran out, and whether they held.
    pub expired: Vec<(Id, bool)>,
}

impl Execution {
    /// A verb under these rules.
    pub fn new(rules: Rules, next_waiter: NextWaiter) -> Self {
        Self { rules, next_waiter, pushes: Vec::new(), notes: Notes::default(), expired: Vec::new() }
    }
}

impl Table {
    /// The claim with this id.
    pub fn find(&self, id: Id) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.id == id)
    }

    fn get_mut(&mut self, id: Id) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.id == id)
    }

    /// Claims that are ahead of this one in one of its queues.
    pub fn ahead(&self, of: &Entry) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |it| it.names & of.names != 0 && it.ticket < of.ticket)
    }

    /// The rule: on each of its resources, the claims up to and including it fit together.
    pub fn holds(&self, entry: &Entry) -> bool {
        entry.has_barged
            || (0..8).filter(|bit| entry.names & (1 << bit) != 0).all(|bit| {
                let up_to_it = self.entries.iter().filter(|it| it.names & (1 << bit) != 0 && it.ticket <= entry.ticket);
                up_to_it.map(|it| u32::from(it.weight)).sum::<u32>() <= u32::from(ALL)
            })
    }

    /// A tick passes.
    pub fn age(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.lease = entry.lease.saturating_sub(1));
        self.tombstones.iter_mut().for_each(|tombstone| tombstone.ticks_left -= 1);
        // Tombstones are dropped as soon as they end; dropping them at the next verb instead would show no difference.
        self.tombstones.retain(|tombstone| tombstone.ticks_left > 0);
    }

    /// Runs one verb.
    pub fn run(&mut self, call: &Call, claim_spec: ClaimSpec, execution: &mut Execution) -> Standing {
        let id = call.id;
        let must_settle = !matches!(call.verb, Verb::Renew { .. }) || execution.rules.keeps(Rule::SettleBeforeAnswer);
        if must_settle {
            self.settle(execution);
        }
        match call.verb {
            Verb::Acquire { block, floor } => self.acquire(id, claim_spec, block, floor, execution),
            Verb::Renew { ttl, .. } => {
                let Some(entry) = self.get_mut(id).filter(|entry| entry.lease > 0) else { return Standing::Gone };
                entry.lease = if execution.rules.keeps(Rule::NothingShortens) { entry.lease.max(ttl) } else { ttl };
                self.standing(id)
            }
            Verb::Done => self.done(id, execution),
            Verb::Unknown => {
                self.done(id, execution);
                if execution.rules.keeps(Rule::UnknownLeavesTombstone) {
                    self.leave_tombstone(id, claim_spec.ttl);
                }
                Standing::Gone
            }
            Verb::UnlessAlone { block, floor } => self.unless_alone(id, claim_spec, block, floor, execution),
        }
    }

    /// Drops claims whose lease has ended, and grants to the next ones.
    pub fn settle(&mut self, execution: &mut Execution) {
        if self.entries.iter().all(|entry| entry.lease > 0) {
            return;
        }
        let ended: Vec<_> = self.entries.iter().filter(|it| it.lease == 0).map(|it| (it.id, self.holds(it))).collect();
        let before = execution.pushes.len();
        self.change_and_push(execution, |it| it.entries.retain(|entry| entry.lease > 0));
        if execution.pushes.len() > before {
            execution.notes |= Notes::HANDED_AFTER_EXPIRY;
        }
        execution.pushes.extend(ended.iter().map(|(id, _)| Push::Gone { id: *id }));
        execution.expired.extend(ended);
    }

    fn acquire(&mut self, id: Id, claim_spec: ClaimSpec, block: u8, floor: u8, execution: &mut Execution) -> Standing {
        if self.tombstones.iter().any(|tombstone| tombstone.id == id) {
            execution.notes |= Notes::LATE_ACQUIRE_REFUSED;
            return Standing::Gone;
        }
        if let Some(entry) = self.get_mut(id) {
            if execution.rules.keeps(Rule::RepeatedAcquireRenews) {
                entry.lease = entry.lease.max(claim_spec.ttl);
            }
            return self.standing(id);
        }
        let key_is_free = !self.entries.iter().any(|it| it.names & claim_spec.names != 0 && self.holds(it));
        let reserved = if execution.rules.keeps(Rule::BlockReservedAtJoin) { block } else { 1 };
        let drawn = self.draw(reserved, floor);
        let entry = Entry {
            id,
            names: claim_spec.names,
            weight: claim_spec.weight,
            ticket: drawn.first,
            block: Block { first: drawn.first, count: block.max(1) },
            lease: claim_spec.ttl,
            has_barged: key_is_free && !execution.rules.keeps(Rule::QueueBeforeKey),
        };
        self.entries.push(entry);
        if self.holds(&entry) {
            self.reserve_at_grant(id, execution.rules);
        }
        self.standing(id)
    }

    fn unless_alone(
        &mut self,
        id: Id,
        claim_spec: ClaimSpec,
        block: u8,
        floor: u8,
        execution: &mut Execution,
    ) -> Standing {
        let Some(entry) = self.find(id).copied().filter(|entry| self.holds(entry)) else {
            return self.done(id, execution);
        };
        if entry.block.first > floor && execution.rules.keeps(Rule::LateUnlessAloneIsHarmless) {
            execution.notes |= Notes::LATE_UNLESS_ALONE_IGNORED;
            self.get_mut(id).expect("it was just found").lease = entry.lease.max(claim_spec.ttl);
            return Standing::Held(entry.block);
        }
        let mut behind = self.entries.iter().filter(|it| it.names & entry.names != 0 && it.ticket > entry.ticket);
        let is_alone = behind.all(|it| self.holds(it));
        if !is_alone && execution.rules.keeps(Rule::BlockGrowsOnlyAlone) {
            execution.notes |= Notes::LEFT_FOR_WAITERS;
            return self.done(id, execution);
        }
        execution.notes |= Notes::WENT_ON_ALONE;
        let fresh = self.draw(block, floor);
        self.entries.retain(|it| it.id != id);
        // A claim that is alone moves behind the claims that hold with it; one that grows although others wait keeps its ticket.
        let ticket = if is_alone { fresh.first } else { entry.ticket };
        self.entries.push(Entry { ticket, block: fresh, lease: entry.lease.max(claim_spec.ttl), ..entry });
        self.entries.sort_by_key(|it| it.ticket);
        Standing::Held(fresh)
    }

    fn done(&mut self, id: Id, execution: &mut Execution) -> Standing {
        if self.find(id).is_some() {
            self.change_and_push(execution, |it| it.entries.retain(|entry| entry.id != id));
        }
        Standing::Gone
    }

    fn leave_tombstone(&mut self, id: Id, ttl: u8) {
        match self.tombstones.iter_mut().find(|tombstone| tombstone.id == id) {
            Some(tombstone) => tombstone.ticks_left = tombstone.ticks_left.max(ttl),
            None => {
                self.tombstones.push(Tombstone { id, ticks_left: ttl });
                self.tombstones.sort_by_key(|tombstone| tombstone.id);
            }
        }
    }

    fn draw(&mut self, count: u8, floor: u8) -> Block {
        let block = Block { first: self.last.max(floor) + 1, count: count.max(1) };
        self.last = block.last();
        block
    }

    /// Draws a block when its claim is granted: only without the rule that it is reserved at join.
    fn reserve_at_grant(&mut self, id: Id, rules: Rules) {
        if !rules.keeps(Rule::BlockReservedAtJoin)
            && let Some(count) = self.find(id).map(|entry| entry.block.count).filter(|count| *count > 1)
        {
            let block = self.draw(count, 0);
            self.get_mut(id).expect("it was just found").block = block;
        }
    }

    /// Runs `change`, then pushes to the claims that waited before it and hold after it.
    fn change_and_push(&mut self, execution: &mut Execution, change: impl FnOnce(&mut Self)) {
        let waiters_before: Vec<_> = self.entries.iter().filter(|it| !self.holds(it)).map(|it| it.id).collect();
        change(self);
        let new_holders = |it: &Self| {
            let next = it.entries.iter().filter(|entry| waiters_before.contains(&entry.id) && it.holds(entry));
            next.map(|entry| entry.id).collect::<Vec<_>>()
        };
        let mut next = new_holders(self);
        if execution.next_waiter == NextWaiter::Unreachable
            && let Some(first) = next.first().copied()
        {
            execution.next_waiter = NextWaiter::Reachable;
            execution.notes |= Notes::SKIPPED;
            let entry = *self.find(first).expect("it was just found");
            if !execution.rules.keeps(Rule::DecideThenPush) {
                execution.pushes.push(Push::Held { id: first, ticket: entry.ticket, block: entry.block });
            }
            self.entries.retain(|it| it.id != first);
            execution.pushes.push(Push::Gone { id: first });
            if execution.rules.keeps(Rule::SkippedLeavesTombstone) {
                self.leave_tombstone(first, entry.lease);
            }
            next = new_holders(self);
        }
        for id in next {
            self.reserve_at_grant(id, execution.rules);
            let entry = self.find(id).expect("it was just found");
            execution.pushes.push(Push::Held { id, ticket: entry.ticket, block: entry.block });
        }
    }

    /// The standing of a claim that is in the queue.
    fn standing(&self, id: Id) -> Standing {
        let entry = self.find(id).expect("only called for claims that are in the queue");
        if self.holds(entry) {
            return Standing::Held(entry.block);
        }
        let ahead_on = |bit: u8| self.ahead(entry).filter(move |it| it.names & entry.names & (1 << bit) != 0).count();
        let position = (0..8).map(ahead_on).max().unwrap_or(0);
        let recheck_in = self.ahead(entry).map(|it| it.lease).max().unwrap_or(0);
        Standing::Waiting { ticket: entry.ticket, position: position as u8, recheck_in }
    }
}
