//! The store in one file, which each client opens for itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockfast::SqliteOptions;
use lockfast::conformance::{Subject, Time, sleep};
use lockfast::store::Store;

struct InOneFile(PathBuf);

impl InOneFile {
    async fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("lockfast-executors-{:016x}", fastrand::u64(..)));
        std::fs::create_dir(&folder).expect("the directory for temporary files can be used");
        Self(folder)
    }
}

#[async_trait]
impl Subject for InOneFile {
    async fn open(&self) -> Arc<dyn Store> {
        SqliteOptions::default().open(self.0.join("locks.db")).expect("a new file can be opened")
    }

    async fn advance(&self, span: Duration) {
        sleep(span).await;
    }

    fn time(&self) -> Time {
        Time::Real
    }
}

impl Drop for InOneFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

lockfast::conformance_of_executors!(executors, InOneFile::new());
