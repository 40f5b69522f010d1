//! Several tasks lock one name. The same with BLPOP and LPUSH, the fastest way to wake another client through Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lockfast::Clock;
use tokio::sync::Semaphore;

use super::clients::{Client, Contender};
use super::resp::Connection;
use super::server::Meter;
use crate::measure::percentile;

/// How the tasks compete for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contention {
    /// Each task locks again at once, so that all others always wait.
    Saturated,
    /// Each task pauses in between, so that it does not take back the lock that it has just released.
    WithPauses,
    /// Two tasks in turn: neither locks again before the other has held the lock.
    Alternating,
}

/// The pause of a task between two locks, with [`Contention::WithPauses`].
const PAUSE: Duration = Duration::from_millis(2);
/// How long each of two tasks holds the lock, with [`Contention::Alternating`]: long enough for the other task to wait again.
const HOLD: Duration = Duration::from_millis(1);

impl Contention {
    pub(crate) const ALL: [Self; 3] = [Self::Saturated, Self::WithPauses, Self::Alternating];

    /// Part of the rows' names, by which two trees are compared: it does not change.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Saturated => "32 tasks",
            Self::WithPauses => "32 tasks, 2 ms between",
            Self::Alternating => "two tasks strictly in turn",
        }
    }

    /// How many slices of [`Plan::slice`](super::Plan::slice) one round takes. With `Saturated`, the turns of the luckiest and the
    /// unluckiest task are compared, so each task needs many turns. With `Alternating`, one turn takes more than [`HOLD`].
    pub(crate) fn slices(self) -> u32 {
        match self {
            Self::Saturated => 4,
            Self::WithPauses => 1,
            Self::Alternating => 2,
        }
    }

    fn tasks(self) -> usize {
        if self == Self::Alternating { 2 } else { 32 }
    }
}

/// The figures of one round of one contender. A turn is one acquisition and its release.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Nanoseconds from the beginning of a release until the next holder runs.
    pub(crate) handoff_p50: f64,
    /// As `handoff_p50`, the 99th percentile.
    pub(crate) handoff_p99: f64,
    /// Nanoseconds from the call of `lock` until its return.
    pub(crate) wait_p99: f64,
    /// Turns of the luckiest task, divided by the turns of the unluckiest task.
    pub(crate) luckiest_ratio: f64,
    pub(crate) turns_per_second: f64,
    pub(crate) commands_per_turn: f64,
    /// Nanoseconds of the server's processor time.
    pub(crate) redis_cpu_per_turn: f64,
}

/// The figures of one task.
#[derive(Debug, Default)]
struct TaskFigures {
    /// Nanoseconds of each hand-off to this task.
    handoffs: Vec<f64>,
    /// Nanoseconds of each wait, for turns that began before the end of the round.
    waits: Vec<f64>,
    /// All turns, also after the end of the round: tasks that waited by then still take their turn, and their commands count.
    all_turns: f64,
}

/// The shared state of the tasks of one round.
#[derive(Debug)]
struct Round {
    clock: Clock,
    /// When the last holder began to release the lock, in nanoseconds of `clock`; 0 before the first release.
    last_release_at: AtomicU64,
    is_over: AtomicBool,
    /// With [`Contention::Alternating`], each task needs a permit of its own semaphore for each lock.
    may_lock: [Semaphore; 2],
}

impl Round {
    fn new() -> Arc<Self> {
        // The first task begins. The task that gets the lock then gives the other task a permit.
        let may_lock = [Semaphore::new(1), Semaphore::new(0)];
        Arc::new(Self {
            clock: Clock::boot(),
            last_release_at: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            may_lock,
        })
    }

    fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn record_handoff(&self, now: u64, figures: &mut TaskFigures) {
        match self.last_release_at.load(Ordering::Acquire) {
            0 => {}
            release_at => figures.handoffs.push(now.saturating_sub(release_at) as f64),
        }
    }
}

/// One round of one contender. The lock is free before and after the round.
pub(crate) async fn run_round(
    contender: Contender,
    client: &Client,
    port: u16,
    contention: Contention,
    slice: Duration,
) -> Outcome {
    let (round, mut meter) = (Round::new(), Meter::connect(port));
    meter.start(contender.counted_commands());
    let start = round.now();
    let tasks = (0..contention.tasks()).map(|number| {
        let (round, client) = (Arc::clone(&round), client.clone());
        tokio::spawn(lock_repeatedly(round, client, contention, number))
    });
    let tasks: Vec<_> = tasks.collect();
    tokio::time::sleep(slice).await;
    round.is_over.store(true, Ordering::Relaxed);
    let seconds = (round.now() - start) as f64 / 1e9;
    // Both alternating tasks wake up, see that the round is over, and end.
    round.may_lock.iter().for_each(|permits| permits.add_permits(1));
    let mut figures = Vec::new();
    for task in tasks {
        figures.push(task.await.expect("no task panics"));
    }
    summarize(&figures, seconds, meter.read(contender.counted_commands()))
}

async fn lock_repeatedly(round: Arc<Round>, client: Client, contention: Contention, number: usize) -> TaskFigures {
    let mut figures = TaskFigures::default();
    loop {
        if contention == Contention::Alternating {
            round.may_lock[number].acquire().await.expect("the semaphore is never closed").forget();
        }
        if round.is_over() {
            return figures;
        }
        let called_at = round.now();
        let held = client.lock("hot").await;
        let now = round.now();
        figures.all_turns += 1.0;
        if !round.is_over() {
            figures.waits.push((now - called_at) as f64);
            round.record_handoff(now, &mut figures);
        }
        match contention {
            Contention::Alternating => {
                round.may_lock[1 - number].add_permits(1);
                tokio::time::sleep(HOLD).await;
            }
            // The holder yields, so that the other tasks run and wait.
            _ => tokio::task::yield_now().await,
        }
        round.last_release_at.store(round.now(), Ordering::Release);
        held.release().await;
        if contention == Contention::WithPauses {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn summarize(tasks: &[TaskFigures], seconds: f64, (commands, cpu): (f64, Duration)) -> Outcome {
    let collect = |pick: fn(&TaskFigures) -> &Vec<f64>| -> Vec<f64> { tasks.iter().flat_map(pick).copied().collect() };
    let (handoffs, waits) = (collect(|task| &task.handoffs), collect(|task| &task.waits));
    let percentile_of = |values: &[f64], share| if values.is_empty() { f64::NAN } else { percentile(values, share) };
    let turns_of_each = || tasks.iter().map(|task| task.waits.len() as f64);
    let (max, min) = (turns_of_each().fold(0.0, f64::max), turns_of_each().fold(f64::INFINITY, f64::min));
    let all_turns: f64 = tasks.iter().map(|task| task.all_turns).sum();
    Outcome {
        handoff_p50: percentile_of(&handoffs, 0.5),
        handoff_p99: percentile_of(&handoffs, 0.99),
        wait_p99: percentile_of(&waits, 0.99),
        luckiest_ratio: max / min,
        turns_per_second: waits.len() as f64 / seconds,
        commands_per_turn: commands / all_turns,
        redis_cpu_per_turn: cpu.as_nanos() as f64 / all_turns,
    }
}

/// The lower bound: each task waits in BLPOP on a connection of its own, and is woken by the LPUSH of the task before it.
pub(crate) async fn run_blpop_round(port: u16, contention: Contention, slice: Duration) -> Outcome {
    let (round, mut meter) = (Round::new(), Meter::connect(port));
    let count = contention.tasks();
    let mut tasks = Vec::new();
    for number in 0..count {
        let connection = Connection::connect(port).await;
        tasks.push(tokio::spawn(wake_repeatedly(
            Arc::clone(&round),
            connection,
            contention,
            number,
            (number + 1) % count,
        )));
    }
    let counted_commands = &["lpush", "blpop"];
    meter.start(counted_commands);
    let start = round.now();
    meter.console.call(&["LPUSH", "wake:0", "go"]);
    tokio::time::sleep(slice).await;
    round.is_over.store(true, Ordering::Relaxed);
    let seconds = (round.now() - start) as f64 / 1e9;
    let mut figures = Vec::new();
    for task in tasks {
        figures.push(task.await.expect("no task panics"));
    }
    let outcome = summarize(&figures, seconds, meter.read(counted_commands));
    // The task that the last LPUSH was meant for had ended, so its list still has an element.
    for number in 0..count {
        meter.console.call(&["DEL", &format!("wake:{number}")]);
    }
    outcome
}

async fn wake_repeatedly(
    round: Arc<Round>,
    mut connection: Connection,
    contention: Contention,
    own: usize,
    next: usize,
) -> TaskFigures {
    let (own_key, next_key) = (format!("wake:{own}"), format!("wake:{next}"));
    let mut figures = TaskFigures::default();
    loop {
        let called_at = round.now();
        connection.call(&["BLPOP", &own_key, "0"]).await;
        let now = round.now();
        figures.all_turns += 1.0;
        let is_over = round.is_over();
        if !is_over {
            figures.waits.push((now - called_at) as f64);
            round.record_handoff(now, &mut figures);
        }
        match contention {
            Contention::Alternating => tokio::time::sleep(HOLD).await,
            _ => tokio::task::yield_now().await,
        }
        round.last_release_at.store(round.now(), Ordering::Release);
        connection.call(&["LPUSH", &next_key, "go"]).await;
        if is_over {
            return figures;
        }
    }
}
