//! Sleeping, for futures on any executor: the keeper wakes them. It has a thread and a clock of its own, so callers need
//! neither a timer nor a particular runtime.
//!
//! Alarms are apart from the engine, since each call to the store sets one, which nearly never rings.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::clock::Moment;

use super::Client;

/// The futures to be woken, and when.
pub(super) struct Alarms(Mutex<Set>);

struct Set {
    wakers: BTreeMap<(Moment, u64), Waker>,
    serial: u64,
    /// When the keeper looks here by itself.
    wakes_at: Moment,
    /// Without a keeper no future would ever be woken.
    unattended: bool,
}

impl Alarms {
    pub(super) fn new() -> Self {
        // One that never rings keeps the map from being built anew for every single alarm.
        let wakers = BTreeMap::from([((Moment::NEVER, 0), Waker::noop().clone())]);
        Self(Mutex::new(Set { wakers, serial: 0, wakes_at: Moment::NEVER, unattended: false }))
    }

    /// Wakes the futures whose time has come. Says when to come back, which is `next` at the latest.
    pub(super) fn due(&self, now: Moment, next: Moment) -> Moment {
        let mut woken = Vec::new();
        let mut set = self.set();
        while let Some(first) = set.wakers.first_entry().filter(|first| first.key().0 <= now) {
            woken.push(first.remove());
        }
        // Order matters: an earlier alarm that is set after this finds the moment here, and rings.
        let first = set.wakers.first_key_value().map_or(Moment::NEVER, |((at, _), _)| *at);
        set.wakes_at = next.min(first);
        let next = set.wakes_at;
        drop(set);
        woken.into_iter().for_each(Waker::wake);
        next
    }

    /// The keeper leaves. Every future that sleeps is woken, and looks for itself.
    pub(super) fn end(&self) {
        let mut set = self.set();
        set.unattended = true;
        let woken = std::mem::take(&mut set.wakers);
        drop(set);
        woken.into_values().for_each(Waker::wake);
    }

    fn set(&self) -> MutexGuard<'_, Set> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Alarms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarms").finish_non_exhaustive()
    }
}

pub(crate) struct Alarm<'a> {
    client: &'a Client,
    until: Moment,
    /// Where it is among the others, once it had to be waited for.
    set: Option<u64>,
}

impl<'a> Alarm<'a> {
    pub(crate) fn new(client: &'a Client, until: Moment) -> Self {
        Self { client, until, set: None }
    }

    pub(crate) fn poll_until(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.until != Moment::NEVER && self.client.clock.now() >= self.until {
            true => Poll::Ready(()),
            false => self.poll_set(cx),
        }
    }

    /// The same without a look at the clock. Should the time have come already, the keeper says so.
    fn poll_set(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.until == Moment::NEVER {
            return Poll::Pending;
        }
        // Order matters: cloning and dropping wakers, and ringing, run foreign code, which may come back here.
        let waker = cx.waker().clone();
        let mut alarms = self.client.alarms.set();
        if alarms.unattended {
            return Poll::Ready(());
        }
        let serial = *self.set.get_or_insert_with(|| {
            alarms.serial += 1;
            alarms.serial
        });
        let old = alarms.wakers.insert((self.until, serial), waker);
        let is_first = self.until < alarms.wakes_at;
        drop(alarms);
        drop(old);
        if is_first {
            self.client.bell.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Some(serial) = self.set {
            let old = self.client.alarms.set().wakers.remove(&(self.until, serial));
            drop(old);
        }
    }
}

impl Client {
    /// What `work`, begun at `now`, came to; or `None` if it had not by `limit`.
    pub(crate) fn within<W>(&self, now: Moment, limit: Moment, work: W) -> Within<'_, W> {
        Within { work, alarm: Alarm::new(self, limit), is_late: limit <= now }
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
    /// Whether its limit had come when it began.
    is_late: bool,
}

impl<W: Future + Unpin> Future for Within<'_, W> {
    type Output = Option<W::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(value) = Pin::new(&mut self.work).poll(cx) {
            return Poll::Ready(Some(value));
        }
        if self.is_late {
            return Poll::Ready(None);
        }
        let alarm = &mut self.alarm;
        // When it has just begun, no clock has to say that its limit is still to come.
        let rings = if alarm.set.is_some() { alarm.poll_until(cx) } else { alarm.poll_set(cx) };
        rings.map(|()| None)
    }
}
