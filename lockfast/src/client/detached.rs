//! Locks that no process keeps: a guard becomes a [`Token`], and whoever has the token renews it and gives it back.
//!
//! A detached claim says so from the moment it joins, since stores that see a process die would end its claims. It takes
//! no part in local hand-over: the next one would hold under a claim that somebody else has the right to.

use std::sync::Arc;
use std::time::Duration;

use crate::claim::{Claim, Ticket, Token};
use crate::clock::Moment;
use crate::error::{Error, LostWhy, Result};
use crate::store::{Lease, Leaving, Standing, Why};

use super::book::{Book, Outbox, UNAVAILABLE_AFTER};
use super::slots::Key;
use super::{Client, Guard, Options};

impl Guard {
    /// Lets go of the lock without giving it back: from now on nobody renews it, and whoever has the token may, or may give
    /// it back, from any process. Otherwise the lease ends it.
    ///
    /// For a guard of a lock that was asked for as [`detached`](crate::Mutex::detached); another is
    /// [`Invalid`](Error::Invalid), and given back. How much of the lease is left, [`remaining`](Self::remaining) says;
    /// [`extend`](Self::extend) first if it shall be a whole one.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let guard = locks.mutex("deploy").detached().ttl(Duration::from_secs(600)).lock().await?;
    /// let token = guard.into_token()?;
    /// assert!(locks.mutex("deploy").is_locked().await?);
    /// locks.release_token(&token).await?;
    /// assert!(!locks.mutex("deploy").is_locked().await?);
    /// # Ok(()) }
    /// ```
    pub fn into_token(mut self) -> Result<Token> {
        self.client.check_usable()?;
        if !self.request.detached {
            return Err(Error::invalid(
                "only a lock that was asked for as detached can become a token; write `.detached()` before locking",
            ));
        }
        let kept =
            self.client.with_book(
                |book, now, out| {
                    if self.validity().is_over(now) { None } else { book.let_go(self.hold, now, out) }
                },
            );
        let Some((claim, unsure)) = kept else { return Err(self.lost_error()) };
        self.is_done = true;
        let Claim { id, demands, ttl, .. } = Claim::clone(&claim);
        Ok(Token { id, demands, ttl, fence: self.fence, unsure })
    }
}

impl Book {
    /// Forgets a hold without a word to the store. Also says whether one of its acquires may still run.
    fn let_go(&mut self, hold: Key, now: Moment, out: &mut Outbox) -> Option<(Arc<Claim>, bool)> {
        let slot = self.slots.get_mut(hold)?;
        // Its place in listings stays too.
        slot.listed = false;
        let mut slot = self.remove(hold)?;
        self.telling.tally.let_go(now.since(slot.since));
        self.report_soon(now, out);
        Some((slot.claim.take()?, slot.unsure))
    }
}

impl Client {
    /// Makes sure that at least `ttl` of what the token holds remains.
    pub(crate) async fn renew_token(&self, token: &Token, ttl: Duration) -> Result<()> {
        self.check_open()?;
        Options { ttl, ..Options::default() }.check(&self.guarantees)?;
        let leases = [Lease { claim: self.claim_of(token), ttl }];
        let doing = || self.doing("renewing", &token.demands);
        match self.answer(self.store.renew(&leases), doing).await? {
            Standing::Held(_) => Ok(()),
            standing => Err(self.token_lost(token, &standing)),
        }
    }

    /// Gives back what the token holds.
    pub(crate) async fn release_token(&self, token: &Token) -> Result<()> {
        self.check_open()?;
        let claim = self.claim_of(token);
        let leaving = [if token.unsure { Leaving::Unknown(claim) } else { Leaving::Done(claim) }];
        let doing = || self.doing("releasing", &token.demands);
        match self.answer(self.release(&leaving), doing).await? {
            Standing::Gone(Why::Left) => {
                self.telling.tally.given_back();
                self.with_book(|book, now, out| book.report_soon(now, out));
                Ok(())
            }
            standing => Err(self.token_lost(token, &standing)),
        }
    }

    fn check_open(&self) -> Result<()> {
        self.check_usable()?;
        match self.with_book(|book, _, _| book.closed) {
            Some(why) => Err(Error::Closed(why)),
            None => Ok(()),
        }
    }

    /// The first of a store's answers, if it comes in time.
    async fn answer(
        &self,
        call: impl Future<Output = Result<Vec<Standing>>> + Unpin,
        doing: impl Fn() -> String,
    ) -> Result<Standing> {
        let now = self.clock.now();
        let answer = self.within(now, now + UNAVAILABLE_AFTER, call).await;
        let standings = answer.unwrap_or_else(|| Err(Error::unavailable(doing(), "no answer in time")))?;
        standings.into_iter().next().ok_or_else(|| Error::unavailable(doing(), "the store gave no answer"))
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

    fn token_lost(&self, token: &Token, standing: &Standing) -> Error {
        let why = match standing {
            Standing::Gone(Why::Broken) => LostWhy::Broken,
            Standing::Gone(Why::Expired) => LostWhy::Expired,
            _ => LostWhy::Evicted,
        };
        Error::Lost { name: self.title(&token.demands), why }
    }
}
