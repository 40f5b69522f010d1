//! Local hand-offs among the tasks of one process, which must not starve a waiter in another process.

use std::io::{BufRead, BufReader, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockfast::Clock;

use super::Plan;
use super::clients::{Client, Contender, connect_all};
use super::contest::{Contention, run_round};
use super::figures::{Bar, Figure, Unit};
use super::server::{Cores, Server};
use crate::measure::{median, percentile};

/// The section of these figures: part of the names by which two trees are compared.
const SECTION: &str = "one name, 32 tasks, hand-off inside the process on";
/// A process hands a lock off locally at most this many times, then to another process: the length of one full turn.
const MAX_LOCAL_HANDOFFS: f64 = 64.0;
/// The pause of the waiter's process before each lock.
const PAUSE: Duration = Duration::from_millis(3);

pub(crate) fn run(plan: &Plan) -> Vec<Figure> {
    println!("  rate, on and off");
    let server = Server::start();
    let (port, rounds, slice) = (server.port(), plan.rounds(), plan.slice());
    let rates = server.run_task(Cores::All, async move {
        let clients = connect_all(&[Contender::LockfastNoLocalHandOff, Contender::Lockfast], port).await;
        let mut rates: Vec<(Contender, Vec<f64>)> =
            clients.iter().map(|(contender, _)| (*contender, Vec::new())).collect();
        for round in 0..=rounds {
            for ((contender, client), (_, rates)) in clients.iter().zip(&mut rates) {
                let outcome = run_round(*contender, client, port, Contention::Saturated, slice * 2).await;
                // The first round warms up and is not counted.
                if round > 0 {
                    rates.push(outcome.turns_per_second);
                }
            }
        }
        rates
    });
    let median_rate = |contender| {
        let found = rates.iter().find(|(it, _)| *it == contender);
        found.map_or(f64::NAN, |(_, rates)| median(rates.clone()))
    };
    let (rate_off, rate_on) = (median_rate(Contender::LockfastNoLocalHandOff), median_rate(Contender::Lockfast));
    println!("  a waiter in another process");
    let waits = waits_of_another_process(plan.scaled(500) as u32);
    let percentile_of = |share| if waits.is_empty() { f64::NAN } else { percentile(&waits, share) };
    let figure = |what, value, unit| Figure::new(SECTION, what, value, unit);
    vec![
        figure("rate, of the rate with hand-off off", rate_on / rate_off, Unit::Times)
            .with_bar(Bar::at_least(8.0).with_stretch(40.0)),
        figure("hand-off on", rate_on, Unit::PerSecond),
        figure("hand-off off", rate_off, Unit::PerSecond),
        figure("turns that a waiter in another process waits, most", percentile_of(1.0), Unit::Each)
            .with_bar(Bar::at_most(2.0)),
        figure("turns that a waiter in another process waits, p50", percentile_of(0.5), Unit::Each),
    ]
}

/// For each wait of another process: how often this process took the lock meanwhile, in full turns of
/// [`MAX_LOCAL_HANDOFFS`].
fn waits_of_another_process(count: u32) -> Vec<f64> {
    let server = Server::start();
    let is_over = Arc::new(AtomicBool::new(false));
    let (port, tasks_are_over) = (server.port(), Arc::clone(&is_over));
    let mut child = server.child("handoff", &[count.to_string()]);
    let output = BufReader::new(child.stdout.take().expect("it was piped"));
    // The waiter's output is read to its end on a thread, while the tasks of this process run.
    let reader = std::thread::spawn(move || {
        let lines: Vec<String> = output.lines().map_while(Result::ok).collect();
        is_over.store(true, Ordering::Relaxed);
        lines
    });
    let taken_at = server.run_task(Cores::All, take_repeatedly(port, tasks_are_over));
    let lines = reader.join().expect("reading does not panic");
    child.wait().expect("it ends by itself");
    let mut waits = Vec::new();
    for line in lines {
        let mut figures = line.split(' ').filter_map(|figure| figure.parse::<u64>().ok());
        if let (Some(called_at), Some(acquired_at)) = (figures.next(), figures.next()) {
            let taken_before = |moment: u64| taken_at.partition_point(|at| *at < moment);
            waits.push((taken_before(acquired_at) - taken_before(called_at)) as f64 / MAX_LOCAL_HANDOFFS);
        }
    }
    waits
}

/// Runs 32 tasks that take the lock until `is_over`. Returns the times of all acquisitions in nanoseconds, sorted.
async fn take_repeatedly(port: u16, is_over: Arc<AtomicBool>) -> Vec<u64> {
    let Ok(client) = Client::connect(Contender::Lockfast, port).await else { return Vec::new() };
    let tasks = (0..32).map(|_| {
        let (client, is_over, clock) = (client.clone(), Arc::clone(&is_over), Clock::boot());
        tokio::spawn(async move {
            let mut taken_at = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let held = client.lock("hot").await;
                taken_at.push(clock.now().as_nanos());
                tokio::task::yield_now().await;
                held.release().await;
            }
            taken_at
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut taken_at = Vec::new();
    for task in tasks {
        taken_at.extend(task.await.expect("no task panics"));
    }
    taken_at.sort_unstable();
    taken_at
}

/// The waiter's process: prints for each lock when `lock` was called and when it returned.
pub(crate) fn child(port: u16, count: u32) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads can be had");
    let waits = runtime.block_on(async {
        let Ok(client) = Client::connect(Contender::Lockfast, port).await else { return Vec::new() };
        let (clock, mut waits) = (Clock::boot(), Vec::new());
        for _ in 0..count {
            tokio::time::sleep(PAUSE).await;
            let called_at = clock.now().as_nanos();
            let held = client.lock("hot").await;
            waits.push((called_at, clock.now().as_nanos()));
            held.release().await;
        }
        waits
    });
    let mut out = std::io::stdout().lock();
    for (called_at, acquired_at) in waits {
        writeln!(out, "{called_at} {acquired_at}").expect("the parent reads it");
    }
}
