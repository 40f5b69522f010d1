//! Releases whose answer is overdue. A release is sent by its caller's future, which may never be polled again, or whose
//! runtime may be blocked before the request has left the process. Then the keeper sends the same release on its own
//! connection, so that the next waiter does not wait for the caller.
//!
//! 1. A release has one owner: its caller, until the answer came or the keeper took it over, whichever is first. Only the
//!    owner moves the hold on. What the other hears later decides nothing but what the caller is told.
//! 2. Every verb can be sent twice, and late: the copy that runs second changes nothing.
//! 3. A release whose outcome its caller does not know is the keeper's at once. The caller waits for a moment to be told
//!    what came of it.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::error::Result;
use crate::store::{Leaving, Standing};

use super::book::{Book, Outbox};
use super::slots::Key;

/// How long the answer to a release may take before the keeper repeats it. Longer than most round trips, so that a healthy
/// store is asked once.
pub(crate) const OVERDUE: Duration = Duration::from_millis(100);

/// What the store says to the keeper, or that it has failed for the last time that the caller waits for.
pub(crate) type Repeated = oneshot::Receiver<Result<Standing>>;

/// A release that its caller has sent, as the keeper sees it.
#[derive(Debug)]
pub(crate) struct Sent {
    due: Moment,
    leaving: Leaving,
    /// The slot that waits for the answer.
    hold: Option<Key>,
    owner: Arc<Owner>,
}

/// Which side a release belongs to.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    state: AtomicU8,
    /// What the store said to the keeper.
    repeated: Mutex<Option<Repeated>>,
}

const CALLER: u8 = 0;
const ANSWERED: u8 = 1;
const KEEPER: u8 = 2;

impl Owner {
    /// The caller has its answer, or gives up waiting for it. `false`: the keeper has taken the release over.
    pub(crate) fn answered(&self) -> bool {
        let was = self.state.compare_exchange(CALLER, ANSWERED, Ordering::AcqRel, Ordering::Acquire);
        was != Err(KEEPER)
    }

    fn take_over(&self) -> bool {
        self.state.compare_exchange(CALLER, KEEPER, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn is_answered(&self) -> bool {
        self.state.load(Ordering::Acquire) == ANSWERED
    }

    /// What the store said to the keeper, once it has.
    pub(crate) fn repeated(&self) -> Option<Repeated> {
        self.repeated.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Book {
    /// A caller has sent `leaving` and waits for the answer.
    pub(crate) fn sent(
        &mut self,
        leaving: &Leaving,
        hold: Option<Key>,
        sent: Moment,
        out: &mut Outbox,
    ) -> Option<Arc<Owner>> {
        // Sealing is not handing on, and its caller has to know which of two answers sealed.
        if matches!(leaving, Leaving::Seal { .. }) {
            return None;
        }
        self.next_overdue();
        let owner = Arc::<Owner>::default();
        let due = sent + OVERDUE;
        self.sent.push_back(Sent { due, leaving: leaving.clone(), hold, owner: Arc::clone(&owner) });
        out.ring |= due < self.wakes_at;
        Some(owner)
    }

    /// By 3: the keeper sends what a caller has sent without an answer.
    pub(crate) fn leave_by_keeper(
        &mut self,
        leaving: Leaving,
        hold: Option<Key>,
        now: Moment,
        out: &mut Outbox,
    ) -> Option<Repeated> {
        let leaving = match hold {
            // Whether it still holds is unknown. Requests behind it ask anew; what is left is told to go.
            Some(hold) => {
                let claim = leaving.claim().expect("a hold leaves with its claim").clone();
                self.departed(hold, &claim, now, None, now, out)?
            }
            None => leaving,
        };
        let (tell, told) = oneshot::channel();
        self.depart_as(leaving, None, Some(tell), now, out);
        Some(told)
    }

    /// When the keeper has to look at the first release that has no answer.
    pub(super) fn next_overdue(&mut self) -> Moment {
        while self.sent.front().is_some_and(|first| first.owner.is_answered()) {
            self.sent.pop_front();
        }
        self.sent.front().map_or(Moment::NEVER, |first| first.due)
    }

    /// Takes over the releases that should have been answered by now.
    pub(super) fn repeat_overdue(&mut self, now: Moment, out: &mut Outbox) {
        while self.next_overdue() <= now
            && let Some(Sent { leaving, hold, owner, .. }) = self.sent.pop_front()
        {
            // Order matters: the caller that finds the release taken over finds this too.
            let (tell, told) = oneshot::channel();
            *owner.repeated.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
            if owner.take_over() {
                self.depart_as(leaving, hold, Some(tell), now, out);
            }
        }
    }
}
