//! Many tasks, each with a name of its own: the throughput of one client.

use std::sync::Arc;
use std::time::Duration;

use lockfast::Clock;
use tokio::runtime::Builder;

use super::Plan;
use super::clients::{Client, Contender, connect_all};
use super::figures::{Bar, Figure, Unit};
use super::server::{Cores, Meter, Server};
use crate::measure::{median, median_ratio};

/// The section of these figures: part of the names by which two trees are compared.
const SECTION: &str = "lock and release, many tasks with a name each";
const CONTENDERS: &[Contender] = &[
    Contender::BareRedisCrate,
    Contender::Lockfast,
    Contender::LockfastOnRedisCrate,
    Contender::Rslock,
    Contender::DistributedLock,
];

/// For each round: pairs per second, and nanoseconds of the server's processor time per pair.
type Rounds = Vec<(f64, f64)>;

pub(crate) fn run(plan: &Plan) -> Vec<Figure> {
    [64, 512].into_iter().flat_map(|tasks| measure(plan, tasks)).collect()
}

fn measure(plan: &Plan, tasks: usize) -> Vec<Figure> {
    println!("  {tasks} tasks");
    let server = Server::start();
    let (port, slice) = (server.port(), plan.slice());
    let rounds_of = server.run_on(Cores::All, || {
        let runtime = Builder::new_multi_thread().enable_all().build().expect("threads can be had");
        // The hand-written client is fastest on one thread: tasks that were woken together send their commands in one write.
        let single_thread = Builder::new_current_thread().enable_all().build().expect("a runtime can be had");
        let by_hand =
            single_thread.block_on(Client::connect(Contender::BareHandWritten, port)).expect("the server is there");
        let clients = runtime.block_on(connect_all(CONTENDERS, port));
        let clients: Vec<_> = clients.into_iter().chain([(Contender::BareHandWritten, by_hand)]).collect();
        let mut rounds_of: Vec<(Contender, Rounds)> =
            clients.iter().map(|(contender, _)| (*contender, Vec::new())).collect();
        for round in 0..=plan.rounds() {
            for ((contender, client), (_, rounds)) in clients.iter().zip(&mut rounds_of) {
                let work = throughput(client.clone(), port, tasks, slice);
                let figure = match contender {
                    Contender::BareHandWritten => single_thread.block_on(work),
                    _ => runtime.block_on(runtime.spawn(work)).expect("the benchmark does not panic"),
                };
                // The first round warms up and is not counted.
                if round > 0 {
                    rounds.push(figure);
                }
            }
        }
        rounds_of
    });
    to_figures(tasks, &rounds_of)
}

fn to_figures(tasks: usize, rounds_of: &[(Contender, Rounds)]) -> Vec<Figure> {
    let rates = |contender: Contender| -> Vec<f64> {
        let found = rounds_of.iter().find(|(it, _)| *it == contender);
        found.map_or(Vec::new(), |(_, rounds)| rounds.iter().map(|round| round.0).collect())
    };
    let ratio_to_bare = |contender| median_ratio(&rates(contender), &rates(Contender::BareRedisCrate));
    let what = format!("{tasks} tasks: lockfast, of bare pairs through the redis crate");
    let ratio = Figure::new(SECTION, what, ratio_to_bare(Contender::Lockfast), Unit::Times);
    // The stretch goal is to reach rslock, unless rslock itself is below the limit.
    let rslock_ratio = ratio_to_bare(Contender::Rslock);
    let bar = if rslock_ratio > 0.6 { Bar::at_least(0.6).with_stretch(rslock_ratio) } else { Bar::at_least(0.6) };
    let mut figures = vec![ratio.with_bar(bar)];
    let crate_to_own = median_ratio(&rates(Contender::LockfastOnRedisCrate), &rates(Contender::Lockfast));
    let what = format!("{tasks} tasks: lockfast on the crate's connection, of lockfast on its own");
    figures.push(Figure::new(SECTION, what, crate_to_own, Unit::Times));
    for (contender, rounds) in rounds_of {
        let mut add = |what: &str, value, unit| {
            figures.push(Figure::new(SECTION, format!("{tasks} tasks: {}{what}", contender.label()), value, unit));
        };
        add("", median(rates(*contender)), Unit::PerSecond);
        if !matches!(contender, Contender::BareRedisCrate | Contender::Lockfast | Contender::LockfastOnRedisCrate) {
            add(", of bare pairs", ratio_to_bare(*contender), Unit::Times);
        }
        let redis_cpu: Vec<_> = rounds.iter().map(|round| round.1 / 1e3).collect();
        add(": Redis CPU a pair", median(redis_cpu), Unit::Microseconds);
    }
    figures
}

/// Runs lock-and-release pairs in `tasks` tasks. Returns pairs per second, and nanoseconds of the server's processor time per
/// pair.
pub(crate) async fn throughput(client: Client, port: u16, tasks: usize, slice: Duration) -> (f64, f64) {
    let (clock, mut meter) = (Clock::boot(), Meter::connect(port));
    // No command is counted, only processor time.
    meter.start(&[]);
    let start = clock.now();
    let end = start + slice;
    let workers: Vec<_> = (0..tasks)
        .map(|number| {
            let (client, clock, name) = (client.clone(), clock.clone(), Arc::<str>::from(format!("account:{number}")));
            tokio::spawn(async move {
                let mut pairs = 0u32;
                while clock.now() < end {
                    client.lock_and_release(&name).await;
                    pairs += 1;
                }
                pairs
            })
        })
        .collect();
    let mut pairs = 0.0;
    for worker in workers {
        pairs += f64::from(worker.await.expect("no task panics"));
    }
    let time = clock.now().since(start);
    let (_, cpu) = meter.read(&[]);
    (pairs / time.as_secs_f64(), cpu.as_nanos() as f64 / pairs)
}
