//! A process that forks has its client twice, and its keeper once. The one without a keeper neither asks for locks nor gives
//! back those of the other.
#![cfg(all(unix, feature = "redis"))]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in what its tests share too")]

use std::time::Duration;

use fork::Fork;
use futures::executor::block_on;
use lockfast::{Error, Guard, Locks};
use servers::Redis;

/// What the forked process finds out, as the code that it ends with.
fn in_the_child(locks: &Locks, dropped: Guard, released: Guard) -> i32 {
    // Only the thread that forked goes on here: nothing may be waited for, not even a panic's message.
    drop(dropped);
    let refused = |answer: Result<(), Error>| matches!(answer, Err(Error::Closed(why)) if why.contains("fork"));
    let asks = block_on(locks.mutex("another").lock()).map(drop);
    let tries = block_on(locks.mutex("another").try_lock()).map(drop);
    let extends = block_on(released.extend(Duration::from_secs(60)));
    let releases = block_on(released.release());
    let accepted = [asks, tries, extends, releases].map(refused).iter().position(|refused| !refused);
    accepted.map_or(0, |which| which as i32 + 1)
}

#[test]
fn a_client_refuses_to_work_in_a_forked_process_and_the_first_process_keeps_its_locks() {
    let server = Redis::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (locks, guards) = runtime.block_on(async {
        let locks = Locks::connect(&server.url()).await.unwrap();
        let guards = [locks.mutex("first").lock().await.unwrap(), locks.mutex("second").lock().await.unwrap()];
        (locks, guards)
    });
    let [first, second] = guards;
    let child = match fork::fork().unwrap() {
        Fork::Parent(child) => child,
        Fork::Child => std::process::exit(in_the_child(&locks, first, second)),
    };
    let status = fork::waitpid(child).unwrap();
    assert_eq!(status >> 8, 0, "status {status}: which of those in `in_the_child` was not refused, times 256");
    runtime.block_on(async {
        for (name, guard) in [("first", first), ("second", second)] {
            guard.check().unwrap();
            assert!(locks.mutex(name).is_locked().await.unwrap(), "{name}");
            guard.release().await.unwrap();
        }
        // A new one works, also in a process that has forked.
        locks.mutex("another").lock().await.unwrap().release().await.unwrap();
    });
}
