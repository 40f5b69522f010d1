//! A store in trouble: how often it is asked, for how long, and which error the caller gets.

use std::sync::Arc;
use std::time::Duration;

use lockfast::store::{Change, Lease, Standing, Why};
use lockfast::store::{Ticket, Tickets};
use lockfast::{Error, Locks, ManualClock, Memory, Retry};

use crate::fixture::{VALID, settle};
use crate::script::Director;
use crate::steps::{Request, done, entered, is_same, millis, secs, soon, unknown, until_waiting, wants};
use crate::stub::{Fault, Stub};

/// Moves the clock on in small steps, and lets the keeper and all futures do what is due after each.
async fn pass_time(stub: &Stub, manual_clock: &ManualClock, span: Duration, resync: bool) {
    const STEP: Duration = millis(50);
    for _ in 0..span.as_millis() / STEP.as_millis() {
        manual_clock.advance(STEP);
        for _ in 0..if resync { 3 } else { 0 } {
            stub.push(Change::Resync).await;
        }
        stub.wait_until_settled().await;
    }
}

async fn asks_at_most_five_times_a_second(fault: Fault, resync: bool, at_least: usize) {
    let (stub, locks, manual_clock) = Stub::new(fault);
    let names = ["a", "b", "c"];
    let requests: Vec<_> = names.iter().map(|name| wants(locks.mutex(name))).collect();
    stub.wait_until_settled().await;
    pass_time(&stub, &manual_clock, secs(10), resync).await;
    let asked = stub.times();
    for name in names {
        let times = &asked.iter().find(|(asked, _)| asked.as_str() == name).unwrap().1;
        let quick = times.windows(6).find(|six| six[5].since(six[0]) < secs(1));
        assert!(quick.is_none(), "{fault:?}: {name} asked six times in a second: {quick:?}");
        assert!(times.len() >= at_least, "{fault:?}: {name} asked only {} times", times.len());
    }
    requests.iter().for_each(Request::abort);
}

#[tokio::test]
async fn a_failing_store_is_asked_at_most_five_times_a_second() {
    asks_at_most_five_times_a_second(Fault::Fails, false, 8).await;
    asks_at_most_five_times_a_second(Fault::FailsOnceQueued, true, 8).await;
}

#[tokio::test]
async fn a_forgetful_store_is_asked_at_most_five_times_a_second() {
    asks_at_most_five_times_a_second(Fault::Forgets, false, 40).await;
    asks_at_most_five_times_a_second(Fault::ForgetsOnceQueued, false, 40).await;
}

#[tokio::test]
async fn a_hurrying_store_is_asked_at_most_five_times_a_second() {
    asks_at_most_five_times_a_second(Fault::Hurries, false, 40).await;
}

#[tokio::test]
async fn resyncs_make_a_waiter_ask_at_most_five_times_a_second() {
    asks_at_most_five_times_a_second(Fault::Hurries, true, 40).await;
    asks_at_most_five_times_a_second(Fault::ForgetsOnceQueued, true, 40).await;
}

#[tokio::test]
async fn a_silent_store_is_unavailable_after_ten_seconds() {
    let mut store = Director::new();
    let request = wants(store.locks.mutex("a"));
    let (claim, _, _never) = store.acquire().await;
    store.manual_clock.advance(millis(9990));
    let _question_of_the_keeper = store.renew().await;
    assert!(!request.is_finished());
    store.manual_clock.advance(millis(20));
    let error = soon(request).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }) && error.is_retryable(), "{error}");
    assert!(unknown(&store.let_go().await).is_some_and(|left| is_same(left, &claim)));
}

#[tokio::test]
async fn a_silent_store_is_unavailable_when_patience_ends_earlier() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a");
    let request = tokio::spawn(async move { mutex.lock_within(secs(2)).await });
    let (claim, _, _never) = store.acquire().await;
    store.manual_clock.advance(millis(1999));
    let _question_of_the_keeper = store.renew().await;
    store.manual_clock.advance(millis(2));
    let error = soon(request).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(unknown(&store.let_go().await).is_some_and(|left| is_same(left, &claim)));
}

#[tokio::test]
async fn a_store_that_fails_from_the_start_fails_after_ten_seconds() {
    let (stub, locks, manual_clock) = Stub::new(Fault::Fails);
    let request = wants(locks.mutex("a"));
    stub.wait_until_settled().await;
    pass_time(&stub, &manual_clock, millis(9900), false).await;
    assert!(!request.is_finished(), "it keeps asking");
    pass_time(&stub, &manual_clock, millis(200), false).await;
    let error = soon(request).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("on fire"), "{error}");
}

#[tokio::test]
async fn local_waiters_do_not_wait_ten_seconds_each() {
    let (stub, locks, manual_clock) = Stub::new(Fault::Fails);
    let requests: Vec<_> = (0..20).map(|_| wants(locks.mutex("a"))).collect();
    until_waiting(&locks, 19).await;
    pass_time(&stub, &manual_clock, millis(10_100), false).await;
    for request in requests {
        let error = soon(request).await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_waiter_asks_a_failing_store_until_its_patience_ends() {
    keeps_asking_until_patience_ends(Fault::FailsOnceQueued).await;
}

#[tokio::test]
async fn a_waiter_that_fell_out_asks_until_its_patience_ends() {
    keeps_asking_until_patience_ends(Fault::ForgetsThenFails).await;
}

async fn keeps_asking_until_patience_ends(fault: Fault) {
    let (stub, locks, manual_clock) = Stub::new(fault);
    let mutex = locks.mutex("a").ttl(secs(3));
    let request = tokio::spawn(async move { mutex.lock_within(secs(60)).await });
    stub.wait_until_settled().await;
    pass_time(&stub, &manual_clock, millis(59_900), false).await;
    assert!(!request.is_finished());
    let last = *stub.times().values().next().unwrap().last().unwrap();
    assert!(manual_clock.clock().now().since(last) < secs(3), "it never stops asking");
    pass_time(&stub, &manual_clock, millis(200), false).await;
    let error = soon(request).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }) && error.to_string().contains("on fire"), "{error}");
}

#[tokio::test]
async fn a_store_failing_as_patience_ends_is_unavailable() {
    let (stub, locks, manual_clock) = Stub::new(Fault::FailsOnceQueued);
    let mutex = locks.mutex("a");
    let request = tokio::spawn(async move { mutex.lock_within(secs(1)).await });
    until_waiting(&locks, 1).await;
    manual_clock.advance(millis(1001));
    let error = soon(request).await.unwrap().unwrap_err();
    assert_eq!(stub.times().values().next().unwrap().len(), 1, "no renewal was due");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}

fn two_clients() -> (Locks, Locks, ManualClock) {
    let manual_clock = ManualClock::new();
    let memory = Arc::new(Memory::with_clock(manual_clock.clock()));
    let client = |text: &str| Locks::builder().clock(manual_clock.clock()).note(text).build(memory.clone()).unwrap();
    (client("the first"), client("the second"), manual_clock)
}

/// So many waiters of one client, and behind them one of the other, with a patience of five seconds.
async fn five_seconds_behind(count: u64, one: &Locks, other: &Locks) -> (Vec<Request>, Request) {
    let ahead = (0..count).map(|_| wants(one.mutex("a").local_handoff(false))).collect();
    until_waiting(one, count).await;
    let mutex = other.mutex("a");
    let request = tokio::spawn(async move { mutex.lock_within(secs(5)).await });
    until_waiting(other, 1).await;
    (ahead, request)
}

#[tokio::test]
async fn a_waiter_that_gives_up_gets_its_position() {
    let (one, other, manual_clock) = two_clients();
    let _held = one.mutex("a").lock().await.unwrap();
    let (_ahead, request) = five_seconds_behind(20, &one, &other).await;
    let _behind: Vec<_> = (0..3).map(|_| wants(one.mutex("a").local_handoff(false))).collect();
    until_waiting(&one, 23).await;
    manual_clock.advance(secs(5));
    let error = soon(request).await.unwrap().unwrap_err();
    let Error::Busy { holder, position, .. } = &error else { panic!("{error}") };
    assert!(holder.is_some() && *position == Some(21), "{error:?}");
}

#[tokio::test]
async fn the_position_of_a_waiter_does_not_count_itself() {
    let (one, other, manual_clock) = two_clients();
    let _held = one.mutex("a").lock().await.unwrap();
    let (ahead, request) = five_seconds_behind(40, &one, &other).await;
    for gone in &ahead[..20] {
        gone.abort();
    }
    // The keeper takes them out of the queue: one holder and twenty others stay ahead.
    let length = async || one.mutex("a").info().await.unwrap().unwrap().queue.len();
    soon(async {
        while length().await > 22 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    manual_clock.advance(secs(5));
    let error = soon(request).await.unwrap().unwrap_err();
    let Error::Busy { position, .. } = &error else { panic!("{error}") };
    assert_eq!(*position, Some(21), "{error:?}");
}

#[tokio::test]
async fn a_waiter_that_gives_up_gets_the_holder() {
    let (one, other, manual_clock) = two_clients();
    let held = one.mutex("a").lock().await.unwrap();
    manual_clock.advance(secs(3));
    let ahead = wants(one.mutex("a").local_handoff(false));
    until_waiting(&one, 1).await;
    let mutex = other.mutex("a");
    let request = tokio::spawn(async move { mutex.lock_within(secs(5)).await });
    until_waiting(&other, 1).await;
    manual_clock.advance(secs(5));
    let error = soon(request).await.unwrap().unwrap_err();
    let Error::Busy { name, holder, held_for, position, waited, attempts, .. } = &error else { panic!("{error}") };
    let holder = holder.as_ref().unwrap();
    assert_eq!((holder.fence.0, holder.owner), (held.fence().unwrap(), held.owner()));
    assert_eq!(holder.note.text.as_deref(), Some("the first"));
    assert_eq!((name.as_str(), *held_for, *position), ("a", Some(secs(8)), Some(2)));
    assert_eq!((*waited, *attempts), (secs(5), 1));
    drop(held);
    drop(entered(ahead).await);
    // The claim that gave up has left the queue: the next one does not wait for it.
    drop(entered(wants(one.mutex("a"))).await);
}

#[tokio::test]
async fn a_try_at_a_failing_store_fails_within_a_second_and_five_calls() {
    let (stub, locks, manual_clock) = Stub::new(Fault::Fails);
    let (mutex, began) = (locks.mutex("a"), manual_clock.clock().now());
    let caller = tokio::spawn(async move { mutex.try_lock().await.map(drop) });
    while !caller.is_finished() {
        manual_clock.advance(millis(10));
        stub.wait_until_settled().await;
    }
    let error = soon(caller).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }) && error.to_string().contains("on fire"), "{error}");
    let times = stub.times().into_values().next().unwrap();
    assert_eq!(times.len(), 5);
    assert_eq!(times[0], times[1], "the first repeat follows at once");
    // By the last pause, seven tenths of a second at most. The clock moves in steps, each of which may be late.
    assert!(manual_clock.clock().now().since(began) < secs(1));
}

#[tokio::test]
async fn a_store_that_panics_once_is_asked_again_and_nothing_is_lost() {
    let mut store = Director::new();
    let holder = wants(store.locks.mutex("a"));
    let held = store.grant(7).await;
    let guard = entered(holder).await;
    let waiter = wants(store.locks.mutex("b"));
    let first = store.queue(8, secs(3600)).await;
    until_waiting(&store.locks, 1).await;

    // In a renewal of both.
    store.manual_clock.advance(secs(10));
    let (leases, answer) = store.renew().await;
    assert_eq!(leases.len(), 2);
    answer.panic();
    assert!(settle(&mut store).await.is_empty());
    store.manual_clock.advance(secs(1));
    let (leases, answer) = store.renew().await;
    let standing = |lease: &Lease| match is_same(&lease.claim, &held) {
        true => Standing::Held(Tickets::new(Ticket(7), 1)),
        false => Standing::Gone(Why::Unknown),
    };
    answer.give(leases.iter().map(standing).collect());

    // In a rejoin.
    let (second, _, answer) = store.acquire().await;
    assert!(!is_same(&first, &second));
    assert_eq!(guard.remaining(), VALID);
    answer.panic();
    assert!(settle(&mut store).await.is_empty());
    store.manual_clock.advance(secs(1));
    assert!(is_same(&store.grant(9).await, &second));
    assert_eq!(entered(waiter).await.fence().unwrap(), 9);

    // In a release.
    let (_, answer) = store.release().await;
    answer.panic();
    assert!(settle(&mut store).await.is_empty());
    guard.check().unwrap();
    drop(guard);
    assert!(done(&store.let_go().await).is_some_and(|left| is_same(left, &held)));
    store.manual_clock.advance(secs(1));
    assert!(unknown(&store.let_go().await).is_some_and(|left| is_same(left, &second)));
}

const STEADY: Retry = Retry { count: Some(4), base: millis(100), max: millis(300), jitter: false };

/// The pauses between attempts, and the error at the end.
async fn retries(fault: Fault, retry: Retry, patience: Duration) -> (Vec<u128>, Error) {
    let (stub, locks, manual_clock) = Stub::new(fault);
    let mutex = locks.mutex("a").retry(retry);
    let request = tokio::spawn(async move { mutex.lock_within(patience).await });
    stub.wait_until_settled().await;
    while !request.is_finished() {
        manual_clock.advance(millis(10));
        stub.wait_until_settled().await;
    }
    let times = stub.times().into_values().next().unwrap();
    // The clock moves ten milliseconds at a time, and a pause may be nanoseconds longer than it says.
    let pauses = times.windows(2).map(|two| two[1].since(two[0]).as_millis() / 50 * 50).collect();
    (pauses, soon(request).await.unwrap().unwrap_err())
}

#[tokio::test]
async fn attempts_are_counted_and_the_pauses_between_them_grow() {
    let (pauses, error) = retries(Fault::Refuses, STEADY, secs(3600)).await;
    assert_eq!(pauses, [100, 200, 300, 300]);
    let Error::Busy { position, attempts, .. } = error else { panic!("{error}") };
    assert_eq!((attempts, position), (5, None), "a request that retries is not in the queue");
}

#[tokio::test]
async fn a_store_that_fails_is_tried_as_often() {
    let (pauses, error) = retries(Fault::Fails, STEADY, secs(3600)).await;
    assert_eq!(pauses, [100, 200, 300, 300]);
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn patience_ends_attempts_that_would_come_too_late() {
    let endless = Retry { count: None, ..STEADY };
    let (pauses, error) = retries(Fault::Refuses, endless, millis(650)).await;
    assert_eq!(pauses, [100, 200, 300]);
    assert!(matches!(error, Error::Busy { attempts: 4, .. }), "{error}");
}

#[tokio::test]
async fn jitter_makes_pauses_longer_and_never_shorter() {
    let (pauses, _) = retries(Fault::Refuses, Retry { jitter: true, ..STEADY }, secs(3600)).await;
    for (pause, base) in pauses.into_iter().zip([100, 200, 300, 300]) {
        assert!((base..=2 * base + 10).contains(&pause), "{pause} ms after a base of {base} ms");
    }
}
