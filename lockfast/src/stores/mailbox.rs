//! Subscribers' pushes. Putting a letter in and waking its reader are two steps, so that letters can be put in order under
//! a store's mutex while nobody is woken (which may cost a system call) before that mutex is free.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use futures::Stream;
use futures::task::AtomicWaker;

use crate::claim::ClientId;
use crate::name::Name;
use crate::store::{Change, Scope};

/// How many letters wait for a reader; one that has fallen further behind gets a [`Change::Resync`] instead.
const MOST_LETTERS: usize = 65_536;

/// Who in this process wants to hear what.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    clients: HashMap<ClientId, Vec<Weak<Mailbox>>>,
    lines: Vec<(String, Weak<Mailbox>)>,
}

impl Subscribers {
    pub(super) fn subscribe(&mut self, scope: Scope) -> Reader {
        // Readers that left without another push to find that out are forgotten here, so that they never pile up.
        self.clients.retain(|_, mailboxes| {
            mailboxes.retain(|mailbox| mailbox.strong_count() > 0);
            !mailboxes.is_empty()
        });
        self.lines.retain(|(_, mailbox)| mailbox.strong_count() > 0);
        let (mailbox, reader) = Mailbox::open();
        match scope {
            Scope::Client(client) => self.clients.entry(client).or_default().push(mailbox),
            Scope::Queues(beginning) => self.lines.push((beginning, mailbox)),
        }
        reader
    }

    /// Puts a letter into the client's mailboxes, and adds those whose readers are to be woken.
    pub(super) fn tell(&mut self, client: ClientId, change: &Change, told: &mut Vec<Arc<Mailbox>>) {
        if let Some(mailboxes) = self.clients.get_mut(&client) {
            mailboxes.retain(|mailbox| put(mailbox, change, told));
            if mailboxes.is_empty() {
                self.clients.remove(&client);
            }
        }
    }

    /// The same for those who watch the line of this name.
    pub(super) fn tell_of_queue(&mut self, name: &Name, told: &mut Vec<Arc<Mailbox>>) {
        let change = Change::Resource(name.clone());
        let wanted = |beginning: &str| name.as_str().starts_with(beginning);
        self.lines.retain(|(beginning, mailbox)| !wanted(beginning) || put(mailbox, &change, told));
    }

    /// Those who watch lines may have missed something.
    #[cfg(feature = "redis")]
    pub(super) fn resync_lines(&mut self, told: &mut Vec<Arc<Mailbox>>) {
        self.lines.retain(|(_, mailbox)| put(mailbox, &Change::Resync, told));
    }

    pub(super) fn watch_queues(&self) -> bool {
        !self.lines.is_empty()
    }

    /// No more letters.
    pub(super) fn close(&mut self) {
        let lines = self.lines.iter().map(|(_, mailbox)| mailbox);
        let mailboxes = self.clients.values().flatten().chain(lines);
        mailboxes.filter_map(Weak::upgrade).for_each(|mailbox| mailbox.close());
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> (usize, usize) {
        (self.clients.len(), self.lines.len())
    }
}

/// Whether the mailbox is still read.
fn put(mailbox: &Weak<Mailbox>, change: &Change, told: &mut Vec<Arc<Mailbox>>) -> bool {
    let Some(mailbox) = mailbox.upgrade() else { return false };
    mailbox.put(change.clone());
    told.push(mailbox);
    true
}

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
    fn open() -> (Weak<Self>, Reader) {
        let mailbox = Arc::new(Self::default());
        (Arc::downgrade(&mailbox), Reader(mailbox))
    }

    fn put(&self, change: Change) {
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
    fn close(&self) {
        self.letters().closed = true;
        self.wake();
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct Reader(Arc<Mailbox>);

#[cfg(feature = "redis")]
impl Reader {
    /// What closes the mailbox when it is dropped: for whoever brings the letters.
    pub(super) fn ending(&self) -> Ending {
        Ending(Arc::downgrade(&self.0))
    }
}

#[cfg(feature = "redis")]
#[derive(Debug)]
pub(super) struct Ending(Weak<Mailbox>);

#[cfg(feature = "redis")]
impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(mailbox) = self.0.upgrade() {
            mailbox.close();
        }
    }
}

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
