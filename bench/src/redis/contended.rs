//! Many tasks lock one name, with local hand-off turned off.

use super::Plan;
use super::clients::{Contender, connect_all};
use super::contest::{Contention, Outcome, run_blpop_round, run_round};
use super::figures::{Bar, Figure, Unit};
use super::server::{Cores, Server};
use crate::measure::median;

/// The section of these figures: part of the names by which two trees are compared.
const SECTION: &str = "one name, hand-off inside the process off";

/// The rounds of each contender. `None` is the baseline: wake-ups by BLPOP, which no contender does.
type Rounds = Vec<(Option<Contender>, Vec<Outcome>)>;

const BLPOP: Option<Contender> = None;

pub(crate) fn run(plan: &Plan) -> Vec<Figure> {
    let mut figures = Vec::new();
    for cores in Cores::BOTH {
        for contention in Contention::ALL {
            println!("  {} on {}", contention.label(), cores.label());
            let server = Server::start();
            let rounds = server.run_task(cores, measure(*plan, server.port(), contention, cores));
            figures.extend(to_figures(cores, contention, &rounds));
        }
    }
    figures
}

async fn measure(plan: Plan, port: u16, contention: Contention, cores: Cores) -> Rounds {
    // Contenders that poll are measured only with all cores, where they do best.
    let contenders: &[Contender] = match cores {
        Cores::One => &[Contender::LockfastNoLocalHandOff, Contender::LockfastOnRedisCrateNoLocalHandOff],
        Cores::All => &[
            Contender::LockfastNoLocalHandOff,
            Contender::LockfastOnRedisCrateNoLocalHandOff,
            Contender::Rslock,
            Contender::DistributedLock,
        ],
    };
    let clients = connect_all(contenders, port).await;
    let mut by_contender: Rounds = vec![(BLPOP, Vec::new())];
    by_contender.extend(clients.iter().map(|(contender, _)| (Some(*contender), Vec::new())));
    let slice = plan.slice() * contention.slices();
    for round in 0..=plan.rounds() {
        let mut outcomes = vec![run_blpop_round(port, contention, slice).await];
        for (contender, client) in &clients {
            outcomes.push(run_round(*contender, client, port, contention, slice).await);
        }
        // The first round warms up and is not counted.
        if round > 0 {
            for ((_, earlier), outcome) in by_contender.iter_mut().zip(outcomes) {
                earlier.push(outcome);
            }
        }
    }
    by_contender
}

fn to_figures(cores: Cores, contention: Contention, rounds: &Rounds) -> Vec<Figure> {
    let median_of = |contender: Option<Contender>, pick: fn(&Outcome) -> f64| {
        let found = rounds.iter().find(|(found, _)| *found == contender);
        found.map_or(f64::NAN, |(_, rounds)| median(rounds.iter().map(pick).collect()))
    };
    let ours = Some(Contender::LockfastNoLocalHandOff);
    let setting = format!("{}, {}", contention.label(), cores.label());
    let mut figures = Vec::new();
    let mut add = |what: &str, value: f64, unit: Unit, bar: Option<Bar>| {
        let figure = Figure::new(SECTION, format!("{what} ({setting})"), value, unit);
        figures.push(Figure { bar, ..figure });
    };
    let is_saturated = contention == Contention::Saturated;
    // Only the figures of this one combination have a bar.
    let bar_if_judged = |bar: Bar| (is_saturated && cores == Cores::One).then_some(bar);
    let (wake_up, handoff) =
        (median_of(BLPOP, |outcome| outcome.handoff_p50), median_of(ours, |outcome| outcome.handoff_p50));
    add(
        "hand-off p50, of a BLPOP wake-up",
        handoff / wake_up,
        Unit::Times,
        bar_if_judged(Bar::at_most(1.3).with_stretch(1.1)),
    );
    let on_crate = median_of(Some(Contender::LockfastOnRedisCrateNoLocalHandOff), |outcome| outcome.handoff_p50);
    add("hand-off p50 on the crate's connection, of lockfast's own", on_crate / handoff, Unit::Times, None);
    add("BLPOP: wake-up p50", wake_up / 1e3, Unit::Microseconds, None);
    if is_saturated {
        let (luckiest_ratio, commands) =
            (median_of(ours, |outcome| outcome.luckiest_ratio), median_of(ours, |outcome| outcome.commands_per_turn));
        add("turns of the luckiest, of the unluckiest task's", luckiest_ratio, Unit::Times, Some(Bar::at_most(1.03)));
        add("Redis commands an acquisition", commands, Unit::Each, Some(Bar::at_most(2.1)));
        add("BLPOP: turns", median_of(BLPOP, |outcome| outcome.turns_per_second), Unit::PerSecond, None);
        add(
            "BLPOP: Redis CPU a turn",
            median_of(BLPOP, |outcome| outcome.redis_cpu_per_turn) / 1e3,
            Unit::Microseconds,
            None,
        );
    }
    for contender in rounds.iter().filter_map(|(contender, _)| *contender) {
        let (name, contender) = (contender.label(), Some(contender));
        add(
            &format!("{name}: hand-off p50"),
            median_of(contender, |outcome| outcome.handoff_p50) / 1e3,
            Unit::Microseconds,
            None,
        );
        add(
            &format!("{name}: hand-off p99"),
            median_of(contender, |outcome| outcome.handoff_p99) / 1e3,
            Unit::Microseconds,
            None,
        );
        if is_saturated {
            add(
                &format!("{name}: turns"),
                median_of(contender, |outcome| outcome.turns_per_second),
                Unit::PerSecond,
                None,
            );
            add(
                &format!("{name}: Redis CPU a turn"),
                median_of(contender, |outcome| outcome.redis_cpu_per_turn) / 1e3,
                Unit::Microseconds,
                None,
            );
        }
        if contention != Contention::Alternating {
            add(
                &format!("{name}: p99 wait"),
                median_of(contender, |outcome| outcome.wait_p99) / 1e3,
                Unit::Microseconds,
                None,
            );
        }
        if contender != ours {
            add(
                &format!("{name}: commands an acquisition"),
                median_of(contender, |outcome| outcome.commands_per_turn),
                Unit::Each,
                None,
            );
            if is_saturated {
                add(
                    &format!("{name}: turns of the luckiest, of the unluckiest"),
                    median_of(contender, |outcome| outcome.luckiest_ratio),
                    Unit::Times,
                    None,
                );
            }
        }
    }
    figures
}
