//! A claim as text, for locks that outlive a process: one command acquires, another renews and releases.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::name::Name;

use super::{ClaimHash, ClaimId, Demand, Demands, Ticket};

/// What every token in this format begins with.
const FORMAT: &str = "lockfast1.";

/// The right to renew and release a lock that no process renews: see [`Guard::into_token`](crate::Guard::into_token).
///
/// Its text form **is** that right, and contains the secret of the claim: write it where only its owner can read it. `Debug`
/// shows the hash instead.
///
/// ```
/// # use lockfast::{Locks, Token};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// let token = locks.mutex("deploy").detached().lock().await?.into_token().await?;
/// let text = token.to_string();              // for a file with mode 0600
/// let again: Token = text.parse()?;          // somewhere else, later
/// assert_eq!(again.owner(), token.owner());
/// assert!(!format!("{again:?}").contains(&text));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Token {
    pub(crate) id: ClaimId,
    pub(crate) demands: Demands,
    pub(crate) ttl: Duration,
    pub(crate) fence: Ticket,
    /// An acquire of this claim got no answer and may still run: its release has to leave a tombstone.
    pub(crate) unsure: bool,
}

impl Token {
    /// The fencing token of what is held: see [`Guard::fence`](crate::Guard::fence).
    pub fn fence(&self) -> u64 {
        self.fence.0
    }

    /// The holder's name in listings and events: the hash of the claim's id.
    pub fn owner(&self) -> ClaimHash {
        self.id.hash()
    }

    /// The requested lease; also what [`Locks::renew_token`](crate::Locks::renew_token) is usually given.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The names that are held, and how much of each. The names include the prefix of the acquiring client.
    pub fn demands(&self) -> &Demands {
        &self.demands
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.id.expose_secret().to_vec();
        bytes.push(u8::from(self.unsure));
        bytes.extend(self.fence.0.to_be_bytes());
        bytes.extend((self.ttl.as_millis() as u64).to_be_bytes());
        bytes.extend((self.demands.len() as u16).to_be_bytes());
        for demand in self.demands.iter() {
            bytes.extend(demand.capacity.to_be_bytes());
            bytes.extend(demand.weight.to_be_bytes());
            bytes.extend((demand.name.as_str().len() as u16).to_be_bytes());
            bytes.extend(demand.name.as_str().as_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut unread = UnreadBytes(bytes);
        let id = ClaimId::from_secret(unread.take()?);
        let unsure = unread.take::<1>()? != [0];
        let fence = Ticket(u64::from_be_bytes(unread.take()?));
        let ttl = Duration::from_millis(u64::from_be_bytes(unread.take()?));
        let mut demands = Vec::new();
        for _ in 0..u16::from_be_bytes(unread.take()?) {
            let (capacity, weight) = (u32::from_be_bytes(unread.take()?), u32::from_be_bytes(unread.take()?));
            let length = usize::from(u16::from_be_bytes(unread.take()?));
            let (name, after) = unread.0.split_at_checked(length)?;
            unread.0 = after;
            // With its prefix, a name may be longer than a user may write. It is split so that the second part is short enough; where
            // the prefix really ended makes no difference.
            let name = std::str::from_utf8(name).ok().filter(|name| !name.is_empty())?;
            let min_split = name.len().saturating_sub(Name::LONGEST);
            let split = (min_split..).find(|at| name.is_char_boundary(*at))?;
            let name = Name::prefixed(&name[..split], &name[split..]).ok()?;
            if weight == 0 || weight > capacity {
                return None;
            }
            demands.push(Demand { name, capacity, weight });
        }
        if !unread.0.is_empty() {
            return None;
        }
        Some(Self { id, demands: Demands::of(demands).ok()?, ttl, fence, unsure })
    }
}

/// The bytes of a token that are not parsed yet.
struct UnreadBytes<'a>(&'a [u8]);

impl UnreadBytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, after) = self.0.split_first_chunk()?;
        self.0 = after;
        Some(*first)
    }
}

impl fmt::Display for Token {
    /// The whole right to the lock, in characters that need no quoting in a shell, a URL or JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FORMAT)?;
        self.to_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { demands, fence, .. } = self;
        f.debug_struct("Token").field("owner", &self.owner()).field("fence", fence).field("demands", demands).finish()
    }
}

impl FromStr for Token {
    type Err = Error;

    /// Reads what [`Display`](fmt::Display) wrote. The error never repeats the text.
    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        let Some(digits) = text.strip_prefix(FORMAT) else {
            return Err(Error::invalid(match text.starts_with("lockfast") {
                true => "this token is of another version of lockfast; use that version to release it",
                false => "this is not a token; pass what `acquire` gave, unchanged",
            }));
        };
        let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(parse_hex_byte).collect();
        bytes
            .as_deref()
            .and_then(Self::from_bytes)
            .ok_or_else(|| Error::invalid("this token is damaged or not whole; pass what `acquire` gave, unchanged"))
    }
}

fn parse_hex_byte(digits: &[u8]) -> Option<u8> {
    let [high, low] = digits else { return None };
    let digit = |ascii: &u8| char::from(*ascii).to_digit(16);
    Some((digit(high)? * 16 + digit(low)?) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(names: &[&str]) -> Token {
        let demand = |name: &&str| Demand::exclusive(Name::prefixed("lock:", name).unwrap());
        Token {
            id: ClaimId::random().unwrap(),
            demands: Demands::of(names.iter().map(demand).collect()).unwrap(),
            ttl: Duration::from_millis(1500),
            fence: Ticket(1 << 60),
            unsure: true,
        }
    }

    #[test]
    fn a_token_reads_back_as_it_was_written() {
        let long = "ключ".repeat(64);
        for names in [&["a"][..], &["a", "b"], &[&long], &["\0\r\n", "a}b {c}"]] {
            let token = token(names);
            let text = token.to_string();
            assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.'), "{text}");
            let again: Token = format!("{text}\n").parse().unwrap();
            assert_eq!((again.to_bytes(), again.demands()), (token.to_bytes(), token.demands()));
        }
    }

    #[test]
    fn a_damaged_token_is_refused_without_being_repeated() {
        let text = token(&["a", "b"]).to_string();
        let damaged = [
            String::new(),
            "lockfast9.00".to_owned(),
            text[1..].to_owned(),
            text.replace('.', ".+"),
            format!("{text}0"),
            format!("{text}00"),
            text[..FORMAT.len()].to_owned(),
        ];
        for damaged in damaged.into_iter().chain((1..text.len()).map(|end| text[..end].to_owned())) {
            let error = damaged.parse::<Token>().unwrap_err();
            let message = format!("{error} {error:?}");
            assert!(damaged.len() < 30 || !message.contains(&damaged[12..28]), "{message}");
        }
    }

    #[test]
    fn the_secret_is_not_in_debug() {
        let token = token(&["a"]);
        let secret: String = token.id.expose_secret().iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(token.to_string().contains(&secret));
        assert!(!format!("{token:?} {token:#?}").contains(&secret));
    }
}
