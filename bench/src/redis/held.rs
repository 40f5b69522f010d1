//! Very many locks, held and renewed. A child process holds them, so that its memory grows by the locks only.

use std::time::Duration;

use lockfast::{Clock, Guard, Locks};

use super::Plan;
use super::clients::ON_REDIS_CRATE;
use super::figures::{Bar, Figure, Unit};
use super::server::{Meter, SCRIPTS, Server};
use crate::measure::{cpu_time, resident_bytes};

/// The number of locks without `--quick`.
const FULL_COUNT: usize = 100_000;
/// The section of these figures: part of the names by which two trees are compared.
const SECTION: &str = "100,000 held locks, ttl 10 s, renewed";
const QUICK_SECTION: &str = "10,000 held locks, ttl 10 s, renewed (bars: a tenth)";
const TTL: Duration = Duration::from_secs(10);
/// The number of tasks that take the locks before the measurement.
const TAKERS: u32 = 64;
/// A call that takes longer goes to the SLOWLOG: meanwhile, the server answers no other client.
const SLOW_MICROSECONDS: &str = "500";

/// The cheapest renewal possible: reads each key and extends its lease, and checks nothing.
const BARE_RENEWAL: &str = "local values = redis.call('MGET', unpack(KEYS)) \
    for index = 1, #KEYS do redis.call('PEXPIRE', KEYS[index], ARGV[1], 'GT') end return #values";
/// The keys of one bare renewal: about the number that lockfast renews in one call. It renews 100,000 locks every 3.3 s in
/// about 320 calls a second.
const BARE_KEYS: u32 = 94;
/// The pause between two bare renewals: about the pause between two renewals of lockfast.
const BARE_PAUSE: Duration = Duration::from_millis(3);

pub(crate) fn run(plan: &Plan) -> Vec<Figure> {
    let (count, seconds) = (plan.scaled(FULL_COUNT), if plan.is_quick { 12 } else { 24 });
    let section = if plan.is_quick { QUICK_SECTION } else { SECTION };
    // Bars of figures that grow with the number of locks are scaled by it.
    let scale = count as f64 / FULL_COUNT as f64;
    let scaled_at_most = |limit: f64| Bar::at_most(limit * scale);
    let measure = |connection: &str| {
        Server::start().child_figures("held", &[count.to_string(), seconds.to_string(), connection.to_owned()])
    };
    let (own_figures, crate_figures) = (measure("own"), measure("crate"));
    let on_crate = |what: &str, key: &str, unit| {
        Figure::new(section, format!("lockfast on the crate's connection: {what}"), crate_figures(key), unit)
    };
    let figure = |what: &str, key: &str, unit| Figure::new(section, what, own_figures(key), unit);
    vec![
        figure("client, of one core", "client_cpu_percent", Unit::Percent)
            .with_bar(scaled_at_most(4.0).with_stretch(2.0 * scale)),
        figure("commands", "commands_per_second", Unit::PerSecond).with_bar(scaled_at_most(350.0)),
        figure("calls in the SLOWLOG at 500 us", "slow_percent", Unit::Percent).with_bar(Bar::at_most(0.1)),
        figure("memory", "memory_mb", Unit::Megabytes).with_bar(scaled_at_most(100.0).with_stretch(30.0 * scale)),
        figure("lost", "lost", Unit::Count).with_bar(Bar::at_most(0.0)),
        figure("held", "held", Unit::Count),
        figure("slowest call", "slowest_us", Unit::Microseconds),
        figure(
            "the barest script for as many keys: calls in the SLOWLOG at 500 us",
            "bare_slow_percent",
            Unit::Percent,
        ),
        figure("taking them, 64 tasks", "acquisitions_per_second", Unit::PerSecond),
        figure("client CPU a renewal", "client_cpu_us_per_renewal", Unit::Microseconds),
        figure("Redis, of one core", "redis_cpu_percent", Unit::Percent),
        on_crate("client, of one core", "client_cpu_percent", Unit::Percent),
        on_crate("taking them, 64 tasks", "acquisitions_per_second", Unit::PerSecond),
        on_crate("client CPU a renewal", "client_cpu_us_per_renewal", Unit::Microseconds),
        on_crate("memory", "memory_mb", Unit::Megabytes),
        on_crate("lost", "lost", Unit::Count),
    ]
}

/// The process that holds the locks.
pub(crate) fn child(port: u16, count: u32, seconds: u32, is_on_crate: bool) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads can be had");
    runtime.block_on(async {
        let url = format!("redis://127.0.0.1:{port}{}", if is_on_crate { ON_REDIS_CRATE } else { "" });
        let Ok(locks) = Locks::builder().ttl(TTL).connect(&url).await else { return };
        // The first lock allocates memory of the client itself. It must not count as memory of the locks.
        locks.mutex("first").lock().await.expect("the lock is free").release().await.expect("the lock was not lost");
        let (clock, bytes_before) = (Clock::boot(), resident_bytes());
        let start = clock.now();
        let guards = take_locks(&locks, count).await;
        let acquiring = clock.now().since(start);
        // After 2 s the first renewals have begun, and their rate is steady.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut meter = Meter::connect(port);
        meter.console.call(&["CONFIG", "SET", "slowlog-max-len", "1000000"]);
        meter.console.call(&["CONFIG", "SET", "slowlog-log-slower-than", SLOW_MICROSECONDS]);
        meter.console.call(&["SLOWLOG", "RESET"]);
        meter.start(SCRIPTS);
        let (start, cpu_before) = (clock.now(), cpu_time());
        tokio::time::sleep(Duration::from_secs(seconds.into())).await;
        let (elapsed, cpu) = (clock.now().since(start).as_secs_f64(), cpu_time() - cpu_before);
        let (commands, redis_cpu) = meter.read(SCRIPTS);
        // Order matters: the reply of SLOWLOG is long, and must not count as memory of the locks.
        let grown_bytes = resident_bytes().saturating_sub(bytes_before);
        let slow_calls = meter.slow_calls("EVALSHA");
        let bare_slow_share = slow_share_of_bare_renewals(&mut meter, count).await;
        let lost_guards = guards.iter().filter(|guard| guard.check().is_err()).count() as f64;
        let missing_keys = f64::from(count) - meter.count_existing((0..count).map(key));
        // The keeper renews each lock after a third of its lease.
        let renewals = f64::from(count) * elapsed / (TTL.as_secs_f64() / 3.0);
        let figures = [
            ("client_cpu_percent", 100.0 * cpu.as_secs_f64() / elapsed),
            ("commands_per_second", commands / elapsed),
            ("slow_percent", 100.0 * slow_calls.len() as f64 / commands),
            ("slowest_us", slow_calls.into_iter().fold(0.0, f64::max)),
            ("bare_slow_percent", 100.0 * bare_slow_share),
            ("memory_mb", grown_bytes as f64 / 1e6),
            ("lost", lost_guards.max(missing_keys)),
            ("held", guards.len() as f64),
            ("acquisitions_per_second", f64::from(count) / acquiring.as_secs_f64()),
            ("client_cpu_us_per_renewal", 1e6 * cpu.as_secs_f64() / renewals),
            ("redis_cpu_percent", 100.0 * redis_cpu.as_secs_f64() / elapsed),
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

/// Runs bare renewals of all keys. Returns the share of calls that are slow.
async fn slow_share_of_bare_renewals(meter: &mut Meter, count: u32) -> f64 {
    meter.console.call(&["SLOWLOG", "RESET"]);
    let (calls, ttl) = (count / BARE_KEYS, TTL.as_millis().to_string());
    for call in 0..calls {
        // Spread over all keys, as the keys of one renewal are.
        let keys: Vec<_> = (0..BARE_KEYS).map(|number| key(number * calls + call)).collect();
        let key_count = BARE_KEYS.to_string();
        let args = ["EVAL", BARE_RENEWAL, &key_count].into_iter().chain(keys.iter().map(String::as_str)).chain([&*ttl]);
        meter.console.call(&args.collect::<Vec<_>>());
        tokio::time::sleep(BARE_PAUSE).await;
    }
    meter.slow_calls("EVAL").len() as f64 / f64::from(calls)
}

async fn take_locks(locks: &Locks, count: u32) -> Vec<Guard> {
    let takers = (0..TAKERS).map(|taker| {
        let locks = locks.clone();
        tokio::spawn(async move {
            let mut guards = Vec::new();
            for number in (taker..count).step_by(TAKERS as usize) {
                guards.push(locks.mutex(name(number)).lock().await.expect("the lock is free"));
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
