//! One of ours waits in another process and is killed there. That process is this program again, started to run the one test
//! that waits when it is told to.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockfast::Locks;

use crate::scene::{SOON, Scene, in_time, now, until_waiting};

/// The URL with the prefix, for a process that shall wait.
const WAIT: &str = "LOCKFAST_TEST_WAITS";
/// The test that does it.
const WAITER: &str = "dying::a_process_waits_until_it_is_killed";

/// The lease of who dies. It is the only one that is waited for.
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

pub async fn when_who_waits_first_dies_the_next_one_asks_for_their_release(mut scene: Scene) {
    // A lease that is longer than the test: what matters is when they release, and they tell nobody.
    assert_eq!(scene.peer.ask("try a 600000").await, "yes");
    let mut first = Waiter::start(&scene.url());
    until_waiting(&scene.locks, "a", 1).await;
    let mutex = scene.locks.mutex("a");
    let second = tokio::spawn(async move { mutex.lock().await });
    until_waiting(&scene.locks, "a", 2).await;
    first.kill();
    let died = now();
    scene.peer.releases().await;
    let guard = second.await.unwrap().unwrap();
    let passed = now().since(died);
    assert!(passed < SHORT + SOON, "it took {passed:?}");
    guard.release().await.unwrap();
}
