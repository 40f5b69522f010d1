//! The encoding of requests and answers between two processes of this test, without loss. Both ends are the same program, so
//! there is no version and no length to check: a message that cannot be decoded is a mistake in this file, and panics.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lockfast::store::{
    Admission, Atomic, Busy, BusyWith, Change, Fenced, Lease, Leaving, Names, Page, Query, Report, Scope, Shared,
    Standing, StoreClock, Survives, Why,
};
use lockfast::store::{Claim, ClaimHash, ClaimId, ClientId, Demand, Demands, Name, Ticket, Tickets};
use lockfast::{Counters, Entry, Error, Guarantees, Holder, Mode, Note, Resource};

/// A request to a process. Each has a number; the number of an `Open` is the handle that other requests name.
#[derive(Clone, Debug)]
pub enum Request {
    /// A new handle. Answered with its guarantees.
    Open,
    /// The handle is not used any more. Not answered.
    Close(u64),
    Acquire(u64, Arc<Claim>, Busy),
    Renew(u64, Vec<Lease>),
    Release(u64, Vec<Leaving>),
    Inspect(u64, Query),
    Record(u64, Report),
    /// Answered with each change, then with `None`.
    Watch(u64, Scope),
    /// The answer to this request is not awaited any more. Not answered.
    Forget(u64),
    /// Moves the clock of the process.
    Pass(Duration),
}

/// Sends one message: the number of the request that it is, or answers, and its body.
pub fn send(mut to: &UnixStream, number: u64, body: &impl Codec) -> io::Result<()> {
    let mut message = vec![0; 4];
    number.encode(&mut message);
    body.encode(&mut message);
    let length = u32::try_from(message.len() - 4).expect("no message has four gigabytes");
    message[..4].copy_from_slice(&length.to_le_bytes());
    to.write_all(&message)
}

/// The next message; an error when the other process is gone.
pub fn receive(mut from: &UnixStream) -> io::Result<(u64, Vec<u8>)> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut message = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut message)?;
    Ok((decode_all(&message[..8]), message.split_off(8)))
}

/// Decodes a message, to its last byte.
pub fn decode_all<T: Codec>(mut message: &[u8]) -> T {
    let value = T::decode(&mut message);
    assert!(message.is_empty(), "{} bytes too many", message.len());
    value
}

/// A value that can be sent.
pub trait Codec: Sized {
    fn encode(&self, into: &mut Vec<u8>);
    fn decode(from: &mut &[u8]) -> Self;
}

/// Structs, with all of their fields. A field that is missing here does not compile.
macro_rules! structs {
    ($($type:ident $({ $($field:ident),+ })? $(( $($item:ident),+ ))?;)+) => {$(
        impl Codec for $type {
            fn encode(&self, into: &mut Vec<u8>) {
                let $type $({ $($field),+ })? $(( $($item),+ ))? = self;
                $($($field.encode(into);)+)? $($($item.encode(into);)+)?
            }

            fn decode(from: &mut &[u8]) -> Self {
                $($(let $field = Codec::decode(from);)+)? $($(let $item = Codec::decode(from);)+)?
                $type $({ $($field),+ })? $(( $($item),+ ))?
            }
        }
    )+};
}

/// Enums, as the name of the variant and its fields. A variant that is missing here panics when it is sent.
macro_rules! enums {
    ($($type:ident: $($variant:ident $({ $($field:ident),+ })? $(( $($item:ident),+ ))?),+;)+) => {$(
        impl Codec for $type {
            fn encode(&self, into: &mut Vec<u8>) {
                match self {
                    $($type::$variant $({ $($field),+ })? $(( $($item),+ ))? => {
                        stringify!($variant).to_owned().encode(into);
                        $($($field.encode(into);)+)? $($($item.encode(into);)+)?
                    })+
                    #[allow(unreachable_patterns)]
                    _ => panic!("{self:?} is not in encoding.rs"),
                }
            }

            fn decode(from: &mut &[u8]) -> Self {
                let variant = String::decode(from);
                $(if variant == stringify!($variant) {
                    $($(let $field = Codec::decode(from);)+)? $($(let $item = Codec::decode(from);)+)?
                    return $type::$variant $({ $($field),+ })? $(( $($item),+ ))?;
                })+
                panic!("{variant} is not in encoding.rs")
            }
        }
    )+};
}

structs! {
    BusyWith { holder, held_for, position };
    Claim { id, client, demands, ttl, block, floor, detached, note };
    ClaimHash(bytes);
    ClientId(number);
    Counters { acquired, released, contended, lost };
    Demand { name, capacity, weight };
    Holder { owner, fence, note };
    Lease { claim, ttl };
    Note { host, pid, program, text, labels };
    Page { resources, next, fleet };
    Query { names, after, limit, entries };
    Report { client, counters, entered, left, keep };
    Resource { name, capacity, queue, more, sealed_for };
    Entry { owner, tickets, mode, weight, holds, since, expires_in, lingers, broken, note };
    Ticket(number);
    Tickets { first, count };
}

enums! {
    Admission: Held(tickets), Queued { ticket, position, recheck_in }, Refused(busy), Sealed(value), Gone(why);
    Atomic: Always, WithinSlot;
    Busy: Wait, Refuse;
    Change: Held(owner, ticket), Gone(owner), Recheck(owner, span), Resource(name), Resync;
    Fenced: Always, WhileClockSane;
    Leaving: Done(claim), Unknown(claim), Linger(claim, span), Seal { claim, value, keep },
        UnlessAlone { claim, block, floor }, Break { name, ticket, at_once };
    Mode: Exclusive, Shared, Permits;
    Names: One(name), Beginning(text);
    Request: Open, Close(handle), Acquire(handle, claim, busy), Renew(handle, leases), Release(handle, leaving),
        Inspect(handle, query), Record(handle, report), Watch(handle, scope), Forget(number), Pass(span);
    Scope: Client(client), Queues(beginning);
    Shared: Process, Machine, Network;
    Standing: Held(tickets), Waiting { ticket, recheck_in }, Gone(why);
    StoreClock: SinceBoot, Wall;
    Survives: Nothing, Restart, MinorityLoss;
    Why: Left, PassedOn(owner, ticket), Expired, Broken, Sealed, Unknown;
}

impl Codec for Guarantees {
    fn encode(&self, into: &mut Vec<u8>) {
        self.fair.encode(into);
        self.fenced.encode(into);
        self.push.encode(into);
        self.shared.encode(into);
        self.survives.encode(into);
        self.min_ttl.encode(into);
        self.atomic.encode(into);
        self.clock.encode(into);
        // Guarantees may get new fields that this file does not encode. Their text shows all fields, and is compared.
        format!("{self:?}").encode(into);
    }

    fn decode(from: &mut &[u8]) -> Self {
        let mut promised = Self::in_process();
        promised.fair = Codec::decode(from);
        promised.fenced = Codec::decode(from);
        promised.push = Codec::decode(from);
        promised.shared = Codec::decode(from);
        promised.survives = Codec::decode(from);
        promised.min_ttl = Codec::decode(from);
        promised.atomic = Codec::decode(from);
        promised.clock = Codec::decode(from);
        assert_eq!(format!("{promised:?}"), String::decode(from), "a guarantee is not in encoding.rs");
        promised
    }
}

impl Codec for Error {
    fn encode(&self, into: &mut Vec<u8>) {
        let (kind, text, cause) = match self {
            Self::Unavailable { doing, cause, .. } => ("unavailable", doing.as_str(), cause.as_str()),
            Self::Invalid(text) => ("invalid", text.as_str(), ""),
            Self::Unsupported(text) => ("unsupported", text.as_str(), ""),
            Self::Closed(text) => ("closed", *text, ""),
            other => panic!("no store answers with {other:?}"),
        };
        [kind, text, cause].iter().for_each(|part| (*part).to_owned().encode(into));
    }

    fn decode(from: &mut &[u8]) -> Self {
        let [kind, text, cause] = [(); 3].map(|()| String::decode(from));
        match kind.as_str() {
            "unavailable" => Self::unavailable(text, cause),
            "invalid" => Self::Invalid(text),
            "unsupported" => Self::Unsupported(text),
            _ => Self::Closed(text.leak()),
        }
    }
}

impl Codec for Name {
    fn encode(&self, into: &mut Vec<u8>) {
        self.as_str().to_owned().encode(into);
    }

    fn decode(from: &mut &[u8]) -> Self {
        let whole = String::decode(from);
        // With its prefix, a name may be longer than a user may write it. Where the prefix ends is not part of a name.
        let (last, _) = whole.char_indices().next_back().expect("a name is not empty");
        Self::prefixed(&whole[..last], &whole[last..]).expect("one character is a legal name")
    }
}

impl Codec for Demands {
    fn encode(&self, into: &mut Vec<u8>) {
        self.to_vec().encode(into);
    }

    fn decode(from: &mut &[u8]) -> Self {
        Self::of(Codec::decode(from)).expect("they were legal when they were sent")
    }
}

impl Codec for ClaimId {
    fn encode(&self, into: &mut Vec<u8>) {
        self.expose_secret().encode(into);
    }

    fn decode(from: &mut &[u8]) -> Self {
        Self::from_secret(Codec::decode(from))
    }
}

impl<T: Codec, E: Codec> Codec for Result<T, E> {
    fn encode(&self, into: &mut Vec<u8>) {
        self.is_ok().encode(into);
        match self {
            Ok(value) => value.encode(into),
            Err(error) => error.encode(into),
        }
    }

    fn decode(from: &mut &[u8]) -> Self {
        if bool::decode(from) { Ok(T::decode(from)) } else { Err(E::decode(from)) }
    }
}

impl<T: Codec> Codec for Option<T> {
    fn encode(&self, into: &mut Vec<u8>) {
        self.is_some().encode(into);
        self.iter().for_each(|value| value.encode(into));
    }

    fn decode(from: &mut &[u8]) -> Self {
        bool::decode(from).then(|| T::decode(from))
    }
}

impl<T: Codec> Codec for Vec<T> {
    fn encode(&self, into: &mut Vec<u8>) {
        self.len().encode(into);
        self.iter().for_each(|value| value.encode(into));
    }

    fn decode(from: &mut &[u8]) -> Self {
        let length = usize::decode(from);
        (0..length).map(|_| T::decode(from)).collect()
    }
}

impl<T: Codec> Codec for Arc<T> {
    fn encode(&self, into: &mut Vec<u8>) {
        self.as_ref().encode(into);
    }

    fn decode(from: &mut &[u8]) -> Self {
        Self::new(T::decode(from))
    }
}

impl<A: Codec, B: Codec> Codec for (A, B) {
    fn encode(&self, into: &mut Vec<u8>) {
        self.0.encode(into);
        self.1.encode(into);
    }

    fn decode(from: &mut &[u8]) -> Self {
        (A::decode(from), B::decode(from))
    }
}

impl Codec for Bytes {
    fn encode(&self, into: &mut Vec<u8>) {
        self.len().encode(into);
        into.extend_from_slice(self);
    }

    fn decode(from: &mut &[u8]) -> Self {
        let length = usize::decode(from);
        Self::copy_from_slice(from.split_off(..length).expect("a message is whole"))
    }
}

impl Codec for String {
    fn encode(&self, into: &mut Vec<u8>) {
        self.len().encode(into);
        into.extend_from_slice(self.as_bytes());
    }

    fn decode(from: &mut &[u8]) -> Self {
        Self::from_utf8(Bytes::decode(from).into()).expect("it was text when it was sent")
    }
}

impl Codec for Duration {
    fn encode(&self, into: &mut Vec<u8>) {
        (self.as_secs(), self.subsec_nanos()).encode(into);
    }

    fn decode(from: &mut &[u8]) -> Self {
        let (seconds, nanos) = Codec::decode(from);
        Self::new(seconds, nanos)
    }
}

impl<const N: usize> Codec for [u8; N] {
    fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self);
    }

    fn decode(from: &mut &[u8]) -> Self {
        let (first, rest) = from.split_first_chunk().expect("a message is whole");
        *from = rest;
        *first
    }
}

macro_rules! numbers {
    ($($type:ident)+) => {$(
        impl Codec for $type {
            fn encode(&self, into: &mut Vec<u8>) {
                self.to_le_bytes().encode(into);
            }

            fn decode(from: &mut &[u8]) -> Self {
                Self::from_le_bytes(Codec::decode(from))
            }
        }
    )+};
}

numbers! { u32 u64 usize }

impl Codec for bool {
    fn encode(&self, into: &mut Vec<u8>) {
        into.push(u8::from(*self));
    }

    fn decode(from: &mut &[u8]) -> Self {
        <[u8; 1]>::decode(from) == [1]
    }
}

impl Codec for () {
    fn encode(&self, _: &mut Vec<u8>) {}

    fn decode(_: &mut &[u8]) -> Self {}
}
