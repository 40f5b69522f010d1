//! A plan: everything that is decided before a world begins. The same plan always makes the same world, and a plan with
//! parts left out is still a plan, so a failing one can be shrunk.

use std::fmt;
use std::time::Duration;

use crate::clock::{Skew, Time};

/// The processes, callers and faults of a world.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where it came from; jitter and delays follow from it too.
    pub seed: u64,
    /// Callers begin no new acquisition after this.
    pub ends: Time,
    /// The capacity of each name: that of a mutex or reader-writer lock, or a number of permits.
    pub names: Vec<u32>,
    /// The store's clock.
    pub store: Skew,
    /// Whether the store names the next holder of the same client in its answer to a release.
    pub names_next_holder: bool,
    /// The usual delay of a message, one way. Each takes half as long to one and a half times as long.
    pub delay: Duration,
    /// The processes.
    pub clients: Vec<ClientPlan>,
    /// Their tasks.
    pub callers: Vec<CallerPlan>,
    /// The faults.
    pub faults: Vec<FaultPlan>,
}

/// One process.
#[derive(Clone, Debug)]
pub struct ClientPlan {
    /// Its number; it stays the same when others are left out.
    pub id: u32,
    /// Its clock.
    pub skew: Skew,
}

/// One task, which acquires, holds and gives back, again and again.
#[derive(Clone, Debug)]
pub struct CallerPlan {
    /// Its number; it stays the same when others are left out.
    pub id: u32,
    /// Its process.
    pub client: u32,
    /// When it begins.
    pub begins: Time,
    /// How often it acquires.
    pub rounds: u32,
    /// How long it rests in between.
    pub rest: Duration,
    /// Which names, and how much of each.
    pub wants: Vec<(usize, u32)>,
    /// How it asks.
    pub ask: Ask,
    /// The lease.
    pub ttl: Duration,
    /// How often it is renewed, if it is.
    pub renew_every: Option<Duration>,
    /// Whether tasks of its process may hand it the lock.
    pub hands_off: bool,
    /// A release before this lingers.
    pub hold_at_least: Option<Duration>,
    /// The hold is lost after this.
    pub hold_at_most: Option<Duration>,
    /// How long it works under the lock.
    pub works: Duration,
    /// It extends the lease by this much, half-way through its work.
    pub extends: Option<Duration>,
    /// How it gives back.
    pub ends: End,
    /// Whether some of its futures are dropped.
    pub cancel: Option<Cancel>,
}

/// How a lock is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// For as long as it takes.
    Wait,
    /// For at most this long.
    Within(Duration),
    /// Now or not at all.
    Try,
}

/// How a hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Released, and the answer awaited.
    Release,
    /// The guard is dropped.
    Drop,
    /// Sealed for this long.
    Seal(Duration),
}

/// Which futures of a caller are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// Those of every such round.
    pub every: u32,
    /// When.
    pub at: CancelAt,
}

/// When a future is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelAt {
    /// This long after it asked for the lock, unless it has it by then.
    AfterAsking(Duration),
    /// When it is woken, instead of being polled.
    AtWake,
    /// This long after it began to release.
    AfterRelease(Duration),
}

/// A fault and its time.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    /// When.
    pub at: Time,
    /// The fault.
    pub kind: Fault,
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The next messages of one connection.
    Message {
        /// Of which process.
        client: u32,
        /// On which connection.
        link: Link,
        /// The fault of each message.
        message: Message,
        /// How many.
        count: u32,
    },
    /// Connections are closed, and stay closed for a while.
    Disconnect {
        /// Of which process.
        client: u32,
        /// Which of them.
        links: Vec<Link>,
        /// For how long.
        lasts: Duration,
    },
    /// Messages vanish without an error.
    BlackHole {
        /// Of which process.
        client: u32,
        /// On which connection.
        link: Link,
        /// Those to the store.
        requests: bool,
        /// Those from the store.
        answers: bool,
        /// For how long.
        lasts: Duration,
    },
    /// A process stands still.
    Pause {
        /// Which.
        client: u32,
        /// For how long.
        lasts: Duration,
    },
    /// A process is killed.
    Kill {
        /// Which.
        client: u32,
        /// After how long another process replaces it.
        replaced: Option<Duration>,
    },
    /// The store ends and begins again.
    Restart {
        /// How long it is away.
        lasts: Duration,
        /// Whether it is empty afterwards.
        loses_data: bool,
        /// By how much its time of day, which seeds its tickets, is behind then: another server has replaced it.
        behind: Duration,
    },
    /// The store does nothing for a while.
    Stall {
        /// For how long.
        lasts: Duration,
    },
    /// An operator breaks a claim.
    Break {
        /// On which name.
        name: usize,
        /// Its position in the queue.
        position: usize,
        /// Without waiting for the holder.
        at_once: bool,
    },
    /// A task is not polled for a while, or never again.
    Doze {
        /// Which.
        caller: u32,
        /// For how long.
        lasts: Option<Duration>,
    },
}

/// The connections of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// That of its callers.
    Callers,
    /// That of its keeper.
    Keeper,
    /// That of its pushes.
    Pushes,
}

/// All connections of a process.
pub const LINKS: [Link; 3] = [Link::Callers, Link::Keeper, Link::Pushes];

/// A fault of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Message {
    LoseRequest,
    LoseAnswer,
    /// The request runs twice, the second time this much later.
    Duplicate(Duration),
    /// The request is held up for this long, and others on the same connection are not.
    Overtaken(Duration),
    LateRequest(Duration),
    LateAnswer(Duration),
    LosePush,
    LatePush(Duration),
    DuplicatePush(Duration),
}

impl Plan {
    /// The longest lease, hold, pause for a seal and so on: after this much quiet nothing may be left.
    pub(crate) fn longest_lease(&self) -> Duration {
        let spans = self.callers.iter().flat_map(|caller| {
            let seal = if let End::Seal(keep) = caller.ends { Some(keep) } else { None };
            [Some(caller.ttl), caller.extends.map(|span| span * 2), caller.hold_at_least, seal]
        });
        spans.flatten().max().unwrap_or_default()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, ends, names, store, names_next_holder, delay, .. } = self;
        writeln!(
            f,
            "seed {seed}, no acquisition begins after {ends:?}, {delay:?} one way, names_next_holder: {names_next_holder}"
        )?;
        writeln!(f, "names with these capacities: {names:?}; the store's clock: {store:?}")?;
        self.clients.iter().try_for_each(|client| writeln!(f, "client {}: {:?}", client.id, client.skew))?;
        self.callers.iter().try_for_each(|caller| writeln!(f, "{caller}"))?;
        self.faults.iter().try_for_each(|fault| writeln!(f, "at {:?}: {:?}", fault.at, fault.kind))
    }
}

impl fmt::Display for CallerPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, client, begins, rounds, rest, wants, ask, ttl, renew_every, works, ends, .. } = self;
        write!(f, "caller {id} of client {client}, from {begins:?}, {rounds} times, resting {rest:?}: {ask:?} ")?;
        for (name, weight) in wants {
            write!(f, "{weight} of n{name}, ")?;
        }
        write!(f, "ttl {ttl:?}, renewed every {renew_every:?}, works {works:?}, then {ends:?}")?;
        for (what, span) in
            [("hold_at_least", self.hold_at_least), ("hold_at_most", self.hold_at_most), ("extends by", self.extends)]
        {
            if let Some(span) = span {
                write!(f, ", {what} {span:?}")?;
            }
        }
        if self.hands_off {
            f.write_str(", hands off")?;
        }
        self.cancel.map_or(Ok(()), |cancel| write!(f, ", {cancel:?}"))
    }
}
