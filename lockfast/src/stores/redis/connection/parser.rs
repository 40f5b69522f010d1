//! An incremental parser for RESP3, the protocol of Redis replies.
//!
//! A reply may arrive in any number of pieces. The parsed part is kept, so a long reply is not parsed again with each piece.
//! Declared lengths are not trusted: memory is bounded by the bytes that were received.

use redis::{ErrorKind, PushKind, RedisError, RedisResult, Value};

/// The size of one read, and of the buffer that is kept while idle.
pub(super) const READ_SIZE: usize = 16 * 1024;
/// No reply to our requests is nested deeper, and none has a longer line (in bytes).
const MAX_DEPTH: usize = 100;
const MAX_LINE: usize = 1024 * 1024;
/// The first byte of a line: the type of the value.
const TYPE_BYTES: &[u8] = b"+-:_,#($=!*~%|>";
/// What is wrong with a line whose first byte is none of them.
const UNKNOWN_TYPE: &str = "no kind of reply that is known";

#[derive(Default)]
pub(super) struct Parser {
    bytes: Vec<u8>,
    /// How many of `bytes` are parsed.
    parsed: usize,
    /// The aggregates that are not complete, each inside of the one before.
    open_aggregates: Vec<Aggregate>,
}

/// An array, set, map, push or attribute of which some values are still to come.
struct Aggregate {
    type_byte: u8,
    /// The number of values that it will have.
    count: usize,
    values: Vec<Value>,
}

/// A part of a reply that is parsed at once.
enum Token {
    Value(Value),
    /// The type byte and the number of values of an aggregate, which follow.
    AggregateHead(u8, usize),
}

impl Parser {
    /// The buffer to append more bytes to. It always has spare capacity, so that a read of 0 bytes means the end of the stream.
    pub(super) fn spare_buffer(&mut self) -> &mut Vec<u8> {
        if self.parsed == self.bytes.len() {
            self.bytes.clear();
            // The memory of a long reply is freed.
            self.bytes.shrink_to(2 * READ_SIZE);
            self.parsed = 0;
        } else if self.parsed >= READ_SIZE {
            self.bytes.drain(..self.parsed);
            self.parsed = 0;
        }
        if self.bytes.capacity() - self.bytes.len() < READ_SIZE / 2 {
            self.bytes.reserve(READ_SIZE);
        }
        &mut self.bytes
    }

    /// The next reply, once it is complete. After an error the rest of the stream cannot be parsed.
    pub(super) fn next(&mut self) -> RedisResult<Option<Value>> {
        loop {
            let mut value = match self.next_token()? {
                None => return Ok(None),
                Some(Token::Value(value)) => value,
                Some(Token::AggregateHead(type_byte, count)) => {
                    if self.open_aggregates.len() == MAX_DEPTH {
                        return Err(protocol_error("nested too deep"));
                    }
                    let aggregate = Aggregate { type_byte, count, values: Vec::with_capacity(count.min(64)) };
                    if count > 0 {
                        self.open_aggregates.push(aggregate);
                        continue;
                    }
                    match aggregate.close()? {
                        Some(value) => value,
                        None => continue,
                    }
                }
            };
            loop {
                let Some(aggregate) = self.open_aggregates.last_mut() else { return Ok(Some(value)) };
                aggregate.values.push(value);
                if aggregate.values.len() < aggregate.count {
                    break;
                }
                let closed = self.open_aggregates.pop().map(Aggregate::close).transpose()?.flatten();
                match closed {
                    Some(whole) => value = whole,
                    None => break,
                }
            }
        }
    }

    /// One value, or the head of an aggregate; `None` while it is not complete.
    fn next_token(&mut self) -> RedisResult<Option<Token>> {
        let rest = &self.bytes[self.parsed..];
        let Some((line, after)) = line(rest)? else { return Ok(None) };
        let Some((&type_byte, text)) = line.split_first() else { return Err(protocol_error("an empty line")) };
        let mut length_read = after;
        let token = match type_byte {
            b'+' if text == b"OK" => Token::Value(Value::Okay),
            b'+' => Token::Value(Value::SimpleString(String::from_utf8_lossy(text).into_owned())),
            b':' => Token::Value(Value::Int(number(text)?)),
            b'_' => Token::Value(Value::Nil),
            b'-' => Token::Value(error_reply(text)?),
            b',' | b'#' | b'(' => Token::Value(redis::parse_redis_value(&rest[..after])?),
            b'$' | b'*' if text == b"-1" => Token::Value(Value::Nil),
            b'$' | b'=' | b'!' => {
                let ends = after.checked_add(length(text)?).ok_or_else(|| protocol_error("a length"))?;
                match rest.get(ends..).unwrap_or_default() {
                    [b'\r', b'\n', ..] => length_read = ends + 2,
                    [] | [b'\r'] => return Ok(None),
                    _ => return Err(protocol_error("a text that does not end where it should")),
                }
                Token::Value(match type_byte {
                    b'$' => Value::BulkString(rest[after..ends].to_vec()),
                    b'!' => error_reply(&rest[after..ends])?,
                    _ => redis::parse_redis_value(&rest[..length_read])?,
                })
            }
            b'*' | b'~' | b'>' => Token::AggregateHead(type_byte, length(text)?),
            b'%' | b'|' => {
                Token::AggregateHead(type_byte, length(text)?.checked_mul(2).ok_or_else(|| protocol_error("a length"))?)
            }
            _ => return Err(protocol_error(UNKNOWN_TYPE)),
        };
        self.parsed += length_read;
        Ok(Some(token))
    }
}

impl Aggregate {
    /// The complete value; `None` for an attribute, which only annotates the value that follows.
    fn close(self) -> RedisResult<Option<Value>> {
        let mut values = self.values.into_iter();
        Ok(match self.type_byte {
            b'*' => Some(Value::Array(values.collect())),
            b'~' => Some(Value::Set(values.collect())),
            b'%' => {
                // The number of pairs is known: without it, a map of maps would reserve four pairs at each level.
                let mut pairs = Vec::with_capacity(values.len() / 2);
                pairs.extend(std::iter::from_fn(|| Some((values.next()?, values.next()?))));
                Some(Value::Map(pairs))
            }
            b'>' => {
                let kind = match values.next() {
                    Some(Value::BulkString(kind)) => String::from_utf8_lossy(&kind).into_owned(),
                    Some(Value::SimpleString(kind)) => kind,
                    _ => return Err(protocol_error("a push of no kind")),
                };
                Some(Value::Push { kind: push_kind(kind), data: values.collect() })
            }
            _ => None,
        })
    }
}

/// Only the kinds that this client uses are told apart; all others are `Other`.
pub(super) fn push_kind(kind: String) -> PushKind {
    match &*kind {
        "message" => PushKind::Message,
        "subscribe" => PushKind::Subscribe,
        "unsubscribe" => PushKind::Unsubscribe,
        _ => PushKind::Other(kind),
    }
}

/// The first line without its terminator, and where the next begins.
fn line(bytes: &[u8]) -> RedisResult<Option<(&[u8], usize)>> {
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) if end > 0 && bytes[end - 1] == b'\r' => Ok(Some((&bytes[..end - 1], end + 1))),
        Some(_) => Err(protocol_error("a line that does not end as it should")),
        // The line may never end, so its first byte is checked now.
        None if bytes.first().is_some_and(|type_byte| !TYPE_BYTES.contains(type_byte)) => {
            Err(protocol_error(UNKNOWN_TYPE))
        }
        None if bytes.len() > MAX_LINE => Err(protocol_error("a line without an end")),
        None => Ok(None),
    }
}

/// An error reply: its text, lossily decoded, on one line.
fn error_reply(text: &[u8]) -> RedisResult<Value> {
    let text = String::from_utf8_lossy(text).replace(['\r', '\n'], " ");
    redis::parse_redis_value(format!("-{text}\r\n").as_bytes())
}

fn number(digits: &[u8]) -> RedisResult<i64> {
    // Most numbers are lengths of a few digits.
    if let 1..=9 = digits.len()
        && digits.iter().all(u8::is_ascii_digit)
    {
        return Ok(digits.iter().fold(0, |number, digit| 10 * number + i64::from(digit - b'0')));
    }
    let text = std::str::from_utf8(digits).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| protocol_error("a number"))
}

/// No reply to our requests is longer than `u32` can express.
fn length(digits: &[u8]) -> RedisResult<usize> {
    let length = u32::try_from(number(digits)?).ok();
    length.and_then(|length| length.try_into().ok()).ok_or_else(|| protocol_error("a length"))
}

/// The peer does not speak RESP3: a damaged stream, or not a Redis server.
pub(super) fn protocol_error(what: &'static str) -> RedisError {
    (ErrorKind::Parse, "the bytes received are no reply of Redis", what.to_owned()).into()
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn read_all(parser: &mut Parser) -> Vec<Value> {
        std::iter::from_fn(|| parser.next().unwrap()).collect()
    }

    /// One reply of each type with its value, some of them nested.
    fn samples() -> Vec<(&'static str, Value)> {
        let (list, push) = (
            |values: &[Value]| Value::Array(values.to_vec()),
            |kind, data: &[Value]| Value::Push { kind, data: data.to_vec() },
        );
        let parsed = |text: &str| redis::parse_redis_value(text.as_bytes()).unwrap();
        let as_it_is =
            ["-ERR no\r\n", ",1.5\r\n", ",inf\r\n", "(12345678901234567890\r\n", "=8\r\ntxt:a\r\nb\r\n", "#t\r\n"];
        let mut samples: Vec<_> = as_it_is.into_iter().map(|text| (text, parsed(text))).collect();
        samples.extend([
            ("+OK\r\n", Value::Okay),
            ("+QUEUED\r\n", Value::SimpleString("QUEUED".to_owned())),
            (":-7\r\n", Value::Int(-7)),
            ("$0\r\n\r\n", bulk("")),
            ("$6\r\na\r\nb\r\n\r\n", bulk("a\r\nb\r\n")),
            ("$-1\r\n", Value::Nil),
            ("*-1\r\n", Value::Nil),
            ("_\r\n", Value::Nil),
            ("*0\r\n", list(&[])),
            ("!9\r\nOOM\r\nfull\r\n", parsed("-OOM  full\r\n")),
            (
                "*3\r\n:1\r\n*2\r\n$1\r\na\r\n*0\r\n_\r\n",
                list(&[Value::Int(1), list(&[bulk("a"), list(&[])]), Value::Nil]),
            ),
            (
                "%1\r\n+a\r\n~1\r\n#f\r\n",
                Value::Map(vec![(Value::SimpleString("a".to_owned()), Value::Set(vec![Value::Boolean(false)]))]),
            ),
            (">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n", push(PushKind::Message, &[bulk("c"), bulk("hi")])),
            (">1\r\n+pong\r\n", push(PushKind::Other("pong".to_owned()), &[])),
            ("*1\r\n|1\r\n+ttl\r\n:3\r\n:5\r\n", list(&[Value::Int(5)])),
            ("|0\r\n:6\r\n", Value::Int(6)),
            ("*1\r\n-ERR inside\r\n", list(&[parsed("-ERR inside\r\n")])),
        ]);
        samples
    }

    #[test]
    fn every_kind_of_reply_is_read_wherever_it_is_cut() {
        let samples = samples();
        let bytes: Vec<u8> = samples.iter().flat_map(|(text, _)| text.bytes()).collect();
        let expected: Vec<_> = samples.into_iter().map(|(_, value)| value).collect();
        for cut in 0..=bytes.len() {
            let mut parser = Parser::default();
            parser.spare_buffer().extend_from_slice(&bytes[..cut]);
            let mut seen = read_all(&mut parser);
            parser.spare_buffer().extend_from_slice(&bytes[cut..]);
            seen.extend(read_all(&mut parser));
            assert_eq!(seen, expected, "cut at {cut}");
        }
        let mut parser = Parser::default();
        let byte_by_byte = bytes.iter().flat_map(|byte| {
            parser.spare_buffer().push(*byte);
            read_all(&mut parser)
        });
        assert_eq!(byte_by_byte.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_long_reply_is_read_once_and_its_memory_is_given_back() {
        let (count, text) = (200_000, "x".repeat(40));
        let mut bytes = format!("*{count}\r\n");
        (0..count).for_each(|_| bytes.push_str(&format!("$40\r\n{text}\r\n")));
        let mut parser = Parser::default();
        let mut whole = None;
        // Parsed again from its beginning with each piece, this would take hours.
        for piece in bytes.as_bytes().chunks(100) {
            parser.spare_buffer().extend_from_slice(piece);
            whole = parser.next().unwrap().or(whole);
        }
        let Some(Value::Array(values)) = whole else { panic!("it is a list") };
        assert!(values.len() == count && values.iter().all(|value| *value == bulk(&text)));
        let long = format!("${}\r\n{}\r\n", 1 << 22, "y".repeat(1 << 22));
        parser.spare_buffer().extend_from_slice(long.as_bytes());
        assert!(matches!(parser.next(), Ok(Some(Value::BulkString(text))) if text.len() == 1 << 22));
        assert!(parser.spare_buffer().capacity() <= 4 * READ_SIZE);
    }

    #[test]
    fn bytes_that_are_no_reply_are_an_error_of_the_connection() {
        let deep = "*1\r\n".repeat(200);
        let endless = format!("+{}", "x".repeat(MAX_LINE + 1));
        let texts = [
            "HTTP/1.1 400 Bad Request\r\n",
            // Without a line end: the alert of a server that expects TLS.
            "\x15\x03\x01",
            "*1\r\nx",
            "\r\n",
            "\n",
            "+OK\n",
            ":\r\n",
            ":1x\r\n",
            ":99999999999999999999\r\n",
            "$-2\r\n",
            "$x\r\n",
            "$1\r\nab\r\n",
            "$2\r\nab\n\n",
            "*-2\r\n",
            "%-1\r\n",
            "%9223372036854775807\r\n",
            "$9223372036854775807\r\nx*",
            ">0\r\n",
            ">1\r\n:1\r\n",
            "#x\r\n",
            ",x\r\n",
            "=1\r\na\r\n",
            "$?\r\n",
            &deep,
            &endless,
        ];
        for text in texts {
            let mut parser = Parser::default();
            parser.spare_buffer().extend_from_slice(text.as_bytes());
            assert!(parser.next().is_err_and(|error| error.is_unrecoverable_error()), "{text:.50}");
        }
    }
}
