//! Pushes: who of this process wants to hear what, and that the server knows it.
//!
//! Each watch has a task on the runtime it was asked for from, which subscribes on that runtime's connection, and does so again
//! when the connection was lost: then it says [`Change::Resync`], since something may have been missed.

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

use super::super::mailbox::{Reader, Subscribers};
use super::Inside;
use super::connection::{Connection, Subscription};
use super::decode::{owner_of, read_value};
use super::encode::Ears;
use super::keys::{LINES, PUSH, WATCHED};

/// How long it is known that somebody watches lines, and how often that is said.
const WATCHED_FOR: Duration = Duration::from_secs(30);
const SAID_EVERY: Duration = Duration::from_secs(10);
/// A claim joins without ears rather than wait longer than this for its client's subscription.
const HEARS_WITHIN: Duration = Duration::from_secs(1);
/// Between attempts to subscribe: where it failed, and where it is not allowed.
const PAUSE: Duration = Duration::from_millis(100);
const LONG_PAUSE: Duration = Duration::from_secs(10);

type AllEars = HashMap<ClientId, watch::Receiver<Hearing>, RandomState>;

pub(super) struct Feed {
    subscribers: Mutex<Subscribers>,
    ears: Mutex<AllEars>,
    /// Whether a grant counts as soon as the server tells of it. Otherwise its claim is told to ask.
    grants_count: bool,
}

/// Whether a client's pushes arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hearing {
    /// It will be known in a moment.
    NotYet,
    Well,
    /// There is no way to the server, or it does not allow it.
    Not,
}

impl Feed {
    pub(super) fn new(grants_count: bool) -> Self {
        Self { subscribers: Mutex::default(), ears: Mutex::default(), grants_count }
    }

    /// Whether this client can be told of something; waits a moment for a subscription that is on its way.
    pub(super) async fn ears(&self, client: ClientId, connection: &Connection) -> Ears {
        let hearing = match self.hearing(client) {
            Hearing::NotYet => Box::pin(self.hearing_soon(client, connection)).await,
            known => known,
        };
        match hearing {
            Hearing::Well => Ears::Open,
            _ => Ears::None,
        }
    }

    async fn hearing_soon(&self, client: ClientId, connection: &Connection) -> Hearing {
        let Some(mut hearing) = self.all_ears().get(&client).cloned() else { return Hearing::Not };
        let known = hearing.wait_for(|hearing| *hearing != Hearing::NotYet);
        let _ = connection.timeout(HEARS_WITHIN, known).await;
        self.hearing(client)
    }

    fn hearing(&self, client: ClientId) -> Hearing {
        match self.all_ears().get(&client) {
            // A watch that ended hears nothing, however well it did before.
            Some(hearing) if hearing.has_changed().is_ok() => *hearing.borrow(),
            _ => Hearing::Not,
        }
    }

    fn all_ears(&self) -> MutexGuard<'_, AllEars> {
        self.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one message in, on the thread that read it.
    pub(super) fn hear(&self, info: &PushInfo) {
        let (PushKind::Message, [Value::BulkString(channel), Value::BulkString(message)]) =
            (&info.kind, &info.data[..])
        else {
            return;
        };
        let (Ok(channel), Ok(message)) = (std::str::from_utf8(channel), std::str::from_utf8(message)) else { return };
        let mut told = Vec::new();
        let mut subscribers = self.subscribers();
        if channel == LINES {
            subscribers.tell_of_queue(&Name::stored(message), &mut told);
        } else if let Some(client) = channel.strip_prefix(PUSH).and_then(|id| u64::from_str_radix(id, 16).ok()) {
            for change in message.lines().filter_map(change) {
                subscribers.tell(ClientId(client), &self.as_it_counts(change), &mut told);
            }
        }
        drop(subscribers);
        told.iter().for_each(|mailbox| mailbox.wake());
    }

    fn as_it_counts(&self, change: Change) -> Change {
        match change {
            Change::Held(owner, _) if !self.grants_count => Change::Recheck(owner, Duration::ZERO),
            other => other,
        }
    }

    /// The answer to `leaving` named the claim of the same client that holds now.
    pub(super) fn passed_on(&self, why: &mut Why, leaving: &Leaving) {
        if let (Why::PassedOn(owner, ticket), Some(left), false) = (&*why, leaving.claim(), self.grants_count) {
            let mut told = Vec::new();
            let change = self.as_it_counts(Change::Held(*owner, *ticket));
            self.subscribers().tell(left.client, &change, &mut told);
            told.iter().for_each(|mailbox| mailbox.wake());
            *why = Why::Left;
        }
    }

    fn resync(&self, scope: &Scope) {
        let mut told = Vec::new();
        match scope {
            Scope::Client(client) => self.subscribers().tell(*client, &Change::Resync, &mut told),
            Scope::Queues(_) => self.subscribers().resync_lines(&mut told),
        }
        told.iter().for_each(|mailbox| mailbox.wake());
    }

    pub(super) fn close(&self) {
        self.subscribers().close();
    }

    fn subscribers(&self) -> MutexGuard<'_, Subscribers> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn change(line: &str) -> Option<Change> {
    let mut words = line.split(' ');
    match words.next()? {
        "held" => {
            let owner = owner_of(words.next()?)?;
            Some(Change::Held(owner, Ticket(words.next()?.parse().ok()?)))
        }
        // What stands at the key of a claim that holds it alone, from now on.
        "lockfast1" => read_value(line).map(|(owner, tickets)| Change::Held(owner, tickets.first)),
        "gone" => Some(Change::Gone(owner_of(words.next()?)?)),
        "recheck" => {
            let owner = owner_of(words.next()?)?;
            Some(Change::Recheck(owner, Duration::from_millis(words.next()?.parse().ok()?)))
        }
        _ => None,
    }
}

/// A stream of changes, and the task that keeps it subscribed.
pub(super) struct Watch {
    reader: Reader,
    closing: Arc<Notify>,
}

impl Watch {
    pub(super) fn begin(inside: &Arc<Inside>, scope: Scope) -> Self {
        let reader = inside.feed.subscribers().subscribe(scope.clone());
        let closing = Arc::new(Notify::new());
        let (say, hearing) = watch::channel(Hearing::NotYet);
        if let Scope::Client(client) = scope {
            let mut ears = inside.feed.all_ears();
            ears.retain(|_, hearing| hearing.has_changed().is_ok());
            ears.insert(client, hearing);
        }
        // However the task ends, also with its runtime, the stream ends: its reader asks for another.
        let (ending, weak, closed) = (reader.ending(), Arc::downgrade(inside), Arc::clone(&closing));
        inside.pool.spawn(async move {
            let _ending = ending;
            tend(weak, scope, say, &closed).await;
        });
        Self { reader, closing }
    }
}

impl Stream for Watch {
    type Item = Change;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Change>> {
        Pin::new(&mut self.reader).poll_next(cx)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The task unsubscribes and ends.
        self.closing.notify_one();
    }
}

/// Keeps one watch subscribed until nobody wants it.
async fn tend(inside: Weak<Inside>, scope: Scope, say: watch::Sender<Hearing>, closing: &Notify) {
    let channel = match &scope {
        Scope::Client(client) => format!("{PUSH}{client}"),
        Scope::Queues(_) => LINES.to_owned(),
    };
    let mut is_first = matches!(scope, Scope::Client(_));
    loop {
        let Some(strong) = inside.upgrade() else { return };
        let connection = tokio::select! {
            connection = strong.pool.connection() => connection,
            () = closing.notified() => return,
        };
        let subscribed = match connection {
            // Never given up half way: the server would go on believing that somebody listens.
            Ok(connection) => subscribe(&connection, &scope, &channel, &say).await,
            Err(error) => Err(error),
        };
        match subscribed {
            Ok(subscription) => {
                let _ = say.send(Hearing::Well);
                if !std::mem::take(&mut is_first) {
                    strong.feed.resync(&scope);
                }
                drop(strong);
                let is_wanted = tokio::select! {
                    () = subscription.connection.retired() => true,
                    () = keep_known(&subscription.connection, &scope) => true,
                    () = closing.notified() => false,
                };
                let _ = say.send(Hearing::NotYet);
                drop(subscription);
                if !is_wanted {
                    return;
                }
            }
            Err(error) => {
                // Without pushes: who waits finds out by asking.
                let _ = say.send(Hearing::Not);
                drop(strong);
                let pause = if matches!(error, Error::Unsupported(_)) { LONG_PAUSE } else { PAUSE };
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
    say: &watch::Sender<Hearing>,
) -> Result<Subscription> {
    let _ = say.send(Hearing::NotYet);
    let subscription = connection.subscribe(channel).await?;
    if matches!(scope, Scope::Queues(_)) {
        say_watched(connection).await?;
    }
    Ok(subscription)
}

async fn say_watched(connection: &Connection) -> Result<()> {
    let mut command = redis::cmd("SET");
    command.arg(WATCHED).arg("1").arg("PX").arg(WATCHED_FOR.as_millis() as u64);
    connection.command("watching", &command).await.map(drop)
}

/// Says again and again that lines are watched, if they are. Comes back only when that fails.
async fn keep_known(connection: &Connection, scope: &Scope) {
    if matches!(scope, Scope::Client(_)) {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(SAID_EVERY).await;
        if say_watched(connection).await.is_err() {
            return;
        }
    }
}
