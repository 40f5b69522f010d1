//! One task locks a free name and releases it.

use std::collections::HashMap;
use std::time::Duration;

use lockfast::Clock;

use super::Plan;
use super::clients::{Client, Contender, connect_all};
use super::figures::{Bar, Figure, Unit};
use super::resp::{COMPARE_AND_DELETE, Connection, Reply};
use super::server::{Cores, Meter, SCRIPTS_AND_SET, Server};
use crate::measure::{median, median_ratio};

/// The section of these figures: part of the names by which two trees are compared.
const SECTION: &str = "lock and release of a free name, one task";
const CONTENDERS: &[Contender] = &[
    Contender::BareRedisCrate,
    Contender::Lockfast,
    Contender::LockfastOnRedisCrate,
    Contender::Rslock,
    Contender::DistributedLock,
];

/// The clock is read once for this many pairs, so that reading it does not count.
const PAIRS_PER_CHECK: u32 = 50;

/// The cost of a lock-and-release pair, one figure for each round.
#[derive(Debug, Default)]
struct Rounds {
    nanos: Vec<f64>,
    commands: Vec<f64>,
    /// Nanoseconds of the server's processor time.
    redis_cpu: Vec<f64>,
}

pub(crate) fn run(plan: &Plan) -> Vec<Figure> {
    let mut figures = Vec::new();
    for cores in Cores::BOTH {
        println!("  on {}", cores.label());
        let server = Server::start();
        let rounds = server.run_task(cores, measure(*plan, server.port()));
        figures.extend(to_figures(cores, &rounds));
    }
    figures
}

fn to_figures(cores: Cores, rounds: &[(Contender, Rounds)]) -> Vec<Figure> {
    let times = |contender| rounds.iter().find(|(it, _)| *it == contender).map_or(&[][..], |(_, rounds)| &rounds.nanos);
    let ratio_to_bare = |contender| median_ratio(times(contender), times(Contender::BareRedisCrate));
    let what = format!("lockfast, of a bare pair through the redis crate ({})", cores.label());
    let ratio = Figure::new(SECTION, what, ratio_to_bare(Contender::Lockfast), Unit::Times);
    let mut figures = vec![match cores {
        Cores::One => ratio.with_bar(Bar::at_most(1.25).with_stretch(1.05)),
        Cores::All => ratio,
    }];
    let crate_to_own = median_ratio(times(Contender::LockfastOnRedisCrate), times(Contender::Lockfast));
    let what = format!("lockfast on the crate's connection, of lockfast on its own ({})", cores.label());
    figures.push(Figure::new(SECTION, what, crate_to_own, Unit::Times));
    for (contender, rounds) in rounds {
        let mut add = |what: &str, value, unit| {
            figures.push(Figure::new(SECTION, format!("{}{what} ({})", contender.label(), cores.label()), value, unit));
        };
        add("", median(rounds.nanos.clone()) / 1e3, Unit::Microseconds);
        if !matches!(contender, Contender::BareRedisCrate | Contender::Lockfast | Contender::LockfastOnRedisCrate) {
            add(", of a bare pair", ratio_to_bare(*contender), Unit::Times);
        }
        if cores == Cores::One {
            add(": commands a pair", median(rounds.commands.clone()), Unit::Each);
            add(": Redis CPU a pair", median(rounds.redis_cpu.clone()) / 1e3, Unit::Microseconds);
        }
    }
    figures
}

async fn measure(plan: Plan, port: u16) -> Vec<(Contender, Rounds)> {
    let clients = connect_all(CONTENDERS, port).await;
    let mut by_hand = Connection::connect(port).await;
    let script = by_hand.call(&["SCRIPT", "LOAD", COMPARE_AND_DELETE]).await.text();
    let mut meter = Meter::connect(port);
    // By index: 0 is the hand-written client, the others follow in the order of `clients`.
    let mut rounds: HashMap<usize, Rounds> = HashMap::new();
    let (count, slice) = plan.short_rounds();
    // The first round warms up and is not counted.
    for round in 0..=count {
        let mut record = |index, pairs: u32, time: Duration, (commands, cpu): (f64, Duration)| {
            if round > 0 {
                let rounds = rounds.entry(index).or_default();
                rounds.nanos.push(time.as_nanos() as f64 / f64::from(pairs));
                rounds.commands.push(commands / f64::from(pairs));
                rounds.redis_cpu.push(cpu.as_nanos() as f64 / f64::from(pairs));
            }
        };
        meter.start(SCRIPTS_AND_SET);
        let (pairs, time) = run_pairs_by_hand(&mut by_hand, &script, slice).await;
        record(0, pairs, time, meter.read(SCRIPTS_AND_SET));
        for (index, (contender, client)) in clients.iter().enumerate() {
            meter.start(contender.counted_commands());
            let (pairs, time) = run_pairs(client, slice).await;
            record(index + 1, pairs, time, meter.read(contender.counted_commands()));
        }
    }
    let contenders = std::iter::once(Contender::BareHandWritten).chain(clients.iter().map(|(contender, _)| *contender));
    contenders.enumerate().map(|(index, contender)| (contender, rounds.remove(&index).unwrap_or_default())).collect()
}

/// Locks and releases one name for a slice of time. Returns the number of pairs and the time that they took.
pub(crate) async fn run_pairs(client: &Client, slice: Duration) -> (u32, Duration) {
    let (clock, mut pairs) = (Clock::boot(), 0);
    let start = clock.now();
    while clock.now() < start + slice {
        for _ in 0..PAIRS_PER_CHECK {
            client.lock_and_release("account:123").await;
        }
        pairs += PAIRS_PER_CHECK;
    }
    (pairs, clock.now().since(start))
}

/// As [`run_pairs`], on a connection for one command at a time, without the channel of a shared connection.
async fn run_pairs_by_hand(connection: &mut Connection, script: &str, slice: Duration) -> (u32, Duration) {
    let (clock, mut pairs) = (Clock::boot(), 0);
    let start = clock.now();
    while clock.now() < start + slice {
        for _ in 0..PAIRS_PER_CHECK {
            let set = connection.call(&["SET", "bare:account:123", "token", "NX", "PX", "30000"]).await;
            assert_eq!(set, Reply::Text("OK".to_owned()), "the key is free");
            let deleted = connection.call(&["EVALSHA", script, "1", "bare:account:123", "token"]).await;
            assert_eq!(deleted, Reply::Number(1), "the key was still there");
        }
        pairs += PAIRS_PER_CHECK;
    }
    (pairs, clock.now().since(start))
}
