//! Encodes the keys and arguments of scripts, in the order that the first lines of each script declare.

use std::time::Duration;

use crate::claim::{Claim, ClaimHash, ClientId, Demand, Demands, Mode};
use crate::name::Name;
use crate::store::{Busy, Counters, Lease, Leaving, Report, Resource};

use super::connection::MAX_RESPONSE_TIMEOUT;
use super::format::{BEGINNING_LENGTH, CLIENT, HOME, OWNER, SINCE_DIGITS};
use super::keys;
use super::scripts::{self, Call, digits};
use super::{MAX_NAMES_PER_RUN, batches, note};

/// The longest expiry that is sent, in milliseconds: a thousand years. Redis refuses expiries that overflow its clock.
const MAX_EXPIRY_MILLIS: u64 = 1_000 * 365 * 24 * 3600 * 1_000;

/// The shortest life of a tombstone. It outlives every late acquire: one may wait to be sent for as long as a connection lives
/// without a reply, and as long again in the buffers of a stalled network.
pub(super) const MIN_TOMBSTONE: Duration = MAX_RESPONSE_TIMEOUT.saturating_mul(2);

/// The most entries that are requested: more than any queue has.
const MAX_ENTRIES: usize = 1 << 40;

/// `is_subscribed`: whether the claim's client has a live push subscription. Without one the claim is flagged, so that scripts do
/// not evict it for its missing subscription.
pub(super) fn acquire(claim: &Claim, busy: Busy, is_subscribed: bool, now: u64) -> Call {
    let mut flags = String::new();
    flags.extend((busy == Busy::Refuse).then_some('r'));
    flags.extend((!is_subscribed).then_some('q'));
    let (ttl, block) = (millis(claim.ttl), u64::from(claim.block.max(1)));
    note::with_text(&claim.note, |note| {
        if !is_single_exclusive(&claim.demands) {
            let mut call = Call::of(&scripts::ACQUIRE, claim.demands.len());
            append_names(&mut call, &claim.demands);
            call.text(&flags).number(ttl).number(block).number(claim.floor.0).bytes(&since_text(now));
            append_client(append_owner(&mut call, claim.id.hash()), claim.client)
                .text(keys::tag(&claim.demands[0].name))
                .text(note);
            append_demands(&mut call, &claim.demands);
            return call;
        }
        let mut call = Call::of(&scripts::ACQUIRE_ALONE, 3);
        let (name, beginning) = (&claim.demands[0].name, TextBeginning::of(claim));
        beginning.append_queue_key(call.text(name.as_str()), name);
        call.parts(&[b"lockfast:{", beginning.home(), b"}:claim:", beginning.owner()]);
        call.parts(&[&beginning.0, &since_text(now), b" "]);
        let (mut count, mut span) = ([0; 20], [0; 20]);
        call.parts(&[b" ", digits(block, &mut count), b" ", digits(ttl, &mut span), b" ", note.as_bytes()]);
        call.number(ttl).number(claim.floor.0);
        if block > 1 || !flags.is_empty() {
            call.text(&flags).number(block);
        }
        call
    })
}

/// The common renewals come first: of claims that want one name, exclusively, with the same lease as the first renewal. Returns the
/// order of the replies too: for each reply, the index of its lease.
pub(super) fn renew(leases: &[Lease], now: u64) -> (Call, Vec<usize>) {
    let mut call = Call::of(&scripts::RENEW, leases.iter().map(|lease| lease.claim.demands.len()).sum());
    let common_ttl = leases.first().map_or(Duration::ZERO, |lease| lease.ttl);
    let (mut order, others): (Vec<_>, Vec<_>) =
        (0..leases.len()).partition(|index| is_common(&leases[*index], common_ttl));
    let common_count = order.len();
    order.extend(others);
    for index in &order {
        append_names(&mut call, &leases[*index].claim.demands);
    }
    call.bytes(&since_text(now)).number(millis(common_ttl)).number(common_count as u64);
    for (position, index) in order.iter().enumerate() {
        let Lease { claim, ttl } = &leases[*index];
        if position < common_count {
            call.bytes(&TextBeginning::of(claim).0);
        } else {
            let home = keys::tag(&claim.demands[0].name);
            let detach = if claim.detached { " d" } else { "" };
            call.text(&format!("{} {} {home} {}{detach}", claim.id.hash(), claim.client, millis(*ttl)));
            append_demands(&mut call, &claim.demands);
        }
    }
    (call, order)
}

fn is_common(lease: &Lease, common_ttl: Duration) -> bool {
    lease.ttl == common_ttl && is_single_exclusive(&lease.claim.demands) && !lease.claim.detached
}

pub(super) fn release(leaving: &[Leaving], now: u64) -> Call {
    if let [Leaving::Done(claim)] = leaving
        && is_single_exclusive(&claim.demands)
    {
        let mut call = Call::of(&scripts::RELEASE_ALONE, 2);
        let (name, beginning) = (&claim.demands[0].name, TextBeginning::of(claim));
        beginning.append_queue_key(call.text(name.as_str()), name).bytes(&beginning.0).bytes(&since_text(now));
        return call;
    }
    release_by_rule(leaving, now)
}

/// As [`release`], without the fast path: every grant is pushed, and none is named in the reply instead.
pub(super) fn release_by_rule(leaving: &[Leaving], now: u64) -> Call {
    let name_count = |leaving: &Leaving| leaving.claim().map_or(1, |claim| claim.demands.len());
    let mut call = Call::of(&scripts::RELEASE, leaving.iter().map(name_count).sum());
    for one in leaving {
        match (one.claim(), one) {
            (Some(claim), _) => append_names(&mut call, &claim.demands),
            (None, Leaving::Break { name, .. }) => {
                call.text(name.as_str());
            }
            (None, _) => {}
        }
    }
    call.bytes(&since_text(now));
    for one in leaving {
        append_leaving(&mut call, one);
    }
    call
}

/// Appends the way a claim leaves, the claim, and the arguments of the way.
fn append_leaving(call: &mut Call, leaving: &Leaving) {
    match leaving {
        Leaving::Done(claim) => append_claim(call.text("done"), claim),
        Leaving::Unknown(claim) => {
            append_claim(call.text("unknown"), claim);
            call.number(millis(claim.tombstone().max(MIN_TOMBSTONE)));
        }
        Leaving::Linger(claim, span) => {
            append_claim(call.text("linger"), claim);
            call.number(millis(*span));
        }
        Leaving::Seal { claim, value, keep } => {
            append_claim(call.text("seal"), claim);
            call.bytes(value).number(millis(*keep).max(1));
        }
        Leaving::UnlessAlone { claim, block, floor } => {
            append_claim(call.text("unless_alone"), claim);
            call.number((*block).max(1)).number(floor.0).number(millis(claim.ttl));
        }
        Leaving::Break { name, ticket, at_once } => {
            // The ticket identifies the claim.
            call.text("break").text("-").text("-").text(keys::tag(name)).text("x");
            call.number(ticket.0).number(u64::from(*at_once));
        }
    }
}

/// At most `max_entries` entries of each queue. `begun` has the entries of the first queue that were read before.
pub(super) fn inspect(names: &[Name], max_entries: usize, begun: Option<&Resource>, now: u64) -> Call {
    let mut call = Call::of(&scripts::INSPECT, names.len());
    for name in names {
        call.text(name.as_str());
    }
    let shown = begun.map_or(&[][..], |begun| &begun.queue);
    let last = shown.last().map_or(0, |entry| entry.tickets.first.0);
    call.number(now).number(max_entries.min(MAX_ENTRIES) as u64).number(shown.len() as u64).number(last);
    for name in names {
        call.text(keys::tag(name));
    }
    call
}

/// One call, or several if there are many claims. The counters come last: a report that failed is repeated, and listing a claim
/// twice is harmless, while counting twice is not.
pub(super) fn record(report: &Report) -> Vec<Call> {
    let Report { counters, left, entered, .. } = report;
    let name_count = |(_, demands): &(ClaimHash, Demands)| demands.len();
    if left.len() + entered.iter().map(name_count).sum::<usize>() <= MAX_NAMES_PER_RUN {
        return vec![record_part(report, *counters, left, entered)];
    }
    let zero = Counters::default();
    let mut calls: Vec<_> = left.chunks(MAX_NAMES_PER_RUN).map(|part| record_part(report, zero, part, &[])).collect();
    calls.extend(batches(entered, name_count).into_iter().map(|part| record_part(report, zero, &[], part)));
    calls.push(record_part(report, *counters, &[], &[]));
    calls
}

fn record_part(report: &Report, counters: Counters, left: &[ClaimHash], entered: &[(ClaimHash, Demands)]) -> Call {
    let mut call = Call::of(&scripts::RECORD, 0);
    let Counters { acquired, released, contended, lost } = counters;
    append_client(&mut call, report.client).number(millis(report.keep).max(1));
    call.number(acquired).number(released).number(contended).number(lost);
    call.number(left.len() as u64);
    for left in left {
        append_owner(&mut call, *left);
    }
    for (entered, demands) in entered {
        append_owner(&mut call, *entered).number(demands.len() as u64);
        for demand in demands.iter() {
            call.text(demand.name.as_str());
        }
    }
    call
}

/// Appends a claim: owner, client, home (the tag of the first name, in whose slot the record is) and demands.
fn append_claim(call: &mut Call, claim: &Claim) {
    append_client(append_owner(call, claim.id.hash()), claim.client).text(keys::tag(&claim.demands[0].name));
    append_demands(call, &claim.demands);
}

fn append_owner(call: &mut Call, owner: ClaimHash) -> &mut Call {
    call.bytes(&hex::<16, 32>(owner.0))
}

fn append_client(call: &mut Call, client: ClientId) -> &mut Call {
    call.bytes(&hex::<8, 16>(client.0.to_be_bytes()))
}

/// The text of a claim that wants one name, exclusively, up to SINCE: `lockfast1 x OWNER CLIENT HOME - `. See
/// [`format`](super::format).
struct TextBeginning([u8; BEGINNING_LENGTH]);

impl TextBeginning {
    fn of(claim: &Claim) -> Self {
        let mut text = *b"lockfast1 x OWNER........................... CLIENT.......... TAG - ";
        text[OWNER].copy_from_slice(&hex::<16, 32>(claim.id.hash().0));
        text[CLIENT].copy_from_slice(&hex::<8, 16>(claim.client.0.to_be_bytes()));
        text[HOME].copy_from_slice(keys::tag_bytes(&claim.demands[0].name));
        Self(text)
    }

    fn owner(&self) -> &[u8] {
        &self.0[OWNER]
    }

    fn home(&self) -> &[u8] {
        &self.0[HOME]
    }

    /// Appends the key of the queue of `name`.
    fn append_queue_key<'c>(&self, call: &'c mut Call, name: &Name) -> &'c mut Call {
        call.parts(&[b"lockfast:{", self.home(), b"}:line:", name.as_str().as_bytes()])
    }
}

/// A time in milliseconds with a fixed number of digits, so that scripts can overwrite one SINCE with another in place.
fn since_text(now: u64) -> [u8; SINCE_DIGITS] {
    let mut since = [b'0'; SINCE_DIGITS];
    let mut buffer = [0; 20];
    let digits = digits(now % 10u64.pow(SINCE_DIGITS as u32), &mut buffer);
    since[SINCE_DIGITS - digits.len()..].copy_from_slice(digits);
    since
}

/// The digits of `{:02x}`, in a fraction of the time: this runs for every lock at every renewal.
fn hex<const N: usize, const M: usize>(bytes: [u8; N]) -> [u8; M] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; M];
    for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    digits
}

fn append_names(call: &mut Call, demands: &[Demand]) {
    for demand in demands {
        call.text(demand.name.as_str());
    }
}

/// Appends demands: `x` for one name, exclusively; see `demands.lua`.
fn append_demands(call: &mut Call, demands: &[Demand]) {
    if is_single_exclusive(demands) {
        call.text("x");
        return;
    }
    call.number(demands.len() as u64);
    for demand in demands {
        call.text(keys::tag(&demand.name)).number(demand.weight).number(demand.capacity);
    }
}

/// Whether a claim wants one name, exclusively: the common case, which has a fast path.
fn is_single_exclusive(demands: &[Demand]) -> bool {
    matches!(demands, [only] if only.mode() == Mode::Exclusive)
}

fn millis(span: Duration) -> u64 {
    // Rounded up: a lease may be a little longer than requested, never shorter.
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).min(MAX_EXPIRY_MILLIS)
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
