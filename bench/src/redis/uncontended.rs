//! One task locks a free name and releases it.

use std::collections::HashMap;
use std::time::Duration;

use lockfast::Clock;

use super::Plan;
use super::clients::{Client, Kind, connect_all};
use super::figures::{Bar, Figure, Unit};
use super::resp::{COMPARE_AND_DELETE, Connection, Reply};
use super::server::{Cores, Meter, SCRIPTS_AND_SET, Server};
use crate::measure::{median, median_ratio};

const SECTION: &str = "lock and release of a free name, one task";
const KINDS: &[Kind] = &[Kind::Crate, Kind::Lockfast, Kind::LockfastOnCrate, Kind::Rslock, Kind::DistributedLock];

/// The cost of a pair: nanoseconds, commands, nanoseconds of the server's processor.
#[derive(Debug, Default)]
struct Rounds {
    time: Vec<f64>,
    commands: Vec<f64>,
    server: Vec<f64>,
}

pub(crate) fn run(plan: &Plan) -> Vec<Figure> {
    let mut figures = Vec::new();
    for cores in Cores::BOTH {
        println!("  on {}", cores.label());
        let server = Server::start();
        let rounds = server.with(cores, measure(*plan, server.port()));
        figures.extend(show(cores, &rounds));
    }
    figures
}

fn show(cores: Cores, rounds: &[(Kind, Rounds)]) -> Vec<Figure> {
    let times = |kind| rounds.iter().find(|(it, _)| *it == kind).map_or(&[][..], |(_, rounds)| &rounds.time);
    let of_bare = |kind| median_ratio(times(kind), times(Kind::Crate));
    let what = format!("lockfast, of a bare pair through the redis crate ({})", cores.label());
    let ratio = Figure::new(SECTION, what, of_bare(Kind::Lockfast), Unit::Times);
    let mut figures = vec![match cores {
        Cores::One => ratio.with(Bar::at_most(1.25).or_better(1.05)),
        Cores::All => ratio,
    }];
    let of_ours = median_ratio(times(Kind::LockfastOnCrate), times(Kind::Lockfast));
    let what = format!("lockfast on the crate's connection, of lockfast on its own ({})", cores.label());
    figures.push(Figure::new(SECTION, what, of_ours, Unit::Times));
    for (kind, rounds) in rounds {
        let mut add = |what: &str, value, unit| {
            figures.push(Figure::new(SECTION, format!("{}{what} ({})", kind.label(), cores.label()), value, unit));
        };
        add("", median(rounds.time.clone()) / 1e3, Unit::Microseconds);
        if !matches!(kind, Kind::Crate | Kind::Lockfast | Kind::LockfastOnCrate) {
            add(", of a bare pair", of_bare(*kind), Unit::Times);
        }
        if cores == Cores::One {
            add(": commands a pair", median(rounds.commands.clone()), Unit::Each);
            add(": Redis CPU a pair", median(rounds.server.clone()) / 1e3, Unit::Microseconds);
        }
    }
    figures
}

async fn measure(plan: Plan, port: u16) -> Vec<(Kind, Rounds)> {
    let clients = connect_all(KINDS, port).await;
    let mut by_hand = Connection::connect(port).await;
    let script = by_hand.call(&["SCRIPT", "LOAD", COMPARE_AND_DELETE]).await.text();
    let mut meter = Meter::connect(port);
    let mut rounds: HashMap<usize, Rounds> = HashMap::new();
    let (count, slice) = plan.short_rounds();
    // The first round warms up and is not counted.
    for round in 0..=count {
        let mut note = |index, pairs: u32, time: Duration, (commands, cpu): (f64, Duration)| {
            if round > 0 {
                let rounds = rounds.entry(index).or_default();
                rounds.time.push(time.as_nanos() as f64 / f64::from(pairs));
                rounds.commands.push(commands / f64::from(pairs));
                rounds.server.push(cpu.as_nanos() as f64 / f64::from(pairs));
            }
        };
        meter.start(SCRIPTS_AND_SET);
        let (pairs, time) = hand_written(&mut by_hand, &script, slice).await;
        note(0, pairs, time, meter.read(SCRIPTS_AND_SET));
        for (index, (kind, client)) in clients.iter().enumerate() {
            meter.start(kind.commands());
            let (pairs, time) = through(client, slice).await;
            note(index + 1, pairs, time, meter.read(kind.commands()));
        }
    }
    let kinds = std::iter::once(Kind::ByHand).chain(clients.iter().map(|(kind, _)| *kind));
    kinds.enumerate().map(|(index, kind)| (kind, rounds.remove(&index).unwrap_or_default())).collect()
}

pub(crate) async fn through(client: &Client, slice: Duration) -> (u32, Duration) {
    let (clock, mut done) = (Clock::boot(), 0);
    let start = clock.now();
    while clock.now() < start + slice {
        for _ in 0..50 {
            client.pair("account:123").await;
        }
        done += 50;
    }
    (done, clock.now().since(start))
}

async fn hand_written(connection: &mut Connection, script: &str, slice: Duration) -> (u32, Duration) {
    let (clock, mut done) = (Clock::boot(), 0);
    let start = clock.now();
    while clock.now() < start + slice {
        for _ in 0..50 {
            let set = connection.call(&["SET", "bare:account:123", "token", "NX", "PX", "30000"]).await;
            assert_eq!(set, Reply::Text("OK".to_owned()), "the key is free");
            let deleted = connection.call(&["EVALSHA", script, "1", "bare:account:123", "token"]).await;
            assert_eq!(deleted, Reply::Number(1), "it was still there");
        }
        done += 50;
    }
    (done, clock.now().since(start))
}
