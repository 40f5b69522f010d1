//! How long a claim lives.

use std::sync::Arc;
use std::time::Duration;

use crate::store::{Admission, Lease, Standing};

use super::place::Place;

/// Who is not renewed is out, and the name free.
pub async fn an_expired_lease_frees(place: &Place) {
    let (one, two) = (place.client().await, place.client().await);
    let (holder, waiter) = (one.brief_mutex("a"), two.mutex("a"));
    one.held(&holder).await;
    two.queued(&waiter).await;
    place.pass(1.1).await;
    two.holds(&waiter).await;
    one.is_gone(&holder).await;
}

/// Who is renewed stays, as long as it likes.
pub async fn a_renewed_lease_is_kept(place: &Place) {
    let (one, two) = (place.client().await, place.client().await);
    let (holder, waiter) = (one.brief_mutex("a"), two.brief_mutex("a"));
    let tickets = one.held(&holder).await;
    let ticket = two.queued(&waiter).await;
    for _ in 0..5 {
        place.pass(0.4).await;
        assert_eq!(one.holds(&holder).await, tickets);
        assert_eq!(two.waits(&waiter).await, ticket);
    }
}

/// A renewal after the end is too late, whether or not somebody else came in between.
pub async fn a_dropped_claim_does_not_come_back(place: &Place) {
    let client = place.client().await;
    let (holder, next) = (client.brief_mutex("a"), client.mutex("a"));
    client.held(&holder).await;
    place.pass(1.1).await;
    client.is_gone(&holder).await;
    client.held(&next).await;
    client.is_gone(&holder).await;
    client.holds(&next).await;
    client.done(&next).await;
    client.is_gone(&holder).await;
    assert!(place.look(&place.name("a")).await.is_none());
}

/// Asking again says where the claim stands, and is as good as a renewal.
pub async fn a_repeated_acquire_renews(place: &Place) {
    let client = place.client().await;
    let (holder, waiter) = (client.brief_mutex("a"), client.brief_mutex("a"));
    let tickets = client.held(&holder).await;
    let ticket = client.queued(&waiter).await;
    for _ in 0..5 {
        place.pass(0.4).await;
        assert_eq!(client.held(&holder).await, tickets);
        assert_eq!(client.queued(&waiter).await, ticket);
    }
}

/// A short renewal that was sent before an extension may arrive after it.
pub async fn no_verb_shortens_a_lease(place: &Place) {
    let client = place.client().await;
    let holder = client.brief_mutex("a");
    let tickets = client.held(&holder).await;
    client.renew_by(&holder, place.brief() * 4).await;
    client.renew_by(&holder, place.brief()).await;
    client.held(&holder).await;
    client.unless_alone(&holder, 1, tickets.first).await;
    place.pass(2.0).await;
    client.refused(&client.mutex("a")).await;
    client.holds(&holder).await;
}

/// A waiter that is not renewed loses its place, and is handed nothing.
pub async fn a_waiting_claim_expires(place: &Place) {
    let client = place.client().await;
    let (holder, front, last) = (client.mutex("a"), client.brief_mutex("a"), client.mutex("a"));
    client.held(&holder).await;
    client.queued(&front).await;
    client.queued(&last).await;
    place.pass(1.1).await;
    client.done(&holder).await;
    client.holds(&last).await;
    client.is_gone(&front).await;
}

/// Who is told when to ask again, and asks then, finds out about every death ahead of it.
pub async fn the_death_of_holder_and_front_waiter_is_covered_by_the_recheck(place: &Place) {
    let client = place.client().await;
    let (holder, front, second) = (client.brief_mutex("a"), client.brief_mutex("a"), client.mutex("a"));
    client.held(&holder).await;
    client.queued(&front).await;
    client.renew_by(&front, place.brief() * 2).await;
    let Admission::Queued { recheck_in, .. } = client.wait(&second).await else { panic!("two are ahead") };
    assert!(recheck_in <= place.brief() * 2, "{recheck_in:?} is later than the last lease ahead");
    // Asking early is allowed; so is a step of the store's clock to ask after.
    let mut patience = 20;
    let mut recheck_in = recheck_in;
    loop {
        place.pass_time(recheck_in + Duration::from_millis(1)).await;
        match client.renew(&second).await {
            Standing::Held(_) => break,
            Standing::Waiting { recheck_in: again, .. } => recheck_in = again,
            Standing::Gone(why) => panic!("{why:?}"),
        }
        patience -= 1;
        assert!(patience > 0, "the second in line sleeps on");
    }
    client.is_gone(&front).await;
}

/// One call, many claims of all kinds: as many answers, in the same order.
pub async fn renewals_are_answered_in_order(place: &Place) {
    let client = place.client().await;
    let claims = [client.mutex("a"), client.mutex("a"), client.mutex("never"), client.mutex("b"), client.reader("c")];
    for index in [0, 1, 3, 4] {
        client.wait(&claims[index]).await;
    }
    let leases: Vec<_> = claims.iter().map(|claim| Lease { claim: Arc::clone(claim), ttl: claim.ttl }).collect();
    let standings = super::place::promised(client.store().renew(&leases).await);
    let [Standing::Held(_), Standing::Waiting { .. }, Standing::Gone(_), Standing::Held(_), Standing::Held(_)] =
        standings[..]
    else {
        panic!("{standings:?}")
    };
    assert_eq!(super::place::promised(client.store().renew(&[]).await), []);
}

/// Renewing what is not in line does not put it there.
pub async fn a_renewal_never_joins(place: &Place) {
    let client = place.client().await;
    let (never, left) = (client.mutex("a"), client.mutex("a"));
    client.is_gone(&never).await;
    client.held(&left).await;
    client.done(&left).await;
    client.is_gone(&left).await;
    assert!(place.look(&place.name("a")).await.is_none());
}
