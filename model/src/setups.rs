//! The worlds that are searched: each has a few clients, their plans, and the faults that may happen. A world with all faults
//! at once is too large, so each has a few of its own.

use crate::notes::Notes;
use crate::rules::Rules;
use crate::table::{ALL, ClaimSpec};

/// The plan of one process.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The number of the process.
    pub client: u8,
    /// The resources that it wants, one bit for each.
    pub names: u8,
    /// How much of each.
    pub weight: u8,
    /// How many requests it may start, each with a new id.
    pub requests: u8,
    /// Tasks that wait behind its first one from the beginning.
    pub waiting_tasks: u8,
    /// Tasks that start to wait later.
    pub later_tasks: u8,
    /// Its calls and answers take time, and may get lost. Otherwise they run and are answered at once, and only pushes to it
    /// are late or lost.
    pub slow: bool,
    /// It may crash.
    pub crashes: bool,
    /// It may be stopped for a while.
    pub pauses: bool,
    /// Its callers may give up.
    pub cancels: bool,
    /// Its holder may extend the lease.
    pub extends: bool,
}

impl Plan {
    /// One request, for the first resource only.
    pub const PLAIN: Self = Self {
        client: 0,
        names: 1,
        weight: ALL,
        requests: 1,
        waiting_tasks: 0,
        later_tasks: 0,
        slow: false,
        crashes: false,
        pauses: false,
        cancels: false,
        extends: false,
    };
}

/// One world to search.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its name, for people.
    pub name: &'static str,
    /// The processes.
    pub plans: Vec<Plan>,
    /// How many ticks a lease has.
    pub lease: u8,
    /// How many answers may be lost or late, messages be repeated, waiters be skipped, altogether.
    pub faults: u8,
    /// The store pushes to a client when its claim has ended.
    pub pushes_gone: bool,
    /// The store may take a waiter for unreachable.
    pub skips: bool,
    /// Holders write at the fenced resource.
    pub writes: bool,
    /// The milestones that must be reached.
    pub milestones: Notes,
    /// Which rules are kept.
    pub rules: Rules,
}

impl Setup {
    /// A world of these processes in which nothing is lost.
    pub fn new(name: &'static str, plans: impl IntoIterator<Item = Plan>) -> Self {
        let number = |(client, plan)| Plan { client, ..plan };
        Self {
            name,
            plans: (0..).zip(plans).map(number).collect(),
            lease: 3,
            faults: 0,
            pushes_gone: false,
            skips: false,
            writes: false,
            milestones: Notes::default(),
            rules: Rules::KEPT,
        }
    }

    /// The same world with this many faults.
    #[must_use]
    pub fn faults(self, faults: u8) -> Self {
        Self { faults, ..self }
    }

    /// The same world, where these milestones must be reached.
    #[must_use]
    pub fn reaches(self, milestones: &[Notes]) -> Self {
        let milestones = milestones.iter().fold(Notes::default(), |all, note| all.union(*note));
        Self { milestones, ..self }
    }

    /// The same world, where this milestone must be reached too.
    #[must_use]
    pub fn and_reaches(self, milestone: Notes) -> Self {
        Self { milestones: self.milestones.union(milestone), ..self }
    }

    /// What the claims of a client request.
    pub fn claim_spec(&self, client: usize) -> ClaimSpec {
        let plan = &self.plans[client];
        ClaimSpec { names: plan.names, weight: plan.weight, ttl: self.lease }
    }

    /// The lease that an extension requests: so long that an ordinary renewal would shorten it.
    pub fn extended_lease(&self) -> u8 {
        self.lease + 2
    }
}

/// One request, on a good connection.
pub const PLAIN: Plan = Plan::PLAIN;
/// One request, on a bad connection.
pub const SLOW: Plan = Plan { slow: true, ..Plan::PLAIN };

/// The worlds for every run of the tests: each is searched in a moment.
pub fn small() -> Vec<Setup> {
    vec![
        lost_answers(1),
        hand_off(1),
        stale_writes(),
        local_handoff(),
        run_ends(PLAIN),
        deaths(PLAIN),
        skipping(),
        multi(),
        readers(),
        extending(PLAIN),
    ]
}

/// The worlds of `cargo xtask model`: the same stories with more clients on bad connections.
pub fn large() -> Vec<Setup> {
    vec![
        lost_answers(2),
        hand_off(2),
        stale_writes(),
        local_handoff(),
        run_ends(SLOW),
        deaths(SLOW),
        skipping(),
        skipping_after_loss(),
        multi(),
        readers(),
        extending(SLOW),
        bad_days(),
    ]
}

/// Answers get lost and callers give up.
pub fn lost_answers(requests: u8) -> Setup {
    Setup::new("lost answers", [Plan { requests, cancels: true, ..SLOW }, PLAIN]).faults(1).reaches(&[
        Notes::ENTERED_BY_PUSH,
        Notes::HANDED_AFTER_EXPIRY,
        Notes::LATE_ACQUIRE_REFUSED,
        Notes::TOO_LATE_GIVEN_BACK,
        Notes::SETTLED_FIRST,
    ])
}

/// Late pushes, and leases that ended before their client polled.
pub fn hand_off(requests: u8) -> Setup {
    let setup = Setup::new("hand-off", [Plan { requests, ..SLOW }, Plan { requests: 2, ..PLAIN }]).faults(1);
    let setup = setup.reaches(&[Notes::STALE_PUSH_IGNORED, Notes::ENTERED_BY_PUSH]);
    if requests > 1 { setup.and_reaches(Notes::REJOINED) } else { setup }
}

/// A process is stopped, resumes after its lease has ended, and writes.
pub fn stale_writes() -> Setup {
    let setup =
        Setup::new("stale writes", [Plan { pauses: true, requests: 2, ..PLAIN }, Plan { requests: 2, ..PLAIN }]);
    Setup { writes: true, pushes_gone: true, ..setup }.reaches(&[Notes::STALE_WRITE_REFUSED, Notes::REJOINED])
}

/// Tasks of one process hand the lock off to each other, beside other processes.
pub fn local_handoff() -> Setup {
    Setup::new(
        "local hand-off",
        [PLAIN, Plan { requests: 2, waiting_tasks: 1, ..PLAIN }, Plan { later_tasks: 1, ..PLAIN }],
    )
    .reaches(&[Notes::HANDED_OFF_LOCALLY, Notes::WENT_ON_ALONE, Notes::LEFT_FOR_WAITERS])
}

/// The end of a run of hand-offs is late, or arrives twice.
pub fn run_ends(other: Plan) -> Setup {
    Setup::new("ends of runs", [Plan { later_tasks: 1, ..SLOW }, other]).faults(1).reaches(&[
        Notes::LATE_UNLESS_ALONE_IGNORED,
        Notes::WENT_ON_ALONE,
        Notes::LEFT_FOR_WAITERS,
    ])
}

/// Holder and first waiter die.
pub fn deaths(third: Plan) -> Setup {
    let mortal = Plan { crashes: true, ..PLAIN };
    Setup::new("deaths", [mortal.clone(), mortal, third])
        .reaches(&[Notes::TAKEN_FROM_TWO_DEAD, Notes::HANDED_AFTER_EXPIRY])
}

/// The store takes a waiter for unreachable.
pub fn skipping() -> Setup {
    let setup = Setup::new("skipping", [PLAIN, Plan { requests: 2, ..PLAIN }, PLAIN]).faults(1);
    Setup { skips: true, pushes_gone: true, ..setup }.reaches(&[Notes::SKIPPED, Notes::REJOINED])
}

/// The same, after an answer to that waiter was lost.
pub fn skipping_after_loss() -> Setup {
    let setup = Setup::new("skipping after a loss", [PLAIN, Plan { requests: 2, ..SLOW }]).faults(2);
    Setup { skips: true, ..setup }.reaches(&[Notes::SKIPPED, Notes::REJOINED, Notes::LATE_ACQUIRE_REFUSED])
}

/// Two claims on two resources together, beside claims on one of them. In which order a caller names them makes no
/// difference: a claim is one set of names, and joins all its queues in one verb.
pub fn multi() -> Setup {
    let both = Plan { names: 3, ..PLAIN };
    Setup::new("multi", [Plan { names: 2, ..PLAIN }, both.clone(), PLAIN, both])
        .reaches(&[Notes::MULTI_ENTERED_AFTER_WAIT])
}

/// Readers and a writer.
pub fn readers() -> Setup {
    let reader = Plan { weight: 1, ..PLAIN };
    Setup::new("readers", [reader.clone(), PLAIN, reader]).reaches(&[Notes::SHARED])
}

/// A holder extends its lease while a renewal is in flight.
pub fn extending(other: Plan) -> Setup {
    Setup::new("extending", [Plan { extends: true, ..SLOW }, other]).faults(1)
}

/// Two processes on bad connections: one is stopped for a while, the other dies.
pub fn bad_days() -> Setup {
    let setup = Setup::new("bad days", [Plan { pauses: true, ..SLOW }, Plan { crashes: true, ..SLOW }]);
    Setup { pushes_gone: true, ..setup.faults(1) }.reaches(&[
        Notes::ENTERED_BY_PUSH,
        Notes::HANDED_AFTER_EXPIRY,
        Notes::LATE_ACQUIRE_REFUSED,
        Notes::TOO_LATE_GIVEN_BACK,
    ])
}
