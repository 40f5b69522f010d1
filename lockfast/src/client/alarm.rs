//! Sleeping, for futures on any executor: the keeper wakes them. It has a thread and a clock of its own, so callers need
//! neither a timer nor a particular runtime.

use std::future::Future;
use std::future::poll_fn;
use std::pin::{Pin, pin};
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

    pub(crate) fn poll_until(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if this.until == Moment::NEVER {
            return Poll::Pending;
        }
        this.client.with_book(|book, now, out| {
            // Without a keeper nobody would ever be woken.
            if now >= this.until || book.unattended {
                return Poll::Ready(());
            }
            let serial = *this.set.get_or_insert_with(|| book.serial());
            let old = book.alarms.insert((this.until, serial), cx.waker().clone());
            book.trash.0.extend(old);
            out.ring |= this.until < book.wakes_at;
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
    pub(crate) async fn within<T>(&self, limit: Moment, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut alarm = pin!(Alarm::new(self, limit));
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => alarm.as_mut().poll_until(cx).map(|()| None),
        })
        .await
    }

    pub(crate) async fn sleep_until(&self, moment: Moment) {
        let mut alarm = pin!(Alarm::new(self, moment));
        poll_fn(|cx| alarm.as_mut().poll_until(cx)).await;
    }
}
