//! Many tasks lock one name, with local hand-off turned off.

use super::Plan;
use super::clients::{Kind, connect_all};
use super::contest::{Manner, Outcome, contest, wake_ups};
use super::figures::{Bar, Figure, Unit};
use super::server::{Cores, Server};
use crate::measure::median;

const SECTION: &str = "one name, hand-off inside the process off";

/// Rounds of each contender; the BLPOP wake-ups have no kind.
type Rounds = Vec<(Option<Kind>, Vec<Outcome>)>;

pub(crate) fn run(plan: &Plan) -> Vec<Figure> {
    let mut figures = Vec::new();
    for cores in Cores::BOTH {
        for manner in Manner::ALL {
            println!("  {} on {}", manner.label(), cores.label());
            let server = Server::start();
            let rounds = server.with(cores, measure(*plan, server.port(), manner, cores));
            figures.extend(show(cores, manner, &rounds));
        }
    }
    figures
}

async fn measure(plan: Plan, port: u16, manner: Manner, cores: Cores) -> Rounds {
    // Contenders that poll are measured only with all cores, where they do best.
    let kinds: &[Kind] = match cores {
        Cores::One => &[Kind::LockfastNoHandOff, Kind::LockfastOnCrateNoHandOff],
        Cores::All => &[Kind::LockfastNoHandOff, Kind::LockfastOnCrateNoHandOff, Kind::Rslock, Kind::DistributedLock],
    };
    let clients = connect_all(kinds, port).await;
    let mut rounds: Rounds = vec![(None, Vec::new())];
    rounds.extend(clients.iter().map(|(kind, _)| (Some(*kind), Vec::new())));
    let slice = plan.slice() * manner.slices();
    for round in 0..=plan.rounds() {
        let mut outcomes = vec![wake_ups(port, manner, slice).await];
        for (kind, client) in &clients {
            outcomes.push(contest(*kind, client, port, manner, slice).await);
        }
        // The first round warms up and is not counted.
        if round > 0 {
            rounds.iter_mut().zip(outcomes).for_each(|(rounds, outcome)| rounds.1.push(outcome));
        }
    }
    rounds
}

fn show(cores: Cores, manner: Manner, rounds: &Rounds) -> Vec<Figure> {
    let of = |kind: Option<Kind>, pick: fn(&Outcome) -> f64| {
        let found = rounds.iter().find(|(it, _)| *it == kind);
        found.map_or(f64::NAN, |(_, rounds)| median(rounds.iter().map(pick).collect()))
    };
    let ours = Some(Kind::LockfastNoHandOff);
    let setting = format!("{}, {}", manner.label(), cores.label());
    let mut figures = Vec::new();
    let mut add = |what: &str, value: f64, unit: Unit, bar: Option<Bar>| {
        let figure = Figure::new(SECTION, format!("{what} ({setting})"), value, unit);
        figures.push(Figure { bar, ..figure });
    };
    let rush = manner == Manner::Rush;
    let judged = |bar: Bar| (rush && cores == Cores::One).then_some(bar);
    let (wake, handoff) = (of(None, |it| it.handoff_p50), of(ours, |it| it.handoff_p50));
    add("hand-off p50, of a BLPOP wake-up", handoff / wake, Unit::Times, judged(Bar::at_most(1.3).or_better(1.1)));
    let on_crate = of(Some(Kind::LockfastOnCrateNoHandOff), |it| it.handoff_p50);
    add("hand-off p50 on the crate's connection, of lockfast's own", on_crate / handoff, Unit::Times, None);
    add("BLPOP: wake-up p50", wake / 1e3, Unit::Microseconds, None);
    if rush {
        let (luck, commands) = (of(ours, |it| it.luck), of(ours, |it| it.commands_each));
        add("turns of the luckiest, of the unluckiest task's", luck, Unit::Times, Some(Bar::at_most(1.03)));
        add("Redis commands an acquisition", commands, Unit::Each, Some(Bar::at_most(2.1)));
        add("BLPOP: turns", of(None, |it| it.per_second), Unit::PerSecond, None);
        add("BLPOP: Redis CPU a turn", of(None, |it| it.server_each) / 1e3, Unit::Microseconds, None);
    }
    for kind in rounds.iter().filter_map(|(kind, _)| *kind) {
        let (name, kind) = (kind.label(), Some(kind));
        add(&format!("{name}: hand-off p50"), of(kind, |it| it.handoff_p50) / 1e3, Unit::Microseconds, None);
        add(&format!("{name}: hand-off p99"), of(kind, |it| it.handoff_p99) / 1e3, Unit::Microseconds, None);
        if rush {
            add(&format!("{name}: turns"), of(kind, |it| it.per_second), Unit::PerSecond, None);
            add(&format!("{name}: Redis CPU a turn"), of(kind, |it| it.server_each) / 1e3, Unit::Microseconds, None);
        }
        if manner != Manner::Alternating {
            add(&format!("{name}: p99 wait"), of(kind, |it| it.wait_p99) / 1e3, Unit::Microseconds, None);
        }
        if kind != ours {
            add(&format!("{name}: commands an acquisition"), of(kind, |it| it.commands_each), Unit::Each, None);
            if rush {
                add(
                    &format!("{name}: turns of the luckiest, of the unluckiest"),
                    of(kind, |it| it.luck),
                    Unit::Times,
                    None,
                );
            }
        }
    }
    figures
}
