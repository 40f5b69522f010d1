//! Clients in trouble are recorded, and the recording is replayed without a difference: the effects of an engine follow from
//! its inputs, their moments and its seed alone. If an engine used a clock, a random number or the order of a hash map, it
//! would show here.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in what its tests share too")]

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures::StreamExt;
use lockfast::conformance::{Chaos, Faults};
use lockfast::store::Store;
use lockfast::{Guard, Locks, Memory};
use replay::{Selection, Summary};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Delays, lost answers, late and repeated requests, lost pushes.
const TROUBLE: Faults =
    Faults { delayed: 0.2, delay: millis(150), unanswered: 0.1, late: 0.05, repeated: 0.1, unpushed: 0.2 };
const TTL: Duration = millis(600);
const NAMES: [&str; 2] = ["a", "b"];
const TASKS: usize = 24;
const ROUNDS: usize = 12;

/// Removed with the test.
struct Recording(PathBuf);

impl Recording {
    fn new(name: &str) -> Self {
        let file = format!("lockfast-replay-{name}-{}-{:08x}.jsonl", std::process::id(), fastrand::u32(..));
        Self(std::env::temp_dir().join(file))
    }

    fn replay(&self) -> (Summary, String) {
        replayed(&std::fs::read(&self.0).unwrap())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn replayed(recording: &[u8]) -> (Summary, String) {
    let mut out = Vec::new();
    let found = replay::replay(recording, &Selection::default(), &mut out).unwrap();
    (found, String::from_utf8(out).unwrap())
}

/// Asks for a lock in one of several ways, and may stop asking.
async fn enter(locks: &Locks, rng: &mut Rng) -> Option<Guard> {
    let name = NAMES[rng.usize(..NAMES.len())];
    let mutex = locks.mutex(name);
    let mutex = match rng.u8(..10) {
        0 => mutex.hold_at_most(millis(5)),
        1 => mutex.hold_at_least(millis(20)),
        2 => mutex.local_handoff(false),
        3 => mutex.no_renewal(),
        4 => mutex.detached(),
        _ => mutex,
    };
    let patience = millis(rng.u64(1..300));
    match rng.u8(..12) {
        0 => mutex.try_lock().await.ok().flatten(),
        1 | 2 => mutex.lock_within(patience).await.ok(),
        3 => tokio::time::timeout(patience, mutex.lock()).await.ok()?.ok(),
        4 => locks.rwlock("shared").read().await.ok(),
        5 => locks.semaphore("permits", 2).acquire().await.ok(),
        6 => locks.multi(NAMES).lock_within(patience).await.ok(),
        _ => mutex.lock().await.ok(),
    }
}

/// Releases a lock in one of several ways, late or not, and may not wait for the end.
async fn leave(locks: &Locks, guard: Guard, rng: &mut Rng) {
    match rng.u8(..8) {
        0 => tokio::time::sleep(TTL / 2).await,
        1 => drop(guard.extend(TTL * 2).await),
        2 => drop(locks.break_lock(guard.names().next().unwrap(), guard.fence().unwrap_or(0)).await),
        _ => tokio::time::sleep(millis(rng.u64(..4))).await,
    }
    match rng.u8(..8) {
        0 => drop(guard),
        1 => drop(tokio::time::timeout(millis(1), pin!(guard.release())).await),
        2 => {
            if let Ok(token) = guard.into_token().await {
                drop(locks.release_token(&token).await);
            }
        }
        _ => drop(guard.release().await),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_in_trouble_are_replayed_without_a_difference() {
    let recording = Recording::new("trouble");
    let (memory, mut rng) = (Arc::new(Memory::new()), Rng::new());
    let client = |faults| {
        let store: Arc<dyn Store> = Arc::new(Chaos::around(memory.clone(), faults, 7));
        Locks::builder().ttl(TTL).record_to(&recording.0).build(store).unwrap()
    };
    let clients = [client(TROUBLE), client(TROUBLE), client(Faults::NONE)];
    // One of them makes events.
    let mut events = clients[0].events();
    let listener = tokio::spawn(async move { while events.next().await.is_some() {} });
    let task = |nth: usize| {
        let (locks, mut rng) = (clients[nth % clients.len()].clone(), rng.fork());
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                if let Some(guard) = enter(&locks, &mut rng).await {
                    leave(&locks, guard, &mut rng).await;
                }
            }
        })
    };
    for task in (0..TASKS).map(task).collect::<Vec<_>>() {
        task.await.unwrap();
    }
    drop(
        clients[2]
            .once("done")
            .keep(Duration::from_secs(2))
            .run(async |_| Ok::<_, lockfast::Error>(b"value".to_vec()))
            .await,
    );
    drop(clients[2].fleet_stats().await);
    // No answer at all: the keeper asks, until patience ends.
    let unanswered = client(Faults { unanswered: 1.0, ..Faults::NONE });
    assert!(unanswered.mutex("unanswered").lock_within(millis(500)).await.is_err());
    drop(unanswered);
    // The shutdown finds several holders and waiters.
    let mut held = Vec::new();
    for nth in 0..8 {
        held.push(clients[2].mutex(format!("held {nth}")).lock().await.unwrap());
    }
    let wait = |nth: usize| {
        let mutex = clients[2].mutex(format!("held {nth}")).local_handoff(false);
        tokio::spawn(async move { mutex.lock().await.map(drop) })
    };
    let waiting: Vec<_> = (0..8).map(wait).collect();
    while clients[2].stats().waiting < 8 {
        tokio::task::yield_now().await;
    }
    for locks in clients {
        drop(locks.shutdown(Duration::from_secs(5)).await);
    }
    for waiter in waiting {
        assert!(matches!(waiter.await.unwrap(), Err(lockfast::Error::Closed(_))));
    }
    drop((held, listener));

    let (found, said) = recording.replay();
    let reported: Vec<_> = said.lines().filter(|line| line.starts_with(char::is_uppercase)).take(9).collect();
    assert!(found.is_same() && found.steps > 1000 && found.requests > 100, "{found}\n{reported:#?}");
    // The trouble was in it.
    for part in [
        "Unanswered ",
        "Missed ",
        "Joined ",
        "Renewed, ",
        "Pausing ",
        "Pushed Held",
        "Pushed Resync",
        "Close: it was shut down",
        "-> Waiting",
        "-> Handed",
        "-> Outside",
        "effect  Lost",
        "effect  Emit",
        "sealed with 5 bytes",
    ] {
        assert!(said.contains(part), "{part:?} is not in the recording");
    }
}
