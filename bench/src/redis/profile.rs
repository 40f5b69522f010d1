//! One contender alone, again and again, for a profiler: `bench redis-profile pair|many|rush [CONTENDER [TASKS]]`.

use super::clients::{Client, Kind};
use super::contest::{Manner, contest};
use super::many::throughput;
use super::server::{Cores, Meter, Server};
use super::uncontended::through;
use crate::measure::cpu_time;
use std::time::Duration;

const SLICE: Duration = Duration::from_secs(1);

pub(crate) fn run(args: impl Iterator<Item = String>) {
    let args: Vec<String> = args.collect();
    let what = args.first().map_or("pair", String::as_str).to_owned();
    let kinds = [
        Kind::ByHand,
        Kind::Crate,
        Kind::Lockfast,
        Kind::LockfastNoHandOff,
        Kind::LockfastOnCrate,
        Kind::LockfastOnCrateNoHandOff,
        Kind::Rslock,
    ];
    let contender = args.get(1).map_or("lockfast", String::as_str);
    let kind = kinds.into_iter().find(|kind| kind.label() == contender).unwrap_or(Kind::LockfastNoHandOff);
    let tasks = args.get(2).and_then(|tasks| tasks.parse().ok()).unwrap_or(64);
    let server = Server::start();
    let (port, cores) = (server.port(), if what == "many" { Cores::All } else { Cores::One });
    println!("{what} with {}, {}, redis-server is process {}", kind.label(), cores.label(), server.pid());
    server.with(cores, async move {
        let client = Client::connect(kind, port).await.expect("the server is there");
        let mut meter = Meter::connect(port);
        for _ in 0..8 {
            meter.console.call(&["CONFIG", "RESETSTAT"]);
            meter.start(&[]);
            let before = cpu_time();
            let (done, span) = match what.as_str() {
                "many" => (throughput(client.clone(), port, tasks, SLICE).await.0, SLICE),
                "rush" => (contest(kind, &client, port, Manner::Rush, SLICE).await.per_second, SLICE),
                _ => {
                    let (pairs, span) = through(&client, SLICE).await;
                    (f64::from(pairs), span)
                }
            };
            let (_, cpu) = meter.read(&[]);
            let each = |span: Duration| span.as_secs_f64() * 1e6 / done;
            let (client, scripts) = (each(cpu_time() - before), each(meter.spent_in("evalsha")));
            println!(
                "{:.1} us each: {client:.1} of this processor, {:.1} of the server's, {scripts:.1} of those in scripts",
                each(span),
                each(cpu),
            );
        }
    });
}
