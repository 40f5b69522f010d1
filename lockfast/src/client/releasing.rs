//! The call that a release makes. Its answer may be a push at the same time: which claim of this client holds now.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;

use crate::engine::Input;
use crate::error::Result;
use crate::store::{Change, Leaving, Standing, Why};

use super::Client;

impl Client {
    /// Tells the store which claims leave.
    pub(crate) fn release<'a>(&'a self, leaving: &'a [Leaving]) -> Releasing<'a> {
        Releasing { call: self.store.release(leaving), leaving, client: self, is_answered: false }
    }
}

/// A release that is with the store. If its answer is lost, waiters of this client on the same name ask: it may have named one of
/// them.
pub(crate) struct Releasing<'a> {
    call: BoxFuture<'a, Result<Vec<Standing>>>,
    leaving: &'a [Leaving],
    client: &'a Client,
    is_answered: bool,
}

impl Future for Releasing<'_> {
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

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        if !self.is_answered
            && let [leaving] = self.leaving
        {
            self.client.tell(Input::Missed(leaving.clone()));
        }
    }
}
