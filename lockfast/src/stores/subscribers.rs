//! The subscribers inside this process, and an inbox of pushes for each.
//!
//! Adding a push and waking the subscriber's task are two steps: pushes are added in order under a store's mutex, and tasks are
//! woken, which may cost a system call, once the mutex is free.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use futures::Stream;
use futures::task::AtomicWaker;

use crate::claim::ClientId;
use crate::name::Name;
use crate::store::{Change, Scope};

/// The most pushes in one inbox. When one more arrives, all are replaced by one [`Change::Resync`].
const MAX_PUSHES: usize = 65_536;

/// The inboxes of all subscribers in this process, by the scope that they subscribe to.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    /// The inboxes for the pushes to a client.
    clients: HashMap<ClientId, Vec<Weak<Inbox>>>,
    /// The inboxes for changes of queues, each with the prefix of the names whose queues it watches.
    queues: Vec<(String, Weak<Inbox>)>,
}

impl Subscribers {
    pub(super) fn subscribe(&mut self, scope: Scope) -> Pushes {
        // Inboxes of dropped streams are removed here too, not only at the next push: otherwise they could accumulate.
        self.clients.retain(|_, inboxes| {
            inboxes.retain(|inbox| inbox.strong_count() > 0);
            !inboxes.is_empty()
        });
        self.queues.retain(|(_, inbox)| inbox.strong_count() > 0);
        let (inbox, stream) = Inbox::open();
        match scope {
            Scope::Client(client) => self.clients.entry(client).or_default().push(inbox),
            Scope::Queues(prefix) => self.queues.push((prefix, inbox)),
        }
        stream
    }

    /// Adds a push to the inboxes of a client, and these inboxes to `to_wake`.
    pub(super) fn push_to_client(&mut self, client: ClientId, change: &Change, to_wake: &mut Vec<Arc<Inbox>>) {
        if let Some(inboxes) = self.clients.get_mut(&client) {
            inboxes.retain(|inbox| add_if_open(inbox, change, to_wake));
            if inboxes.is_empty() {
                self.clients.remove(&client);
            }
        }
    }

    /// As [`push_to_client`](Self::push_to_client), for the subscribers that watch the queue of this name.
    pub(super) fn push_queue_change(&mut self, name: &Name, to_wake: &mut Vec<Arc<Inbox>>) {
        let change = Change::Resource(name.clone());
        let is_watched = |prefix: &str| name.as_str().starts_with(prefix);
        self.queues.retain(|(prefix, inbox)| !is_watched(prefix) || add_if_open(inbox, &change, to_wake));
    }

    /// Adds a resync for all subscribers that watch queues: pushes may have been lost.
    #[cfg(feature = "redis")]
    pub(super) fn resync_queues(&mut self, to_wake: &mut Vec<Arc<Inbox>>) {
        self.queues.retain(|(_, inbox)| add_if_open(inbox, &Change::Resync, to_wake));
    }

    /// Whether any subscriber watches queues.
    pub(super) fn has_queue_watchers(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Closes all inboxes: each stream returns the pushes that are in its inbox, then ends.
    pub(super) fn close(&mut self) {
        let queues = self.queues.iter().map(|(_, inbox)| inbox);
        let inboxes = self.clients.values().flatten().chain(queues);
        inboxes.filter_map(Weak::upgrade).for_each(|inbox| inbox.close());
    }

    #[cfg(test)]
    /// The number of subscribed clients, and the number of subscribers to queues.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.clients.len(), self.queues.len())
    }
}

/// Adds a push. Returns `false` if the stream of the inbox was dropped.
fn add_if_open(inbox: &Weak<Inbox>, change: &Change, to_wake: &mut Vec<Arc<Inbox>>) -> bool {
    let Some(inbox) = inbox.upgrade() else { return false };
    inbox.add(change.clone());
    to_wake.push(inbox);
    true
}

/// The pushes of one subscriber.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    contents: Mutex<Contents>,
    waker: AtomicWaker,
}

#[derive(Debug, Default)]
struct Contents {
    pushes: VecDeque<Change>,
    is_closed: bool,
}

impl Inbox {
    /// An inbox and its stream. The store has a weak reference: the inbox is freed with the stream.
    fn open() -> (Weak<Self>, Pushes) {
        let inbox = Arc::new(Self::default());
        (Arc::downgrade(&inbox), Pushes(inbox))
    }

    fn add(&self, change: Change) {
        let pushes = &mut self.contents().pushes;
        if pushes.len() >= MAX_PUSHES {
            // The subscriber reads too slowly. It gets one resync, on which it asks the store for everything it waits for.
            *pushes = VecDeque::from([Change::Resync]);
        } else {
            pushes.push_back(change);
        }
    }

    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// Makes the stream end once it has returned the pushes that are in the inbox.
    fn close(&self) {
        self.contents().is_closed = true;
        self.wake();
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stream that a subscriber reads its inbox by.
#[derive(Debug)]
pub(super) struct Pushes(Arc<Inbox>);

#[cfg(feature = "redis")]
impl Pushes {
    /// A guard that closes the inbox when it is dropped. The task that adds pushes holds it, so that the stream ends with the task.
    pub(super) fn close_on_drop(&self) -> CloseOnDrop {
        CloseOnDrop(Arc::downgrade(&self.0))
    }
}

#[cfg(feature = "redis")]
#[derive(Debug)]
pub(super) struct CloseOnDrop(Weak<Inbox>);

#[cfg(feature = "redis")]
impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if let Some(inbox) = self.0.upgrade() {
            inbox.close();
        }
    }
}

impl Stream for Pushes {
    type Item = Change;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Change>> {
        // Order matters: the waker is registered before the inbox is read, or a push between the two would wake no task.
        self.0.waker.register(cx.waker());
        let mut contents = self.0.contents();
        match contents.pushes.pop_front() {
            Some(change) => Poll::Ready(Some(change)),
            None if contents.is_closed => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}
