//! The invariants of every world: one small function for each statement. I1 to I9 are the invariants of the project; the
//! others say that the simulation itself, and the way the engine is used, is sound.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use lockfast::LostWhy;
use lockfast::store::{Claim, ClaimId, ClientId, Demand, Moment, Name, Ticket};
use lockfast::store::{Leaving, Names, Query, Standing, Why};

use crate::caller::{Caller, Guard};
use crate::clock::Time;
use crate::ledger::index_of;
use crate::process::Process;
use crate::store::Store;

/// An invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the display says it")]
pub enum Invariant {
    Fenced,
    Exclusive,
    Honest,
    NoLeak,
    NoLostWakeUp,
    InOrder,
    OwnerOnly,
    Bounded,
    LossNoticed,
    Sealed,
    Clean,
    Table,
    Awake,
    Interface,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fenced => "I1 fenced",
            Self::Exclusive => "I2 exclusive",
            Self::Honest => "I3 honest",
            Self::NoLeak => "I4 no leak",
            Self::NoLostWakeUp => "I5 no lost wake-up",
            Self::InOrder => "I6 in order",
            Self::OwnerOnly => "I7 owner only",
            Self::Bounded => "I8 bounded",
            Self::LossNoticed => "I9 loss noticed",
            Self::Sealed => "a sealed name is not granted",
            Self::Clean => "I10 clean",
            Self::Table => "the table agrees with its answers",
            Self::Awake => "keepers and futures sleep",
            Self::Interface => "the engine's interface is used as it is meant",
        })
    }
}

/// A broken invariant: the expected and the seen state.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// The expected state.
    pub expected: String,
    /// The seen state.
    pub seen: String,
}

pub(crate) type Check = Result<(), Violation>;

pub(crate) fn violated(invariant: Invariant, expected: impl Into<String>, seen: impl Into<String>) -> Check {
    Err(Violation { invariant, expected: expected.into(), seen: seen.into() })
}

/// How far the clocks may drift apart during a lease, as the engine allows for it.
pub(crate) fn margin(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

/// How long a lease is trusted after it was asked for.
pub(crate) fn trusted_for(ttl: Duration) -> Duration {
    ttl - margin(ttl)
}

/// How long a fault may be felt after it is over: a request without an answer is awaited for 10 s at most, the next one
/// follows within 2 s, and a lease may have to end.
pub(crate) fn felt_for(ttl: Duration) -> Duration {
    Duration::from_secs(13) + ttl
}

/// The world's knowledge of one name.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) name: Name,
    pub(crate) capacity: u32,
    /// The callers that want it, sometime.
    pub(crate) callers: Vec<u32>,
    /// The callers that have a guard on it, and how much each holds.
    pub(crate) inside: Vec<(u32, u32)>,
    /// The highest fence among the guards of each weight.
    pub(crate) highest_by_weight: Vec<(u32, Ticket)>,
    /// The highest fence that a client has held alone, by client.
    pub(crate) fence_by_client: BTreeMap<u32, Ticket>,
    /// Whether the store's clock went back: guards of before may have higher fences than those of later clients.
    pub(crate) is_reset: bool,
    /// The fence of the last write that the resource accepted.
    pub(crate) last_written: Ticket,
    /// Until when it is sealed, by the store's clock.
    pub(crate) sealed_until: Moment,
}

/// A name is not granted while it is sealed.
pub(crate) fn check_not_sealed(names: &[Resource], demands: &[Demand], now: Moment) -> Check {
    for demand in demands {
        let name = &names[index_of(&demand.name)];
        if now < name.sealed_until {
            let expected = format!("no grant of {:?} before {:?}", name.name, name.sealed_until);
            return violated(Invariant::Sealed, expected, format!("one at {now:?}"));
        }
    }
    Ok(())
}

/// The tickets of the store began anew, lower than before. Only clients that have seen higher ones are safe.
pub(crate) fn forget_fences(name: &mut Resource) {
    (name.last_written, name.is_reset) = (Ticket(0), true);
    name.highest_by_weight.clear();
}

/// I1, whatever happens to the store and its clock: each time that a client holds a name alone, its fence is higher than the last
/// time.
pub(crate) fn check_fences_rise_for_client(name: &mut Resource, weight: u32, client: u32, fence: Ticket) -> Check {
    if weight <= name.capacity / 2 {
        return Ok(());
    }
    let last = name.fence_by_client.insert(client, fence).unwrap_or_default();
    if fence <= last {
        let expected = format!("a fence above {last} on {:?} for client {client}", name.name);
        return violated(Invariant::Fenced, expected, format!("{fence}"));
    }
    Ok(())
}

/// I1: the fence of a guard is higher than that of every earlier guard that could not share with it.
pub(crate) fn check_fences_rise(name: &mut Resource, weight: u32, fence: Ticket, is_stale: bool) -> Check {
    if is_stale && name.is_reset {
        return Ok(());
    }
    let cannot_share = |other: &&(u32, Ticket)| other.0.saturating_add(weight) > name.capacity;
    let last = name.highest_by_weight.iter().filter(cannot_share).map(|(_, fence)| *fence).max().unwrap_or_default();
    if fence <= last && !is_stale {
        let expected = format!("a fence above {last} on {:?}", name.name);
        return violated(Invariant::Fenced, expected, format!("{fence}"));
    }
    match name.highest_by_weight.iter_mut().find(|(other, _)| *other == weight) {
        Some((_, highest)) => *highest = fence.max(*highest),
        None => name.highest_by_weight.push((weight, fence)),
    }
    Ok(())
}

/// I1: a write of an exclusive holder whose guard is valid is not refused as stale, unless the store has ended its claim.
pub(crate) fn check_write(name: &mut Resource, fence: Ticket, is_stale: bool) -> Check {
    if is_stale && name.is_reset {
        return Ok(());
    }
    if fence < name.last_written && !is_stale {
        let expected =
            format!("that a valid holder may write to {:?}, last written with {}", name.name, name.last_written);
        return violated(Invariant::Fenced, expected, format!("its fence is {fence}"));
    }
    name.last_written = name.last_written.max(fence);
    Ok(())
}

/// I2: the sum of all valid guards on a name fits its capacity. Only fences protect a resource from a guard whose
/// claim the store has ended.
pub(crate) fn check_exclusive(now: Time, name: &Resource, callers: &[Caller], weight: u32) -> Check {
    let is_valid = |caller: u32| {
        let guard = callers[caller as usize].guard.as_ref();
        guard.is_some_and(|guard| !guard.is_stale && guard.lost.is_none() && guard.until_time > now)
    };
    let valid = name.inside.iter().filter(|(caller, _)| is_valid(*caller));
    let held: u64 = valid.clone().map(|(_, weight)| u64::from(*weight)).sum();
    if held + u64::from(weight) > u64::from(name.capacity) {
        let expected = format!("at most {} of {:?} validly held", name.capacity, name.name);
        let others: Vec<_> = valid.map(|(caller, _)| format!("caller {caller}")).collect();
        return violated(Invariant::Exclusive, expected, format!("{weight} more beside {}", others.join(", ")));
    }
    Ok(())
}

/// I2, in the store: the sum of all claims that hold fits the capacity.
pub(crate) fn check_capacity(used: &[u64], demands: &[Demand]) -> Check {
    for demand in demands {
        let used = used[index_of(&demand.name)];
        if used > u64::from(demand.capacity) {
            let expected = format!("at most {} of {:?} granted", demand.capacity, demand.name);
            return violated(Invariant::Exclusive, expected, format!("{used}"));
        }
    }
    Ok(())
}

/// I3: a guard that is valid has a claim that holds in the store, with its fence, and the store's lease ends later.
pub(crate) fn check_honest(store: &Store, guard: &Guard) -> Check {
    let Some(entry) = store.ledger.get(guard.claim.id.hash()).filter(|entry| entry.holds && !entry.lingers) else {
        let expected = format!("a claim in the store until {:?}", guard.until_time);
        return violated(Invariant::Honest, expected, format!("none behind {guard:?}"));
    };
    let expires = store.skew.time_of(entry.expires);
    if guard.until_time > expires {
        let expected = format!("validity until {expires:?} at most, when the store's lease ends");
        return violated(Invariant::Honest, expected, format!("until {:?}", guard.until_time));
    }
    if !entry.tickets.contains(guard.fence) {
        let expected = format!("a fence out of {:?}", entry.tickets);
        return violated(Invariant::Fenced, expected, format!("{}", guard.fence));
    }
    Ok(())
}

/// I7: a release or a renewal with another id does nothing, though it names the same resource.
pub(crate) fn check_forged_release(store: &mut Store, name: &Name, now: Moment) -> Check {
    let claim = std::sync::Arc::new(Claim {
        id: ClaimId::from_secret([0xfa; 16]),
        client: ClientId(u64::MAX),
        demands: Demand::exclusive(name.clone()).into(),
        ttl: Duration::from_secs(30),
        block: 1,
        floor: Ticket(0),
        detached: false,
        note: Default::default(),
    });
    let before = store.table.len();
    let standing = store.table.release(&Leaving::Done(claim), now);
    let is_nothing = standing == Standing::Gone(Why::Unknown) && store.table.len() == before;
    match is_nothing && store.table.take_pushes().is_empty() {
        true => Ok(()),
        false => violated(Invariant::OwnerOnly, "that a forged release does nothing", format!("{standing:?}")),
    }
}

/// The table agrees with its answers: the same claims, tickets, holders and leases.
pub(crate) fn check_table_agrees(store: &mut Store, name: &Name, now: Moment) -> Check {
    let query = Query { names: Names::One(name.clone()), after: None, limit: 1, entries: usize::MAX };
    let page = store.table.inspect(&query, now);
    let shown = page.resources.into_iter().next().map(|resource| resource.queue).unwrap_or_default();
    let noted = store.ledger.entries().filter(|entry| entry.claim.demands.iter().any(|it| it.name == *name));
    let is_same = shown.len() == noted.count()
        && shown.iter().all(|shown| {
            store.ledger.get(shown.owner).is_some_and(|entry| {
                entry.tickets == shown.tickets
                    && entry.holds == shown.holds
                    && entry.lingers == shown.lingers
                    && entry.broken == shown.broken
                    && entry.expires.since(now) == shown.expires_in
            })
        });
    match is_same {
        true => Ok(()),
        false => {
            let mut noted: Vec<_> = store.ledger.entries().collect();
            noted.sort_by_key(|entry| entry.tickets.first);
            violated(Invariant::Table, format!("{noted:?}"), format!("{shown:?}"))
        }
    }
}

/// I8: at most five requests of a waiter in any second by its own clock.
pub(crate) fn check_request_rate(caller: u32, it: &mut Caller, now: Moment) -> Check {
    match it.request_times.note(now) {
        Some(fifth) if now.since(fifth) < Duration::from_secs(1) => {
            let seen = format!("a sixth of caller {caller} after {:?}", now.since(fifth));
            violated(Invariant::Bounded, "at most five requests a second for a waiter", seen)
        }
        _ => Ok(()),
    }
}

/// How late a loss may be noticed.
const NOTICED_WITHIN: Duration = Duration::from_millis(10);

/// I9: a loss is noticed at the deadline, by the guard's own clock, or when the store has ended the claim; never before, and
/// at most 10 ms later than the deadline or than the process resumed.
pub(crate) fn check_loss(now: Time, it: &Caller, process: &Process, store: &Store, why: LostWhy) -> Check {
    let Some(guard) = &it.guard else { return Ok(()) };
    let local = process.skew.local(now);
    let entry = store.ledger.get(guard.claim.id.hash());
    let is_due = match why {
        LostWhy::Expired | LostWhy::HeldAtMost => local >= guard.until,
        LostWhy::Broken => entry.is_none_or(|entry| entry.broken),
        LostWhy::Evicted => guard.is_stale || entry.is_none_or(|entry| !entry.holds),
        _ => true,
    };
    if !is_due {
        let expected = format!("no loss before {:?}, since the store has {entry:?}", guard.until);
        return violated(Invariant::LossNoticed, expected, format!("lost at {local:?}: {why}"));
    }
    check_loss_in_time(now, guard, process)
}

/// I9: the loss of a guard that outlived its deadline was noticed.
pub(crate) fn check_loss_was_noticed(now: Time, it: &Caller, process: &Process) -> Check {
    match &it.guard {
        Some(guard) if guard.lost.is_none() => check_loss_in_time(now, guard, process),
        _ => Ok(()),
    }
}

fn check_loss_in_time(now: Time, guard: &Guard, process: &Process) -> Check {
    let due = guard.until_time.max(process.resumed_at);
    if now.since(due) > NOTICED_WITHIN {
        let expected = format!("that the loss is noticed within 10 ms of {due:?}");
        return violated(Invariant::LossNoticed, expected, format!("it is {now:?}"));
    }
    Ok(())
}
