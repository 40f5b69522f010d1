//! Two processes lock one name in turn, and hold it long enough for the other process to go idle.

use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use lockfast::Clock;

use super::Plan;
use super::clients::{Client, Contender};
use super::figures::{Bar, Figure, Unit};
use super::resp::Connection;
use super::server::{Cores, Server};
use crate::measure::{median, percentile};

/// The section of these figures: part of the names by which two trees are compared.
const SECTION: &str = "two processes in turn, 30 ms each";
/// How long each process holds the lock.
const HOLD: Duration = Duration::from_millis(30);
/// The contenders, by the names that a child process is given. `measure` takes their figures in this order.
const CONTENDERS: [&str; 4] = ["blpop", "lockfast", "rslock", "lockfast-on-crate"];

pub(crate) fn run(plan: &Plan) -> Vec<Figure> {
    Cores::BOTH.into_iter().flat_map(|cores| measure(plan, cores)).collect()
}

fn measure(plan: &Plan, cores: Cores) -> Vec<Figure> {
    println!("  on {}", cores.label());
    let (rounds, turns) = if plan.is_quick { (2, 8) } else { (5, 18) };
    // For each contender, the p50 of the hand-offs of each round in nanoseconds.
    let mut handoffs: [Vec<f64>; CONTENDERS.len()] = Default::default();
    for round in 0..rounds {
        for (contender, handoffs) in CONTENDERS.iter().zip(&mut handoffs) {
            // Hand-offs of rslock take about a tenth of a second: more rounds would take long and change nothing.
            if *contender == "rslock" && (round > 0 || cores == Cores::One) {
                continue;
            }
            let server = Server::start();
            let nanos = server.run_on(cores, || run_round(&server, contender, turns));
            if !nanos.is_empty() {
                handoffs.push(percentile(&nanos, 0.5));
            }
        }
    }
    let [blpop, lockfast, rslock, on_crate] =
        handoffs.map(|p50s| if p50s.is_empty() { f64::NAN } else { median(p50s) });
    let figure = |what: &str, value, unit| Figure::new(SECTION, format!("{what} ({})", cores.label()), value, unit);
    let ratio = figure("hand-off p50, of a BLPOP wake-up", lockfast / blpop, Unit::Times);
    let mut figures = vec![
        if cores == Cores::One { ratio.with_bar(Bar::at_most(1.3).with_stretch(1.1)) } else { ratio },
        figure("lockfast: hand-off p50", lockfast / 1e3, Unit::Microseconds),
        figure("BLPOP: wake-up p50", blpop / 1e3, Unit::Microseconds),
        figure("hand-off p50 on the crate's connection, of lockfast's own", on_crate / lockfast, Unit::Times),
        figure("lockfast on the crate's connection: hand-off p50", on_crate / 1e3, Unit::Microseconds),
    ];
    if cores == Cores::All {
        figures.push(figure("rslock: hand-off p50", rslock / 1e3, Unit::Microseconds));
    }
    figures
}

/// Nanoseconds from each release in one process to the acquisition in the other.
fn run_round(server: &Server, contender: &str, count: u32) -> Vec<f64> {
    let sides = ["0", "1"].map(|side| server.child("turns", &[contender.into(), side.into(), count.to_string()]));
    if contender == "blpop" {
        server.meter().console.call(&["LPUSH", "wake:0", "go"]);
    }
    let mut turns = Vec::new();
    for (number, mut side) in sides.into_iter().enumerate() {
        let output = BufReader::new(side.stdout.take().expect("it was piped"));
        for line in output.lines().map_while(Result::ok) {
            let mut figures = line.split(' ').filter_map(|figure| figure.parse::<u64>().ok());
            if let (Some(acquired_at), Some(released_at)) = (figures.next(), figures.next()) {
                turns.push((acquired_at, released_at, number));
            }
        }
        side.wait().expect("it ends by itself");
    }
    turns.sort_unstable();
    let handoffs = turns.windows(2).filter(|pair| pair[0].2 != pair[1].2);
    handoffs.map(|pair| pair[1].0.saturating_sub(pair[0].1) as f64).collect()
}

/// One of the two processes: prints for each turn when it acquired the lock and when it released it.
pub(crate) fn child(port: u16, contender: &str, side: &str, count: u32) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads can be had");
    let (contender, side) = (contender.to_owned(), side.to_owned());
    let turns = runtime.block_on(runtime.spawn(async move {
        match contender.as_str() {
            "blpop" => wake_repeatedly(port, &side, count).await,
            "rslock" => lock_repeatedly(Contender::Rslock, port, count).await,
            "lockfast-on-crate" => lock_repeatedly(Contender::LockfastOnRedisCrateNoLocalHandOff, port, count).await,
            _ => lock_repeatedly(Contender::LockfastNoLocalHandOff, port, count).await,
        }
    }));
    let mut out = std::io::stdout().lock();
    for (acquired_at, released_at) in turns.expect("the benchmark does not panic") {
        writeln!(out, "{acquired_at} {released_at}").expect("the parent reads it");
    }
}

async fn lock_repeatedly(contender: Contender, port: u16, count: u32) -> Vec<(u64, u64)> {
    let Ok(client) = Client::connect(contender, port).await else { return Vec::new() };
    let (clock, mut turns) = (Clock::boot(), Vec::new());
    for _ in 0..count {
        let held = client.lock("ball").await;
        let acquired_at = clock.now().as_nanos();
        tokio::time::sleep(HOLD).await;
        turns.push((acquired_at, clock.now().as_nanos()));
        held.release().await;
    }
    turns
}

async fn wake_repeatedly(port: u16, side: &str, count: u32) -> Vec<(u64, u64)> {
    let mut connection = Connection::connect(port).await;
    let (own_key, other_key) = (format!("wake:{side}"), if side == "0" { "wake:1" } else { "wake:0" });
    let (clock, mut turns) = (Clock::boot(), Vec::new());
    for _ in 0..count {
        connection.call(&["BLPOP", &own_key, "0"]).await;
        let acquired_at = clock.now().as_nanos();
        tokio::time::sleep(HOLD).await;
        turns.push((acquired_at, clock.now().as_nanos()));
        connection.call(&["LPUSH", other_key, "go"]).await;
    }
    turns
}
