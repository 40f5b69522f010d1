//! The in-process store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockfast::Memory;
use lockfast::conformance::{Subject, Time, sleep};
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

    async fn advance(&self, span: Duration) {
        sleep(span).await;
    }

    fn time(&self) -> Time {
        Time::Real
    }
}

lockfast::conformance_of_executors!(executors, InMemory::new());
