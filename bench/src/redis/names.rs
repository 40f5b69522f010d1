//! Ten names taken at once, and one after the other.

use std::time::Duration;

use lockfast::{Clock, Locks};

use super::Plan;
use super::clients::{Client, Kind};
use super::figures::{Bar, Figure, Unit};
use super::server::{Cores, Meter, SCRIPTS, Server};
use crate::measure::median;

const SECTION: &str = "10 names at once";

/// Nanoseconds to lock and release all ten, and commands.
type Rounds = Vec<(f64, f64)>;

pub(crate) fn run(plan: &Plan) -> Vec<Figure> {
    let server = Server::start();
    let (port, rounds, slice) = (server.port(), plan.rounds(), plan.slice());
    let (together, singly) = server.with(Cores::One, async move {
        let Ok(Client::Lockfast(locks)) = Client::connect(Kind::Lockfast, port).await else {
            println!("  lockfast cannot be reached");
            return (Rounds::new(), Rounds::new());
        };
        let (mut together, mut singly) = (Rounds::new(), Rounds::new());
        for _ in 0..rounds {
            together.push(measure(port, slice, || at_once(locks.clone())).await);
            singly.push(measure(port, slice, || one_by_one(locks.clone())).await);
        }
        (together, singly)
    });
    let of = |rounds: &Rounds, pick: fn(&(f64, f64)) -> f64| {
        if rounds.is_empty() { f64::NAN } else { median(rounds.iter().map(pick).collect()) }
    };
    let (fast, slow) = (of(&together, |it| it.0), of(&singly, |it| it.0));
    let commands = Figure::new(SECTION, "commands to take and give back all 10", of(&together, |it| it.1), Unit::Each);
    vec![
        // One to lock and one to release, and a margin for a renewal that falls into a round.
        commands.with(Bar::at_most(2.005)),
        Figure::new(SECTION, "at once (one core)", fast / 1e3, Unit::Microseconds),
        Figure::new(SECTION, "one by one (one core)", slow / 1e3, Unit::Microseconds),
        Figure::new(SECTION, "one by one, of at once (one core)", slow / fast, Unit::Times),
    ]
}

fn names() -> impl Iterator<Item = String> {
    (0..10).map(|number| format!("account:{number}"))
}

async fn at_once(locks: Locks) {
    let guard = locks.multi(names()).lock().await.expect("they are free");
    guard.release().await.expect("they were not taken away");
}

async fn one_by_one(locks: Locks) {
    let mut guards = Vec::new();
    for name in names() {
        guards.push(locks.mutex(name).lock().await.expect("it is free"));
    }
    for guard in guards {
        guard.release().await.expect("it was not taken away");
    }
}

async fn measure<W: Future>(port: u16, slice: Duration, work: impl Fn() -> W) -> (f64, f64) {
    let (clock, mut meter, mut done) = (Clock::boot(), Meter::connect(port), 0.0);
    meter.start(SCRIPTS);
    let start = clock.now();
    while clock.now() < start + slice {
        work().await;
        done += 1.0;
    }
    let time = clock.now().since(start).as_nanos() as f64;
    let (commands, _) = meter.read(SCRIPTS);
    (time / done, commands / done)
}
