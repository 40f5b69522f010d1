//! Runs the checker over one world and reports each law and milestone.

use std::fmt;
use std::time::{Duration, Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use crate::setups::Setup;

/// The verdict on one property.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The name of the property.
    pub name: &'static str,
    /// A law, which must not be broken; otherwise a milestone, which must be reached.
    pub is_law: bool,
    /// The steps until the law was broken or the milestone reached.
    pub path: Option<Vec<String>>,
}

impl Verdict {
    /// Whether the law held, or the milestone was reached.
    pub fn is_good(&self) -> bool {
        self.is_law == self.path.is_none()
    }
}

/// The result of one search.
#[derive(Clone, Debug)]
pub struct SearchResult {
    /// The world's name.
    pub setup: &'static str,
    /// How many states were reached, counting each as often as it was reached.
    pub states: usize,
    /// How many different states were reached.
    pub unique: usize,
    /// How many steps the farthest state is away.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// The verdict on each property.
    pub verdicts: Vec<Verdict>,
}

impl SearchResult {
    /// Whether all laws held and all milestones were reached.
    pub fn is_good(&self) -> bool {
        self.verdicts.iter().all(Verdict::is_good)
    }

    /// The laws that were broken.
    pub fn broken(&self) -> Vec<&'static str> {
        let broken = self.verdicts.iter().filter(|verdict| verdict.is_law && !verdict.is_good());
        broken.map(|verdict| verdict.name).collect()
    }
}

/// Visits every state of a world, or as many as it takes to break a law.
pub fn search(setup: &Setup, threads: usize) -> SearchResult {
    let began = now();
    let properties = setup.properties();
    let checker = setup.clone().checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    let took = began.elapsed();
    let mut paths = checker.discoveries();
    let verdicts = properties.iter().map(|property| {
        let steps = paths.remove(property.name).map(|path| path.into_actions());
        Verdict {
            name: property.name,
            is_law: property.expectation == Expectation::Always,
            path: steps.map(|steps| steps.iter().map(|step| format!("{step:?}")).collect()),
        }
    });
    SearchResult {
        setup: setup.name,
        states: checker.state_count(),
        unique: checker.unique_state_count(),
        depth: checker.max_depth(),
        took,
        verdicts: verdicts.collect(),
    }
}

#[expect(clippy::disallowed_methods, reason = "how long a search took is for people to read; no lease depends on it")]
fn now() -> Instant {
    Instant::now()
}

impl fmt::Display for SearchResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.took.as_secs_f64();
        writeln!(
            f,
            "{}: {} states, {} unique, depth {}, {seconds:.1} s",
            self.setup, self.states, self.unique, self.depth
        )?;
        for verdict in &self.verdicts {
            let word = match (verdict.is_law, verdict.is_good()) {
                (true, true) => "held",
                (true, false) => "BROKEN",
                (false, true) => "reached",
                (false, false) => "NOT REACHED",
            };
            writeln!(f, "    {word:<11} {}", verdict.name)?;
            if let Some(path) = verdict.path.as_ref().filter(|_| verdict.is_law) {
                writeln!(f, "        by {}", path.join(", "))?;
            }
        }
        Ok(())
    }
}
