//! The library on its in-process store, beside `tokio::sync::Mutex` on the same runtime.

use std::sync::Arc;
use std::time::Duration;

use lockfast::{Guard, Locks};
use tokio::runtime::{Builder, Runtime};

use crate::measure::{Row, cpu_time, median, print, resident, timed};

const ROUNDS: usize = 7;
const PAIRS: u32 = 100_000;
const TASKS: u32 = 1_000;
const TURNS: u32 = 100;
const HELD: u32 = 100_000;
const HELD_TTL: Duration = Duration::from_secs(10);
/// Three renewals of each claim.
const HELD_FOR: Duration = Duration::from_secs(10);

pub(crate) fn run() {
    // First, while the heap is fresh: its memory is counted.
    let (bytes, share, lost) = held();
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
    print(&[
        row("uncontended lock+release, memory:", format!("{:.2} us", ours / 1e3), "under 3 us", ours < 3e3),
        plain("uncontended lock+drop, tokio::sync::Mutex", format!("{:.3} us", theirs / 1e3)),
        row("1,000 tasks on one name, of tokio's hand-offs/s", format!("{ratio:.2}"), "at least 1/8", ratio >= 0.125),
        plain("  ours, hand-offs/s", format!("{our_handoffs:.0}")),
        plain("  tokio's, hand-offs/s", format!("{their_handoffs:.0}")),
        row("100,000 held, ttl 10 s: of one core", format!("{:.1} %", share * 100.0), "under 4 %", share < 0.04),
        row("100,000 held: memory each, store included", format!("{bytes} bytes"), "under 1 KiB", bytes < 1024),
        row("100,000 held: lost", lost.to_string(), "none", lost == 0),
    ]);
}

/// The contended part alone, for a profiler.
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
            guard.release().await.expect("the lease lasts longer");
        }
    };
    per(PAIRS, timed(|| runtime.block_on(work)))
}

fn tokio_pair(runtime: &Runtime) -> f64 {
    let mutex = tokio::sync::Mutex::new(());
    let work = async {
        for _ in 0..PAIRS {
            drop(mutex.lock().await);
        }
    };
    per(PAIRS, timed(|| runtime.block_on(work)))
}

/// Hand-offs a second among many tasks that all lock one name. Each yields once while it holds, so that the others wait: without
/// that, a task finds the lock free again and again, and nothing is handed off at all.
fn our_contended(runtime: &Runtime) -> f64 {
    let locks = Locks::in_memory();
    let task = |mutex: lockfast::Mutex| async move {
        for _ in 0..TURNS {
            let guard = mutex.lock().await.expect("the memory store answers");
            tokio::task::yield_now().await;
            guard.release().await.expect("the lease lasts longer");
        }
    };
    let work = async {
        let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(task(locks.mutex("account:123")))).collect();
        for task in tasks {
            task.await.expect("no task panics");
        }
    };
    1e9 / per(TASKS * TURNS, timed(|| runtime.block_on(work)))
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
    1e9 / per(TASKS * TURNS, timed(|| runtime.block_on(work)))
}

/// Bytes a claim, the share of one core that renewing takes, and how many were lost.
fn held() -> (u64, f64, usize) {
    println!("holding {HELD} locks for {HELD_FOR:?}");
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be had");
    runtime.block_on(async {
        let locks = Locks::builder().ttl(HELD_TTL).connect("memory:bench-held").await.expect("memory is there");
        let mut guards: Vec<Guard> = Vec::with_capacity(HELD as usize);
        let before = resident();
        for index in 0..HELD {
            guards.push(locks.mutex(format!("order:{index}")).lock().await.expect("each name is free"));
        }
        let bytes = (resident() - before) / u64::from(HELD);
        let cpu = cpu_time();
        tokio::time::sleep(HELD_FOR).await;
        let share = (cpu_time() - cpu).as_secs_f64() / HELD_FOR.as_secs_f64();
        let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
        (bytes, share, lost)
    })
}

fn per(count: u32, span: Duration) -> f64 {
    span.as_nanos() as f64 / f64::from(count)
}

fn row(what: &'static str, figure: String, bar: &'static str, met: bool) -> Row {
    Row { what, figure, bar, met: Some(met) }
}

fn plain(what: &'static str, figure: String) -> Row {
    Row { what, figure, bar: "", met: None }
}
