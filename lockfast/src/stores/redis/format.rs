//! The stored format: the text of a claim, and all numbers that scripts and Rust have to agree on.
//!
//! The text of a claim that wants one name alone is the value of the name's plain key while the claim holds, and the claim's
//! record while it waits:
//!
//! ```text
//! lockfast1 x OWNER CLIENT HOME FLAGS SINCE FIRST COUNT TTL NOTE
//! ```
//!
//! | field | bytes, from 0 | |
//! |---|---|---|
//! | `lockfast1 ` | 0..10 | the version; another number is refused as newer |
//! | `x` | 10 | the kind: `x` a claim |
//! | OWNER | 12..44 | the hash of the claim's id, 32 hexadecimal digits |
//! | CLIENT | 45..61 | 16 hexadecimal digits |
//! | HOME | 62..65 | the tag of the claim's first name: the slot of its record |
//! | FLAGS | 66.. | `-` if there are none, otherwise of `l` lingers, `b` broken, `d` detached, `m` wants several names, `q` waits without a subscription, in this order |
//! | SINCE | 68..81 without flags | when the wait or the hold began, in milliseconds since 1970, approximately by the clock of the server; 13 digits, for display only |
//! | FIRST | | the first ticket |
//! | COUNT | | how many tickets |
//! | TTL | | the requested lease, in milliseconds |
//! | NOTE | | see `note.rs`; may have blanks |
//!
//! A waiter without flags becomes the holder by moving its record to the key and overwriting SINCE. So SINCE always has 13
//! digits, and all fields before it have a fixed length.
//!
//! Other values of a plain key: `lockfast1 s`, the reader marker, and `lockfast1 d VALUE`, a seal. Claims on several names,
//! readers and permits have a packed record (`claims.lua`). A record `gone WHY` is a tombstone. An entry of a queue is
//! `OWNER CLIENT HOME WEIGHT CAPACITY`, and a member of a listing is a name, a zero byte and OWNER.
//!
//! Scripts name these offsets as `@name@`, and [`assemble`] inserts the numbers. A Lua local or function for a number would cost
//! time at every run; a number in the text does not.

use std::ops::Range;

use crate::claim::Demand;

const VERSION_PREFIX: &str = "lockfast1 ";
const CLAIM_PREFIX: &str = "lockfast1 x ";
const READER_MARKER: &str = "lockfast1 s";
const SEAL_PREFIX: &str = "lockfast1 d ";
const TOMBSTONE_PREFIX: &str = "gone ";

/// Where the fields with a fixed offset are in the text of a claim, in bytes.
pub(super) const OWNER: Range<usize> = 12..44;
pub(super) const CLIENT: Range<usize> = 45..61;
pub(super) const HOME: Range<usize> = 62..65;
pub(super) const FLAGS_OFFSET: usize = 66;
const SINCE: Range<usize> = 68..81;

/// The length of the text of a claim without flags, up to SINCE.
pub(super) const BEGINNING_LENGTH: usize = SINCE.start;
/// The number of digits of SINCE.
pub(super) const SINCE_DIGITS: usize = SINCE.end - SINCE.start;

/// The name of a file under `lua/`, and its text.
pub(super) type Part<'t> = (&'t str, &'t str);

/// Joins the parts of a script, and replaces each `@name@`.
pub(super) fn assemble(parts: &[Part], limits: &Limits<'_>) -> String {
    let mut body: String = parts.iter().map(|(_, text)| *text).collect();
    for (name, value) in placeholders(limits) {
        body = body.replace(&format!("@{name}@"), &value);
    }
    body
}

/// How much one run of a script may do: the server runs no other command meanwhile. Each limit is a Lua expression.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits<'t> {
    /// The most dead entries that one run evicts, at a few microseconds each.
    pub(super) max_evicted: &'t str,
    /// The most entries and names that one run returns.
    pub(super) max_shown: &'t str,
}

impl Limits<'static> {
    /// The limits outside unit tests.
    pub(super) const SHIPPED: Self = Self { max_evicted: "20000", max_shown: "200" };
}

/// Every name that scripts may use between at signs, and the text that replaces it.
fn placeholders(limits: &Limits<'_>) -> Vec<(&'static str, String)> {
    // An entry begins with the fields from OWNER to HOME as in the text of a claim.
    let entry_offset = |field: Range<usize>| field.start - OWNER.start..field.end - OWNER.start;
    let identity = OWNER.start..HOME.end;
    let slot = "lockfast:{tag}:".len();
    vec![
        ("version", VERSION_PREFIX.to_owned()),
        ("claim", CLAIM_PREFIX.to_owned()),
        ("readers", READER_MARKER.to_owned()),
        ("seal", SEAL_PREFIX.to_owned()),
        ("tombstone", TOMBSTONE_PREFIX.to_owned()),
        // The kinds of values of a plain key.
        ("kind.claim", "x".to_owned()),
        ("kind.readers", "s".to_owned()),
        ("kind.seal", "d".to_owned()),
        ("value.version", sub_range(0..VERSION_PREFIX.len())),
        ("value.kind", sub_range(VERSION_PREFIX.len()..VERSION_PREFIX.len() + 1)),
        ("value.head", sub_range(0..CLAIM_PREFIX.len())),
        ("value.owner", sub_range(OWNER)),
        ("value.client", sub_range(CLIENT)),
        ("value.home", sub_range(HOME)),
        // From OWNER to HOME: the beginning of an entry too.
        ("value.identity", sub_range(identity.clone())),
        // Up to SINCE, of a claim without flags.
        ("value.beginning", sub_range(0..BEGINNING_LENGTH)),
        ("value.since", sub_range(SINCE)),
        // The value of a seal, to the end.
        ("value.sealed", sub_from(SEAL_PREFIX.len())),
        // The same for GETRANGE and SETRANGE, which count from 0.
        ("value.beginning:range", format!("'0', '{}'", BEGINNING_LENGTH - 1)),
        ("value.since:offset", format!("'{}'", SINCE.start)),
        ("entry.owner", sub_range(entry_offset(OWNER))),
        ("entry.client", sub_range(entry_offset(CLIENT))),
        ("entry.home", sub_range(entry_offset(HOME))),
        ("entry.identity", sub_range(entry_offset(identity.clone()))),
        // Weight and capacity, with the blank before them.
        ("entry.demand", sub_from(entry_offset(identity).end)),
        ("tombstone.head", sub_range(0..TOMBSTONE_PREFIX.len())),
        ("tombstone.why", sub_from(TOMBSTONE_PREFIX.len())),
        // A member of a listing without the zero byte and OWNER.
        ("member.name", format!("1, -{}", OWNER.len() + 2)),
        // `lockfast:{TAG}:`, the beginning of a companion key.
        ("key.slot", sub_range(0..slot)),
        // A weight and a capacity that leave room for no other claim.
        ("all", Demand::ALL.to_string()),
        // A counter of tickets at or below this was lost: tickets begin at the time of day, in microseconds.
        ("min_seed", "1000000".to_owned()),
        // How much longer a queue lives than the leases in it, in milliseconds: when its expiry is set, and at least.
        ("outlives", "10000".to_owned()),
        ("outlives.min", "5000".to_owned()),
        ("max_evicted", limits.max_evicted.to_owned()),
        ("max_shown", limits.max_shown.to_owned()),
        // The most detached claims that one run unlists.
        ("max_unlisted", "200".to_owned()),
    ]
}

/// The two last arguments of `string.sub` for these bytes: it counts from 1 and includes the last.
fn sub_range(field: Range<usize>) -> String {
    format!("{}, {}", field.start + 1, field.end)
}

/// The last argument of `string.sub` for all bytes from this offset to the end.
fn sub_from(offset: usize) -> String {
    format!("{}", offset + 1)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn scripts() -> Vec<(String, String)> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/stores/redis/lua");
        let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        files.map(|path| (path.display().to_string(), fs::read_to_string(path).unwrap())).collect()
    }

    #[test]
    fn fields_are_at_their_offsets_in_the_text() {
        let (owner, client) = ("0f".repeat(16), "00ab".repeat(4));
        let text = format!("{CLAIM_PREFIX}{owner} {client} 06S - 1790000000000 7 1 30000 web-1 812 x");
        assert_eq!(
            (&text[OWNER], &text[CLIENT], &text[HOME], &text[SINCE]),
            (&*owner, &*client, "06S", "1790000000000")
        );
        assert_eq!(&text[FLAGS_OFFSET..BEGINNING_LENGTH], "- ");
    }

    #[test]
    fn every_name_is_known_and_used() {
        for (path, text) in scripts() {
            let left = assemble(&[("", &text)], &Limits::SHIPPED);
            assert!(!left.contains('@'), "{path} uses an unknown name");
        }
        let all: String = scripts().into_iter().map(|(_, text)| text).collect();
        for (name, _) in placeholders(&Limits::SHIPPED) {
            assert!(all.contains(&format!("@{name}@")), "no script uses {name}");
        }
    }

    #[test]
    fn no_script_writes_an_offset_as_a_number() {
        for (path, text) in scripts() {
            for call in text.split("sub(").skip(1) {
                let arguments = call.split(')').next().unwrap().split(", ").skip(1);
                let is_offset = |argument: &str| argument.parse::<i64>().is_ok_and(|offset| offset != 1);
                assert!(!arguments.clone().any(is_offset), "{path}: sub({}", call.lines().next().unwrap());
            }
            assert!(!text.contains(&Demand::ALL.to_string()), "{path} writes the capacity of a lock as a number");
        }
    }
}
