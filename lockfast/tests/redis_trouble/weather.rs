//! The users' half of the suite through a bad network on top of a real server.

#[path = "../fixtures/in_redis.rs"]
mod in_redis;

use std::time::Duration;

use lockfast::conformance::Faults;

use in_redis::InRedis;

/// What runs late runs long after it was given up: behind the repeated call, and behind the release.
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
