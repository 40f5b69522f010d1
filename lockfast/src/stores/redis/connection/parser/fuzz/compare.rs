//! Compares our parser with the parser of the `redis` crate.
//!
//! Replies are compared in the form of our parser: attributes are dropped, an error is one line, and a push of a kind that is
//! not used is `Other` with its name. Beyond that only a [`Difference`] is accepted; anything else is a violation.

use redis::{PushKind, ServerError, Value};

use super::super::{Parser, READ_SIZE, UNKNOWN_TYPE};

/// A point at which the two parsers may differ. The rest of the stream is not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Difference {
    /// Ours reads text that is not UTF-8 with replacement characters. The crate's refuses it.
    LossyText,
    /// Both read about 100 levels. The crate's counts the innermost value and what follows an attribute as one more.
    Depth,
    /// Ours refuses a line feed without a carriage return. The crate's reads it as part of the line.
    BareLineFeed,
    /// Ours refuses blanks around a number, negative lengths other than the `-1` of `$` and `*`, and lengths above `u32`.
    StrictNumber,
    /// Ours refuses a push without a kind. The crate's reads one of the kind "".
    EmptyPush,
    /// Ours refuses a byte that begins no reply at once. The crate's wants to see the one after it.
    UnknownLastByte,
    /// Ours drops an attribute before the kind of a push. The crate's refuses the push.
    AttributeBeforeKind,
}

/// The result of parsing a stream.
pub(super) struct Reading {
    pub(super) values: Vec<Value>,
    /// Why the stream was refused; `None` if the parser waits for more bytes.
    refused: Option<String>,
    /// How many bytes were parsed before that.
    parsed: usize,
    /// Whether the parser waits for more bytes inside of a reply.
    is_inside: bool,
}

/// Compares two readings. Fails if they differ by anything but an accepted [`Difference`].
pub(super) fn compare(bytes: &[u8], ours: &Reading, theirs: &Reading) -> Result<Option<Difference>, String> {
    let first_different = ours.values.iter().zip(&theirs.values).position(|(ours, theirs)| !is_same(ours, theirs));
    if let Some(at) = first_different {
        let (ours, theirs) = (&ours.values[at], &theirs.values[at]);
        return Err(format!("reply {at} is {ours:.200?}, and {theirs:.200?} for the crate"));
    }
    let (our_count, crate_count) = (ours.values.len(), theirs.values.len());
    let accepted = match (&ours.refused, &theirs.refused) {
        (None, None) | (Some(_), Some(_)) if our_count == crate_count => return Ok(None),
        (Some(why), _) if our_count <= crate_count => difference_of_ours(why, bytes, ours.parsed),
        (_, Some(why)) if our_count >= crate_count => difference_of_theirs(why, bytes),
        _ => None,
    };
    let ending = |refused: &Option<String>| refused.clone().unwrap_or_else(|| "wants more".to_owned());
    accepted.map(Some).ok_or_else(|| {
        let (ours, theirs) = (ending(&ours.refused), ending(&theirs.refused));
        format!("ends after {our_count} replies: {ours:.200}; for the crate after {crate_count}: {theirs:.300}")
    })
}

/// The accepted difference by which our parser may refuse, for the reason `why`, what the crate's parser reads.
fn difference_of_ours(why: &str, bytes: &[u8], parsed: usize) -> Option<Difference> {
    let rest = &bytes[parsed..];
    let line = rest.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
    let number = |line: &[u8]| -> Option<(i64, bool)> {
        let text = str::from_utf8(line.get(1..)?.strip_suffix(b"\r\n")?).ok()?;
        Some((text.trim().parse().ok()?, text.trim() != text))
    };
    match why {
        "nested too deep" => Some(Difference::Depth),
        "a line that does not end as it should" => (!line.ends_with(b"\r\n")).then_some(Difference::BareLineFeed),
        "a number" | "a length" => {
            let (number, has_blanks) = number(line)?;
            let is_good = line[0] == b':' || u32::try_from(number).is_ok() || matches!(line, b"$-1\r\n" | b"*-1\r\n");
            (has_blanks || !is_good).then_some(Difference::StrictNumber)
        }
        UNKNOWN_TYPE => (rest.len() == 1).then_some(Difference::UnknownLastByte),
        "a push of no kind" => {
            let before = bytes[..parsed].strip_suffix(b"\n")?;
            let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let line = &bytes[start..parsed];
            (line[0] == b'>' && number(line)?.0 == 0).then_some(Difference::EmptyPush)
        }
        _ => None,
    }
}

/// The accepted difference by which the crate's parser may refuse, for the reason `why`, what our parser reads.
fn difference_of_theirs(why: &str, bytes: &[u8]) -> Option<Difference> {
    if why.contains("utf-8") {
        str::from_utf8(bytes).is_err().then_some(Difference::LossyText)
    } else if why.contains("Maximum recursion depth exceeded") {
        Some(Difference::Depth)
    } else if why.contains("decoding push") {
        bytes.contains(&b'|').then_some(Difference::AttributeBeforeKind)
    } else {
        None
    }
}

/// Compares by `Debug` where a value is NaN, which is not equal to itself.
fn is_same(ours: &Value, theirs: &Value) -> bool {
    ours == theirs || format!("{ours:?}") == format!("{theirs:?}")
}

/// Parses pieces one after the other. Fails if the memory in use exceeds the bound for the bytes received.
pub(super) fn ours<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Reading, String> {
    let mut parser = Parser::default();
    let (mut values, mut refused, mut received) = (Vec::new(), None, 0);
    for piece in pieces {
        parser.spare_buffer().extend_from_slice(piece);
        received += piece.len();
        while refused.is_none() {
            match parser.next() {
                Ok(Some(value)) => values.push(value),
                Ok(None) => break,
                Err(error) => refused = Some(error.detail().unwrap_or_default().to_owned()),
            }
        }
        check_memory(&parser, received)?;
        if refused.is_some() {
            break;
        }
    }
    if values.iter().map(memory_of).sum::<usize>() > MAX_MEMORY_PER_BYTE * received {
        return Err(format!("{received} bytes became values of more than {MAX_MEMORY_PER_BYTE} times as many"));
    }
    let is_inside = !parser.open_aggregates.is_empty() || parser.parsed < parser.bytes.len();
    Ok(Reading { values, refused, parsed: parser.parsed, is_inside })
}

/// The most memory that values may use for each byte received: the shortest value has three bytes, and a vector may reserve twice
/// the memory for it.
const MAX_MEMORY_PER_BYTE: usize = 2 * size_of::<Value>() / 3 + 4;
/// The most levels that are open.
const MAX_LEVELS: usize = 100;
/// Memory that is reserved in advance: the first values at each level, and the next read.
const RESERVED_MEMORY: usize = MAX_LEVELS * 64 * size_of::<Value>() + 4 * READ_SIZE;

fn check_memory(parser: &Parser, received: usize) -> Result<(), String> {
    let open = parser.open_aggregates.iter();
    let open: usize = open.map(|aggregate| memory_of_all(&aggregate.values, aggregate.values.capacity())).sum();
    let held = parser.bytes.capacity() + open;
    if held > RESERVED_MEMORY + MAX_MEMORY_PER_BYTE * received || parser.bytes.capacity() > 2 * received + 4 * READ_SIZE
    {
        return Err(format!("{held} bytes are in use after {received} were received"));
    }
    if parser.open_aggregates.len() > MAX_LEVELS {
        return Err(format!("{} levels are open", parser.open_aggregates.len()));
    }
    Ok(())
}

/// The heap memory of a value.
fn memory_of(value: &Value) -> usize {
    match value {
        Value::BulkString(bytes) | Value::BigNumber(bytes) => bytes.capacity(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.capacity(),
        Value::Array(values) | Value::Set(values) | Value::Push { data: values, .. } => {
            memory_of_all(values, values.capacity())
        }
        Value::Map(pairs) => {
            let inside = pairs.iter().map(|(key, value)| memory_of(key) + memory_of(value)).sum::<usize>();
            inside + 2 * pairs.capacity() * size_of::<Value>()
        }
        _ => 0,
    }
}

fn memory_of_all(values: &[Value], capacity: usize) -> usize {
    capacity * size_of::<Value>() + values.iter().map(memory_of).sum::<usize>()
}

/// Parses with the crate, and normalises the values to the form of our parser.
pub(super) fn theirs(bytes: &[u8]) -> Reading {
    let (mut parser, mut rest, mut values) = (redis::Parser::new(), bytes, Vec::new());
    let refused = loop {
        match parser.parse_value(&mut rest) {
            Ok(value) => values.push(as_ours(value)),
            Err(error) if error.is_io_error() => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    Reading { values, refused, parsed: 0, is_inside: false }
}

fn as_ours(value: Value) -> Value {
    let all = |values: Vec<Value>| values.into_iter().map(as_ours).collect();
    match value {
        Value::Attribute { data, .. } => as_ours(*data),
        Value::Array(values) => Value::Array(all(values)),
        Value::Set(values) => Value::Set(all(values)),
        Value::Map(pairs) => Value::Map(pairs.into_iter().map(|(key, value)| (as_ours(key), as_ours(value))).collect()),
        Value::Push { kind, data } => {
            let kind = match kind {
                PushKind::Message | PushKind::Subscribe | PushKind::Unsubscribe => kind,
                kind => PushKind::Other(kind.to_string()),
            };
            Value::Push { kind, data: all(data) }
        }
        Value::ServerError(error) => on_one_line(&error),
        value => value,
    }
}

fn on_one_line(error: &ServerError) -> Value {
    let detail = error.details().map(|detail| format!(" {detail}")).unwrap_or_default();
    let line = format!("{}{detail}", error.code()).replace(['\r', '\n'], " ");
    redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap()
}

impl Reading {
    /// Whether two ways of delivering the same bytes have the same result. The reason of a refusal may differ: of two reasons
    /// in one line, the one that is received first counts.
    pub(super) fn is_the_same_as(&self, other: &Self) -> bool {
        let mut pairs = self.values.iter().zip(&other.values);
        self.values.len() == other.values.len()
            && pairs.all(|(one, other)| is_same(one, other))
            && self.refused.is_some() == other.refused.is_some()
            && self.is_whole() == other.is_whole()
    }

    /// Whether the stream was read to its end, which is the end of a reply.
    pub(super) fn is_whole(&self) -> bool {
        self.refused.is_none() && !self.is_inside
    }
}
