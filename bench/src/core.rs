//! The library on its in-process store, beside `tokio::sync::Mutex` on the same runtime.

use std::sync::Arc;
use std::time::Duration;

use lockfast::{Guard, Locks};
use tokio::runtime::{Builder, Runtime};

use crate::measure::{Row, cpu_time, median, print_rows, resident_bytes, time};

const ROUNDS: usize = 7;
/// Lock-and-release pairs of one task in one round.
const PAIRS: u32 = 100_000;
/// Tasks that lock one name.
const TASKS: u32 = 1_000;
/// How often each of these tasks locks the name in one round.
const TURNS: u32 = 100;
/// Locks that are held at the same time.
const HELD: u32 = 100_000;
const HELD_TTL: Duration = Duration::from_secs(10);
/// Three renewals of each claim: one after each third of the lease.
const HELD_FOR: Duration = Duration::from_secs(10);

pub(crate) fn run() {
    // First, while the heap is fresh: the benchmark counts the memory of held locks.
    let (bytes, cpu_share, lost) = hold_many();
    let runtime = runtime();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let (mut our_handoffs, mut their_handoffs) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        println!("round {round} of {ROUNDS}");
        ours.push(our_pair(&runtime));
        theirs.push(tokio_pair(&runtime));
        our_handoffs.push(our_contended(&runtime));
        their_handoffs.push(tokio_contended(&runtime));
    }
    let (ours, theirs) = (median(ours), median(theirs));
    let (our_handoffs, their_handoffs) = (median(our_handoffs), median(their_handoffs));
    let ratio = our_handoffs / their_handoffs;
    println!();
    print_rows(&[
        row_with_bar("uncontended lock+release, memory:", format!("{:.2} us", ours / 1e3), "under 3 us", ours < 3e3),
        row_without_bar("uncontended lock+drop, tokio::sync::Mutex", format!("{:.3} us", theirs / 1e3)),
        row_with_bar(
            "1,000 tasks on one name, of tokio's hand-offs/s",
            format!("{ratio:.2}"),
            "at least 1/8",
            ratio >= 0.125,
        ),
        row_without_bar("  ours, hand-offs/s", format!("{our_handoffs:.0}")),
        row_without_bar("  tokio's, hand-offs/s", format!("{their_handoffs:.0}")),
        row_with_bar(
            "100,000 held, ttl 10 s: of one core",
            format!("{:.1} %", cpu_share * 100.0),
            "under 4 %",
            cpu_share < 0.04,
        ),
        row_with_bar(
            "100,000 held: memory each, store included",
            format!("{bytes} bytes"),
            "under 1 KiB",
            bytes < 1024,
        ),
        row_with_bar("100,000 held: lost", lost.to_string(), "none", lost == 0),
    ]);
}

/// Hand-offs and uncontended pairs alone, for a profiler.
pub(crate) fn profile() {
    let runtime = runtime();
    for _ in 0..20 {
        println!("{:.0} hand-offs/s, {:.0} ns a pair", our_contended(&runtime), our_pair(&runtime));
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("two threads can be had")
}

/// Nanoseconds for one lock and its release.
fn our_pair(runtime: &Runtime) -> f64 {
    let locks = Locks::in_memory();
    let mutex = locks.mutex("account:123");
    let work = async move {
        for _ in 0..PAIRS {
            let guard = mutex.lock().await.expect("the memory store answers");
            guard.release().await.expect("the lease lasts longer than the benchmark holds the lock");
        }
    };
    nanos_per_item(PAIRS, time(|| runtime.block_on(work)))
}

fn tokio_pair(runtime: &Runtime) -> f64 {
    let mutex = tokio::sync::Mutex::new(());
    let work = async {
        for _ in 0..PAIRS {
            drop(mutex.lock().await);
        }
    };
    nanos_per_item(PAIRS, time(|| runtime.block_on(work)))
}

/// Hand-offs per second among many tasks that all lock one name. A holder yields once, so that the other tasks wait. Without the
/// yield, one task would find the lock free again and again, and no hand-off would happen.
fn our_contended(runtime: &Runtime) -> f64 {
    let locks = Locks::in_memory();
    let task = |mutex: lockfast::Mutex| async move {
        for _ in 0..TURNS {
            let guard = mutex.lock().await.expect("the memory store answers");
            tokio::task::yield_now().await;
            guard.release().await.expect("the lease lasts longer than the benchmark holds the lock");
        }
    };
    let work = async {
        let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(task(locks.mutex("account:123")))).collect();
        for task in tasks {
            task.await.expect("no task panics");
        }
    };
    1e9 / nanos_per_item(TASKS * TURNS, time(|| runtime.block_on(work)))
}

fn tokio_contended(runtime: &Runtime) -> f64 {
    let mutex = Arc::new(tokio::sync::Mutex::new(()));
    let task = |mutex: Arc<tokio::sync::Mutex<()>>| async move {
        for _ in 0..TURNS {
            let guard = mutex.lock().await;
            tokio::task::yield_now().await;
            drop(guard);
        }
    };
    let work = async {
        let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(task(Arc::clone(&mutex)))).collect();
        for task in tasks {
            task.await.expect("no task panics");
        }
    };
    1e9 / nanos_per_item(TASKS * TURNS, time(|| runtime.block_on(work)))
}

/// Holds [`HELD`] locks for [`HELD_FOR`]. Returns bytes per claim, the share of one core that renewals take, and the number of
/// lost claims.
fn hold_many() -> (u64, f64, usize) {
    println!("holding {HELD} locks for {HELD_FOR:?}");
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be had");
    runtime.block_on(async {
        let locks = Locks::builder().ttl(HELD_TTL).connect("memory:bench-held").await.expect("memory is there");
        let mut guards: Vec<Guard> = Vec::with_capacity(HELD as usize);
        let bytes_before = resident_bytes();
        for index in 0..HELD {
            guards.push(locks.mutex(format!("order:{index}")).lock().await.expect("each name is free"));
        }
        let bytes = (resident_bytes() - bytes_before) / u64::from(HELD);
        let cpu_before = cpu_time();
        tokio::time::sleep(HELD_FOR).await;
        let cpu_share = (cpu_time() - cpu_before).as_secs_f64() / HELD_FOR.as_secs_f64();
        let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
        (bytes, cpu_share, lost)
    })
}

fn nanos_per_item(count: u32, time: Duration) -> f64 {
    time.as_nanos() as f64 / f64::from(count)
}

fn row_with_bar(what: &'static str, figure: String, bar: &'static str, is_met: bool) -> Row {
    Row { what, figure, bar, is_met: Some(is_met) }
}

fn row_without_bar(what: &'static str, figure: String) -> Row {
    Row { what, figure, bar: "", is_met: None }
}
