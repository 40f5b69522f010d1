//! Ten names taken at once, and one after the other.

use std::time::Duration;

use lockfast::{Clock, Locks};

use super::Plan;
use super::clients::{Client, Contender};
use super::figures::{Bar, Figure, Unit};
use super::server::{Cores, Meter, SCRIPTS, Server};
use crate::measure::median;

/// The section of these figures: part of the names by which two trees are compared.
const SECTION: &str = "10 names at once";

/// For each round: nanoseconds to lock and release all ten names, and the number of commands.
type Rounds = Vec<(f64, f64)>;

pub(crate) fn run(plan: &Plan) -> Vec<Figure> {
    let server = Server::start();
    let (port, rounds, slice) = (server.port(), plan.rounds(), plan.slice());
    let (at_once, one_by_one) = server.run_task(Cores::One, async move {
        let Ok(Client::Lockfast(locks)) = Client::connect(Contender::Lockfast, port).await else {
            println!("  lockfast cannot be reached");
            return (Rounds::new(), Rounds::new());
        };
        let (mut at_once, mut one_by_one) = (Rounds::new(), Rounds::new());
        for _ in 0..rounds {
            at_once.push(measure(port, slice, || lock_at_once(locks.clone())).await);
            one_by_one.push(measure(port, slice, || lock_one_by_one(locks.clone())).await);
        }
        (at_once, one_by_one)
    });
    let median_of = |rounds: &Rounds, pick: fn(&(f64, f64)) -> f64| {
        if rounds.is_empty() { f64::NAN } else { median(rounds.iter().map(pick).collect()) }
    };
    let (at_once_time, one_by_one_time) =
        (median_of(&at_once, |round| round.0), median_of(&one_by_one, |round| round.0));
    let commands =
        Figure::new(SECTION, "commands to take and give back all 10", median_of(&at_once, |round| round.1), Unit::Each);
    vec![
        // One command to lock and one to release. The margin of 0.005 is for a renewal that falls into a round.
        commands.with_bar(Bar::at_most(2.005)),
        Figure::new(SECTION, "at once (one core)", at_once_time / 1e3, Unit::Microseconds),
        Figure::new(SECTION, "one by one (one core)", one_by_one_time / 1e3, Unit::Microseconds),
        Figure::new(SECTION, "one by one, of at once (one core)", one_by_one_time / at_once_time, Unit::Times),
    ]
}

fn names() -> impl Iterator<Item = String> {
    (0..10).map(|number| format!("account:{number}"))
}

async fn lock_at_once(locks: Locks) {
    let guard = locks.multi(names()).lock().await.expect("the names are free");
    guard.release().await.expect("the locks were not lost");
}

async fn lock_one_by_one(locks: Locks) {
    let mut guards = Vec::new();
    for name in names() {
        guards.push(locks.mutex(name).lock().await.expect("the name is free"));
    }
    for guard in guards {
        guard.release().await.expect("the lock was not lost");
    }
}

/// Repeats `work` for a slice. Returns nanoseconds and commands per run.
async fn measure<W: Future>(port: u16, slice: Duration, work: impl Fn() -> W) -> (f64, f64) {
    let (clock, mut meter, mut runs) = (Clock::boot(), Meter::connect(port), 0.0);
    meter.start(SCRIPTS);
    let start = clock.now();
    while clock.now() < start + slice {
        work().await;
        runs += 1.0;
    }
    let time = clock.now().since(start).as_nanos() as f64;
    let (commands, _) = meter.read(SCRIPTS);
    (time / runs, commands / runs)
}
