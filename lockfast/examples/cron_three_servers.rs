//! Three servers have the same crontab, and the job runs once.
//!
//! `run` lets the first server run the job; `at_least` keeps it locked for longer than the servers' clocks differ by. `run_for` names
//! the slot instead, and remembers it: then neither the clocks nor the duration of the job matter.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use lockfast::{Error, Locks, ManualClock, Memory, Outcome, Result};

pub(crate) async fn story() -> Result<()> {
    // Three clients of one store, as three servers are. The clock is manual: a day passes at once.
    let manual_clock = ManualClock::new();
    let store = Arc::new(Memory::with_clock(manual_clock.clock()));
    let server = || Locks::builder().clock(manual_clock.clock()).build(store.clone());
    let servers = [server()?, server()?, server()?];

    println!("every night, by the clock:");
    let cleanups = Cell::new(0);
    for night in 1..=2 {
        for (server, number) in servers.iter().zip(1..) {
            let job = server.cron("cleanup").at_least(Duration::from_secs(60));
            let work = async |_: &_| {
                cleanups.set(cleanups.get() + 1);
                Ok::<_, Error>(())
            };
            let has_run = job.run(work).await?.is_some();
            println!("  night {night}, server {number}: {}", if has_run { "ran" } else { "another server has it" });
            // The next server's clock is five seconds behind; the job takes no time.
            manual_clock.advance(Duration::from_secs(5));
        }
        assert_eq!(cleanups.get(), night);
        manual_clock.advance(Duration::from_secs(24 * 3600));
    }

    println!("every hour, by the slot:");
    let reports = Cell::new(0);
    for (slot, number) in ["10:00", "11:00"].into_iter().zip(1..) {
        let job = |server: &Locks| server.cron("report").at_most(Duration::from_secs(600));
        let work = async |_: &_| {
            tokio::task::yield_now().await; // the other servers start it meanwhile
            reports.set(reports.get() + 1);
            Ok::<_, Error>(())
        };
        let [one, two, three] = servers.each_ref().map(job);
        let outcomes = tokio::join!(one.run_for(slot, work), two.run_for(slot, work), three.run_for(slot, work));
        let outcomes = [outcomes.0?, outcomes.1?, outcomes.2?];
        let ran_count = outcomes.iter().filter(|outcome| **outcome == Outcome::Ran(())).count();

        // A server that was down for an hour and catches up now.
        let late = three.run_for(slot, work).await?;
        println!("  {slot}: ran on {ran_count} of 3 servers; started again: {late:?}");
        assert!(ran_count == 1 && reports.get() == number && late == Outcome::AlreadyDone(()));
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    story().await
}
