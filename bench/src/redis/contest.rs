//! Several tasks lock one name; and the same with BLPOP and LPUSH, the fastest way to wake another client through Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lockfast::Clock;
use tokio::sync::Semaphore;

use super::clients::{Client, Kind};
use super::resp::Connection;
use super::server::Meter;
use crate::measure::percentile;

/// How the tasks behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Each task locks again at once.
    Rush,
    /// Each task pauses in between, so that it does not take back the lock that it has just released.
    Thinking,
    /// Two tasks in turn: neither locks again before the other has held the lock.
    Alternating,
}

const THINKING: Duration = Duration::from_millis(2);
/// How long each of two tasks holds the lock, so that the other one waits by then.
const ALTERNATING: Duration = Duration::from_millis(1);

impl Manner {
    pub(crate) const ALL: [Self; 3] = [Self::Rush, Self::Thinking, Self::Alternating];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Rush => "32 tasks",
            Self::Thinking => "32 tasks, 2 ms between",
            Self::Alternating => "two tasks strictly in turn",
        }
    }

    /// How many slices one round takes: each task needs enough turns to compare shares, or for a hand-off at all.
    pub(crate) fn slices(self) -> u32 {
        match self {
            Self::Rush => 4,
            Self::Thinking => 1,
            Self::Alternating => 2,
        }
    }

    fn tasks(self) -> usize {
        if self == Self::Alternating { 2 } else { 32 }
    }
}

/// The figures of one round of one contender.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Nanoseconds from the beginning of a release until the next holder runs.
    pub(crate) handoff_p50: f64,
    pub(crate) handoff_p99: f64,
    /// Nanoseconds from the call of `lock` until its return.
    pub(crate) wait_p99: f64,
    /// Turns of the luckiest task, of those of the unluckiest.
    pub(crate) luck: f64,
    pub(crate) per_second: f64,
    pub(crate) commands_each: f64,
    /// Nanoseconds of the server's processor.
    pub(crate) server_each: f64,
}

/// Figures of one task.
#[derive(Debug, Default)]
struct Turns {
    handoffs: Vec<f64>,
    waits: Vec<f64>,
    /// All turns, also after the end of the round: tasks that waited by then still take their turn, and their commands count.
    all: f64,
}

/// The shared state of the tasks of one round.
#[derive(Debug)]
struct Round {
    clock: Clock,
    /// When the last holder began to release the lock.
    released: AtomicU64,
    over: AtomicBool,
    /// With [`Manner::Alternating`], a permit lets this task lock.
    may_lock: [Semaphore; 2],
}

impl Round {
    fn new() -> Arc<Self> {
        // The task that gets the lock lets the other one lock next.
        let may_lock = [Semaphore::new(1), Semaphore::new(0)];
        Arc::new(Self { clock: Clock::boot(), released: AtomicU64::new(0), over: AtomicBool::new(false), may_lock })
    }

    fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn note_handoff(&self, now: u64, turns: &mut Turns) {
        match self.released.load(Ordering::Acquire) {
            0 => {}
            released => turns.handoffs.push(now.saturating_sub(released) as f64),
        }
    }
}

/// One round of one contender. The name is free before and after.
pub(crate) async fn contest(kind: Kind, client: &Client, port: u16, manner: Manner, slice: Duration) -> Outcome {
    let (round, mut meter) = (Round::new(), Meter::connect(port));
    meter.start(kind.commands());
    let start = round.now();
    let tasks = (0..manner.tasks()).map(|number| {
        let (round, client) = (Arc::clone(&round), client.clone());
        tokio::spawn(compete(round, client, manner, number))
    });
    let tasks: Vec<_> = tasks.collect();
    tokio::time::sleep(slice).await;
    round.over.store(true, Ordering::Relaxed);
    let seconds = (round.now() - start) as f64 / 1e9;
    // Both alternating tasks wake up, see that the round is over, and end.
    round.may_lock.iter().for_each(|may| may.add_permits(1));
    let mut turns = Vec::new();
    for task in tasks {
        turns.push(task.await.expect("no task panics"));
    }
    summary(&turns, seconds, meter.read(kind.commands()))
}

async fn compete(round: Arc<Round>, client: Client, manner: Manner, number: usize) -> Turns {
    let mut turns = Turns::default();
    loop {
        if manner == Manner::Alternating {
            round.may_lock[number].acquire().await.expect("it is never closed").forget();
        }
        if round.is_over() {
            return turns;
        }
        let called = round.now();
        let held = client.lock("hot").await;
        let now = round.now();
        turns.all += 1.0;
        if !round.is_over() {
            turns.waits.push((now - called) as f64);
            round.note_handoff(now, &mut turns);
        }
        match manner {
            Manner::Alternating => {
                round.may_lock[1 - number].add_permits(1);
                tokio::time::sleep(ALTERNATING).await;
            }
            // Yields, so that the other tasks wait.
            _ => tokio::task::yield_now().await,
        }
        round.released.store(round.now(), Ordering::Release);
        held.release().await;
        if manner == Manner::Thinking {
            tokio::time::sleep(THINKING).await;
        }
    }
}

fn summary(turns: &[Turns], seconds: f64, (commands, cpu): (f64, Duration)) -> Outcome {
    let all = |pick: fn(&Turns) -> &Vec<f64>| -> Vec<f64> { turns.iter().flat_map(pick).copied().collect() };
    let (handoffs, waits) = (all(|turns| &turns.handoffs), all(|turns| &turns.waits));
    let of = |values: &[f64], share| if values.is_empty() { f64::NAN } else { percentile(values, share) };
    let counts = || turns.iter().map(|turns| turns.waits.len() as f64);
    let (most, least) = (counts().fold(0.0, f64::max), counts().fold(f64::INFINITY, f64::min));
    let all: f64 = turns.iter().map(|turns| turns.all).sum();
    Outcome {
        handoff_p50: of(&handoffs, 0.5),
        handoff_p99: of(&handoffs, 0.99),
        wait_p99: of(&waits, 0.99),
        luck: most / least,
        per_second: waits.len() as f64 / seconds,
        commands_each: commands / all,
        server_each: cpu.as_nanos() as f64 / all,
    }
}

/// The lower bound: each task waits in BLPOP on a connection of its own, and is woken by the LPUSH of the task before it.
pub(crate) async fn wake_ups(port: u16, manner: Manner, slice: Duration) -> Outcome {
    let (round, mut meter) = (Round::new(), Meter::connect(port));
    let count = manner.tasks();
    let mut tasks = Vec::new();
    for number in 0..count {
        let connection = Connection::connect(port).await;
        tasks.push(tokio::spawn(wake_next(Arc::clone(&round), connection, manner, number, (number + 1) % count)));
    }
    let counted = &["lpush", "blpop"];
    meter.start(counted);
    let start = round.now();
    meter.console.call(&["LPUSH", "wake:0", "go"]);
    tokio::time::sleep(slice).await;
    round.over.store(true, Ordering::Relaxed);
    let seconds = (round.now() - start) as f64 / 1e9;
    let mut turns = Vec::new();
    for task in tasks {
        turns.push(task.await.expect("no task panics"));
    }
    let figures = summary(&turns, seconds, meter.read(counted));
    // The last LPUSH was for a task that had ended.
    for number in 0..count {
        meter.console.call(&["DEL", &format!("wake:{number}")]);
    }
    figures
}

async fn wake_next(round: Arc<Round>, mut connection: Connection, manner: Manner, me: usize, next: usize) -> Turns {
    let (mine, others) = (format!("wake:{me}"), format!("wake:{next}"));
    let mut turns = Turns::default();
    loop {
        let called = round.now();
        connection.call(&["BLPOP", &mine, "0"]).await;
        let now = round.now();
        turns.all += 1.0;
        let over = round.is_over();
        if !over {
            turns.waits.push((now - called) as f64);
            round.note_handoff(now, &mut turns);
        }
        match manner {
            Manner::Alternating => tokio::time::sleep(ALTERNATING).await,
            _ => tokio::task::yield_now().await,
        }
        round.released.store(round.now(), Ordering::Release);
        connection.call(&["LPUSH", &others, "go"]).await;
        if over {
            return turns;
        }
    }
}
