//! Pushes: which claims are notified of what, and which are not.
//!
//! That a push was *not* sent is shown by a later push: pushes to one client keep their order.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;

use crate::store::{Change, Leaving, Scope};

use super::executor::within;
use super::fixture::{Client, Fixture};

async fn two_clients(fixture: &Fixture) -> (Client<'_>, Client<'_>) {
    fixture.require(fixture.guarantees().push, "pushes");
    (fixture.client().await, fixture.client().await)
}

/// Grants `client` another lock, and asserts that this is its next push.
async fn assert_no_other_push(other: &Client<'_>, client: &Client<'_>, text: &str) {
    let (holder, waiter) = (other.mutex(text), client.mutex(text));
    other.acquire_held(&holder).await;
    let ticket = client.acquire_queued(&waiter).await;
    other.release(&holder).await;
    client.expect_push_held(&waiter, ticket).await;
    client.release(&waiter).await;
}

/// A release pushes the grant to the next waiter once, with its ticket; the waiter need not ask.
pub async fn a_grant_is_pushed_once_with_its_ticket(fixture: &Fixture) {
    let (one, two) = two_clients(fixture).await;
    let (holder, waiter) = (one.mutex("a"), two.mutex("a"));
    one.acquire_held(&holder).await;
    let ticket = two.acquire_queued(&waiter).await;
    one.release(&holder).await;
    two.expect_push_held(&waiter, ticket).await;
    assert_eq!(two.assert_holds(&waiter).await.first, ticket);
    assert_no_other_push(&one, &two, "b").await;
}

/// A claim on several names gets its push when it holds all of them, not before.
pub async fn a_multi_is_pushed_once_it_holds_all_names(fixture: &Fixture) {
    let (one, two) = two_clients(fixture).await;
    let (first, second, both) = (one.mutex("a"), one.mutex("b"), two.multi(&["a", "b"]));
    one.acquire_held(&first).await;
    one.acquire_held(&second).await;
    let ticket = two.acquire_queued(&both).await;
    one.release(&first).await;
    assert_no_other_push(&one, &two, "c").await;
    one.release(&second).await;
    two.expect_push_held(&both, ticket).await;
}

/// A hand-off is one push to one client: not to the previous holder, not to the waiter behind.
pub async fn a_grant_is_pushed_to_one_client_only(fixture: &Fixture) {
    let (one, two) = two_clients(fixture).await;
    let three = fixture.client().await;
    let (holder, waiter, third) = (one.mutex("a"), two.mutex("a"), three.mutex("a"));
    one.acquire_held(&holder).await;
    let ticket = two.acquire_queued(&waiter).await;
    three.acquire_queued(&third).await;
    one.release(&holder).await;
    two.expect_push_held(&waiter, ticket).await;
    assert_no_other_push(&two, &one, "b").await;
    assert_no_other_push(&two, &three, "b").await;
}

/// A waiter whose lease has ended gets a push when its removal is noticed. (Of a holder, some stores only know that it
/// is gone.)
pub async fn an_expired_waiter_is_notified(fixture: &Fixture) {
    let (one, two) = two_clients(fixture).await;
    let (holder, waiter) = (one.mutex("a"), two.brief_mutex("a"));
    one.acquire_held(&holder).await;
    two.acquire_queued(&waiter).await;
    fixture.advance_brief_ttls(1.1).await;
    one.release(&holder).await;
    two.expect_push_gone(&waiter).await;
}

/// A broken claim gets a push, holding or waiting.
pub async fn a_broken_claim_is_notified(fixture: &Fixture) {
    let (one, two) = two_clients(fixture).await;
    let (holder, waiter) = (one.mutex("a"), two.mutex("a"));
    let held = one.acquire_held(&holder).await.first;
    let waits = two.acquire_queued(&waiter).await;
    let break_it = |ticket| Leaving::Break { name: fixture.name("a"), ticket, at_once: false };
    one.leave(break_it(waits)).await;
    two.expect_push_gone(&waiter).await;
    two.leave(break_it(held)).await;
    one.expect_push_gone(&holder).await;
}

/// A waiter that a seal removed gets a push; it can acquire again to get the value.
pub async fn waiters_removed_by_a_seal_are_notified(fixture: &Fixture) {
    let (one, two) = two_clients(fixture).await;
    let (sealer, waiter) = (one.mutex("a"), two.mutex("a"));
    one.acquire_held(&sealer).await;
    two.acquire_queued(&waiter).await;
    one.leave(Leaving::Seal { claim: Arc::clone(&sealer), value: Bytes::new(), keep: fixture.brief_ttl() }).await;
    two.expect_push_gone(&waiter).await;
}

/// A lingering lock ends before the waiter's next poll is due, so the first waiter gets a push with the time of the
/// end.
pub async fn a_linger_pushes_its_end_to_the_first_waiter(fixture: &Fixture) {
    let (one, two) = two_clients(fixture).await;
    let holders = [one.mutex("a"), one.reader("b"), one.permits("c", 1, 1), one.multi(&["d", "e"])];
    let waiters = [two.mutex("a"), two.mutex("b"), two.permits("c", 1, 1), two.multi(&["e", "f"])];
    for (holder, waiter) in holders.iter().zip(&waiters) {
        one.acquire_held(holder).await;
        two.acquire_queued(waiter).await;
        let second = one.with(one.claim(waiter.demands.clone()), |_| {});
        one.acquire_queued(&second).await;
        one.leave(Leaving::Linger(Arc::clone(holder), fixture.brief_ttl())).await;
        two.expect_push_recheck(waiter, fixture.brief_ttl()).await;
        assert_no_other_push(&two, &one, "g").await;
        assert_no_other_push(&one, &two, "g").await;
        one.release(&second).await;
    }
    fixture.advance_brief_ttls(1.1).await;
    for waiter in &waiters {
        two.assert_holds(waiter).await;
    }
}

/// A watcher of queues gets a push for each change of a queue whose name has its prefix.
pub async fn changes_of_queues_can_be_watched(fixture: &Fixture) {
    fixture.require(fixture.guarantees().push, "pushes");
    let client = fixture.client().await;
    let (other, mine) = (client.mutex("other"), client.mutex("mine"));
    let mut changes = client.store().watch(Scope::Queues(fixture.name("mi").as_str().to_owned()));
    client.acquire_held(&other).await;
    client.acquire_held(&mine).await;
    let mut next_change = async || {
        let next = within(Duration::from_secs(10), changes.next()).await;
        next.expect("a change within ten seconds").expect("the stream goes on")
    };
    // A store that had not subscribed yet may push `Resync` instead; the next change is pushed.
    let first = next_change().await;
    assert!([Change::Resource(fixture.name("mine")), Change::Resync].contains(&first), "{first:?}");
    client.release(&mine).await;
    // Its `Resync` may come behind a change that it had received already.
    let second = match next_change().await {
        Change::Resync => next_change().await,
        change => change,
    };
    assert_eq!(second, Change::Resource(fixture.name("mine")));
}
