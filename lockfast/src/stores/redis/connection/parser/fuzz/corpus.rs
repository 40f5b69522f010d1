//! Streams that found faults or show a difference, each with the difference that is accepted for it.

use super::Difference::{self, *};

const ATTRIBUTES: &[[u8; 4]] = &[*b"|0\r\n"; 101];
const LISTS: &[[u8; 4]] = &[*b"*1\r\n"; 101];

pub(super) const ENTRIES: &[(&[u8], Option<Difference>)] = &[
    (b"", None),
    // Each difference, also inside of something else.
    (b"+caf\xe9\r\n", Some(LossyText)),
    (b"*2\r\n-ERR \xff\xfe\r\n:1\r\n", Some(LossyText)),
    (b">2\r\n$1\r\n\xff\r\n:1\r\n", Some(LossyText)),
    (b"_\xff\r\n", Some(LossyText)),
    (b"+a\nb\r\n", Some(BareLineFeed)),
    (b":1\r\n*1\r\n-ERR\n\r\n", Some(BareLineFeed)),
    (b": 1\r\n", Some(StrictNumber)),
    (b"*1 \r\n:1\r\n", Some(StrictNumber)),
    (b"$-2\r\n", Some(StrictNumber)),
    (b"~-1\r\n", Some(StrictNumber)),
    (b"=-1\r\n", Some(StrictNumber)),
    (b"$-01\r\n", Some(StrictNumber)),
    (b"*4294967296\r\n", Some(StrictNumber)),
    (b"!9223372036854775807\r\nx", Some(StrictNumber)),
    (b">0\r\n", Some(EmptyPush)),
    (b"*1\r\n>-0\r\n", Some(EmptyPush)),
    (b">2\r\n|0\r\n+message\r\n:1\r\n", Some(AttributeBeforeKind)),
    (b"5", Some(UnknownLastByte)),
    (b"*1\r\n\x15", Some(UnknownLastByte)),
    (ATTRIBUTES.as_flattened(), Some(Depth)),
    // Refused by both.
    (b"\x15\x03\x01\x00\x02", None),
    (b"HTTP/1.1 400", None),
    (LISTS.as_flattened(), None),
    (b"\r\n", None),
    (b"+OK\r\n\r\n", None),
    (b">1\r\n+OK\r\n", None),
    (b">1\r\n_\r\n", None),
    (b"%-1\r\n:1\r\n", None),
    (b"|9223372036854775808\r\n:1\r\n", None),
    (b"$1\r\nab\r\n", None),
    (b"$1\r\na\r\r\n", None),
    (b"=3\r\ntxt\r\n", None),
    (b"#true\r\n", None),
    (b":9223372036854775808\r\n", None),
    (b"(\xff\r\n", None),
    // Read by both, or waited for by both.
    (LISTS.split_at(100).0.as_flattened(), None),
    (b"$4294967295\r\nx", None),
    (b"*4294967295\r\n*4294967295\r\n*4294967295\r\n:1\r\n", None),
    (b"%2147483648\r\n", None),
    (b"$+1\r\na\r\n*-0\r\n:-0\r\n:+5\r\n", None),
    (b"$1\r\na\r", None),
    (b"+a\rb\r\n+\r\n-\r\n!0\r\n\r\n(\r\n_x\r\n", None),
    (b",nan\r\n,-nan\r\n,inf\r\n,-0\r\n, 1.5\r\n,1e400\r\n", None),
    (b"!12\r\nERR\r\nblob\r\n \r\n", None),
    (b"=4\r\ntxt:\r\n=1\r\n:\r\n", None),
    (b"|1\r\n+a\r\n|0\r\n:1\r\n|1\r\n*0\r\n%0\r\n*2\r\n|0\r\n:5\r\n|0\r\n>1\r\n+x\r\n", None),
    // Room for no more pairs than there are.
    (b"%1\r\n_\r\n+\r\n", None),
    (b"%1\r\n|0\r\n+key\r\n|0\r\n+value\r\n", None),
    (b">3\r\n+pmessage\r\n>1\r\n$7\r\nmessage\r\n-ERR inside\r\n", None),
];
