//! Which claims are refused, and what the refusal says.

use std::sync::Arc;

use crate::claim::{Claim, Demand};
use crate::error::Error;
use crate::store::{Admission, Busy};

use super::fixture::{Client, Fixture};

async fn assert_invalid(client: &Client<'_>, claim: &Arc<Claim>) {
    for busy in [Busy::Wait, Busy::Refuse] {
        match client.store().acquire(claim, busy).await {
            Err(Error::Invalid(_)) => {}
            other => panic!("{:?} is invalid and was answered {other:?}", claim.demands),
        }
    }
}

/// A refused claim leaves nothing behind: no entry, nothing to renew, nothing that blocks another claim.
pub async fn a_refused_claim_leaves_no_trace(fixture: &Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let (holder, refused, next) = (one.mutex("a"), two.mutex("a"), two.mutex("a"));
    one.acquire_held(&holder).await;
    for _ in 0..3 {
        two.acquire_refused(&refused).await;
    }
    let queue = fixture.inspect(&fixture.name("a")).await.expect("it is held").queue;
    assert_eq!(queue.iter().map(|entry| entry.owner).collect::<Vec<_>>(), [holder.id.hash()]);
    two.assert_gone(&refused).await;
    two.acquire_queued(&next).await;
    one.release(&holder).await;
    two.assert_holds(&next).await;
}

/// A refusal carries the holder with its fence and note, for how long it has held, and the number of claims ahead.
pub async fn a_refusal_names_the_holder(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, waiter) = (client.mutex("a"), client.mutex("a"));
    let tickets = client.acquire_held(&holder).await;
    client.acquire_queued(&waiter).await;
    fixture.advance_brief_ttls(0.2).await;
    let busy = client.acquire_refused(&client.mutex("a")).await;
    let named = busy.holder.expect("the holder is known");
    assert_eq!((named.owner, named.fence), (holder.id.hash(), tickets.first));
    assert_eq!(named.note, holder.note);
    assert_eq!(busy.position, 2);
    let held_for = busy.held_for.expect("the time of the grant is known");
    assert!(held_for >= fixture.brief_ttl().mul_f64(0.15) && held_for < holder.ttl, "{held_for:?}");
}

/// A claim with another capacity than the queue's entries is invalid, and does not join.
pub async fn capacity_mismatch_is_refused(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, mutex) = (client.permits("s", 1, 3), client.mutex("m"));
    client.acquire_held(&holder).await;
    client.acquire_held(&mutex).await;
    assert_invalid(&client, &client.permits("s", 1, 4)).await;
    assert_invalid(&client, &client.mutex("s")).await;
    assert_invalid(&client, &client.reader("s")).await;
    assert_invalid(&client, &client.permits("m", 1, 1)).await;
    client.acquire_held(&client.permits("s", 2, 3)).await;
    client.assert_holds(&holder).await;
}

/// An empty queue takes the capacity of the next claim: this is how a rolling deploy changes a capacity.
pub async fn an_empty_queue_adopts_a_new_capacity(fixture: &Fixture) {
    let client = fixture.client().await;
    let old = client.permits("s", 1, 1);
    client.acquire_held(&old).await;
    client.release(&old).await;
    let new = [client.permits("s", 1, 2), client.permits("s", 1, 2)];
    client.acquire_held(&new[0]).await;
    client.acquire_held(&new[1]).await;
    client.acquire_refused(&client.permits("s", 1, 2)).await;
    for claim in &new {
        client.release(claim).await;
    }
    client.acquire_held(&client.mutex("s")).await;
}

/// A claim heavier than the capacity, or without weight, is invalid: it could never hold, and would block its queue for
/// ever.
pub async fn a_claim_heavier_than_the_capacity_is_refused(fixture: &Fixture) {
    let client = fixture.client().await;
    assert_invalid(&client, &client.claim(Demand { name: fixture.name("s"), capacity: 3, weight: 4 })).await;
    assert_invalid(&client, &client.claim(Demand { name: fixture.name("s"), capacity: 3, weight: 0 })).await;
    assert!(matches!(client.try_acquire(&client.permits("s", 3, 3)).await, Admission::Held(_)));
}
