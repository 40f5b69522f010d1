//! The users' half of the suite over a real server, with faults between the client and the store.

#[path = "../fixtures/in_redis.rs"]
mod in_redis;

use std::time::Duration;

use lockfast::conformance::Faults;

use in_redis::InRedis;

/// A late call runs long after it was given up: after the repeated call, and after the release.
const LATE_DAY: Faults = Faults {
    delayed: 0.2,
    delay: Duration::from_millis(200),
    unanswered: 0.1,
    late: 0.1,
    repeated: 0.2,
    unpushed: 0.2,
};

const DAYS: &[(Faults, u64)] = &[(Faults::BAD_DAY, 11), (LATE_DAY, 12)];

lockfast::conformance_of_users!(chaos, InRedis::new(), DAYS);
