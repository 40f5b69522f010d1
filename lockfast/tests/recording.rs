//! Recordings: what the file contains, what it must not contain, and what happens if it cannot be written.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in what its tests share too")]

use std::fmt::Debug;
use std::io::{PipeReader, Read};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use lockfast::store::Claim;
use lockfast::store::{Admission, Busy, Change, Lease, Leaving, Page, Query, Report, Scope, Standing, Store};
use lockfast::{Error, Guarantees, Locks, Memory, Result, TraceId};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A path for a file, which is removed at the end of the test.
struct TempFile(PathBuf);

impl TempFile {
    fn new() -> Self {
        let name = format!("lockfast-recording-{}-{:08x}", std::process::id(), fastrand::u32(..));
        Self(std::env::temp_dir().join(name))
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The in-process store; it keeps the claims of all acquires.
#[derive(Debug, Default)]
struct ClaimRecorder {
    memory: Memory,
    claims: Mutex<Vec<Arc<Claim>>>,
}

#[async_trait]
impl Store for ClaimRecorder {
    fn guarantees(&self) -> Guarantees {
        self.memory.guarantees()
    }

    async fn acquire(&self, claim: &Arc<Claim>, busy: Busy) -> Result<Admission> {
        self.claims.lock().unwrap().push(Arc::clone(claim));
        self.memory.acquire(claim, busy).await
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<Standing>> {
        self.memory.renew(leases).await
    }

    async fn release(&self, leaving: &[Leaving]) -> Result<Vec<Standing>> {
        self.memory.release(leaving).await
    }

    async fn inspect(&self, query: &Query) -> Result<Page> {
        self.memory.inspect(query).await
    }

    async fn record(&self, report: &Report) -> Result<()> {
        self.memory.record(report).await
    }

    fn watch(&self, scope: Scope) -> BoxStream<'static, Change> {
        self.memory.watch(scope)
    }
}

const TRACE: u128 = 0x4bf92f3577b34da6a3ce929d0e0e4736;

/// Uses everything that involves secrets: holding, waiting, a hand-off, a seal, a token, a refusal with a holder's note.
async fn use_all_features(locks: &Locks, other: &Locks) -> Result<()> {
    let guard =
        locks.mutex("name of a lock").trace_id(TraceId(TRACE)).label("key-of-label", "label-value").lock().await?;
    assert!(other.mutex("name of a lock").try_lock().await?.is_none());
    let waiter = tokio::spawn({
        let mutex = locks.mutex("name of a lock").note("note-of-one");
        async move { mutex.lock().await?.release().await }
    });
    while locks.stats().waiting == 0 {
        tokio::task::yield_now().await;
    }
    guard.extend(Duration::from_secs(60)).await?;
    guard.release().await?;
    waiter.await.unwrap()?;
    locks.once("webhook").run(async |_| Ok::<_, Error>(b"sealed-value".to_vec())).await?;
    other.once("webhook").run(async |_| Ok::<_, Error>(b"another".to_vec())).await?;
    let token = locks.mutex("deploy").detached().lock().await?.into_token().await?;
    other.release_token(&token).await?;
    locks.shutdown(Duration::from_secs(10)).await?;
    other.shutdown(Duration::from_secs(10)).await
}

#[tokio::test]
async fn a_recording_contains_no_secret() {
    let (file, store) = (TempFile::new(), Arc::new(ClaimRecorder::default()));
    let client = || {
        let builder = Locks::builder().note("note-of-client").label("key-of-all", "value-of-all").record_to(&file.0);
        builder.build(store.clone()).unwrap()
    };
    use_all_features(&client(), &client()).await.unwrap();
    let text = file.text();
    assert!(text.contains("name of a lock") && text.contains("\"Seal\":{\"value\":12,"), "{text}");
    for hidden in [
        "note-of",
        "label-value",
        "key-of-label",
        "value-of-all",
        "key-of-all",
        "sealed-value",
        &format!("{TRACE:x}"),
        &TRACE.to_string(),
    ] {
        assert!(!text.contains(hidden), "{hidden} is in the recording:\n{text}");
    }
    let claims = store.claims.lock().unwrap();
    assert!(claims.len() > 4);
    let text_without_spaces: String = text.to_lowercase().split_whitespace().collect();
    for claim in &*claims {
        assert!(text.contains(&claim.id.hash().to_string()), "claims are identified by their hash");
        // Not even half of a secret is there, in any notation.
        for half in claim.id.expose_secret().chunks(8) {
            let hex = half.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
            let decimal = half.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
            let big_endian = u64::from_be_bytes(half.try_into().unwrap()).to_string();
            let little_endian = u64::from_le_bytes(half.try_into().unwrap()).to_string();
            for written in [hex, decimal, big_endian, little_endian] {
                assert!(
                    !text_without_spaces.contains(&written),
                    "{written} is a secret, and in the recording:\n{text}"
                );
            }
            assert!(!text.as_bytes().windows(8).any(|bytes| bytes == half));
        }
    }
}

#[tokio::test]
async fn clients_that_share_a_file_write_whole_lines() {
    let (file, store) = (TempFile::new(), Arc::new(Memory::new()));
    let clients: Vec<_> = (0..4).map(|_| Locks::builder().record_to(&file.0).build(store.clone()).unwrap()).collect();
    let work = |locks: &Locks| {
        let mutex = locks.mutex("a");
        std::thread::spawn(move || {
            for _ in 0..50 {
                let mutex = mutex.clone();
                futures::executor::block_on(async move { mutex.lock().await?.release().await }).unwrap();
            }
        })
    };
    for thread in clients.iter().map(work).collect::<Vec<_>>() {
        thread.join().unwrap();
    }
    drop(clients);
    let text = file.text();
    let is_first_line = |line: &&str| line.starts_with("{\"lockfast\":\"");
    assert_eq!(text.lines().filter(is_first_line).count(), 4, "one first line for each client");
    for line in text.lines() {
        let is_step = line.starts_with("{\"step\":") && line.matches("{\"step\":").count() == 1;
        assert!((is_step || is_first_line(&line)) && line.ends_with("\"}") | is_first_line(&line), "{line}");
    }
    assert!(text.ends_with('\n') && text.lines().count() > 800, "{}", text.lines().count());
}

#[cfg(unix)]
#[tokio::test]
async fn a_recording_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let file = TempFile::new();
    drop(Locks::builder().record_to(&file.0).build(Arc::new(Memory::new())).unwrap());
    assert_eq!(std::fs::metadata(&file.0).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_invalid_and_named() {
    let missing = TempFile::new();
    for file in [std::env::temp_dir(), missing.0.join("recording"), "/dev/full".into()] {
        let refused = Locks::builder().record_to(&file).build(Arc::new(Memory::new())).unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains(file.to_str().unwrap()) && text.contains("LOCKFAST_RECORD"), "{text}");
    }
}

/// Log lines about recordings.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("lockfast::client::recorder")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string() + " ");
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A file whose writes fail once its reader is gone.
fn pipe() -> (PipeReader, PathBuf, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", writer.as_raw_fd()));
    (reader, path, writer)
}

#[tokio::test]
async fn a_write_that_fails_warns_once_and_fails_no_lock() {
    let warnings = Warnings::default();
    tracing::subscriber::set_global_default(warnings.clone()).unwrap();
    let (mut reader, path, writer) = pipe();
    let locks = Locks::builder().record_to(&path).build(Arc::new(Memory::new())).unwrap();
    let mut first_bytes = [0; 12];
    reader.read_exact(&mut first_bytes).unwrap();
    assert_eq!(&first_bytes, b"{\"lockfast\":", "it was recorded");
    drop((reader, writer));
    for _ in 0..3 {
        locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    }
    locks.shutdown(Duration::from_secs(10)).await.unwrap();
    let warnings = warnings.0.lock().unwrap();
    let [only] = &warnings[..] else { panic!("one warning, and not {warnings:?}") };
    assert!(
        only.starts_with("WARN") && only.contains("the recording ends") && only.contains("/proc/self/fd"),
        "{only}"
    );
}
