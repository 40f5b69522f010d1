//! Hand-offs: the next waiter is granted by a push, without polling, also if waiters in between are cancelled.

use std::time::Duration;

use futures::FutureExt;

use crate::client::Guard;
use crate::clock::Clock;
use crate::error::Result;
use crate::primitives::Mutex;

use super::super::fixture::{Fixture, expect_supported};
use super::user::{Request, User, elapsed_since, soon};

/// The limit from a release to the next grant, on a healthy store.
const MAX_HAND_OFF_TIME: Duration = Duration::from_millis(50);

/// Starts to lock the mutex, and returns once its claim waits.
async fn enqueue_lock(user: &User, name: &str) -> Request {
    let lock = user.mutex(name);
    user.enqueue(async move { lock.lock().await }).await
}

/// The waiter must hold without another call of its client.
async fn expect_hand_off(waiter: &User, request: Request, calls: usize) -> Guard {
    let guard = request.expect_held().await;
    assert_eq!(waiter.calls(), calls, "the waiter polled");
    guard
}

/// A release reaches the next waiter, of another client, as a push.
pub async fn a_release_hands_off_without_polling(fixture: &Fixture) {
    fixture.require(fixture.guarantees().push, "pushes");
    let [one, two, _] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").lock().await);
    let request = enqueue_lock(&two, "a").await;
    let calls = two.calls();
    one.release(held).await;
    drop(expect_hand_off(&two, request, calls).await);
}

/// A dropped guard reaches the next waiter as a push.
pub async fn a_dropped_guard_hands_off_without_polling(fixture: &Fixture) {
    fixture.require(fixture.guarantees().push, "pushes");
    let [one, two, _] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").lock().await);
    let request = enqueue_lock(&two, "a").await;
    let calls = two.calls();
    drop(held);
    drop(expect_hand_off(&two, request, calls).await);
}

/// A cancelled waiter grants the claims it blocked, by a push.
pub async fn a_cancelled_waiter_unblocks_others_without_polling(fixture: &Fixture) {
    fixture.require(fixture.guarantees().push, "pushes");
    let [one, two, three] = fixture.three_users().await;
    let reading = expect_supported(one.rwlock("a").read().await);
    let lock = two.rwlock("a");
    let writer = two.enqueue(async move { lock.write().await }).await;
    let lock = three.rwlock("a");
    let reader = three.enqueue(async move { lock.read().await }).await;
    let calls = three.calls();
    writer.cancel().await;
    drop(expect_hand_off(&three, reader, calls).await);
    one.release(reading).await;
}

/// On a healthy store a hand-off takes at most 50 ms. The median of nine is compared, since machines are busy.
pub async fn a_release_hands_off_within_the_bound(fixture: &Fixture) {
    fixture.require(fixture.guarantees().push, "pushes");
    let [one, two, _] = fixture.three_users().await;
    let mut took = Vec::new();
    for _ in 0..9 {
        let held = expect_supported(one.mutex("a").lock().await);
        let request = enqueue_lock(&two, "a").await;
        let left = Clock::boot().now();
        drop(held);
        let next = request.expect_held().await;
        took.push(elapsed_since(left));
        two.release(next).await;
    }
    took.sort_unstable();
    assert!(took[took.len() / 2] <= MAX_HAND_OFF_TIME, "{took:?}");
}

/// A cancelled waiter blocks no claim behind it.
pub async fn a_cancelled_waiter_is_passed_over(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").lock().await);
    let (second, third) = (enqueue_lock(&two, "a").await, enqueue_lock(&three, "a").await);
    second.cancel().await;
    one.release(held).await;
    three.release(third.expect_held().await).await;
}

/// A future that acquires the lock. Its claim waits in the queue; the caller does not poll it any further.
async fn enqueue_unpolled(user: &User, lock: &Mutex) -> futures::future::BoxFuture<'static, Result<Guard>> {
    let mut events = user.events();
    let lock = lock.clone();
    let mut request = async move { lock.lock().await }.boxed();
    tokio::select! {
        biased;
        _ = &mut request => panic!("it should wait"),
        _ = soon(futures::StreamExt::next(&mut events)) => {}
    }
    request
}

/// Returns once a claim with a higher fence than this one holds.
async fn wait_until_handed_off(fixture: &Fixture, fence: u64) {
    let next_holds = async {
        loop {
            let queue = fixture.inspect(&fixture.name("a")).await;
            if queue.is_some_and(|it| it.holders().any(|entry| entry.tickets.first.0 > fence)) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    soon(next_holds).await;
}

/// A waiter that is cancelled after its claim was granted hands the lock off.
pub async fn a_waiter_cancelled_after_its_grant_hands_off(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").lock().await);
    let second = enqueue_unpolled(&two, &two.mutex("a")).await;
    let third = enqueue_lock(&three, "a").await;
    let fence = expect_supported(held.fence());
    one.release(held).await;
    wait_until_handed_off(fixture, fence).await;
    drop(second);
    three.release(third.expect_held().await).await;
}

/// A waiter that is cancelled at any moment of a hand-off does not block the next one.
pub async fn a_waiter_cancelled_at_any_moment_blocks_no_other(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    for round in 0..fixture.rounds(36) {
        let held = expect_supported(one.mutex("a").lock().await);
        let (second, third) = (enqueue_lock(&two, "a").await, enqueue_lock(&three, "a").await);
        drop(held);
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        second.cancel().await;
        three.release(third.expect_held().await).await;
    }
}

/// A lock granted to a future that is never polled again is handed off to the next waiter after a while.
pub async fn a_grant_that_is_not_taken_is_handed_off(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").lock().await);
    let second = enqueue_unpolled(&two, &two.mutex("a").ttl(fixture.brief_ttl())).await;
    let third = enqueue_lock(&three, "a").await;
    let fence = expect_supported(held.fence());
    one.release(held).await;
    wait_until_handed_off(fixture, fence).await;
    three.release(fixture.held_within(1.0, third).await).await;
    drop(second);
}
