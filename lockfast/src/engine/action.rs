//! The events of one request, and the actions of the engine. The table between the two is in `phase.rs`.

use std::time::Duration;

use bytes::Bytes;

use crate::claim::{Ticket, Tickets};
use crate::clock::Moment;
use crate::error::{Error, LostWhy};
use crate::store::Standing;

use super::requests::Key;

/// An event of one request.
#[derive(Debug)]
pub(super) enum On<'a> {
    /// Its future is polled. `hold_is_over`: so is the hold that was handed to it.
    Polled { hold_is_over: bool },
    /// Another request of this process with the same terms leads.
    Follows,
    /// It leads the local queue from now on.
    Leads,
    /// Another request of this process hands its hold to it.
    Handed { hold: Key, ticket: Ticket },
    /// Its hold is handed to another request of this process.
    HandsOff,
    /// A request took over the hold that was between.
    Taken,
    /// Its run of hand-offs is over: the store decides whether the hold goes on.
    AsksIfAlone,
    /// The store answered its acquire.
    Admitted(AcquireAnswer),
    /// Its future repeats the acquire.
    Repeats,
    /// A push says that the claim holds with this ticket.
    Pushed { ticket: Ticket, block: u32 },
    /// The store answered a renewal. `waited`: the request was waiting when it was sent.
    Renewed { standing: &'a Standing, ack: Ack, waited: bool },
    /// The store answered the question that the keeper asked beside the acquire.
    AskedBeside { standing: &'a Standing },
    /// Its moment has come.
    Due,
    /// It will never hold.
    Fails(Box<Error>),
    /// Its future, or the client, ends it.
    Withdrawn,
}

/// A lease that the store has acknowledged: asked for at `sent`, of this length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    pub(super) sent: Moment,
    pub(super) ttl: Duration,
}

/// The store's answer to an acquire.
#[derive(Debug)]
pub(super) enum AcquireAnswer {
    /// The claim holds.
    Held { tickets: Tickets, ack: Ack, inline: bool },
    /// The claim is in the queue.
    Queued { ticket: Ticket, ack: Ack, recheck_in: Duration },
    /// The resource is sealed.
    Sealed(Bytes),
    /// The id is out.
    Out,
    /// The outcome is unknown; asked again until `give_up_at`, unless a moment was set before.
    Unknown { give_up_at: Moment },
}

/// The engine's action when a phase changes, or does not.
#[derive(Debug)]
pub(super) enum Action {
    /// Nothing.
    Nothing,
    /// The future waits.
    Wait,
    /// `acquire.rs`: the future asks the store.
    Ask,
    /// `acquire.rs`: the request joins the local queue anew, and is polled again.
    Restart,
    /// `acquire.rs`: its grant came too late to be trusted; its claim is released, and it asks again.
    AskAnew,
    /// `acquire.rs`: the future learns how it ended.
    Answer,
    /// `acquire.rs`: there is a guard.
    Enter(Tickets),
    /// `handoff.rs`: there is a guard for the hold that was handed to it.
    TakeOver(Key, Ticket),
    /// `handoff.rs`: the hold that was handed to it is lost. It becomes the first of its local queue, and asks the store.
    TakeLead(Key),
    /// `mod.rs`: counted as waiting.
    CountWaiting,
    /// `acquire.rs`: its future is woken, and has `grace` to be polled.
    WakeForGrace,
    /// `acquire.rs`: the lock is granted while the future sleeps: the future is woken to pick it up.
    Grant(Tickets, Option<Ack>),
    /// `request.rs`: the lock is granted to a future that is being polled: the same poll picks it up.
    PickUp(Ack),
    /// `acquire.rs`: in the queue; looked at again when the leases ahead have ended.
    Queue { ticket: Ticket, ack: Ack, recheck_in: Duration },
    /// `acquire.rs`: the keeper renews before the request may enter.
    RenewFirst,
    /// Noted: the push overtook the answer to the acquire.
    NoteEarly(Ticket),
    /// `acquire.rs`: the store refuses this claim id for good; the keeper asks with a new one.
    AskWithNewClaim,
    /// `acquire.rs`: the keeper asks again with the same claim, after a pause. At this moment it gives up.
    AskLater(Moment),
    /// `withdraw.rs`: it ended without a lock.
    End,
    /// Looked at again at this moment.
    LookAgain(Moment),
    /// `withdraw.rs`: the request is gone.
    Forget(Rest),
    /// `rejoin.rs`: it fell out of the queue.
    Rejoin(Ticket),
    /// `rejoin.rs`: the keeper asks for it.
    Join,
    /// `rejoin.rs`: the store was silent for too long.
    GiveUp,
    /// `renew.rs`: the hold may be trusted for longer.
    Extend(Ack),
    /// `request.rs`: the lease of a grant was renewed.
    Lease(Ack),
    /// `renew.rs`: the lease is renewed, and the deadline kept.
    Renew,
    /// `renew.rs`: a waiter renews, and asks where it stands.
    Recheck,
    /// `renew.rs`: it still waits.
    StillWaiting { ack: Ack, recheck_in: Duration },
    /// `renew.rs`: the answer may be from before the hand-off; the keeper asks again at once.
    AskOnceMore(Ack),
    /// `renew.rs`: the acquire of a future takes long; the keeper asks the store about its claim. At this moment it gives up.
    AskBeside(Moment),
    /// `renew.rs`: the answer to the acquire has reached the process; the future is given time to be polled.
    ExpectPoll,
    /// `loss.rs`: the hold is lost.
    Lose(LostWhy),
    /// `release.rs`: its grant, or its acquire, is given back. `is_unknown`: the outcome of its acquire is unknown.
    GiveBack { is_unknown: bool },
    /// `handoff.rs`: the next request leads.
    StepAside,
    /// `handoff.rs`: the hold that was handed to it goes to the next.
    HandBack(Key),
    /// `handoff.rs`: the release of its hold has no answer.
    GoOnWithoutAnswer,
}

/// The rest that a request leaves behind when it is gone.
#[derive(Debug)]
pub(super) enum Rest {
    /// Nothing.
    Nothing,
    /// An entry in the local queue.
    LocalEntry,
    /// A hold that was handed to it.
    Hold(Key),
    /// A claim. `is_unknown`: whether its acquire ran, or will run, is unknown.
    Claim { is_unknown: bool },
}
