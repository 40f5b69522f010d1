//! The keys of a name, and the hash slot of a cluster that they are in.
//!
//! A name's plain key is the name itself. Its companion keys must be in the same slot. For names like `a}b` no hash tag made of
//! the name achieves that, so each slot has a short tag of its own. The tags are part of the stored format: they never change.

use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::name::Name;

/// The number of hash slots of a Redis Cluster.
const SLOTS: usize = 16_384;
/// The characters of tags.
const CHARACTERS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// The prefix of all keys but the plain keys of names.
const RESERVED_PREFIX: &str = "lockfast:";

/// The key of the ticket counter.
pub(super) const TICKET_COUNTER_KEY: &str = "lockfast:tickets";
/// The key of the identity of the server that the ticket counter was last seeded on.
pub(super) const IDENTITY_KEY: &str = "lockfast:identity";
/// A key that exists while a client watches queues.
pub(super) const WATCHED_KEY: &str = "lockfast:watched";
/// The channel on which scripts publish the names whose queues have changed.
pub(super) const QUEUE_CHANGES_CHANNEL: &str = "lockfast:lines";
/// The prefix of the channel of one client's pushes; the client's id follows.
pub(super) const PUSH_CHANNEL_PREFIX: &str = "lockfast:push:";

/// Refuses a name that would be a reserved key.
pub(super) fn check_unreserved(name: &Name) -> Result<()> {
    match name.as_str().starts_with(RESERVED_PREFIX) {
        true => Err(Error::invalid(format!(
            "{name:?} is reserved: lockfast uses all keys under {RESERVED_PREFIX:?}; use another name or prefix"
        ))),
        false => Ok(()),
    }
}

/// The tag of the slot of `name`.
pub(super) fn tag(name: &Name) -> &'static str {
    std::str::from_utf8(tag_bytes(name)).expect("tags are made of characters and digits")
}

/// As [`tag`], as bytes: without the cost of checking that they are UTF-8.
pub(super) fn tag_bytes(name: &Name) -> &'static [u8; 3] {
    static TAGS: OnceLock<Vec<[u8; 3]>> = OnceLock::new();
    &TAGS.get_or_init(tags)[slot(name.as_str().as_bytes())]
}

/// The slot of a key: the hash of the text in its first braces, or of the whole key if there is no such text.
fn slot(key: &[u8]) -> usize {
    let hash_tag = || {
        let open = key.iter().position(|byte| *byte == b'{')? + 1;
        let length = key[open..].iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &key[open..open + length])
    };
    usize::from(crc16(hash_tag().unwrap_or(key))) % SLOTS
}

/// For each slot, the first three characters, in order, that hash to it.
fn tags() -> Vec<[u8; 3]> {
    let mut tags = vec![[0; 3]; SLOTS];
    for first in CHARACTERS {
        for second in CHARACTERS {
            for third in CHARACTERS {
                let tag = [*first, *second, *third];
                let slot_tag = &mut tags[usize::from(crc16(&tag)) % SLOTS];
                if *slot_tag == [0; 3] {
                    *slot_tag = tag;
                }
            }
        }
    }
    tags
}

/// CRC-16/XMODEM, as Redis Cluster hashes keys.
fn crc16(bytes: &[u8]) -> u16 {
    const TABLE: [u16; 256] = table();
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

/// The checksum of each byte; 0x1021 is the polynomial.
const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_of_redis_cluster() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
    }

    #[test]
    fn companion_keys_are_in_the_slot_of_their_name() {
        for text in ["a", "a}b", "{}x", "{", "}{", "{a}b", "x{{a}}", "\0\r\n", "ключ", "🔒", &"n".repeat(512)] {
            let name = Name::prefixed("lock:", text).unwrap();
            let companion = format!("lockfast:{{{}}}:line:{name}", tag(&name));
            assert_eq!(slot(companion.as_bytes()), slot(name.as_str().as_bytes()), "{name:?}");
        }
    }

    #[test]
    fn every_slot_has_a_tag_and_tags_never_change() {
        assert!(tags().iter().enumerate().all(|(slot, tag)| usize::from(crc16(tag)) % SLOTS == slot));
        let some = [0, 1, 5_000, 16_383].map(|slot| String::from_utf8(tags()[slot].to_vec()).unwrap());
        assert_eq!(some, ["06S", "2Gx", "4tw", "6ZJ"]);
    }

    #[test]
    fn names_that_would_be_reserved_keys_are_refused() {
        assert!(check_unreserved(&Name::new("lockfast:tickets").unwrap()).is_err());
        assert!(check_unreserved(&Name::new("lock:lockfast:tickets").unwrap()).is_ok());
    }
}
