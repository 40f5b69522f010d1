//! The users' half of the suite through a bad network on top of a real server.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use lockfast::Redis;
use lockfast::conformance::{Faults, Subject, Time};
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
        tokio::time::sleep(span).await;
    }

    fn time(&self) -> Time {
        Time::Real
    }
}

/// What runs late runs long after it was given up: behind the repeated call, and behind the release.
const LATE_DAY: Faults = Faults {
    delayed: 0.2,
    delay: Duration::from_millis(200),
    unanswered: 0.1,
    late: 0.1,
    repeated: 0.2,
    unpushed: 0.2,
};

const DAYS: &[(Faults, u64)] = &[(Faults::BAD_DAY, 11), (LATE_DAY, 12)];

lockfast::conformance_of_users!(chaos, InRedis::new(), DAYS);
