//! A very long queue, in a process of its own, so that its memory grows by the waiters only.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast::{Clock, Locks};

use super::Plan;
use super::figures::{Bar, Figure, Unit};
use super::server::{Meter, SCRIPTS, Server};
use crate::measure::resident;

const FULL: usize = 10_000;
const SECTION: &str = "10,000 waiters on one name, hand-off inside the process off";
const SECTION_IN_A_HURRY: &str = "1,000 waiters on one name, hand-off inside the process off (bar: a tenth)";

pub(crate) fn run(plan: &Plan) -> Vec<Figure> {
    let count = plan.count(FULL);
    let section = if plan.quick { SECTION_IN_A_HURRY } else { SECTION };
    let part = count as f64 / FULL as f64;
    let server = Server::start();
    let figures = server.child_figures("queue", &[count.to_string()]);
    let figure = |what: &str, key: &str, unit| Figure::new(section, what, figures(key), unit);
    vec![
        figure("out of order", "disorder", Unit::Count).with(Bar::at_most(0.0)),
        figure("lost", "lost", Unit::Count).with(Bar::at_most(0.0)),
        figure("memory", "memory", Unit::Megabytes).with(Bar::at_most(64.0 * part)),
        figure("connections", "connections", Unit::Count).with(Bar::at_most(3.0)),
        figure("waiters", "waiters", Unit::Count),
        figure("joining", "joining", Unit::PerSecond),
        figure("turns", "turns", Unit::PerSecond),
        figure("commands an acquisition, joining included", "commands", Unit::Each),
        figure("bytes of the future that waits", "future", Unit::Count),
    ]
}

pub(crate) fn child(port: u16, count: u32) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads can be had");
    runtime.block_on(async {
        let url = format!("redis://127.0.0.1:{port}");
        let Ok(locks) = Locks::builder().local_handoff(false).connect(&url).await else { return };
        let first = locks.mutex("hot").lock().await.expect("it is free");
        let (clock, mut meter) = (Clock::boot(), Meter::connect(port));
        meter.start(SCRIPTS);
        let (before, start) = (resident(), clock.now());
        let fences = Arc::new(Mutex::new(Vec::with_capacity(count as usize)));
        let waiters: Vec<_> = (0..count)
            .map(|_| {
                let (locks, fences) = (locks.clone(), Arc::clone(&fences));
                tokio::spawn(async move {
                    let guard = locks.mutex("hot").lock().await.expect("every holder releases");
                    let fence = guard.fence().expect("it has one name");
                    fences.lock().expect("no task panics while it is locked").push(fence);
                    guard.release().await.expect("it was not taken away");
                })
            })
            .collect();
        while meter.read(SCRIPTS).0 < f64::from(count) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let joined = clock.now();
        let connections = meter.clients();
        first.release().await.expect("it was not taken away");
        for waiter in waiters {
            waiter.await.expect("no task panics");
        }
        let (ended, (commands, _)) = (clock.now(), meter.read(SCRIPTS));
        let memory = resident().saturating_sub(before);
        let fences = fences.lock().expect("no task panics while it is locked");
        let figures = [
            ("disorder", fences.windows(2).filter(|pair| pair[0] >= pair[1]).count() as f64),
            ("lost", f64::from(count) - fences.len() as f64),
            ("memory", memory as f64 / 1e6),
            ("connections", connections),
            ("waiters", f64::from(count)),
            ("joining", f64::from(count) / joined.since(start).as_secs_f64()),
            ("turns", f64::from(count) / ended.since(joined).as_secs_f64()),
            ("commands", commands / f64::from(count)),
            ("future", size_of_val(&locks.mutex("hot").lock()) as f64),
        ];
        figures.iter().for_each(|(key, value)| println!("{key}={value}"));
    });
}
