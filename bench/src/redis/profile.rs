//! One contender alone, again and again, for a profiler: `bench redis-profile pair|many|rush [CONTENDER [TASKS]]`.

use super::clients::{Client, Contender};
use super::contest::{Contention, run_round};
use super::many::throughput;
use super::server::{Cores, Meter, Server};
use super::uncontended::run_pairs;
use crate::measure::cpu_time;
use std::time::Duration;

const SLICE: Duration = Duration::from_secs(1);

pub(crate) fn run(args: impl Iterator<Item = String>) {
    let args: Vec<String> = args.collect();
    let workload = args.first().map_or("pair", String::as_str).to_owned();
    let contenders = [
        Contender::BareHandWritten,
        Contender::BareRedisCrate,
        Contender::Lockfast,
        Contender::LockfastNoLocalHandOff,
        Contender::LockfastOnRedisCrate,
        Contender::LockfastOnRedisCrateNoLocalHandOff,
        Contender::Rslock,
    ];
    let label = args.get(1).map_or("lockfast", String::as_str);
    let found = contenders.into_iter().find(|contender| contender.label() == label);
    let contender = found.unwrap_or(Contender::LockfastNoLocalHandOff);
    let tasks = args.get(2).and_then(|tasks| tasks.parse().ok()).unwrap_or(64);
    let server = Server::start();
    let (port, cores) = (server.port(), if workload == "many" { Cores::All } else { Cores::One });
    println!("{workload} with {}, {}, redis-server is process {}", contender.label(), cores.label(), server.pid());
    server.run_task(cores, async move {
        let client = Client::connect(contender, port).await.expect("the server is there");
        let mut meter = Meter::connect(port);
        for _ in 0..8 {
            meter.console.call(&["CONFIG", "RESETSTAT"]);
            meter.start(&[]);
            let cpu_before = cpu_time();
            let (count, elapsed) = match workload.as_str() {
                "many" => (throughput(client.clone(), port, tasks, SLICE).await.0, SLICE),
                "rush" => {
                    (run_round(contender, &client, port, Contention::Saturated, SLICE).await.turns_per_second, SLICE)
                }
                _ => {
                    let (pairs, elapsed) = run_pairs(&client, SLICE).await;
                    (f64::from(pairs), elapsed)
                }
            };
            let (_, redis_cpu) = meter.read(&[]);
            let client_cpu = cpu_time() - cpu_before;
            let micros_each = |time: Duration| time.as_secs_f64() * 1e6 / count;
            println!(
                "{:.1} us each: {:.1} of this processor, {:.1} of the server's, {:.1} of those in scripts",
                micros_each(elapsed),
                micros_each(client_cpu),
                micros_each(redis_cpu),
                micros_each(meter.time_in("evalsha")),
            );
        }
    });
}
