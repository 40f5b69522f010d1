//! A waiter of ours in another process is killed. That process is this program again, started to run one test: [`WAITER`], which
//! waits if [`WAIT`] is set.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockfast::Locks;

use crate::fixture::{Fixture, SOON, in_time, now, until_waiting};

/// The environment variable with the URL and its prefix, for a process that waits.
const WAIT: &str = "LOCKFAST_TEST_WAITS";
/// The test that waits.
const WAITER: &str = "dying::a_process_waits_until_it_is_killed";

/// The lease of the waiter that dies. The next waiter has to wait for the end of this lease only.
const SHORT: Duration = Duration::from_secs(1);

#[test]
fn a_process_waits_until_it_is_killed() {
    let Ok(url) = std::env::var(WAIT) else { return };
    in_time(async {
        let locks = Locks::connect(&url).await.unwrap();
        let _guard = locks.mutex("a").ttl(SHORT).lock().await.unwrap();
        std::future::pending::<()>().await;
    });
}

struct Waiter(Child);

impl Waiter {
    fn start(url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", WAITER, "--nocapture"]).env(WAIT, url);
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.kill();
    }
}

pub async fn the_next_waiter_polls_after_the_first_one_died(mut fixture: Fixture) {
    // Their lease is longer than the test, and their release sends no notification: the next waiter has to poll.
    assert_eq!(fixture.peer.ask("try a 600000").await, "yes");
    let mut first = Waiter::start(&fixture.url());
    until_waiting(&fixture.locks, "a", 1).await;
    let mutex = fixture.locks.mutex("a");
    let second = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&fixture.locks, "a", 2).await;
    first.kill();
    let died = now();
    fixture.peer.releases().await;
    let guard = second.await.unwrap().unwrap();
    let passed = now().since(died);
    assert!(passed < SHORT + SOON, "it took {passed:?}");
    guard.release().await.unwrap();
}
