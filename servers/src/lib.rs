//! Real servers for tests and benchmarks. Each is started on a free port of the loopback with a directory of its own, and
//! ends with the process that started it, however that ends. A server that is missing fails the test: nothing is skipped.

mod certificates;
mod redis;

pub use certificates::Certificates;
pub use redis::{PROGRAM as REDIS_PROGRAM, Redis, RedisOptions};
