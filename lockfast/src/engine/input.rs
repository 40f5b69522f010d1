//! The inputs of an engine. Plain data: inputs can be printed, recorded and replayed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::claim::{Claim, ClaimId, Ticket};
use crate::clock::Moment;
use crate::error::Result;
use crate::store::{Admission, Change, Leaving, Report, Standing};

use super::requests::Key;
use super::terms::Terms;

/// An input: from callers (their futures and guards) or from the keeper (the store's answers, pushes, time).
#[derive(Clone, Debug)]
pub enum Input {
    /// A caller asks for a lock. Answered with [`Next::Entered`](super::Next::Entered); the caller then polls.
    Enter(Arc<Terms>),
    /// The future of this request was polled.
    Polled(Key),
    /// The store answered the acquire that the request's own future sent.
    Admitted {
        /// The acquire.
        asked: AcquireCall,
        /// The store's answer.
        answer: Result<Admission>,
    },
    /// The store refused the acquire of a request that does not wait.
    Refused(Key),
    /// The acquire has no answer. The future sleeps until `until` and sends it again then.
    Pausing {
        /// The acquire.
        asked: AcquireCall,
        /// When the future goes on.
        until: Moment,
    },
    /// The future is about to send the same acquire again.
    Repeating(AcquireCall),
    /// The future of a request that does not hold was dropped.
    Withdrawn(Key),
    /// The patience of a request ended.
    TimedOut(Key),
    /// A guard is given back, and its caller waits for the answer.
    Release {
        /// The hold.
        hold: Key,
        /// How.
        ending: Ending,
    },
    /// A guard was dropped.
    Dropped(Key),
    /// A release that a caller sent was not answered at once.
    Sent {
        /// The release.
        leaving: Leaving,
        /// The hold that depends on the answer.
        hold: Option<Key>,
        /// When it was sent.
        sent: Moment,
    },
    /// The caller of a release has its answer, or ends waiting for it.
    Answered {
        /// The release.
        release: ReleaseId,
        /// Whether the caller waits for the store's answer to the keeper.
        waits: bool,
    },
    /// The outcome of a release that a caller sent is unknown: the keeper sends it again.
    Unanswered {
        /// The release.
        leaving: Leaving,
        /// The hold that depends on the answer.
        hold: Option<Key>,
        /// Whether the caller waits for the store's answer to the keeper.
        waits: bool,
    },
    /// The store answered a caller's [`Leaving::UnlessAlone`].
    Left {
        /// The hold.
        hold: Key,
        /// Its claim.
        claim: Arc<Claim>,
        /// When the release was sent.
        sent: Moment,
        /// The store's answer.
        standing: Option<Standing>,
    },
    /// The store answered a renewal that a guard sent.
    Extended {
        /// The renewal.
        renewal: Renewal,
        /// When it was sent.
        sent: Moment,
        /// The store's answer.
        standing: Standing,
    },
    /// A guard became a token: the hold is forgotten without a word to the store.
    LetGo(Key),
    /// The hold of a token was given back.
    TokenReleased,
    /// The guard of this hold has seen its deadline pass.
    SeenOver(Key),
    /// The client ends.
    Close(Closing),
    /// The report is to be made now.
    ReportNow,
    /// Time has passed.
    Elapsed,
    /// The store answered an acquire that the keeper sent.
    Joined {
        /// The acquire.
        asked: AcquireCall,
        /// The ticket that the request had before it fell out of the queue.
        stood: Option<Ticket>,
        /// The store's answer.
        answer: Result<Admission>,
    },
    /// The store answered a batch of renewals.
    Renewed {
        /// The batch.
        renewals: Vec<Renewal>,
        /// When it was sent.
        sent: Moment,
        /// The store's answers, in the same order.
        answer: Result<Vec<Standing>>,
    },
    /// The store answered a batch of releases.
    Released {
        /// The batch.
        releases: Vec<Release>,
        /// When it was sent.
        sent: Moment,
        /// The store's answers, in the same order.
        answer: Result<Vec<Standing>>,
    },
    /// The store answered a report.
    Reported {
        /// The report.
        report: Report,
        /// Whether the store has it.
        is_ok: bool,
    },
    /// A push of the store.
    Pushed(Change),
    /// The reply to this release was lost; it may have named the next holder.
    Missed(Leaving),
    /// Ids for claims to come.
    Ids(Vec<ClaimId>),
}

/// One call of [`Store::acquire`](crate::store::Store::acquire), for one request.
#[derive(Clone, Debug)]
pub struct AcquireCall {
    /// The request.
    pub key: Key,
    /// Its claim.
    pub claim: Arc<Claim>,
    /// The moment before it was sent: the lease counts from there.
    pub sent: Moment,
    /// Sent by the request's own future; otherwise by the keeper.
    pub inline: bool,
    /// An earlier acquire of this claim has no answer, and may still run.
    pub unsure: bool,
}

/// A renewal.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// The request.
    pub key: Key,
    /// Its claim.
    pub claim: Arc<Claim>,
    /// The lease that is asked for. Zero only asks: no verb shortens a lease.
    pub ttl: Duration,
    /// Whether the request waited when this was sent.
    pub waits: bool,
    /// Sent by the keeper beside the acquire of a future. That the claim holds counts; any other answer may be older than
    /// the acquire.
    pub is_beside: bool,
}

/// A release that the keeper sends.
#[derive(Clone, Debug)]
pub struct Release {
    /// How the claim leaves.
    pub leaving: Leaving,
    /// The hold that depends on the answer.
    pub hold: Option<Key>,
    /// No repeat is sent later, since the lease has ended by then.
    pub until: Moment,
    /// How often it was sent without an answer.
    pub tries: u32,
    /// The number under which a caller waits for the outcome.
    pub caller: Option<ReleaseId>,
    /// Sent in a batch of its own, because the store refused the batch that it was in.
    pub alone: bool,
}

/// The number of a release that a caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReleaseId(pub u64);

/// How a hold ends.
#[derive(Clone, Debug)]
pub enum Ending {
    /// It is given back.
    Release,
    /// It is given back for good: the resource answers with `value` from now on.
    Seal {
        /// The value that is kept.
        value: Bytes,
        /// For how long.
        keep: Duration,
    },
}

/// Why a client admits no more requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// It was shut down.
    ShutDown,
    /// Its keeper has panicked.
    KeeperPanicked,
}

impl Closing {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Self::ShutDown => "it was shut down",
            Self::KeeperPanicked => "its keeper's thread has panicked; connect again",
        }
    }
}
