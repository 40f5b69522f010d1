//! One connection that many tasks send requests on. Replies come in the order of the requests.
//!
//! A task of the runtime that opened it drives the stream: it writes requests, gives each reply to its
//! request, and hands pushes on. By 1 to 3, no request waits for a reply that cannot come.
//!
//! 1. A request has an entry in the reply queue before its bytes leave, and keeps it when its caller is gone: otherwise all
//!    later replies would go to the wrong requests.
//! 2. However the connection ends, every open request fails, and so does every later one.
//! 3. An entry of the reply queue awaits one reply, or one push of a given kind and channel that confirms a subscription.
//!    Any other push is no reply and takes no entry; a reply where a push is due ends the connection.
//! 4. At most so many requests and bytes are open as [`Limits`] says. A request beyond is refused at once, with all of its
//!    pipeline, and leaves no trace.
//! 5. A request is written within five seconds, or never: a runtime that was blocked for longer ends the connection instead.
//!    Tombstones rely on it.
//! 6. A connection that was left ends when nothing is open on it any more; one without any handle left, at once.

mod driver;

use std::collections::VecDeque;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, ErrorKind, Pipeline, PushInfo, PushKind, RedisError, RedisFuture, RedisResult, Value};
use tokio::sync::{Notify, oneshot};

use crate::clock::{Clock, Moment};

use super::parser::{odd, push_kind};
use super::stream::Stream;
use driver::Driver;

/// What is done with pushes, on the task that reads them.
pub(crate) type OnPush = Arc<dyn Fn(PushInfo) + Send + Sync>;
type Slot = oneshot::Sender<RedisResult<Value>>;

/// One entry of the reply queue.
struct Entry {
    slot: Slot,
    /// What it awaits instead of a reply.
    awaits: Option<Box<Confirmation>>,
}

/// A push that confirms a subscription, or its end.
pub(crate) struct Confirmation {
    kind: PushKind,
    /// Any, if the request names none.
    channel: Option<Value>,
}

/// One request, in the form in which a connection sends it.
pub(crate) trait Request {
    /// Appends it as the protocol wants it.
    fn write(&self, bytes: &mut Vec<u8>);

    /// The push that comes instead of a reply, if one does.
    fn confirmation(&self) -> Option<Box<Confirmation>>;

    /// The same as the crate's connection takes it.
    #[cfg(feature = "bench-crate-connection")]
    fn command(&self) -> Cmd;
}

impl Request for Cmd {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.write_packed_command(bytes);
    }

    fn confirmation(&self) -> Option<Box<Confirmation>> {
        let mut words = self.args_iter().filter_map(|word| match word {
            Arg::Simple(word) => Some(word),
            _ => None,
        });
        let kind = String::from_utf8_lossy(words.next()?).to_ascii_lowercase();
        let channel = words.next().map(|channel| Value::BulkString(channel.to_vec()));
        kind.ends_with("subscribe").then(|| Box::new(Confirmation { kind: push_kind(kind), channel }))
    }

    #[cfg(feature = "bench-crate-connection")]
    fn command(&self) -> Cmd {
        self.clone()
    }
}

/// What will be said to a question, or that there is no way to know. An error of the server is a value here.
pub(crate) struct Answer(oneshot::Receiver<RedisResult<Value>>);

impl Future for Answer {
    type Output = RedisResult<Value>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|said| said.unwrap_or_else(|_| Err(gone())))
    }
}

impl Entry {
    fn is_confirmed_by(&self, push: &PushInfo) -> bool {
        self.awaits.as_ref().is_some_and(|awaited| {
            awaited.kind == push.kind
                && awaited.channel.as_ref().is_none_or(|channel| push.data.first() == Some(channel))
        })
    }

    /// Gives it what came. `false` if that is not what it awaits: then it fails, and no later reply can be matched.
    fn give(self, reply: Value) -> bool {
        let is_due = self.awaits.is_none() || matches!(reply, Value::Push { .. } | Value::ServerError(_));
        // A request whose caller is gone needs no reply.
        let _ = self.slot.send(if is_due { Ok(reply) } else { Err(odd("a reply where a confirmation is due")) });
        is_due
    }
}

/// What has happened on a connection so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pulse {
    /// Requests without a reply.
    pub(crate) open: usize,
    /// Requests ever.
    pub(crate) asked: u64,
    /// How often bytes came.
    pub(crate) reads: u64,
    /// How often the driver ran.
    pub(crate) polls: u64,
}

impl Pulse {
    /// Replies ever.
    pub(crate) fn answered(&self) -> u64 {
        self.asked - self.open as u64
    }
}

/// An open connection, for all who have it together.
#[derive(Clone)]
pub(crate) struct Multiplexer(Arc<Handle>);

/// Ends the connection when its last clone is dropped; the driver has none.
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.end(&gone());
    }
}

/// How much may be open on one connection: a server that is slow or silent costs no more memory than this.
struct Limits {
    /// Without a reply, also those whose callers are gone.
    requests: usize,
    /// Not written yet. One request may go beyond: otherwise a longer one could never be sent.
    bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { requests: 100_000, bytes: 64 * 1024 * 1024 }
    }
}

impl Limits {
    /// Whether so many requests more are too many.
    fn are_reached(&self, desk: &Desk, more: usize) -> bool {
        desk.open.len() + more > self.requests || desk.outgoing.len() + desk.being_written >= self.bytes
    }

    /// Why they are refused. The kind of the error is one that does not retire the connection.
    #[cold]
    fn refusal(&self, desk: &Desk, more: usize) -> RedisError {
        let what = match desk.open.len() + more > self.requests {
            true => format!("{} requests wait for replies of Redis", self.requests),
            false => format!("{} bytes wait to be sent to Redis", self.bytes),
        };
        let why = format!("{what} on this connection; try again later, with fewer requests at a time");
        (ErrorKind::Client, "the connection is full", why).into()
    }
}

#[derive(Default)]
struct Shared {
    limits: Limits,
    desk: Mutex<Desk>,
    /// How often bytes came, and how often the driver ran.
    reads: AtomicU64,
    polls: AtomicU64,
    /// For the task that watches over it: a request was sent, or the connection has ended.
    request: Notify,
    /// That it should not be used any more. What is open may still be answered.
    left: AtomicBool,
    bell: Notify,
}

/// What askers and the driving task have in common.
#[derive(Default)]
struct Desk {
    outgoing: Vec<u8>,
    /// When the first of it was asked.
    asked_at: Moment,
    /// How many bytes the driving task took and has not written whole.
    being_written: usize,
    /// Who asked and has no answer yet, in order.
    open: VecDeque<Entry>,
    /// How many requests were sent ever.
    asked: u64,
    /// Whether a task waits for the next request.
    is_watched: bool,
    driver: Option<Waker>,
    /// Whether it will look at this desk without being woken.
    is_awake: bool,
    /// Why nothing can be asked any more.
    over: Option<RedisError>,
}

impl Multiplexer {
    /// A connection on a stream, on which `greetings` are asked first. Fails with the first of them that is refused.
    pub(crate) async fn open(stream: Stream, greetings: &[Cmd], on_push: OnPush) -> RedisResult<Self> {
        Self::open_within(Limits::default(), stream, greetings, on_push).await
    }

    async fn open_within(limits: Limits, stream: Stream, greetings: &[Cmd], on_push: OnPush) -> RedisResult<Self> {
        let shared = Shared { limits, ..Shared::default() };
        let multiplexer = Self(Arc::new(Handle(Arc::new(shared))));
        // Order matters: a server that refuses at once says so before it is asked, and that has to find an asker.
        let greeted = greetings.iter().map(|greeting| multiplexer.ask(greeting));
        let greeted: Vec<_> = greeted.collect();
        tokio::spawn(Driver::new(stream, Arc::clone(&multiplexer.0.0), on_push));
        for answer in greeted {
            answer.await?.extract_error()?;
        }
        Ok(multiplexer)
    }

    /// Sends one request. It is sent at once, not when the reply is waited for.
    pub(crate) fn ask(&self, request: &impl Request) -> Answer {
        let (slot, answer) = oneshot::channel();
        let entry = Entry { slot, awaits: request.confirmation() };
        self.0.0.ask(|bytes| request.write(bytes), std::iter::once(entry));
        Answer(answer)
    }

    /// Whether it should not be used any more.
    pub(crate) fn is_left(&self) -> bool {
        self.0.0.left.load(Ordering::Acquire)
    }

    /// Comes back when it should not be used any more.
    pub(crate) async fn left(&self) {
        let mut rung = pin!(self.0.0.bell.notified());
        // Order matters: the bell is listened to before the flag is looked at.
        rung.as_mut().enable();
        if !self.is_left() {
            rung.await;
        }
    }

    /// Makes it end when what is open was answered.
    pub(crate) fn leave(&self) {
        self.0.0.leave();
        self.0.0.wake();
    }

    /// Has the driver run once more.
    pub(crate) fn wake_driver(&self) {
        self.0.0.wake();
    }

    /// Ends it now. What is open fails with this.
    pub(crate) fn cut(&self, why: &RedisError) {
        self.0.0.end(why);
    }

    /// What has happened so far; nothing when it has ended.
    pub(crate) fn pulse(&self) -> Option<Pulse> {
        let desk = self.0.0.desk();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (reads, polls) = (count(&self.0.0.reads), count(&self.0.0.polls));
        desk.over.is_none().then_some(Pulse { open: desk.open.len(), asked: desk.asked, reads, polls })
    }

    /// Comes back when a request is sent, or the connection has ended. For one task.
    pub(crate) async fn next_request(&self) {
        {
            let mut desk = self.0.0.desk();
            if desk.over.is_some() {
                return;
            }
            desk.is_watched = true;
        }
        self.0.0.request.notified().await;
    }
}

impl Shared {
    /// Sends all of these requests or, if the connection is over or full, none.
    fn ask(&self, write: impl FnOnce(&mut Vec<u8>), entries: impl ExactSizeIterator<Item = Entry>) {
        let mut desk = self.desk();
        // Order matters: a request is refused before any of its bytes are written, or replies would match no more.
        if desk.over.is_some() || self.limits.are_reached(&desk, entries.len()) {
            let why = desk.over.clone().unwrap_or_else(|| self.limits.refusal(&desk, entries.len()));
            drop(desk);
            entries.for_each(|entry| drop(entry.slot.send(Err(why.clone()))));
            return;
        }
        if desk.outgoing.is_empty() {
            desk.asked_at = Clock::boot().now();
        }
        write(&mut desk.outgoing);
        let before = desk.open.len();
        desk.open.extend(entries);
        desk.asked += (desk.open.len() - before) as u64;
        if std::mem::take(&mut desk.is_watched) {
            self.request.notify_one();
        }
        if !std::mem::replace(&mut desk.is_awake, true) {
            let driver = desk.driver.clone();
            drop(desk);
            driver.iter().for_each(Waker::wake_by_ref);
        }
    }

    fn leave(&self) {
        self.left.store(true, Ordering::Release);
        self.bell.notify_waiters();
    }

    fn wake(&self) {
        let driver = self.desk().driver.clone();
        driver.iter().for_each(Waker::wake_by_ref);
    }

    /// Whatever ends it first is what all are told.
    fn end(&self, why: &RedisError) {
        let mut desk = self.desk();
        if desk.over.is_some() {
            return;
        }
        desk.over = Some(why.clone());
        desk.outgoing = Vec::new();
        let (open, driver) = (std::mem::take(&mut desk.open), desk.driver.take());
        drop(desk);
        self.leave();
        self.request.notify_one();
        open.into_iter().for_each(|entry| drop(entry.slot.send(Err(why.clone()))));
        driver.iter().for_each(Waker::wake_by_ref);
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection has ended.
fn gone() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

/// For what is rarely asked.
impl ConnectionLike for Multiplexer {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(self.ask(command))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        let (slots, answers): (Vec<Slot>, Vec<_>) = (0..offset + count).map(|_| oneshot::channel()).unzip();
        let entries = slots.into_iter().map(|slot| Entry { slot, awaits: None });
        self.0.0.ask(|bytes| bytes.extend(pipeline.get_packed_pipeline()), entries);
        Box::pin(async move {
            let mut values = Vec::with_capacity(offset + count);
            for answer in answers {
                values.push(Answer(answer).await?);
            }
            Ok(values.split_off(offset))
        })
    }

    fn get_db(&self) -> i64 {
        0
    }
}

#[cfg(test)]
mod tests;
