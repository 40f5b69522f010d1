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
use super::super::fixture::{Fixture, LONG, expect_supported};
use super::user::{Request, User, join_all, soon};

/// How many tasks of each user call at once.
const TASKS: usize = 4;

/// The work of a `once`: it counts how often it ran.
#[derive(Clone, Debug, Default)]
struct Work(Arc<AtomicUsize>);

impl Work {
    /// The end of the work, with its result.
    fn finish(&self, value: impl Into<Bytes>) -> Result<Bytes> {
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
        match soon(once.run(async |_| work.finish(value))).await {
            // The release was sent twice, and the second reply is that there is no claim.
            Err(Error::Unavailable { .. } | Error::Lost { .. }) if !user.is_reliable() => {}
            reply => return expect_supported(reply),
        }
    }
}

/// Runs the work in a task. Returns once the work has begun; it ends when its result is sent to it.
async fn start_work(user: &User, once: Once, work: &Work) -> (oneshot::Sender<Bytes>, Request<Outcome<Bytes>>) {
    let ((begin, has_begun), (finish_with, receiver)) = (oneshot::channel(), oneshot::channel());
    let work = work.clone();
    let request = user.request(async move {
        once.run(async |_| {
            let _ = begin.send(());
            // Without a value the work never ends.
            match receiver.await {
                Ok(value) => work.finish(value),
                Err(_) => std::future::pending().await,
            }
        })
        .await
    });
    soon(has_begun).await.expect("the work begins");
    (finish_with, request)
}

/// Calls, and waits behind the caller that runs the work.
async fn enqueue_call(user: &User, once: Once, work: &Work) -> Request<Outcome<Bytes>> {
    let work = work.clone();
    user.enqueue(async move { once.run(async |_| work.finish("again")).await }).await
}

/// The caller must have run the work. Under chaos, the reply to that caller may be lost.
async fn expect_ran(user: &User, request: Request<Outcome<Bytes>>) {
    match request.result().await {
        Ok(outcome) => assert!(matches!(outcome, Outcome::Ran(_)), "{outcome:?}"),
        Err(Error::Unavailable { .. } | Error::Lost { .. }) if !user.is_reliable() => {}
        Err(error) => panic!("the result could not be stored: {error}"),
    }
}

/// A patience that is enough for one reply.
fn short_patience(fixture: &Fixture) -> Duration {
    fixture.brief_ttl().mul_f64(0.3)
}

fn already_done(value: &'static str) -> Outcome<Bytes> {
    Outcome::AlreadyDone(value.into())
}

/// The first caller runs the work; all later callers get the result, by whichever method they call.
pub async fn the_first_caller_runs_and_later_ones_get_the_result(fixture: &Fixture) {
    let ([one, two, three], patience) = (fixture.three_users().await, short_patience(fixture));
    let work = Work::default();
    let first = outcome(&one, &once(&one, "a"), &work, "paid").await;
    assert!(first == Outcome::Ran("paid".into()) || !fixture.is_reliable(), "{first:?}");
    for user in [&one, &two] {
        assert_eq!(outcome(user, &once(user, "a"), &work, "again").await, already_done("paid"));
    }
    let later = once(&three, "a");
    let tried = three.retry(async || later.try_run(async |_| work.finish("again")).await).await;
    assert_eq!(tried, already_done("paid"));
    let within = three.retry(async || later.run_within(patience, async |_| work.finish("again")).await).await;
    assert_eq!(within, already_done("paid"));
    assert_eq!(work.times(), 1);
    assert_eq!(outcome(&two, &once(&two, "b"), &work, "another").await.into_value(), Some("another".into()));
}

/// A caller that does not wait, or not for long, gets `InProgress` while another runs the work.
pub async fn a_caller_that_does_not_wait_gets_in_progress(fixture: &Fixture) {
    let ([one, two, three], patience) = (fixture.three_users().await, short_patience(fixture));
    let work = Work::default();
    let (finish_with, first) = start_work(&one, once(&one, "a"), &work).await;
    let other = once(&two, "a");
    let tried = two.retry(async || other.try_run(async |_| work.finish("again")).await).await;
    assert_eq!(tried, Outcome::InProgress);
    let (other, again) = (once(&three, "a"), work.clone());
    let within = match fixture.time() {
        Time::Set => {
            // Time must not pass before the store has replied, however long that takes.
            let request = async move { other.run_within(patience, async |_| again.finish("again")).await };
            let request = three.enqueue(request).await;
            fixture.advance(patience).await;
            request.expect_held().await
        }
        Time::Real => three.retry(async || other.run_within(patience, async |_| again.finish("again")).await).await,
    };
    assert_eq!(within, Outcome::InProgress);
    finish_with.send("paid".into()).expect("the work waits for its value");
    expect_ran(&one, first).await;
    assert_eq!(outcome(&two, &once(&two, "a"), &work, "again").await, already_done("paid"));
    assert_eq!(work.times(), 1);
}

/// Callers that wait get the result of the caller that ran the work, and do not run it.
pub async fn waiters_get_the_result_and_do_not_run(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let work = Work::default();
    let (finish_with, first) = start_work(&one, once(&one, "a"), &work).await;
    let mut waiting = Vec::new();
    for user in [&one, &two, &two, &three] {
        waiting.push(enqueue_call(user, once(user, "a"), &work).await);
    }
    finish_with.send("paid".into()).expect("the work waits for its value");
    expect_ran(&one, first).await;
    for waiter in waiting {
        assert_eq!(waiter.expect_held().await, already_done("paid"));
    }
    assert_eq!(work.times(), 1);
}

/// A waiter gets the result after one push and at most two calls: it learns that its claim is gone, acquires again, and
/// is answered with the result.
pub async fn a_waiter_gets_the_result_without_polling(fixture: &Fixture) {
    fixture.require(fixture.guarantees().push, "pushes");
    let [one, two, _] = fixture.three_users().await;
    let work = Work::default();
    let (finish_with, first) = start_work(&one, once(&one, "a"), &work).await;
    let waiter = enqueue_call(&two, once(&two, "a"), &work).await;
    let calls = two.calls();
    finish_with.send("paid".into()).expect("the work waits for its value");
    expect_ran(&one, first).await;
    assert_eq!(waiter.expect_held().await, already_done("paid"));
    assert!(two.calls() <= calls + 2, "{} calls", two.calls() - calls);
}

/// Of concurrent callers, tasks and clients, one runs the work: there is no moment between the end of the work and the
/// stored result.
pub async fn concurrent_callers_run_it_once(fixture: &Fixture) {
    let users = fixture.three_users().await;
    for round in 0..fixture.rounds(30) {
        let (work, name) = (Work::default(), format!("a{round}"));
        let all_ready = Arc::new(Barrier::new(users.len() * TASKS));
        let call_with_all = |user: User| {
            let (work, once, all_ready) = (work.clone(), once(&user, &name), Arc::clone(&all_ready));
            async move {
                all_ready.wait().await;
                outcome(&user, &once, &work, "paid").await
            }
        };
        let tasks = users.iter().flat_map(|user| (0..TASKS).map(|_| call_with_all(user.clone())));
        let outcomes = join_all(tasks.collect::<Vec<_>>()).await;
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
    let outcomes = join_all(tasks.collect::<Vec<_>>()).await.concat();
    assert_eq!((work.times(), outcomes.len()), (1, deliveries));
    let already = outcomes.iter().filter(|outcome| **outcome == already_done("paid")).count();
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
    let (begin, has_begun) = oneshot::channel();
    let failing = once(&one, "b");
    let first = one.request(async move {
        failing
            .run(async |_| {
                let _ = begin.send(());
                receiver.await.map_err(|_| Error::invalid("the case has ended"))?;
                Err::<Bytes, _>(Error::invalid("no money"))
            })
            .await
    });
    soon(has_begun).await.expect("the work begins");
    let waiter = enqueue_call(&two, once(&two, "b"), &work).await;
    fail.send(()).expect("the work waits for its value");
    assert!(matches!(first.result().await, Err(Error::Invalid(_))));
    expect_ran(&two, waiter).await;
    assert_eq!(work.times(), 2);
}

/// Work whose future is dropped is not done; the next caller runs it.
pub async fn cancelled_work_is_run_by_the_next(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let work = Work::default();
    let (finish_with, first) = start_work(&one, once(&one, "a"), &work).await;
    let waiter = enqueue_call(&two, once(&two, "a"), &work).await;
    first.cancel().await;
    drop(finish_with);
    expect_ran(&two, waiter).await;
    assert_eq!(work.times(), 1);
}

/// Work of a client that dies is not done: the next caller runs it when the lease has ended, and the dead client's
/// result is not stored.
pub async fn a_crash_lets_the_next_run(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let work = Work::default();
    let (finish_with, first) = start_work(&one, once(&one, "a").ttl(fixture.brief_ttl()), &work).await;
    let waiter = enqueue_call(&two, once(&two, "a"), &work).await;
    one.die();
    let waiter = fixture.ended_within(2.0, waiter).await;
    expect_ran(&two, waiter).await;
    assert!(matches!(first.result().await, Err(Error::Lost { why: LostWhy::Expired, .. })));
    assert!(finish_with.send("paid".into()).is_err(), "the work was stopped");
    assert_eq!(outcome(&three, &once(&three, "a"), &work, "third").await, already_done("again"));
    assert_eq!(work.times(), 1);
}

/// Work that loses its lock is stopped with an error and nothing is stored, even if the work returned a result without
/// noticing.
pub async fn a_result_after_a_loss_is_not_remembered(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let work = Work::default();
    let capped = once(&one, "a").hold_at_most(fixture.brief_ttl().mul_f64(0.2));
    let endless = capped.run(async |_| {
        fixture.advance_brief_ttls(0.21).await;
        std::future::pending::<Result<Bytes>>().await
    });
    assert!(matches!(soon(endless).await, Err(Error::Lost { why: LostWhy::HeldAtMost, .. })));
    let too_late = one.retry_result(async || {
        let done = capped.run(async |_| {
            fixture.advance_brief_ttls(0.21).await;
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
    let brief = once(&one, "a").keep(fixture.brief_ttl() * 3);
    outcome(&one, &brief, &work, "first").await;
    assert_eq!(outcome(&two, &once(&two, "a"), &work, "second").await, already_done("first"));
    fixture.advance_brief_ttls(3.1).await;
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
    let (finish_with, first) = start_work(&one, once(&one, "a"), &work).await;
    assert_eq!(result().await, None);
    finish_with.send("paid".into()).expect("the work waits for its value");
    expect_ran(&one, first).await;
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
    let held = expect_supported(two.mutex("a").lock().await);
    assert_eq!(one.retry(async || once(&one, "a").result().await).await, None);
    assert_eq!((one.calls(), one.stats().contended), (0, 0), "it calls for the lock");
    two.release(held).await;
}

/// A result stays when its client is gone.
pub async fn a_result_outlives_its_client(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let work = Work::default();
    outcome(&one, &once(&one, "a"), &work, "paid").await;
    expect_supported(soon(one.shutdown(LONG)).await);
    assert_eq!(outcome(&two, &once(&two, "a"), &work, "again").await, already_done("paid"));
    assert!(matches!(once(&one, "a").run(async |_| work.finish("again")).await, Err(Error::Closed(_))));
    assert_eq!(work.times(), 1);
}

/// A name that was done once is refused as a lock of any kind, also to waiters that joined before.
pub async fn a_lock_on_a_name_done_once_is_refused(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let work = Work::default();
    let (finish_with, first) = start_work(&one, once(&one, "a"), &work).await;
    let lock = two.mutex("a");
    let waiter = two.enqueue(async move { lock.lock().await }).await;
    let candidate = three.election("a");
    let candidate = three.enqueue(async move { candidate.campaign().await }).await;
    finish_with.send("paid".into()).expect("the work waits for its value");
    expect_ran(&one, first).await;
    let assert_refused = |error: Option<Error>| match error {
        Some(Error::Invalid(why)) => assert!(why.contains("runs once") && why.contains("another"), "{why}"),
        other => panic!("refused with {other:?}"),
    };
    assert_refused(waiter.result().await.err());
    assert_refused(candidate.result().await.err());
    assert_refused(two.retry_result(async || two.mutex("a").lock().await).await.err());
    assert_refused(two.retry_result(async || two.mutex("a").try_lock().await).await.err());
    assert_refused(two.retry_result(async || two.mutex("a").lock_within(short_patience(fixture)).await).await.err());
    assert_refused(two.retry_result(async || two.rwlock("a").read().await).await.err());
    assert_refused(two.retry_result(async || two.semaphore("a", 3).acquire().await).await.err());
    assert_refused(two.retry_result(async || two.multi(["a", "b"]).lock().await).await.err());
    assert_refused(two.retry_result(async || two.election("a").campaign().await).await.err());
    let other = expect_supported(soon(three.mutex("b").lock()).await);
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
            match mine.run(async |_| work.finish(value.clone())).await {
                Err(Error::Unavailable { .. } | Error::Lost { .. }) if !fixture.is_reliable() => {}
                reply => break expect_supported(reply),
            }
        };
        assert_eq!(ran.into_value().as_ref(), Some(&value));
        assert!(two.retry(async || once(&two, &name).result().await).await == Some(value.clone()));
        assert!(outcome(&two, &once(&two, &name), &work, "again").await == Outcome::AlreadyDone(value));
        assert_eq!(work.times(), 1);
    }
}
