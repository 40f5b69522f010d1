//! The suite over the store in one file: several handles in one process, on a clock that the suite moves.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockfast::conformance::{Subject, Time};
use lockfast::store::Store;
use lockfast::{Clock, ManualClock, SqliteOptions};

struct InOneFile {
    manual_clock: ManualClock,
    folder: PathBuf,
}

impl InOneFile {
    async fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("lockfast-suite-{:016x}", fastrand::u64(..)));
        std::fs::create_dir(&folder).expect("the directory for temporary files can be used");
        Self { manual_clock: ManualClock::new(), folder }
    }
}

#[async_trait]
impl Subject for InOneFile {
    async fn open(&self) -> Arc<dyn Store> {
        let options = SqliteOptions::default().clock(self.manual_clock.clock());
        options.open(self.folder.join("locks.db")).expect("a new file can be opened")
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

impl Drop for InOneFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

lockfast::conformance!(sqlite, InOneFile::new());
