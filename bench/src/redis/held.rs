//! Very many locks, held and renewed by a process of its own, so that its memory grows by the locks only.

use std::time::Duration;

use lockfast::{Clock, Guard, Locks};

use super::Plan;
use super::clients::ON_CRATE;
use super::figures::{Bar, Figure, Unit};
use super::server::{Meter, SCRIPTS, Server};
use crate::measure::{cpu_time, resident};

const FULL: usize = 100_000;
const SECTION: &str = "100,000 held locks, ttl 10 s, renewed";
const SECTION_IN_A_HURRY: &str = "10,000 held locks, ttl 10 s, renewed (bars: a tenth)";
const TTL: Duration = Duration::from_secs(10);
/// The tasks that take all locks at first.
const TAKERS: u32 = 64;
/// A call that takes longer delays the calls of all other clients.
const SLOW_MICROSECONDS: &str = "500";

/// The cheapest renewal possible: reads each key and extends its lease, and checks nothing.
const BARE_RENEWAL: &str = "local values = redis.call('MGET', unpack(KEYS)) \
    for index = 1, #KEYS do redis.call('PEXPIRE', KEYS[index], ARGV[1], 'GT') end return #values";
/// About as many keys as lockfast renews in one call, and as often.
const BARE_KEYS: u32 = 94;
const BARE_PAUSE: Duration = Duration::from_millis(3);

pub(crate) fn run(plan: &Plan) -> Vec<Figure> {
    let (count, seconds) = (plan.count(FULL), if plan.quick { 12 } else { 24 });
    let section = if plan.quick { SECTION_IN_A_HURRY } else { SECTION };
    // Bars of figures that grow with the number of locks are scaled by it.
    let part = count as f64 / FULL as f64;
    let at_most = |limit: f64| Bar::at_most(limit * part);
    let figures_of = |connection: &str| {
        Server::start().child_figures("held", &[count.to_string(), seconds.to_string(), connection.to_owned()])
    };
    let (own, on_crate) = (figures_of("own"), figures_of("crate"));
    let crates = |what: &str, key: &str, unit| {
        Figure::new(section, format!("lockfast on the crate's connection: {what}"), on_crate(key), unit)
    };
    let figure = |what: &str, key: &str, unit| Figure::new(section, what, own(key), unit);
    vec![
        figure("client, of one core", "cpu", Unit::Percent).with(at_most(4.0).or_better(2.0 * part)),
        figure("commands", "commands", Unit::PerSecond).with(at_most(350.0)),
        figure("calls in the SLOWLOG at 500 us", "slow", Unit::Percent).with(Bar::at_most(0.1)),
        figure("memory", "memory", Unit::Megabytes).with(at_most(100.0).or_better(30.0 * part)),
        figure("lost", "lost", Unit::Count).with(Bar::at_most(0.0)),
        figure("held", "held", Unit::Count),
        figure("slowest call", "slowest", Unit::Microseconds),
        figure("the barest script for as many keys: calls in the SLOWLOG at 500 us", "bare", Unit::Percent),
        figure("taking them, 64 tasks", "taking", Unit::PerSecond),
        figure("client CPU a renewal", "each", Unit::Microseconds),
        figure("Redis, of one core", "server", Unit::Percent),
        crates("client, of one core", "cpu", Unit::Percent),
        crates("taking them, 64 tasks", "taking", Unit::PerSecond),
        crates("client CPU a renewal", "each", Unit::Microseconds),
        crates("memory", "memory", Unit::Megabytes),
        crates("lost", "lost", Unit::Count),
    ]
}

/// The process that holds the locks.
pub(crate) fn child(port: u16, count: u32, seconds: u32, is_on_crate: bool) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads can be had");
    runtime.block_on(async {
        let url = format!("redis://127.0.0.1:{port}{}", if is_on_crate { ON_CRATE } else { "" });
        let Ok(locks) = Locks::builder().ttl(TTL).connect(&url).await else { return };
        // The memory that the first lock allocates belongs to the client.
        locks.mutex("first").lock().await.expect("it is free").release().await.expect("it was not taken away");
        let (clock, before) = (Clock::boot(), resident());
        let start = clock.now();
        let guards = take(&locks, count).await;
        let taking = clock.now().since(start);
        // By then renewals have begun, at their steady rate.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut meter = Meter::connect(port);
        meter.console.call(&["CONFIG", "SET", "slowlog-max-len", "1000000"]);
        meter.console.call(&["CONFIG", "SET", "slowlog-log-slower-than", SLOW_MICROSECONDS]);
        meter.console.call(&["SLOWLOG", "RESET"]);
        meter.start(SCRIPTS);
        let (start, cpu) = (clock.now(), cpu_time());
        tokio::time::sleep(Duration::from_secs(seconds.into())).await;
        let (span, cpu) = (clock.now().since(start).as_secs_f64(), cpu_time() - cpu);
        let (commands, server) = meter.read(SCRIPTS);
        // Order matters: the reply of SLOWLOG is long, and must not count as memory of the locks.
        let grown = resident().saturating_sub(before);
        let slow = meter.slow_calls("EVALSHA");
        let bare = bare_renewals(&mut meter, count).await;
        let lost = guards.iter().filter(|guard| guard.check().is_err()).count() as f64;
        let gone = f64::from(count) - meter.existing((0..count).map(key));
        let renewals = f64::from(count) * span / (TTL.as_secs_f64() / 3.0);
        let figures = [
            ("cpu", 100.0 * cpu.as_secs_f64() / span),
            ("commands", commands / span),
            ("slow", 100.0 * slow.len() as f64 / commands),
            ("slowest", slow.into_iter().fold(0.0, f64::max)),
            ("bare", 100.0 * bare),
            ("memory", grown as f64 / 1e6),
            ("lost", lost.max(gone)),
            ("held", guards.len() as f64),
            ("taking", f64::from(count) / taking.as_secs_f64()),
            ("each", 1e6 * cpu.as_secs_f64() / renewals),
            ("server", 100.0 * server.as_secs_f64() / span),
        ];
        figures.iter().for_each(|(key, value)| println!("{key}={value}"));
    });
    // The locks end with the server. Releasing each of them would take long and is not measured.
    std::process::exit(0);
}

fn name(number: u32) -> String {
    format!("order:{number}")
}

/// The key of the lock in Redis.
fn key(number: u32) -> String {
    format!("lock:{}", name(number))
}

/// The part of the bare renewals that is slow.
async fn bare_renewals(meter: &mut Meter, count: u32) -> f64 {
    meter.console.call(&["SLOWLOG", "RESET"]);
    let (calls, ttl) = (count / BARE_KEYS, TTL.as_millis().to_string());
    for call in 0..calls {
        // Spread over all keys, as the keys of one renewal are.
        let keys: Vec<_> = (0..BARE_KEYS).map(|number| key(number * calls + call)).collect();
        let number = BARE_KEYS.to_string();
        let words = ["EVAL", BARE_RENEWAL, &number].into_iter().chain(keys.iter().map(String::as_str)).chain([&*ttl]);
        meter.console.call(&words.collect::<Vec<_>>());
        tokio::time::sleep(BARE_PAUSE).await;
    }
    meter.slow_calls("EVAL").len() as f64 / f64::from(calls)
}

async fn take(locks: &Locks, count: u32) -> Vec<Guard> {
    let takers = (0..TAKERS).map(|taker| {
        let locks = locks.clone();
        tokio::spawn(async move {
            let mut guards = Vec::new();
            for number in (taker..count).step_by(TAKERS as usize) {
                guards.push(locks.mutex(name(number)).lock().await.expect("it is free"));
            }
            guards
        })
    });
    let takers: Vec<_> = takers.collect();
    let mut guards = Vec::with_capacity(count as usize);
    for taker in takers {
        guards.append(&mut taker.await.expect("no task panics"));
    }
    guards
}
