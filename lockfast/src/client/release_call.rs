//! The store call of a release. Its answer may replace a push: it may name the claim of this client that holds now.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;

use crate::engine::Input;
use crate::error::Result;
use crate::store::{Change, Leaving, Standing, Why};

use super::Client;

impl Client {
    /// Calls [`Store::release`](crate::store::Store::release).
    pub(crate) fn release<'a>(&'a self, leaving: &'a [Leaving]) -> ReleaseCall<'a> {
        ReleaseCall { call: self.store.release(leaving), leaving, client: self, is_answered: false }
    }
}

/// A release call in flight. If its answer is lost, all waiters of this client on the same names poll: the answer may have carried
/// a grant for one of them.
pub(crate) struct ReleaseCall<'a> {
    call: BoxFuture<'a, Result<Vec<Standing>>>,
    leaving: &'a [Leaving],
    client: &'a Client,
    is_answered: bool,
}

impl Future for ReleaseCall<'_> {
    type Output = Result<Vec<Standing>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut standings = ready!(self.call.as_mut().poll(cx))?;
        self.is_answered = true;
        for standing in &mut standings {
            if let Standing::Gone(Why::PassedOn(owner, ticket)) = *standing {
                self.client.tell(Input::Pushed(Change::Held(owner, ticket)));
                *standing = Standing::Gone(Why::Left);
            }
        }
        Poll::Ready(Ok(standings))
    }
}

impl Drop for ReleaseCall<'_> {
    fn drop(&mut self) {
        if !self.is_answered
            && let [leaving] = self.leaving
        {
            self.client.tell(Input::Missed(leaving.clone()));
        }
    }
}
