//! Measured comparisons: `cargo xtask bench NAME`. Figures are medians of interleaved rounds. Ratios within one run carry over
//! to other machines better than absolute figures.
#![allow(clippy::print_stdout, reason = "printing is what a benchmark is for")]

mod core;
mod measure;
#[cfg(feature = "redis")]
mod redis;
mod sqlite;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("core") => core::run(),
        Some("profile") => core::profile(),
        Some("sqlite") => sqlite::run(),
        Some("sqlite-profile") => sqlite::profile(),
        Some("sqlite-partner") => sqlite::partner(&std::env::args().nth(2).unwrap_or_default()),
        #[cfg(feature = "redis")]
        Some("redis") => redis::run(std::env::args().skip(2)),
        #[cfg(feature = "redis")]
        Some("redis-compare") => redis::compare(std::env::args().skip(2)),
        #[cfg(feature = "redis")]
        Some("redis-profile") => redis::profile(std::env::args().skip(2)),
        #[cfg(feature = "redis")]
        Some("redis-child") => redis::child(std::env::args().skip(2)),
        other => {
            if let Some(name) = other {
                println!("there is no benchmark called {name:?}");
            }
            println!("usage: bench core      the library on its in-process store, beside tokio::sync::Mutex");
            println!("       bench sqlite    the store in one file, beside bare SQLite transactions and flock");
            println!(
                "       bench redis     the Redis store, beside bare commands and others (with the feature `redis`)"
            );
            println!("       bench profile   its hot paths alone, for a profiler");
            std::process::exit(2);
        }
    }
}
