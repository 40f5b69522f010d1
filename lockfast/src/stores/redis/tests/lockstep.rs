//! Compares Redis with a table while leases expire: random verbs, between which a script (`pass_time.lua`) shifts all times in
//! the database. At the end, every block of the scripts must have been entered.
//!
//! The real time that passes in a step is taken back by the next shift, which rounds all times to multiples of [`UNIT`]. So real
//! time changes an outcome only if one step takes half a [`UNIT`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;

use crate::Redis;
use crate::claim::{Claim, ClientId, Demand};
use crate::conformance::lockstep::{self, Pace, SEED_VAR, Trouble};
use crate::conformance::{self, Subject, Time};
use crate::name::Name;
use crate::store::{Busy, Change, Lease, Leaving, Resource, Scope, Standing, Store};

use super::super::encode::MIN_TOMBSTONE;
use super::coverage::{self, BLOCK_COUNTS_KEY};

/// All leases are multiples of this. No tombstone in Redis is shorter, so that tombstones last as long there as in the table.
const UNIT: Duration = MIN_TOMBSTONE;
/// How far times in Redis and in the table may differ: less than half a [`UNIT`].
const TOLERANCE: Duration = Duration::from_secs(4);
/// How many verbs one history has.
const STEPS: u32 = 60;

/// How many threads run histories at the same time, each in its own database.
const THREADS: u64 = 4;
/// How many histories are the same in every run: they and the rare cases below enter every block.
const FIXED_HISTORIES: u64 = 200;
/// How many histories have a new seed in every run.
const RANDOM_HISTORIES: u64 = 100;

/// Blocks that no history enters: the file, the line that begins the block, and the reason.
const UNENTERED: &[(&str, &str, &str)] = &[
    ("acquire", "if not settled then", OTHER_PROGRAM),
    ("acquire", "if not drawn then", "the counter of tickets cannot be raised: redis_trouble/full.rs"),
    ("acquire", "elseif not rule.is_whole(stored) then", OTHER_PROGRAM),
    ("acquire", "elseif kind == 'wrong_type' or kind == 'newer' then", OTHER_PROGRAM),
    ("claims", "if type(value) == 'table' then", OTHER_PROGRAM),
    ("claims", "if string.find(value.err, 'WRONGTYPE', 1, true) then", OTHER_PROGRAM),
    ("claims", "if not owner then", OTHER_PROGRAM),
    ("claims", "if not is_read or type(living) ~= 'table' or living.v ~= 1 then", OTHER_PROGRAM),
    ("listing", "function listing.name_of(member)", "for list_names only"),
    ("listing", "if string.find(name, '\\0', 1, true) then", "for list_names only"),
    ("inspect_each", "elseif kind and kind ~= '@kind.readers@' then", OTHER_PROGRAM),
    ("reader_marker", "if rule.read_key(want.key) ~= '@kind.readers@' then", OTHER_PROGRAM),
    ("release", "if not done and rule.is_of_a_replica(reply) then", REPLICA),
    (
        "renew",
        "if lease > 0 and not (supports_gt and call('PEXPIREAT', key, expires_at, 'GT') == 1) and call('PTTL', key) < lease then",
        "before Redis 7, or if the clock goes on within the script: redis_trouble/forgetting.rs",
    ),
    ("renew_each", "elseif not rule.is_whole(stored) then", OTHER_PROGRAM),
    ("renew_each", "if is_replica then", REPLICA),
    ("rule", "if not done and requested[want.key] then", OTHER_PROGRAM),
    ("rule", "if failure then", OTHER_PROGRAM),
    ("rule", "elseif kind and kind ~= '@kind.readers@' then", OTHER_PROGRAM),
    ("rule", "if kind ~= '@kind.claim@' or not rule.is_text_of(value, claim) then", OTHER_PROGRAM),
    ("rule", "if not redis.call('ZSCORE', rule.queue_of(want), rule.entry_of(claim, want)) then", OTHER_PROGRAM),
    ("rule", "if claim.held and rule.is_reader(want) and kind ~= '@kind.readers@' and kind ~= nil then", OTHER_PROGRAM),
    ("rule", "function rule.message_of(failure)", OTHER_PROGRAM),
    ("rule", "function rule.is_of_a_replica(failure)", OTHER_PROGRAM),
];
const OTHER_PROGRAM: &str = "another program changed or deleted a key: redis_queues.rs, redis_trouble/meddling.rs";
const REPLICA: &str = "the server became a replica: redis_queues.rs";

/// The files of the scripts that decide about locks.
const FILES: &[(&str, &str)] = &[
    ("acquire", include_str!("../lua/acquire.lua")),
    ("acquire_alone", include_str!("../lua/acquire_alone.lua")),
    ("acquire_several", include_str!("../lua/acquire_several.lua")),
    ("claims", include_str!("../lua/claims.lua")),
    ("demands", include_str!("../lua/demands.lua")),
    ("listing", include_str!("../lua/listing.lua")),
    ("inspect_each", include_str!("../lua/inspect_each.lua")),
    ("queue", include_str!("../lua/queue.lua")),
    ("reader_marker", include_str!("../lua/reader_marker.lua")),
    ("release", include_str!("../lua/release.lua")),
    ("release_alone", include_str!("../lua/release_alone.lua")),
    ("release_several", include_str!("../lua/release_several.lua")),
    ("renew", include_str!("../lua/renew.lua")),
    ("renew_each", include_str!("../lua/renew_each.lua")),
    ("rule", include_str!("../lua/rule.lua")),
];

/// One database of a server.
#[derive(Clone)]
struct Database {
    url: String,
    admin: Arc<Mutex<redis::Connection>>,
}

impl Database {
    fn of(server: &servers::Redis, number: u64) -> Self {
        let url = format!("{}/{number}", server.url());
        let admin = redis::Client::open(url.as_str()).unwrap().get_connection().unwrap();
        Self { url, admin: Arc::new(Mutex::new(admin)) }
    }

    fn run<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> T {
        command.query(&mut *self.admin.lock().unwrap()).unwrap()
    }

    /// The label of each block, and how often it was entered.
    fn block_counts(&self) -> BTreeMap<String, u64> {
        self.run(redis::cmd("HGETALL").arg(BLOCK_COUNTS_KEY))
    }
}

#[async_trait]
impl Subject for Database {
    async fn open(&self) -> Arc<dyn Store> {
        Redis::open(&self.url).await.unwrap()
    }

    async fn advance(&self, span: Duration) {
        let mut command = redis::cmd("EVAL");
        command.arg(include_str!("pass_time.lua")).arg(0).arg(span.as_millis() as u64).arg(UNIT.as_millis() as u64);
        self.run::<()>(&command);
    }

    fn time(&self) -> Time {
        Time::Set
    }
}

#[async_trait]
impl Trouble for Database {
    fn disturb(&self, rng: &mut fastrand::Rng) {
        match rng.u32(0..100) {
            0..2 => self.run::<()>(redis::cmd("DEL").arg("lockfast:tickets")),
            2 => {
                self.run::<()>(redis::cmd("SET").arg("lockfast:watched").arg(1).arg("PX").arg(UNIT.as_millis() as u64))
            }
            3 => self.run::<()>(redis::cmd("SCRIPT").arg("FLUSH")),
            _ => {}
        }
    }

    async fn until_subscribed(&self, client: ClientId, subscribed: bool) {
        let mut command = redis::cmd("PUBSUB");
        command.arg("NUMSUB").arg(format!("lockfast:push:{client}"));
        while (self.run::<(String, u64)>(&command).1 > 0) != subscribed {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The plain key exists for as long as the longest lease of the holders: other programs see them by it.
    fn fault_behind(&self, shown: &Resource) -> Option<String> {
        let holders = shown.queue.iter().filter(|entry| entry.holds && shown.capacity == Demand::ALL);
        let longest = holders.map(|entry| entry.expires_in).max()?;
        let left: i64 = self.run(redis::cmd("PTTL").arg(shown.name.as_str()));
        let is_seen = u64::try_from(left).is_ok_and(|left| Duration::from_millis(left) + TOLERANCE >= longest);
        (!is_seen).then(|| format!("the key has {left} ms left"))
    }
}

#[test]
fn random_verbs_are_answered_as_a_table_would_while_time_passes() {
    let server = servers::Redis::start();
    let given = lockstep::given_seed();
    let first_random = fastrand::u64(FIXED_HISTORIES..u64::MAX / 2);
    let all_seeds = || (0..FIXED_HISTORIES).chain(first_random..first_random + RANDOM_HISTORIES).collect::<Vec<u64>>();
    let seeds = given.map_or_else(all_seeds, |seed| vec![seed]);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (server, seeds) = (&server, &seeds);
            scope.spawn(move || {
                let seeds = seeds.iter().copied().skip(thread as usize).step_by(THREADS as usize);
                let database = Database::of(server, thread);
                if thread % 2 == 1 {
                    // With two entries a run, queues are inspected in pieces.
                    database.run::<()>(redis::cmd("SET").arg("lockfast:test:max_shown").arg(2));
                }
                let subject = database.clone();
                conformance::run(async { subject }, async |place| {
                    let trouble: Option<&dyn Trouble> = Some(&database);
                    let pace = Pace { steps: STEPS, unit: Some(UNIT), tolerance: TOLERANCE, trouble };
                    lockstep::run(place, pace, seeds).await;
                });
            });
        }
    });
    let rare = Database::of(&server, THREADS);
    conformance::run(async { rare.clone() }, async |_| {
        a_reader_marker_without_readers_keeps_no_writer_out(&rare).await;
        a_sweep_that_ends_early_is_continued(&rare).await;
    });
    if given.is_none() {
        assert_every_block_was_entered(&server);
    } else {
        eprintln!("with {SEED_VAR} set, blocks are not counted");
    }
}

fn claim(client: u64, demand: Demand, ttl: Duration) -> Arc<Claim> {
    Arc::new(Claim { client: ClientId(client), ..Claim::new(demand.into(), ttl).unwrap() })
}

async fn renew(store: &Redis, claim: &Arc<Claim>) -> Standing {
    store.renew(&[Lease { claim: Arc::clone(claim), ttl: claim.ttl }]).await.unwrap().remove(0)
}

/// A sweep ends when the eviction budget of a run is exhausted. The last waiter is notified, and its next request continues.
async fn a_sweep_that_ends_early_is_continued(database: &Database) {
    database.run::<()>(redis::cmd("SET").arg("lockfast:test:max_evicted").arg(3));
    let store = Redis::open(&database.url).await.unwrap();
    let waiter = |client, ttl| claim(client, Demand::exclusive(Name::new("crowded").unwrap()), ttl);
    let mut pushes = store.watch(Scope::Client(ClientId(1)));
    let last = waiter(1, 3 * UNIT);
    for _ in 0..5 {
        store.acquire(&waiter(2, UNIT), Busy::Wait).await.unwrap();
    }
    store.acquire(&last, Busy::Wait).await.unwrap();
    database.advance(UNIT).await;
    assert!(matches!(renew(&store, &last).await, Standing::Waiting { .. }), "the budget is exhausted");
    assert_eq!(pushes.next().await, Some(Change::Gone(last.id.hash())));
    assert!(matches!(renew(&store, &last).await, Standing::Held(_)));
}

/// The reader marker lasts as long as the longest lease of a reader. If the reader with that lease has left, the marker outlives
/// the other readers.
async fn a_reader_marker_without_readers_keeps_no_writer_out(database: &Database) {
    let store = Redis::open(&database.url).await.unwrap();
    let name = || Name::new("read").unwrap();
    let reader = || claim(3, Demand::shared(name()), 3 * UNIT);
    let (first, second, writer) = (reader(), reader(), claim(3, Demand::exclusive(name()), 9 * UNIT));
    store.acquire(&first, Busy::Wait).await.unwrap();
    database.advance(UNIT).await;
    store.acquire(&second, Busy::Wait).await.unwrap();
    store.acquire(&writer, Busy::Wait).await.unwrap();
    store.release(&[Leaving::Done(second)]).await.unwrap();
    database.advance(2 * UNIT).await;
    assert!(database.run::<bool>(redis::cmd("EXISTS").arg("read")), "the marker is there");
    assert!(matches!(renew(&store, &writer).await, Standing::Held(_)));
}

fn assert_every_block_was_entered(server: &servers::Redis) {
    let mut entered = BTreeMap::<String, u64>::new();
    for database in 0..=THREADS {
        for (label, count) in Database::of(server, database).block_counts() {
            *entered.entry(label).or_default() += count;
        }
    }
    let mut missing = BTreeMap::new();
    for (file, text) in FILES {
        let labels = coverage::block_labels(file, text);
        let is_allowed = |line: &str| UNENTERED.iter().any(|(of, allowed, _)| of == file && *allowed == line);
        let is_missing = |(label, line): &(&String, &String)| !entered.contains_key(*label) && !is_allowed(line);
        missing.extend(labels.iter().filter(is_missing).map(|(label, line)| (label.clone(), line.clone())));
        for (_, allowed, why) in UNENTERED.iter().filter(|(of, ..)| of == file) {
            assert!(labels.values().any(|line| line == allowed), "{file} has no block {allowed:?} ({why})");
        }
    }
    assert!(missing.is_empty(), "no history entered: {missing:#?}");
}
