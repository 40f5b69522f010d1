//! One connection of a runtime: questions, and answers in time; channels that are listened to; and its end.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::{PushInfo, Value};

use crate::clock::{Clock, Moment};
use crate::error::Result;

use super::Wire;
use super::failure;
use super::replicas::Replicas;
use super::scripts::Call;
use super::server::{Connected, Server};

/// Redis answers in less than a millisecond. One that says nothing for this long will not, on this connection: it is given up,
/// with the requests that were not sent yet.
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// How often that is looked at, in this time.
const LOOKS: u32 = 4;
/// Who gives up on an answer that took longer than this has reason to doubt the connection.
const DOUBTFUL: Duration = Duration::from_millis(250);

/// What is done with pushes, on whichever connection they come.
pub(super) type Hear = Arc<dyn Fn(PushInfo) + Send + Sync>;

/// An open connection.
pub(super) struct Lane {
    wire: Wire,
    /// Which server it leads to: another each time one is started.
    pub(super) run_id: String,
    /// What asks replicas whether they have what was written on it.
    pub(super) replicas: Replicas,
    /// How many watches want each channel. Held while the server is told, so that it hears of the last in order.
    channels: tokio::sync::Mutex<HashMap<String, usize>>,
    clock: Clock,
}

impl Lane {
    /// A connection that this runtime drives, of which `hear` gets the pushes; and the server's time in milliseconds.
    pub(super) async fn open(server: &Server, clock: &Clock, hear: &Hear) -> Result<(Arc<Self>, u64)> {
        let hear = Arc::clone(hear);
        let Connected { wire, run_id, millis } = server.connect(Box::new(move |info| hear(info))).await?;
        tokio::spawn(watch_over(wire.clone()));
        let lane =
            Self { wire, run_id, replicas: Replicas::default(), channels: Default::default(), clock: clock.clone() };
        Ok((Arc::new(lane), millis))
    }

    /// Whether the connection is of no use any more.
    pub(super) fn is_ended(&self) -> bool {
        self.wire.is_left()
    }

    /// Comes back when the connection is of no use any more.
    pub(super) async fn ended(&self) {
        self.wire.left().await;
    }

    /// Makes nobody use the connection any more. It is closed when all that was asked is answered.
    pub(super) fn leave(&self) {
        self.wire.leave();
    }

    /// Runs a script once.
    pub(super) async fn call(&self, doing: impl Fn() -> String, call: &Call) -> Result<Value> {
        self.answer(doing, call.run(&self.wire)).await
    }

    /// A plain command.
    pub(super) async fn command(&self, doing: &str, command: &redis::Cmd) -> Result<Value> {
        let asked = async { self.wire.ask(command).await?.extract_error() };
        self.answer(|| doing.to_owned(), asked).await
    }

    pub(super) async fn subscribe(&self, channel: &str) -> Result<()> {
        let mut channels = self.channels.lock().await;
        if !channels.contains_key(channel) {
            self.command("subscribing", redis::cmd("SUBSCRIBE").arg(channel)).await?;
        }
        *channels.entry(channel.to_owned()).or_default() += 1;
        Ok(())
    }

    /// One watch less; the server is told when it was the last on this channel. Or the connection ends, which tells it too.
    pub(super) async fn unsubscribe(&self, channel: &str) {
        let mut channels = self.channels.lock().await;
        if let Some(others @ 2..) = channels.get_mut(channel) {
            *others -= 1;
            return;
        }
        channels.remove(channel);
        if !self.is_ended() && self.command("unsubscribing", redis::cmd("UNSUBSCRIBE").arg(channel)).await.is_err() {
            self.leave();
        }
    }

    /// What comes back, in time: there is no timer for each question, since setting one costs as much as a tenth of it. Who
    /// says nothing, or nothing of use, has his connection ended: the next one may do better.
    async fn answer<T>(
        &self,
        doing: impl Fn() -> String,
        asked: impl Future<Output = redis::RedisResult<T>>,
    ) -> Result<T> {
        let mut unanswered = Unanswered { lane: self, since: self.clock.now(), answered: false };
        let answer = asked.await;
        unanswered.answered = true;
        answer.map_err(|error| {
            if failure::is_of_the_connection(&error) {
                self.leave();
            }
            failure::explain(&doing(), &error)
        })
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Whoever watches over it has it too.
        self.leave();
    }
}

/// A question whose asker may lose patience.
struct Unanswered<'a> {
    lane: &'a Lane,
    since: Moment,
    answered: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.answered && self.lane.clock.now().since(self.since) >= DOUBTFUL {
            self.lane.leave();
        }
    }
}

/// Ends a connection whose questions are not answered any more. On one that has ended otherwise, those that are open may
/// still be answered.
async fn watch_over(wire: Wire) {
    let (mut before, mut silent) = (0, 0);
    while let Some((open, answered)) = wire.pulse() {
        // Counted in looks, not by the clock: while nobody could look, nobody could read an answer either.
        silent = match open {
            0 => 0,
            _ if answered == before => silent + 1,
            _ => 1,
        };
        before = answered;
        if silent > LOOKS {
            wire.cut(
                &io::Error::new(io::ErrorKind::ConnectionAborted, format!("no answer within {ANSWERS_WITHIN:?}"))
                    .into(),
            );
            return;
        }
        let tick = tokio::time::sleep(ANSWERS_WITHIN / LOOKS);
        match wire.is_left() {
            true => tick.await,
            false => tokio::select! {
                () = wire.left() => {}
                () = tick => {}
            },
        }
    }
}
