//! Which worlds are searched. Each is a story: a few clients, what they want, and what may go wrong. A world in which
//! everything may go wrong at once is too large, so each story has its own few.

use crate::notes::Notes;
use crate::rules::Rules;
use crate::table::{ALL, Wish};

/// What one process may do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its number.
    pub client: u8,
    /// What it wants, one bit for each resource.
    pub names: u8,
    /// How much of each.
    pub weight: u8,
    /// How often it may ask with a new id.
    pub asks: u8,
    /// Tasks that wait behind its first from the beginning.
    pub behind: u8,
    /// Tasks that come later.
    pub to_come: u8,
    /// It may crash.
    pub crashes: bool,
    /// It may be stopped for a while.
    pub pauses: bool,
    /// Its callers may give up.
    pub cancels: bool,
    /// Its holder may ask for more time.
    pub extends: bool,
}

impl Plan {
    /// Asks once, for the first resource alone.
    pub const PLAIN: Self = Self {
        client: 0,
        names: 1,
        weight: ALL,
        asks: 1,
        behind: 0,
        to_come: 0,
        crashes: false,
        pauses: false,
        cancels: false,
        extends: false,
    };
}

/// One world to search.
#[derive(Clone, Debug)]
pub struct Setup {
    /// For people.
    pub name: &'static str,
    /// The processes.
    pub plans: Vec<Plan>,
    /// How many ticks a lease has.
    pub lease: u8,
    /// How many answers may be lost or late, messages be repeated, waiters be passed over, altogether.
    pub faults: u8,
    /// Clients are told when a claim of theirs has ended.
    pub tells_gone: bool,
    /// The store may take a waiter for unreachable.
    pub skips: bool,
    /// What must be reached.
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
            tells_gone: false,
            skips: false,
            milestones: Notes::default(),
            rules: Rules::KEPT,
        }
    }

    /// The same with so many faults.
    #[must_use]
    pub fn faults(self, faults: u8) -> Self {
        Self { faults, ..self }
    }

    /// The same, where these must be reached.
    #[must_use]
    pub fn reaches(self, milestones: &[Notes]) -> Self {
        let milestones = milestones.iter().fold(Notes::default(), |all, note| all.and(*note));
        Self { milestones, ..self }
    }

    /// What a client's claims want.
    pub fn wish(&self, client: usize) -> Wish {
        let plan = &self.plans[client];
        Wish { names: plan.names, weight: plan.weight, ttl: self.lease }
    }

    /// What an extension asks for.
    pub fn longer(&self) -> u8 {
        self.lease + 2
    }
}

const P: Plan = Plan::PLAIN;

/// Small worlds, for every run of the tests. Each rule is needed in one of them.
pub fn small() -> Vec<Setup> {
    vec![lost_answers(), hand_over(), turns(), late_turn_end(), deaths(), skipping(), multi(), readers(), extending()]
}

/// Answers get lost, callers give up, a process stops for a while.
pub fn lost_answers() -> Setup {
    Setup::new("lost answers", [Plan { asks: 2, cancels: true, ..P }, Plan { pauses: true, ..P }]).faults(1).reaches(&[
        Notes::ENTERED_BY_PUSH,
        Notes::HANDED_AFTER_EXPIRY,
        Notes::LATE_ACQUIRE_REFUSED,
        Notes::TOO_LATE_GIVEN_BACK,
        Notes::SETTLED_FIRST,
    ])
}

/// Late pushes, claims that ran out while nobody looked, holders that wake up after their time and write.
pub fn hand_over() -> Setup {
    Setup::new("hand-over", [Plan { asks: 2, ..P }, Plan { asks: 2, ..P }]).faults(1).reaches(&[
        Notes::REJOINED,
        Notes::STALE_PUSH_IGNORED,
        Notes::STALE_WRITE_REFUSED,
    ])
}

/// Tasks of one process pass the lock on, beside another process.
pub fn turns() -> Setup {
    let leader = Plan { asks: 2, behind: 1, ..P };
    Setup::new("turns", [P, leader, Plan { to_come: 1, ..P }]).reaches(&[
        Notes::PASSED_LOCALLY,
        Notes::WENT_ON_ALONE,
        Notes::LEFT_TO_OTHERS,
    ])
}

/// The end of a turn arrives twice.
pub fn late_turn_end() -> Setup {
    let leader = Plan { to_come: 1, ..P };
    Setup::new("late end of a turn", [leader, P]).faults(1).reaches(&[Notes::LATE_TURN_END_IGNORED])
}

/// Holder and first waiter die.
pub fn deaths() -> Setup {
    let mortal = Plan { crashes: true, ..P };
    Setup::new("deaths", [mortal.clone(), mortal, P]).reaches(&[Notes::TAKEN_FROM_TWO_DEAD, Notes::HANDED_AFTER_EXPIRY])
}

/// The store takes waiters for unreachable.
pub fn skipping() -> Setup {
    let setup = Setup::new("skipping", [P, Plan { asks: 2, ..P }, P]).faults(1);
    Setup { skips: true, ..setup }.reaches(&[Notes::SKIPPED, Notes::REJOINED])
}

/// Two resources taken together, beside claims on one of them.
pub fn multi() -> Setup {
    let both = Plan { names: 3, ..P };
    Setup::new("multi", [Plan { names: 2, ..P }, both, P]).reaches(&[Notes::MULTI_ENTERED_AFTER_WAIT])
}

/// Readers and a writer.
pub fn readers() -> Setup {
    let reader = Plan { weight: 1, ..P };
    Setup::new("readers", [reader.clone(), P, reader]).reaches(&[Notes::SHARED])
}

/// A holder asks for more time while a renewal is on its way.
pub fn extending() -> Setup {
    Setup::new("extending", [Plan { extends: true, ..P }, P]).faults(1)
}
