//! Many engines against one table, with a simulated network and simulated clocks.
//!
//! A world follows from a [`Plan`], and a plan from a seed: its processes, the actions of their callers with their times, and
//! its faults. Events happen in virtual time, one after the other; nothing here waits, and nothing reads a clock. After each
//! step the [invariants](Invariant) of the project are checked. A plan that breaks one is shrunk and printed.
//!
//! ```
//! let outcome = sim::run_world(7, &sim::Settings::default());
//! assert!(outcome.violation.is_none());
//! ```

mod acquire;
mod caller;
mod calls;
mod clock;
mod faults;
mod generate;
mod hold;
mod inject;
mod invariants;
mod judging;
mod keeper;
mod ledger;
mod network;
mod plan;
mod process;
mod release;
mod report;
mod schedule;
mod shrink;
mod store;
mod trace;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use clock::{Skew, Time};
pub use faults::{ALL, Bites, KINDS, Kind};
pub use invariants::{Invariant, Violation};
pub use plan::{Ask, CallerPlan, Cancel, CancelAt, ClientPlan, End, Fault, FaultPlan, LINKS, Link, Message, Plan};
pub use report::{Totals, describe};
pub use shrink::shrink;
pub use world::Outcome;

use trace::Trace;
use world::World;

/// How a world is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Keeps the last steps.
    pub trace: bool,
}

/// Runs the world of a seed.
pub fn run_world(seed: u64, settings: &Settings) -> Outcome {
    run_plan(&Plan::of_seed(seed), settings.trace)
}

/// Runs the world of a plan.
pub fn run_plan(plan: &Plan, trace: bool) -> Outcome {
    let world = || World::new(plan, if trace { Trace::on() } else { Trace::default() }).run();
    catch_unwind(AssertUnwindSafe(world)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default();
        let broken = Violation { invariant: Invariant::Clean, expected: "no panic".to_owned(), seen: text };
        Outcome { engines: plan.clients.len(), violation: Some((Time::NEVER, broken)), ..Outcome::default() }
    })
}
