//! The rule of a line, small enough to be hashed a million times: one list of claims in ticket order, and sums over it.
//! Follows `lockfast/src/table.rs`, with leases counted down in ticks instead of ending at a moment;
//! `model/tests/table_agrees.rs` compares the two, verb by verb.

use crate::notes::Notes;
use crate::rules::{Rule, Rules};
use crate::words::{Block, Id, Push, Request, Standing, Verb};

/// How much there is of each resource, and the weight of an exclusive claim. A shared one weighs 1.
pub const ALL: u8 = 8;

/// What a claim wants: the same in all its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// One bit for each resource.
    pub names: u8,
    /// How much of each.
    pub weight: u8,
    /// How many ticks it lives without being renewed.
    pub ttl: u8,
}

/// A claim in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Whose.
    pub id: Id,
    /// In which lines, one bit for each.
    pub names: u8,
    /// How heavy.
    pub weight: u8,
    /// Its place.
    pub ticket: u8,
    /// Its fencing tokens. Begins with `ticket`, if blocks are reserved at join.
    pub block: Block,
    /// How many ticks are left; with none left it is only here until somebody looks.
    pub lease: u8,
    /// It holds although others stand before it: only where the line is not looked at before the key.
    pub barged: bool,
}

/// A claim id that may not come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Which.
    pub id: Id,
    /// For so many ticks.
    pub left: u8,
}

/// All lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Table {
    /// In ticket order.
    pub entries: Vec<Entry>,
    /// In the order of their ids.
    pub marks: Vec<Mark>,
    /// The last ticket drawn.
    pub last: u8,
}

/// One verb at work: what it may do, and what it has to tell.
#[derive(Debug)]
pub struct Desk {
    /// Which rules are kept.
    pub rules: Rules,
    /// The first waiter to be handed the lock is taken for unreachable.
    pub skips: bool,
    /// What to tell.
    pub news: Vec<Push>,
    /// What happened.
    pub notes: Notes,
    /// Claims that ended because their lease ran out, and whether they held.
    pub expired: Vec<(Id, bool)>,
}

impl Desk {
    /// A verb under these rules.
    pub fn new(rules: Rules, skips: bool) -> Self {
        Self { rules, skips, news: Vec::new(), notes: Notes::default(), expired: Vec::new() }
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

    /// Those who stand before this one in one of its lines.
    pub fn ahead(&self, of: &Entry) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |it| it.names & of.names != 0 && it.ticket < of.ticket)
    }

    /// The rule: on each of its resources, the claims up to and including it fit together.
    pub fn holds(&self, entry: &Entry) -> bool {
        entry.barged
            || (0..8).filter(|bit| entry.names & (1 << bit) != 0).all(|bit| {
                let up_to_it = self.entries.iter().filter(|it| it.names & (1 << bit) != 0 && it.ticket <= entry.ticket);
                up_to_it.map(|it| u32::from(it.weight)).sum::<u32>() <= u32::from(ALL)
            })
    }

    /// A tick passes.
    pub fn age(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.lease = entry.lease.saturating_sub(1));
        self.marks.iter_mut().for_each(|mark| mark.left -= 1);
        // Marks are dropped by their end alone, which nobody can tell from dropping them at the next verb.
        self.marks.retain(|mark| mark.left > 0);
    }

    /// Runs one verb.
    pub fn run(&mut self, request: &Request, wish: Wish, desk: &mut Desk) -> Standing {
        let id = request.id;
        let settles = !matches!(request.verb, Verb::Renew { .. }) || desk.rules.keep(Rule::SettleBeforeAnswer);
        if settles {
            self.settle(desk);
        }
        match request.verb {
            Verb::Acquire { block, floor } => self.acquire(id, wish, block, floor, desk),
            Verb::Renew { ttl, .. } => {
                let Some(entry) = self.get_mut(id).filter(|entry| entry.lease > 0) else { return Standing::Gone };
                entry.lease = if desk.rules.keep(Rule::NothingShortens) { entry.lease.max(ttl) } else { ttl };
                self.standing(id)
            }
            Verb::Done => self.done(id, desk),
            Verb::Unknown => {
                self.done(id, desk);
                if desk.rules.keep(Rule::UnknownLeavesMark) {
                    self.mark(id, wish.ttl);
                }
                Standing::Gone
            }
            Verb::UnlessAlone { block, floor } => self.unless_alone(id, wish, block, floor, desk),
        }
    }

    /// Drops what has run out, and hands on.
    pub fn settle(&mut self, desk: &mut Desk) {
        if self.entries.iter().all(|entry| entry.lease > 0) {
            return;
        }
        let ended: Vec<_> = self.entries.iter().filter(|it| it.lease == 0).map(|it| (it.id, self.holds(it))).collect();
        let told = desk.news.len();
        self.telling(desk, |it| it.entries.retain(|entry| entry.lease > 0));
        if desk.news.len() > told {
            desk.notes |= Notes::HANDED_AFTER_EXPIRY;
        }
        desk.news.extend(ended.iter().map(|(id, _)| Push::Gone { id: *id }));
        desk.expired.extend(ended);
    }

    fn acquire(&mut self, id: Id, wish: Wish, block: u8, floor: u8, desk: &mut Desk) -> Standing {
        if self.marks.iter().any(|mark| mark.id == id) {
            desk.notes |= Notes::LATE_ACQUIRE_REFUSED;
            return Standing::Gone;
        }
        if let Some(entry) = self.get_mut(id) {
            if desk.rules.keep(Rule::RepeatedAcquireRenews) {
                entry.lease = entry.lease.max(wish.ttl);
            }
            return self.standing(id);
        }
        let key_is_free = !self.entries.iter().any(|it| it.names & wish.names != 0 && self.holds(it));
        let reserved = if desk.rules.keep(Rule::BlockReservedAtJoin) { block } else { 1 };
        let drawn = self.draw(reserved, floor);
        let entry = Entry {
            id,
            names: wish.names,
            weight: wish.weight,
            ticket: drawn.first,
            block: Block { first: drawn.first, count: block.max(1) },
            lease: wish.ttl,
            barged: key_is_free && !desk.rules.keep(Rule::LineBeforeKey),
        };
        self.entries.push(entry);
        if self.holds(&entry) {
            self.reserve_at_grant(id, desk.rules);
        }
        self.standing(id)
    }

    fn unless_alone(&mut self, id: Id, wish: Wish, block: u8, floor: u8, desk: &mut Desk) -> Standing {
        let Some(entry) = self.find(id).copied().filter(|entry| self.holds(entry)) else {
            return self.done(id, desk);
        };
        if entry.block.first > floor && desk.rules.keep(Rule::LateTurnEndsNothing) {
            desk.notes |= Notes::LATE_TURN_END_IGNORED;
            self.get_mut(id).expect("it was just found").lease = entry.lease.max(wish.ttl);
            return Standing::Held(entry.block);
        }
        let mut behind = self.entries.iter().filter(|it| it.names & entry.names != 0 && it.ticket > entry.ticket);
        let alone = behind.all(|it| self.holds(it));
        if !alone && desk.rules.keep(Rule::BlockGrowsOnlyAlone) {
            desk.notes |= Notes::LEFT_TO_OTHERS;
            return self.done(id, desk);
        }
        desk.notes |= Notes::WENT_ON_ALONE;
        let fresh = self.draw(block, floor);
        self.entries.retain(|it| it.id != id);
        // Who grows although others wait keeps its place; who is alone moves behind those who hold with it.
        let ticket = if alone { fresh.first } else { entry.ticket };
        self.entries.push(Entry { ticket, block: fresh, lease: entry.lease.max(wish.ttl), ..entry });
        self.entries.sort_by_key(|it| it.ticket);
        Standing::Held(fresh)
    }

    fn done(&mut self, id: Id, desk: &mut Desk) -> Standing {
        if self.find(id).is_some() {
            self.telling(desk, |it| it.entries.retain(|entry| entry.id != id));
        }
        Standing::Gone
    }

    fn mark(&mut self, id: Id, ttl: u8) {
        match self.marks.iter_mut().find(|mark| mark.id == id) {
            Some(mark) => mark.left = mark.left.max(ttl),
            None => {
                self.marks.push(Mark { id, left: ttl });
                self.marks.sort_by_key(|mark| mark.id);
            }
        }
    }

    fn draw(&mut self, count: u8, floor: u8) -> Block {
        let block = Block { first: self.last.max(floor) + 1, count: count.max(1) };
        self.last = block.last();
        block
    }

    /// The draft in which a block is drawn when its claim is granted.
    fn reserve_at_grant(&mut self, id: Id, rules: Rules) {
        if !rules.keep(Rule::BlockReservedAtJoin)
            && let Some(count) = self.find(id).map(|entry| entry.block.count).filter(|count| *count > 1)
        {
            let block = self.draw(count, 0);
            self.get_mut(id).expect("it was just found").block = block;
        }
    }

    /// Runs `change`, then tells those who waited before it and hold after it.
    fn telling(&mut self, desk: &mut Desk, change: impl FnOnce(&mut Self)) {
        let waited: Vec<_> = self.entries.iter().filter(|it| !self.holds(it)).map(|it| it.id).collect();
        change(self);
        let handed = |it: &Self| {
            let next = it.entries.iter().filter(|entry| waited.contains(&entry.id) && it.holds(entry));
            next.map(|entry| entry.id).collect::<Vec<_>>()
        };
        let mut next = handed(self);
        if desk.skips
            && let Some(first) = next.first().copied()
        {
            desk.skips = false;
            desk.notes |= Notes::SKIPPED;
            let entry = *self.find(first).expect("it was just found");
            if !desk.rules.keep(Rule::DecideThenTell) {
                desk.news.push(Push::Held { id: first, ticket: entry.ticket, block: entry.block });
            }
            self.entries.retain(|it| it.id != first);
            desk.news.push(Push::Gone { id: first });
            if desk.rules.keep(Rule::SkippedIsMarked) {
                self.mark(first, entry.lease);
            }
            next = handed(self);
        }
        for id in next {
            self.reserve_at_grant(id, desk.rules);
            let entry = self.find(id).expect("it was just found");
            desk.news.push(Push::Held { id, ticket: entry.ticket, block: entry.block });
        }
    }

    /// Where a claim of the table stands.
    fn standing(&self, id: Id) -> Standing {
        let entry = self.find(id).expect("only asked about claims that are in line");
        if self.holds(entry) {
            return Standing::Held(entry.block);
        }
        let in_line = |bit: u8| self.ahead(entry).filter(move |it| it.names & entry.names & (1 << bit) != 0).count();
        let position = (0..8).map(in_line).max().unwrap_or(0);
        let recheck_in = self.ahead(entry).map(|it| it.lease).max().unwrap_or(0);
        Standing::Waiting { ticket: entry.ticket, position: position as u8, recheck_in }
    }
}
