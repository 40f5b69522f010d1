//! Streams of replies: valid ones of every kind, and damaged ones. All of a stream follows from its seed.

use fastrand::Rng;

/// The bytes that a server sends.
pub(super) struct Stream {
    pub(super) bytes: Vec<u8>,
    /// The number of replies in it; unknown once it was damaged.
    pub(super) replies: Option<usize>,
}

/// The types whose first byte is followed by a count or a length.
const COUNTED: &[u8] = b"$*~%|>=!";
const INTEGERS: &[&str] =
    &["0", "-0", "+7", "1", "-1", "007", "123456789", "9223372036854775807", "-9223372036854775808"];
const DOUBLES: &[&str] =
    &["0", "-0", "1.5", "-3.25", "inf", "-inf", "nan", "-nan", "2.67923E+8", "1e-400", "1e400", "10", ".5"];
const BIG_NUMBERS: &[&str] = &["0", "12345678901234567890", "-3492890328409238509324850943850943825024385", ""];
const TEXTS: &[&str] = &["OK", "ok", "OKAY", "", "QUEUED", "a b", "a\rb", "é€😀", " OK", "-1", "+", "message"];
const ERRORS: &[&str] = &[
    "ERR no",
    "ERR",
    "",
    "NOSCRIPT No matching script.",
    "MOVED 3999 127.0.0.1:6381",
    "WRONGTYPE Operation against a key",
    "READONLY",
    " two  blanks",
    "OOM é€😀",
];
const PUSHES: &[&str] = &[
    "message",
    "pmessage",
    "smessage",
    "subscribe",
    "unsubscribe",
    "psubscribe",
    "punsubscribe",
    "ssubscribe",
    "sunsubscribe",
    "invalidate",
    "disconnection",
    "other",
    "Message",
    "",
];
/// Replacements for a length, beside its neighbours.
const LENGTHS: &[&str] = &[
    "0",
    "-1",
    "-2",
    "-0",
    "",
    "?",
    " 1",
    "1 ",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "65536",
    "00",
    "-01",
    "1.0",
];
const LINE_ENDS: &[&[u8]] = &[b"\n", b"\r", b"\n\r", b"\r\r\n", b"", b"\r\n\r\n", b"\r ", b"\r\n\n"];
const BYTES: &[u8] = b"\r\n$*~%|>=!+-:_,#(019 OKtf.\xff\xc3\x00";

pub(super) fn of_seed(seed: u64) -> Stream {
    let rng = &mut Rng::with_seed(seed);
    let replies = rng.usize(1..5);
    let mut bytes = Vec::new();
    for _ in 0..replies {
        match rng.u8(..) {
            0..3 => deep(rng, &mut bytes),
            3..6 => long(rng, &mut bytes),
            6..40 => push(rng, &mut bytes, 3),
            _ => reply(rng, &mut bytes, 4),
        }
    }
    if rng.bool() {
        return Stream { bytes, replies: Some(replies) };
    }
    for _ in 0..rng.usize(1..4) {
        damage(rng, &mut bytes);
    }
    Stream { bytes, replies: None }
}

fn pick<'a, T: ?Sized>(rng: &mut Rng, from: &[&'a T]) -> &'a T {
    from[rng.usize(..from.len())]
}

fn head(bytes: &mut Vec<u8>, type_byte: u8, count: usize) {
    bytes.extend(format!("{}{count}\r\n", type_byte as char).bytes());
}

fn line(bytes: &mut Vec<u8>, type_byte: u8, text: &str) {
    bytes.extend(format!("{}{text}\r\n", type_byte as char).bytes());
}

fn blob(bytes: &mut Vec<u8>, type_byte: u8, text: &[u8]) {
    head(bytes, type_byte, text.len());
    bytes.extend(text);
    bytes.extend(b"\r\n");
}

/// Any reply, nested at most `depth` levels.
fn reply(rng: &mut Rng, bytes: &mut Vec<u8>, depth: usize) {
    if depth > 0 && rng.u8(..) < 10 {
        attribute(rng, bytes, depth);
    }
    match rng.u8(..if depth == 0 { 14 } else { 20 }) {
        0 => line(bytes, b'+', "OK"),
        1 => line(bytes, b'+', pick(rng, TEXTS)),
        2 => line(bytes, b':', pick(rng, INTEGERS)),
        3 => line(bytes, b':', &rng.i64(..).to_string()),
        4 => bytes.extend(pick(rng, &[b"_\r\n".as_slice(), b"$-1\r\n", b"*-1\r\n"])),
        5 => line(bytes, b'-', pick(rng, ERRORS)),
        6 => {
            let text = format!("{}{}", pick(rng, ERRORS), pick(rng, &["", "\r\n", "\nmore", "\r\n\r\nmore\r"]));
            blob(bytes, b'!', text.as_bytes());
        }
        7 => line(bytes, b',', pick(rng, DOUBLES)),
        8 => line(bytes, b'#', pick(rng, &["t", "f"])),
        9 => line(bytes, b'(', pick(rng, BIG_NUMBERS)),
        10 => {
            let text =
                format!("{}:{}", pick(rng, &["txt", "mkd", "", "other"]), pick(rng, &["", "a\r\nb", "a:b", "é"]));
            blob(bytes, b'=', text.as_bytes());
        }
        11 => {
            let text = format!("{}{}", pick(rng, TEXTS), pick(rng, &["\r\n", "", "\r\n$1\r\na\r\n", "\n"]));
            blob(bytes, b'$', text.as_bytes());
        }
        12 => blob(bytes, b'$', b""),
        13 => {
            let text: Vec<u8> = (0..rng.usize(..40)).map(|_| rng.u8(..)).collect();
            blob(bytes, b'$', &text);
        }
        14..16 => several(rng, bytes, b'*', 1, depth),
        16..18 => several(rng, bytes, b'%', 2, depth),
        18 => several(rng, bytes, b'~', 1, depth),
        _ => push(rng, bytes, depth - 1),
    }
}

fn several(rng: &mut Rng, bytes: &mut Vec<u8>, type_byte: u8, each: usize, depth: usize) {
    // Now and then more values than the parser reserves at once.
    let (count, depth) = if rng.u8(..) < 4 { (rng.usize(30..150), 0) } else { (rng.usize(..5), depth - 1) };
    head(bytes, type_byte, count);
    (0..count * each).for_each(|_| reply(rng, bytes, depth));
}

fn attribute(rng: &mut Rng, bytes: &mut Vec<u8>, depth: usize) {
    several(rng, bytes, b'|', 2, depth);
}

fn push(rng: &mut Rng, bytes: &mut Vec<u8>, depth: usize) {
    let count = rng.usize(..4);
    head(bytes, b'>', 1 + count);
    match (pick(rng, PUSHES), rng.bool()) {
        (kind, true) => blob(bytes, b'$', kind.as_bytes()),
        (kind, false) => line(bytes, b'+', kind),
    }
    (0..count).for_each(|_| reply(rng, bytes, depth));
}

/// Nearly as deep as the parser accepts.
fn deep(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..rng.usize(80..98) {
        bytes.extend(pick(rng, &[b"*1\r\n".as_slice(), b"~1\r\n", b"%1\r\n+key\r\n", b">2\r\n+kind\r\n"]));
    }
    bytes.extend(b":1\r\n");
}

/// Longer than one read.
fn long(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let text = vec![b'x'; rng.usize(10_000..50_000)];
    blob(bytes, if rng.bool() { b'$' } else { b'!' }, &text);
}

fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let (at, byte) = (rng.usize(..bytes.len()), BYTES[rng.usize(..BYTES.len())]);
    match rng.u8(..12) {
        0 => bytes[at] = byte,
        1 => bytes[at] ^= 1 << rng.u8(..8),
        2 => bytes.insert(at, byte),
        3 => drop(bytes.remove(at)),
        4 => bytes.truncate(at),
        5 => {
            let piece = bytes[at..(at + rng.usize(..20)).min(bytes.len())].to_vec();
            let to = rng.usize(..bytes.len());
            bytes.splice(to..to, piece);
        }
        6 => {
            let too_deep =
                pick(rng, &[b"*1\r\n".as_slice(), b"|0\r\n*1\r\n", b"*4294967295\r\n"]).repeat(rng.usize(95..105));
            let starts = starts(bytes, |_| true);
            bytes.splice(starts[0]..starts[0], too_deep);
        }
        7 => {
            let starts = starts(bytes, |_| true);
            let start = starts[rng.usize(..starts.len())];
            bytes.splice(start..start, *b"|0\r\n");
        }
        8 | 9 => {
            let ends: Vec<usize> = (1..bytes.len()).filter(|at| bytes[at - 1..=*at] == *b"\r\n").collect();
            if let Some(end) = rng.choice(&ends) {
                bytes.splice(end - 1..end + 1, pick(rng, LINE_ENDS).iter().copied());
            }
        }
        _ => {
            let counts = starts(bytes, |first| COUNTED.contains(&first));
            let Some(start) = rng.choice(&counts).map(|at| at + 1) else { return };
            let digits = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let number: i64 = str::from_utf8(&bytes[start..start + digits]).unwrap().parse().unwrap_or_default();
            let other = match rng.u8(..4) {
                0 => number.wrapping_add(1).to_string(),
                1 => number.wrapping_sub(1).to_string(),
                2 => format!("{}{number}", pick(rng, &["+", "0", "-", " "])),
                _ => pick(rng, LENGTHS).to_owned(),
            };
            bytes.splice(start..start + digits, other.into_bytes());
        }
    }
}

/// Where the lines of the wanted types begin.
fn starts(bytes: &[u8], is_wanted: impl Fn(u8) -> bool) -> Vec<usize> {
    (0..bytes.len()).filter(|at| (*at == 0 || bytes[at - 1] == b'\n') && is_wanted(bytes[*at])).collect()
}
