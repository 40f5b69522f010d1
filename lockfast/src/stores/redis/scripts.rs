//! The scripts, and calls of them. Each file under `lua/` that begins a script declares its keys, arguments and reply; scripts
//! that decide about queues share the rule.

use std::sync::LazyLock;

use redis::{RedisError, RedisResult, ServerErrorKind, Value};
use sha1::{Digest, Sha1};

use super::Multiplexer;
use super::connection::{Confirmation, Request};
#[cfg(not(test))]
use super::format::assemble;
use super::format::{Limits, Part};
#[cfg(test)]
use super::tests::coverage::assemble;

/// A script, assembled at first use.
pub(super) struct Script {
    text: LazyLock<Text>,
}

struct Text {
    body: String,
    /// The words `EVALSHA DIGEST`, encoded for the protocol.
    evalsha: Vec<u8>,
}

impl Text {
    fn of(parts: &[Part]) -> Self {
        let body = assemble(parts, &Limits::SHIPPED);
        let evalsha = encode_words(&[b"EVALSHA", digest(&body).as_bytes()]);
        Self { body, evalsha }
    }
}

macro_rules! script {
    ($($file:literal)+) => {
        Script { text: LazyLock::new(|| Text::of(&[$(($file, include_str!(concat!("lua/", $file, ".lua")))),+])) }
    };
}

// The fast path comes first in its script, before the rule: a function definition costs time even if it is not called
// (docs/adr/0024).
pub(super) static ACQUIRE_ALONE: Script =
    script!("acquire_alone" "claims" "listing" "queue" "reader_marker" "rule" "acquire");
pub(super) static ACQUIRE: Script =
    script!("demands" "acquire_several" "claims" "listing" "queue" "reader_marker" "rule" "acquire");
pub(super) static RENEW: Script =
    script!("renew" "demands" "claims" "listing" "queue" "reader_marker" "rule" "renew_each");
pub(super) static RELEASE_ALONE: Script =
    script!("release_alone" "claims" "listing" "queue" "reader_marker" "rule" "release");
pub(super) static RELEASE: Script =
    script!("demands" "release_several" "claims" "listing" "queue" "reader_marker" "rule" "release");
pub(super) static INSPECT: Script = script!("inspect" "claims" "listing" "queue" "reader_marker" "rule" "inspect_each");
pub(super) static RECORD: Script = script!("listing" "record");
pub(super) static LIST_CLIENTS: Script = script!("listing" "list_clients");
pub(super) static LIST_NAMES: Script = script!("listing" "list_names");
pub(super) static FENCED_SET: Script = script!("fenced_set");
pub(super) static SEED: Script = script!("seed");

fn digest(body: &str) -> String {
    Sha1::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One call of a script, with its keys and arguments.
pub(super) struct Call {
    script: &'static Script,
    /// The number of words in `bytes`.
    words: usize,
    /// The words behind `EVALSHA DIGEST`, encoded for the protocol: the number of keys, the keys and the arguments.
    bytes: Vec<u8>,
}

impl Call {
    /// A call with this number of keys. The caller appends the keys, then the arguments, in order.
    pub(super) fn of(script: &'static Script, keys: usize) -> Self {
        // Room for a common call, so that it is allocated once.
        let mut call = Self { script, words: 0, bytes: Vec::with_capacity(384 + 128 * keys) };
        call.number(keys as u64);
        call
    }

    /// Appends one word.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    /// Appends one word.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.words += 1;
        append_word(&mut self.bytes, bytes);
        self
    }

    /// Appends one word, made of several parts.
    pub(super) fn parts(&mut self, parts: &[&[u8]]) -> &mut Self {
        self.words += 1;
        append_count(&mut self.bytes, b'$', parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    /// Appends one word: the number in decimal.
    pub(super) fn number(&mut self, number: impl Into<u64>) -> &mut Self {
        self.bytes(digits(number.into(), &mut [0; 20]))
    }

    /// Runs the script by its digest. If the server does not know the digest, after a restart or SCRIPT FLUSH, the script did not
    /// run, and its body is sent. No other request is ever repeated here.
    pub(super) async fn run(&self, multiplexer: &Multiplexer) -> RedisResult<Value> {
        match self.send(multiplexer, &self.script.text.evalsha).await {
            Err(error) if is_unknown_script(&error) => {
                let eval = encode_words(&[b"EVAL", self.script.text.body.as_bytes()]);
                self.send(multiplexer, &eval).await
            }
            reply => reply,
        }
    }

    async fn send(&self, multiplexer: &Multiplexer, command: &[u8]) -> RedisResult<Value> {
        multiplexer.send(&EncodedCall { command, call: self }).await?.extract_error()
    }
}

/// A call as it is sent.
struct EncodedCall<'a> {
    /// The two words that name the script, `EVALSHA DIGEST` or `EVAL BODY`, encoded.
    command: &'a [u8],
    call: &'a Call,
}

impl Request for EncodedCall<'_> {
    fn write(&self, bytes: &mut Vec<u8>) {
        append_count(bytes, b'*', 2 + self.call.words);
        bytes.extend_from_slice(self.command);
        bytes.extend_from_slice(&self.call.bytes);
    }

    fn confirmation(&self) -> Option<Box<Confirmation>> {
        None
    }

    #[cfg(feature = "bench-crate-connection")]
    fn command(&self) -> redis::Cmd {
        let size = self.command.len() + self.call.bytes.len();
        let mut command = redis::Cmd::with_capacity(2 + self.call.words, size);
        for word in each_word(self.command).chain(each_word(&self.call.bytes)) {
            command.arg(word);
        }
        command
    }
}

/// The words that [`append_word`] has encoded.
#[cfg(feature = "bench-crate-connection")]
fn each_word(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let end = bytes.iter().position(|byte| *byte == b'\r')?;
        let length = bytes[1..end].iter().fold(0, |length, digit| 10 * length + usize::from(digit - b'0'));
        let (word, rest) = bytes[end + 2..].split_at(length);
        bytes = &rest[2..];
        Some(word)
    })
}

fn encode_words(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    words.iter().for_each(|word| append_word(&mut bytes, word));
    bytes
}

/// Appends a word with its length, as the protocol requires.
fn append_word(bytes: &mut Vec<u8>, word: &[u8]) {
    append_count(bytes, b'$', word.len());
    bytes.extend_from_slice(word);
    bytes.extend_from_slice(b"\r\n");
}

/// Appends the length of a word, or the number of words of a request: a type byte, decimal digits and a line end.
fn append_count(bytes: &mut Vec<u8>, type_byte: u8, count: usize) {
    let digit = |value: usize| b'0' + value as u8;
    // A fast path: most words are short.
    if count < 10 {
        bytes.extend_from_slice(&[type_byte, digit(count), b'\r', b'\n']);
    } else if count < 100 {
        bytes.extend_from_slice(&[type_byte, digit(count / 10), digit(count % 10), b'\r', b'\n']);
    } else {
        bytes.push(type_byte);
        bytes.extend_from_slice(digits(count as u64, &mut [0; 20]));
        bytes.extend_from_slice(b"\r\n");
    }
}

/// The digits of `{}` without the formatting machinery: every word of every request has a length.
pub(super) fn digits(mut number: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut begin = buffer.len();
    loop {
        begin -= 1;
        buffer[begin] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &buffer[begin..];
        }
    }
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 7, 10, 999, 1_000, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(digits(number, &mut [0; 20]), number.to_string().as_bytes());
        }
    }

    #[test]
    fn a_call_is_encoded_as_an_array_of_its_words() {
        let mut call = Call::of(&SEED, 2);
        let (short, long) = ("short text", "x".repeat(100));
        call.text("a").bytes(b"").number(12u64).text(short).text(&long);
        let mut bytes = Vec::new();
        append_count(&mut bytes, b'*', call.words);
        bytes.extend(&call.bytes);
        let words = ["2", "a", "", "12", short, &long].map(|word| Value::BulkString(word.into()));
        assert_eq!(redis::parse_redis_value(&bytes).unwrap(), Value::Array(words.to_vec()));
    }
}
