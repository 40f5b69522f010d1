//! One subscriber's pushes. Putting a letter in and waking its reader are two steps, so that letters can be put in order
//! under a store's mutex while nobody is woken (which may cost a system call) before that mutex is free.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use futures::Stream;
use futures::task::AtomicWaker;

use crate::store::Change;

/// How many letters wait for a reader; one that has fallen further behind gets a [`Change::Resync`] instead.
const MOST_LETTERS: usize = 65_536;

#[derive(Debug, Default)]
pub(super) struct Mailbox {
    letters: Mutex<Letters>,
    reader: AtomicWaker,
}

#[derive(Debug, Default)]
struct Letters {
    queue: VecDeque<Change>,
    closed: bool,
}

impl Mailbox {
    /// A mailbox for the store, which ends with its reader.
    pub(super) fn open() -> (Weak<Self>, Reader) {
        let mailbox = Arc::new(Self::default());
        (Arc::downgrade(&mailbox), Reader(mailbox))
    }

    pub(super) fn put(&self, change: Change) {
        let queue = &mut self.letters().queue;
        if queue.len() >= MOST_LETTERS {
            // A reader that does not read is told to look for itself.
            *queue = VecDeque::from([Change::Resync]);
        } else {
            queue.push_back(change);
        }
    }

    pub(super) fn wake(&self) {
        self.reader.wake();
    }

    /// No more letters: the stream ends after those that are in.
    pub(super) fn close(&self) {
        self.letters().closed = true;
        self.wake();
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct Reader(Arc<Mailbox>);

impl Stream for Reader {
    type Item = Change;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Change>> {
        // Order matters: the waker is in place before the queue is looked at, or a letter between the two wakes nobody.
        self.0.reader.register(cx.waker());
        let mut letters = self.0.letters();
        match letters.queue.pop_front() {
            Some(change) => Poll::Ready(Some(change)),
            None if letters.closed => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}
