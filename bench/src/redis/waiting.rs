//! The cost of waiting for the server: a thousand waiters, and no release.

use std::time::Duration;

use super::Plan;
use super::clients::{Client, Kind};
use super::figures::{Bar, Figure, Unit};
use super::server::{Cores, Meter, Server};

const SECTION: &str = "commands a second while 1,000 wait";
const WAITERS: usize = 1_000;

pub(crate) fn run(plan: &Plan) -> Vec<Figure> {
    let watched = Duration::from_secs(if plan.quick { 2 } else { 5 });
    let mut figures = Vec::new();
    for kind in [Kind::LockfastNoHandOff, Kind::Rslock, Kind::DistributedLock] {
        println!("  {}", kind.label());
        let server = Server::start();
        let rate = server.with(Cores::All, commands(kind, server.port(), watched));
        let figure = Figure::new(SECTION, kind.label(), rate, Unit::PerSecond);
        // A lease of 30 s is renewed every 10 s, and the measured time ends before the first renewal.
        figures.push(if kind == Kind::LockfastNoHandOff { figure.with(Bar::at_most(0.0)) } else { figure });
    }
    figures
}

async fn commands(kind: Kind, port: u16, watched: Duration) -> f64 {
    let Ok(client) = Client::connect(kind, port).await else { return f64::NAN };
    let held = client.lock("hot").await;
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.pair("hot").await })
        })
        .collect();
    let mut meter = Meter::connect(port);
    // Each waiter has sent its request, and the client has reported its claims, which it does when they are a second old.
    while meter.commands_so_far(kind.commands()) < WAITERS as f64 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    meter.start(kind.commands());
    tokio::time::sleep(watched).await;
    let (commands, _) = meter.read(kind.commands());
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    held.release().await;
    commands / watched.as_secs_f64()
}
