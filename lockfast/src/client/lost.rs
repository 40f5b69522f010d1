//! The future that waits for the loss of a lock.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::LostWhy;

use super::guard::Guard;

/// Ready when the lock is lost. Dropping it removes its waker: a guard may make many of these.
pub(crate) struct LossFuture<'a> {
    guard: &'a Guard,
    /// Its number among the watchers of the hold.
    serial: Option<u64>,
}

impl<'a> LossFuture<'a> {
    pub(crate) fn new(guard: &'a Guard) -> Self {
        Self { guard, serial: None }
    }
}

impl Future for LossFuture<'_> {
    type Output = LostWhy;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LostWhy> {
        let guard = self.guard;
        if guard.check().is_ok() {
            let serial = self.serial;
            self.serial = guard.client.with_carrier(|carrier, _| carrier.watch_loss(guard.hold, serial, cx.waker()));
            // Order matters: the lock may have been lost between the check above and the registration of the waker.
            if self.serial.is_some() && guard.check().is_ok() {
                return Poll::Pending;
            }
        }
        Poll::Ready(guard.validity().why())
    }
}

impl Drop for LossFuture<'_> {
    fn drop(&mut self) {
        let Some(serial) = self.serial else { return };
        self.guard.client.with_carrier(|carrier, _| carrier.unwatch_loss(self.guard.hold, serial));
    }
}
