//! Jobs that every server starts: one server runs each job, and no other does until it is due again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Barrier;

use crate::error::{Error, LostWhy, Result};
use crate::primitives::{Cron, Outcome};

use super::super::fixture::{Fixture, LONG, expect_supported};
use super::user::{User, join_all, soon};

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

/// The claim of an attempt whose reply got lost blocks the next attempt until it is withdrawn.
fn blocked_by_lost_attempt() -> Error {
    Error::unavailable("starting", "the claim of a lost attempt is still there")
}

/// The result of one start on this server.
async fn start(user: &User, cron: &Cron, job: &Job) -> Option<()> {
    loop {
        match soon(cron.run(async |_| job.run())).await {
            Err(Error::Unavailable { .. }) if !user.is_reliable() => {}
            // The job ran; its release was sent twice, and the second reply is that there is no claim.
            Err(Error::Lost { .. }) if !user.is_reliable() => return Some(()),
            reply => return expect_supported(reply),
        }
    }
}

/// The result of one start for this slot. Where replies get lost the start is repeated: also after a release that was
/// sent twice, whose second reply is that there is no claim.
async fn start_for(user: &User, cron: &Cron, slot: &str, job: &Job) -> Outcome<()> {
    loop {
        match soon(cron.run_for(slot, async |_| job.run())).await {
            Err(Error::Unavailable { .. } | Error::Lost { .. }) if !user.is_reliable() => {}
            reply => return expect_supported(reply),
        }
    }
}

/// Starts until the job ran: under chaos, the claim of a lost attempt may block it for a while.
async fn start_until_run(user: &User, cron: &Cron, job: &Job) {
    let started = async {
        while start(user, cron, job).await.is_none() {
            assert!(!user.is_reliable(), "the job is free and did not run");
            tokio::task::yield_now().await;
        }
    };
    soon(started).await;
}

/// Of three servers that start a job at the same time one runs it.
pub async fn one_of_three_servers_runs_the_job(fixture: &Fixture) {
    let users = fixture.three_users().await;
    let (job, all_ready) = (Job::default(), Arc::new(Barrier::new(users.len())));
    let server = |user: User| {
        let (job, all_ready) = (job.clone(), Arc::clone(&all_ready));
        let cron = user.cron("report").at_least(fixture.brief_ttl() * 3);
        async move {
            all_ready.wait().await;
            start(&user, &cron, &job).await
        }
    };
    let ran = join_all(users.map(server)).await.into_iter().flatten().count();
    assert_eq!(ran, job.times());
    // An attempt whose reply got lost blocks the others and does not run the job.
    assert!(ran == 1 || (ran == 0 && !fixture.is_reliable()), "{ran} ran it");
}

/// A job that ends within `at_least` stays taken for that long, since servers' clocks differ; then it is free again.
pub async fn a_quick_job_stays_taken(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let cron = |user: &User| user.cron("report").at_least(fixture.brief_ttl() * 3);
    let job = Job::default();
    start_until_run(&one, &cron(&one), &job).await;
    for late in [&two, &three, &one] {
        assert_eq!(start(late, &cron(late), &job).await, None);
    }
    assert_eq!(job.times(), 1);
    fixture.advance_brief_ttls(3.1).await;
    start_until_run(&two, &cron(&two), &job).await;
    assert_eq!(job.times(), 2);
}

/// Without `at_least`, a job is free when it has ended; its error goes to its own server only.
pub async fn a_job_is_free_when_it_has_ended(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let job = Job::default();
    let failing = one.cron("report");
    let failed = one.retry_result(async || {
        match failing.run(async |_| Err::<(), _>(Error::invalid("no paper"))).await {
            Ok(None) => Err(blocked_by_lost_attempt()),
            // The release was sent twice.
            Err(Error::Lost { .. }) if !one.is_reliable() => Err(blocked_by_lost_attempt()),
            outcome => outcome,
        }
    });
    assert!(matches!(failed.await, Err(Error::Invalid(why)) if why == "no paper"));
    start_until_run(&two, &two.cron("report"), &job).await;
    start_until_run(&one, &one.cron("report"), &job).await;
    assert_eq!(job.times(), 2);
}

/// A job that exceeds `at_most` is stopped, and another server may run it.
pub async fn a_job_that_takes_too_long_is_stopped(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let job = Job::default();
    let cron = one.cron("report").at_most(fixture.brief_ttl().mul_f64(0.2));
    let endless = one.retry_result(async || {
        let run = cron.run(async |_| {
            fixture.advance_brief_ttls(0.21).await;
            std::future::pending::<Result<()>>().await
        });
        soon(run).await?.ok_or_else(blocked_by_lost_attempt)
    });
    assert!(matches!(endless.await, Err(Error::Lost { why: LostWhy::HeldAtMost, .. })));
    // The release of the stopped job is in flight.
    let freed = async { while start(&two, &two.cron("report"), &job).await.is_none() {} };
    soon(freed).await;
    assert_eq!(job.times(), 1);

    let endless = one.retry_result(async || {
        let run = cron.run_for("monday", async |_| {
            fixture.advance_brief_ttls(0.21).await;
            std::future::pending::<Result<()>>().await
        });
        match soon(run).await {
            Ok(Outcome::InProgress) => Err(blocked_by_lost_attempt()),
            outcome => outcome,
        }
    });
    assert!(matches!(endless.await, Err(Error::Lost { why: LostWhy::HeldAtMost, .. })));
    let again = two.cron("report").keep(LONG);
    let freed = async { while start_for(&two, &again, "monday", &job).await == Outcome::InProgress {} };
    soon(freed).await;
    assert_eq!(job.times(), 2);
}

/// Each slot is run by one server, however late or often others start it; the next slot is independent.
pub async fn each_slot_runs_once(fixture: &Fixture) {
    let users = fixture.three_users().await;
    let job = Job::default();
    for (index, slot) in ["02:00", "03:00", "04:00"].into_iter().enumerate() {
        let all_ready = Arc::new(Barrier::new(users.len()));
        let server = |user: User| {
            let (job, all_ready) = (job.clone(), Arc::clone(&all_ready));
            let cron = user.cron("report").keep(LONG);
            async move {
                all_ready.wait().await;
                start_for(&user, &cron, slot, &job).await
            }
        };
        let outcomes = join_all(users.clone().map(server)).await;
        let ran = outcomes.iter().filter(|outcome| **outcome == Outcome::Ran(())).count();
        assert!(ran == 1 || (ran == 0 && !fixture.is_reliable()), "{outcomes:?}");
        for user in &users {
            let cron = user.cron("report").keep(LONG);
            let done = async {
                // A release in flight ends what is in progress here.
                while start_for(user, &cron, slot, &job).await != Outcome::AlreadyDone(()) {
                    assert!(!fixture.is_reliable(), "the slot was done before");
                }
            };
            soon(done).await;
        }
        assert_eq!(job.times(), index + 1);
    }
}

/// A server that starts a slot while another runs it gets `InProgress` without waiting.
pub async fn a_slot_in_progress_is_not_waited_for(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let job = Job::default();
    let (cron, other) = (one.cron("report").keep(LONG), two.cron("report").keep(LONG));
    let run = async {
        loop {
            let meanwhile = cron.run_for("02:00", async |_| {
                assert_eq!(start_for(&two, &other, "02:00", &job).await, Outcome::InProgress);
                job.run()
            });
            match meanwhile.await {
                Ok(Outcome::InProgress) if !fixture.is_reliable() => {}
                Err(Error::Unavailable { .. } | Error::Lost { .. }) if !fixture.is_reliable() => {}
                reply => return expect_supported(reply),
            }
        }
    };
    let outcome = soon(run).await;
    assert!(outcome == Outcome::Ran(()) || !fixture.is_reliable(), "{outcome:?}");
    assert_eq!(start_for(&two, &other, "02:00", &job).await, Outcome::AlreadyDone(()));
    assert_eq!(job.times(), 1);
}

/// A slot whose job failed can be run again, by any server.
pub async fn a_slot_that_failed_can_be_run_again(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let job = Job::default();
    let failing = one.cron("report").keep(LONG);
    let failed =
        one.retry_result(async || match failing.run_for("02:00", async |_| Err(Error::invalid("no paper"))).await {
            Ok(Outcome::InProgress) => Err(blocked_by_lost_attempt()),
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

/// A slot is remembered for as long as `keep` says.
pub async fn a_slot_is_forgotten_after_its_time(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let job = Job::default();
    let (mine, other) = (one.cron("report").keep(fixture.brief_ttl() * 3), two.cron("report").keep(LONG));
    let done = async { while start_for(&one, &mine, "02:00", &job).await == Outcome::InProgress {} };
    soon(done).await;
    assert_eq!(start_for(&two, &other, "02:00", &job).await, Outcome::AlreadyDone(()));
    fixture.advance_brief_ttls(3.1).await;
    let done = async { while start_for(&two, &other, "02:00", &job).await == Outcome::InProgress {} };
    soon(done).await;
    assert_eq!(job.times(), 2);
}
