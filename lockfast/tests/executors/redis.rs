//! The store in Redis, on a real server that all cases share.

#[path = "../fixtures/in_redis.rs"]
mod in_redis;

use in_redis::InRedis;

lockfast::conformance_of_executors!(executors, InRedis::new());
