//! One connection that many tasks ask on. Answers come in the order of the questions.
//!
//! A task of the runtime that opened it drives the stream: it writes what was asked, gives each answer to whoever asked, and
//! hands pushes on. By 1 to 3, nobody waits for an answer that cannot come.
//!
//! 1. A question has a place in the line of those that are open before its bytes leave, and keeps it when its asker is gone:
//!    otherwise all later answers would be given to the wrong ones.
//! 2. However the connection ends, every question that is open then fails, and so does every later one.
//! 3. A connection that was left ends when nothing is open on it any more; one that nobody has any more, at once.

mod driver;

use std::collections::VecDeque;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, PushInfo, RedisError, RedisFuture, RedisResult, Value};
use tokio::sync::{Notify, oneshot};

use super::dial::Stream;
use driver::Driver;

/// What is done with pushes, on the task that reads them.
pub(super) type Hear = Box<dyn Fn(PushInfo) + Send + Sync>;
type Slot = oneshot::Sender<RedisResult<Value>>;

/// One request, in the form in which a connection sends it.
pub(super) trait Request {
    /// Appends it as the protocol wants it.
    fn write(&self, bytes: &mut Vec<u8>);

    /// The same as the crate's connection takes it.
    #[cfg(feature = "bench-crate-connection")]
    fn command(&self) -> Cmd;
}

impl Request for Cmd {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.write_packed_command(bytes);
    }

    #[cfg(feature = "bench-crate-connection")]
    fn command(&self) -> Cmd {
        self.clone()
    }
}

/// What will be said to a question, or that there is no way to know. An error of the server is a value here.
pub(super) struct Answer(oneshot::Receiver<RedisResult<Value>>);

impl Future for Answer {
    type Output = RedisResult<Value>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|said| said.unwrap_or_else(|_| Err(gone())))
    }
}

/// An open connection, for all who have it together.
#[derive(Clone)]
pub(super) struct Wire(Arc<Handle>);

/// What ends the connection when nobody has it any more; the task that drives it does not count.
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.end(&gone());
    }
}

#[derive(Default)]
struct Shared {
    desk: Mutex<Desk>,
    /// That it should not be used any more. What is open may still be answered.
    left: AtomicBool,
    bell: Notify,
}

/// What askers and the driving task have in common.
#[derive(Default)]
struct Desk {
    outgoing: Vec<u8>,
    /// Who asked and has no answer yet, in order.
    open: VecDeque<Slot>,
    answered: u64,
    driver: Option<Waker>,
    /// Whether it will look at this desk without being woken.
    is_awake: bool,
    /// Why nothing can be asked any more.
    over: Option<RedisError>,
}

impl Wire {
    /// A connection on a stream, on which `greetings` are asked first. Fails with the first of them that is refused.
    pub(super) async fn open(stream: Stream, greetings: &[Cmd], hear: Hear) -> RedisResult<Self> {
        let wire = Self(Arc::new(Handle(Arc::default())));
        // Order matters: a server that refuses at once says so before it is asked, and that has to find an asker.
        let greeted = greetings.iter().map(|greeting| wire.ask(greeting));
        let greeted: Vec<_> = greeted.collect();
        tokio::spawn(Driver::new(stream, Arc::clone(&wire.0.0), hear));
        for answer in greeted {
            answer.await?.extract_error()?;
        }
        Ok(wire)
    }

    /// Sends one request. It is sent at once, not when the reply is waited for.
    pub(super) fn ask(&self, request: &impl Request) -> Answer {
        let (slot, answer) = oneshot::channel();
        self.0.0.ask(|bytes| request.write(bytes), [slot]);
        Answer(answer)
    }

    /// Whether it should not be used any more.
    pub(super) fn is_left(&self) -> bool {
        self.0.0.left.load(Ordering::Acquire)
    }

    /// Comes back when it should not be used any more.
    pub(super) async fn left(&self) {
        let mut rung = pin!(self.0.0.bell.notified());
        // Order matters: the bell is listened to before the flag is looked at.
        rung.as_mut().enable();
        if !self.is_left() {
            rung.await;
        }
    }

    /// Makes it end when what is open was answered.
    pub(super) fn leave(&self) {
        self.0.0.leave();
        self.0.0.wake();
    }

    /// Ends it now. What is open fails with this.
    pub(super) fn cut(&self, why: &RedisError) {
        self.0.0.end(why);
    }

    /// How many questions are open, and how many were answered ever; nothing when it has ended.
    pub(super) fn pulse(&self) -> Option<(usize, u64)> {
        let desk = self.0.0.desk();
        desk.over.is_none().then_some((desk.open.len(), desk.answered))
    }
}

impl Shared {
    fn ask(&self, write: impl FnOnce(&mut Vec<u8>), slots: impl IntoIterator<Item = Slot>) {
        let mut desk = self.desk();
        if let Some(why) = desk.over.clone() {
            drop(desk);
            slots.into_iter().for_each(|slot| drop(slot.send(Err(why.clone()))));
            return;
        }
        write(&mut desk.outgoing);
        desk.open.extend(slots);
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
        open.into_iter().for_each(|slot| drop(slot.send(Err(why.clone()))));
        driver.iter().for_each(Waker::wake_by_ref);
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody is at the other end.
fn gone() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}

/// For what is rarely asked.
impl ConnectionLike for Wire {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(self.ask(command))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        let (slots, answers): (Vec<_>, Vec<_>) = (0..offset + count).map(|_| oneshot::channel()).unzip();
        self.0.0.ask(|bytes| bytes.extend(pipeline.get_packed_pipeline()), slots);
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
