-- Format 2. A file of any other format is refused; see `file.rs`.
-- Moments are nanoseconds since the boot that `state.boot` names, as the initial time namespace counts them.
-- Every row of `entries`, `tombstones` and `seals` has an end, and is deleted at its end.

-- One row. Every transaction reads it and checks the boot.
CREATE TABLE state (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    boot       TEXT    NOT NULL,  -- the boot whose moments are stored
    wall       INTEGER NOT NULL,  -- what to add to a moment for nanoseconds since 1970, when this boot was first seen
    ticket     INTEGER NOT NULL,  -- the highest ticket drawn
    next_end   INTEGER NOT NULL,  -- no row below has its end before this moment
    acquired   INTEGER NOT NULL DEFAULT 0,
    released   INTEGER NOT NULL DEFAULT 0,
    contended  INTEGER NOT NULL DEFAULT 0,
    lost       INTEGER NOT NULL DEFAULT 0
);

-- The queues: one row for each claim in each of its queues. Columns about the claim as a whole are equal in all its rows.
CREATE TABLE entries (
    name       TEXT    NOT NULL,
    ticket     INTEGER NOT NULL,  -- the first of its block: the order of the queue
    count      INTEGER NOT NULL,  -- how many tickets the block has
    owner      BLOB    NOT NULL,  -- the hash of the claim's id
    process    INTEGER NOT NULL,  -- the process of its client: the id of its liveness pipe and socket
    client     INTEGER NOT NULL,
    capacity   INTEGER NOT NULL,
    weight     INTEGER NOT NULL,
    fits       INTEGER NOT NULL,  -- whether the claim fits in this queue
    missing    INTEGER NOT NULL,  -- in how many of its queues the claim does not fit; it holds at zero
    expires    INTEGER NOT NULL,
    since      INTEGER NOT NULL,  -- when the claim joined, or when it began to hold
    ttl        INTEGER NOT NULL,
    flags      INTEGER NOT NULL,  -- 1 detached, 2 lingers, 4 broken
    note       BLOB    NOT NULL,
    names      BLOB,              -- all names of a claim that has several
    PRIMARY KEY (name, ticket)
) WITHOUT ROWID;

-- Claim ids that may not come back until then.
CREATE TABLE tombstones (
    owner      BLOB    PRIMARY KEY,
    why        INTEGER NOT NULL,
    until      INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX tombstones_until ON tombstones (until);

CREATE TABLE seals (
    name       TEXT    PRIMARY KEY,
    value      BLOB    NOT NULL,
    until      INTEGER NOT NULL
) WITHOUT ROWID;
-- The seals of a whole day may be kept, and one expires every few milliseconds: the index finds it without a scan.
CREATE INDEX seals_until ON seals (until);

-- Processes that are notified of changes to queues whose name begins with the prefix.
CREATE TABLE watchers (
    process    INTEGER NOT NULL,
    prefix     TEXT    NOT NULL,
    PRIMARY KEY (process, prefix)
) WITHOUT ROWID;
