//! The multiplexed connection of the `redis` crate in place of ours, so that benchmarks can compare the two.
//!
//! Compiled only with the feature `bench-crate-connection` and used only with `connection=crate` in the URL. The crate writes,
//! reads and matches replies. This file adds what the store needs besides: the [`Activity`] of the connection, and its
//! retirement.

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

use super::multiplexer::{self, Activity, OnPush, Reply, Request};
use super::stream::{Stream, connect};
use super::timing::Timing;
use super::tls::Tls;

/// An open connection of either kind.
#[derive(Clone)]
pub(crate) enum Multiplexer {
    Own(multiplexer::Multiplexer),
    Crate(Arc<Handle>),
}

/// Ends the connection when the last handle is dropped.
pub(crate) struct Handle {
    connection: MultiplexedConnection,
    shared: Arc<Shared>,
    driver: AbortHandle,
}

#[derive(Default)]
struct Shared {
    sent_requests: AtomicU64,
    replies: AtomicU64,
    /// How often the activity was read.
    observations: AtomicU64,
    is_retired: AtomicBool,
    retirement: Notify,
    /// Why the connection has ended.
    end_reason: OnceLock<RedisError>,
}

impl Multiplexer {
    /// Opens our own connection.
    pub(crate) async fn open(stream: Stream, handshake: &[Cmd], on_push: OnPush) -> RedisResult<Self> {
        multiplexer::Multiplexer::open(stream, handshake, on_push).await.map(Self::Own)
    }

    /// Opens the crate's connection, on the same kind of stream.
    pub(crate) async fn open_crate(
        address: &ConnectionInfo,
        timing: &Timing,
        tls: &Tls,
        on_push: OnPush,
    ) -> RedisResult<Self> {
        let stream = connect(address.addr(), timing, tls).await?;
        let settings = address.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        // Like ours, without a timer for each request. Unlike ours, the number of open requests is not bounded.
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(move |push| {
            on_push(push);
            Ok::<(), ()>(())
        });
        let (connection, driver) = MultiplexedConnection::new_with_config(&settings, stream, config).await?;
        let shared = Arc::<Shared>::default();
        let end_on_drop = EndOnDrop(Arc::clone(&shared));
        let driver = tokio::spawn(async move {
            let _end_on_drop = end_on_drop;
            driver.await;
        });
        Ok(Self::Crate(Arc::new(Handle { connection, shared, driver: driver.abort_handle() })))
    }

    /// Our connection sends the request at once, the crate's when the reply is polled.
    pub(crate) fn send(&self, request: &impl Request) -> Either<Reply, BoxFuture<'static, RedisResult<Value>>> {
        match self {
            Self::Own(own) => Either::Left(own.send(request)),
            Self::Crate(handle) => {
                let (handle, command) = (Arc::clone(handle), request.command());
                Either::Right(Box::pin(async move {
                    let _open = handle.begin();
                    let reply = handle.connection.clone().send_packed_command(&command).await;
                    reply.map_err(|error| handle.shared.end_reason.get().cloned().unwrap_or(error))
                }))
            }
        }
    }

    pub(crate) fn is_retired(&self) -> bool {
        match self {
            Self::Own(own) => own.is_retired(),
            Self::Crate(handle) => handle.shared.is_retired(),
        }
    }

    pub(crate) async fn retired(&self) {
        match self {
            Self::Own(own) => own.retired().await,
            Self::Crate(handle) => {
                let mut notified = pin!(handle.shared.retirement.notified());
                // Order matters: the notification is enabled before the flag is read, or one between the two would be missed.
                notified.as_mut().enable();
                if !handle.shared.is_retired() {
                    notified.await;
                }
            }
        }
    }

    pub(crate) fn retire(&self) {
        match self {
            Self::Own(own) => own.retire(),
            Self::Crate(handle) => {
                handle.shared.retire();
                handle.end_if_unused();
            }
        }
    }

    pub(crate) fn abort(&self, why: &RedisError) {
        match self {
            Self::Own(own) => own.abort(why),
            Self::Crate(handle) => {
                handle.shared.end(why.clone());
                handle.driver.abort();
            }
        }
    }

    pub(crate) fn wake_driver(&self) {
        if let Self::Own(own) = self {
            own.wake_driver();
        }
    }

    pub(crate) fn activity(&self) -> Option<Activity> {
        match self {
            Self::Own(own) => own.activity(),
            Self::Crate(handle) => handle.shared.end_reason.get().is_none().then(|| handle.shared.activity()),
        }
    }

    pub(crate) async fn next_request(&self) {
        match self {
            Self::Own(own) => own.next_request().await,
            // Polls: a benchmark is not idle for long.
            Self::Crate(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

impl Handle {
    fn begin(&self) -> OpenRequest<'_> {
        self.shared.sent_requests.fetch_add(1, Ordering::SeqCst);
        OpenRequest(self)
    }

    fn end_if_unused(&self) {
        if self.shared.is_retired() && self.shared.activity().open_requests == 0 {
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
    fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::SeqCst)
    }

    fn retire(&self) {
        self.is_retired.store(true, Ordering::SeqCst);
        self.retirement.notify_waiters();
    }

    /// Ends the connection, with the first reason.
    fn end(&self, why: RedisError) {
        let _ = self.end_reason.set(why);
        self.retire();
    }

    /// A reply counts as one read. The crate's driver is assumed to run before every check.
    fn activity(&self) -> Activity {
        let driver_polls = self.observations.fetch_add(1, Ordering::SeqCst);
        let (reads, sent_requests) = (self.replies.load(Ordering::SeqCst), self.sent_requests.load(Ordering::SeqCst));
        let open_requests = usize::try_from(sent_requests.saturating_sub(reads)).unwrap_or(usize::MAX);
        Activity { open_requests, sent_requests, reads, driver_polls }
    }
}

/// One open request, until it is dropped.
struct OpenRequest<'a>(&'a Handle);

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        self.0.shared.replies.fetch_add(1, Ordering::SeqCst);
        self.0.end_if_unused();
    }
}

/// Ends the connection when it is dropped: with the task that drives the connection, however that task ends.
struct EndOnDrop(Arc<Shared>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(io::Error::from(io::ErrorKind::BrokenPipe).into());
    }
}

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
        match self {
            Self::Own(own) => own.req_packed_commands(pipeline, offset, count),
            Self::Crate(handle) => Box::pin(async move {
                let _open = handle.begin();
                handle.connection.clone().send_packed_commands(pipeline, offset, count).await
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

    /// The future's result; fails after 20 seconds.
    async fn soon<T>(future: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(20), future).await.expect("it completes within seconds")
    }

    /// Opens the crate's connection.
    async fn open(server: &servers::Redis, on_push: OnPush) -> Multiplexer {
        let url = format!("redis://127.0.0.1:{}?connection=crate", server.port());
        let multiplexer = soon(Server::of_url(&url).unwrap().open(on_push)).await.unwrap();
        assert!(matches!(multiplexer, Multiplexer::Crate(_)));
        multiplexer
    }

    #[tokio::test]
    async fn replies_and_pushes_come_as_on_our_own_connection() {
        let server = servers::Redis::start();
        let (sender, pushes) = mpsc::channel();
        let multiplexer = open(&server, Arc::new(move |push| drop(sender.send(push)))).await;
        let subscribed = soon(multiplexer.send(redis::cmd("SUBSCRIBE").arg("a"))).await.unwrap();
        assert!(matches!(subscribed, Value::Push { kind: PushKind::Subscribe, .. }));
        assert_eq!(soon(multiplexer.send(redis::cmd("PUBLISH").arg("a").arg("hello"))).await, Ok(Value::Int(1)));
        assert!(pushes.try_iter().any(|push| push.kind == PushKind::Message));
        assert!(matches!(multiplexer.activity(), Some(Activity { open_requests: 0, sent_requests: 2, reads: 2, .. })));
    }

    #[tokio::test]
    async fn requests_fail_with_the_connection_and_a_retired_one_ends() {
        let mut server = servers::Redis::start();
        let retired = open(&server, Arc::new(drop)).await;
        retired.retire();
        soon(retired.retired()).await;
        soon(async {
            while retired.activity().is_some() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let multiplexer = open(&server, Arc::new(drop)).await;
        let mut pop = redis::cmd("BLPOP");
        pop.arg("list").arg(0);
        let mut open = std::pin::pin!(multiplexer.send(&pop));
        assert!(futures::poll!(&mut open).is_pending());
        server.kill();
        assert!(soon(open).await.is_err());
        soon(multiplexer.retired()).await;
        assert!(multiplexer.is_retired());
    }
}
