//! What goes between two processes of this test, and back, without losing a bit of it. Both ends are the same program, so
//! there is no version and no length to check: what cannot be read is a mistake in this file, and panics.

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

/// What a process is asked for. Each request has a number; that of an `Open` is how the others name their handle.
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
    /// Nobody waits for the answer to this request any more. Not answered.
    Forget(u64),
    /// Moves the clock of the process.
    Pass(Duration),
}

/// Sends one message: the number of the request that it is, or belongs to, and what it says.
pub fn send(mut to: &UnixStream, number: u64, body: &impl Travels) -> io::Result<()> {
    let mut message = vec![0; 4];
    number.pack(&mut message);
    body.pack(&mut message);
    let length = u32::try_from(message.len() - 4).expect("no message has four gigabytes");
    message[..4].copy_from_slice(&length.to_le_bytes());
    to.write_all(&message)
}

/// The next message; an error when the other side is gone.
pub fn receive(mut from: &UnixStream) -> io::Result<(u64, Vec<u8>)> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut message = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut message)?;
    Ok((unpacked(&message[..8]), message.split_off(8)))
}

/// Reads all of a message.
pub fn unpacked<T: Travels>(mut message: &[u8]) -> T {
    let value = T::unpack(&mut message);
    assert!(message.is_empty(), "{} bytes too many", message.len());
    value
}

/// What can be sent.
pub trait Travels: Sized {
    fn pack(&self, into: &mut Vec<u8>);
    fn unpack(from: &mut &[u8]) -> Self;
}

/// Structs, with all of their fields: one that is missing here does not compile.
macro_rules! structs {
    ($($type:ident $({ $($field:ident),+ })? $(( $($place:ident),+ ))?;)+) => {$(
        impl Travels for $type {
            fn pack(&self, into: &mut Vec<u8>) {
                let $type $({ $($field),+ })? $(( $($place),+ ))? = self;
                $($($field.pack(into);)+)? $($($place.pack(into);)+)?
            }

            fn unpack(from: &mut &[u8]) -> Self {
                $($(let $field = Travels::unpack(from);)+)? $($(let $place = Travels::unpack(from);)+)?
                $type $({ $($field),+ })? $(( $($place),+ ))?
            }
        }
    )+};
}

/// Enums, as the name of the variant and its fields. One that is missing here panics when it is sent.
macro_rules! enums {
    ($($type:ident: $($variant:ident $({ $($field:ident),+ })? $(( $($place:ident),+ ))?),+;)+) => {$(
        impl Travels for $type {
            fn pack(&self, into: &mut Vec<u8>) {
                match self {
                    $($type::$variant $({ $($field),+ })? $(( $($place),+ ))? => {
                        stringify!($variant).to_owned().pack(into);
                        $($($field.pack(into);)+)? $($($place.pack(into);)+)?
                    })+
                    #[allow(unreachable_patterns)]
                    _ => panic!("{self:?} is not in wire.rs"),
                }
            }

            fn unpack(from: &mut &[u8]) -> Self {
                let variant = String::unpack(from);
                $(if variant == stringify!($variant) {
                    $($(let $field = Travels::unpack(from);)+)? $($(let $place = Travels::unpack(from);)+)?
                    return $type::$variant $({ $($field),+ })? $(( $($place),+ ))?;
                })+
                panic!("{variant} is not in wire.rs")
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

impl Travels for Guarantees {
    fn pack(&self, into: &mut Vec<u8>) {
        self.fair.pack(into);
        self.fenced.pack(into);
        self.push.pack(into);
        self.shared.pack(into);
        self.survives.pack(into);
        self.min_ttl.pack(into);
        self.atomic.pack(into);
        self.clock.pack(into);
        // Guarantees may get new fields without this file noticing; their text has them.
        format!("{self:?}").pack(into);
    }

    fn unpack(from: &mut &[u8]) -> Self {
        let mut promised = Self::in_process();
        promised.fair = Travels::unpack(from);
        promised.fenced = Travels::unpack(from);
        promised.push = Travels::unpack(from);
        promised.shared = Travels::unpack(from);
        promised.survives = Travels::unpack(from);
        promised.min_ttl = Travels::unpack(from);
        promised.atomic = Travels::unpack(from);
        promised.clock = Travels::unpack(from);
        assert_eq!(format!("{promised:?}"), String::unpack(from), "a guarantee is not in wire.rs");
        promised
    }
}

impl Travels for Error {
    fn pack(&self, into: &mut Vec<u8>) {
        let (kind, text, cause) = match self {
            Self::Unavailable { doing, cause, .. } => ("unavailable", doing.as_str(), cause.as_str()),
            Self::Invalid(text) => ("invalid", text.as_str(), ""),
            Self::Unsupported(text) => ("unsupported", text.as_str(), ""),
            Self::Closed(text) => ("closed", *text, ""),
            other => panic!("no store answers with {other:?}"),
        };
        [kind, text, cause].iter().for_each(|part| (*part).to_owned().pack(into));
    }

    fn unpack(from: &mut &[u8]) -> Self {
        let [kind, text, cause] = [(); 3].map(|()| String::unpack(from));
        match kind.as_str() {
            "unavailable" => Self::unavailable(text, cause),
            "invalid" => Self::Invalid(text),
            "unsupported" => Self::Unsupported(text),
            _ => Self::Closed(text.leak()),
        }
    }
}

impl Travels for Name {
    fn pack(&self, into: &mut Vec<u8>) {
        self.as_str().to_owned().pack(into);
    }

    fn unpack(from: &mut &[u8]) -> Self {
        let whole = String::unpack(from);
        // With a prefix it may be longer than what a user may write. Where the prefix ends is not part of a name.
        let (last, _) = whole.char_indices().next_back().expect("a name is not empty");
        Self::prefixed(&whole[..last], &whole[last..]).expect("one letter is a legal name")
    }
}

impl Travels for Demands {
    fn pack(&self, into: &mut Vec<u8>) {
        self.to_vec().pack(into);
    }

    fn unpack(from: &mut &[u8]) -> Self {
        Self::of(Travels::unpack(from)).expect("they were legal when they were sent")
    }
}

impl Travels for ClaimId {
    fn pack(&self, into: &mut Vec<u8>) {
        self.expose_secret().pack(into);
    }

    fn unpack(from: &mut &[u8]) -> Self {
        Self::from_secret(Travels::unpack(from))
    }
}

impl<T: Travels, E: Travels> Travels for Result<T, E> {
    fn pack(&self, into: &mut Vec<u8>) {
        self.is_ok().pack(into);
        match self {
            Ok(value) => value.pack(into),
            Err(error) => error.pack(into),
        }
    }

    fn unpack(from: &mut &[u8]) -> Self {
        if bool::unpack(from) { Ok(T::unpack(from)) } else { Err(E::unpack(from)) }
    }
}

impl<T: Travels> Travels for Option<T> {
    fn pack(&self, into: &mut Vec<u8>) {
        self.is_some().pack(into);
        self.iter().for_each(|value| value.pack(into));
    }

    fn unpack(from: &mut &[u8]) -> Self {
        bool::unpack(from).then(|| T::unpack(from))
    }
}

impl<T: Travels> Travels for Vec<T> {
    fn pack(&self, into: &mut Vec<u8>) {
        self.len().pack(into);
        self.iter().for_each(|value| value.pack(into));
    }

    fn unpack(from: &mut &[u8]) -> Self {
        let length = usize::unpack(from);
        (0..length).map(|_| T::unpack(from)).collect()
    }
}

impl<T: Travels> Travels for Arc<T> {
    fn pack(&self, into: &mut Vec<u8>) {
        self.as_ref().pack(into);
    }

    fn unpack(from: &mut &[u8]) -> Self {
        Self::new(T::unpack(from))
    }
}

impl<A: Travels, B: Travels> Travels for (A, B) {
    fn pack(&self, into: &mut Vec<u8>) {
        self.0.pack(into);
        self.1.pack(into);
    }

    fn unpack(from: &mut &[u8]) -> Self {
        (A::unpack(from), B::unpack(from))
    }
}

impl Travels for Bytes {
    fn pack(&self, into: &mut Vec<u8>) {
        self.len().pack(into);
        into.extend_from_slice(self);
    }

    fn unpack(from: &mut &[u8]) -> Self {
        let length = usize::unpack(from);
        Self::copy_from_slice(from.split_off(..length).expect("a message is whole"))
    }
}

impl Travels for String {
    fn pack(&self, into: &mut Vec<u8>) {
        self.len().pack(into);
        into.extend_from_slice(self.as_bytes());
    }

    fn unpack(from: &mut &[u8]) -> Self {
        Self::from_utf8(Bytes::unpack(from).into()).expect("it was text when it was sent")
    }
}

impl Travels for Duration {
    fn pack(&self, into: &mut Vec<u8>) {
        (self.as_secs(), self.subsec_nanos()).pack(into);
    }

    fn unpack(from: &mut &[u8]) -> Self {
        let (seconds, nanos) = Travels::unpack(from);
        Self::new(seconds, nanos)
    }
}

impl<const N: usize> Travels for [u8; N] {
    fn pack(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self);
    }

    fn unpack(from: &mut &[u8]) -> Self {
        let (first, rest) = from.split_first_chunk().expect("a message is whole");
        *from = rest;
        *first
    }
}

macro_rules! numbers {
    ($($type:ident)+) => {$(
        impl Travels for $type {
            fn pack(&self, into: &mut Vec<u8>) {
                self.to_le_bytes().pack(into);
            }

            fn unpack(from: &mut &[u8]) -> Self {
                Self::from_le_bytes(Travels::unpack(from))
            }
        }
    )+};
}

numbers! { u32 u64 usize }

impl Travels for bool {
    fn pack(&self, into: &mut Vec<u8>) {
        into.push(u8::from(*self));
    }

    fn unpack(from: &mut &[u8]) -> Self {
        <[u8; 1]>::unpack(from) == [1]
    }
}

impl Travels for () {
    fn pack(&self, _: &mut Vec<u8>) {}

    fn unpack(_: &mut &[u8]) -> Self {}
}
