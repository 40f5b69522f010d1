//! Timers for futures on any executor: the keeper's thread wakes them. It has a clock of its own, so callers need neither a timer
//! nor a particular runtime.
//!
//! Alarms have their own mutex, apart from the engine's: each call to the store sets one, and nearly none of them expires.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::clock::Moment;

use super::Client;

/// The wakers of sleeping futures, by due time.
pub(super) struct Alarms(Mutex<AlarmSet>);

struct AlarmSet {
    wakers: BTreeMap<(Moment, u64), Waker>,
    serial: u64,
    /// When the keeper looks at the alarms without being notified.
    wakes_at: Moment,
    /// The keeper has ended: no alarm would ever be due.
    is_unattended: bool,
}

impl Alarms {
    pub(super) fn new() -> Self {
        // One alarm that is never due keeps the map allocated while there is no other.
        let wakers = BTreeMap::from([((Moment::NEVER, 0), Waker::noop().clone())]);
        Self(Mutex::new(AlarmSet { wakers, serial: 0, wakes_at: Moment::NEVER, is_unattended: false }))
    }

    /// Wakes the futures whose alarms are due. Returns when the next one is due, at the latest `next`.
    pub(super) fn due(&self, now: Moment, next: Moment) -> Moment {
        let mut woken = Vec::new();
        let mut set = self.lock();
        while let Some(first) = set.wakers.first_entry().filter(|first| first.key().0 <= now) {
            woken.push(first.remove());
        }
        // Order matters: an earlier alarm that is set after this compares itself with `wakes_at`, and notifies the keeper.
        let first = set.wakers.first_key_value().map_or(Moment::NEVER, |((at, _), _)| *at);
        set.wakes_at = next.min(first);
        let next = set.wakes_at;
        drop(set);
        woken.into_iter().for_each(Waker::wake);
        next
    }

    /// The keeper ends. Every sleeping future is woken, and finds the client closed.
    pub(super) fn end(&self) {
        let mut set = self.lock();
        set.is_unattended = true;
        let woken = std::mem::take(&mut set.wakers);
        drop(set);
        woken.into_values().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, AlarmSet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Alarms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarms").finish_non_exhaustive()
    }
}

/// The timer of one future.
pub(crate) struct Alarm<'a> {
    client: &'a Client,
    until: Moment,
    /// Its serial number in the map, once it was polled and not due.
    serial: Option<u64>,
}

impl<'a> Alarm<'a> {
    pub(crate) fn new(client: &'a Client, until: Moment) -> Self {
        Self { client, until, serial: None }
    }

    pub(crate) fn poll_until(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.until != Moment::NEVER && self.client.clock.now() >= self.until {
            true => Poll::Ready(()),
            false => self.poll_without_clock(cx),
        }
    }

    /// The same without reading the clock. If the alarm is due already, the keeper wakes it.
    fn poll_without_clock(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.until == Moment::NEVER {
            return Poll::Pending;
        }
        // Order matters: cloning, dropping and waking wakers run foreign code, which may call this module. So none of them happens
        // under the mutex.
        let waker = cx.waker().clone();
        let mut alarms = self.client.alarms.lock();
        if alarms.is_unattended {
            return Poll::Ready(());
        }
        let serial = *self.serial.get_or_insert_with(|| {
            alarms.serial += 1;
            alarms.serial
        });
        let old = alarms.wakers.insert((self.until, serial), waker);
        let is_first = self.until < alarms.wakes_at;
        drop(alarms);
        drop(old);
        if is_first {
            self.client.keeper_wakeup.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Some(serial) = self.serial {
            let old = self.client.alarms.lock().wakers.remove(&(self.until, serial));
            drop(old);
        }
    }
}

impl Client {
    /// The output of `work`, begun at `now`; `None` if it is not ready by `limit`.
    pub(crate) fn within<W>(&self, now: Moment, limit: Moment, work: W) -> Within<'_, W> {
        Within { work, alarm: Alarm::new(self, limit), is_late: limit <= now }
    }

    pub(crate) async fn sleep_until(&self, moment: Moment) {
        let mut alarm = Alarm::new(self, moment);
        poll_fn(|cx| alarm.poll_until(cx)).await;
    }
}

/// Work with a time limit. Part of every future that waits for a store, so it has to be small.
pub(crate) struct Within<'a, W> {
    work: W,
    alarm: Alarm<'a>,
    /// Whether the limit had passed when it began.
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
        // On the first poll the limit is known to be ahead (`is_late`), so the clock is not read.
        let is_due = if alarm.serial.is_some() { alarm.poll_until(cx) } else { alarm.poll_without_clock(cx) };
        is_due.map(|()| None)
    }
}
