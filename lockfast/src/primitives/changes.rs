//! A stream of changed queues, for programs that show them.

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use futures::stream::{self, BoxStream, Stream, StreamExt};

use crate::name::Name;
use crate::store::{Change, Scope};

use super::Locks;
use super::requester::Requester;

/// After this long without a push, the stream yields `None`: the store may have no pushes.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);
/// The pause before subscribing again after a subscription has ended.
const RESUBSCRIBE_AFTER: Duration = Duration::from_secs(1);

impl Locks {
    /// The names whose queues change from now on, among those that begin with `beginning`. `None` means that any of them may have
    /// changed: pushes were lost, or none came for 5 s, in case the store has none. [`inspect`](Self::inspect) and
    /// [`Mutex::info`](crate::Mutex::info) return the queue itself. An expired lease is noticed, and reported, only when some client
    /// accesses the queue. Ends when this client is shut down.
    ///
    /// ```
    /// # use lockfast::Locks;
    /// # use futures::StreamExt;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockfast::Result<()> {
    /// # let locks = Locks::in_memory();
    /// let mut changes = locks.changes("account:");
    /// let guard = locks.mutex("account:123").lock().await?;
    /// assert_eq!(changes.next().await.unwrap().unwrap().as_str(), "account:123");
    /// # Ok(()) }
    /// ```
    pub fn changes(&self, beginning: &str) -> impl Stream<Item = Option<Name>> + Send + Unpin + use<> {
        let scope = Scope::Queues(format!("{}{beginning}", self.client().prefix));
        let changes = match self.client().check_usable() {
            Ok(()) => self.client().store.watch(scope.clone()),
            Err(_) => stream::empty().boxed(),
        };
        let watcher = Watcher { requester: self.requester(), scope, changes };
        stream::unfold(watcher, |mut watcher| async move {
            let change = watcher.next().await?;
            Some((change, watcher))
        })
        .boxed()
    }
}

/// The state of the stream that [`Locks::changes`] returns.
struct Watcher {
    requester: Requester,
    scope: Scope,
    changes: BoxStream<'static, Change>,
}

impl Watcher {
    /// A changed name, or `Some(None)` if any name may have changed; `None` once the client is closed.
    async fn next(&mut self) -> Option<Option<Name>> {
        let client = self.requester.client();
        let pause = |span| client.sleep_until(client.clock.now() + span);
        // A closed client has no timers: waiting on one would never end, or never wait.
        if client.check_usable().is_err() || client.is_closed() {
            return None;
        }
        let change = match select(self.changes.next(), pin!(pause(SILENCE_LIMIT))).await {
            Either::Left((Some(Change::Resource(name)), _)) => Name::new(client.shown(&name)).ok(),
            Either::Left((None, _)) => {
                pause(RESUBSCRIBE_AFTER).await;
                self.changes = client.store.watch(self.scope.clone());
                None
            }
            _ => None,
        };
        (!client.is_closed()).then_some(change)
    }
}
