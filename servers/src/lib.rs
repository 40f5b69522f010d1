//! Real servers for tests and benchmarks: the one place that starts a Redis server and prepares it. Each server has a free
//! port of the loopback and a directory of its own. It ends with the process that started it, however that process ends.
//! A server program that is not installed fails the test: no test is skipped for it.

mod certificates;
mod redis;

pub use certificates::Certificates;
pub use redis::{PROGRAM as REDIS_PROGRAM, Redis, RedisOptions};
