//! One connection: questions, and answers in time; channels that are listened to; and its end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;

use crate::clock::{Clock, Moment};
use crate::error::{Error, Result};

use super::failure;
use super::replicas::Replicas;
use super::scripts::Call;
use super::server::{Connected, Server};

/// Redis answers in less than a millisecond. One that says nothing for this long will not, on this connection.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// Who gives up on an answer that took longer than this has reason to doubt the connection.
const DOUBTFUL: Duration = Duration::from_millis(250);

/// What is done with pushes, on whichever connection they come.
pub(super) type Hear = Arc<dyn Fn(PushInfo) + Send + Sync>;

/// An open connection.
#[derive(Clone)]
pub(super) struct Lane {
    connection: MultiplexedConnection,
    /// Which server it leads to: another each time one is started.
    pub(super) run_id: Arc<str>,
    /// Whether replicas have what was written on it.
    pub(super) replicas: Arc<Replicas>,
    end: Arc<End>,
    /// How many watches want each channel. Held while the server is told, so that it hears of the last in order.
    channels: Arc<tokio::sync::Mutex<HashMap<String, usize>>>,
    answering: Arc<Answering>,
    clock: Clock,
}

/// That a connection is of no use any more.
#[derive(Default)]
struct End {
    reached: AtomicBool,
    bell: Notify,
}

impl End {
    fn reach(&self) {
        self.reached.store(true, Ordering::Release);
        self.bell.notify_waiters();
    }

    fn is_reached(&self) -> bool {
        self.reached.load(Ordering::Acquire)
    }

    async fn wait(&self) {
        let mut rung = std::pin::pin!(self.bell.notified());
        // Order matters: the bell is listened to before the flag is looked at.
        rung.as_mut().enable();
        if !self.is_reached() {
            rung.await;
        }
    }
}

/// Ends a connection when the runtime that drives it is shut down.
struct WithRuntime(Arc<End>);

impl Drop for WithRuntime {
    fn drop(&mut self) {
        self.0.reach();
    }
}

impl Lane {
    /// A connection that this runtime drives, of which `hear` gets the pushes; and the server's time in milliseconds.
    pub(super) async fn open(server: &Server, clock: &Clock, hear: &Hear) -> Result<(Self, u64)> {
        let end = Arc::new(End::default());
        let (hear, ends) = (Arc::clone(hear), Arc::clone(&end));
        let hear_all = move |info: PushInfo| match info.kind {
            PushKind::Disconnection => ends.reach(),
            _ => hear(info),
        };
        let Connected { connection, run_id, millis } = server.connect(hear_all).await?;
        let lane = Self {
            connection,
            run_id: run_id.into(),
            replicas: Arc::default(),
            end: Arc::clone(&end),
            channels: Arc::default(),
            answering: Arc::default(),
            clock: clock.clone(),
        };
        let (with_runtime, watched) = (WithRuntime(end), lane.clone());
        tokio::spawn(async move {
            let _with_runtime = with_runtime;
            watch_over(watched).await;
        });
        Ok((lane, millis))
    }

    /// Whether the connection is of no use any more.
    pub(super) fn is_ended(&self) -> bool {
        self.end.is_reached()
    }

    /// Comes back when the connection is of no use any more.
    pub(super) async fn ended(&self) {
        self.end.wait().await;
    }

    /// Makes nobody use the connection any more.
    pub(super) fn leave(&self) {
        self.end.reach();
    }

    /// Runs a script once.
    pub(super) async fn call(&self, doing: impl Fn() -> String, call: &Call) -> Result<Value> {
        let mut connection = self.connection.clone();
        self.answer(doing, call.run(&mut connection)).await
    }

    /// A plain command.
    pub(super) async fn command(&self, doing: &str, command: &redis::Cmd) -> Result<Value> {
        let mut connection = self.connection.clone();
        self.answer(|| doing.to_owned(), command.query_async(&mut connection)).await
    }

    pub(super) async fn subscribe(&self, channel: &str) -> Result<()> {
        let mut connection = self.connection.clone();
        let mut channels = self.channels.lock().await;
        if !channels.contains_key(channel) {
            self.answer(|| "subscribing".to_owned(), connection.subscribe(channel)).await?;
        }
        *channels.entry(channel.to_owned()).or_default() += 1;
        Ok(())
    }

    /// One watch less; the server is told when it was the last on this channel. Or the connection ends, which tells it too.
    pub(super) async fn unsubscribe(&self, channel: &str) {
        let mut connection = self.connection.clone();
        let mut channels = self.channels.lock().await;
        if let Some(others @ 2..) = channels.get_mut(channel) {
            *others -= 1;
            return;
        }
        channels.remove(channel);
        if !self.end.is_reached()
            && self.answer(|| "unsubscribing".to_owned(), connection.unsubscribe(channel)).await.is_err()
        {
            self.leave();
        }
    }

    /// What comes back, in time. Who says nothing, or nothing of use, has his connection ended: the next one may do better.
    async fn answer<T>(
        &self,
        doing: impl Fn() -> String,
        asked: impl Future<Output = redis::RedisResult<T>>,
    ) -> Result<T> {
        let mut unanswered = Unanswered::new(self);
        // No timer for each question: setting one costs as much as a tenth of the question.
        let answer = tokio::select! {
            biased;
            answer = asked => Ok(answer),
            () = self.answering.given_up.wait() => Err(()),
        };
        unanswered.answered = true;
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                if failure::is_of_the_connection(&error) {
                    self.end.reach();
                }
                Err(failure::explain(&doing(), &error))
            }
            Err(()) => Err(Error::unavailable(doing(), format!("no answer within {ANSWERS_WITHIN:?}"))),
        }
    }
}

/// Whether questions are answered, and since when they are not.
#[derive(Default)]
struct Answering {
    open: AtomicU64,
    /// When the first of those that are open was asked, or one was answered since, in nanoseconds.
    progress: AtomicU64,
    /// That no answer will come any more.
    given_up: End,
}

/// A question whose asker may lose patience.
struct Unanswered<'a> {
    lane: &'a Lane,
    since: Moment,
    answered: bool,
}

impl<'a> Unanswered<'a> {
    fn new(lane: &'a Lane) -> Self {
        let since = lane.clock.now();
        if lane.answering.open.fetch_add(1, Ordering::AcqRel) == 0 {
            lane.answering.progress.store(since.as_nanos(), Ordering::Release);
        }
        Self { lane, since, answered: false }
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        let Lane { answering, clock, end, .. } = self.lane;
        let now = clock.now();
        answering.open.fetch_sub(1, Ordering::AcqRel);
        if self.answered {
            answering.progress.store(now.as_nanos(), Ordering::Release);
        } else if now.since(self.since) >= DOUBTFUL {
            end.reach();
        }
    }
}

/// Ends a connection whose questions are not answered any more. On one that has ended otherwise, those that are open may
/// still be answered.
async fn watch_over(lane: Lane) {
    let Lane { answering, end, .. } = &lane;
    let is_open = || answering.open.load(Ordering::Acquire) > 0;
    while !end.is_reached() || is_open() {
        let tick = tokio::time::sleep(ANSWERS_WITHIN / 4);
        match end.is_reached() {
            true => tick.await,
            false => tokio::select! {
                () = end.wait() => {}
                () = tick => {}
            },
        }
        let progress = Moment::from_nanos(answering.progress.load(Ordering::Acquire));
        if is_open() && lane.clock.now().since(progress) >= ANSWERS_WITHIN {
            end.reach();
            answering.given_up.reach();
            return;
        }
    }
}
