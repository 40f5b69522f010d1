//! What must hold whatever happens, watched from outside: from what the table shows and tells, without asking how it
//! came to that. The numbers are those of the header of `table.rs`.

use std::collections::BTreeMap;

use super::*;

/// What was done in one step.
#[derive(Debug)]
pub(super) enum Deed {
    Passed,
    Acquired(Arc<Claim>, Option<Admission>),
    Renewed,
    Left(Leaving),
}

impl Deed {
    fn is_acquire_of(&self, owner: ClaimHash) -> bool {
        matches!(self, Self::Acquired(claim, _) if claim.id.hash() == owner)
    }

    /// Whether the owner itself said that it leaves, in one way or another.
    fn is_departure_of(&self, owner: ClaimHash) -> bool {
        matches!(self, Self::Left(leaving) if leaver(leaving) == Some(owner))
    }

    fn lets_go_of(&self, owner: ClaimHash, seen: &Seen) -> bool {
        let named = |name: &Name| seen.demands.iter().any(|(it, ..)| it == name);
        match self {
            _ if self.is_departure_of(owner) => true,
            Self::Left(Leaving::Break { name, ticket, at_once }) => {
                named(name) && seen.tickets.contains(*ticket) && (*at_once || !seen.holds || seen.lingers)
            }
            Self::Left(Leaving::Seal { claim, .. }) => {
                !seen.holds && claim.demands.iter().any(|demand| named(&demand.name))
            }
            _ => false,
        }
    }
}

fn leaver(leaving: &Leaving) -> Option<ClaimHash> {
    match leaving {
        Leaving::Done(claim) | Leaving::Unknown(claim) | Leaving::Linger(claim, _) => Some(claim.id.hash()),
        Leaving::Seal { claim, .. } | Leaving::UnlessAlone { claim, .. } => Some(claim.id.hash()),
        Leaving::Break { .. } => None,
    }
}

#[derive(Clone, Debug)]
struct Seen {
    tickets: Tickets,
    holds: bool,
    lingers: bool,
    expires: Moment,
    demands: Vec<(Name, u32, u32)>,
}

#[derive(Default)]
pub(super) struct Laws {
    seen: BTreeMap<ClaimHash, Seen>,
    /// The highest ticket anybody was seen with.
    last: Ticket,
    /// Who began to hold what: name, weight, capacity, and the last ticket.
    grants: Vec<(Name, u32, u32, Ticket)>,
    /// Until when an id must stay out.
    out: BTreeMap<ClaimHash, Moment>,
}

impl Laws {
    pub(super) fn check(&mut self, deed: &Deed, page: &Page, news: &[(ClientId, Change)], now: Moment) {
        let seen = look(page, now);
        self.safety_and_progress(page, &seen);
        self.stability(deed, &seen, now);
        self.tickets_only_rise(deed, &seen);
        self.fencing(&seen);
        self.leases_are_not_shortened(deed, &seen);
        self.told_once(deed, &seen, news);
        self.marked_ids_stay_out(deed, &seen, now);
        self.seen = seen;
    }

    /// 1 and 2.
    fn safety_and_progress(&self, page: &Page, seen: &BTreeMap<ClaimHash, Seen>) {
        for resource in &page.resources {
            let held: u32 = resource.holders().map(|entry| entry.weight).sum();
            assert!(held <= resource.capacity, "{held} of {} of {:?} held", resource.capacity, resource.name);
            assert!(
                resource.queue.is_sorted_by(|a, b| a.tickets.last() < b.tickets.first),
                "blocks overlap: {resource:?}"
            );
        }
        let oldest = seen.values().min_by_key(|it| it.tickets.first);
        assert!(oldest.is_none_or(|it| it.holds), "the oldest claim waits: {oldest:?}");
    }

    /// 3: who held, holds; and nobody is out who was not let go.
    fn stability(&self, deed: &Deed, seen: &BTreeMap<ClaimHash, Seen>, now: Moment) {
        for (owner, before) in &self.seen {
            // An id that ran out and came again in one verb is a newcomer.
            let stayed = seen.get(owner).filter(|after| after.expires > now && before.expires > now);
            match stayed {
                Some(after) => assert!(after.holds || !before.holds, "{before:?} held and does not after {deed:?}"),
                None if before.expires <= now => {}
                None => assert!(deed.lets_go_of(*owner, before), "{before:?} was dropped by {deed:?}"),
            }
        }
    }

    /// Every number not seen before is higher than all before it: what was dropped does not come back, blocks never
    /// overlap, and nobody changes numbers but by going on alone.
    fn tickets_only_rise(&mut self, deed: &Deed, seen: &BTreeMap<ClaimHash, Seen>) {
        let mut last = self.last;
        for (owner, after) in seen {
            let before = self.seen.get(owner).map(|before| before.tickets);
            if before != Some(after.tickets) {
                assert!(after.tickets.first > self.last, "{after:?} came back, at {:?} after {deed:?}", self.last);
                let goes_on = matches!(deed, Deed::Left(Leaving::UnlessAlone { .. })) && deed.is_departure_of(*owner);
                assert!(goes_on || deed.is_acquire_of(*owner), "{after:?} got numbers from {deed:?}");
                last = last.max(after.tickets.last());
            }
        }
        self.last = last;
    }

    /// 4: whoever begins to hold, or draws new numbers, is above all that held before it and cannot share with it.
    fn fencing(&mut self, seen: &BTreeMap<ClaimHash, Seen>) {
        for (owner, after) in seen.iter().filter(|(_, after)| after.holds) {
            let before = self.seen.get(owner).filter(|before| before.holds && before.tickets == after.tickets);
            if before.is_some() {
                continue;
            }
            for (name, weight, capacity) in &after.demands {
                for (_, other_weight, other_capacity, last) in self.grants.iter().filter(|(it, ..)| it == name) {
                    let share = weight + other_weight <= *capacity && capacity == other_capacity;
                    assert!(share || *last < after.tickets.first, "{after:?} holds {name:?} after {last:?}");
                }
            }
            let held = after.demands.iter().cloned();
            self.grants.extend(held.map(|(name, weight, capacity)| (name, weight, capacity, after.tickets.last())));
        }
    }

    fn leases_are_not_shortened(&self, deed: &Deed, seen: &BTreeMap<ClaimHash, Seen>) {
        for (owner, after) in seen {
            if let Some(before) = self.seen.get(owner).filter(|before| before.tickets == after.tickets) {
                let lingers = matches!(deed, Deed::Left(Leaving::Linger(..))) && deed.is_departure_of(*owner);
                assert!(after.expires >= before.expires || lingers, "{deed:?} shortened {before:?} to {after:?}");
            }
        }
    }

    /// Who begins to hold without an answer of its own is told so, once, with its ticket; nobody else is.
    fn told_once(&self, deed: &Deed, seen: &BTreeMap<ClaimHash, Seen>, news: &[(ClientId, Change)]) {
        let told =
            |owner: ClaimHash| news.iter().filter(move |(_, it)| matches!(it, Change::Held(to, _) if *to == owner));
        for (owner, after) in seen.iter().filter(|(_, after)| after.holds) {
            let waited = self.seen.get(owner).is_some_and(|before| !before.holds);
            let joined = self.seen.get(owner).is_none_or(|before| before.tickets.last() < after.tickets.first);
            match told(*owner).count() {
                1 => assert!(waited, "{after:?} was told what it knew"),
                0 => assert!(!waited || joined, "nobody told {after:?}"),
                more => panic!("{after:?} was told {more} times"),
            }
        }
        for (_, change) in news {
            let Change::Held(owner, ticket) = change else { continue };
            let holds = seen.get(owner).is_some_and(|it| it.holds && it.tickets.first == *ticket);
            assert!(holds || deed.is_departure_of(*owner), "{change:?} was withdrawn by {deed:?}");
        }
    }

    fn marked_ids_stay_out(&mut self, deed: &Deed, seen: &BTreeMap<ClaimHash, Seen>, now: Moment) {
        self.out.retain(|_, until| *until > now);
        if let Deed::Left(Leaving::Unknown(claim)) = deed {
            self.out.insert(claim.id.hash(), now + claim.tombstone());
        }
        for owner in self.out.keys() {
            assert!(!seen.contains_key(owner), "an id came in that was said to be out");
            if let Deed::Acquired(_, Some(answer)) = deed
                && deed.is_acquire_of(*owner)
            {
                assert!(matches!(answer, Admission::Gone(_)), "{answer:?} for an id that was said to be out");
            }
        }
    }
}

fn look(page: &Page, now: Moment) -> BTreeMap<ClaimHash, Seen> {
    let mut seen: BTreeMap<ClaimHash, Seen> = BTreeMap::new();
    for resource in &page.resources {
        for entry in &resource.queue {
            let it = seen.entry(entry.owner).or_insert_with(|| Seen {
                tickets: entry.tickets,
                holds: entry.holds,
                lingers: entry.lingers,
                expires: now + entry.expires_in,
                demands: Vec::new(),
            });
            it.demands.push((resource.name.clone(), entry.weight, resource.capacity));
        }
    }
    seen
}
