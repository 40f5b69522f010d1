//! The suite over a real Redis server, which all cases share.

#[path = "fixtures/in_redis.rs"]
mod in_redis;

use in_redis::InRedis;

lockfast::conformance!(redis, InRedis::new());
