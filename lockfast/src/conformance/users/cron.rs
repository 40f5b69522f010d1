//! Jobs that every server starts: one of them runs each, and no other until it is due again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Barrier;

use crate::error::{Error, LostWhy, Result};
use crate::primitives::{Cron, Outcome};

use super::super::place::{LONG, Place, promised};
use super::user::{User, soon, together};

/// A job that counts how often it ran.
#[derive(Clone, Debug, Default)]
struct Job(Arc<AtomicUsize>);

impl Job {
    fn run(&self) -> Result<()> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// With the claim of an attempt whose answer got lost, until that is withdrawn.
fn in_its_own_way() -> Error {
    Error::unavailable("starting", "it is in its own way")
}

/// What came of one start on this server.
async fn start(user: &User, cron: &Cron, job: &Job) -> Option<()> {
    loop {
        match soon(cron.run(async |_| job.run())).await {
            Err(Error::Unavailable { .. }) if !user.is_exact() => {}
            // The job ran; its departure was sent twice, and the answer to the second time is that there is nobody.
            Err(Error::Lost { .. }) if !user.is_exact() => return Some(()),
            answer => return promised(answer),
        }
    }
}

/// What came of one start for this slot. Where answers get lost that is asked again: also after a departure that was sent
/// twice, where the answer to the second time is that there is nobody.
async fn start_for(user: &User, cron: &Cron, slot: &str, job: &Job) -> Outcome<()> {
    loop {
        match soon(cron.run_for(slot, async |_| job.run())).await {
            Err(Error::Unavailable { .. } | Error::Lost { .. }) if !user.is_exact() => {}
            answer => return promised(answer),
        }
    }
}

/// What was in the way under chaos (an attempt whose answer got lost) goes; without it nothing is in the way.
async fn starts(user: &User, cron: &Cron, job: &Job) {
    let started = async {
        while start(user, cron, job).await.is_none() {
            assert!(!user.is_exact(), "nobody has it, and it was not run");
            tokio::task::yield_now().await;
        }
    };
    soon(started).await;
}

/// Three servers start it at the same time.
pub async fn one_of_three_servers_runs_the_job(place: &Place) {
    let users = place.three().await;
    let (job, all_are_there) = (Job::default(), Arc::new(Barrier::new(users.len())));
    let server = |user: User| {
        let (job, all_are_there) = (job.clone(), Arc::clone(&all_are_there));
        let cron = user.cron("report").at_least(place.brief() * 3);
        async move {
            all_are_there.wait().await;
            start(&user, &cron, &job).await
        }
    };
    let ran = together(users.map(server)).await.into_iter().flatten().count();
    assert_eq!(ran, job.times());
    // An attempt whose answer got lost keeps the others away, and is none.
    assert!(ran == 1 || (ran == 0 && !place.is_exact()), "{ran} ran it");
}

/// A job that is quicker than the servers' clocks are apart stays taken, and is free when it is due again.
pub async fn a_quick_job_stays_taken(place: &Place) {
    let [one, two, three] = place.three().await;
    let cron = |user: &User| user.cron("report").at_least(place.brief() * 3);
    let job = Job::default();
    starts(&one, &cron(&one), &job).await;
    for late in [&two, &three, &one] {
        assert_eq!(start(late, &cron(late), &job).await, None);
    }
    assert_eq!(job.times(), 1);
    place.pass(3.1).await;
    starts(&two, &cron(&two), &job).await;
    assert_eq!(job.times(), 2);
}

/// Without such a time it is free when it has ended, and the job's error is its server's alone.
pub async fn a_job_is_free_when_it_has_ended(place: &Place) {
    let [one, two, _] = place.three().await;
    let job = Job::default();
    let failing = one.cron("report");
    let failed = one.at_last(async || {
        match failing.run(async |_| Err::<(), _>(Error::invalid("no paper"))).await {
            Ok(None) => Err(in_its_own_way()),
            // The departure was sent twice.
            Err(Error::Lost { .. }) if !one.is_exact() => Err(in_its_own_way()),
            outcome => outcome,
        }
    });
    assert!(matches!(failed.await, Err(Error::Invalid(why)) if why == "no paper"));
    starts(&two, &two.cron("report"), &job).await;
    starts(&one, &one.cron("report"), &job).await;
    assert_eq!(job.times(), 2);
}

/// A job that takes too long is stopped, and another server may run it.
pub async fn a_job_that_takes_too_long_is_stopped(place: &Place) {
    let [one, two, _] = place.three().await;
    let job = Job::default();
    let cron = one.cron("report").at_most(place.brief().mul_f64(0.2));
    let endless = one.at_last(async || {
        let run = cron.run(async |_| {
            place.pass(0.21).await;
            std::future::pending::<Result<()>>().await
        });
        soon(run).await?.ok_or_else(in_its_own_way)
    });
    assert!(matches!(endless.await, Err(Error::Lost { why: LostWhy::HeldAtMost, .. })));
    // The last one's departure is on its way.
    let freed = async { while start(&two, &two.cron("report"), &job).await.is_none() {} };
    soon(freed).await;
    assert_eq!(job.times(), 1);

    let endless = one.at_last(async || {
        let run = cron.run_for("monday", async |_| {
            place.pass(0.21).await;
            std::future::pending::<Result<()>>().await
        });
        match soon(run).await {
            Ok(Outcome::InProgress) => Err(in_its_own_way()),
            outcome => outcome,
        }
    });
    assert!(matches!(endless.await, Err(Error::Lost { why: LostWhy::HeldAtMost, .. })));
    let again = two.cron("report").keep(LONG);
    let freed = async { while start_for(&two, &again, "monday", &job).await == Outcome::InProgress {} };
    soon(freed).await;
    assert_eq!(job.times(), 2);
}

/// Each slot is run by one server, however late or often the others come; the next slot is another matter.
pub async fn each_slot_runs_once(place: &Place) {
    let users = place.three().await;
    let job = Job::default();
    for (index, slot) in ["02:00", "03:00", "04:00"].into_iter().enumerate() {
        let all_are_there = Arc::new(Barrier::new(users.len()));
        let server = |user: User| {
            let (job, all_are_there) = (job.clone(), Arc::clone(&all_are_there));
            let cron = user.cron("report").keep(LONG);
            async move {
                all_are_there.wait().await;
                start_for(&user, &cron, slot, &job).await
            }
        };
        let outcomes = together(users.clone().map(server)).await;
        let ran = outcomes.iter().filter(|outcome| **outcome == Outcome::Ran(())).count();
        assert!(ran == 1 || (ran == 0 && !place.is_exact()), "{outcomes:?}");
        for user in &users {
            let cron = user.cron("report").keep(LONG);
            let done = async {
                // What is in progress here is on its way, and ends.
                while start_for(user, &cron, slot, &job).await != Outcome::AlreadyDone(()) {
                    assert!(!place.is_exact(), "it was done before");
                }
            };
            soon(done).await;
        }
        assert_eq!(job.times(), index + 1);
    }
}

/// A server that comes while the slot is run does not wait.
pub async fn a_slot_in_progress_is_not_waited_for(place: &Place) {
    let [one, two, _] = place.three().await;
    let job = Job::default();
    let (cron, other) = (one.cron("report").keep(LONG), two.cron("report").keep(LONG));
    let run = async {
        loop {
            let meanwhile = cron.run_for("02:00", async |_| {
                assert_eq!(start_for(&two, &other, "02:00", &job).await, Outcome::InProgress);
                job.run()
            });
            match meanwhile.await {
                Ok(Outcome::InProgress) if !place.is_exact() => {}
                Err(Error::Unavailable { .. } | Error::Lost { .. }) if !place.is_exact() => {}
                answer => return promised(answer),
            }
        }
    };
    let outcome = soon(run).await;
    assert!(outcome == Outcome::Ran(()) || !place.is_exact(), "{outcome:?}");
    assert_eq!(start_for(&two, &other, "02:00", &job).await, Outcome::AlreadyDone(()));
    assert_eq!(job.times(), 1);
}

/// A job that failed was not done: its slot can be run again, by anybody.
pub async fn a_slot_that_failed_can_be_run_again(place: &Place) {
    let [one, two, _] = place.three().await;
    let job = Job::default();
    let failing = one.cron("report").keep(LONG);
    let failed =
        one.at_last(async || match failing.run_for("02:00", async |_| Err(Error::invalid("no paper"))).await {
            Ok(Outcome::InProgress) => Err(in_its_own_way()),
            outcome => outcome,
        });
    assert!(matches!(failed.await, Err(Error::Invalid(why)) if why == "no paper"));
    let again = two.cron("report").keep(LONG);
    let freed = async {
        while start_for(&two, &again, "02:00", &job).await == Outcome::InProgress {
            tokio::task::yield_now().await;
        }
    };
    soon(freed).await;
    assert_eq!(start_for(&one, &failing, "02:00", &job).await, Outcome::AlreadyDone(()));
    assert_eq!(job.times(), 1);
}

/// A slot is remembered for as long as was asked for.
pub async fn a_slot_is_forgotten_after_its_time(place: &Place) {
    let [one, two, _] = place.three().await;
    let job = Job::default();
    let (mine, other) = (one.cron("report").keep(place.brief() * 3), two.cron("report").keep(LONG));
    let done = async { while start_for(&one, &mine, "02:00", &job).await == Outcome::InProgress {} };
    soon(done).await;
    assert_eq!(start_for(&two, &other, "02:00", &job).await, Outcome::AlreadyDone(()));
    place.pass(3.1).await;
    let done = async { while start_for(&two, &other, "02:00", &job).await == Outcome::InProgress {} };
    soon(done).await;
    assert_eq!(job.times(), 2);
}
