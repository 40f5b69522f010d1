-- Format 1. A newer one is refused; see `file.rs`.
-- Moments are nanoseconds since the boot that `state.boot` names, as the initial time namespace counts them.
-- Every row has an end, and goes at its end.

-- One row, read and checked by every verb.
CREATE TABLE state (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    boot       TEXT    NOT NULL,  -- whose moments these are
    wall       INTEGER NOT NULL,  -- what to add to a moment for nanoseconds since 1970, when this boot was first seen
    ticket     INTEGER NOT NULL,  -- the highest one given
    ends       INTEGER NOT NULL,  -- nothing below has its end before this moment
    acquired   INTEGER NOT NULL DEFAULT 0,
    released   INTEGER NOT NULL DEFAULT 0,
    contended  INTEGER NOT NULL DEFAULT 0,
    lost       INTEGER NOT NULL DEFAULT 0
);

-- One row for each claim in each line it stands in. What belongs to the claim as a whole is the same in all of its rows.
CREATE TABLE entries (
    name       TEXT    NOT NULL,
    ticket     INTEGER NOT NULL,  -- the first of its block: its place in line
    count      INTEGER NOT NULL,  -- how many tickets the block has
    owner      BLOB    NOT NULL,  -- the hash of the claim's id
    home       INTEGER NOT NULL,  -- where its client can be reached, and seen to be dead
    client     INTEGER NOT NULL,
    capacity   INTEGER NOT NULL,
    weight     INTEGER NOT NULL,
    fits       INTEGER NOT NULL,  -- whether it fits in this line
    missing    INTEGER NOT NULL,  -- in how many of its lines it does not; it holds when there are none
    expires    INTEGER NOT NULL,
    since      INTEGER NOT NULL,  -- when it joined, or when it began to hold
    ttl        INTEGER NOT NULL,
    state      INTEGER NOT NULL,  -- 1 detached, 2 lingers, 4 broken
    note       BLOB    NOT NULL,
    names      BLOB,              -- all names of a claim that has several
    PRIMARY KEY (name, ticket)
) WITHOUT ROWID;

-- Ids that may not come back until then.
CREATE TABLE marks (
    owner      BLOB    PRIMARY KEY,
    why        INTEGER NOT NULL,
    until      INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX marks_until ON marks (until);

CREATE TABLE seals (
    name       TEXT    PRIMARY KEY,
    value      BLOB    NOT NULL,
    until      INTEGER NOT NULL
) WITHOUT ROWID;
-- There may be a day's worth of them, and every few milliseconds one ends.
CREATE INDEX seals_until ON seals (until);

-- Who wants to hear about which lines.
CREATE TABLE watchers (
    home       INTEGER NOT NULL,
    beginning  TEXT    NOT NULL,
    PRIMARY KEY (home, beginning)
) WITHOUT ROWID;
