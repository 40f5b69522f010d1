//! Local hand-offs among the tasks of one process, which must not starve a waiter in another process.

use std::io::{BufRead, BufReader, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockfast::Clock;

use super::Plan;
use super::clients::{Client, Kind, connect_all};
use super::contest::{Manner, contest};
use super::figures::{Bar, Figure, Unit};
use super::server::{Cores, Server};
use crate::measure::{median, percentile};

const SECTION: &str = "one name, 32 tasks, hand-off inside the process on";
/// A turn of a process ends after this many local hand-offs at the latest.
const TURN: f64 = 64.0;
/// The pause of the waiter before each lock.
const PAUSE: Duration = Duration::from_millis(3);

pub(crate) fn run(plan: &Plan) -> Vec<Figure> {
    println!("  rate, on and off");
    let server = Server::start();
    let (port, rounds, slice) = (server.port(), plan.rounds(), plan.slice());
    let rates = server.with(Cores::All, async move {
        let clients = connect_all(&[Kind::LockfastNoHandOff, Kind::Lockfast], port).await;
        let mut rates: Vec<(Kind, Vec<f64>)> = clients.iter().map(|(kind, _)| (*kind, Vec::new())).collect();
        for round in 0..=rounds {
            for ((kind, client), (_, rates)) in clients.iter().zip(&mut rates) {
                let outcome = contest(*kind, client, port, Manner::Rush, slice * 2).await;
                if round > 0 {
                    rates.push(outcome.per_second);
                }
            }
        }
        rates
    });
    let rate = |kind| {
        let found = rates.iter().find(|(it, _)| *it == kind);
        found.map_or(f64::NAN, |(_, rates)| median(rates.clone()))
    };
    let (off, on) = (rate(Kind::LockfastNoHandOff), rate(Kind::Lockfast));
    println!("  a waiter in another process");
    let turns = waiter(plan.count(500) as u32);
    let of = |share| if turns.is_empty() { f64::NAN } else { percentile(&turns, share) };
    let figure = |what, value, unit| Figure::new(SECTION, what, value, unit);
    vec![
        figure("rate, of the rate with hand-off off", on / off, Unit::Times).with(Bar::at_least(8.0).or_better(40.0)),
        figure("hand-off on", on, Unit::PerSecond),
        figure("hand-off off", off, Unit::PerSecond),
        figure("turns that a waiter in another process waits, most", of(1.0), Unit::Each).with(Bar::at_most(2.0)),
        figure("turns that a waiter in another process waits, p50", of(0.5), Unit::Each),
    ]
}

/// For each lock of another process: how often the lock was taken here until that process got it, in full turns.
fn waiter(count: u32) -> Vec<f64> {
    let server = Server::start();
    let over = Arc::new(AtomicBool::new(false));
    let (port, is_over) = (server.port(), Arc::clone(&over));
    let mut child = server.child("handoff", &[count.to_string()]);
    let output = BufReader::new(child.stdout.take().expect("it was piped"));
    // The waiter's output is read to its end on a thread, while the tasks of this process run.
    let reading = std::thread::spawn(move || {
        let lines: Vec<String> = output.lines().map_while(Result::ok).collect();
        over.store(true, Ordering::Relaxed);
        lines
    });
    let taken = server.with(Cores::All, contenders(port, is_over));
    let lines = reading.join().expect("reading does not panic");
    child.wait().expect("it ends by itself");
    let mut waits = Vec::new();
    for line in lines {
        let mut figures = line.split(' ').filter_map(|figure| figure.parse::<u64>().ok());
        if let (Some(called), Some(acquired)) = (figures.next(), figures.next()) {
            let before = |moment: u64| taken.partition_point(|taken| *taken < moment);
            waits.push((before(acquired) - before(called)) as f64 / TURN);
        }
    }
    waits
}

/// 32 tasks that take the lock all the time. Returns when each of them got it, sorted.
async fn contenders(port: u16, over: Arc<AtomicBool>) -> Vec<u64> {
    let Ok(client) = Client::connect(Kind::Lockfast, port).await else { return Vec::new() };
    let tasks = (0..32).map(|_| {
        let (client, over, clock) = (client.clone(), Arc::clone(&over), Clock::boot());
        tokio::spawn(async move {
            let mut taken = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let held = client.lock("hot").await;
                taken.push(clock.now().as_nanos());
                tokio::task::yield_now().await;
                held.release().await;
            }
            taken
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut taken = Vec::new();
    for task in tasks {
        taken.extend(task.await.expect("no task panics"));
    }
    taken.sort_unstable();
    taken
}

/// The waiter: prints when it called `lock` and when that returned.
pub(crate) fn child(port: u16, count: u32) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads can be had");
    let waits = runtime.block_on(async {
        let Ok(client) = Client::connect(Kind::Lockfast, port).await else { return Vec::new() };
        let (clock, mut waits) = (Clock::boot(), Vec::new());
        for _ in 0..count {
            tokio::time::sleep(PAUSE).await;
            let called = clock.now().as_nanos();
            let held = client.lock("hot").await;
            waits.push((called, clock.now().as_nanos()));
            held.release().await;
        }
        waits
    });
    let mut out = std::io::stdout().lock();
    for (called, acquired) in waits {
        writeln!(out, "{called} {acquired}").expect("the parent reads it");
    }
}
