//! Many tasks, each with a name of its own: the throughput of one client.

use std::sync::Arc;
use std::time::Duration;

use lockfast::Clock;
use tokio::runtime::Builder;

use super::Plan;
use super::clients::{Client, Kind, connect_all};
use super::figures::{Bar, Figure, Unit};
use super::server::{Cores, Meter, Server};
use crate::measure::{median, median_ratio};

const SECTION: &str = "lock and release, many tasks with a name each";
const KINDS: &[Kind] = &[Kind::Crate, Kind::Lockfast, Kind::LockfastOnCrate, Kind::Rslock, Kind::DistributedLock];

/// Pairs a second, and nanoseconds of the server's processor a pair.
type Rounds = Vec<(f64, f64)>;

pub(crate) fn run(plan: &Plan) -> Vec<Figure> {
    [64, 512].into_iter().flat_map(|tasks| measured(plan, tasks)).collect()
}

fn measured(plan: &Plan, tasks: usize) -> Vec<Figure> {
    println!("  {tasks} tasks");
    let server = Server::start();
    let (port, slice) = (server.port(), plan.slice());
    let kinds = server.on(Cores::All, || {
        let runtime = Builder::new_multi_thread().enable_all().build().expect("threads can be had");
        // The hand-written client is fastest on one thread: tasks that were woken together send their commands in one write.
        let single = Builder::new_current_thread().enable_all().build().expect("a runtime can be had");
        let by_hand = single.block_on(Client::connect(Kind::ByHand, port)).expect("the server is there");
        let clients = runtime.block_on(connect_all(KINDS, port));
        let clients: Vec<_> = clients.into_iter().chain([(Kind::ByHand, by_hand)]).collect();
        let mut kinds: Vec<(Kind, Rounds)> = clients.iter().map(|(kind, _)| (*kind, Vec::new())).collect();
        for round in 0..=plan.rounds() {
            for ((kind, client), (_, figures)) in clients.iter().zip(&mut kinds) {
                let work = throughput(client.clone(), port, tasks, slice);
                let figure = match kind {
                    Kind::ByHand => single.block_on(work),
                    _ => runtime.block_on(runtime.spawn(work)).expect("the benchmark does not panic"),
                };
                // The first round warms up and is not counted.
                if round > 0 {
                    figures.push(figure);
                }
            }
        }
        kinds
    });
    show(tasks, &kinds)
}

fn show(tasks: usize, kinds: &[(Kind, Rounds)]) -> Vec<Figure> {
    let rates = |kind: Kind| -> Vec<f64> {
        let found = kinds.iter().find(|(it, _)| *it == kind);
        found.map_or(Vec::new(), |(_, rounds)| rounds.iter().map(|round| round.0).collect())
    };
    let of_bare = |kind| median_ratio(&rates(kind), &rates(Kind::Crate));
    let what = format!("{tasks} tasks: lockfast, of bare pairs through the redis crate");
    let ratio = Figure::new(SECTION, what, of_bare(Kind::Lockfast), Unit::Times);
    let better = of_bare(Kind::Rslock);
    let bar = if better > 0.6 { Bar::at_least(0.6).or_better(better) } else { Bar::at_least(0.6) };
    let mut figures = vec![ratio.with(bar)];
    let of_ours = median_ratio(&rates(Kind::LockfastOnCrate), &rates(Kind::Lockfast));
    let what = format!("{tasks} tasks: lockfast on the crate's connection, of lockfast on its own");
    figures.push(Figure::new(SECTION, what, of_ours, Unit::Times));
    for (kind, rounds) in kinds {
        let mut add = |what: &str, value, unit| {
            figures.push(Figure::new(SECTION, format!("{tasks} tasks: {}{what}", kind.label()), value, unit));
        };
        add("", median(rates(*kind)), Unit::PerSecond);
        if !matches!(kind, Kind::Crate | Kind::Lockfast | Kind::LockfastOnCrate) {
            add(", of bare pairs", of_bare(*kind), Unit::Times);
        }
        let server: Vec<_> = rounds.iter().map(|round| round.1 / 1e3).collect();
        add(": Redis CPU a pair", median(server), Unit::Microseconds);
    }
    figures
}

pub(crate) async fn throughput(client: Client, port: u16, tasks: usize, slice: Duration) -> (f64, f64) {
    let (clock, mut meter) = (Clock::boot(), Meter::connect(port));
    meter.start(&[]);
    let start = clock.now();
    let end = start + slice;
    let workers: Vec<_> = (0..tasks)
        .map(|number| {
            let (client, clock, name) = (client.clone(), clock.clone(), Arc::<str>::from(format!("account:{number}")));
            tokio::spawn(async move {
                let mut done = 0u32;
                while clock.now() < end {
                    client.pair(&name).await;
                    done += 1;
                }
                done
            })
        })
        .collect();
    let mut done = 0.0;
    for worker in workers {
        done += f64::from(worker.await.expect("no task panics"));
    }
    let time = clock.now().since(start);
    let (_, cpu) = meter.read(&[]);
    (done / time.as_secs_f64(), cpu.as_nanos() as f64 / done)
}
