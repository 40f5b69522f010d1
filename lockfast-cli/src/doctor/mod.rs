//! The checks of `lockfast doctor`: those of every store here, and those of one kind of store in a file of its own.

mod measure;
mod redis;
#[cfg(target_os = "linux")]
mod sqlite;

use lockfast::Locks;
use lockfast::store::{Atomic, Fenced, Shared, StoreClock, Survives};
use serde::Serialize;

pub(crate) use measure::{Scratch, measure_hand_off, measure_latency};

/// The result of one check.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) verdict: Verdict,
    /// What was found, and what to do about it, if anything.
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Fine,
    /// Worth knowing; nothing is broken.
    Note,
    Wrong,
}

impl Check {
    pub(crate) fn fine(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Fine, text: text.into() }
    }

    pub(crate) fn note(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Note, text: text.into() }
    }

    pub(crate) fn wrong(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Wrong, text: text.into() }
    }
}

/// The checks of the kind of store behind this URL. Called while a client of it is open.
pub(crate) async fn store_checks(url: &str, prefix: Option<&str>) -> Vec<Check> {
    match url.split_once(':') {
        Some(("redis" | "rediss", _)) => redis::checks(url, prefix).await,
        #[cfg(target_os = "linux")]
        Some(("sqlite", rest)) => sqlite::checks(rest),
        _ => Vec::new(),
    }
}

/// The guarantees of the store, as checks.
pub(crate) fn guarantee_checks(locks: &Locks) -> Vec<Check> {
    let guarantees = locks.guarantees();
    let reach = match guarantees.shared {
        Shared::Process => Check::note("reach", "the tasks of one process: other processes have locks of their own"),
        Shared::Machine => Check::fine("reach", "all processes on this machine that use the same URL"),
        _ => Check::fine("reach", "all processes that can connect to it"),
    };
    let order = match guarantees.fair {
        true => Check::fine("order", "first come, first served"),
        false => Check::note("order", "not promised: the first waiter that asks after a release is next"),
    };
    let fences = match guarantees.fenced {
        Fenced::Always => Check::fine("fences", "only go up, whatever happens to the store"),
        _ => Check::fine("fences", "only go up; after a loss of data, as long as the store's clock was not set back"),
    };
    let survival = match guarantees.survives {
        Survives::Nothing => Check::note("survival", "locks end with the store's process"),
        Survives::Restart => Check::fine("survival", "locks survive a restart of the store"),
        _ => Check::fine("survival", "locks survive the loss of a minority of nodes"),
    };
    let several_keys = match guarantees.atomic {
        Atomic::Always => Check::fine("several keys", "are taken in one step"),
        _ => Check::note("several keys", "are taken in one step only when they fall into one slot"),
    };
    let clock = match (guarantees.clock, guarantees.shared) {
        (StoreClock::SinceBoot, Shared::Process | Shared::Machine) => Check::fine(
            "clock skew",
            "none possible: leases are judged by this machine's clock since boot, which cannot be set",
        ),
        (StoreClock::SinceBoot, _) => {
            Check::fine("clock skew", "harmless: leases are judged by a clock that cannot be set")
        }
        _ => Check::note("clock skew", "leases are judged by the server's time of day: do not set it by hand"),
    };
    vec![reach, order, fences, survival, several_keys, clock]
}
