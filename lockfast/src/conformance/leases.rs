//! How long a claim lives.

use std::sync::Arc;
use std::time::Duration;

use crate::store::{Admission, Lease, Standing};

use super::fixture::Fixture;

/// A claim without renewal ends with its lease, and its name is free.
pub async fn an_expired_lease_frees(fixture: &Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let (holder, waiter) = (one.brief_mutex("a"), two.mutex("a"));
    one.held(&holder).await;
    two.queued(&waiter).await;
    fixture.pass(1.1).await;
    two.holds(&waiter).await;
    one.is_gone(&holder).await;
}

/// A claim that is renewed in time stays, holding or waiting, with its ticket.
pub async fn a_renewed_lease_is_kept(fixture: &Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let (holder, waiter) = (one.brief_mutex("a"), two.brief_mutex("a"));
    let tickets = one.held(&holder).await;
    let ticket = two.queued(&waiter).await;
    for _ in 0..5 {
        fixture.pass(0.4).await;
        assert_eq!(one.holds(&holder).await, tickets);
        assert_eq!(two.waits(&waiter).await, ticket);
    }
}

/// A renewal after the end of the lease is too late, whether or not another claim held in between.
pub async fn an_expired_claim_does_not_come_back(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, next) = (client.brief_mutex("a"), client.mutex("a"));
    client.held(&holder).await;
    fixture.pass(1.1).await;
    client.is_gone(&holder).await;
    client.held(&next).await;
    client.is_gone(&holder).await;
    client.holds(&next).await;
    client.done(&next).await;
    client.is_gone(&holder).await;
    assert!(fixture.inspect(&fixture.name("a")).await.is_none());
}

/// A repeated `acquire` returns the claim's standing and renews its lease.
pub async fn a_repeated_acquire_renews(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, waiter) = (client.brief_mutex("a"), client.brief_mutex("a"));
    let tickets = client.held(&holder).await;
    let ticket = client.queued(&waiter).await;
    for _ in 0..5 {
        fixture.pass(0.4).await;
        assert_eq!(client.held(&holder).await, tickets);
        assert_eq!(client.queued(&waiter).await, ticket);
    }
}

/// No verb shortens a lease: a short renewal sent before an extension may arrive after it.
pub async fn no_verb_shortens_a_lease(fixture: &Fixture) {
    let client = fixture.client().await;
    let holder = client.brief_mutex("a");
    let tickets = client.held(&holder).await;
    client.renew_by(&holder, fixture.brief() * 4).await;
    client.renew_by(&holder, fixture.brief()).await;
    client.held(&holder).await;
    client.unless_alone(&holder, 1, tickets.first).await;
    fixture.pass(2.0).await;
    client.refused(&client.mutex("a")).await;
    client.holds(&holder).await;
}

/// A waiter without renewal loses its entry and is not granted anything.
pub async fn a_waiting_claim_expires(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, front, last) = (client.mutex("a"), client.brief_mutex("a"), client.mutex("a"));
    client.held(&holder).await;
    client.queued(&front).await;
    client.queued(&last).await;
    fixture.pass(1.1).await;
    client.done(&holder).await;
    client.holds(&last).await;
    client.is_gone(&front).await;
}

/// A waiter that asks again after `recheck_in` learns of every expired claim ahead of it.
pub async fn a_recheck_covers_every_death_ahead(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, front, second) = (client.brief_mutex("a"), client.brief_mutex("a"), client.mutex("a"));
    client.held(&holder).await;
    client.queued(&front).await;
    client.renew_by(&front, fixture.brief() * 2).await;
    let Admission::Queued { recheck_in, .. } = client.wait(&second).await else { panic!("two claims are ahead") };
    assert!(recheck_in <= fixture.brief() * 2, "{recheck_in:?} is later than the last lease ahead");
    // A waiter may be told to ask early, and again after a step of the store's clock.
    let mut patience = 20;
    let mut recheck_in = recheck_in;
    loop {
        fixture.pass_time(recheck_in + Duration::from_millis(1)).await;
        match client.renew(&second).await {
            Standing::Held(_) => break,
            Standing::Waiting { recheck_in: again, .. } => recheck_in = again,
            Standing::Gone(why) => panic!("{why:?}"),
        }
        patience -= 1;
        assert!(patience > 0, "the second waiter is never granted");
    }
    client.is_gone(&front).await;
}

/// One call that renews many claims returns as many standings, in the same order.
pub async fn renewals_are_answered_in_order(fixture: &Fixture) {
    let client = fixture.client().await;
    let claims = [client.mutex("a"), client.mutex("a"), client.mutex("never"), client.mutex("b"), client.reader("c")];
    for index in [0, 1, 3, 4] {
        client.wait(&claims[index]).await;
    }
    let leases: Vec<_> = claims.iter().map(|claim| Lease { claim: Arc::clone(claim), ttl: claim.ttl }).collect();
    let standings = super::fixture::promised(client.store().renew(&leases).await);
    let [Standing::Held(_), Standing::Waiting { .. }, Standing::Gone(_), Standing::Held(_), Standing::Held(_)] =
        standings[..]
    else {
        panic!("{standings:?}")
    };
    assert_eq!(super::fixture::promised(client.store().renew(&[]).await), []);
}

/// A renewal of a claim that is in no queue does not add it.
pub async fn a_renewal_never_joins(fixture: &Fixture) {
    let client = fixture.client().await;
    let (never, left) = (client.mutex("a"), client.mutex("a"));
    client.is_gone(&never).await;
    client.held(&left).await;
    client.done(&left).await;
    client.is_gone(&left).await;
    assert!(fixture.inspect(&fixture.name("a")).await.is_none());
}
