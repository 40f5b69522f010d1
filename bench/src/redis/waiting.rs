//! The cost of waiting for the server: a thousand waiters, and no release.

use std::time::Duration;

use super::Plan;
use super::clients::{Client, Contender};
use super::figures::{Bar, Figure, Unit};
use super::server::{Cores, Meter, Server};

/// The section of these figures: part of the names by which two trees are compared.
const SECTION: &str = "commands a second while 1,000 wait";
const WAITERS: usize = 1_000;

pub(crate) fn run(plan: &Plan) -> Vec<Figure> {
    let measured_for = Duration::from_secs(if plan.is_quick { 2 } else { 5 });
    let mut figures = Vec::new();
    for contender in [Contender::LockfastNoLocalHandOff, Contender::Rslock, Contender::DistributedLock] {
        println!("  {}", contender.label());
        let server = Server::start();
        let rate = server.run_task(Cores::All, commands_per_second(contender, server.port(), measured_for));
        let figure = Figure::new(SECTION, contender.label(), rate, Unit::PerSecond);
        // Not even a renewal: a lease of 30 s is renewed every 10 s, and the measurement ends before that.
        figures.push(if contender == Contender::LockfastNoLocalHandOff {
            figure.with_bar(Bar::at_most(0.0))
        } else {
            figure
        });
    }
    figures
}

async fn commands_per_second(contender: Contender, port: u16, measured_for: Duration) -> f64 {
    let Ok(client) = Client::connect(contender, port).await else { return f64::NAN };
    let held = client.lock("hot").await;
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.lock_and_release("hot").await })
        })
        .collect();
    let mut meter = Meter::connect(port);
    // The measurement begins after each waiter has sent its request. A client reports claims when they are a second old: after
    // 3 s that is over too.
    while meter.commands_so_far(contender.counted_commands()) < WAITERS as f64 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    meter.start(contender.counted_commands());
    tokio::time::sleep(measured_for).await;
    let (commands, _) = meter.read(contender.counted_commands());
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    held.release().await;
    commands / measured_for.as_secs_f64()
}
