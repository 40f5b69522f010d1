//! The users' half of the suite over the in-process store in real time: once as it is, and again through a bad network.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockfast::Memory;
use lockfast::conformance::{Faults, Subject, Time};
use lockfast::store::Store;

struct InMemory(Arc<Memory>);

impl InMemory {
    async fn new() -> Self {
        Self(Arc::new(Memory::new()))
    }
}

#[async_trait]
impl Subject for InMemory {
    async fn open(&self) -> Arc<dyn Store> {
        self.0.clone()
    }

    async fn pass(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }

    fn time(&self) -> Time {
        Time::Real
    }
}

const SEEDS: &[u64] = &[1, 2, 3, 4];

lockfast::conformance_of_users!(good_day, InMemory::new());
lockfast::conformance_of_users!(bad_day, InMemory::new(), Faults::BAD_DAY, SEEDS);
