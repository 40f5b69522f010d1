//! The multiplexed connection of the `redis` crate in the place of ours, so that benchmarks can compare the two.
//!
//! Compiled only with the feature `bench-crate-connection` and used only with `connection=crate` in the URL. The crate does
//! the writing, the reading and the matching of replies; here is what the store wants to know besides: whether requests are
//! open, and when the connection is of no use any more.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::{BoxFuture, Either};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionInfo, Pipeline, ProtocolVersion, RedisError, RedisFuture, RedisResult, Value,
};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::multiplexer::{self, Answer, OnPush, Pulse, Request};
use super::stream::{Stream, connect};
use super::timing::Timing;
use super::tls::Tls;

/// An open connection of either kind.
#[derive(Clone)]
pub(crate) enum Multiplexer {
    Own(multiplexer::Multiplexer),
    OfCrate(Arc<Handle>),
}

/// Ends the connection when no clone of it is left.
pub(crate) struct Handle {
    connection: MultiplexedConnection,
    shared: Arc<Shared>,
    driver: AbortHandle,
}

#[derive(Default)]
struct Shared {
    asked: AtomicU64,
    answered: AtomicU64,
    looks: AtomicU64,
    left: AtomicBool,
    bell: Notify,
    /// Why it has ended.
    over: OnceLock<RedisError>,
}

impl Multiplexer {
    /// Our own connection.
    pub(crate) async fn open(stream: Stream, greetings: &[Cmd], on_push: OnPush) -> RedisResult<Self> {
        multiplexer::Multiplexer::open(stream, greetings, on_push).await.map(Self::Own)
    }

    /// The crate's, on a stream like ours.
    pub(crate) async fn on_crate(
        address: &ConnectionInfo,
        timing: &Timing,
        tls: &Tls,
        on_push: OnPush,
    ) -> RedisResult<Self> {
        let stream = connect(address.addr(), timing, tls).await?;
        let settings = address.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        // Like ours, no timer for each request. Unlike ours, no bound on how many are open.
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(move |push| {
            on_push(push);
            Ok::<(), ()>(())
        });
        let (connection, driver) = MultiplexedConnection::new_with_config(&settings, stream, config).await?;
        let shared = Arc::<Shared>::default();
        let ending = Ending(Arc::clone(&shared));
        let driver = tokio::spawn(async move {
            let _ending = ending;
            driver.await;
        });
        Ok(Self::OfCrate(Arc::new(Handle { connection, shared, driver: driver.abort_handle() })))
    }

    /// Ours is sent at once, the crate's when the reply is waited for.
    pub(crate) fn ask(&self, request: &impl Request) -> Either<Answer, BoxFuture<'static, RedisResult<Value>>> {
        match self {
            Self::Own(own) => Either::Left(own.ask(request)),
            Self::OfCrate(it) => {
                let (it, command) = (Arc::clone(it), request.command());
                Either::Right(Box::pin(async move {
                    let _open = it.begin();
                    let reply = it.connection.clone().send_packed_command(&command).await;
                    reply.map_err(|error| it.shared.over.get().cloned().unwrap_or(error))
                }))
            }
        }
    }

    pub(crate) fn is_left(&self) -> bool {
        match self {
            Self::Own(own) => own.is_left(),
            Self::OfCrate(it) => it.shared.is_left(),
        }
    }

    pub(crate) async fn left(&self) {
        match self {
            Self::Own(own) => own.left().await,
            Self::OfCrate(it) => {
                let mut rung = pin!(it.shared.bell.notified());
                // Order matters: the bell is listened to before the flag is looked at.
                rung.as_mut().enable();
                if !it.shared.is_left() {
                    rung.await;
                }
            }
        }
    }

    pub(crate) fn leave(&self) {
        match self {
            Self::Own(own) => own.leave(),
            Self::OfCrate(it) => {
                it.shared.leave();
                it.end_if_unused();
            }
        }
    }

    pub(crate) fn cut(&self, why: &RedisError) {
        match self {
            Self::Own(own) => own.cut(why),
            Self::OfCrate(it) => {
                it.shared.end(why.clone());
                it.driver.abort();
            }
        }
    }

    pub(crate) fn wake_driver(&self) {
        if let Self::Own(own) = self {
            own.wake_driver();
        }
    }

    pub(crate) fn pulse(&self) -> Option<Pulse> {
        match self {
            Self::Own(own) => own.pulse(),
            Self::OfCrate(it) => it.shared.over.get().is_none().then(|| it.shared.pulse()),
        }
    }

    pub(crate) async fn next_request(&self) {
        match self {
            Self::Own(own) => own.next_request().await,
            // Looked at again and again: a benchmark is not idle for long.
            Self::OfCrate(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

impl Handle {
    fn begin(&self) -> Open<'_> {
        self.shared.asked.fetch_add(1, Ordering::SeqCst);
        Open(self)
    }

    fn end_if_unused(&self) {
        if self.shared.is_left() && self.shared.pulse().open == 0 {
            self.driver.abort();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Shared {
    fn is_left(&self) -> bool {
        self.left.load(Ordering::SeqCst)
    }

    fn leave(&self) {
        self.left.store(true, Ordering::SeqCst);
        self.bell.notify_waiters();
    }

    /// The first reason counts.
    fn end(&self, why: RedisError) {
        let _ = self.over.set(why);
        self.leave();
    }

    /// A reply counts as one read. The crate's driver is taken to run before every look.
    fn pulse(&self) -> Pulse {
        let polls = self.looks.fetch_add(1, Ordering::SeqCst);
        let (reads, asked) = (self.answered.load(Ordering::SeqCst), self.asked.load(Ordering::SeqCst));
        Pulse { open: usize::try_from(asked.saturating_sub(reads)).unwrap_or(usize::MAX), asked, reads, polls }
    }
}

/// One open request.
struct Open<'a>(&'a Handle);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.shared.answered.fetch_add(1, Ordering::SeqCst);
        self.0.end_if_unused();
    }
}

/// Goes with the task that drives the connection, however that ends.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end(io::Error::from(io::ErrorKind::BrokenPipe).into());
    }
}

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
        match self {
            Self::Own(own) => own.req_packed_commands(pipeline, offset, count),
            Self::OfCrate(it) => Box::pin(async move {
                let _open = it.begin();
                it.connection.clone().send_packed_commands(pipeline, offset, count).await
            }),
        }
    }

    fn get_db(&self) -> i64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use redis::PushKind;

    use super::super::server::Server;
    use super::*;

    async fn soon<T>(future: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(20), future).await.expect("it comes about in seconds")
    }

    async fn open(server: &servers::Redis, on_push: OnPush) -> Multiplexer {
        let url = format!("redis://127.0.0.1:{}?connection=crate", server.port());
        let multiplexer = soon(Server::of_url(&url).unwrap().reach(on_push)).await.unwrap();
        assert!(matches!(multiplexer, Multiplexer::OfCrate(_)));
        multiplexer
    }

    #[tokio::test]
    async fn replies_and_pushes_come_as_on_our_own_connection() {
        let server = servers::Redis::start();
        let (say, heard) = mpsc::channel();
        let multiplexer = open(&server, Arc::new(move |push| drop(say.send(push)))).await;
        let subscribed = soon(multiplexer.ask(redis::cmd("SUBSCRIBE").arg("a"))).await.unwrap();
        assert!(matches!(subscribed, Value::Push { kind: PushKind::Subscribe, .. }));
        assert_eq!(soon(multiplexer.ask(redis::cmd("PUBLISH").arg("a").arg("hello"))).await, Ok(Value::Int(1)));
        assert!(heard.try_iter().any(|push| push.kind == PushKind::Message));
        assert!(matches!(multiplexer.pulse(), Some(Pulse { open: 0, asked: 2, reads: 2, .. })));
    }

    #[tokio::test]
    async fn requests_fail_with_the_connection_and_a_left_one_ends() {
        let mut server = servers::Redis::start();
        let left = open(&server, Arc::new(drop)).await;
        left.leave();
        soon(left.left()).await;
        soon(async {
            while left.pulse().is_some() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let multiplexer = open(&server, Arc::new(drop)).await;
        let mut pop = redis::cmd("BLPOP");
        pop.arg("list").arg(0);
        let mut open = std::pin::pin!(multiplexer.ask(&pop));
        assert!(futures::poll!(&mut open).is_pending());
        server.kill();
        assert!(soon(open).await.is_err());
        soon(multiplexer.left()).await;
        assert!(multiplexer.is_left());
    }
}
