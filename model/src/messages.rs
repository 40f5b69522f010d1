//! The messages between clients and store. Numbers are bytes: a model that needs more is too large to search.

/// A claim's id: its client, and a serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// The client.
    pub client: u8,
    /// Counted from 1.
    pub serial: u8,
}

/// Consecutive tickets of one claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// The lowest ticket.
    pub first: u8,
    /// How many tickets.
    pub count: u8,
}

impl Block {
    /// The highest ticket.
    pub fn last(self) -> u8 {
        self.first + self.count.max(1) - 1
    }

    /// Whether this ticket is one of the block.
    pub fn contains(self, ticket: u8) -> bool {
        (self.first..=self.last()).contains(&ticket)
    }
}

/// A verb of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Join the queue; or, if the claim is in it, renew, and answer with its standing.
    Acquire {
        /// How many tickets to draw.
        block: u8,
        /// The tickets are above this one.
        floor: u8,
    },
    /// Renew, never join.
    Renew {
        /// For this many ticks.
        ttl: u8,
        /// Sent by a request that waits.
        waits: bool,
    },
    /// Leave.
    Done,
    /// Leave, and leave a tombstone.
    Unknown,
    /// Leave if another claim waits, else go on with fresh tickets.
    UnlessAlone {
        /// How many tickets to draw.
        block: u8,
        /// The tickets are above this one, the largest that the client has seen.
        floor: u8,
    },
}

impl Verb {
    /// Whether it is a release, which a client repeats until it has run.
    pub fn is_release(self) -> bool {
        matches!(self, Self::Done | Self::Unknown)
    }
}

/// A verb in flight to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    /// The claim that it is about.
    pub id: Id,
    /// The verb.
    pub verb: Verb,
    /// Ticks since it was sent.
    pub age: u8,
}

/// The standing of a claim, in answer to any verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// It holds, with these tickets.
    Held(Block),
    /// It waits.
    Waiting {
        /// Its ticket.
        ticket: u8,
        /// How many claims are ahead.
        position: u8,
        /// When all leases ahead will have ended.
        recheck_in: u8,
    },
    /// It is not in the queue.
    Gone,
}

/// A push from the store to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Push {
    /// This claim holds now.
    Held {
        /// The claim.
        id: Id,
        /// Its ticket in the queue.
        ticket: u8,
        /// Its fencing tokens.
        block: Block,
    },
    /// This claim is gone; a hint to poll.
    Gone {
        /// The claim.
        id: Id,
    },
}

impl Push {
    /// The claim that it is about.
    pub fn id(self) -> Id {
        match self {
            Self::Held { id, .. } | Self::Gone { id } => id,
        }
    }
}
