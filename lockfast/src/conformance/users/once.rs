//! What is done once: by whoever comes first, for everybody who comes; by somebody else only if that one failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Barrier, oneshot};

use crate::error::{Error, LostWhy, Result};
use crate::primitives::{Once, Outcome};

use super::super::Time;
use super::super::place::{LONG, Place, promised};
use super::user::{Asking, User, soon, together};

/// How many tasks of each user come at once.
const TASKS: usize = 4;

/// Work that counts how often it was done.
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

/// Remembered for longer than the case takes.
fn once(user: &User, name: &str) -> Once {
    user.once(name).keep(LONG)
}

/// Has it done, by itself or by somebody else. Where answers get lost that is asked again, as callers do.
async fn outcome(user: &User, once: &Once, work: &Work, value: &'static str) -> Outcome<Bytes> {
    loop {
        match soon(once.run(async |_| work.done(value))).await {
            // The departure was sent twice, and the answer to the second time is that there is nobody.
            Err(Error::Unavailable { .. } | Error::Lost { .. }) if !user.is_exact() => {}
            answer => return promised(answer),
        }
    }
}

/// Does the work when told to, and is at it when this comes back.
async fn at_it(user: &User, once: Once, work: &Work) -> (oneshot::Sender<Bytes>, Asking<Outcome<Bytes>>) {
    let ((begun, has_begun), (go_on, told)) = (oneshot::channel(), oneshot::channel());
    let work = work.clone();
    let asking = user.asking(async move {
        once.run(async |_| {
            let _ = begun.send(());
            // Without a word it never ends.
            match told.await {
                Ok(value) => work.done(value),
                Err(_) => std::future::pending().await,
            }
        })
        .await
    });
    soon(has_begun).await.expect("the work begins");
    (go_on, asking)
}

/// Asks, and is in line behind who is at it.
async fn waits(user: &User, once: Once, work: &Work) -> Asking<Outcome<Bytes>> {
    let work = work.clone();
    user.in_line(async move { once.run(async |_| work.done("again")).await }).await
}

/// The work's own client may not have heard that it is remembered; everybody else does.
async fn ended(user: &User, asking: Asking<Outcome<Bytes>>) {
    match asking.ended().await {
        Ok(outcome) => assert!(matches!(outcome, Outcome::Ran(_)), "{outcome:?}"),
        Err(Error::Unavailable { .. } | Error::Lost { .. }) if !user.is_exact() => {}
        Err(error) => panic!("what was done could not be remembered: {error}"),
    }
}

/// Hardly any patience: time enough for one answer.
fn hardly_any(place: &Place) -> Duration {
    place.brief().mul_f64(0.3)
}

fn already(value: &'static str) -> Outcome<Bytes> {
    Outcome::AlreadyDone(value.into())
}

/// The first one runs it; all later ones get the result, whichever way they ask.
pub async fn the_first_runs_it_and_the_others_get_the_result(place: &Place) {
    let ([one, two, three], patience) = (place.three().await, hardly_any(place));
    let work = Work::default();
    let first = outcome(&one, &once(&one, "a"), &work, "paid").await;
    assert!(first == Outcome::Ran("paid".into()) || !place.is_exact(), "{first:?}");
    for user in [&one, &two] {
        assert_eq!(outcome(user, &once(user, "a"), &work, "again").await, already("paid"));
    }
    let later = once(&three, "a");
    let tried = three.surely(async || later.try_run(async |_| work.done("again")).await).await;
    assert_eq!(tried, already("paid"));
    let within = three.surely(async || later.run_within(patience, async |_| work.done("again")).await).await;
    assert_eq!(within, already("paid"));
    assert_eq!(work.times(), 1);
    assert_eq!(outcome(&two, &once(&two, "b"), &work, "another").await.into_value(), Some("another".into()));
}

/// Who does not want to wait hears that somebody is at it.
pub async fn who_does_not_wait_hears_that_it_is_in_progress(place: &Place) {
    let ([one, two, three], patience) = (place.three().await, hardly_any(place));
    let work = Work::default();
    let (go_on, first) = at_it(&one, once(&one, "a"), &work).await;
    let other = once(&two, "a");
    let tried = two.surely(async || other.try_run(async |_| work.done("again")).await).await;
    assert_eq!(tried, Outcome::InProgress);
    let (other, again) = (once(&three, "a"), work.clone());
    let within = match place.time() {
        Time::Set => {
            // Time does not pass before the store has answered, however long that takes.
            let asking = async move { other.run_within(patience, async |_| again.done("again")).await };
            let asking = three.in_line(asking).await;
            place.pass_time(patience).await;
            asking.held().await
        }
        Time::Real => three.surely(async || other.run_within(patience, async |_| again.done("again")).await).await,
    };
    assert_eq!(within, Outcome::InProgress);
    go_on.send("paid".into()).expect("the work waits for it");
    ended(&one, first).await;
    assert_eq!(outcome(&two, &once(&two, "a"), &work, "again").await, already("paid"));
    assert_eq!(work.times(), 1);
}

/// Who waits in line gets the result of who was at it, and does nothing.
pub async fn waiters_get_the_result_and_do_not_run(place: &Place) {
    let [one, two, three] = place.three().await;
    let work = Work::default();
    let (go_on, first) = at_it(&one, once(&one, "a"), &work).await;
    let mut waiting = Vec::new();
    for user in [&one, &two, &two, &three] {
        waiting.push(waits(user, once(user, "a"), &work).await);
    }
    go_on.send("paid".into()).expect("the work waits for it");
    ended(&one, first).await;
    for waiter in waiting {
        assert_eq!(waiter.held().await, already("paid"));
    }
    assert_eq!(work.times(), 1);
}

/// A waiter is told that its place is gone, asks where it stands, asks anew, and is answered with the result: that is all.
pub async fn a_waiter_hears_of_the_result_without_polling(place: &Place) {
    place.needs(place.guarantees().push, "pushes");
    let [one, two, _] = place.three().await;
    let work = Work::default();
    let (go_on, first) = at_it(&one, once(&one, "a"), &work).await;
    let waiter = waits(&two, once(&two, "a"), &work).await;
    let asked = two.questions();
    go_on.send("paid".into()).expect("the work waits for it");
    ended(&one, first).await;
    assert_eq!(waiter.held().await, already("paid"));
    assert!(two.questions() <= asked + 2, "{} questions", two.questions() - asked);
}

/// However many come at the same time, from tasks and clients, one of them runs it. There is no moment between the end of
/// the work and the memory of it.
pub async fn many_at_once_run_it_once(place: &Place) {
    let users = place.three().await;
    for round in 0..place.rounds(30) {
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
        assert!(ran == 1 || (ran == 0 && !place.is_exact()), "{ran} say that they ran it");
        assert!(outcomes.into_iter().all(|outcome| outcome.into_value() == Some("paid".into())));
    }
}

/// A webhook that is delivered a thousand times at once, over twenty tasks of four clients.
pub async fn a_thousand_deliveries_run_once(place: &Place) {
    let deliveries = if place.is_exact() { 1000 } else { 40 };
    let (work, mut users) = (Work::default(), place.three().await.to_vec());
    users.push(place.user().await);
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
    assert!(already == deliveries - 1 || (already == deliveries && !place.is_exact()), "{already} got the result");
}

/// Work that fails is not done: its error is returned as it is, and the next one runs it, waiting or not.
pub async fn a_failure_is_not_remembered(place: &Place) {
    let [one, two, three] = place.three().await;
    let work = Work::default();
    let failing = once(&one, "a");
    let failed = one.at_last(async || failing.run(async |_| Err::<Bytes, _>(Error::invalid("no money"))).await).await;
    assert!(matches!(failed, Err(Error::Invalid(why)) if why == "no money"));
    assert_eq!(three.surely(async || once(&three, "a").result().await).await, None);
    assert_eq!(outcome(&two, &once(&two, "a"), &work, "paid").await.into_value(), Some("paid".into()));
    assert_eq!(work.times(), 1);

    let (fail, told) = oneshot::channel();
    let (begun, has_begun) = oneshot::channel();
    let failing = once(&one, "b");
    let first = one.asking(async move {
        failing
            .run(async |_| {
                let _ = begun.send(());
                told.await.map_err(|_| Error::invalid("the case is over"))?;
                Err::<Bytes, _>(Error::invalid("no money"))
            })
            .await
    });
    soon(has_begun).await.expect("the work begins");
    let waiter = waits(&two, once(&two, "b"), &work).await;
    fail.send(()).expect("the work waits for it");
    assert!(matches!(first.ended().await, Err(Error::Invalid(_))));
    ended(&two, waiter).await;
    assert_eq!(work.times(), 2);
}

/// Whose future is dropped has not done it; the next one does.
pub async fn cancelled_work_is_run_by_the_next(place: &Place) {
    let [one, two, _] = place.three().await;
    let work = Work::default();
    let (go_on, first) = at_it(&one, once(&one, "a"), &work).await;
    let waiter = waits(&two, once(&two, "a"), &work).await;
    first.cancel().await;
    drop(go_on);
    ended(&two, waiter).await;
    assert_eq!(work.times(), 1);
}

/// Who dies before the end has not done it: the next one runs it when the lease has ended, and what the dead one would
/// still say is not heard.
pub async fn a_crash_lets_the_next_run(place: &Place) {
    let [one, two, three] = place.three().await;
    let work = Work::default();
    let (go_on, first) = at_it(&one, once(&one, "a").ttl(place.brief()), &work).await;
    let waiter = waits(&two, once(&two, "a"), &work).await;
    one.die();
    let waiter = place.over_within(2.0, waiter).await;
    ended(&two, waiter).await;
    assert!(matches!(first.ended().await, Err(Error::Lost { why: LostWhy::Expired, .. })));
    assert!(go_on.send("paid".into()).is_err(), "the work was stopped");
    assert_eq!(outcome(&three, &once(&three, "a"), &work, "third").await, already("again"));
    assert_eq!(work.times(), 1);
}

/// Who loses the lock while at it is stopped and told, and nothing is remembered; also of work that did not hear of it.
pub async fn what_was_lost_is_not_remembered(place: &Place) {
    let [one, two, _] = place.three().await;
    let work = Work::default();
    let capped = once(&one, "a").hold_at_most(place.brief().mul_f64(0.2));
    let endless = capped.run(async |_| {
        place.pass(0.21).await;
        std::future::pending::<Result<Bytes>>().await
    });
    assert!(matches!(soon(endless).await, Err(Error::Lost { why: LostWhy::HeldAtMost, .. })));
    let too_late = one.at_last(async || {
        let done = capped.run(async |_| {
            place.pass(0.21).await;
            Ok::<_, Error>("too late")
        });
        soon(done).await
    });
    assert!(matches!(too_late.await, Err(Error::Lost { why: LostWhy::HeldAtMost, .. })));
    assert_eq!(two.surely(async || once(&two, "a").result().await).await, None);
    assert_eq!(outcome(&two, &once(&two, "a"), &work, "paid").await.into_value(), Some("paid".into()));
    assert_eq!(work.times(), 1);
}

/// A result is remembered for as long as was asked for, then it can be done again.
pub async fn a_result_is_forgotten_after_its_time(place: &Place) {
    let [one, two, _] = place.three().await;
    let work = Work::default();
    let brief = once(&one, "a").keep(place.brief() * 3);
    outcome(&one, &brief, &work, "first").await;
    assert_eq!(outcome(&two, &once(&two, "a"), &work, "second").await, already("first"));
    place.pass(3.1).await;
    assert_eq!(two.surely(async || once(&two, "a").result().await).await, None);
    assert_eq!(outcome(&two, &once(&two, "a"), &work, "second").await.into_value(), Some("second".into()));
    assert_eq!(work.times(), 2);
}

/// The result can be asked for without running anything.
pub async fn the_result_can_be_asked_for(place: &Place) {
    let [one, two, _] = place.three().await;
    let work = Work::default();
    let result = async || two.surely(async || once(&two, "a").result().await).await;
    assert_eq!(result().await, None);
    let (go_on, first) = at_it(&one, once(&one, "a"), &work).await;
    assert_eq!(result().await, None);
    go_on.send("paid".into()).expect("the work waits for it");
    ended(&one, first).await;
    // Where the answer got lost, the keeper says it again.
    while result().await.is_none() {
        assert!(!place.is_exact(), "it was remembered with the end of the work");
    }
    assert_eq!(result().await, Some("paid".into()));
}

/// Who only asks for the result takes nothing: or those who would run it in that moment would hear that somebody is at it.
pub async fn asking_for_the_result_is_in_nobodys_way(place: &Place) {
    let [one, two, _] = place.three().await;
    assert_eq!(one.surely(async || once(&one, "a").result().await).await, None);
    assert_eq!((one.questions(), one.stats().acquired), (0, 0), "it asked for the lock");
    let held = promised(two.mutex("a").lock().await);
    assert_eq!(one.surely(async || once(&one, "a").result().await).await, None);
    assert_eq!((one.questions(), one.stats().contended), (0, 0), "it asked for the lock");
    two.let_go(held).await;
}

/// What is done stays done when its client is gone.
pub async fn a_result_outlives_its_client(place: &Place) {
    let [one, two, _] = place.three().await;
    let work = Work::default();
    outcome(&one, &once(&one, "a"), &work, "paid").await;
    promised(soon(one.shutdown(LONG)).await);
    assert_eq!(outcome(&two, &once(&two, "a"), &work, "again").await, already("paid"));
    assert!(matches!(once(&one, "a").run(async |_| work.done("again")).await, Err(Error::Closed(_))));
    assert_eq!(work.times(), 1);
}

/// A name that was done once is no name for a lock, of any kind, and whoever waits for one there hears that too.
pub async fn a_lock_on_what_was_done_once_is_refused(place: &Place) {
    let [one, two, three] = place.three().await;
    let work = Work::default();
    let (go_on, first) = at_it(&one, once(&one, "a"), &work).await;
    let lock = two.mutex("a");
    let waiter = two.in_line(async move { lock.lock().await }).await;
    let candidate = three.election("a");
    let candidate = three.in_line(async move { candidate.campaign().await }).await;
    go_on.send("paid".into()).expect("the work waits for it");
    ended(&one, first).await;
    let refused = |error: Option<Error>| match error {
        Some(Error::Invalid(why)) => assert!(why.contains("runs once") && why.contains("another"), "{why}"),
        other => panic!("refused with {other:?}"),
    };
    refused(waiter.ended().await.err());
    refused(candidate.ended().await.err());
    refused(two.at_last(async || two.mutex("a").lock().await).await.err());
    refused(two.at_last(async || two.mutex("a").try_lock().await).await.err());
    refused(two.at_last(async || two.mutex("a").lock_within(hardly_any(place)).await).await.err());
    refused(two.at_last(async || two.rwlock("a").read().await).await.err());
    refused(two.at_last(async || two.semaphore("a", 3).acquire().await).await.err());
    refused(two.at_last(async || two.multi(["a", "b"]).lock().await).await.err());
    refused(two.at_last(async || two.election("a").campaign().await).await.err());
    let other = promised(soon(three.mutex("b").lock()).await);
    three.let_go(other).await;
}

/// Nothing at all is a result, and so are 64 KiB of every byte there is.
pub async fn results_are_bytes_of_any_size(place: &Place) {
    let [one, two, _] = place.three().await;
    for size in [0, 1, 1 << 16] {
        let (name, work) = (format!("a{size}"), Work::default());
        let value: Bytes = (0..size).map(|index: u32| (index % 251) as u8 ^ (index >> 8) as u8).collect();
        let mine = once(&one, &name);
        let ran = loop {
            match mine.run(async |_| work.done(value.clone())).await {
                Err(Error::Unavailable { .. } | Error::Lost { .. }) if !place.is_exact() => {}
                answer => break promised(answer),
            }
        };
        assert_eq!(ran.into_value().as_ref(), Some(&value));
        assert!(two.surely(async || once(&two, &name).result().await).await == Some(value.clone()));
        assert!(outcome(&two, &once(&two, &name), &work, "again").await == Outcome::AlreadyDone(value));
        assert_eq!(work.times(), 1);
    }
}
