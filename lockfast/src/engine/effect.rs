//! The effects of an engine. Plain data: the client carries them out, the simulation as well.

use std::sync::Arc;

use bytes::Bytes;

use crate::claim::{ClaimHash, Ticket};
use crate::clock::Moment;
use crate::error::{Error, LostWhy, Result};
use crate::event::EventKind;
use crate::store::{Leaving, Report, Standing};

use super::input::{AcquireCall, Release, ReleaseId, Renewal};
use super::requests::Key;
use super::terms::Terms;

/// The next step of the source of an input.
#[derive(Clone, Debug)]
pub enum Next {
    /// Nothing more.
    Nothing,
    /// There is a new request; its future is polled at once.
    Entered(Key),
    /// The future waits until it is woken.
    Wait,
    /// The future sends this acquire.
    Ask(AcquireCall),
    /// There is a guard.
    Enter(GuardParts),
    /// The resource is sealed with this value.
    Sealed(Bytes),
    /// The request will never hold.
    Fail(Box<Error>),
    /// The caller sends this release.
    Send {
        /// The release.
        leaving: Leaving,
        /// Whether the hold depends on the answer ([`Input::Left`](super::Input::Left)).
        keeps: bool,
        /// How the hold was lost, if it was lost before.
        lost: Option<LostWhy>,
    },
    /// The hold has ended, and the store needs no release.
    Done {
        /// How the hold was lost, if it was lost before.
        lost: Option<LostWhy>,
    },
    /// The release is watched under this number: if no answer comes, the keeper repeats it.
    Watched(ReleaseId),
    /// The release belongs to its caller.
    Mine,
    /// The keeper has taken the release over: its caller gets the outcome by [`Effect::Tell`].
    TakenOver(ReleaseId),
    /// The keeper had taken the release over, and this was the store's answer; `None` when it decides nothing.
    Told(Option<Box<Result<Standing>>>),
    /// The caller sends this report.
    Report(Box<Report>),
    /// Whether the hold was there to be let go of.
    LetGo(bool),
    /// The keeper looks again at this moment.
    At(Moment),
}

/// The parts of a guard.
#[derive(Clone, Debug)]
pub struct GuardParts {
    /// The hold.
    pub hold: Key,
    /// Its fencing token.
    pub fence: Ticket,
    /// The terms of its request.
    pub terms: Arc<Terms>,
    /// Until when it may be trusted.
    pub until: Moment,
    /// How it is lost when that moment has come.
    pub why: LostWhy,
}

/// An effect, carried out by the client.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Wakes the future of this request.
    Wake(Key),
    /// The hold may be trusted for longer. If its guard has seen the old deadline pass, the client answers with
    /// [`Input::SeenOver`](super::Input::SeenOver).
    Trust {
        /// The hold.
        hold: Key,
        /// Until when.
        until: Moment,
        /// How it is lost when that moment has come.
        why: LostWhy,
    },
    /// The hold is lost: its guard's deadline ends, and its watchers are woken.
    Lost {
        /// The hold.
        hold: Key,
        /// The terms of its request.
        terms: Arc<Terms>,
        /// How it was lost.
        why: LostWhy,
    },
    /// Delivers an event to its subscribers.
    Emit(Box<UntimedEvent>),
    /// Gives the caller of a release the store's answer to the keeper; `None` when it decides nothing.
    Tell(ReleaseId, Option<Box<Result<Standing>>>),
    /// The keeper sends an acquire; with the old ticket if the request fell out of the queue.
    Acquire(AcquireCall, Option<Ticket>),
    /// The keeper sends a renewal, in one batch with the others.
    Renew(Renewal),
    /// The keeper sends a release, in one batch with the others.
    Release(Box<Release>),
    /// The keeper sends a report.
    Record(Box<Report>),
}

/// An event without the time of day, which the engine does not know: the client adds it.
#[derive(Clone, Debug)]
pub struct UntimedEvent {
    /// The terms of its request.
    pub terms: Arc<Terms>,
    /// The hash of its claim's id.
    pub owner: Option<ClaimHash>,
    /// The fencing token, once held.
    pub fence: Option<Ticket>,
    /// Its kind.
    pub kind: EventKind,
}

/// The effects of one or more inputs, in order.
#[derive(Debug, Default)]
pub struct Effects {
    /// In the order in which they are carried out.
    pub list: Vec<Effect>,
    /// The keeper has something to do before it meant to look again.
    pub wakes_keeper: bool,
}

impl Effects {
    pub(super) fn push(&mut self, effect: Effect) {
        self.list.push(effect);
    }

    pub(super) fn wake(&mut self, key: Key) {
        self.list.push(Effect::Wake(key));
    }
}
