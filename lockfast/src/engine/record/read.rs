//! From a line of a recording to the input of the engine.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::claim::{ClaimHash, ClaimId, ClientId, Demands, Ticket};
use crate::clock::Moment;
use crate::engine::{Input, Key, ReleaseId, Span};
use crate::error::{Error, LostWhy};
use crate::name::Name;

use super::{FORMAT, Header};

/// The text of errors, which is not recorded.
const AS_RECORDED: &str = "as recorded";
/// No value that is sealed is longer: of a longer one only so much is made up.
const LONGEST_VALUE: usize = 1 << 30;

/// Why a line cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable(String);

/// Can be read from a recording.
pub(super) trait Read: Sized {
    fn read(value: &Value) -> Result<Self, Unreadable>;
}

/// One line of a recording.
#[derive(Clone, Debug)]
pub enum Line {
    /// A client begins.
    Header(Header),
    /// Its engine handled an input.
    Step {
        /// The client.
        client: ClientId,
        /// Counted from 1.
        step: u64,
        /// When.
        now: Moment,
        /// Up to which rank events were made.
        event_rank: u8,
        /// The input.
        input: Box<Input>,
        /// The digest of its results.
        led: String,
    },
}

impl Line {
    /// Reads a line; the error says why it cannot be read.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        Self::of(&value).map_err(|Unreadable(wrong)| wrong)
    }

    fn of(value: &Value) -> Result<Self, Unreadable> {
        let parts = Parts::of(value, "line")?;
        if value.get("step").is_some() {
            let (client, step, now) = (parts.get("client")?, parts.get("step")?, parts.get("now")?);
            let (event_rank, input, led) = (parts.get("heard")?, Box::new(parts.get("input")?), parts.get("led")?);
            return Ok(Self::Step { client, step, now, event_rank, input, led });
        }
        let format: u32 = parts.get("format")?;
        if format != FORMAT {
            return Err(Unreadable(format!("it has format {format}, and this replay reads format {FORMAT}")));
        }
        let (lockfast, client) = (parts.get("lockfast")?, parts.get("client")?);
        Ok(Self::Header(Header { lockfast, client, seed: parts.get("seed")?, start: parts.get("start")? }))
    }
}

/// The named parts of an object.
pub(super) struct Parts<'a> {
    of: &'static str,
    variant: &'a str,
    /// A variant without parts has none.
    map: Option<&'a Map<String, Value>>,
}

impl<'a> Parts<'a> {
    pub(super) fn of(value: &'a Value, of: &'static str) -> Result<Self, Unreadable> {
        let map = value.as_object().ok_or_else(|| expected(of, value))?;
        Ok(Self { of, variant: "", map: Some(map) })
    }

    /// `"Name"`, or `{"Name":{..}}`.
    pub(super) fn of_variant(value: &'a Value, of: &'static str) -> Result<Self, Unreadable> {
        if let Value::String(variant) = value {
            return Ok(Self { of, variant, map: None });
        }
        let mut parts = value.as_object().into_iter().flatten();
        match (parts.next(), parts.next()) {
            (Some((variant, Value::Object(map))), None) => Ok(Self { of, variant, map: Some(map) }),
            _ => Err(expected(of, value)),
        }
    }

    pub(super) fn variant(&self) -> &str {
        self.variant
    }

    pub(super) fn unknown(&self) -> Unreadable {
        Unreadable(format!("there is no {}::{}", self.of, self.variant))
    }

    pub(super) fn get<T: Read>(&self, name: &str) -> Result<T, Unreadable> {
        let Self { of, variant, map } = self;
        let path = || if variant.is_empty() { (*of).to_owned() } else { format!("{of}::{variant}") };
        let value = map.and_then(|map| map.get(name)).ok_or_else(|| Unreadable(format!("{} lacks {name}", path())))?;
        T::read(value).map_err(|Unreadable(wrong)| Unreadable(format!("{}.{name}: {wrong}", path())))
    }
}

fn expected(what: &str, value: &Value) -> Unreadable {
    Unreadable(format!("{value} is no {what}"))
}

fn text<'a>(what: &str, value: &'a Value) -> Result<&'a str, Unreadable> {
    value.as_str().ok_or_else(|| expected(what, value))
}

macro_rules! numbers {
    ($($type:ty),*) => {
        $(impl Read for $type {
            fn read(value: &Value) -> Result<Self, Unreadable> {
                let number = value.as_u64().and_then(|number| Self::try_from(number).ok());
                number.ok_or_else(|| expected(stringify!($type), value))
            }
        })*
    };
}

numbers!(u8, u32, u64, usize);

/// Types that are made of another one.
macro_rules! made_of {
    ($($type:ty: $part:ident => $made:expr),* $(,)?) => {
        $(impl Read for $type {
            fn read(value: &Value) -> Result<Self, Unreadable> {
                let $part = Read::read(value)?;
                Ok($made)
            }
        })*
    };
}

made_of! {
    Ticket: number => Self(number),
    ReleaseId: number => Self(number),
    Moment: nanos => Self::from_nanos(nanos),
    Duration: nanos => Self::from_nanos(nanos),
    Span: span => Self::of(span),
    ClaimId: hash => Self::from_hash(hash),
    Bytes: length => Self::from(vec![0; LONGEST_VALUE.min(length)]),
}

impl Read for bool {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        value.as_bool().ok_or_else(|| expected("bool", value))
    }
}

impl Read for String {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        Ok(text("text", value)?.to_owned())
    }
}

impl Read for Name {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        Ok(Self::stored(text("name", value)?))
    }
}

impl Read for Key {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        text("key", value)?.parse().map_err(|()| expected("key", value))
    }
}

impl Read for ClientId {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        u64::from_str_radix(text("client", value)?, 16).map(Self).map_err(|_| expected("client", value))
    }
}

impl Read for ClaimHash {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        let hash = u128::from_str_radix(text("hash", value)?, 16).map_err(|_| expected("hash", value))?;
        Ok(Self(hash.to_be_bytes()))
    }
}

impl Read for Demands {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        Self::of(Read::read(value)?).map_err(|error| Unreadable(error.to_string()))
    }
}

impl Read for Error {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        let said = || AS_RECORDED.to_owned();
        Ok(match text("error", value)? {
            "Busy" => Self::Busy {
                name: said(),
                holder: None,
                held_for: None,
                position: None,
                waited: Duration::ZERO,
                attempts: 0,
            },
            "Lost" => Self::Lost { name: said(), why: LostWhy::Expired },
            "Unavailable" => Self::unavailable(AS_RECORDED, AS_RECORDED),
            "Invalid" => Self::invalid(AS_RECORDED),
            "Unsupported" => Self::unsupported(AS_RECORDED),
            "Closed" => Self::Closed(AS_RECORDED),
            _ => return Err(expected("error", value)),
        })
    }
}

impl<T: Read> Read for Arc<T> {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        T::read(value).map(Self::new)
    }
}

impl<T: Read> Read for Option<T> {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        if value.is_null() { Ok(None) } else { T::read(value).map(Some) }
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        value.as_array().ok_or_else(|| expected("list", value))?.iter().map(T::read).collect()
    }
}

impl<A: Read, B: Read> Read for (A, B) {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        match value.as_array().map(Vec::as_slice) {
            Some([one, other]) => Ok((A::read(one)?, B::read(other)?)),
            _ => Err(expected("pair", value)),
        }
    }
}

/// An answer of a store.
impl<T: Read> Read for crate::error::Result<T> {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        match (value.get("Ok"), value.get("Err")) {
            (Some(answer), None) => T::read(answer).map(Ok),
            (None, Some(error)) => Error::read(error).map(Err),
            _ => Err(expected("answer", value)),
        }
    }
}
