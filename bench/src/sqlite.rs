//! The store in one file, beside what it is made of: bare SQLite transactions, and `flock`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lockfast::{Clock, Locks, Sqlite};
use rusqlite::{Connection, params};
use tokio::runtime::{Builder, Runtime};

use crate::measure::{Row, cpu_time, median, percentile, print_rows, time};

const ROUNDS: usize = 9;
/// Lock-and-release pairs in one round.
const PAIRS: u32 = 5_000;
/// How often each of two processes takes the lock.
const HANDOFFS: usize = 500;
/// How long each process holds the lock: long enough for the other process to wait again.
const HOLD: Duration = Duration::from_millis(2);
/// How often each command is started.
const RUNS: usize = 60;

pub(crate) fn run() {
    let folder = Folder::new();
    let runtime = runtime();
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    let (locks, bare_database) = (open(&folder.0.join("locks.db")), bare_file(&folder.0.join("bare.db")));
    for round in 1..=ROUNDS {
        println!("round {round} of {ROUNDS}");
        bare.push(bare_pairs(&bare_database));
        ours.push(our_pairs(&runtime, &locks));
    }
    let (ours, bare) = (median(ours), median(bare));
    println!("hand-offs between two processes");
    let handoffs = measure_handoffs(&folder.0.join("handoffs.db"));
    println!("starting commands");
    let (lockfast_run, flock) = measure_commands(&folder.0);
    let extra = lockfast_run - flock;
    let (p50, p99) = (percentile(&handoffs, 0.5), percentile(&handoffs, 0.99));
    println!();
    let row_with_bar = |what, figure, bar, is_met| Row { what, figure, bar, is_met: Some(is_met) };
    let row_without_bar = |what, figure| Row { what, figure, bar: "", is_met: None };
    print_rows(&[
        row_with_bar(
            "lock+release, of a bare transaction pair",
            format!("{:.2}", ours / bare),
            "at most 2",
            ours <= 2.0 * bare,
        ),
        row_without_bar("  ours", format!("{:.1} us", ours / 1e3)),
        row_without_bar("  bare, same durability", format!("{:.1} us", bare / 1e3)),
        row_with_bar("hand-off between two processes, p50", format!("{:.3} ms", p50 / 1e6), "under 1 ms", p50 < 1e6),
        row_without_bar("  p99", format!("{:.3} ms", p99 / 1e6)),
        row_with_bar(
            "lockfast run -- true, more than flock",
            format!("{:.1} ms", extra / 1e6),
            "at most 15 ms",
            extra <= 15e6,
        ),
        row_without_bar("  lockfast run", format!("{:.1} ms", lockfast_run / 1e6)),
        row_without_bar("  flock", format!("{:.1} ms", flock / 1e6)),
    ]);
}

/// Lock and release alone, for a profiler.
pub(crate) fn profile() {
    let folder = Folder::new();
    let (runtime, locks) = (runtime(), open(&folder.0.join("locks.db")));
    let bare_database = bare_file(&folder.0.join("bare.db"));
    for _ in 0..10 {
        let cost = |work: &dyn Fn() -> f64| {
            let before = cpu_time();
            work();
            (cpu_time() - before).as_micros() as f64 / f64::from(PAIRS)
        };
        let (ours, bare) = (cost(&|| our_pairs(&runtime, &locks)), cost(&|| bare_pairs(&bare_database)));
        println!("{ours:.1} us of processor time a pair, {bare:.1} bare, {:.2} times that", ours / bare);
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("two threads can be had")
}

fn open(path: &Path) -> Locks {
    Locks::new(Sqlite::open(path).expect("a new file can be opened")).expect("a thread can be had")
}

/// Nanoseconds for one lock and its release.
fn our_pairs(runtime: &Runtime, locks: &Locks) -> f64 {
    let mutex = locks.mutex("account:123");
    let work = async {
        for _ in 0..PAIRS {
            let guard = mutex.lock().await.expect("the file can be written");
            guard.release().await.expect("the lease lasts longer than the benchmark holds the lock");
        }
    };
    time(|| runtime.block_on(work)).as_nanos() as f64 / f64::from(PAIRS)
}

fn bare_file(path: &Path) -> Connection {
    let database = Connection::open(path).expect("a new file can be opened");
    let created = database.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
         CREATE TABLE locks (name TEXT PRIMARY KEY, owner BLOB, expires INTEGER) WITHOUT ROWID",
    );
    created.expect("a table can be created");
    database
}

/// Nanoseconds for a transaction that takes a lock and one that releases it, with nothing else in them.
fn bare_pairs(database: &Connection) -> f64 {
    let run = |sql: &str| database.prepare_cached(sql).and_then(|mut it| it.execute([])).expect("the SQL is valid");
    let owner = [7u8; 16];
    let work = || {
        for number in 0..PAIRS {
            run("BEGIN IMMEDIATE");
            let mut insert =
                database.prepare_cached("INSERT INTO locks VALUES (?1, ?2, ?3)").expect("the SQL is valid");
            insert.execute(params!["account:123", owner, number]).expect("the row is not there");
            run("COMMIT");
            run("BEGIN IMMEDIATE");
            let mut delete =
                database.prepare_cached("DELETE FROM locks WHERE name = ?1 AND owner = ?2").expect("the SQL is valid");
            delete.execute(params!["account:123", owner]).expect("the row is there");
            run("COMMIT");
        }
    };
    time(work).as_nanos() as f64 / f64::from(PAIRS)
}

/// Nanoseconds from each release in one process to the acquisition in the other.
fn measure_handoffs(path: &Path) -> Vec<f64> {
    drop(open(path));
    let children: Vec<_> = (0..2)
        .map(|_| {
            let mut command = Command::new(std::env::current_exe().expect("this program has a file"));
            command.arg("sqlite-partner").arg(path).stdout(Stdio::piped()).spawn().expect("it starts")
        })
        .collect();
    let mut turns = Vec::new();
    for (number, mut child) in children.into_iter().enumerate() {
        let output = BufReader::new(child.stdout.take().expect("it was piped"));
        for line in output.lines().map_while(Result::ok) {
            let mut figures = line.split(' ').filter_map(|figure| figure.parse::<u64>().ok());
            if let (Some(acquired_at), Some(released_at)) = (figures.next(), figures.next()) {
                turns.push((acquired_at, released_at, number));
            }
        }
        child.wait().expect("it ends by itself");
    }
    turns.sort_unstable();
    let handoffs = turns.windows(2).filter(|pair| pair[0].2 != pair[1].2);
    let nanos: Vec<f64> = handoffs.map(|pair| pair[1].0.saturating_sub(pair[0].1) as f64).collect();
    assert!(nanos.len() > HANDOFFS, "most turns were handed off between the processes, not {}", nanos.len());
    nanos
}

/// One of the two processes: takes the lock again and again, and prints when it acquired and released the lock.
pub(crate) fn partner(path: &str) {
    let clock = Clock::boot();
    let locks = open(Path::new(path));
    let work = async {
        let mut turns = Vec::new();
        for _ in 0..HANDOFFS {
            let guard = locks.mutex("ball").lock().await.expect("the other process releases it");
            let acquired_at = clock.now();
            tokio::time::sleep(HOLD).await;
            let released_at = clock.now();
            guard.release().await.expect("the lease lasts longer than the benchmark holds the lock");
            turns.push((acquired_at, released_at));
        }
        turns
    };
    let turns = runtime().block_on(work);
    let mut out = std::io::stdout().lock();
    for (acquired_at, released_at) in turns {
        writeln!(out, "{} {}", acquired_at.as_nanos(), released_at.as_nanos()).expect("the parent reads it");
    }
}

/// Nanoseconds for a command that does nothing, under lockfast and under flock.
fn measure_commands(folder: &Path) -> (f64, f64) {
    let program = std::env::current_exe().expect("this program has a file").with_file_name("lockfast");
    assert!(program.exists(), "{} is not there; use cargo xtask bench sqlite, which builds it", program.display());
    let store = format!("sqlite:{}", folder.join("run.db").display());
    let lockfast = || {
        let mut command = Command::new(&program);
        command.args(["run", "nothing", "--store", &store, "--", "true"]);
        run_once(command)
    };
    let flock = || {
        let mut command = Command::new("flock");
        command.arg(folder.join("flock.file")).arg("true");
        run_once(command)
    };
    // The first start creates the file and warms the caches. It is not counted.
    lockfast();
    let (ours, theirs) = (0..RUNS).map(|_| (lockfast(), flock())).unzip();
    (median(ours), median(theirs))
}

fn run_once(mut command: Command) -> f64 {
    let mut succeeded = false;
    let elapsed = time(|| succeeded = command.status().is_ok_and(|status| status.success()));
    assert!(succeeded, "{command:?} failed");
    elapsed.as_nanos() as f64
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("lockfast-bench-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the directory for temporary files can be used");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
