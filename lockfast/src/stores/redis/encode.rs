//! Encodes the keys and arguments of scripts, in the order that the first lines of each script declare.

use std::time::Duration;

use crate::claim::{Claim, ClaimHash, ClientId, Demand, Demands, Mode};
use crate::name::Name;
use crate::store::{Busy, Counters, Lease, Leaving, Report, Resource};

use super::connection::LONGEST_RESPONSE;
use super::format::{BEGINNING, CLIENT, HOME, OWNER, SINCE_DIGITS};
use super::keys;
use super::scripts::{self, Call, digits};
use super::{NAMES_A_SCRIPT, by_names, note};

/// As long as Redis is asked to keep anything, in milliseconds: a thousand years. It counts no further than some more of them.
const FOR_EVER: u64 = 1_000 * 365 * 24 * 3600 * 1_000;

/// An acquire may be as late as its connection lives without an answer, and once more as long in the buffers of a network
/// that stalls.
pub(super) const LEAST_TOMBSTONE: Duration = LONGEST_RESPONSE.saturating_mul(2);

/// More than any queue has.
const MOST_ENTRIES: usize = 1 << 40;

/// How a claim without a client that hears pushes is called: it is not taken for dead when nobody listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ears {
    Open,
    None,
}

pub(super) fn acquire(claim: &Claim, busy: Busy, ears: Ears, now: u64) -> Call {
    let mut kind = String::new();
    kind.extend((busy == Busy::Refuse).then_some('r'));
    kind.extend((ears == Ears::None).then_some('q'));
    let (ttl, block) = (millis(claim.ttl), u64::from(claim.block.max(1)));
    note::with_text(&claim.note, |note| {
        if !is_alone(&claim.demands) {
            let mut call = Call::of(&scripts::ACQUIRE, claim.demands.len());
            names(&mut call, &claim.demands);
            call.text(&kind).number(ttl).number(block).number(claim.floor.0).bytes(&since(now));
            client(owner(&mut call, claim.id.hash()), claim.client).text(keys::tag(&claim.demands[0].name)).text(note);
            wants(&mut call, &claim.demands);
            return call;
        }
        let mut call = Call::of(&scripts::ACQUIRE_ALONE, 3);
        let (name, begins) = (&claim.demands[0].name, Begins::of(claim));
        begins.queue(call.text(name.as_str()), name);
        call.parts(&[b"lockfast:{", begins.home(), b"}:claim:", begins.owner()]);
        call.parts(&[&begins.0, &since(now), b" "]);
        let (mut count, mut span) = ([0; 20], [0; 20]);
        call.parts(&[b" ", digits(block, &mut count), b" ", digits(ttl, &mut span), b" ", note.as_bytes()]);
        call.number(ttl).number(claim.floor.0);
        if block > 1 || !kind.is_empty() {
            call.text(&kind).number(block);
        }
        call
    })
}

/// Most renewals have the same lease and are of claims that want one name alone: these come first. Returns the order of the
/// replies too.
pub(super) fn renew(leases: &[Lease], now: u64) -> (Call, Vec<usize>) {
    let mut call = Call::of(&scripts::RENEW, leases.iter().map(|lease| lease.claim.demands.len()).sum());
    let usual = leases.first().map_or(Duration::ZERO, |lease| lease.ttl);
    let (mut order, others): (Vec<_>, Vec<_>) = (0..leases.len()).partition(|index| is_usual(&leases[*index], usual));
    let most = order.len();
    order.extend(others);
    for index in &order {
        names(&mut call, &leases[*index].claim.demands);
    }
    call.bytes(&since(now)).number(millis(usual)).number(most as u64);
    for (place, index) in order.iter().enumerate() {
        let Lease { claim, ttl } = &leases[*index];
        if place < most {
            call.bytes(&Begins::of(claim).0);
        } else {
            let home = keys::tag(&claim.demands[0].name);
            let detach = if claim.detached { " d" } else { "" };
            call.text(&format!("{} {} {home} {}{detach}", claim.id.hash(), claim.client, millis(*ttl)));
            wants(&mut call, &claim.demands);
        }
    }
    (call, order)
}

fn is_usual(lease: &Lease, usual: Duration) -> bool {
    lease.ttl == usual && is_alone(&lease.claim.demands) && !lease.claim.detached
}

pub(super) fn release(leaving: &[Leaving], now: u64) -> Call {
    if let [Leaving::Done(claim)] = leaving
        && is_alone(&claim.demands)
    {
        let mut call = Call::of(&scripts::RELEASE_ALONE, 2);
        let (name, begins) = (&claim.demands[0].name, Begins::of(claim));
        begins.queue(call.text(name.as_str()), name).bytes(&begins.0).bytes(&since(now));
        return call;
    }
    release_by_rule(leaving, now)
}

/// The same without the fast path, whose reply may stand for a push.
pub(super) fn release_by_rule(leaving: &[Leaving], now: u64) -> Call {
    let names_of = |one: &Leaving| one.claim().map_or(1, |claim| claim.demands.len());
    let mut call = Call::of(&scripts::RELEASE, leaving.iter().map(names_of).sum());
    for one in leaving {
        match (one.claim(), one) {
            (Some(claim), _) => names(&mut call, &claim.demands),
            (None, Leaving::Break { name, .. }) => {
                call.text(name.as_str());
            }
            (None, _) => {}
        }
    }
    call.bytes(&since(now));
    for one in leaving {
        leave(&mut call, one);
    }
    call
}

/// The way it leaves, the claim, and the arguments of the way.
fn leave(call: &mut Call, leaving: &Leaving) {
    match leaving {
        Leaving::Done(claim) => address(call.text("done"), claim),
        Leaving::Unknown(claim) => {
            address(call.text("unknown"), claim);
            call.number(millis(claim.tombstone().max(LEAST_TOMBSTONE)));
        }
        Leaving::Linger(claim, span) => {
            address(call.text("linger"), claim);
            call.number(millis(*span));
        }
        Leaving::Seal { claim, value, keep } => {
            address(call.text("seal"), claim);
            call.bytes(value).number(millis(*keep).max(1));
        }
        Leaving::UnlessAlone { claim, block, floor } => {
            address(call.text("unless_alone"), claim);
            call.number((*block).max(1)).number(floor.0).number(millis(claim.ttl));
        }
        Leaving::Break { name, ticket, at_once } => {
            // Whose claim it is follows from the ticket.
            call.text("break").text("-").text("-").text(keys::tag(name)).text("x");
            call.number(ticket.0).number(u64::from(*at_once));
        }
    }
}

/// At most so many entries of each queue. Of the first queue, `begun` was shown before.
pub(super) fn look(names: &[Name], entries: usize, begun: Option<&Resource>, now: u64) -> Call {
    let mut call = Call::of(&scripts::INSPECT, names.len());
    for name in names {
        call.text(name.as_str());
    }
    let shown = begun.map_or(&[][..], |begun| &begun.queue);
    let last = shown.last().map_or(0, |entry| entry.tickets.first.0);
    call.number(now).number(entries.min(MOST_ENTRIES) as u64).number(shown.len() as u64).number(last);
    for name in names {
        call.text(keys::tag(name));
    }
    call
}

/// In one call, or if there are many claims, some at a time. What is counted comes last: a report that failed is made again,
/// and claims can be listed twice.
pub(super) fn record(report: &Report) -> Vec<Call> {
    let Report { counters, left, entered, .. } = report;
    let names_of = |(_, demands): &(ClaimHash, Demands)| demands.len();
    if left.len() + entered.iter().map(names_of).sum::<usize>() <= NAMES_A_SCRIPT {
        return vec![record_some(report, *counters, left, entered)];
    }
    let nothing = Counters::default();
    let mut calls: Vec<_> = left.chunks(NAMES_A_SCRIPT).map(|some| record_some(report, nothing, some, &[])).collect();
    calls.extend(by_names(entered, names_of).into_iter().map(|some| record_some(report, nothing, &[], some)));
    calls.push(record_some(report, *counters, &[], &[]));
    calls
}

fn record_some(report: &Report, counters: Counters, left: &[ClaimHash], entered: &[(ClaimHash, Demands)]) -> Call {
    let mut call = Call::of(&scripts::RECORD, 0);
    let Counters { acquired, released, contended, lost } = counters;
    client(&mut call, report.client).number(millis(report.keep).max(1));
    call.number(acquired).number(released).number(contended).number(lost);
    call.number(left.len() as u64);
    for left in left {
        owner(&mut call, *left);
    }
    for (entered, demands) in entered {
        owner(&mut call, *entered).number(demands.len() as u64);
        for demand in demands.iter() {
            call.text(demand.name.as_str());
        }
    }
    call
}

/// Owner, client, the tag of the first name, where the record is, and what is wanted.
fn address(call: &mut Call, claim: &Claim) {
    client(owner(call, claim.id.hash()), claim.client).text(keys::tag(&claim.demands[0].name));
    wants(call, &claim.demands);
}

fn owner(call: &mut Call, owner: ClaimHash) -> &mut Call {
    call.bytes(&hex::<16, 32>(owner.0))
}

fn client(call: &mut Call, client: ClientId) -> &mut Call {
    call.bytes(&hex::<8, 16>(client.0.to_be_bytes()))
}

/// The text of a claim that wants one name alone, up to SINCE: `lockfast1 x OWNER CLIENT HOME - `.
struct Begins([u8; BEGINNING]);

impl Begins {
    fn of(claim: &Claim) -> Self {
        let mut text = *b"lockfast1 x OWNER........................... CLIENT.......... TAG - ";
        text[OWNER].copy_from_slice(&hex::<16, 32>(claim.id.hash().0));
        text[CLIENT].copy_from_slice(&hex::<8, 16>(claim.client.0.to_be_bytes()));
        text[HOME].copy_from_slice(keys::tag_letters(&claim.demands[0].name));
        Self(text)
    }

    fn owner(&self) -> &[u8] {
        &self.0[OWNER]
    }

    fn home(&self) -> &[u8] {
        &self.0[HOME]
    }

    /// The key of its name's queue.
    fn queue<'c>(&self, call: &'c mut Call, name: &Name) -> &'c mut Call {
        call.parts(&[b"lockfast:{", self.home(), b"}:line:", name.as_str().as_bytes()])
    }
}

/// A time in milliseconds, always with as many digits: scripts write it over another.
fn since(now: u64) -> [u8; SINCE_DIGITS] {
    let mut since = [b'0'; SINCE_DIGITS];
    let mut room = [0; 20];
    let digits = digits(now % 10u64.pow(SINCE_DIGITS as u32), &mut room);
    since[SINCE_DIGITS - digits.len()..].copy_from_slice(digits);
    since
}

/// As `{:02x}` writes them, in a fraction of the time: this is done for every lock at every renewal.
fn hex<const N: usize, const M: usize>(bytes: [u8; N]) -> [u8; M] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; M];
    for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    digits
}

fn names(call: &mut Call, demands: &[Demand]) {
    for demand in demands {
        call.text(demand.name.as_str());
    }
}

/// One name that is wanted alone goes without saying more.
fn wants(call: &mut Call, demands: &[Demand]) {
    if is_alone(demands) {
        call.text("x");
        return;
    }
    call.number(demands.len() as u64);
    for demand in demands {
        call.text(keys::tag(&demand.name)).number(demand.weight).number(demand.capacity);
    }
}

fn is_alone(demands: &[Demand]) -> bool {
    matches!(demands, [only] if only.mode() == Mode::Exclusive)
}

fn millis(span: Duration) -> u64 {
    // Rounded up: a lease may last a little longer than asked for, never shorter.
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).min(FOR_EVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_digits_are_those_of_display() {
        let (owner, client) = (ClaimHash([0x0f; 16]), ClientId(0x00ab_cdef));
        assert_eq!(hex::<16, 32>(owner.0), *owner.to_string().as_bytes());
        assert_eq!(hex::<8, 16>(client.0.to_be_bytes()), *client.to_string().as_bytes());
    }
}
