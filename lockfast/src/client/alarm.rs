//! Sleeping, for futures on any executor: the keeper wakes them. It has a thread and a clock of its own, so callers need
//! neither a timer nor a particular runtime.

use std::future::Future;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::clock::Moment;

use super::Client;

pub(crate) struct Alarm<'a> {
    client: &'a Client,
    until: Moment,
    /// Where it is in the book, once somebody had to wait for it.
    set: Option<u64>,
}

impl<'a> Alarm<'a> {
    pub(crate) fn new(client: &'a Client, until: Moment) -> Self {
        Self { client, until, set: None }
    }

    pub(crate) fn poll_until(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.until == Moment::NEVER {
            return Poll::Pending;
        }
        self.client.with_book(|book, now, out| {
            // Without a keeper nobody would ever be woken.
            if now >= self.until || book.unattended {
                return Poll::Ready(());
            }
            let serial = *self.set.get_or_insert_with(|| book.serial());
            let old = book.alarms.insert((self.until, serial), cx.waker().clone());
            book.trash.0.extend(old);
            out.ring |= self.until < book.wakes_at;
            Poll::Pending
        })
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Some(serial) = self.set {
            self.client.with_book(|book, _, _| {
                let old = book.alarms.remove(&(self.until, serial));
                book.trash.0.extend(old);
            });
        }
    }
}

impl Client {
    /// What `work` came to, or `None` if it had not by `limit`.
    pub(crate) fn within<W>(&self, limit: Moment, work: W) -> Within<'_, W> {
        Within { work, alarm: Alarm::new(self, limit) }
    }

    pub(crate) async fn sleep_until(&self, moment: Moment) {
        let mut alarm = Alarm::new(self, moment);
        poll_fn(|cx| alarm.poll_until(cx)).await;
    }
}

/// Work that is waited for until its alarm. Part of every future that waits for a store, so it has to be small.
pub(crate) struct Within<'a, W> {
    work: W,
    alarm: Alarm<'a>,
}

impl<W: Future + Unpin> Future for Within<'_, W> {
    type Output = Option<W::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.work).poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => self.alarm.poll_until(cx).map(|()| None),
        }
    }
}
