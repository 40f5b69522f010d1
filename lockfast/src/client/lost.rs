//! Waiting for the loss of a lock.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::LostWhy;

use super::guard::Guard;

/// Ready when the lock is lost. Dropped, it leaves nothing behind: a guard may be asked for many of these.
pub(crate) struct Lost<'a> {
    guard: &'a Guard,
    /// Where its waker is in the book.
    serial: Option<u64>,
}

impl<'a> Lost<'a> {
    pub(crate) fn new(guard: &'a Guard) -> Self {
        Self { guard, serial: None }
    }
}

impl Future for Lost<'_> {
    type Output = LostWhy;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LostWhy> {
        let guard = self.guard;
        if guard.check().is_ok() {
            self.serial = guard.client.with_book(|book, _, _| {
                let serial = self.serial.unwrap_or_else(|| book.serial());
                let slot = book.slots.get_mut(guard.hold).filter(|slot| !slot.lost)?;
                let wakers = &mut slot.watchers.get_or_insert_default().wakers;
                book.trash.0.extend(wakers.insert(serial, cx.waker().clone()));
                Some(serial)
            });
            // Order matters: the keeper may have told of the loss between the look above and the waker's arrival.
            if self.serial.is_some() && guard.check().is_ok() {
                return Poll::Pending;
            }
        }
        Poll::Ready(guard.validity().why())
    }
}

impl Drop for Lost<'_> {
    fn drop(&mut self) {
        let Some(serial) = self.serial else { return };
        self.guard.client.with_book(|book, _, _| {
            let watchers = book.slots.get_mut(self.guard.hold).and_then(|slot| slot.watchers.as_mut());
            let waker = watchers.and_then(|watchers| watchers.wakers.remove(&serial));
            book.trash.0.extend(waker);
        });
    }
}
