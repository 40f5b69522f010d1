//! The multiplexed connection of the `redis` crate in the place of ours, so that benchmarks can compare the two.
//!
//! Compiled only with the feature `bench-crate-connection` and used only with `connection=crate` in the URL. The crate does
//! the writing, the reading and the matching of replies; here is what the store wants to know besides: whether requests are
//! open, and when the connection is of no use any more.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionInfo, Pipeline, ProtocolVersion, RedisError, RedisFuture, RedisResult, Value,
};
use rustls::RootCertStore;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::dial::{Stream, connect};
use super::wire::{self, Hear, Request};

/// An open connection of either kind.
#[derive(Clone)]
pub(super) enum Wire {
    Own(wire::Wire),
    OfCrate(Arc<Handle>),
}

/// Ends the connection when no clone of it is left.
pub(super) struct Handle {
    connection: MultiplexedConnection,
    shared: Arc<Shared>,
    driver: AbortHandle,
}

#[derive(Default)]
struct Shared {
    asked: AtomicU64,
    answered: AtomicU64,
    left: AtomicBool,
    bell: Notify,
    /// Why it has ended.
    over: OnceLock<RedisError>,
}

impl Wire {
    /// Our own connection.
    pub(super) async fn open(stream: Stream, greetings: &[Cmd], hear: Hear) -> RedisResult<Self> {
        wire::Wire::open(stream, greetings, hear).await.map(Self::Own)
    }

    /// The crate's, on a stream like ours.
    pub(super) async fn on_crate(
        address: &ConnectionInfo,
        authorities: Option<&Arc<RootCertStore>>,
        hear: Hear,
    ) -> RedisResult<Self> {
        let stream = connect(address.addr(), authorities).await?;
        let settings = address.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        // Like ours: no timer for each request, and no bound on how many are open.
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(move |push| {
            hear(push);
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

    pub(super) async fn ask(&self, request: &impl Request) -> RedisResult<Value> {
        match self {
            Self::Own(own) => own.ask(request).await,
            Self::OfCrate(it) => {
                let _open = it.begin();
                let reply = it.connection.clone().send_packed_command(&request.command()).await;
                reply.map_err(|error| it.shared.over.get().cloned().unwrap_or(error))
            }
        }
    }

    pub(super) fn is_left(&self) -> bool {
        match self {
            Self::Own(own) => own.is_left(),
            Self::OfCrate(it) => it.shared.is_left(),
        }
    }

    pub(super) async fn left(&self) {
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

    pub(super) fn leave(&self) {
        match self {
            Self::Own(own) => own.leave(),
            Self::OfCrate(it) => {
                it.shared.leave();
                it.end_if_unused();
            }
        }
    }

    pub(super) fn cut(&self, why: &RedisError) {
        match self {
            Self::Own(own) => own.cut(why),
            Self::OfCrate(it) => {
                it.shared.end(why.clone());
                it.driver.abort();
            }
        }
    }

    pub(super) fn pulse(&self) -> Option<(usize, u64)> {
        match self {
            Self::Own(own) => own.pulse(),
            Self::OfCrate(it) => it.shared.over.get().is_none().then(|| it.shared.counts()),
        }
    }
}

impl Handle {
    fn begin(&self) -> Open<'_> {
        self.shared.asked.fetch_add(1, Ordering::SeqCst);
        Open(self)
    }

    fn end_if_unused(&self) {
        if self.shared.is_left() && self.shared.counts().0 == 0 {
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

    /// How many requests are open, and how many are not any more.
    fn counts(&self) -> (usize, u64) {
        let answered = self.answered.load(Ordering::SeqCst);
        let open = self.asked.load(Ordering::SeqCst).saturating_sub(answered);
        (usize::try_from(open).unwrap_or(usize::MAX), answered)
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
