//! How long a claim lives.

use std::sync::Arc;
use std::time::Duration;

use crate::store::{Admission, Lease, Standing};

use super::fixture::Fixture;

/// A claim without renewal ends with its lease, and its name is free.
pub async fn an_expired_lease_frees(fixture: &Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let (holder, waiter) = (one.brief_mutex("a"), two.mutex("a"));
    one.acquire_held(&holder).await;
    two.acquire_queued(&waiter).await;
    fixture.advance_brief_ttls(1.1).await;
    two.assert_holds(&waiter).await;
    one.assert_gone(&holder).await;
}

/// A claim that is renewed in time stays, holding or waiting, with its ticket.
pub async fn a_renewed_lease_is_kept(fixture: &Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let (holder, waiter) = (one.brief_mutex("a"), two.brief_mutex("a"));
    let tickets = one.acquire_held(&holder).await;
    let ticket = two.acquire_queued(&waiter).await;
    for _ in 0..5 {
        fixture.advance_brief_ttls(0.4).await;
        assert_eq!(one.assert_holds(&holder).await, tickets);
        assert_eq!(two.assert_waits(&waiter).await, ticket);
    }
}

/// A renewal after the end of the lease is too late, whether or not another claim held in between.
pub async fn an_expired_claim_does_not_come_back(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, next) = (client.brief_mutex("a"), client.mutex("a"));
    client.acquire_held(&holder).await;
    fixture.advance_brief_ttls(1.1).await;
    client.assert_gone(&holder).await;
    client.acquire_held(&next).await;
    client.assert_gone(&holder).await;
    client.assert_holds(&next).await;
    client.release(&next).await;
    client.assert_gone(&holder).await;
    assert!(fixture.inspect(&fixture.name("a")).await.is_none());
}

/// A repeated `acquire` returns the claim's standing and renews its lease.
pub async fn a_repeated_acquire_renews(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, waiter) = (client.brief_mutex("a"), client.brief_mutex("a"));
    let tickets = client.acquire_held(&holder).await;
    let ticket = client.acquire_queued(&waiter).await;
    for _ in 0..5 {
        fixture.advance_brief_ttls(0.4).await;
        assert_eq!(client.acquire_held(&holder).await, tickets);
        assert_eq!(client.acquire_queued(&waiter).await, ticket);
    }
}

/// No verb shortens a lease: a short renewal sent before an extension may arrive after it.
pub async fn no_verb_shortens_a_lease(fixture: &Fixture) {
    let client = fixture.client().await;
    let holder = client.brief_mutex("a");
    let tickets = client.acquire_held(&holder).await;
    client.renew_by(&holder, fixture.brief_ttl() * 4).await;
    client.renew_by(&holder, fixture.brief_ttl()).await;
    client.acquire_held(&holder).await;
    client.release_unless_alone(&holder, 1, tickets.first).await;
    fixture.advance_brief_ttls(2.0).await;
    client.acquire_refused(&client.mutex("a")).await;
    client.assert_holds(&holder).await;
}

/// A waiter without renewal loses its entry and is not granted anything.
pub async fn a_waiting_claim_expires(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, front, last) = (client.mutex("a"), client.brief_mutex("a"), client.mutex("a"));
    client.acquire_held(&holder).await;
    client.acquire_queued(&front).await;
    client.acquire_queued(&last).await;
    fixture.advance_brief_ttls(1.1).await;
    client.release(&holder).await;
    client.assert_holds(&last).await;
    client.assert_gone(&front).await;
}

/// A waiter that asks again after `recheck_in` learns of every expired claim ahead of it.
pub async fn a_recheck_covers_every_death_ahead(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, front, second) = (client.brief_mutex("a"), client.brief_mutex("a"), client.mutex("a"));
    client.acquire_held(&holder).await;
    client.acquire_queued(&front).await;
    client.renew_by(&front, fixture.brief_ttl() * 2).await;
    let Admission::Queued { recheck_in, .. } = client.acquire(&second).await else { panic!("two claims are ahead") };
    assert!(recheck_in <= fixture.brief_ttl() * 2, "{recheck_in:?} is later than the last lease ahead");
    // A waiter may be told to ask early, and again after a step of the store's clock.
    let mut attempts_left = 20;
    let mut recheck_in = recheck_in;
    loop {
        fixture.advance(recheck_in + Duration::from_millis(1)).await;
        match client.renew(&second).await {
            Standing::Held(_) => break,
            Standing::Waiting { recheck_in: again, .. } => recheck_in = again,
            Standing::Gone(why) => panic!("{why:?}"),
        }
        attempts_left -= 1;
        assert!(attempts_left > 0, "the second waiter is never granted");
    }
    client.assert_gone(&front).await;
}

/// One call that renews many claims returns the same number of standings, in the same order.
pub async fn renewals_are_answered_in_order(fixture: &Fixture) {
    let client = fixture.client().await;
    let claims = [client.mutex("a"), client.mutex("a"), client.mutex("never"), client.mutex("b"), client.reader("c")];
    for index in [0, 1, 3, 4] {
        client.acquire(&claims[index]).await;
    }
    let leases: Vec<_> = claims.iter().map(|claim| Lease { claim: Arc::clone(claim), ttl: claim.ttl }).collect();
    let standings = super::fixture::expect_supported(client.store().renew(&leases).await);
    let [Standing::Held(_), Standing::Waiting { .. }, Standing::Gone(_), Standing::Held(_), Standing::Held(_)] =
        standings[..]
    else {
        panic!("{standings:?}")
    };
    assert_eq!(super::fixture::expect_supported(client.store().renew(&[]).await), []);
}

/// A renewal of a claim that is in no queue does not add it.
pub async fn a_renewal_never_joins(fixture: &Fixture) {
    let client = fixture.client().await;
    let (never, left) = (client.mutex("a"), client.mutex("a"));
    client.assert_gone(&never).await;
    client.acquire_held(&left).await;
    client.release(&left).await;
    client.assert_gone(&left).await;
    assert!(fixture.inspect(&fixture.name("a")).await.is_none());
}
