//! Reports: totals of many worlds, and all about one that failed.

use std::fmt::{self, Write};
use std::time::Duration;

use crate::faults::Bites;
use crate::plan::Plan;
use crate::run_plan;
use crate::shrink::shrink;
use crate::world::Outcome;

/// From this many engines on, a world is large.
const LARGE: usize = 50;
/// How many of the last steps are printed.
const MAX_STEPS_SHOWN: usize = 120;

/// The outcome of many worlds.
#[derive(Debug, Default)]
pub struct Totals {
    /// How many there were.
    pub worlds: u64,
    /// How many events happened in them.
    pub steps: u64,
    /// How many of these in worlds of 50 engines or more.
    pub large_steps: u64,
    /// How much time passed in them.
    pub lasted: Duration,
    /// How often a caller entered.
    pub grants: u64,
    /// How often a hold was lost.
    pub losses: u64,
    /// Which faults bit.
    pub bites: Bites,
    /// The seeds of worlds in which an invariant broke.
    pub failed: Vec<u64>,
}

impl Totals {
    /// Adds a world.
    pub fn add(&mut self, seed: u64, outcome: &Outcome) {
        self.worlds += 1;
        self.steps += outcome.steps;
        self.large_steps += if outcome.engines >= LARGE { outcome.steps } else { 0 };
        self.lasted += outcome.lasted;
        self.grants += outcome.grants;
        self.losses += outcome.losses;
        self.bites.add(&outcome.bites);
        if outcome.violation.is_some() {
            self.failed.push(seed);
        }
    }

    /// The part of all steps that happened in large worlds, in percent.
    pub fn large_share(&self) -> f64 {
        100.0 * self.large_steps as f64 / self.steps.max(1) as f64
    }

    /// Virtual time, in days.
    pub fn days(&self) -> f64 {
        self.lasted.as_secs_f64() / 86_400.0
    }

    /// The last line of a report.
    pub fn verdict(&self) -> String {
        match self.failed.len() {
            0 => "0 violations".to_owned(),
            many => {
                let mut seeds: Vec<_> = self.failed.iter().map(ToString::to_string).collect();
                seeds.truncate(20);
                format!("{many} violations: seeds {}", seeds.join(" "))
            }
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worlds, steps, grants, losses, .. } = self;
        write!(f, "{worlds} worlds, {:.1} virtual days, {steps} steps ", self.days())?;
        write!(f, "({:.0} % in worlds of {LARGE} engines or more), ", self.large_share())?;
        write!(f, "{grants} grants, {losses} losses, {} violations", self.failed.len())
    }
}

/// All about a world that failed: what broke, a small plan in which it breaks, and its last steps.
pub fn describe(plan: &Plan, outcome: &Outcome) -> String {
    let Some((at, broken)) = &outcome.violation else { return String::new() };
    let mut text = String::new();
    let _ = writeln!(text, "seed {}: {} is broken at {at:?}", plan.seed, broken.invariant);
    let _ = writeln!(text, "  expected: {}\n  seen:     {}", broken.expected, broken.seen);
    let small = shrink(plan, broken.invariant);
    let again = run_plan(&small, true);
    let _ = writeln!(text, "the shrunk plan:\n{small}");
    if let Some((at, broken)) = &again.violation {
        let _ = writeln!(text, "in it {} is broken at {at:?}", broken.invariant);
        let _ = writeln!(text, "  expected: {}\n  seen:     {}", broken.expected, broken.seen);
    }
    let _ = writeln!(text, "its last steps:");
    for line in again.trace.iter().skip(again.trace.len().saturating_sub(MAX_STEPS_SHOWN)) {
        let _ = writeln!(text, "{line}");
    }
    text
}
