//! The guard of a held lock.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::claim::{Claim, ClaimHash, Ticket};
use crate::clock::Moment;
use crate::engine::{Ending, Input, Key, Next, Renewal, Terms, UNAVAILABLE_AFTER, Validity, margin};
use crate::error::{Error, LostWhy, Result};
use crate::store::{Lease, Standing};

use super::Client;
use super::lost::LossFuture;
use super::release::InFlightRelease;
use super::repeat::{Repeats, Reply, no_answer};

/// A lock that is held: exclusive, shared, some permits, or several names at once. The client's keeper (watchdog thread) renews its
/// lease until it is released.
///
/// Dropping it releases the lock without waiting for the answer; it never blocks, spawns or panics, inside a runtime or
/// outside. [`release`](Self::release) waits for the answer.
///
/// ```
/// # use lockfast::Locks;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
/// # let locks = Locks::in_memory();
/// let guard = locks.mutex("account:123").lock().await?;
/// let fence = guard.fence()?;        // send it with every write, so that stale ones can be refused
/// guard.check()?;                    // still held? cheap enough to call before every step
/// guard.release().await?;
/// # assert!(fence > 0);
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct Guard {
    pub(super) client: Arc<Client>,
    pub(super) hold: Key,
    pub(super) fence: Ticket,
    pub(super) terms: Arc<Terms>,
    /// It was released or detached.
    pub(super) is_done: bool,
}

impl Guard {
    pub(crate) fn new(client: Arc<Client>, hold: Key, fence: Ticket, terms: Arc<Terms>) -> Self {
        Self { client, hold, fence, terms, is_done: false }
    }

    /// The fencing token: higher than that of every earlier holder that could not share the lock. If every write carries it, the
    /// receiver can refuse the write of a stale holder. Between holders that can share (readers, permits) it only tells them apart.
    ///
    /// Fails as [`Unsupported`](Error::Unsupported) if the names were acquired in several steps, each with a fence of its
    /// own: then use [`fence_of`](Self::fence_of).
    pub fn fence(&self) -> Result<u64> {
        Ok(self.fence.0)
    }

    /// The fencing token for one of the names that are held.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let both = locks.multi(["a", "b"]).lock().await?;
    /// assert!(both.fence_of("a")? > 0);
    /// assert!(both.fence_of("c").is_err());
    /// # Ok(()) }
    /// ```
    pub fn fence_of(&self, name: &str) -> Result<u64> {
        let held = self.terms.demands.iter().any(|demand| self.client.shown(&demand.name) == name);
        match held {
            true => Ok(self.fence.0),
            false => Err(Error::invalid(format!("{name:?} is not held by this guard; use one of its own names"))),
        }
    }

    /// The name of this holder in listings and events: the hash of its claim's id. A label, not the right to release.
    pub fn owner(&self) -> ClaimHash {
        self.claim().map_or(ClaimHash([0; 16]), |claim| claim.id.hash())
    }

    /// The names that are held, as they were written.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.terms.demands.iter().map(|demand| self.client.shown(&demand.name))
    }

    /// How long the lock is certainly still held if no renewal succeeds from now on; zero if it is lost.
    pub fn remaining(&self) -> Duration {
        self.valid_until().since(self.client.clock.now())
    }

    /// The moment of the client's [`Clock`](crate::Clock) until which the lock is certainly still held if no renewal succeeds
    /// from now on; [`Moment::START`] if it is lost. For programs that pass the deadline on, for example to a process that kills
    /// another one in time.
    pub fn valid_until(&self) -> Moment {
        if self.validity().is_over(self.client.clock.now()) { Moment::START } else { self.validity().until() }
    }

    /// Fails as [`Lost`](Error::Lost) if the lock is not held any more, judged by the clock now. Call it before every step that must
    /// not happen twice.
    pub fn check(&self) -> Result<()> {
        match self.validity().is_over(self.client.clock.now()) {
            false => Ok(()),
            true => Err(self.lost_error()),
        }
    }

    /// Waits until the lock is lost, and returns why.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future changes nothing.
    ///
    /// ```
    /// # use lockfast::{Locks, LostWhy};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let guard = locks.mutex("report").hold_at_most(Duration::from_millis(1)).lock().await?;
    /// assert_eq!(guard.lost().await, LostWhy::HeldAtMost);
    /// # Ok(()) }
    /// ```
    pub fn lost(&self) -> impl Future<Output = LostWhy> + Send + '_ {
        LossFuture::new(self)
    }

    /// Runs `callback` on the keeper's own thread when the lock is lost, even while the caller's runtime is blocked. It must
    /// return quickly: the same thread renews all other locks of this client. It is dropped without a call when the guard is
    /// released.
    pub fn on_lost(&self, callback: impl FnOnce(LostWhy) + Send + 'static) {
        let why = self.validity().why();
        let alone = self.client.with_carrier(|carrier, _| carrier.add_callback(self.hold, Box::new(callback), why));
        // The keeper has ended with the client: no other thread would run it.
        if let Some(callback) = alone {
            callback(why);
        }
    }

    /// Extends the lease so that at least `span` remains, counted from the call. Never shortens it.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future leaves the lock as it was, or extended.
    pub async fn extend(&self, span: Duration) -> Result<()> {
        if span.is_zero() || span > crate::store::LONGEST_TTL {
            return Err(Error::invalid(format!("cannot extend by {span:?}; use more than nothing and at most 7 days")));
        }
        self.client.check_usable()?;
        self.check()?;
        let claim = self.claim().ok_or_else(|| self.lost_error())?;
        // The lease is longer by what the safety margin subtracts.
        let ttl = (span + margin(span) * 2).min(crate::store::LONGEST_TTL);
        let sent = self.client.clock.now();
        if self.terms.hold_at_most.is_some() && self.cap() < sent + span {
            return Err(Error::invalid(format!("cannot extend by {span:?} beyond what hold_at_most allows")));
        }
        let renewal = Renewal { key: self.hold, claim: Arc::clone(&claim), ttl, waits: false, is_beside: false };
        let leases = [Lease { claim: Arc::clone(&claim), ttl }];
        // After its deadline the lock is lost, whatever the store answers.
        let repeats = Repeats::of(sent).before(self.validity().until());
        let renew = || self.client.store.renew(&leases);
        let Reply { answer, sent, .. } = self.client.ask(repeats, sent + UNAVAILABLE_AFTER, renew).await;
        let standings = answer.map_err(|error| self.client.explain(error, "extending", &claim.demands))?;
        for standing in standings {
            self.client.tell(Input::Extended { renewal: renewal.clone(), sent, standing });
        }
        self.check()
    }

    /// Releases the lock and waits for the answer. [`Lost`](Error::Lost) means that it was not held to the end. After
    /// [`Unavailable`](Error::Unavailable), which is returned within three seconds of a failed request, the keeper keeps trying; at
    /// the latest the lease ends by itself.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future still releases the lock, as dropping the guard does.
    pub async fn release(self) -> Result<()> {
        self.leave(Ending::Release).await
    }

    /// Releases the lock and seals its name with `value`, in one step.
    pub(crate) async fn seal(self, value: Bytes, keep: Duration) -> Result<()> {
        self.leave(Ending::Seal { value, keep }).await
    }

    async fn leave(mut self, ending: Ending) -> Result<()> {
        self.is_done = true;
        self.client.check_usable()?;
        // In a block of its own, so that its variables take no room in the future that waits for the store.
        let (mut in_flight, mut sent) = {
            let hold = self.hold;
            let (next, now) = self.client.with_carrier(|carrier, now| {
                let next = carrier.tell(Input::Release { hold, ending }, now);
                // Order matters: if the hold was over, the input has notified its watchers of the loss.
                carrier.forget_watchers(hold);
                if matches!(next, Next::Send { .. }) {
                    self.client.releases.begin();
                }
                (next, now)
            });
            match next {
                Next::Send { leaving, keeps, lost } => {
                    (InFlightRelease { guard: &self, leaving: Some(leaving), watched: None, keeps, lost }, now)
                }
                Next::Done { lost: Some(why) } => return Err(self.lost_because(why)),
                // The engine does not know the hold any more: it ended with the client.
                _ if self.client.is_closed() => return self.check(),
                _ => return Ok(()),
            }
        };
        loop {
            let answer = in_flight.send(sent).await;
            let taken_over = in_flight.stop_watching(true);
            let standing = match answer {
                Some(Ok(standings)) => standings.into_iter().next(),
                // Boxed, so that it takes no room in the futures of releases that are answered.
                Some(Err(error)) => return Box::pin(in_flight.verdict_of_repeat(sent, error, taken_over)).await,
                None => return Err(in_flight.lost_error().unwrap_or_else(|| in_flight.explain(no_answer()))),
            };
            if let Some(reply) = taken_over {
                return in_flight.verdict_of_both(standing, reply).await;
            }
            let left = in_flight
                .leaving
                .take()
                .expect("`leaving` is taken only when the keeper takes the release over, which returned above");
            let verdict = in_flight.verdict(standing.as_ref());
            if !in_flight.keeps {
                return verdict;
            }
            let claim = left.claim().expect("a hold leaves with its claim").clone();
            let has_left = matches!(standing, Some(Standing::Gone(_)));
            let next = self.client.tell(Input::Left { hold: self.hold, claim, sent, standing });
            let Next::Send { leaving, .. } = next else { return verdict };
            (in_flight.leaving, in_flight.keeps) = (Some(leaving), false);
            if has_left {
                // The keeper sends the remaining release. The store does not know its claim any more, which is no loss.
                return verdict;
            }
            sent = self.client.clock.now();
        }
    }

    pub(super) fn validity(&self) -> &Validity {
        &self.terms.validity
    }

    fn cap(&self) -> Moment {
        self.client.with_carrier(|carrier, _| carrier.engine().cap(self.hold))
    }

    fn claim(&self) -> Option<Arc<Claim>> {
        self.client.with_carrier(|carrier, _| carrier.engine().claim(self.hold)).map(|(claim, _)| claim)
    }

    pub(crate) fn lost_error(&self) -> Error {
        self.lost_because(self.validity().why())
    }

    pub(super) fn lost_because(&self, why: LostWhy) -> Error {
        Error::Lost { name: self.client.title(&self.terms.demands), why }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_done && self.client.is_same_process() {
            self.client.with_carrier(|carrier, now| {
                carrier.tell(Input::Dropped(self.hold), now);
                carrier.forget_watchers(self.hold);
            });
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("names", &self.names().collect::<Vec<_>>())
            .field("fence", &self.fence)
            .field("remaining", &self.remaining())
            .finish()
    }
}
