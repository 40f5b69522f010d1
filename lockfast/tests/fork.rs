//! After a fork there are two copies of the client, and one keeper. The copy without a keeper neither requests locks nor releases
//! the locks of the other process.
#![cfg(all(unix, feature = "redis"))]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in what its tests share too")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use fork::Fork;
use futures::StreamExt;
use futures::executor::block_on;
use lockfast::{Error, Guard, Locks};
use servers::Redis;

/// The exit code of a child in which all calls were refused. No other end of a process has it.
const ALL_REFUSED: i32 = 100;

/// Runs in the child. Returns [`ALL_REFUSED`], or the number of the call that was not refused, or 0 if it released a lock of
/// its parent.
fn in_the_child(locks: &Locks, dropped: Guard, released: Guard) -> i32 {
    // Only the forking thread exists here: nothing may be waited for.
    drop(dropped);
    if locks.stats().held != 2 {
        return 0;
    }
    let is_refused = |answer: Result<(), Error>| matches!(answer, Err(Error::Closed(why)) if why.contains("fork"));
    let lock = block_on(locks.mutex("another").lock()).map(drop);
    let try_lock = block_on(locks.mutex("another").try_lock()).map(drop);
    let extend = block_on(released.extend(Duration::from_secs(60)));
    let is_locked = block_on(locks.mutex("first").is_locked()).map(drop);
    let inspect = block_on(locks.inspect("")).map(drop);
    let break_lock = block_on(locks.break_lock("first", 1)).map(drop);
    let observe = locks.election("first").observe().map(drop);
    let changes = block_on(locks.changes("").next()).map_or(Err(Error::Closed("fork")), |_| Ok(()));
    let release = block_on(released.release());
    let shutdown = block_on(locks.shutdown(Duration::from_secs(1)));
    let answers = [lock, try_lock, extend, is_locked, inspect, break_lock, observe, changes, release, shutdown];
    let first_accepted = answers.map(is_refused).iter().position(|is_refused| !is_refused);
    first_accepted.map_or(ALL_REFUSED, |index| index as i32 + 1)
}

#[test]
fn a_forked_client_refuses_to_work_and_the_parent_keeps_its_locks() {
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
        Fork::Child => {
            // A panic must not unwind into values that belong to the parent.
            let exit_code = catch_unwind(AssertUnwindSafe(|| in_the_child(&locks, first, second)));
            std::process::exit(exit_code.unwrap_or(-1));
        }
    };
    let status = fork::waitpid(child).unwrap();
    assert_eq!(status, ALL_REFUSED << 8, "below 256 the child was killed; otherwise the exit code times 256");
    runtime.block_on(async {
        for (name, guard) in [("first", first), ("second", second)] {
            guard.check().unwrap();
            assert!(locks.mutex(name).is_locked().await.unwrap(), "{name}");
            guard.release().await.unwrap();
        }
        // New locks work, also in a process that has forked.
        locks.mutex("another").lock().await.unwrap().release().await.unwrap();
    });
}
