//! Pushes: who is told what, and who is not.
//!
//! That something was *not* told is shown by telling something else after it: pushes to one client keep their order.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;

use crate::store::{Change, Leaving, Scope};

use super::executor::within;
use super::place::{Client, Place};

async fn two_clients(place: &Place) -> (Client<'_>, Client<'_>) {
    place.needs(place.guarantees().push, "pushes");
    (place.client().await, place.client().await)
}

/// Hands `client` something else, and sees that this is the next thing it is told.
async fn is_told_nothing_more(other: &Client<'_>, client: &Client<'_>, text: &str) {
    let (holder, waiter) = (other.mutex(text), client.mutex(text));
    other.held(&holder).await;
    let ticket = client.queued(&waiter).await;
    other.done(&holder).await;
    client.told_held(&waiter, ticket).await;
    client.done(&waiter).await;
}

/// Whoever leaves hands on: the next is told without asking.
pub async fn a_waiter_is_told_once_with_its_ticket(place: &Place) {
    let (one, two) = two_clients(place).await;
    let (holder, waiter) = (one.mutex("a"), two.mutex("a"));
    one.held(&holder).await;
    let ticket = two.queued(&waiter).await;
    one.done(&holder).await;
    two.told_held(&waiter, ticket).await;
    assert_eq!(two.holds(&waiter).await.first, ticket);
    is_told_nothing_more(&one, &two, "b").await;
}

/// One of two names is not enough to be told.
pub async fn a_multi_is_told_when_it_holds_everything(place: &Place) {
    let (one, two) = two_clients(place).await;
    let (first, second, both) = (one.mutex("a"), one.mutex("b"), two.multi(&["a", "b"]));
    one.held(&first).await;
    one.held(&second).await;
    let ticket = two.queued(&both).await;
    one.done(&first).await;
    is_told_nothing_more(&one, &two, "c").await;
    one.done(&second).await;
    two.told_held(&both, ticket).await;
}

/// A hand-off is one message to one client: not to the holder, not to the third in line.
pub async fn nobody_else_is_told(place: &Place) {
    let (one, two) = two_clients(place).await;
    let three = place.client().await;
    let (holder, waiter, third) = (one.mutex("a"), two.mutex("a"), three.mutex("a"));
    one.held(&holder).await;
    let ticket = two.queued(&waiter).await;
    three.queued(&third).await;
    one.done(&holder).await;
    two.told_held(&waiter, ticket).await;
    is_told_nothing_more(&two, &one, "b").await;
    is_told_nothing_more(&two, &three, "b").await;
}

/// A waiter whose lease ended is told when somebody notices. (Of a holder some stores only know that it is gone.)
pub async fn a_waiter_that_expired_is_told(place: &Place) {
    let (one, two) = two_clients(place).await;
    let (holder, waiter) = (one.mutex("a"), two.brief_mutex("a"));
    one.held(&holder).await;
    two.queued(&waiter).await;
    place.pass(1.1).await;
    one.done(&holder).await;
    two.told_gone(&waiter).await;
}

/// Whoever is broken hears of it, holding or waiting.
pub async fn a_broken_claim_is_told(place: &Place) {
    let (one, two) = two_clients(place).await;
    let (holder, waiter) = (one.mutex("a"), two.mutex("a"));
    let held = one.held(&holder).await.first;
    let waits = two.queued(&waiter).await;
    let break_it = |ticket| Leaving::Break { name: place.name("a"), ticket, at_once: false };
    one.leave(break_it(waits)).await;
    two.told_gone(&waiter).await;
    two.leave(break_it(held)).await;
    one.told_gone(&holder).await;
}

/// Who waited for what was sealed can ask anew, and get the value.
pub async fn sealed_out_waiters_are_told(place: &Place) {
    let (one, two) = two_clients(place).await;
    let (sealer, waiter) = (one.mutex("a"), two.mutex("a"));
    one.held(&sealer).await;
    two.queued(&waiter).await;
    one.leave(Leaving::Seal { claim: Arc::clone(&sealer), value: Bytes::new(), keep: place.brief() }).await;
    two.told_gone(&waiter).await;
}

/// A lock that lingers ends before the waiter's next question would be due. So the waiter is told when to ask.
pub async fn the_first_waiter_is_told_when_a_lease_ahead_gets_shorter(place: &Place) {
    let (one, two) = two_clients(place).await;
    let holders = [one.mutex("a"), one.reader("b"), one.permits("c", 1, 1), one.multi(&["d", "e"])];
    let waiters = [two.mutex("a"), two.mutex("b"), two.permits("c", 1, 1), two.multi(&["e", "f"])];
    for (holder, waiter) in holders.iter().zip(&waiters) {
        one.held(holder).await;
        two.queued(waiter).await;
        let second = one.with(one.claim(waiter.demands.clone()), |_| {});
        one.queued(&second).await;
        one.leave(Leaving::Linger(Arc::clone(holder), place.brief())).await;
        two.told_recheck(waiter, place.brief()).await;
        is_told_nothing_more(&two, &one, "g").await;
        is_told_nothing_more(&one, &two, "g").await;
        one.done(&second).await;
    }
    place.pass(1.1).await;
    for waiter in &waiters {
        two.holds(waiter).await;
    }
}

/// A dashboard hears which lines change, among those it asked for.
pub async fn changes_of_lines_can_be_watched(place: &Place) {
    place.needs(place.guarantees().push, "pushes");
    let client = place.client().await;
    let (other, mine) = (client.mutex("other"), client.mutex("mine"));
    let mut lines = client.store().watch(Scope::Queues(place.name("mi").as_str().to_owned()));
    client.held(&other).await;
    client.held(&mine).await;
    let mut told = async || {
        let next = within(Duration::from_secs(10), lines.next()).await;
        next.expect("a change within ten seconds").expect("the stream goes on")
    };
    // A store that was not listening yet may say so instead: then the next change is heard.
    let first = told().await;
    assert!([Change::Resource(place.name("mine")), Change::Resync].contains(&first), "{first:?}");
    client.done(&mine).await;
    // What it says of itself may come behind what it heard already.
    let second = match told().await {
        Change::Resync => told().await,
        heard => heard,
    };
    assert_eq!(second, Change::Resource(place.name("mine")));
}
