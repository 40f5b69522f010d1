//! `once`: the first caller runs the work and every caller gets its result; another caller runs it only if the first
//! failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Barrier, oneshot};

use crate::error::{Error, LostWhy, Result};
use crate::primitives::{Once, Outcome};

use super::super::Time;
use super::super::fixture::{Fixture, LONG, promised};
use super::user::{Request, User, soon, together};

/// How many tasks of each user call at once.
const TASKS: usize = 4;

/// Work that counts how often it ran.
#[derive(Clone, Debug, Default)]
struct Work(Arc<AtomicUsize>);

impl Work {
    fn done(&self, value: impl Into<Bytes>) -> Result<Bytes> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(value.into())
    }

    fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A `once` whose result is kept for longer than the case takes.
fn once(user: &User, name: &str) -> Once {
    user.once(name).keep(LONG)
}

/// The outcome of one call. Where replies get lost the call is repeated, as callers do.
async fn outcome(user: &User, once: &Once, work: &Work, value: &'static str) -> Outcome<Bytes> {
    loop {
        match soon(once.run(async |_| work.done(value))).await {
            // The release was sent twice, and the second reply is that there is no claim.
            Err(Error::Unavailable { .. } | Error::Lost { .. }) if !user.is_reliable() => {}
            reply => return promised(reply),
        }
    }
}

/// Runs the work in a task that waits for its value, and returns once the work has begun.
async fn running(user: &User, once: Once, work: &Work) -> (oneshot::Sender<Bytes>, Request<Outcome<Bytes>>) {
    let ((begun, has_begun), (go_on, receiver)) = (oneshot::channel(), oneshot::channel());
    let work = work.clone();
    let request = user.request(async move {
        once.run(async |_| {
            let _ = begun.send(());
            // Without a value the work never ends.
            match receiver.await {
                Ok(value) => work.done(value),
                Err(_) => std::future::pending().await,
            }
        })
        .await
    });
    soon(has_begun).await.expect("the work begins");
    (go_on, request)
}

/// Calls, and waits behind the caller that runs the work.
async fn waits(user: &User, once: Once, work: &Work) -> Request<Outcome<Bytes>> {
    let work = work.clone();
    user.queued(async move { once.run(async |_| work.done("again")).await }).await
}

/// Under chaos, the reply to the caller that ran the work may be lost; every other caller gets the result.
async fn ended(user: &User, request: Request<Outcome<Bytes>>) {
    match request.ended().await {
        Ok(outcome) => assert!(matches!(outcome, Outcome::Ran(_)), "{outcome:?}"),
        Err(Error::Unavailable { .. } | Error::Lost { .. }) if !user.is_reliable() => {}
        Err(error) => panic!("the result could not be stored: {error}"),
    }
}

/// A patience that is enough for one reply.
fn short_patience(fixture: &Fixture) -> Duration {
    fixture.brief().mul_f64(0.3)
}

fn already(value: &'static str) -> Outcome<Bytes> {
    Outcome::AlreadyDone(value.into())
}

/// The first caller runs the work; all later callers get the result, by whichever method they call.
pub async fn the_first_caller_runs_and_later_ones_get_the_result(fixture: &Fixture) {
    let ([one, two, three], patience) = (fixture.three_users().await, short_patience(fixture));
    let work = Work::default();
    let first = outcome(&one, &once(&one, "a"), &work, "paid").await;
    assert!(first == Outcome::Ran("paid".into()) || !fixture.is_reliable(), "{first:?}");
    for user in [&one, &two] {
        assert_eq!(outcome(user, &once(user, "a"), &work, "again").await, already("paid"));
    }
    let later = once(&three, "a");
    let tried = three.retry(async || later.try_run(async |_| work.done("again")).await).await;
    assert_eq!(tried, already("paid"));
    let within = three.retry(async || later.run_within(patience, async |_| work.done("again")).await).await;
    assert_eq!(within, already("paid"));
    assert_eq!(work.times(), 1);
    assert_eq!(outcome(&two, &once(&two, "b"), &work, "another").await.into_value(), Some("another".into()));
}

/// A caller that does not wait, or not for long, gets `InProgress` while another runs the work.
pub async fn a_caller_that_does_not_wait_gets_in_progress(fixture: &Fixture) {
    let ([one, two, three], patience) = (fixture.three_users().await, short_patience(fixture));
    let work = Work::default();
    let (go_on, first) = running(&one, once(&one, "a"), &work).await;
    let other = once(&two, "a");
    let tried = two.retry(async || other.try_run(async |_| work.done("again")).await).await;
    assert_eq!(tried, Outcome::InProgress);
    let (other, again) = (once(&three, "a"), work.clone());
    let within = match fixture.time() {
        Time::Set => {
            // Time must not pass before the store has replied, however long that takes.
            let request = async move { other.run_within(patience, async |_| again.done("again")).await };
            let request = three.queued(request).await;
            fixture.pass_time(patience).await;
            request.held().await
        }
        Time::Real => three.retry(async || other.run_within(patience, async |_| again.done("again")).await).await,
    };
    assert_eq!(within, Outcome::InProgress);
    go_on.send("paid".into()).expect("the work waits for its value");
    ended(&one, first).await;
    assert_eq!(outcome(&two, &once(&two, "a"), &work, "again").await, already("paid"));
    assert_eq!(work.times(), 1);
}

/// Callers that wait get the result of the caller that ran the work, and do not run it.
pub async fn waiters_get_the_result_and_do_not_run(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let work = Work::default();
    let (go_on, first) = running(&one, once(&one, "a"), &work).await;
    let mut waiting = Vec::new();
    for user in [&one, &two, &two, &three] {
        waiting.push(waits(user, once(user, "a"), &work).await);
    }
    go_on.send("paid".into()).expect("the work waits for its value");
    ended(&one, first).await;
    for waiter in waiting {
        assert_eq!(waiter.held().await, already("paid"));
    }
    assert_eq!(work.times(), 1);
}

/// A waiter gets the result after one push and at most two calls: it learns that its claim is gone, acquires again, and
/// is answered with the result.
pub async fn a_waiter_gets_the_result_without_polling(fixture: &Fixture) {
    fixture.needs(fixture.guarantees().push, "pushes");
    let [one, two, _] = fixture.three_users().await;
    let work = Work::default();
    let (go_on, first) = running(&one, once(&one, "a"), &work).await;
    let waiter = waits(&two, once(&two, "a"), &work).await;
    let calls = two.calls();
    go_on.send("paid".into()).expect("the work waits for its value");
    ended(&one, first).await;
    assert_eq!(waiter.held().await, already("paid"));
    assert!(two.calls() <= calls + 2, "{} questions", two.calls() - calls);
}

/// Of concurrent callers, tasks and clients, one runs the work: there is no moment between the end of the work and the
/// stored result.
pub async fn concurrent_callers_run_it_once(fixture: &Fixture) {
    let users = fixture.three_users().await;
    for round in 0..fixture.rounds(30) {
        let (work, name) = (Work::default(), format!("a{round}"));
        let all_are_there = Arc::new(Barrier::new(users.len() * TASKS));
        let come = |user: User| {
            let (work, once, all_are_there) = (work.clone(), once(&user, &name), Arc::clone(&all_are_there));
            async move {
                all_are_there.wait().await;
                outcome(&user, &once, &work, "paid").await
            }
        };
        let tasks = users.iter().flat_map(|user| (0..TASKS).map(|_| come(user.clone())));
        let outcomes = together(tasks.collect::<Vec<_>>()).await;
        assert_eq!(work.times(), 1);
        let ran = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Ran(_))).count();
        assert!(ran == 1 || (ran == 0 && !fixture.is_reliable()), "{ran} say that they ran it");
        assert!(outcomes.into_iter().all(|outcome| outcome.into_value() == Some("paid".into())));
    }
}

/// Of a thousand concurrent deliveries over twenty tasks of four clients, one runs the work.
pub async fn a_thousand_deliveries_run_once(fixture: &Fixture) {
    let deliveries = if fixture.is_reliable() { 1000 } else { 40 };
    let (work, mut users) = (Work::default(), fixture.three_users().await.to_vec());
    users.push(fixture.user().await);
    let deliver = |user: User| {
        let work = work.clone();
        async move {
            let webhook = once(&user, "webhook:42");
            let deliveries = (0..deliveries / 20).map(|_| outcome(&user, &webhook, &work, "paid"));
            futures::future::join_all(deliveries).await
        }
    };
    let tasks = (0..20).map(|task| deliver(users[task % users.len()].clone()));
    let outcomes = together(tasks.collect::<Vec<_>>()).await.concat();
    assert_eq!((work.times(), outcomes.len()), (1, deliveries));
    let already = outcomes.iter().filter(|outcome| **outcome == already("paid")).count();
    assert!(already == deliveries - 1 || (already == deliveries && !fixture.is_reliable()), "{already} got the result");
}

/// Work that fails is not done: its error is returned unchanged, and the next caller runs it, whether it waited or not.
pub async fn a_failure_is_not_remembered(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let work = Work::default();
    let failing = once(&one, "a");
    let failed =
        one.retry_result(async || failing.run(async |_| Err::<Bytes, _>(Error::invalid("no money"))).await).await;
    assert!(matches!(failed, Err(Error::Invalid(why)) if why == "no money"));
    assert_eq!(three.retry(async || once(&three, "a").result().await).await, None);
    assert_eq!(outcome(&two, &once(&two, "a"), &work, "paid").await.into_value(), Some("paid".into()));
    assert_eq!(work.times(), 1);

    let (fail, receiver) = oneshot::channel();
    let (begun, has_begun) = oneshot::channel();
    let failing = once(&one, "b");
    let first = one.request(async move {
        failing
            .run(async |_| {
                let _ = begun.send(());
                receiver.await.map_err(|_| Error::invalid("the case has ended"))?;
                Err::<Bytes, _>(Error::invalid("no money"))
            })
            .await
    });
    soon(has_begun).await.expect("the work begins");
    let waiter = waits(&two, once(&two, "b"), &work).await;
    fail.send(()).expect("the work waits for its value");
    assert!(matches!(first.ended().await, Err(Error::Invalid(_))));
    ended(&two, waiter).await;
    assert_eq!(work.times(), 2);
}

/// Work whose future is dropped is not done; the next caller runs it.
pub async fn cancelled_work_is_run_by_the_next(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let work = Work::default();
    let (go_on, first) = running(&one, once(&one, "a"), &work).await;
    let waiter = waits(&two, once(&two, "a"), &work).await;
    first.cancel().await;
    drop(go_on);
    ended(&two, waiter).await;
    assert_eq!(work.times(), 1);
}

/// Work of a client that dies is not done: the next caller runs it when the lease has ended, and the dead client's
/// result is not stored.
pub async fn a_crash_lets_the_next_run(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let work = Work::default();
    let (go_on, first) = running(&one, once(&one, "a").ttl(fixture.brief()), &work).await;
    let waiter = waits(&two, once(&two, "a"), &work).await;
    one.die();
    let waiter = fixture.over_within(2.0, waiter).await;
    ended(&two, waiter).await;
    assert!(matches!(first.ended().await, Err(Error::Lost { why: LostWhy::Expired, .. })));
    assert!(go_on.send("paid".into()).is_err(), "the work was stopped");
    assert_eq!(outcome(&three, &once(&three, "a"), &work, "third").await, already("again"));
    assert_eq!(work.times(), 1);
}

/// Work that loses its lock is stopped with an error and nothing is stored, even if the work returned a result without
/// noticing.
pub async fn a_result_after_a_loss_is_not_remembered(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let work = Work::default();
    let capped = once(&one, "a").hold_at_most(fixture.brief().mul_f64(0.2));
    let endless = capped.run(async |_| {
        fixture.pass(0.21).await;
        std::future::pending::<Result<Bytes>>().await
    });
    assert!(matches!(soon(endless).await, Err(Error::Lost { why: LostWhy::HeldAtMost, .. })));
    let too_late = one.retry_result(async || {
        let done = capped.run(async |_| {
            fixture.pass(0.21).await;
            Ok::<_, Error>("too late")
        });
        soon(done).await
    });
    assert!(matches!(too_late.await, Err(Error::Lost { why: LostWhy::HeldAtMost, .. })));
    assert_eq!(two.retry(async || once(&two, "a").result().await).await, None);
    assert_eq!(outcome(&two, &once(&two, "a"), &work, "paid").await.into_value(), Some("paid".into()));
    assert_eq!(work.times(), 1);
}

/// A result is stored for as long as `keep` says; then the work can run again.
pub async fn a_result_is_forgotten_after_its_time(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let work = Work::default();
    let brief = once(&one, "a").keep(fixture.brief() * 3);
    outcome(&one, &brief, &work, "first").await;
    assert_eq!(outcome(&two, &once(&two, "a"), &work, "second").await, already("first"));
    fixture.pass(3.1).await;
    assert_eq!(two.retry(async || once(&two, "a").result().await).await, None);
    assert_eq!(outcome(&two, &once(&two, "a"), &work, "second").await.into_value(), Some("second".into()));
    assert_eq!(work.times(), 2);
}

/// The result can be read without running anything.
pub async fn the_result_can_be_read(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let work = Work::default();
    let result = async || two.retry(async || once(&two, "a").result().await).await;
    assert_eq!(result().await, None);
    let (go_on, first) = running(&one, once(&one, "a"), &work).await;
    assert_eq!(result().await, None);
    go_on.send("paid".into()).expect("the work waits for its value");
    ended(&one, first).await;
    // Where the reply got lost, the keeper repeats the seal.
    while result().await.is_none() {
        assert!(!fixture.is_reliable(), "the result is stored when the work has ended");
    }
    assert_eq!(result().await, Some("paid".into()));
}

/// Reading the result acquires nothing: otherwise a concurrent caller would get `InProgress`.
pub async fn reading_the_result_blocks_no_caller(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    assert_eq!(one.retry(async || once(&one, "a").result().await).await, None);
    assert_eq!((one.calls(), one.stats().acquired), (0, 0), "it calls for the lock");
    let held = promised(two.mutex("a").lock().await);
    assert_eq!(one.retry(async || once(&one, "a").result().await).await, None);
    assert_eq!((one.calls(), one.stats().contended), (0, 0), "it calls for the lock");
    two.release(held).await;
}

/// A result stays when its client is gone.
pub async fn a_result_outlives_its_client(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let work = Work::default();
    outcome(&one, &once(&one, "a"), &work, "paid").await;
    promised(soon(one.shutdown(LONG)).await);
    assert_eq!(outcome(&two, &once(&two, "a"), &work, "again").await, already("paid"));
    assert!(matches!(once(&one, "a").run(async |_| work.done("again")).await, Err(Error::Closed(_))));
    assert_eq!(work.times(), 1);
}

/// A name that was done once is refused as a lock of any kind, also to waiters that joined before.
pub async fn a_lock_on_a_name_done_once_is_refused(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let work = Work::default();
    let (go_on, first) = running(&one, once(&one, "a"), &work).await;
    let lock = two.mutex("a");
    let waiter = two.queued(async move { lock.lock().await }).await;
    let candidate = three.election("a");
    let candidate = three.queued(async move { candidate.campaign().await }).await;
    go_on.send("paid".into()).expect("the work waits for its value");
    ended(&one, first).await;
    let refused = |error: Option<Error>| match error {
        Some(Error::Invalid(why)) => assert!(why.contains("runs once") && why.contains("another"), "{why}"),
        other => panic!("refused with {other:?}"),
    };
    refused(waiter.ended().await.err());
    refused(candidate.ended().await.err());
    refused(two.retry_result(async || two.mutex("a").lock().await).await.err());
    refused(two.retry_result(async || two.mutex("a").try_lock().await).await.err());
    refused(two.retry_result(async || two.mutex("a").lock_within(short_patience(fixture)).await).await.err());
    refused(two.retry_result(async || two.rwlock("a").read().await).await.err());
    refused(two.retry_result(async || two.semaphore("a", 3).acquire().await).await.err());
    refused(two.retry_result(async || two.multi(["a", "b"]).lock().await).await.err());
    refused(two.retry_result(async || two.election("a").campaign().await).await.err());
    let other = promised(soon(three.mutex("b").lock()).await);
    three.release(other).await;
}

/// A result is any bytes, from none to 64 KiB.
pub async fn results_are_bytes_of_any_size(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    for size in [0, 1, 1 << 16] {
        let (name, work) = (format!("a{size}"), Work::default());
        let value: Bytes = (0..size).map(|index: u32| (index % 251) as u8 ^ (index >> 8) as u8).collect();
        let mine = once(&one, &name);
        let ran = loop {
            match mine.run(async |_| work.done(value.clone())).await {
                Err(Error::Unavailable { .. } | Error::Lost { .. }) if !fixture.is_reliable() => {}
                reply => break promised(reply),
            }
        };
        assert_eq!(ran.into_value().as_ref(), Some(&value));
        assert!(two.retry(async || once(&two, &name).result().await).await == Some(value.clone()));
        assert!(outcome(&two, &once(&two, &name), &work, "again").await == Outcome::AlreadyDone(value));
        assert_eq!(work.times(), 1);
    }
}
