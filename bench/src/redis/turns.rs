//! Two processes lock one name in turn, and hold it long enough for the other process to go idle.

use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use lockfast::Clock;

use super::Plan;
use super::clients::{Client, Kind};
use super::figures::{Bar, Figure, Unit};
use super::resp::Connection;
use super::server::{Cores, Server};
use crate::measure::{median, percentile};

const SECTION: &str = "two processes in turn, 30 ms each";
const HOLD: Duration = Duration::from_millis(30);
const CONTENDERS: [&str; 4] = ["blpop", "lockfast", "rslock", "lockfast-on-crate"];

pub(crate) fn run(plan: &Plan) -> Vec<Figure> {
    Cores::BOTH.into_iter().flat_map(|cores| measured(plan, cores)).collect()
}

fn measured(plan: &Plan, cores: Cores) -> Vec<Figure> {
    println!("  on {}", cores.label());
    let (rounds, turns) = if plan.quick { (2, 8) } else { (5, 18) };
    let mut handoffs: [Vec<f64>; CONTENDERS.len()] = Default::default();
    for round in 0..rounds {
        for (contender, handoffs) in CONTENDERS.iter().zip(&mut handoffs) {
            // Its hand-offs take about a tenth of a second: more rounds would take long and change nothing.
            if *contender == "rslock" && (round > 0 || cores == Cores::One) {
                continue;
            }
            let server = Server::start();
            let taken = server.on(cores, || one_round(&server, contender, turns));
            if !taken.is_empty() {
                handoffs.push(percentile(&taken, 0.5));
            }
        }
    }
    let p50 = |number: usize| match handoffs[number].is_empty() {
        true => f64::NAN,
        false => median(handoffs[number].clone()),
    };
    let figure = |what: &str, value, unit| Figure::new(SECTION, format!("{what} ({})", cores.label()), value, unit);
    let ratio = figure("hand-off p50, of a BLPOP wake-up", p50(1) / p50(0), Unit::Times);
    let mut figures = vec![
        if cores == Cores::One { ratio.with(Bar::at_most(1.3).or_better(1.1)) } else { ratio },
        figure("lockfast: hand-off p50", p50(1) / 1e3, Unit::Microseconds),
        figure("BLPOP: wake-up p50", p50(0) / 1e3, Unit::Microseconds),
        figure("hand-off p50 on the crate's connection, of lockfast's own", p50(3) / p50(1), Unit::Times),
        figure("lockfast on the crate's connection: hand-off p50", p50(3) / 1e3, Unit::Microseconds),
    ];
    if cores == Cores::All {
        figures.push(figure("rslock: hand-off p50", p50(2) / 1e3, Unit::Microseconds));
    }
    figures
}

/// Nanoseconds from each release in one process to the acquisition in the other.
fn one_round(server: &Server, contender: &str, count: u32) -> Vec<f64> {
    let sides = ["0", "1"].map(|side| server.child("turns", &[contender.into(), side.into(), count.to_string()]));
    if contender == "blpop" {
        server.console().console.call(&["LPUSH", "wake:0", "go"]);
    }
    let mut turns = Vec::new();
    for (number, mut side) in sides.into_iter().enumerate() {
        let output = BufReader::new(side.stdout.take().expect("it was piped"));
        for line in output.lines().map_while(Result::ok) {
            let mut figures = line.split(' ').filter_map(|figure| figure.parse::<u64>().ok());
            if let (Some(acquired), Some(released)) = (figures.next(), figures.next()) {
                turns.push((acquired, released, number));
            }
        }
        side.wait().expect("it ends by itself");
    }
    turns.sort_unstable();
    let handed = turns.windows(2).filter(|pair| pair[0].2 != pair[1].2);
    handed.map(|pair| pair[1].0.saturating_sub(pair[0].1) as f64).collect()
}

/// One of the two processes; prints when it held the lock.
pub(crate) fn child(port: u16, contender: &str, side: &str, count: u32) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads can be had");
    let (contender, side) = (contender.to_owned(), side.to_owned());
    let turns = runtime.block_on(runtime.spawn(async move {
        match contender.as_str() {
            "blpop" => wake_ups(port, &side, count).await,
            "rslock" => locks(Kind::Rslock, port, count).await,
            "lockfast-on-crate" => locks(Kind::LockfastOnCrateNoHandOff, port, count).await,
            _ => locks(Kind::LockfastNoHandOff, port, count).await,
        }
    }));
    let mut out = std::io::stdout().lock();
    for (acquired, released) in turns.expect("the benchmark does not panic") {
        writeln!(out, "{acquired} {released}").expect("the parent reads it");
    }
}

async fn locks(kind: Kind, port: u16, count: u32) -> Vec<(u64, u64)> {
    let Ok(client) = Client::connect(kind, port).await else { return Vec::new() };
    let (clock, mut turns) = (Clock::boot(), Vec::new());
    for _ in 0..count {
        let held = client.lock("ball").await;
        let acquired = clock.now().as_nanos();
        tokio::time::sleep(HOLD).await;
        turns.push((acquired, clock.now().as_nanos()));
        held.release().await;
    }
    turns
}

async fn wake_ups(port: u16, side: &str, count: u32) -> Vec<(u64, u64)> {
    let mut connection = Connection::connect(port).await;
    let (mine, others) = (format!("wake:{side}"), if side == "0" { "wake:1" } else { "wake:0" });
    let (clock, mut turns) = (Clock::boot(), Vec::new());
    for _ in 0..count {
        connection.call(&["BLPOP", &mine, "0"]).await;
        let acquired = clock.now().as_nanos();
        tokio::time::sleep(HOLD).await;
        turns.push((acquired, clock.now().as_nanos()));
        connection.call(&["LPUSH", others, "go"]).await;
    }
    turns
}
