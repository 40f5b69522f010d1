//! The leader's machine freezes, a successor takes over, and late writes of the old leader are refused.
//!
//! A frozen machine does not know that it was frozen. When it resumes, it believes for a moment that it leads, and no lock can
//! stop a write that it sends in that moment. The receiver can: it refuses a fence below the highest it has seen.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use lockfast::{Locks, ManualClock, Memory, Result};

/// The resource that leaders write to.
#[derive(Default)]
struct Schedule {
    planned_by: Cell<&'static str>,
    highest_fence: Cell<u64>,
}

impl Schedule {
    fn plan(&self, leader: &'static str, fence: u64) -> &'static str {
        if fence < self.highest_fence.get() {
            return "refused";
        }
        self.highest_fence.set(fence);
        self.planned_by.set(leader);
        "accepted"
    }
}

pub(crate) async fn story() -> Result<()> {
    // Two clients of one store, as two servers are. The clock is manual, so that a lease can end without waiting.
    let manual_clock = ManualClock::new();
    let store = Arc::new(Memory::with_clock(manual_clock.clock()));
    let server = || Locks::builder().clock(manual_clock.clock()).build(store.clone());
    let (first, second) = (server()?, server()?);
    let schedule = Schedule::default();

    // Without renewal: as on a machine that freezes right after it was elected.
    let election = first.election("scheduler").note("first").ttl(Duration::from_secs(10)).no_renewal();
    let old_leader = election.campaign().await?;
    println!("the first leads; its plan is {}", schedule.plan("first", old_leader.fence()?));

    // The second waits in the queue. Eleven seconds later the lease of the first has ended, without any process noticing it.
    let successor = second.election("scheduler").note("second");
    let (new_leader, ()) = tokio::join!(successor.campaign(), async { manual_clock.advance(Duration::from_secs(11)) });
    let new_leader = new_leader?;
    let leader = successor.leader().await?.expect("it was just elected");
    println!(
        "the {} leads; its plan is {}",
        leader.note.text.as_deref().unwrap_or("?"),
        schedule.plan("second", new_leader.fence()?)
    );
    assert!(new_leader.fence()? > old_leader.fence()?);

    // The first resumes where it stopped.
    println!("the first wakes up; its plan is {}", schedule.plan("first", old_leader.fence()?));
    println!("had it checked before: {}", old_leader.check().expect_err("its lease has ended"));
    assert_eq!(schedule.planned_by.get(), "second");
    new_leader.step_down().await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    story().await
}
