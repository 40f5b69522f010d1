//! One connection of a runtime: questions, and answers in time; channels that are listened to; and its end.

mod multiplexer;
#[cfg(feature = "bench-crate-connection")]
mod of_crate;
mod options;
mod parser;
mod pool;
mod server;
mod settings;
mod stream;
mod timing;
mod tls;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::clock::{Clock, Moment};
use crate::error::Result;

use super::failure;
use super::replicas::Replicas;
use super::scripts::Call;
#[cfg(not(feature = "bench-crate-connection"))]
pub(crate) use multiplexer::Multiplexer;
pub(crate) use multiplexer::{Confirmation, OnPush, Request};
#[cfg(feature = "bench-crate-connection")]
pub(crate) use of_crate::Multiplexer;
pub use options::RedisOptions;
pub(crate) use pool::Pool;
use server::Connected;
pub(crate) use server::Server;
pub(crate) use timing::{LONGEST_RESPONSE, Timing};
pub(crate) use tls::refusal;

/// How often that is looked at, in this time.
const LOOKS: u32 = 4;
/// Who gives up on an answer that took longer than this has reason to doubt the connection.
const DOUBTFUL: Duration = Duration::from_millis(250);

/// An open connection.
pub(crate) struct Connection {
    multiplexer: Multiplexer,
    /// Which server it leads to: another each time one is started.
    pub(crate) run_id: String,
    /// What asks replicas whether they have what was written on it.
    pub(crate) replicas: Replicas,
    /// How many watches want each channel. Held while the server is told, so that it hears of the last in order.
    channels: tokio::sync::Mutex<HashMap<String, usize>>,
    clock: Clock,
}

impl Connection {
    /// A connection that this runtime drives, of which `on_push` gets the pushes; and the server's time in milliseconds.
    pub(crate) async fn open(server: &Server, clock: &Clock, on_push: &OnPush) -> Result<(Arc<Self>, u64)> {
        let Connected { multiplexer, run_id, millis } = server.connect(Arc::clone(on_push)).await?;
        tokio::spawn(watch_over(multiplexer.clone()));
        let connection = Self {
            multiplexer,
            run_id,
            replicas: Replicas::default(),
            channels: Default::default(),
            clock: clock.clone(),
        };
        Ok((Arc::new(connection), millis))
    }

    /// Whether the connection is of no use any more.
    pub(crate) fn is_ended(&self) -> bool {
        self.multiplexer.is_left()
    }

    /// Comes back when the connection is of no use any more.
    pub(crate) async fn ended(&self) {
        self.multiplexer.left().await;
    }

    /// Makes nobody use the connection any more. It is closed when all that was asked is answered.
    pub(crate) fn leave(&self) {
        self.multiplexer.leave();
    }

    /// Runs a script once.
    pub(crate) async fn call(&self, doing: impl Fn() -> String, call: &Call) -> Result<Value> {
        self.answer(doing, call.run(&self.multiplexer)).await
    }

    /// A plain command.
    pub(crate) async fn command(&self, doing: &str, command: &redis::Cmd) -> Result<Value> {
        let asked = async { self.multiplexer.ask(command).await?.extract_error() };
        self.answer(|| doing.to_owned(), asked).await
    }

    pub(crate) async fn subscribe(&self, channel: &str) -> Result<()> {
        let mut channels = self.channels.lock().await;
        if !channels.contains_key(channel) {
            self.command("subscribing", redis::cmd("SUBSCRIBE").arg(channel)).await?;
        }
        *channels.entry(channel.to_owned()).or_default() += 1;
        Ok(())
    }

    /// One watch less; the server is told when it was the last on this channel. Or the connection ends, which tells it too.
    pub(crate) async fn unsubscribe(&self, channel: &str) {
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
        let mut unanswered = Unanswered { connection: self, since: self.clock.now(), answered: false };
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

impl Drop for Connection {
    fn drop(&mut self) {
        // Whoever watches over it has it too.
        self.leave();
    }
}

/// A question whose asker may lose patience.
struct Unanswered<'a> {
    connection: &'a Connection,
    since: Moment,
    answered: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.answered && self.connection.clock.now().since(self.since) >= DOUBTFUL {
            self.connection.leave();
        }
    }
}

/// Ends a connection whose questions are not answered any more. On one that has ended otherwise, those that are open may
/// still be answered.
async fn watch_over(multiplexer: Multiplexer) {
    let (mut before, mut silent) = (0, 0);
    while let Some((open, answered)) = multiplexer.pulse() {
        // Counted in looks, not by the clock: while nobody could look, nobody could read an answer either.
        silent = match open {
            0 => 0,
            _ if answered == before => silent + 1,
            _ => 1,
        };
        before = answered;
        if silent > LOOKS {
            multiplexer.cut(
                &io::Error::new(io::ErrorKind::ConnectionAborted, format!("no answer within {LONGEST_RESPONSE:?}"))
                    .into(),
            );
            return;
        }
        let tick = tokio::time::sleep(LONGEST_RESPONSE / LOOKS);
        match multiplexer.is_left() {
            true => tick.await,
            false => tokio::select! {
                () = multiplexer.left() => {}
                () = tick => {}
            },
        }
    }
}
