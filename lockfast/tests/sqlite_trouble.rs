//! Trouble with files: damaged, foreign, of another format, removed, from before the last boot, opened by many
//! processes at once.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lockfast::store::{Admission, Busy, Lease, Leaving, Names, Query, Standing, Store, Why};
use lockfast::store::{Claim, Demand, Name, Ticket};
use lockfast::{Error, Locks, Sqlite};
use rusqlite::Connection;

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        Self::named("")
    }

    fn named(deep: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("lockfast-trouble-{:016x}", fastrand::u64(..)));
        std::fs::create_dir_all(folder.join(deep)).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("locks.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn claim(text: &str) -> Arc<Claim> {
    let demands = Demand::exclusive(Name::new(text).unwrap()).into();
    Arc::new(Claim::new(demands, Duration::from_secs(30)).unwrap())
}

async fn hold(store: &Sqlite, claim: &Arc<Claim>) -> Ticket {
    match store.acquire(claim, Busy::Refuse).await.unwrap() {
        Admission::Held(tickets) => tickets.first,
        other => panic!("{other:?}"),
    }
}

/// A lock that one client releases reaches a waiter of another far sooner than the waiter would ask by itself.
async fn assert_handed_off(holder: &Locks, waiter: Locks) {
    let guard = holder.mutex("a").lock().await.unwrap();
    let waiting = tokio::spawn(async move { waiter.mutex("a").lock().await.unwrap().fence() });
    while holder.mutex("a").info().await.unwrap().is_none_or(|info| info.waiters().count() == 0) {
        tokio::task::yield_now().await;
    }
    guard.release().await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap().unwrap().unwrap();
}

/// Changes a file as another program could.
fn execute_sql(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test]
async fn a_file_from_a_newer_version_is_refused_by_name() {
    let folder = Folder::new();
    drop(Sqlite::open(folder.file()).unwrap());
    execute_sql(&folder.file(), "PRAGMA user_version = 3");
    let refused = Sqlite::open(folder.file()).unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, Error::Unsupported(_)), "{refused:?}");
    assert!(text.contains("newer") && text.contains("format 3") && text.contains("locks.db"), "{text}");
    let version: i32 =
        Connection::open(folder.file()).unwrap().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 3, "it was not touched");
}

#[tokio::test]
async fn a_file_from_an_older_version_is_refused_by_name() {
    let folder = Folder::new();
    drop(Sqlite::open(folder.file()).unwrap());
    execute_sql(&folder.file(), "PRAGMA user_version = 1");
    let refused = Sqlite::open(folder.file()).unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, Error::Unsupported(_)), "{refused:?}");
    assert!(text.contains("older") && text.contains("format 1") && text.contains("locks.db"), "{text}");
    let version: i32 =
        Connection::open(folder.file()).unwrap().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 1, "it was not touched");
}

#[tokio::test]
async fn the_database_of_another_program_is_left_alone() {
    for sql in ["CREATE TABLE bills (id)", "PRAGMA application_id = 77; CREATE TABLE bills (id)"] {
        let folder = Folder::new();
        execute_sql(&folder.file(), sql);
        let refused = Sqlite::open(folder.file()).unwrap_err();
        assert!(matches!(&refused, Error::Invalid(text) if text.contains("some other program")), "{refused:?}");
        let tables: i64 = Connection::open(folder.file())
            .unwrap()
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .unwrap();
        assert_eq!(tables, 1, "nothing was added to it");
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_kept() {
    let folder = Folder::new();
    let text = "my diary, a long one, that must not be lost ".repeat(200);
    std::fs::write(folder.file(), &text).unwrap();
    let refused = Sqlite::open(folder.file()).unwrap_err();
    assert!(matches!(&refused, Error::Invalid(text) if text.contains("not a database")), "{refused:?}");
    assert_eq!(std::fs::read_to_string(folder.file()).unwrap(), text);
}

#[tokio::test]
async fn a_damaged_file_is_an_error_that_says_what_to_do() {
    let folder = Folder::new();
    let store = Sqlite::open(folder.file()).unwrap();
    for number in 0..200 {
        hold(&store, &claim(&format!("n{number}"))).await;
    }
    drop(store);
    execute_sql(&folder.file(), "PRAGMA wal_checkpoint(TRUNCATE)");
    let mut bytes = std::fs::read(folder.file()).unwrap();
    bytes[4096..].iter_mut().for_each(|byte| *byte ^= 0x5a);
    std::fs::write(folder.file(), bytes).unwrap();
    let failed = match Sqlite::open(folder.file()) {
        Err(error) => error,
        Ok(store) => store.acquire(&claim("a"), Busy::Refuse).await.unwrap_err(),
    };
    let text = failed.to_string();
    assert!(text.contains("damaged") && text.contains("move it"), "{text}");
}

#[tokio::test]
async fn a_missing_directory_is_named_in_the_error() {
    let folder = Folder::new();
    let failed = Sqlite::open(folder.0.join("nowhere/locks.db")).unwrap_err();
    assert!(matches!(failed, Error::Unavailable { .. }) && failed.to_string().contains("nowhere"), "{failed}");
}

#[tokio::test]
async fn a_url_says_which_file() {
    let folder = Folder::new();
    let plain = format!("sqlite:{}", folder.file().display());
    let with_slashes = format!("sqlite://{}", folder.file().display());
    let guard = Locks::connect(&plain).await.unwrap().mutex("a").lock().await.unwrap();
    let other = Locks::connect(&with_slashes).await.unwrap();
    assert!(other.mutex("a").try_lock().await.unwrap().is_none());
    drop(guard);
    for odd in ["sqlite::memory:", "sqlite:/tmp/x.db?mode=ro"] {
        let refused = Locks::connect(odd).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    }
}

#[tokio::test]
async fn many_processes_can_create_a_file_at_once() {
    // Repeated, because the windows for a race are microseconds long.
    for _ in 0..20 {
        open_from_many_threads(&Folder::new()).await;
    }
}

async fn open_from_many_threads(folder: &Folder) {
    let threads: Vec<_> = (0..16)
        .map(|_| {
            let path = folder.file();
            std::thread::spawn(move || Sqlite::open(path).unwrap())
        })
        .collect();
    let stores: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let mut last = Ticket(0);
    for store in &stores {
        let claim = claim("a");
        let ticket = hold(store, &claim).await;
        assert!(ticket > last);
        last = ticket;
        store.release(&[Leaving::Done(claim)]).await.unwrap();
    }
}

#[tokio::test]
async fn a_socket_with_a_long_path_is_reached() {
    let deep = "d".repeat(60) + "/" + &"e".repeat(60);
    let folder = Folder::named(&deep);
    let path = folder.0.join(deep).join("locks.db");
    let (one, two) = (Sqlite::open(&path).unwrap(), Sqlite::open(&path).unwrap());
    let (holder, waiter) = (Locks::new(one).unwrap(), Locks::new(two).unwrap());
    assert_handed_off(&holder, waiter).await;
}

#[tokio::test]
async fn a_claim_in_a_removed_file_no_longer_holds() {
    let folder = Folder::new();
    let (before, other) = (Sqlite::open(folder.file()).unwrap(), Sqlite::open(folder.file()).unwrap());
    let held = claim("a");
    let fence = hold(&before, &held).await;
    for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        std::fs::remove_file(folder.0.join(file)).unwrap();
    }
    assert!(hold(&other, &claim("a")).await > fence, "tickets of a new file start at the time of day");
    let lease = Lease { claim: held, ttl: Duration::from_secs(30) };
    assert_eq!(before.renew(&[lease]).await.unwrap(), [Standing::Gone(Why::Unknown)]);
}

#[tokio::test]
async fn a_file_that_another_machine_uses_too_is_refused() {
    let folder = Folder::new();
    let store = Sqlite::open(folder.file()).unwrap();
    hold(&store, &claim("a")).await;
    execute_sql(&folder.file(), "UPDATE state SET boot = 'another machine'");
    let failed = store.acquire(&claim("b"), Busy::Refuse).await.unwrap_err();
    assert!(failed.to_string().contains("another machine"), "{failed}");
}

#[tokio::test]
async fn a_boot_ends_claims_of_processes_and_keeps_detached_ones() {
    let folder = Folder::new();
    let store = Sqlite::open(folder.file()).unwrap();
    let highest = hold(&store, &claim("had-a-process")).await;
    let detached = Arc::new(Claim { detached: true, ..(*claim("detached")).clone() });
    hold(&store, &detached).await;
    store.renew(&[Lease { claim: detached, ttl: Duration::from_secs(30) }]).await.unwrap();
    let lingering = claim("lingering");
    hold(&store, &lingering).await;
    store.release(&[Leaving::Linger(lingering, Duration::from_secs(20))]).await.unwrap();
    let once = claim("once");
    hold(&store, &once).await;
    let (value, keep) = (bytes::Bytes::from_static(b"done"), Duration::from_secs(3600));
    store.release(&[Leaving::Seal { claim: once, value, keep }]).await.unwrap();
    drop(store);
    // As if the machine had been up for an hour then and for a minute now, and as if the last tickets had been lost.
    let hour = 3_600_000_000_000_i64;
    execute_sql(
        &folder.file(),
        &format!(
            "UPDATE state SET boot = 'before', wall = wall - {hour}, ticket = ticket - 1000;
             UPDATE entries SET expires = expires + {hour}, since = since + {hour};
             UPDATE seals SET until = until + {hour}"
        ),
    );
    let store = Sqlite::open(folder.file()).unwrap();
    assert!(hold(&store, &claim("had-a-process")).await > highest, "no fence goes back");
    for text in ["detached", "lingering"] {
        let answer = store.acquire(&claim(text), Busy::Refuse).await.unwrap();
        assert!(matches!(answer, Admission::Refused(_)), "{text}: {answer:?}");
    }
    let query = Query { names: Names::Beginning(String::new()), after: None, limit: 10, entries: usize::MAX };
    let shown = store.inspect(&query).await.unwrap().resources;
    let resource = |text: &str| shown.iter().find(|resource| resource.name.as_str() == text).unwrap();
    let left = |text: &str| resource(text).queue[0].expires_in.as_secs();
    assert!((25..=30).contains(&left("detached")), "{}", left("detached"));
    assert!((15..=20).contains(&left("lingering")), "{}", left("lingering"));
    let sealed_for = resource("once").sealed_for.unwrap();
    assert!((3590..=3600).contains(&sealed_for.as_secs()), "{sealed_for:?}");
}

#[tokio::test]
async fn a_runtime_directory_open_to_other_users_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let runtime_dir = folder.0.join("locks.db.live");
    std::fs::create_dir(&runtime_dir).unwrap();
    std::fs::set_permissions(&runtime_dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    let refused = Sqlite::open(folder.file()).unwrap_err();
    assert!(matches!(&refused, Error::Invalid(text) if text.contains("0700")), "{refused:?}");
}

#[tokio::test]
async fn created_files_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let _store = Sqlite::open(folder.file()).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.0.join("locks.db.live")), 0o700);
    assert_eq!(mode(&folder.file()), 0o600, "write access to the file is access to every lock");
}

#[tokio::test]
async fn a_page_continues_after_the_name_equal_to_the_prefix() {
    let folder = Folder::new();
    let store = Sqlite::open(folder.file()).unwrap();
    for text in ["a", "ab"] {
        hold(&store, &claim(text)).await;
    }
    let after = Some(Name::new("a").unwrap());
    let page = store
        .inspect(&Query { names: Names::Beginning("a".to_owned()), after, limit: 1, entries: usize::MAX })
        .await
        .unwrap();
    let shown: Vec<_> = page.resources.iter().map(|resource| resource.name.as_str()).collect();
    assert_eq!((shown, page.next), (vec!["ab"], None));
}

#[tokio::test]
async fn a_page_without_a_limit_shows_all() {
    let folder = Folder::new();
    let store = Sqlite::open(folder.file()).unwrap();
    hold(&store, &claim("a")).await;
    let query = Query { names: Names::Beginning(String::new()), after: None, limit: usize::MAX, entries: usize::MAX };
    assert_eq!(store.inspect(&query).await.unwrap().resources.len(), 1);
}

#[tokio::test]
async fn a_client_behind_a_symlink_is_notified() {
    let folder = Folder::new();
    let link = folder.0.join("link.db");
    let direct = Sqlite::open(folder.file()).unwrap();
    std::os::unix::fs::symlink(folder.file(), &link).unwrap();
    let (holder, waiter) = (Locks::new(direct).unwrap(), Locks::new(Sqlite::open(&link).unwrap()).unwrap());
    assert_handed_off(&holder, waiter).await;
}

#[tokio::test]
async fn a_restored_copy_gives_no_fence_twice() {
    let folder = Folder::new();
    let copy = folder.0.join("copy.db");
    drop(Sqlite::open(folder.file()).unwrap());
    execute_sql(&folder.file(), "PRAGMA wal_checkpoint(TRUNCATE)");
    std::fs::copy(folder.file(), &copy).unwrap();
    let store = Sqlite::open(folder.file()).unwrap();
    let fence = hold(&store, &claim("a")).await;
    drop(store);
    for file in ["locks.db-wal", "locks.db-shm"] {
        let _ = std::fs::remove_file(folder.0.join(file));
    }
    std::fs::rename(&copy, folder.file()).unwrap();
    let store = Sqlite::open(folder.file()).unwrap();
    assert!(hold(&store, &claim("a")).await > fence, "no fence goes back");
}

#[tokio::test]
async fn a_file_removed_without_its_wal_is_created_again() {
    let folder = Folder::new();
    let (one, two) = (Sqlite::open(folder.file()).unwrap(), Sqlite::open(folder.file()).unwrap());
    hold(&one, &claim("a")).await;
    hold(&two, &claim("b")).await;
    std::fs::remove_file(folder.file()).unwrap();
    hold(&one, &claim("a")).await;
    hold(&two, &claim("b")).await;
    hold(&one, &claim("c")).await;
}

#[tokio::test]
async fn a_file_locked_for_seconds_is_an_error_and_harms_nothing() {
    let folder = Folder::new();
    let store = Sqlite::open(folder.file()).unwrap();
    let held = claim("a");
    let ticket = hold(&store, &held).await;
    let stopped = Connection::open(folder.file()).unwrap();
    stopped.execute_batch("BEGIN IMMEDIATE").unwrap();
    let failed = store.acquire(&claim("b"), Busy::Refuse).await.unwrap_err();
    assert!(matches!(failed, Error::Unavailable { .. }), "{failed}");
    assert!(failed.to_string().contains("perhaps it is stopped"), "{failed}");
    drop(stopped);
    hold(&store, &claim("b")).await;
    let lease = Lease { claim: held, ttl: Duration::from_secs(30) };
    let standings = store.renew(&[lease]).await.unwrap();
    assert!(matches!(standings[..], [Standing::Held(tickets)] if tickets.first == ticket), "{standings:?}");
}
