//! The task at a connection's end: reads answers and pushes, writes what was asked.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use redis::{PushInfo, PushKind, RedisResult, Value};
use tokio::io::{AsyncReadExt, AsyncWrite};

use crate::clock::{Clock, Moment};

use super::super::parser::{Parser, ROOM, odd};
use super::super::stream::Stream;
use super::super::timing::LONGEST_RESPONSE;
use super::{Entry, OnPush, Shared, gone};

/// How many get their answers, at least, before what they ask next is written; a quarter of those who wait, if that is more. With
/// more of them more goes out in one write; with fewer, client and server work at the same time.
const AT_ONCE: usize = 16;

/// The task that reads and writes.
pub(super) struct Driver {
    stream: Stream,
    shared: Arc<Shared>,
    on_push: OnPush,
    replies: Parser,
    /// Answers that came and were not given yet, and whom they are given to.
    answers: Vec<Value>,
    askers: Vec<Entry>,
    /// What is being written, and how much of it was.
    outgoing: Vec<u8>,
    written: usize,
    /// When the first of it was asked.
    asked_at: Moment,
    at_once: usize,
    /// Whether answers are left that came and were not read.
    has_more: bool,
    /// Whether several got their answers just now: they may ask again in a moment.
    is_crowded: bool,
    gave_way: bool,
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.shared.polls.fetch_add(1, Ordering::Relaxed);
        let why = ready!(self.drive(cx)).err().unwrap_or_else(gone);
        self.shared.end(&why);
        Poll::Ready(())
    }
}

impl Drop for Driver {
    /// The runtime may be shut down at any time.
    fn drop(&mut self) {
        self.shared.end(&gone());
    }
}

impl Driver {
    pub(super) fn new(stream: Stream, shared: Arc<Shared>, on_push: OnPush) -> Self {
        Self {
            stream,
            shared,
            on_push,
            replies: Parser::default(),
            answers: Vec::new(),
            askers: Vec::new(),
            outgoing: Vec::new(),
            written: 0,
            asked_at: Moment::START,
            at_once: AT_ONCE,
            has_more: false,
            is_crowded: false,
            gave_way: false,
        }
    }

    /// Goes on as long as there is something to do; comes to an end with the connection.
    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<RedisResult<()>> {
        if self.shared.left.load(Ordering::Acquire) && self.shared.desk().over.is_some() {
            return Poll::Ready(Ok(()));
        }
        // What those who were let through have asked goes out before others get their answers.
        if self.gave_way
            && let Poll::Ready(ended) = self.write(cx)
        {
            return Poll::Ready(self.after_last_answers(ended, cx));
        }
        self.read(cx)?;
        match self.write(cx) {
            Poll::Ready(ended) => Poll::Ready(self.after_last_answers(ended, cx)),
            Poll::Pending => {
                // Answers that are here do not wait until somebody takes our questions.
                if self.has_more {
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }

    /// Who takes no more questions may have answered before. What came counts.
    fn after_last_answers(&mut self, ended: RedisResult<()>, cx: &mut Context<'_>) -> RedisResult<()> {
        while ended.is_err() && self.read(cx).is_ok() && self.has_more {}
        ended
    }

    /// Writes what was asked. Comes to an end when nothing will be asked any more.
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<RedisResult<()>> {
        loop {
            while self.written < self.outgoing.len() {
                if Clock::boot().now().since(self.asked_at) >= LONGEST_RESPONSE {
                    let late = format!(
                        "not sent within {LONGEST_RESPONSE:?}: the runtime was blocked, or the server took nothing"
                    );
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, late).into()));
                }
                match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.outgoing[self.written..]))? {
                    0 => return Poll::Ready(Err(gone())),
                    count => self.written += count,
                }
            }
            // What is kept back by encryption goes out before more is written; a plain stream keeps nothing.
            if let Poll::Ready(Err(error)) = Pin::new(&mut self.stream).poll_flush(cx) {
                return Poll::Ready(Err(error.into()));
            }
            self.outgoing.clear();
            self.outgoing.shrink_to(ROOM);
            self.written = 0;
            if !ready!(self.take_questions(cx)) {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads what is there, and gives it to whom it is for: some at a time, so that the server is at work on what those ask
    /// next while the others get theirs.
    fn read(&mut self, cx: &mut Context<'_>) -> RedisResult<()> {
        loop {
            while self.answers.len() < self.at_once {
                match self.replies.next() {
                    Ok(Some(Value::Push { kind, data })) => {
                        // Order matters: with all replies before it given, the request that it may confirm is the first.
                        self.give()?;
                        let push = PushInfo { kind, data };
                        if self.is_due(&push) {
                            self.answers.push(Value::Push { kind: push.kind, data: push.data });
                        } else {
                            (self.on_push)(push);
                        }
                    }
                    Ok(Some(answer)) => self.answers.push(answer),
                    Ok(None) => break,
                    Err(error) => return self.give().and(Err(error)),
                }
            }
            self.has_more = self.answers.len() == self.at_once;
            self.give()?;
            if self.has_more {
                return Ok(());
            }
            match pin!(self.stream.read_buf(self.replies.room())).poll(cx)? {
                Poll::Pending => return Ok(()),
                Poll::Ready(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Poll::Ready(_) => drop(self.shared.reads.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }

    /// Whether this push confirms the first open request.
    fn is_due(&self, push: &PushInfo) -> bool {
        push.kind != PushKind::Message
            && self.shared.desk().open.front().is_some_and(|entry| entry.is_confirmed_by(push))
    }

    fn give(&mut self) -> RedisResult<()> {
        if self.answers.is_empty() {
            return Ok(());
        }
        let mut desk = self.shared.desk();
        let count = self.answers.len().min(desk.open.len());
        self.at_once = AT_ONCE.max(desk.open.len() / 4);
        self.askers.extend(desk.open.drain(..count));
        // They need not wake us to ask again: we look before we sleep.
        desk.is_awake = true;
        drop(desk);
        self.is_crowded |= count > 1;
        let is_unasked = count < self.answers.len();
        // The connection ends with the first that gets what it does not await: the rest of them fail.
        if !self.askers.drain(..).zip(self.answers.drain(..)).all(|(asker, answer)| asker.give(answer)) {
            return Err(odd("a reply where a confirmation is due"));
        }
        if is_unasked { Err(odd("an answer to nothing that was asked")) } else { Ok(()) }
    }

    /// What is to be written next; `false` when nothing will be any more.
    fn take_questions(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut desk = self.shared.desk();
        desk.being_written = 0;
        let is_done = self.shared.left.load(Ordering::Acquire) && desk.open.is_empty();
        if is_done || desk.over.is_some() {
            return Poll::Ready(false);
        }
        if !desk.driver.as_ref().is_some_and(|driver| driver.will_wake(cx.waker())) {
            desk.driver = Some(cx.waker().clone());
        }
        desk.is_awake = self.has_more || !desk.outgoing.is_empty();
        if desk.outgoing.is_empty() {
            self.gave_way = false;
            return Poll::Pending;
        }
        // Where many ask, those who were just woken come first, once: what they ask goes out in the same write.
        if !self.gave_way && (self.is_crowded || desk.open.len() > 1) {
            self.gave_way = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        (self.gave_way, self.is_crowded) = (false, false);
        std::mem::swap(&mut self.outgoing, &mut desk.outgoing);
        (desk.being_written, self.asked_at) = (self.outgoing.len(), desk.asked_at);
        Poll::Ready(true)
    }
}
