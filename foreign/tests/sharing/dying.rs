//! A waiter of ours in another process is killed. That process is this program again, started to run one test: [`WAITER_TEST`],
//! which waits if the environment variable [`URL_VAR`] is set.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockfast::Locks;

use crate::fixture::{Fixture, SOON, in_time, now, until_waiting};

/// The environment variable with the URL of the server and the prefix of its keys, for the process that waits.
const URL_VAR: &str = "LOCKFAST_TEST_WAITS";
/// The name of the test that waits.
const WAITER_TEST: &str = "dying::a_process_waits_until_it_is_killed";

/// The lease of the waiter that dies. The next waiter has to wait for the end of this lease only.
const SHORT_TTL: Duration = Duration::from_secs(1);

#[test]
fn a_process_waits_until_it_is_killed() {
    let Ok(url) = std::env::var(URL_VAR) else { return };
    in_time(async {
        let locks = Locks::connect(&url).await.unwrap();
        let _guard = locks.mutex("a").ttl(SHORT_TTL).lock().await.unwrap();
        std::future::pending::<()>().await;
    });
}

/// The process of the waiter. It is killed when this is dropped.
struct Waiter(Child);

impl Waiter {
    fn start(url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", WAITER_TEST, "--nocapture"]).env(URL_VAR, url);
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
    let died_at = now();
    fixture.peer.release().await;
    let guard = second.await.unwrap().unwrap();
    let passed = now().since(died_at);
    assert!(passed < SHORT_TTL + SOON, "it took {passed:?}");
    guard.release().await.unwrap();
}
