//! The store in Redis, on a real server that all cases share.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use lockfast::Redis;
use lockfast::conformance::{Subject, Time, sleep};
use lockfast::store::Store;

struct InRedis(String);

impl InRedis {
    async fn new() -> Self {
        static SERVER: OnceLock<servers::Redis> = OnceLock::new();
        Self(SERVER.get_or_init(servers::Redis::start).url())
    }
}

#[async_trait]
impl Subject for InRedis {
    async fn open(&self) -> Arc<dyn Store> {
        Redis::open(&self.0).await.expect("the server was just started")
    }

    async fn pass(&self, span: Duration) {
        sleep(span).await;
    }

    fn time(&self) -> Time {
        Time::Real
    }
}

lockfast::conformance_of_executors!(executors, InRedis::new());
