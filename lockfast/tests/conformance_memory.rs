//! The suite over the in-process store, on a clock that the suite moves.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockfast::conformance::{Subject, Time};
use lockfast::store::Store;
use lockfast::{Clock, ManualClock, Memory};

struct InMemory {
    manual_clock: ManualClock,
    store: Arc<Memory>,
}

impl InMemory {
    async fn new() -> Self {
        let manual_clock = ManualClock::new();
        Self { store: Arc::new(Memory::with_clock(manual_clock.clock())), manual_clock }
    }
}

#[async_trait]
impl Subject for InMemory {
    async fn open(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn advance(&self, span: Duration) {
        self.manual_clock.advance(span);
    }

    fn time(&self) -> Time {
        Time::Set
    }

    fn clock(&self) -> Clock {
        self.manual_clock.clock()
    }
}

lockfast::conformance!(memory, InMemory::new());
lockfast::conformance_of_executors!(executors, InMemory::new());
