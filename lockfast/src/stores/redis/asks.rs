//! What scripts are asked.

use std::time::Duration;

use crate::claim::{Claim, ClaimHash, ClientId, Demand, Mode};
use crate::name::Name;
use crate::store::{Busy, Counters, Lease, Leaving, Report};

use super::keys::{self, TICKETS};
use super::note;
use super::scripts::{self, Call};

/// As long as Redis is asked to keep anything, in milliseconds: a thousand years. It counts no further than some more of them.
const FOR_EVER: u64 = 1_000 * 365 * 24 * 3600 * 1_000;

/// How a claim without a client that hears pushes is called: it is not taken for dead when nobody listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ears {
    Open,
    None,
}

pub(super) fn acquire(claim: &Claim, busy: Busy, ears: Ears, now: u64) -> Call {
    let mut call = Call::of(&scripts::ACQUIRE, 1 + claim.demands.len());
    call.text(TICKETS);
    names(&mut call, &claim.demands);
    let mut kind = String::with_capacity(4);
    kind.extend((is_alone(&claim.demands) && !claim.detached).then_some('x'));
    kind.extend((busy == Busy::Refuse).then_some('r'));
    kind.extend(claim.detached.then_some('d'));
    kind.extend((ears == Ears::None).then_some('q'));
    let (home, ttl, block) = (keys::tag(&claim.demands[0].name), millis(claim.ttl), claim.block.max(1));
    let face = format!(" {block} {} {home} {now} {ttl} {}", claim.client, note::write(&claim.note));
    owner(call.text(&kind), claim.id.hash()).text(home);
    call.number(ttl).number(block).number(claim.floor.0).text(&face);
    wants(&mut call, &claim.demands);
    call
}

pub(super) fn renew(leases: &[Lease], now: u64) -> Call {
    let mut call = Call::of(&scripts::RENEW, leases.iter().map(|lease| lease.claim.demands.len()).sum());
    for lease in leases {
        names(&mut call, &lease.claim.demands);
    }
    let usual = leases.first().map(|lease| (millis(lease.ttl), lease.claim.client));
    let is_usual =
        |lease: &Lease| is_alone(&lease.claim.demands) && usual == Some((millis(lease.ttl), lease.claim.client));
    let (span, whose) = usual.unwrap_or((0, ClientId(0)));
    let tags = leases.iter().filter(|lease| is_usual(lease)).map(|lease| keys::tag(&lease.claim.demands[0].name));
    client(call.number(now).number(span), whose).text(&tags.collect::<String>());
    for lease in leases {
        let claim = &lease.claim;
        if is_usual(lease) {
            let mut begins = *b"lockfast1 x 00000000000000000000000000000000 - ";
            begins[12..44].copy_from_slice(&hex::<16, 32>(claim.id.hash().0));
            call.bytes(&begins);
        } else {
            let home = keys::tag(&claim.demands[0].name);
            call.text(&format!("{} {} {home} {}", claim.id.hash(), claim.client, millis(lease.ttl)));
            wants(&mut call, &claim.demands);
        }
    }
    call
}

pub(super) fn release(leaving: &[Leaving], now: u64) -> Call {
    let names_of = |one: &Leaving| one.claim().map_or(1, |claim| claim.demands.len());
    let mut call = Call::of(&scripts::RELEASE, 1 + leaving.iter().map(names_of).sum::<usize>());
    call.text(TICKETS);
    for one in leaving {
        match (one.claim(), one) {
            (Some(claim), _) => names(&mut call, &claim.demands),
            (None, Leaving::Break { name, .. }) => {
                call.text(name.as_str());
            }
            (None, _) => {}
        }
    }
    call.number(now);
    for one in leaving {
        leave(&mut call, one);
    }
    call
}

/// How it leaves, whose claim it is, and what else belongs to how.
fn leave(call: &mut Call, leaving: &Leaving) {
    match leaving {
        Leaving::Done(claim) => address(call.text("done"), claim),
        Leaving::Unknown(claim) => {
            address(call.text("unknown"), claim);
            call.number(millis(claim.ttl));
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

pub(super) fn look(names: &[Name], now: u64) -> Call {
    let mut call = Call::of(&scripts::LOOK, names.len());
    for name in names {
        call.text(name.as_str());
    }
    call.number(now);
    for name in names {
        call.text(keys::tag(name));
    }
    call
}

pub(super) fn record(report: &Report) -> Call {
    let mut call = Call::of(&scripts::RECORD, 0);
    let Counters { acquired, released, contended, lost } = report.counters;
    client(&mut call, report.client).number(millis(report.keep).max(1));
    call.number(acquired).number(released).number(contended).number(lost);
    call.number(report.left.len() as u64);
    for left in &report.left {
        owner(&mut call, *left);
    }
    for (entered, demands) in &report.entered {
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
    fn digits_are_those_that_people_see() {
        let (owner, client) = (ClaimHash([0x0f; 16]), ClientId(0x00ab_cdef));
        assert_eq!(hex::<16, 32>(owner.0), *owner.to_string().as_bytes());
        assert_eq!(hex::<8, 16>(client.0.to_be_bytes()), *client.to_string().as_bytes());
    }
}
