//! Detached locks: a guard becomes a [`Token`], and the owner of the token renews and releases the lock, from any process.
//!
//! While it waits, and while it has a guard, such a claim ends with its process like any other: a process that is killed while it
//! waits must not be granted the lock, and one whose token was not delivered yet must not keep it. Once the token was delivered,
//! one renewal makes the claim independent of its process. It takes no part in local hand-off: the next holder would hold under a
//! claim that the owner of the token may release.

use std::sync::Arc;
use std::time::Duration;

use crate::claim::{Claim, Demands, Ticket, Token};
use crate::engine::{Input, Next, UNAVAILABLE_AFTER};
use crate::error::{Error, LostWhy, Result};
use crate::store::{Lease, Leaving, Standing, Why};

use super::repeat::{Repeats, Reply, answer_lost, is_ambiguous};
use super::{Client, Guard, Options};

impl Guard {
    /// Detaches the lock from this process without releasing it. The keeper stops renewing it; the owner of the token may renew or
    /// release it, from any process. Without a renewal it ends with its lease, which starts anew with this call.
    ///
    /// Only for locks that were requested as [`detached`](crate::Mutex::detached): any other guard is [`Invalid`](Error::Invalid).
    /// After every error the lock is released.
    ///
    /// A process that dies during this call leaves a lock whose token was not delivered. Where that matters, store the
    /// [`token`](Self::token) first, and call [`detach`](Self::detach) then.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future releases the lock.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let guard = locks.mutex("deploy").detached().ttl(Duration::from_secs(600)).lock().await?;
    /// let token = guard.into_token().await?;
    /// assert!(locks.mutex("deploy").is_locked().await?);
    /// locks.release_token(&token).await?;
    /// assert!(!locks.mutex("deploy").is_locked().await?);
    /// # Ok(()) }
    /// ```
    pub async fn into_token(self) -> Result<Token> {
        let token = self.token()?;
        self.detach().await?;
        Ok(token)
    }

    /// The token of this lock, to be stored before [`detach`](Self::detach) is called. Until then the lock ends with this guard.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let guard = locks.mutex("deploy").detached().lock().await?;
    /// println!("{}", guard.token()?);
    /// guard.detach().await?;
    /// # Ok(()) }
    /// ```
    pub fn token(&self) -> Result<Token> {
        let (claim, unsure) = self.detachable()?;
        let Claim { id, demands, ttl, .. } = Claim::clone(&claim);
        Ok(Token { id, demands, ttl, fence: self.fence, unsure })
    }

    /// Detaches the lock from this process without releasing it, with a whole lease, for the owner of its [`token`](Self::token).
    /// After an error the lock is released.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future releases the lock.
    pub async fn detach(mut self) -> Result<()> {
        let (claim, _) = self.detachable()?;
        let ttl = claim.ttl;
        let leases = [Lease { claim: Arc::new(Claim { detached: true, ..Claim::clone(&claim) }), ttl }];
        let renew = || self.client.store.renew(&leases);
        let (standing, _) = self.client.answer(renew, "detaching", &self.terms.demands).await?;
        if !matches!(standing, Standing::Held(_)) {
            return Err(self.client.gone(&self.terms.demands, &standing));
        }
        let let_go = self.client.with_carrier(|carrier, now| {
            // A hold that was lost meanwhile was reported so. Dropping the guard releases what the store may still count.
            let is_over = self.validity().is_over(now);
            let let_go = !is_over && matches!(carrier.tell(Input::LetGo(self.hold), now), Next::LetGo(true));
            if let_go {
                carrier.forget_watchers(self.hold);
            }
            let_go
        });
        if !let_go {
            return Err(self.lost_error());
        }
        self.is_done = true;
        Ok(())
    }

    /// The claim of a lock that can be detached, and whether one of its acquires may still be in flight.
    fn detachable(&self) -> Result<(Arc<Claim>, bool)> {
        self.client.check_usable()?;
        if !self.terms.detached {
            return Err(Error::invalid(
                "only a lock that was asked for as detached can become a token; write `.detached()` before locking",
            ));
        }
        self.check()?;
        let found = self.client.with_carrier(|carrier, _| carrier.engine().claim(self.hold));
        found.ok_or_else(|| self.lost_error())
    }
}

impl Client {
    /// Renews what the token holds, for at least `ttl`.
    pub(crate) async fn renew_token(&self, token: &Token, ttl: Duration) -> Result<()> {
        self.check_open()?;
        Options { ttl, ..Options::default() }.check(&self.guarantees)?;
        let leases = [Lease { claim: self.claim_of(token), ttl }];
        match self.answer(|| self.store.renew(&leases), "renewing", &token.demands).await? {
            (Standing::Held(_), _) => Ok(()),
            (standing, _) => Err(self.gone(&token.demands, &standing)),
        }
    }

    /// Releases what the token holds.
    pub(crate) async fn release_token(&self, token: &Token) -> Result<()> {
        self.check_open()?;
        let claim = self.claim_of(token);
        let leaving = [if token.unsure { Leaving::Unknown(claim) } else { Leaving::Done(claim) }];
        match self.answer(|| self.release(&leaving), "releasing", &token.demands).await? {
            (Standing::Gone(Why::Left), _) => {
                self.tell(Input::TokenReleased);
                Ok(())
            }
            // The copy without an answer may have released it.
            (standing, true) if is_ambiguous(&standing) => Err(answer_lost(self.doing("releasing", &token.demands))),
            (standing, _) => Err(self.gone(&token.demands, &standing)),
        }
    }

    fn check_open(&self) -> Result<()> {
        self.check_usable()?;
        match self.with_carrier(|carrier, _| carrier.engine().closed()) {
            Some(why) => Err(Error::Closed(why.text())),
            None => Ok(()),
        }
    }

    /// The first of the store's answers, if it comes in time, and whether it answers a repeat.
    async fn answer<F>(&self, request: impl FnMut() -> F, what: &str, demands: &Demands) -> Result<(Standing, bool)>
    where
        F: Future<Output = Result<Vec<Standing>>> + Unpin,
    {
        let now = self.clock.now();
        let Reply { answer, is_repeat, .. } = self.ask(Repeats::of(now), now + UNAVAILABLE_AFTER, request).await;
        let standings = answer.map_err(|error| self.explain(error, what, demands))?;
        match standings.into_iter().next() {
            Some(standing) => Ok((standing, is_repeat)),
            None => Err(Error::unavailable(self.doing(what, demands), "the store gave no answer")),
        }
    }

    fn claim_of(&self, token: &Token) -> Arc<Claim> {
        Arc::new(Claim {
            id: token.id.clone(),
            client: self.id,
            demands: token.demands.clone(),
            ttl: token.ttl,
            block: 1,
            floor: Ticket(0),
            detached: true,
            note: Arc::clone(&self.note),
        })
    }

    /// The error for a token's owner when the store does not count its claim as holding.
    fn gone(&self, demands: &Demands, standing: &Standing) -> Error {
        let why = match standing {
            Standing::Gone(Why::Broken) => LostWhy::Broken,
            Standing::Gone(Why::Expired) => LostWhy::Expired,
            _ => LostWhy::Evicted,
        };
        Error::Lost { name: self.title(demands), why }
    }
}
