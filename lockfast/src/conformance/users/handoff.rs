//! How the next one gets it: told by who leaves, without asking, and whatever becomes of those in between.

use std::time::Duration;

use futures::FutureExt;

use crate::client::Guard;
use crate::clock::Clock;
use crate::error::Result;
use crate::primitives::Mutex;

use super::super::place::{Place, promised};
use super::user::{Asking, User, soon, spent};

/// From a departure to the next holder, on a healthy store.
const HANDED_ON_IN: Duration = Duration::from_millis(50);

async fn waits(user: &User, name: &str) -> Asking {
    let lock = user.mutex(name);
    user.in_line(async move { lock.lock().await }).await
}

/// The waiter holds, and did not ask for it.
async fn is_handed_over(waiter: &User, asking: Asking, asked: usize) -> Guard {
    let guard = asking.held().await;
    assert_eq!(waiter.questions(), asked, "a waiter that has to ask polls");
    guard
}

/// A release reaches the waiter of another client as a message.
pub async fn a_release_hands_on_without_a_question(place: &Place) {
    place.needs(place.guarantees().push, "pushes");
    let [one, two, _] = place.three().await;
    let held = promised(one.mutex("a").lock().await);
    let asking = waits(&two, "a").await;
    let asked = two.questions();
    one.let_go(held).await;
    drop(is_handed_over(&two, asking, asked).await);
}

/// So does a dropped guard.
pub async fn a_drop_hands_on_without_a_question(place: &Place) {
    place.needs(place.guarantees().push, "pushes");
    let [one, two, _] = place.three().await;
    let held = promised(one.mutex("a").lock().await);
    let asking = waits(&two, "a").await;
    let asked = two.questions();
    drop(held);
    drop(is_handed_over(&two, asking, asked).await);
}

/// So does a waiter that stops waiting, to those it was in the way of.
pub async fn a_cancelled_waiter_hands_on_without_a_question(place: &Place) {
    place.needs(place.guarantees().push, "pushes");
    let [one, two, three] = place.three().await;
    let reading = promised(one.rwlock("a").read().await);
    let lock = two.rwlock("a");
    let writer = two.in_line(async move { lock.write().await }).await;
    let lock = three.rwlock("a");
    let reader = three.in_line(async move { lock.read().await }).await;
    let asked = three.questions();
    writer.cancel().await;
    drop(is_handed_over(&three, reader, asked).await);
    one.let_go(reading).await;
}

/// On a healthy store that takes no time worth mentioning. Judged by the middle of several, since machines are busy.
pub async fn a_release_hands_on_within_the_bound(place: &Place) {
    place.needs(place.guarantees().push, "pushes");
    let [one, two, _] = place.three().await;
    let mut took = Vec::new();
    for _ in 0..9 {
        let held = promised(one.mutex("a").lock().await);
        let asking = waits(&two, "a").await;
        let left = Clock::boot().now();
        drop(held);
        let next = asking.held().await;
        took.push(spent(left));
        two.let_go(next).await;
    }
    took.sort_unstable();
    assert!(took[took.len() / 2] <= HANDED_ON_IN, "{took:?}");
}

/// Who stopped waiting is not in anybody's way.
pub async fn a_cancelled_waiter_is_passed_over(place: &Place) {
    let [one, two, three] = place.three().await;
    let held = promised(one.mutex("a").lock().await);
    let (second, third) = (waits(&two, "a").await, waits(&three, "a").await);
    second.cancel().await;
    one.let_go(held).await;
    three.let_go(third.held().await).await;
}

/// A future that is in line, and that nobody polls from now on.
async fn unpolled(user: &User, lock: &Mutex) -> futures::future::BoxFuture<'static, Result<Guard>> {
    let mut events = user.events();
    let lock = lock.clone();
    let mut asking = async move { lock.lock().await }.boxed();
    tokio::select! {
        biased;
        _ = &mut asking => panic!("it should wait"),
        _ = soon(futures::StreamExt::next(&mut events)) => {}
    }
    asking
}

async fn until_handed_to_another(place: &Place, fence: u64) {
    let handed = async {
        loop {
            let line = place.look(&place.name("a")).await;
            if line.is_some_and(|it| it.holders().any(|entry| entry.tickets.first.0 > fence)) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    soon(handed).await;
}

/// Cancelled when it had been handed the lock already, it passes it on.
pub async fn who_is_cancelled_when_handed_over_passes_it_on(place: &Place) {
    let [one, two, three] = place.three().await;
    let held = promised(one.mutex("a").lock().await);
    let second = unpolled(&two, &two.mutex("a")).await;
    let third = waits(&three, "a").await;
    let fence = promised(held.fence());
    one.let_go(held).await;
    until_handed_to_another(place, fence).await;
    drop(second);
    three.let_go(third.held().await).await;
}

/// The same at moments that nobody chose.
pub async fn who_is_cancelled_at_any_moment_does_not_block_the_next(place: &Place) {
    let [one, two, three] = place.three().await;
    for round in 0..place.rounds(36) {
        let held = promised(one.mutex("a").lock().await);
        let (second, third) = (waits(&two, "a").await, waits(&three, "a").await);
        drop(held);
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        second.cancel().await;
        three.let_go(third.held().await).await;
    }
}

/// A lock handed to a future that is never polled again goes to the next after a while.
pub async fn a_lock_that_nobody_picks_up_is_given_back(place: &Place) {
    let [one, two, three] = place.three().await;
    let held = promised(one.mutex("a").lock().await);
    let second = unpolled(&two, &two.mutex("a").ttl(place.brief())).await;
    let third = waits(&three, "a").await;
    let fence = promised(held.fence());
    one.let_go(held).await;
    until_handed_to_another(place, fence).await;
    three.let_go(place.held_within(1.0, third).await).await;
    drop(second);
}
