//! Another process stays in a transaction: which calls wait for the file, and which must not.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use futures::StreamExt;
use lockfast::store::{Admission, Busy, Change, Names, Query, Scope, Store};
use lockfast::store::{Claim, Demand, Name};
use lockfast::{Locks, Sqlite};
use rusqlite::Connection;

/// The file is locked for longer than every bound below, so that a bound separates right from wrong also on a slow
/// machine.
const MAX_DELAY: Duration = Duration::from_millis(1500);

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("lockfast-busy-{:016x}", fastrand::u64(..)));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("locks.db")
    }

    /// Locks the file until the connection is dropped.
    fn lock_file(&self) -> Connection {
        let connection = Connection::open(self.file()).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        connection
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[expect(clippy::disallowed_methods, reason = "the promises are about real time")]
fn now() -> Instant {
    Instant::now()
}

fn claim(text: &str) -> Arc<Claim> {
    let demands = Demand::exclusive(Name::new(text).unwrap()).into();
    Arc::new(Claim::new(demands, Duration::from_secs(30)).unwrap())
}

fn locks(folder: &Folder) -> Locks {
    Locks::new(Sqlite::open(folder.file()).unwrap()).unwrap()
}

#[tokio::test]
async fn a_loss_is_noticed_on_time_while_the_file_is_locked() {
    let folder = Folder::new();
    let locks = locks(&folder);
    let guard = locks.mutex("a").ttl(Duration::from_secs(1)).lock().await.unwrap();
    // Further calls of the keeper that wait for the file: for a waiter, a dropped guard, and counters.
    let waiter = tokio::spawn({
        let mutex = locks.mutex("a").ttl(Duration::from_secs(1)).local_handoff(false);
        async move { mutex.lock_within(Duration::from_millis(500)).await.map(drop) }
    });
    let dropped = locks.mutex("b").lock().await.unwrap();
    let (sender, lost_at) = mpsc::channel();
    guard.on_lost(move |_| sender.send(now()).unwrap());
    let other_transaction = folder.lock_file();
    drop(dropped);
    let deadline = now() + guard.remaining();
    tokio::time::timeout(Duration::from_secs(20), guard.lost()).await.unwrap();
    let delay = now().saturating_duration_since(deadline);
    assert!(delay < MAX_DELAY, "lost() came {delay:?} late");
    let delay = lost_at.recv().unwrap().saturating_duration_since(deadline);
    assert!(delay < MAX_DELAY, "on_lost came {delay:?} late");
    waiter.await.unwrap().unwrap_err();
    drop(other_transaction);
}

#[tokio::test]
async fn patience_ends_on_time_while_the_file_is_locked() {
    let folder = Folder::new();
    let locks = locks(&folder);
    let other_transaction = folder.lock_file();
    let begun = now();
    let requests = (0..8).map(|number| {
        let mutex = locks.mutex(format!("n{number}"));
        async move { mutex.lock_within(Duration::from_millis(300)).await.map(drop).unwrap_err() }
    });
    futures::future::join_all(requests).await;
    let waited = begun.elapsed();
    assert!(waited < Duration::from_millis(300) + MAX_DELAY, "{waited:?}");
    drop(other_transaction);
}

#[test]
fn a_verb_that_waits_for_the_file_blocks_no_executor() {
    let folder = Folder::new();
    let store = Sqlite::open(folder.file()).unwrap();
    let other_transaction = folder.lock_file();
    let (held, free) = (claim("a"), async { drop(other_transaction) });
    // One thread: the file is freed only if the verb does not block the executor.
    let acquired = futures::future::join(store.acquire(&held, Busy::Wait), free);
    let begun = now();
    let (admission, ()) = futures::executor::block_on(acquired);
    assert!(matches!(admission.unwrap(), Admission::Held(_)));
    assert!(begun.elapsed() < MAX_DELAY, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_verb_dropped_while_it_waits_does_not_run() {
    let folder = Folder::new();
    let store = Sqlite::open(folder.file()).unwrap();
    let other_transaction = folder.lock_file();
    let dropped = claim("dropped");
    let short = Duration::from_millis(10);
    tokio::time::timeout(short, store.acquire(&dropped, Busy::Wait)).await.unwrap_err();
    let kept = claim("kept");
    let (admission, ()) = tokio::join!(store.acquire(&kept, Busy::Wait), async { drop(other_transaction) });
    assert!(matches!(admission.unwrap(), Admission::Held(_)));
    let query = Query { names: Names::Beginning(String::new()), after: None, limit: 10, entries: 10 };
    let page = store.inspect(&query).await.unwrap();
    let names: Vec<_> = page.resources.iter().map(|resource| resource.name.as_str()).collect();
    assert_eq!(names, ["kept"]);
}

#[tokio::test]
async fn a_watch_begun_while_the_file_is_locked_resyncs() {
    let folder = Folder::new();
    let store = Sqlite::open(folder.file()).unwrap();
    let other_transaction = folder.lock_file();
    let begun = now();
    let mut changes = store.watch(Scope::Queues("a".to_owned()));
    assert!(begun.elapsed() < MAX_DELAY, "{:?}", begun.elapsed());
    drop(other_transaction);
    assert_eq!(changes.next().await, Some(Change::Resync));
    store.acquire(&claim("a"), Busy::Wait).await.unwrap();
    assert_eq!(changes.next().await, Some(Change::Resource(Name::new("a").unwrap())));
}
