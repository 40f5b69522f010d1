//! The users' half of the suite over the in-process store in real time: once as it is, and again through a faulty
//! network.

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

    async fn advance(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }

    fn time(&self) -> Time {
        Time::Real
    }
}

/// Late calls run long after they were reported lost: behind the repeated call, and behind the release.
const LATE: Faults = Faults {
    delayed: 0.2,
    delay: Duration::from_millis(200),
    unanswered: 0.1,
    late: 0.1,
    repeated: 0.2,
    unpushed: 0.2,
};

const RUNS: &[(Faults, u64)] = &[
    (Faults::BAD_DAY, 1),
    (Faults::BAD_DAY, 2),
    (Faults::BAD_DAY, 3),
    (Faults::BAD_DAY, 4),
    (LATE, 5),
    (LATE, 6),
    (LATE, 7),
];

lockfast::conformance_of_users!(healthy, InMemory::new());
lockfast::conformance_of_users!(chaos, InMemory::new(), RUNS);
