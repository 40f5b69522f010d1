//! A very long queue. A child process has all waiters, so that its memory grows by the waiters only.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast::{Clock, Locks};

use super::Plan;
use super::figures::{Bar, Figure, Unit};
use super::server::{Meter, SCRIPTS, Server};
use crate::measure::resident_bytes;

/// The number of waiters without `--quick`.
const FULL_COUNT: usize = 10_000;
/// The section of these figures: part of the names by which two trees are compared.
const SECTION: &str = "10,000 waiters on one name, hand-off inside the process off";
const QUICK_SECTION: &str = "1,000 waiters on one name, hand-off inside the process off (bar: a tenth)";

pub(crate) fn run(plan: &Plan) -> Vec<Figure> {
    let count = plan.scaled(FULL_COUNT);
    let section = if plan.is_quick { QUICK_SECTION } else { SECTION };
    // The bar of memory grows with the number of waiters.
    let scale = count as f64 / FULL_COUNT as f64;
    let server = Server::start();
    let figures = server.child_figures("queue", &[count.to_string()]);
    let figure = |what: &str, key: &str, unit| Figure::new(section, what, figures(key), unit);
    vec![
        figure("out of order", "out_of_order", Unit::Count).with_bar(Bar::at_most(0.0)),
        figure("lost", "lost", Unit::Count).with_bar(Bar::at_most(0.0)),
        figure("memory", "memory_mb", Unit::Megabytes).with_bar(Bar::at_most(64.0 * scale)),
        figure("connections", "connections", Unit::Count).with_bar(Bar::at_most(3.0)),
        figure("waiters", "waiters", Unit::Count),
        figure("joining", "joins_per_second", Unit::PerSecond),
        figure("turns", "turns_per_second", Unit::PerSecond),
        figure("commands an acquisition, joining included", "commands_per_waiter", Unit::Each),
        figure("bytes of the future that waits", "future_bytes", Unit::Count),
    ]
}

/// The process of the waiters.
pub(crate) fn child(port: u16, count: u32) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads can be had");
    runtime.block_on(async {
        let url = format!("redis://127.0.0.1:{port}");
        let Ok(locks) = Locks::builder().local_handoff(false).connect(&url).await else { return };
        let first = locks.mutex("hot").lock().await.expect("the lock is free");
        let (clock, mut meter) = (Clock::boot(), Meter::connect(port));
        meter.start(SCRIPTS);
        let (bytes_before, start) = (resident_bytes(), clock.now());
        let fences = Arc::new(Mutex::new(Vec::with_capacity(count as usize)));
        let waiters: Vec<_> = (0..count)
            .map(|_| {
                let (locks, fences) = (locks.clone(), Arc::clone(&fences));
                tokio::spawn(async move {
                    let guard = locks.mutex("hot").lock().await.expect("every holder releases");
                    let fence = guard.fence().expect("it has one name");
                    fences.lock().expect("no task panics while it is locked").push(fence);
                    guard.release().await.expect("the lock was not lost");
                })
            })
            .collect();
        // Each waiter joins the queue with one command.
        while meter.read(SCRIPTS).0 < f64::from(count) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let joined_at = clock.now();
        let connections = meter.clients();
        first.release().await.expect("the lock was not lost");
        for waiter in waiters {
            waiter.await.expect("no task panics");
        }
        let (ended_at, (commands, _)) = (clock.now(), meter.read(SCRIPTS));
        let memory = resident_bytes().saturating_sub(bytes_before);
        let fences = fences.lock().expect("no task panics while it is locked");
        let figures = [
            ("out_of_order", fences.windows(2).filter(|pair| pair[0] >= pair[1]).count() as f64),
            ("lost", f64::from(count) - fences.len() as f64),
            ("memory_mb", memory as f64 / 1e6),
            ("connections", connections),
            ("waiters", f64::from(count)),
            ("joins_per_second", f64::from(count) / joined_at.since(start).as_secs_f64()),
            ("turns_per_second", f64::from(count) / ended_at.since(joined_at).as_secs_f64()),
            ("commands_per_waiter", commands / f64::from(count)),
            ("future_bytes", size_of_val(&locks.mutex("hot").lock()) as f64),
        ];
        figures.iter().for_each(|(key, value)| println!("{key}={value}"));
    });
}
