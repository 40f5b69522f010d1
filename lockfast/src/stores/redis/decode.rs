//! Decodes the replies of scripts, which the first lines of each script declare.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use crate::claim::{Claim, ClaimHash, Demand, Holder, Mode, Note, Ticket, Tickets};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::store::{Admission, BusyWith, Counters, Entry, Resource, Standing, Why};

use super::format::{FLAGS_OFFSET, OWNER};
use super::{failure, note};

/// The recheck of a waiter that no push will reach, in milliseconds: another program holds the lock, or the client has no
/// subscription. Random, so that such waiters do not all ask at once.
const SOON_MILLIS: std::ops::Range<u64> = 200..300;

/// The error for a reply that no script returns.
pub(super) fn unexpected(reply: &Value) -> Error {
    let shown = format!("{reply:?}").chars().take(200).collect::<String>();
    Error::unavailable("reading the reply of Redis", format!("lockfast's scripts do not return it: {shown}"))
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        other => text(other)?.parse().ok(),
    }
}

pub(super) fn admission(reply: &Value, claim: &Claim) -> Result<Admission> {
    decode_admission(reply, claim).unwrap_or_else(|| Err(unexpected(reply)))
}

fn decode_admission(reply: &Value, claim: &Claim) -> Option<Result<Admission>> {
    if let Some(line) = text(reply) {
        // The ticket of a claim that holds its one name, exclusively.
        if line.starts_with(|character: char| character.is_ascii_digit()) {
            return Some(Ok(Admission::Held(Tickets::new(Ticket(line.parse().ok()?), 1))));
        }
        return Some(Ok(match decode_standing(line)? {
            Standing::Held(tickets) => Admission::Held(tickets),
            Standing::Gone(why) => Admission::Gone(why),
            Standing::Waiting { ticket, recheck_in } => {
                let position = line.rsplit(' ').next()?.parse().ok()?;
                Admission::Queued { ticket, position, recheck_in }
            }
        }));
    }
    let Value::Array(words) = reply else { return None };
    let demand = |index: &Value| claim.demands.get(usize::try_from(number(index)?).ok()?.checked_sub(1)?);
    match (text(words.first()?)?, &words[1..]) {
        ("sealed", [Value::BulkString(value)]) => Some(Ok(Admission::Sealed(Bytes::copy_from_slice(value)))),
        ("weight", [index]) => demand(index)?.check_weight().err().map(Err),
        ("capacity", [index, capacity]) => {
            let demand = demand(index)?;
            Some(Err(demand.capacity_error(u32::try_from(number(capacity)?).ok()?)))
        }
        ("busy", [position]) => {
            let position = usize::try_from(number(position)?).ok()?;
            Some(Ok(Admission::Refused(BusyWith { position, ..BusyWith::default() })))
        }
        ("busy", [position, owner, first, since, note]) => Some(Ok(Admission::Refused(BusyWith {
            position: usize::try_from(number(position)?).ok()?,
            held_for: Some(Duration::from_millis(number(since)?)),
            holder: Some(Holder {
                owner: decode_owner(text(owner)?)?,
                fence: Ticket(number(first)?),
                note: Arc::new(note::decode(text(note)?)),
            }),
        }))),
        // The claim wants one name, exclusively, and waits.
        (first, [Value::Int(recheck_in), Value::Int(position)]) => Some(Ok(Admission::Queued {
            ticket: Ticket(first.parse().ok()?),
            position: usize::try_from(*position).ok()?,
            recheck_in: Duration::from_millis(u64::try_from(*recheck_in).unwrap_or(0)),
        })),
        _ => None,
    }
}

/// As [`standings`], for claims that leave. A reply that is the text of a claim names the next holder.
pub(super) fn departures(reply: &Value, count: usize) -> Result<Vec<Standing>> {
    match text(reply) {
        Some(value) if value.starts_with("lockfast1 ") => {
            let (owner, ticket) = decode_claim(value).ok_or_else(|| unexpected(reply))?;
            Ok(vec![Standing::Gone(Why::PassedOn(owner, ticket.first))])
        }
        _ => standings(reply, count),
    }
}

/// The owner and the tickets in the text of a claim.
pub(super) fn decode_claim(value: &str) -> Option<(ClaimHash, Tickets)> {
    Some((decode_owner(value.get(OWNER)?)?, tickets_in(value.as_bytes())?))
}

/// The tickets in the text of a claim, behind FLAGS and SINCE. Decoded for every lock at every renewal.
fn tickets_in(value: &[u8]) -> Option<Tickets> {
    let mut words = value.get(FLAGS_OFFSET..)?.splitn(5, |byte| *byte == b' ').skip(2);
    let mut next = || {
        let digits = words.next().filter(|digits| !digits.is_empty())?;
        digits.iter().try_fold(0u64, |number, digit| {
            let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
            number.checked_mul(10)?.checked_add(u64::from(digit))
        })
    };
    Some(Tickets::new(Ticket(next()?), u32::try_from(next()?).ok()?))
}

/// The standing of each claim. The reply is an array of standings; one standing; or, if all claims hold one name, exclusively,
/// their texts, one on each line.
pub(super) fn standings(reply: &Value, count: usize) -> Result<Vec<Standing>> {
    if let Value::BulkString(lines) = reply
        && lines.starts_with(b"lockfast1 ")
    {
        let held = lines.split(|byte| *byte == b'\n').map(|value| tickets_in(value).map(Standing::Held));
        let held = held.collect::<Option<Vec<_>>>().filter(|held| held.len() == count);
        return held.ok_or_else(|| unexpected(reply));
    }
    if let (1, Some(standing)) = (count, text(reply).and_then(decode_standing)) {
        return Ok(vec![standing]);
    }
    let Value::Array(replies) = reply else { return Err(unexpected(reply)) };
    if replies.len() != count {
        return Err(unexpected(reply));
    }
    replies.iter().map(|one| standing(one)?.ok_or_else(|| unexpected(one))).collect()
}

fn standing(reply: &Value) -> Result<Option<Standing>> {
    // The text of an exclusive holder.
    if let Value::BulkString(value) = reply
        && value.starts_with(b"lockfast1 ")
    {
        return Ok(tickets_in(value).map(Standing::Held));
    }
    let Some(line) = text(reply) else { return Ok(None) };
    let Some(failure) = line.strip_prefix("failed ") else { return Ok(decode_standing(line)) };
    match failure.contains("WRONGTYPE") || failure.contains("LOCKFAST-NEWER") {
        // The key has another program's value, not this claim. The other claims of the batch still get their standings.
        true => Ok(Some(Standing::Gone(Why::Unknown))),
        false => Err(failure::explain_text("changing locks", failure)),
    }
}

fn decode_standing(line: &str) -> Option<Standing> {
    let mut words = line.split(' ');
    let kind = words.next()?;
    let mut next = || words.next();
    match kind {
        "held" => Some(Standing::Held(Tickets::new(Ticket(next()?.parse().ok()?), next()?.parse().ok()?))),
        "waiting" => {
            let ticket = Ticket(next()?.parse().ok()?);
            let recheck_in = match next()? {
                "soon" => Duration::from_millis(fastrand::u64(SOON_MILLIS)),
                millis => Duration::from_millis(millis.parse().ok()?),
            };
            Some(Standing::Waiting { ticket, recheck_in })
        }
        "gone" => Some(Standing::Gone(match next()? {
            "left" => Why::Left,
            "broken" => Why::Broken,
            "sealed" => Why::Sealed,
            _ => Why::Unknown,
        })),
        _ => None,
    }
}

pub(super) fn decode_owner(digits: &str) -> Option<ClaimHash> {
    let mut hash = [0; 16];
    if digits.len() != 32 {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(ClaimHash(hash))
}

/// The resources of the first of `names`, as many as the script has read, at least one. Unused names are included.
pub(super) fn resources(reply: &Value, names: &[Name]) -> Result<Vec<Resource>> {
    let Value::Array(replies) = reply else { return Err(unexpected(reply)) };
    let mut resources = Vec::with_capacity(replies.len());
    for (one, name) in replies.iter().zip(names) {
        if let Some(failure) = text(one).and_then(|line| line.strip_prefix("failed ")) {
            return Err(failure::explain_text(&format!("inspecting {name:?}"), failure));
        }
        resources.push(resource(one, name).ok_or_else(|| unexpected(one))?);
    }
    if resources.is_empty() { Err(unexpected(reply)) } else { Ok(resources) }
}

/// Joins two pieces of one resource's queue.
pub(super) fn join_pieces(mut first: Resource, mut next: Resource) -> Resource {
    if first.queue.is_empty() {
        return next;
    }
    // Between the two reads a claim may have got a later ticket, or become the holder at the plain key: it is shown once.
    next.queue.retain(|entry| first.queue.iter().all(|shown| shown.owner != entry.owner));
    first.queue.append(&mut next.queue);
    Resource { more: next.more, ..first }
}

fn resource(reply: &Value, name: &Name) -> Option<Resource> {
    let Value::Array(parts) = reply else { return None };
    let [sealed, capacity, Value::Array(entries), more] = &parts[..] else { return None };
    let sealed_for = number(sealed).map(Duration::from_millis);
    let capacity = u32::try_from(number(capacity)?).ok()?;
    let queue = entries.iter().map(|words| entry(words, capacity)).collect::<Option<Vec<_>>>()?;
    let capacity = if capacity == 0 { Demand::ALL } else { capacity };
    let more = usize::try_from(number(more)?).ok()?;
    Some(Resource { name: name.clone(), capacity, queue, more, sealed_for })
}

fn entry(words: &Value, capacity: u32) -> Option<Entry> {
    let Value::Array(words) = words else { return None };
    if let [_, lease] = &words[..] {
        return Some(foreign_entry(number(lease)));
    }
    let [owner, first, count, weight, flags, since, lease, note] = &words[..] else { return None };
    let (weight, flags) = (u32::try_from(number(weight)?).ok()?, text(flags)?);
    Some(Entry {
        owner: decode_owner(text(owner)?)?,
        tickets: Tickets::new(Ticket(number(first)?), u32::try_from(number(count)?).ok()?),
        mode: mode(capacity, weight),
        weight,
        holds: flags.contains('h'),
        since: Duration::from_millis(number(since)?),
        expires_in: Duration::from_millis(number(lease).unwrap_or(0)),
        lingers: flags.contains('l'),
        broken: flags.contains('b'),
        note: Arc::new(note::decode(text(note)?)),
    })
}

fn mode(capacity: u32, weight: u32) -> Mode {
    match (capacity, weight) {
        (Demand::ALL, Demand::ALL) => Mode::Exclusive,
        (Demand::ALL, _) => Mode::Shared,
        _ => Mode::Permits,
    }
}

/// The entry of another program's lock: only its expiry is known.
fn foreign_entry(lease: Option<u64>) -> Entry {
    Entry {
        owner: ClaimHash([0; 16]),
        tickets: Tickets::new(Ticket(0), 1),
        mode: Mode::Exclusive,
        weight: Demand::ALL,
        holds: true,
        since: Duration::ZERO,
        expires_in: lease.map_or(Duration::MAX, Duration::from_millis),
        lingers: false,
        broken: false,
        note: Arc::new(Note { host: "another program".into(), ..Note::default() }),
    }
}

/// The counters of all clients; and the clients that have a listing, each with the time when it expires.
pub(super) fn clients(reply: &Value) -> Result<(Counters, Vec<(String, u64)>)> {
    decode_clients(reply).ok_or_else(|| unexpected(reply))
}

fn decode_clients(reply: &Value) -> Option<(Counters, Vec<(String, u64)>)> {
    let Value::Array(parts) = reply else { return None };
    let [Value::Array(fleet), Value::Array(clients)] = &parts[..] else { return None };
    let [acquired, released, contended, lost] = &fleet[..] else { return None };
    let counters = Counters {
        acquired: number(acquired)?,
        released: number(released)?,
        contended: number(contended)?,
        lost: number(lost)?,
    };
    let client = |pair: &[Value; 2]| Some((text(&pair[0])?.to_owned(), number(&pair[1])?));
    Some((counters, clients.as_chunks().0.iter().map(client).collect::<Option<_>>()?))
}

/// For each client, whether its listing has more names, and the next names in it.
pub(super) fn names_of_clients(reply: &Value, count: usize) -> Result<Vec<(bool, Vec<Name>)>> {
    let listing = |part: &Value| {
        let Value::Array(words) = part else { return None };
        let (goes_on, names) = words.split_first()?;
        Some((text(goes_on)? == "1", names.iter().filter_map(text).map(Name::stored).collect()))
    };
    let Value::Array(parts) = reply else { return Err(unexpected(reply)) };
    let listings = parts.iter().map(listing).collect::<Option<Vec<_>>>();
    listings.filter(|listings| listings.len() == count).ok_or_else(|| unexpected(reply))
}

/// The server's time in milliseconds.
pub(super) fn server_time(reply: &Value) -> Result<u64> {
    number(reply).ok_or_else(|| unexpected(reply))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_and_tickets_are_decoded_from_the_text_of_a_claim() {
        let (owner, client) = ("0f".repeat(16), "00ab".repeat(4));
        let value = |rest: &str| format!("lockfast1 x {owner} {client} 06S {rest}");
        let whole = value("- 1790000000000 1790000000000043 3 30000 web-1 812 billing =a%20b");
        let tickets = Tickets::new(Ticket(1_790_000_000_000_043), 3);
        assert_eq!(decode_claim(&whole), Some((ClaimHash([0x0f; 16]), tickets)));
        assert_eq!(
            tickets_in(value("lb 1790000000000 7 1 30000 web-1 812 x").as_bytes()),
            Some(Tickets::new(Ticket(7), 1))
        );
        for damaged in
            ["", "-", "- 179", "- 1790000000000  1 3", "- 1790000000000 -7 1 3", "- 1 99999999999999999999 1 3"]
        {
            assert_eq!(decode_claim(&value(damaged)), None, "{damaged:?}");
        }
        assert_eq!(decode_claim("lockfast1 s"), None);
    }
}
