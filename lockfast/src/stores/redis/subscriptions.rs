//! Subscriptions to pushes: the subscribers in this process, and the subscriptions of their connections.
//!
//! Each watch has a task on the runtime that began it. The task subscribes on that runtime's connection. After the connection was
//! lost, the task subscribes again and sends [`Change::Resync`], since pushes may have been missed.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use foldhash::quality::RandomState;
use futures::Stream;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::{Notify, watch};

use crate::claim::{ClientId, Ticket};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::store::{Change, Leaving, Scope, Why};

use super::super::subscribers::{Pushes, Subscribers};
use super::Inner;
use super::connection::{Connection, Subscription};
use super::decode::{decode_claim, decode_owner};
use super::keys::{PUSH_CHANNEL_PREFIX, QUEUE_CHANGES_CHANNEL, WATCHED_KEY};

/// How long the key [`WATCHED_KEY`] lives, and how often it is renewed while queues are watched.
const WATCHED_TTL: Duration = Duration::from_secs(30);
const WATCHED_RENEWAL_INTERVAL: Duration = Duration::from_secs(10);
/// The longest that a claim waits for its client's subscription. Then the claim joins as one whose client has no subscription.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause before the next attempt to subscribe: after a failure, and after a refusal for missing rights.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
const REFUSED_PAUSE: Duration = Duration::from_secs(10);

type StatesByClient = HashMap<ClientId, watch::Receiver<SubscriptionState>, RandomState>;

pub(super) struct Subscriptions {
    subscribers: Mutex<Subscribers>,
    /// The state of each client's subscription, as its task sends it.
    states: Mutex<StatesByClient>,
    /// Whether a pushed grant counts at once. Otherwise it is turned into a recheck: replicas may not have the grant.
    trusts_grants: bool,
}

/// Whether a client's pushes arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubscriptionState {
    /// A subscription is being made.
    Pending,
    Subscribed,
    /// The server is unreachable, or refuses the subscription.
    Unsubscribed,
}

impl Subscriptions {
    pub(super) fn new(trusts_grants: bool) -> Self {
        Self { subscribers: Mutex::default(), states: Mutex::default(), trusts_grants }
    }

    /// Whether pushes reach this client; waits a moment for a subscription that is being made.
    pub(super) async fn is_subscribed(&self, client: ClientId, connection: &Connection) -> bool {
        let state = match self.state(client) {
            SubscriptionState::Pending => Box::pin(self.settled_state(client, connection)).await,
            known => known,
        };
        state == SubscriptionState::Subscribed
    }

    async fn settled_state(&self, client: ClientId, connection: &Connection) -> SubscriptionState {
        let Some(mut state) = self.states().get(&client).cloned() else { return SubscriptionState::Unsubscribed };
        let known = state.wait_for(|state| *state != SubscriptionState::Pending);
        let _ = connection.timeout(SUBSCRIBE_TIMEOUT, known).await;
        self.state(client)
    }

    fn state(&self, client: ClientId) -> SubscriptionState {
        match self.states().get(&client) {
            // The task of an ended watch has dropped its sender, whatever state it sent last.
            Some(state) if state.has_changed().is_ok() => *state.borrow(),
            _ => SubscriptionState::Unsubscribed,
        }
    }

    fn states(&self) -> MutexGuard<'_, StatesByClient> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the pushes of one message to inboxes, on the thread that read it.
    pub(super) fn on_push(&self, info: &PushInfo) {
        let (PushKind::Message, [Value::BulkString(channel), Value::BulkString(message)]) =
            (&info.kind, &info.data[..])
        else {
            return;
        };
        let (Ok(channel), Ok(message)) = (std::str::from_utf8(channel), std::str::from_utf8(message)) else { return };
        let mut to_wake = Vec::new();
        let mut subscribers = self.subscribers();
        if channel == QUEUE_CHANGES_CHANNEL {
            subscribers.push_queue_change(&Name::stored(message), &mut to_wake);
        } else if let Some(client) =
            channel.strip_prefix(PUSH_CHANNEL_PREFIX).and_then(|id| u64::from_str_radix(id, 16).ok())
        {
            for change in message.lines().filter_map(decode_push) {
                subscribers.push_to_client(ClientId(client), &self.as_trusted(change), &mut to_wake);
            }
        }
        drop(subscribers);
        to_wake.iter().for_each(|inbox| inbox.wake());
    }

    /// The change that subscribers get. If grants are not trusted, a grant becomes a recheck: a hint to ask the store.
    fn as_trusted(&self, change: Change) -> Change {
        match change {
            Change::Held(owner, _) if !self.trusts_grants => Change::Recheck(owner, Duration::ZERO),
            other => other,
        }
    }

    /// `why` is of the reply to `leaving`, and may name the claim of the same client that holds now. If grants are not trusted,
    /// that claim gets a recheck instead, and `why` becomes [`Why::Left`].
    pub(super) fn distrust_named_grant(&self, why: &mut Why, leaving: &Leaving) {
        if let (Why::PassedOn(owner, ticket), Some(left), false) = (&*why, leaving.claim(), self.trusts_grants) {
            let mut to_wake = Vec::new();
            let change = self.as_trusted(Change::Held(*owner, *ticket));
            self.subscribers().push_to_client(left.client, &change, &mut to_wake);
            to_wake.iter().for_each(|inbox| inbox.wake());
            *why = Why::Left;
        }
    }

    /// Adds a resync for the subscribers of this scope.
    fn resync(&self, scope: &Scope) {
        let mut to_wake = Vec::new();
        match scope {
            Scope::Client(client) => self.subscribers().push_to_client(*client, &Change::Resync, &mut to_wake),
            Scope::Queues(_) => self.subscribers().resync_queues(&mut to_wake),
        }
        to_wake.iter().for_each(|inbox| inbox.wake());
    }

    pub(super) fn close(&self) {
        self.subscribers().close();
    }

    fn subscribers(&self) -> MutexGuard<'_, Subscribers> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn decode_push(line: &str) -> Option<Change> {
    let mut words = line.split(' ');
    match words.next()? {
        "held" => {
            let owner = decode_owner(words.next()?)?;
            Some(Change::Held(owner, Ticket(words.next()?.parse().ok()?)))
        }
        // The text of the claim that holds its one name alone now.
        "lockfast1" => decode_claim(line).map(|(owner, tickets)| Change::Held(owner, tickets.first)),
        "gone" => Some(Change::Gone(decode_owner(words.next()?)?)),
        "recheck" => {
            let owner = decode_owner(words.next()?)?;
            Some(Change::Recheck(owner, Duration::from_millis(words.next()?.parse().ok()?)))
        }
        _ => None,
    }
}

/// A stream of changes. A task keeps the connection subscribed as long as the stream exists.
pub(super) struct Watch {
    pushes: Pushes,
    /// Tells the task that the stream was dropped.
    closing: Arc<Notify>,
}

impl Watch {
    pub(super) fn begin(inner: &Arc<Inner>, scope: Scope) -> Self {
        let pushes = inner.subscriptions.subscribers().subscribe(scope.clone());
        let closing = Arc::new(Notify::new());
        let (sender, state) = watch::channel(SubscriptionState::Pending);
        if let Scope::Client(client) = scope {
            let mut states = inner.subscriptions.states();
            states.retain(|_, state| state.has_changed().is_ok());
            states.insert(client, state);
        }
        // However the task ends, even with its runtime, the stream ends too: then its subscriber begins another watch.
        let (close_on_drop, weak, task_closing) = (pushes.close_on_drop(), Arc::downgrade(inner), Arc::clone(&closing));
        inner.pool.spawn(async move {
            let _close_on_drop = close_on_drop;
            keep_subscribed(weak, scope, sender, &task_closing).await;
        });
        Self { pushes, closing }
    }
}

impl Stream for Watch {
    type Item = Change;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Change>> {
        Pin::new(&mut self.pushes).poll_next(cx)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The task unsubscribes and ends.
        self.closing.notify_one();
    }
}

/// Keeps one watch subscribed until it is dropped.
async fn keep_subscribed(inner: Weak<Inner>, scope: Scope, state: watch::Sender<SubscriptionState>, closing: &Notify) {
    let channel = match &scope {
        Scope::Client(client) => format!("{PUSH_CHANNEL_PREFIX}{client}"),
        Scope::Queues(_) => QUEUE_CHANGES_CHANNEL.to_owned(),
    };
    // The first subscription of a client needs no resync: its claims wait for the subscription before they join.
    let mut is_first_client_subscription = matches!(scope, Scope::Client(_));
    loop {
        let Some(strong) = inner.upgrade() else { return };
        let connection = tokio::select! {
            connection = strong.pool.connection() => connection,
            () = closing.notified() => return,
        };
        let subscribed = match connection {
            // Never cancelled half way: the server would count a subscriber that is gone.
            Ok(connection) => subscribe(&connection, &scope, &channel, &state).await,
            Err(error) => Err(error),
        };
        match subscribed {
            Ok(subscription) => {
                let _ = state.send(SubscriptionState::Subscribed);
                if !std::mem::take(&mut is_first_client_subscription) {
                    strong.subscriptions.resync(&scope);
                }
                drop(strong);
                let is_wanted = tokio::select! {
                    () = subscription.connection.retired() => true,
                    () = renew_watched(&subscription.connection, &scope) => true,
                    () = closing.notified() => false,
                };
                let _ = state.send(SubscriptionState::Pending);
                drop(subscription);
                if !is_wanted {
                    return;
                }
            }
            Err(error) => {
                // Without pushes, waiters poll.
                let _ = state.send(SubscriptionState::Unsubscribed);
                drop(strong);
                let pause = if matches!(error, Error::Unsupported(_)) { REFUSED_PAUSE } else { RETRY_PAUSE };
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = closing.notified() => return,
                }
            }
        }
    }
}

async fn subscribe(
    connection: &Arc<Connection>,
    scope: &Scope,
    channel: &str,
    state: &watch::Sender<SubscriptionState>,
) -> Result<Subscription> {
    let _ = state.send(SubscriptionState::Pending);
    let subscription = connection.subscribe(channel).await?;
    if matches!(scope, Scope::Queues(_)) {
        set_watched(connection).await?;
    }
    Ok(subscription)
}

/// While the key exists, scripts publish which queues have changed.
async fn set_watched(connection: &Connection) -> Result<()> {
    let mut command = redis::cmd("SET");
    command.arg(WATCHED_KEY).arg("1").arg("PX").arg(WATCHED_TTL.as_millis() as u64);
    connection.command("watching", &command).await.map(drop)
}

/// Renews the key [`WATCHED_KEY`] if `scope` watches queues. Returns only after a failure.
async fn renew_watched(connection: &Connection, scope: &Scope) {
    if matches!(scope, Scope::Client(_)) {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(WATCHED_RENEWAL_INTERVAL).await;
        if set_watched(connection).await.is_err() {
            return;
        }
    }
}
