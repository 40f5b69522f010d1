//! Which lines change, for those who show them.

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use futures::stream::{self, BoxStream, Stream, StreamExt};

use crate::name::Name;
use crate::store::{Change, Scope};

use super::Locks;
use super::ask::Ask;

/// How long to believe that nothing has happened because nothing was heard.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// The pause before listening again to a store that stopped telling.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

impl Locks {
    /// Which lines change from now on, among names that begin with `beginning`: the name of each; or `None` when any of them
    /// may have changed unheard, and now and then in case a store tells nothing. What has become of a line,
    /// [`inspect`](Self::inspect) and [`Mutex::info`](crate::Mutex::info) say. A lease that runs out makes itself heard only
    /// when somebody looks. Ends when this client is shut down.
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
        let heard = match self.client().check_usable() {
            Ok(()) => self.client().store.watch(scope.clone()),
            Err(_) => stream::empty().boxed(),
        };
        let listener = Listener { ask: self.ask(), scope, heard };
        stream::unfold(listener, |mut listener| async move {
            let change = listener.next().await?;
            Some((change, listener))
        })
        .boxed()
    }
}

struct Listener {
    ask: Ask,
    scope: Scope,
    heard: BoxStream<'static, Change>,
}

impl Listener {
    async fn next(&mut self) -> Option<Option<Name>> {
        let client = self.ask.client();
        let pause = |span| client.sleep_until(client.clock.now() + span);
        // A closed client wakes nobody, so whoever waits for it would never come back, or never wait.
        if client.check_usable().is_err() || client.is_closed() {
            return None;
        }
        let change = match select(self.heard.next(), pin!(pause(LOOK_AGAIN))).await {
            Either::Left((Some(Change::Resource(name)), _)) => Name::new(client.shown(&name)).ok(),
            Either::Left((None, _)) => {
                pause(LISTEN_AGAIN).await;
                self.heard = client.store.watch(self.scope.clone());
                None
            }
            _ => None,
        };
        (!client.is_closed()).then_some(change)
    }
}
