//! One connection that many tasks send requests on. Replies arrive in the order of the requests.
//!
//! A task of the runtime that opened the connection drives the stream ([`driver`]): it writes requests, delivers each reply to
//! its request, and passes pushes to [`OnPush`]. [`request`] has the requests. By 1 to 3, no request waits for a reply that cannot
//! arrive.
//!
//! 1. A request has a pending reply in the queue before its bytes are written, and the pending reply stays if the caller is
//!    dropped: otherwise all later replies would go to the wrong requests.
//! 2. However the connection ends, every open request fails, and so does every later one.
//! 3. A pending reply awaits one reply, or one push of a given kind and channel that confirms a subscription. Any other push is
//!    no reply and completes no request; a reply where a push is due ends the connection.
//! 4. [`Limits`] bounds the open requests and the bytes that are not written. A request beyond is refused at once, with its whole
//!    pipeline, and none of its bytes are sent.
//! 5. A request is written within five seconds, or never: if the runtime was blocked for longer, the connection ends instead.
//!    Tombstones rely on it.
//! 6. A retired connection ends when no request is open on it; a connection whose last handle is dropped ends at once.

mod driver;
mod request;

use std::collections::VecDeque;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, Pipeline, PushInfo, RedisError, RedisFuture, RedisResult, Value};
use tokio::sync::{Notify, oneshot};

use crate::clock::{Clock, Moment};

use super::parser::protocol_error;
use super::stream::Stream;
use driver::Driver;
pub(crate) use request::{Confirmation, Request};

/// Takes each push, on the task that reads it.
pub(crate) type OnPush = Arc<dyn Fn(PushInfo) + Send + Sync>;
type ReplySender = oneshot::Sender<RedisResult<Value>>;

/// The reply that an open request awaits.
struct PendingReply {
    sender: ReplySender,
    /// The push that is awaited instead of a reply.
    confirmation: Option<Box<Confirmation>>,
}

/// The reply to one request; an error if the connection ends before. An error reply of the server is a value here.
pub(crate) struct Reply(oneshot::Receiver<RedisResult<Value>>);

impl Future for Reply {
    type Output = RedisResult<Value>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|received| received.unwrap_or_else(|_| Err(closed())))
    }
}

impl PendingReply {
    fn is_confirmed_by(&self, push: &PushInfo) -> bool {
        self.confirmation.as_ref().is_some_and(|awaited| {
            awaited.kind == push.kind
                && awaited.channel.as_ref().is_none_or(|channel| push.data.first() == Some(channel))
        })
    }

    /// Completes the request. `false` if `reply` is not what it awaits: then the request fails, and no later reply can be
    /// matched.
    fn deliver(self, reply: Value) -> bool {
        let is_due = self.confirmation.is_none() || matches!(reply, Value::Push { .. } | Value::ServerError(_));
        // A request whose caller is gone needs no reply.
        let _ = self.sender.send(if is_due {
            Ok(reply)
        } else {
            Err(protocol_error("a reply where a confirmation is due"))
        });
        is_due
    }
}

/// Counters of one connection, for the task that monitors it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Activity {
    /// Requests without a reply.
    pub(crate) open_requests: usize,
    /// All requests so far.
    pub(crate) sent_requests: u64,
    /// Reads that returned bytes.
    pub(crate) reads: u64,
    /// Runs of the driver.
    pub(crate) driver_polls: u64,
}

impl Activity {
    /// All replies so far.
    pub(crate) fn reply_count(&self) -> u64 {
        self.sent_requests - self.open_requests as u64
    }
}

/// A handle to an open connection.
#[derive(Clone)]
pub(crate) struct Multiplexer(Arc<Handle>);

/// Ends the connection when the last [`Multiplexer`] is dropped; the driver has none.
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.end(&closed());
    }
}

/// How much may be open on one connection: bounds the memory that a slow or silent server costs.
struct Limits {
    /// Requests without a reply, including requests whose callers were dropped.
    requests: usize,
    /// Bytes that are not written yet. One request may exceed the limit: otherwise a longer request could never be sent.
    bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { requests: 100_000, bytes: 64 * 1024 * 1024 }
    }
}

impl Limits {
    /// Whether `more` further requests would exceed the limits.
    fn are_exceeded_by(&self, dispatcher: &Dispatcher, more: usize) -> bool {
        dispatcher.pending.len() + more > self.requests
            || dispatcher.outgoing.len() + dispatcher.bytes_being_written >= self.bytes
    }

    /// The error of a refused request. Its kind does not retire the connection.
    #[cold]
    fn refusal(&self, dispatcher: &Dispatcher, more: usize) -> RedisError {
        let what = match dispatcher.pending.len() + more > self.requests {
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
    dispatcher: Mutex<Dispatcher>,
    /// See [`Activity`].
    reads: AtomicU64,
    polls: AtomicU64,
    /// Notifies the monitoring task: a request was sent, or the connection has ended.
    monitor: Notify,
    /// Whether no new request should use the connection. Open requests may still get their replies.
    is_retired: AtomicBool,
    retirement: Notify,
}

/// Requests between their callers and the driver: bytes to write, and pending replies in the order of the requests.
#[derive(Default)]
struct Dispatcher {
    outgoing: Vec<u8>,
    /// When the first request of `outgoing` was added.
    queued_at: Moment,
    /// How many bytes the driver took and has not written completely.
    bytes_being_written: usize,
    pending: VecDeque<PendingReply>,
    /// All requests so far.
    sent_requests: u64,
    /// Whether the monitoring task waits for the next request.
    is_monitor_waiting: bool,
    driver_waker: Option<Waker>,
    /// Whether the driver reads `outgoing` before it sleeps, and so need not be woken.
    is_driver_awake: bool,
    /// Why the connection has ended; `None` while it is open.
    end_reason: Option<RedisError>,
}

impl Multiplexer {
    /// Opens a connection on a stream and sends the commands of `handshake` first. Fails if the server refuses one of them.
    pub(crate) async fn open(stream: Stream, handshake: &[Cmd], on_push: OnPush) -> RedisResult<Self> {
        Self::open_within(Limits::default(), stream, handshake, on_push).await
    }

    async fn open_within(limits: Limits, stream: Stream, handshake: &[Cmd], on_push: OnPush) -> RedisResult<Self> {
        let shared = Shared { limits, ..Shared::default() };
        let multiplexer = Self(Arc::new(Handle(Arc::new(shared))));
        // Order matters: requests are pending before the driver reads. A server that refuses a connection sends its error
        // without a request, and that reply has to find a pending one.
        let replies = handshake.iter().map(|command| multiplexer.send(command));
        let replies: Vec<_> = replies.collect();
        tokio::spawn(Driver::new(stream, Arc::clone(multiplexer.shared()), on_push));
        for reply in replies {
            reply.await?.extract_error()?;
        }
        Ok(multiplexer)
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    /// Sends one request: at once, not when the reply is polled.
    pub(crate) fn send(&self, request: &impl Request) -> Reply {
        let (sender, receiver) = oneshot::channel();
        let pending = PendingReply { sender, confirmation: request.confirmation() };
        self.shared().send(|bytes| request.write(bytes), std::iter::once(pending));
        Reply(receiver)
    }

    /// Whether no new request should use the connection.
    pub(crate) fn is_retired(&self) -> bool {
        self.shared().is_retired.load(Ordering::Acquire)
    }

    /// Waits until the connection is retired.
    pub(crate) async fn retired(&self) {
        let mut notified = pin!(self.shared().retirement.notified());
        // Order matters: the notification is enabled before the flag is read, or one between the two would be missed.
        notified.as_mut().enable();
        if !self.is_retired() {
            notified.await;
        }
    }

    /// Makes the connection end when all open requests have their replies.
    pub(crate) fn retire(&self) {
        self.shared().retire();
        self.shared().wake();
    }

    /// Makes the driver run once more.
    pub(crate) fn wake_driver(&self) {
        self.shared().wake();
    }

    /// Ends the connection now. Open requests fail with `why`.
    pub(crate) fn abort(&self, why: &RedisError) {
        self.shared().end(why);
    }

    /// The counters; `None` once the connection has ended.
    pub(crate) fn activity(&self) -> Option<Activity> {
        let dispatcher = self.shared().dispatcher();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (reads, driver_polls) = (count(&self.shared().reads), count(&self.shared().polls));
        dispatcher.end_reason.is_none().then_some(Activity {
            open_requests: dispatcher.pending.len(),
            sent_requests: dispatcher.sent_requests,
            reads,
            driver_polls,
        })
    }

    /// Waits until a request is sent, or the connection has ended. For one task.
    pub(crate) async fn next_request(&self) {
        {
            let mut dispatcher = self.shared().dispatcher();
            if dispatcher.end_reason.is_some() {
                return;
            }
            dispatcher.is_monitor_waiting = true;
        }
        self.shared().monitor.notified().await;
    }
}

impl Shared {
    /// Sends all of these requests or, if the connection has ended or is full, none.
    fn send(&self, write: impl FnOnce(&mut Vec<u8>), pending: impl ExactSizeIterator<Item = PendingReply>) {
        let mut dispatcher = self.dispatcher();
        // Order matters: a request is refused before any of its bytes are written, or later replies would not match.
        if dispatcher.end_reason.is_some() || self.limits.are_exceeded_by(&dispatcher, pending.len()) {
            let why = dispatcher.end_reason.clone().unwrap_or_else(|| self.limits.refusal(&dispatcher, pending.len()));
            drop(dispatcher);
            pending.for_each(|pending| drop(pending.sender.send(Err(why.clone()))));
            return;
        }
        if dispatcher.outgoing.is_empty() {
            dispatcher.queued_at = Clock::boot().now();
        }
        write(&mut dispatcher.outgoing);
        let before = dispatcher.pending.len();
        dispatcher.pending.extend(pending);
        dispatcher.sent_requests += (dispatcher.pending.len() - before) as u64;
        if std::mem::take(&mut dispatcher.is_monitor_waiting) {
            self.monitor.notify_one();
        }
        if !std::mem::replace(&mut dispatcher.is_driver_awake, true) {
            let driver = dispatcher.driver_waker.clone();
            drop(dispatcher);
            driver.iter().for_each(Waker::wake_by_ref);
        }
    }

    fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
        self.retirement.notify_waiters();
    }

    /// Wakes the driver.
    fn wake(&self) {
        let driver = self.dispatcher().driver_waker.clone();
        driver.iter().for_each(Waker::wake_by_ref);
    }

    /// Ends the connection. All requests fail with the first reason.
    fn end(&self, why: &RedisError) {
        let mut dispatcher = self.dispatcher();
        if dispatcher.end_reason.is_some() {
            return;
        }
        dispatcher.end_reason = Some(why.clone());
        dispatcher.outgoing = Vec::new();
        let (open, driver) = (std::mem::take(&mut dispatcher.pending), dispatcher.driver_waker.take());
        drop(dispatcher);
        self.retire();
        self.monitor.notify_one();
        open.into_iter().for_each(|pending| drop(pending.sender.send(Err(why.clone()))));
        driver.iter().for_each(Waker::wake_by_ref);
    }

    fn dispatcher(&self) -> MutexGuard<'_, Dispatcher> {
        self.dispatcher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a connection that has ended without a better reason.
fn closed() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

/// For commands outside the hot path: a boxed future for each.
impl ConnectionLike for Multiplexer {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(self.send(command))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        let (senders, receivers): (Vec<ReplySender>, Vec<_>) = (0..offset + count).map(|_| oneshot::channel()).unzip();
        let pending = senders.into_iter().map(|sender| PendingReply { sender, confirmation: None });
        self.shared().send(|bytes| bytes.extend(pipeline.get_packed_pipeline()), pending);
        Box::pin(async move {
            let mut values = Vec::with_capacity(offset + count);
            for receiver in receivers {
                values.push(Reply(receiver).await?);
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
