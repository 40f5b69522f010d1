//! The written and the unwritten fields of each type. The patterns name every field, so that a new one does not compile until
//! it is listed.

use crate::claim::{Claim, Demand, Tickets};
use crate::engine::{
    AcquireCall, Closing, Effect, Ending, GuardParts, Input, Next, Release, Renewal, Terms, UntimedEvent,
};
use crate::error::LostWhy;
use crate::event::EventKind;
use crate::store::{Admission, BusyWith, Change, Counters, Leaving, Report, Standing, Why};

#[cfg(feature = "engine")]
use super::read::{Parts, Read, Unreadable};
use super::write::{Write, object, variant};
#[cfg(feature = "engine")]
use crate::engine::Validity;

/// Written only: results of the engine. Fields behind a `;` are not written.
macro_rules! written {
    (struct $type:ident { $($field:ident),* $(; $($unwritten:ident),*)? }) => {
        impl Write for $type {
            fn write(&self, out: &mut String) {
                let Self { $($field,)* $($($unwritten: _,)*)? } = self;
                object(&[$((stringify!($field), $field)),*], out);
            }
        }
    };
    (enum $type:ident {
        $($variant:ident $(($($item:ident),+))? $({ $($field:ident),* $(; $($unwritten:ident),*)? })?),* $(,)?
    }) => {
        impl Write for $type {
            fn write(&self, out: &mut String) {
                match self {
                    $(Self::$variant $(($($item),+))? $({ $($field,)* $($($unwritten: _,)*)? })? => variant(
                        stringify!($variant),
                        &[$($((stringify!($item), $item)),+)? $($((stringify!($field), $field)),*)?],
                        out,
                    ),)*
                }
            }
        }
    };
}

/// Written, and read by a replay. An unwritten field is read as the value behind the `;`.
macro_rules! recorded {
    (struct $type:ident { $($field:ident),* $(; $($unwritten:ident: $read:expr),*)? }) => {
        written! { struct $type { $($field),* $(; $($unwritten),*)? } }

        #[cfg(feature = "engine")]
        impl Read for $type {
            fn read(value: &serde_json::Value) -> Result<Self, Unreadable> {
                let parts = Parts::of(value, stringify!($type))?;
                Ok(Self { $($field: parts.get(stringify!($field))?,)* $($($unwritten: $read,)*)? })
            }
        }
    };
    (enum $type:ident { $($variant:ident $(($($item:ident),+))? $({ $($field:ident),+ })?),* $(,)? }) => {
        written! { enum $type { $($variant $(($($item),+))? $({ $($field),+ })?),* } }

        #[cfg(feature = "engine")]
        impl Read for $type {
            fn read(value: &serde_json::Value) -> Result<Self, Unreadable> {
                let parts = Parts::of_variant(value, stringify!($type))?;
                Ok(match parts.variant() {
                    $(stringify!($variant) => Self::$variant
                        $(($(parts.get(stringify!($item))?),+))?
                        $({ $($field: parts.get(stringify!($field))?),+ })?,)*
                    _ => return Err(parts.unknown()),
                })
            }
        }
    };
}

recorded! {
    enum Input {
        Enter(terms),
        Polled(key),
        Admitted { asked, answer },
        Refused(key),
        Pausing { asked, until },
        Repeating(asked),
        Withdrawn(key),
        TimedOut(key),
        Release { hold, ending },
        Dropped(hold),
        Sent { leaving, hold, sent },
        Answered { release, waits },
        Unanswered { leaving, hold, waits },
        Left { hold, claim, sent, standing },
        Extended { renewal, sent, standing },
        LetGo(hold),
        TokenReleased,
        SeenOver(hold),
        Close(why),
        ReportNow,
        Elapsed,
        Joined { asked, stood, answer },
        Renewed { renewals, sent, answer },
        Released { releases, sent, answer },
        Reported { report, is_ok },
        Pushed(change),
        Missed(leaving),
        Ids(ids),
    }
}

recorded! {
    struct Terms {
        demands, ttl, renew_every, hold_at_least, hold_at_most, hands_off, detached;
        note: Default::default(), trace: [0; 16], validity: Validity::new()
    }
}
recorded! { struct Claim { id, client, demands, ttl, block, floor, detached; note: Default::default() } }
recorded! { struct Demand { name, capacity, weight } }
recorded! { struct Tickets { first, count } }
recorded! { struct AcquireCall { key, claim, sent, inline, unsure } }
recorded! { struct Renewal { key, claim, ttl, waits, is_beside } }
recorded! { struct Release { leaving, hold, until, tries, caller, alone } }
recorded! { enum Ending { Release, Seal { value, keep } } }
recorded! { enum Closing { ShutDown, KeeperPanicked } }
recorded! {
    enum Leaving {
        Done(claim),
        Unknown(claim),
        Linger(claim, rest),
        Seal { claim, value, keep },
        UnlessAlone { claim, block, floor },
        Break { name, ticket, at_once },
    }
}
recorded! {
    enum Admission {
        Held(tickets),
        Queued { ticket, position, recheck_in },
        Refused(busy),
        Sealed(value),
        Gone(why),
    }
}
// A holder is shown with its note.
recorded! { struct BusyWith { held_for, position; holder: None } }
recorded! { enum Standing { Held(tickets), Waiting { ticket, recheck_in }, Gone(why) } }
recorded! { enum Why { Left, PassedOn(owner, ticket), Expired, Broken, Sealed, Unknown } }
recorded! { enum Change { Held(owner, ticket), Gone(owner), Recheck(owner, span), Resource(name), Resync } }
recorded! { struct Report { client, counters, entered, left, keep } }
recorded! { struct Counters { acquired, released, contended, lost } }

written! {
    enum Next {
        Nothing,
        Entered(key),
        Wait,
        Ask(asked),
        Enter(held),
        Sealed(value),
        Fail(error),
        Send { leaving, keeps, lost },
        Done { lost },
        Watched(release),
        Mine,
        TakenOver(release),
        Told(said),
        Report(report),
        LetGo(was_there),
        At(moment),
    }
}
written! {
    enum Effect {
        Wake(key),
        Trust { hold, until, why },
        Lost { hold, terms, why },
        Emit(event),
        Tell(release, said),
        Acquire(asked, stood),
        Renew(renewal),
        Release(release),
        Record(report),
    }
}
written! { struct GuardParts { hold, fence, terms, until, why } }
written! { struct UntimedEvent { terms, owner, fence, kind } }
// A cause is the text of an error.
written! {
    enum EventKind {
        Waiting,
        Unanswered { ; cause },
        Answered,
        Acquired { waited },
        Renewed { margin },
        AtRisk { remaining; cause },
        Lost { why },
        Released { held },
        TimedOut { waited },
        Cancelled,
    }
}
written! { enum LostWhy { Expired, Evicted, Broken, HeldAtMost, Shutdown, Overtaken } }
