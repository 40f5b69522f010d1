//! The task that drives one connection: it writes requests, delivers replies in order, and passes pushes on.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use redis::{PushInfo, PushKind, RedisResult, Value};
use tokio::io::{AsyncReadExt, AsyncWrite};

use crate::clock::{Clock, Moment};

use super::super::parser::{Parser, READ_SIZE, protocol_error};
use super::super::stream::Stream;
use super::super::timing::MAX_RESPONSE_TIMEOUT;
use super::{OnPush, PendingReply, Shared, closed};

/// The least number of replies that are delivered before requests are written; a quarter of the open requests, if that is more.
/// Larger batches put more requests into one write; smaller ones keep client and server working at the same time.
const MIN_BATCH: usize = 16;

pub(super) struct Driver {
    stream: Stream,
    shared: Arc<Shared>,
    on_push: OnPush,
    parser: Parser,
    /// Replies that were parsed and not delivered, and the requests that they are delivered to. Both are empty between two polls.
    undelivered: Vec<Value>,
    receivers: Vec<PendingReply>,
    /// The bytes that are being written, and how many of them are written already.
    outgoing: Vec<u8>,
    written_count: usize,
    /// When the first request of `outgoing` was sent by its caller.
    queued_at: Moment,
    /// How many replies are delivered before requests are written.
    batch_size: usize,
    /// Whether a batch was full: more replies may have been received.
    has_more: bool,
    /// Whether several requests got their replies since the last write: their callers are likely to send again.
    delivered_several: bool,
    /// Whether the driver has yielded once to these callers before it writes.
    has_yielded: bool,
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.shared.polls.fetch_add(1, Ordering::Relaxed);
        let why = ready!(self.drive(cx)).err().unwrap_or_else(closed);
        self.shared.end(&why);
        Poll::Ready(())
    }
}

impl Drop for Driver {
    /// A runtime that is shut down drops its tasks: then too, every open request fails.
    fn drop(&mut self) {
        self.shared.end(&closed());
    }
}

impl Driver {
    pub(super) fn new(stream: Stream, shared: Arc<Shared>, on_push: OnPush) -> Self {
        Self {
            stream,
            shared,
            on_push,
            parser: Parser::default(),
            undelivered: Vec::new(),
            receivers: Vec::new(),
            outgoing: Vec::new(),
            written_count: 0,
            queued_at: Moment::START,
            batch_size: MIN_BATCH,
            has_more: false,
            delivered_several: false,
            has_yielded: false,
        }
    }

    /// Reads and writes as far as the stream allows. Ready once the connection has ended.
    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<RedisResult<()>> {
        if self.shared.is_retired.load(Ordering::Acquire) && self.shared.dispatcher().end_reason.is_some() {
            return Poll::Ready(Ok(()));
        }
        // After a yield, the requests of the callers that ran are written before more replies are delivered.
        if self.has_yielded
            && let Poll::Ready(ended) = self.write(cx)
        {
            return Poll::Ready(self.deliver_received(ended, cx));
        }
        self.read(cx)?;
        match self.write(cx) {
            Poll::Ready(ended) => Poll::Ready(self.deliver_received(ended, cx)),
            Poll::Pending => {
                // Replies that were received are delivered even if the server takes no requests.
                if self.has_more {
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }

    /// After a write error, still delivers the replies that were already received.
    fn deliver_received(&mut self, ended: RedisResult<()>, cx: &mut Context<'_>) -> RedisResult<()> {
        while ended.is_err() && self.read(cx).is_ok() && self.has_more {}
        ended
    }

    /// Writes requests. Ready once no request can follow.
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<RedisResult<()>> {
        loop {
            while self.written_count < self.outgoing.len() {
                if Clock::boot().now().since(self.queued_at) >= MAX_RESPONSE_TIMEOUT {
                    let late = format!(
                        "not sent within {MAX_RESPONSE_TIMEOUT:?}: the runtime was blocked, or the server took nothing"
                    );
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, late).into()));
                }
                match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.outgoing[self.written_count..]))? {
                    0 => return Poll::Ready(Err(closed())),
                    count => self.written_count += count,
                }
            }
            // TLS may buffer: its buffer is flushed before more is written. A plain stream buffers nothing.
            if let Poll::Ready(Err(error)) = Pin::new(&mut self.stream).poll_flush(cx) {
                return Poll::Ready(Err(error.into()));
            }
            self.outgoing.clear();
            self.outgoing.shrink_to(READ_SIZE);
            self.written_count = 0;
            if !ready!(self.take_requests(cx)) {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads and delivers replies, at most one batch: the server works on the next requests of these callers while the other
    /// replies are delivered.
    fn read(&mut self, cx: &mut Context<'_>) -> RedisResult<()> {
        loop {
            while self.undelivered.len() < self.batch_size {
                match self.parser.next() {
                    Ok(Some(Value::Push { kind, data })) => {
                        // Order matters: once all replies before the push are delivered, the request that it may confirm is
                        // the first open one.
                        self.deliver()?;
                        let push = PushInfo { kind, data };
                        if self.is_awaited(&push) {
                            self.undelivered.push(Value::Push { kind: push.kind, data: push.data });
                        } else {
                            (self.on_push)(push);
                        }
                    }
                    Ok(Some(reply)) => self.undelivered.push(reply),
                    Ok(None) => break,
                    Err(error) => return self.deliver().and(Err(error)),
                }
            }
            self.has_more = self.undelivered.len() == self.batch_size;
            self.deliver()?;
            if self.has_more {
                return Ok(());
            }
            match pin!(self.stream.read_buf(self.parser.spare_buffer())).poll(cx)? {
                Poll::Pending => return Ok(()),
                Poll::Ready(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Poll::Ready(_) => drop(self.shared.reads.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }

    /// Whether this push confirms the first open request.
    fn is_awaited(&self, push: &PushInfo) -> bool {
        push.kind != PushKind::Message
            && self.shared.dispatcher().pending.front().is_some_and(|pending| pending.is_confirmed_by(push))
    }

    /// Delivers all parsed replies, each to its request.
    fn deliver(&mut self) -> RedisResult<()> {
        if self.undelivered.is_empty() {
            return Ok(());
        }
        let mut dispatcher = self.shared.dispatcher();
        let count = self.undelivered.len().min(dispatcher.pending.len());
        self.batch_size = MIN_BATCH.max(dispatcher.pending.len() / 4);
        self.receivers.extend(dispatcher.pending.drain(..count));
        // Callers that send again need not wake the driver: it reads `outgoing` before it sleeps.
        dispatcher.is_driver_awake = true;
        drop(dispatcher);
        self.delivered_several |= count > 1;
        let has_unrequested = count < self.undelivered.len();
        // The connection ends at the first reply that its request does not await: the requests behind it fail.
        if !self.receivers.drain(..).zip(self.undelivered.drain(..)).all(|(receiver, reply)| receiver.deliver(reply)) {
            return Err(protocol_error("a reply where a confirmation is due"));
        }
        if has_unrequested { Err(protocol_error("a reply without a request")) } else { Ok(()) }
    }

    /// Takes the requests to write next. `false` once no request can follow.
    fn take_requests(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut dispatcher = self.shared.dispatcher();
        dispatcher.bytes_being_written = 0;
        let is_done = self.shared.is_retired.load(Ordering::Acquire) && dispatcher.pending.is_empty();
        if is_done || dispatcher.end_reason.is_some() {
            return Poll::Ready(false);
        }
        if !dispatcher.driver_waker.as_ref().is_some_and(|driver| driver.will_wake(cx.waker())) {
            dispatcher.driver_waker = Some(cx.waker().clone());
        }
        dispatcher.is_driver_awake = self.has_more || !dispatcher.outgoing.is_empty();
        if dispatcher.outgoing.is_empty() {
            self.has_yielded = false;
            return Poll::Pending;
        }
        // With several open requests, the driver yields once to callers that were just woken: their next requests go out in the
        // same write.
        if !self.has_yielded && (self.delivered_several || dispatcher.pending.len() > 1) {
            self.has_yielded = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        (self.has_yielded, self.delivered_several) = (false, false);
        std::mem::swap(&mut self.outgoing, &mut dispatcher.outgoing);
        (dispatcher.bytes_being_written, self.queued_at) = (self.outgoing.len(), dispatcher.queued_at);
        Poll::Ready(true)
    }
}
