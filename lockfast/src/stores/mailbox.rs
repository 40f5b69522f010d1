//! Queues of pushes, one for each subscriber inside this process.
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

/// The most pushes in one inbox. Beyond, they are replaced by one [`Change::Resync`].
const MOST_PUSHES: usize = 65_536;

/// The inboxes of all subscribers in this process, by what they subscribe to.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    clients: HashMap<ClientId, Vec<Weak<Inbox>>>,
    /// Each with the prefix of the names whose queues are watched.
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
    pub(super) fn tell(&mut self, client: ClientId, change: &Change, to_wake: &mut Vec<Arc<Inbox>>) {
        if let Some(inboxes) = self.clients.get_mut(&client) {
            inboxes.retain(|inbox| add(inbox, change, to_wake));
            if inboxes.is_empty() {
                self.clients.remove(&client);
            }
        }
    }

    /// As [`tell`](Self::tell), for subscribers that watch the queue of this name.
    pub(super) fn tell_of_queue(&mut self, name: &Name, to_wake: &mut Vec<Arc<Inbox>>) {
        let change = Change::Resource(name.clone());
        let wanted = |prefix: &str| name.as_str().starts_with(prefix);
        self.queues.retain(|(prefix, inbox)| !wanted(prefix) || add(inbox, &change, to_wake));
    }

    /// Adds a resync for all subscribers that watch queues: pushes may have been lost.
    #[cfg(feature = "redis")]
    pub(super) fn resync_queues(&mut self, to_wake: &mut Vec<Arc<Inbox>>) {
        self.queues.retain(|(_, inbox)| add(inbox, &Change::Resync, to_wake));
    }

    /// Whether a subscriber watches queues.
    pub(super) fn watch_queues(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Ends all streams after the pushes that they have.
    pub(super) fn close(&mut self) {
        let queues = self.queues.iter().map(|(_, inbox)| inbox);
        let inboxes = self.clients.values().flatten().chain(queues);
        inboxes.filter_map(Weak::upgrade).for_each(|inbox| inbox.close());
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> (usize, usize) {
        (self.clients.len(), self.queues.len())
    }
}

/// Adds a push. `false` if the stream of the inbox was dropped.
fn add(inbox: &Weak<Inbox>, change: &Change, to_wake: &mut Vec<Arc<Inbox>>) -> bool {
    let Some(inbox) = inbox.upgrade() else { return false };
    inbox.add(change.clone());
    to_wake.push(inbox);
    true
}

/// The pushes of one subscriber.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    queued: Mutex<Queued>,
    waker: AtomicWaker,
}

#[derive(Debug, Default)]
struct Queued {
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
        let pushes = &mut self.queued().pushes;
        if pushes.len() >= MOST_PUSHES {
            // The subscriber reads too slowly: it gets one resync, and asks for all that it missed.
            *pushes = VecDeque::from([Change::Resync]);
        } else {
            pushes.push_back(change);
        }
    }

    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// Ends the stream after the pushes that it has.
    fn close(&self) {
        self.queued().is_closed = true;
        self.wake();
    }

    fn queued(&self) -> MutexGuard<'_, Queued> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stream of a subscriber.
#[derive(Debug)]
pub(super) struct Pushes(Arc<Inbox>);

#[cfg(feature = "redis")]
impl Pushes {
    /// A guard that closes the inbox: for the task that adds pushes.
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
        let mut queued = self.0.queued();
        match queued.pushes.pop_front() {
            Some(change) => Poll::Ready(Some(change)),
            None if queued.is_closed => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}
