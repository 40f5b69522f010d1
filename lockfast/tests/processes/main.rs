//! The suite with its claims spread over several processes: each handle is open in another process, and a verb of the handle is
//! a message to that process. A store that processes share answers as if all of them were one.
//!
//! The other processes are this program too, started again to run one test: [`SERVER_TEST`], which serves if the environment
//! variable [`URL_VAR`] is set.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in its fixture too")]
#![allow(unreachable_pub, reason = "a test has no public interface")]

#[cfg(all(feature = "sqlite", target_os = "linux"))]
mod deaths;
mod encoding;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
mod random_kills;
mod remote;
mod round_trips;
mod serve;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lockfast::conformance::{Subject, Time};
use lockfast::store::{Admission, Busy, Store};
use lockfast::store::{Claim, Demand, Name};
use lockfast::{Clock, Error, ManualClock};
use tokio::sync::RwLock;

use remote::{Process, Remote, Site};

/// The environment variable with the URL of the store that a process serves.
const URL_VAR: &str = "LOCKFAST_TEST_SERVE";
/// The name of the test that serves.
const SERVER_TEST: &str = "a_process_serves_until_its_input_ends";

/// A store that is reached through several processes, on clocks that move together.
struct Processes {
    processes: Vec<Arc<Process>>,
    opened: AtomicUsize,
    /// Locked for reading by every verb in flight, so that no verb sees some clocks moved and others not.
    time: Arc<RwLock<()>>,
    clock: ManualClock,
    site: Site,
}

impl Drop for Processes {
    fn drop(&mut self) {
        // A client that a case leaked may keep its handle for ever. The process and its file are removed all the same.
        self.processes.iter().for_each(|process| process.kill());
    }
}

impl Processes {
    async fn start(count: usize, site: Site) -> Self {
        let processes = (0..count).map(|_| Process::start(&site)).collect();
        Self { processes, opened: AtomicUsize::new(0), time: Arc::default(), clock: ManualClock::new(), site }
    }
}

#[async_trait]
impl Subject for Processes {
    async fn open(&self) -> Arc<dyn Store> {
        let next = self.opened.fetch_add(1, Ordering::Relaxed) % self.processes.len();
        Arc::new(Remote::open(&self.processes[next], &self.time).await)
    }

    async fn advance(&self, span: Duration) {
        if self.site.has_real_clock() {
            return tokio::time::sleep(span).await;
        }
        let _no_verb_in_flight = self.time.write().await;
        for process in &self.processes {
            process.pass(span).await;
        }
        self.clock.advance(span);
    }

    fn time(&self) -> Time {
        if self.site.has_real_clock() { Time::Real } else { Time::Set }
    }

    fn clock(&self) -> Clock {
        if self.site.has_real_clock() { Clock::boot() } else { self.clock.clock() }
    }
}

lockfast::conformance!(through_one_process, Processes::start(1, Site::memory()));
#[cfg(all(feature = "sqlite", target_os = "linux"))]
lockfast::conformance!(sqlite_over_processes, Processes::start(3, Site::file()));
#[cfg(feature = "redis")]
lockfast::conformance!(redis_over_processes, Processes::start(3, Site::redis()));

#[test]
fn a_process_serves_until_its_input_ends() {
    if let Ok(url) = std::env::var(URL_VAR) {
        return serve::serve(&url);
    }
    in_time(async {
        let process = Process::start(&Site::memory());
        let store = Remote::open(&process, &Arc::default()).await;
        assert!(matches!(store.acquire(&claim(), Busy::Wait).await.unwrap(), Admission::Held(_)));
        process.hang_up();
        let status = loop {
            match process.exit_status() {
                Some(status) => break status,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        assert!(status.success(), "{status}");
        let unanswered = store.acquire(&claim(), Busy::Wait).await;
        assert!(matches!(unanswered, Err(Error::Unavailable { .. })), "{unanswered:?}");
    });
}

#[test]
fn processes_share_nothing_but_the_store() {
    in_time(async {
        let processes = Processes::start(3, Site::memory()).await;
        for _ in 0..3 {
            let store = processes.open().await;
            assert!(matches!(store.acquire(&claim(), Busy::Wait).await.unwrap(), Admission::Held(_)));
        }
        let again = processes.open().await;
        assert!(matches!(again.acquire(&claim(), Busy::Wait).await.unwrap(), Admission::Queued { .. }));
    });
}

fn claim() -> Arc<Claim> {
    let demands = Demand::exclusive(Name::new("a").unwrap()).into();
    Arc::new(Claim::new(demands, Duration::from_secs(30)).unwrap())
}

fn in_time<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), work).await.expect("it takes no minute") })
}
