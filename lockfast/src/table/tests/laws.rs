//! Invariants of every history, checked from outside: only listings and pushes of the table are used. The numbers are those of
//! the header of `table.rs`.

use std::collections::BTreeMap;

use super::*;

/// The verb that ran in one step, if any.
#[derive(Debug)]
pub(super) enum Action {
    None,
    Acquired(Arc<Claim>, Option<Admission>),
    Renewed,
    Left(Leaving),
}

impl Action {
    fn is_acquire_of(&self, owner: ClaimHash) -> bool {
        matches!(self, Self::Acquired(claim, _) if claim.id.hash() == owner)
    }

    /// Whether this is a release of the owner's own claim, in any form.
    fn is_release_of(&self, owner: ClaimHash) -> bool {
        matches!(self, Self::Left(leaving) if leaving_owner(leaving) == Some(owner))
    }

    /// Whether this action may remove the owner's claim.
    fn ends(&self, owner: ClaimHash, seen: &ClaimView) -> bool {
        let named = |name: &Name| seen.demands.iter().any(|(it, ..)| it == name);
        match self {
            _ if self.is_release_of(owner) => true,
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

fn leaving_owner(leaving: &Leaving) -> Option<ClaimHash> {
    match leaving {
        Leaving::Done(claim) | Leaving::Unknown(claim) | Leaving::Linger(claim, _) => Some(claim.id.hash()),
        Leaving::Seal { claim, .. } | Leaving::UnlessAlone { claim, .. } => Some(claim.id.hash()),
        Leaving::Break { .. } => None,
    }
}

/// A claim as a listing shows it.
#[derive(Clone, Debug)]
struct ClaimView {
    tickets: Tickets,
    holds: bool,
    lingers: bool,
    expires_at: Moment,
    /// Name, weight and capacity.
    demands: Vec<(Name, u32, u32)>,
}

#[derive(Default)]
pub(super) struct Laws {
    seen: BTreeMap<ClaimHash, ClaimView>,
    /// The highest ticket seen so far.
    last_ticket: Ticket,
    /// All grants so far: name, weight, capacity, and the last ticket of the holder.
    grants: Vec<(Name, u32, u32, Ticket)>,
    /// Ids with a tombstone, and its end.
    tombstones: BTreeMap<ClaimHash, Moment>,
}

impl Laws {
    pub(super) fn check(&mut self, action: &Action, page: &Page, pushes: &[(ClientId, Change)], now: Moment) {
        let seen = claims_of(page, now);
        self.safety_and_progress(page, &seen);
        self.stability(action, &seen, now);
        self.tickets_only_rise(action, &seen);
        self.fencing(&seen);
        self.leases_are_not_shortened(action, &seen);
        self.each_grant_is_pushed_once(action, &seen, pushes);
        self.tombstoned_ids_stay_out(action, &seen, now);
        self.seen = seen;
    }

    /// 1: no more than the capacity is held. 2: the oldest claim holds.
    fn safety_and_progress(&self, page: &Page, seen: &BTreeMap<ClaimHash, ClaimView>) {
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

    /// 3: a holder still holds, and a claim disappears only by its lease or by this action.
    fn stability(&self, action: &Action, seen: &BTreeMap<ClaimHash, ClaimView>, now: Moment) {
        for (owner, before) in &self.seen {
            // An id that expired and joined again in one verb counts as a new claim.
            let stayed = seen.get(owner).filter(|after| after.expires_at > now && before.expires_at > now);
            match stayed {
                Some(after) => assert!(after.holds || !before.holds, "{before:?} held and does not after {action:?}"),
                None if before.expires_at <= now => {}
                None => assert!(action.ends(*owner, before), "{before:?} was dropped by {action:?}"),
            }
        }
    }

    /// Every new ticket is higher than all earlier ones: a removed claim does not come back, blocks never overlap, and only
    /// `UnlessAlone` changes the tickets of a claim.
    fn tickets_only_rise(&mut self, action: &Action, seen: &BTreeMap<ClaimHash, ClaimView>) {
        let mut last = self.last_ticket;
        for (owner, after) in seen {
            let before = self.seen.get(owner).map(|before| before.tickets);
            if before != Some(after.tickets) {
                assert!(
                    after.tickets.first > self.last_ticket,
                    "{after:?} came back, at {:?} after {action:?}",
                    self.last_ticket
                );
                let goes_on =
                    matches!(action, Action::Left(Leaving::UnlessAlone { .. })) && action.is_release_of(*owner);
                assert!(goes_on || action.is_acquire_of(*owner), "{after:?} got numbers from {action:?}");
                last = last.max(after.tickets.last());
            }
        }
        self.last_ticket = last;
    }

    /// 4: a claim that begins to hold, or draws new tickets, is above all earlier holders that it cannot share with.
    fn fencing(&mut self, seen: &BTreeMap<ClaimHash, ClaimView>) {
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

    fn leases_are_not_shortened(&self, action: &Action, seen: &BTreeMap<ClaimHash, ClaimView>) {
        for (owner, after) in seen {
            if let Some(before) = self.seen.get(owner).filter(|before| before.tickets == after.tickets) {
                let lingers = matches!(action, Action::Left(Leaving::Linger(..))) && action.is_release_of(*owner);
                assert!(
                    after.expires_at >= before.expires_at || lingers,
                    "{action:?} shortened {before:?} to {after:?}"
                );
            }
        }
    }

    /// A claim that begins to hold without a call of its own gets one push with its ticket; no other claim gets one.
    fn each_grant_is_pushed_once(
        &self,
        action: &Action,
        seen: &BTreeMap<ClaimHash, ClaimView>,
        pushes: &[(ClientId, Change)],
    ) {
        let pushed =
            |owner: ClaimHash| pushes.iter().filter(move |(_, it)| matches!(it, Change::Held(to, _) if *to == owner));
        for (owner, after) in seen.iter().filter(|(_, after)| after.holds) {
            let waited = self.seen.get(owner).is_some_and(|before| !before.holds);
            let joined = self.seen.get(owner).is_none_or(|before| before.tickets.last() < after.tickets.first);
            match pushed(*owner).count() {
                1 => assert!(waited, "{after:?} was pushed a grant it knew from its answer"),
                0 => assert!(!waited || joined, "no push for {after:?}"),
                more => panic!("{after:?} was pushed {more} times"),
            }
        }
        for (_, change) in pushes {
            let Change::Held(owner, ticket) = change else { continue };
            let holds = seen.get(owner).is_some_and(|it| it.holds && it.tickets.first == *ticket);
            assert!(holds || action.is_release_of(*owner), "{change:?} was withdrawn by {action:?}");
        }
    }

    fn tombstoned_ids_stay_out(&mut self, action: &Action, seen: &BTreeMap<ClaimHash, ClaimView>, now: Moment) {
        self.tombstones.retain(|_, until| *until > now);
        if let Action::Left(Leaving::Unknown(claim)) = action {
            self.tombstones.insert(claim.id.hash(), now + claim.tombstone());
        }
        for owner in self.tombstones.keys() {
            assert!(!seen.contains_key(owner), "an id with a tombstone is in a queue");
            if let Action::Acquired(_, Some(answer)) = action
                && action.is_acquire_of(*owner)
            {
                assert!(matches!(answer, Admission::Gone(_)), "{answer:?} for an id with a tombstone");
            }
        }
    }
}

fn claims_of(page: &Page, now: Moment) -> BTreeMap<ClaimHash, ClaimView> {
    let mut seen: BTreeMap<ClaimHash, ClaimView> = BTreeMap::new();
    for resource in &page.resources {
        for entry in &resource.queue {
            let it = seen.entry(entry.owner).or_insert_with(|| ClaimView {
                tickets: entry.tickets,
                holds: entry.holds,
                lingers: entry.lingers,
                expires_at: now + entry.expires_in,
                demands: Vec::new(),
            });
            it.demands.push((resource.name.clone(), entry.weight, resource.capacity));
        }
    }
    seen
}
