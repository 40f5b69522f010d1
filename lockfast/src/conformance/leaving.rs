//! The other ways out: lingering, sealing, being broken.

use std::sync::Arc;

use bytes::Bytes;

use crate::claim::{Claim, Ticket};
use crate::store::{Admission, Leaving, Standing, Why};

use super::place::{Client, Place};

async fn linger(place: &Place, client: &Client<'_>, claim: &Arc<Claim>, briefs: f64) -> Standing {
    client.leave(Leaving::Linger(Arc::clone(claim), place.brief().mul_f64(briefs))).await
}

async fn seal(place: &Place, client: &Client<'_>, claim: &Arc<Claim>, value: &Bytes) -> Standing {
    client.leave(Leaving::Seal { claim: Arc::clone(claim), value: value.clone(), keep: place.brief() }).await
}

async fn break_it(place: &Place, client: &Client<'_>, text: &str, ticket: Ticket, at_once: bool) -> Standing {
    client.leave(Leaving::Break { name: place.name(text), ticket, at_once }).await
}

/// What lingers is held by nobody, for the time given, however long the lease was.
pub async fn a_lingering_claim_keeps_others_out(place: &Place) {
    let client = place.client().await;
    let (holder, waiter) = (client.mutex("a"), client.mutex("a"));
    client.held(&holder).await;
    assert_eq!(linger(place, &client, &holder, 1.0).await, Standing::Gone(Why::Left));
    client.queued(&waiter).await;
    client.refused(&client.mutex("a")).await;
    place.pass(1.1).await;
    client.holds(&waiter).await;
}

/// A repeated call must not hold it longer.
pub async fn lingering_twice_is_lingering_once(place: &Place) {
    let client = place.client().await;
    let (holder, waiter) = (client.mutex("a"), client.mutex("a"));
    client.held(&holder).await;
    linger(place, &client, &holder, 1.0).await;
    client.queued(&waiter).await;
    place.pass(0.6).await;
    assert_eq!(linger(place, &client, &holder, 1.0).await, Standing::Gone(Why::Left));
    place.pass(0.5).await;
    client.holds(&waiter).await;
}

/// Its owner is done: neither a renewal nor a question under way makes it longer.
pub async fn a_lingering_claim_is_not_renewed(place: &Place) {
    let client = place.client().await;
    let (holder, waiter) = (client.mutex("a"), client.mutex("a"));
    client.held(&holder).await;
    linger(place, &client, &holder, 1.0).await;
    client.is_gone(&holder).await;
    let again = client.wait(&holder).await;
    assert!(matches!(again, Admission::Gone(_)), "{again:?}");
    client.queued(&waiter).await;
    place.pass(1.1).await;
    client.holds(&waiter).await;
}

/// A claim that holds nothing has nothing to keep: it just leaves.
pub async fn a_waiter_does_not_linger(place: &Place) {
    let client = place.client().await;
    let (holder, waiter, late) = (client.mutex("a"), client.mutex("a"), client.mutex("a"));
    client.held(&holder).await;
    client.queued(&waiter).await;
    client.queued(&late).await;
    assert_eq!(linger(place, &client, &waiter, 1.0).await, Standing::Gone(Why::Left));
    client.done(&holder).await;
    client.holds(&late).await;
}

/// Whoever asks for something sealed gets the value, and may lock it again when the seal has ended.
pub async fn a_seal_answers_with_its_value_until_it_ends(place: &Place) {
    let client = place.client().await;
    let value = Bytes::from_static(b"\0\xff done \r\n");
    let sealer = client.multi(&["a", "b"]);
    client.held(&sealer).await;
    assert_eq!(seal(place, &client, &sealer, &value).await, Standing::Gone(Why::Left));
    for claim in [client.mutex("a"), client.reader("b"), client.multi(&["b", "c"])] {
        assert_eq!(client.wait(&claim).await, Admission::Sealed(value.clone()));
        assert_eq!(client.try_now(&claim).await, Admission::Sealed(value.clone()));
    }
    client.is_gone(&sealer).await;
    place.pass(1.1).await;
    client.held(&client.multi(&["a", "b", "c"])).await;
}

/// Who waited is not handed the lock to do again what was just done.
pub async fn a_seal_empties_the_line(place: &Place) {
    let (one, two) = (place.client().await, place.client().await);
    let (sealer, waiter, both, other) = (one.mutex("a"), two.mutex("a"), two.multi(&["a", "b"]), two.mutex("b"));
    one.held(&sealer).await;
    two.queued(&waiter).await;
    two.queued(&both).await;
    two.queued(&other).await;
    seal(place, &one, &sealer, &Bytes::from_static(b"x")).await;
    two.is_gone(&waiter).await;
    two.is_gone(&both).await;
    two.holds(&other).await;
    assert!(matches!(two.wait(&two.mutex("a")).await, Admission::Sealed(_)));
}

/// Who shares, who waits and who is out just leaves.
pub async fn only_an_exclusive_holder_seals(place: &Place) {
    let client = place.client().await;
    let value = Bytes::from_static(b"x");
    let (reader, waiter, stranger) = (client.reader("a"), client.mutex("a"), client.mutex("a"));
    client.held(&reader).await;
    client.queued(&waiter).await;
    for claim in [&stranger, &waiter, &reader] {
        assert!(matches!(seal(place, &client, claim, &value).await, Standing::Gone(_)));
    }
    client.held(&client.mutex("a")).await;
}

/// A broken holder may still be at work: the lock passes on when it has left.
pub async fn a_broken_holder_keeps_its_place_until_it_leaves(place: &Place) {
    let (one, two) = (place.client().await, place.client().await);
    let holder = one.with(one.mutex("a"), |claim| claim.block = 4);
    let waiter = two.mutex("a");
    let tickets = one.held(&holder).await;
    two.queued(&waiter).await;
    let any_of_the_block = Ticket(tickets.first.0 + 2);
    assert_eq!(break_it(place, &two, "a", any_of_the_block, false).await, Standing::Gone(Why::Broken));
    assert_eq!(one.is_gone(&holder).await, Why::Broken);
    let again = one.wait(&holder).await;
    assert_eq!(again, Admission::Gone(Why::Broken));
    two.waits(&waiter).await;
    assert_eq!(one.done(&holder).await, Standing::Gone(Why::Broken));
    two.holds(&waiter).await;
}

/// A broken holder that does not leave is out when its lease ends: it cannot be renewed.
pub async fn a_broken_holder_ends_with_its_lease(place: &Place) {
    let client = place.client().await;
    let (holder, waiter) = (client.brief_mutex("a"), client.mutex("a"));
    let tickets = client.held(&holder).await;
    client.queued(&waiter).await;
    break_it(place, &client, "a", tickets.first, false).await;
    place.pass(0.5).await;
    client.is_gone(&holder).await;
    client.waits(&waiter).await;
    place.pass(0.6).await;
    client.holds(&waiter).await;
}

/// Somebody knows that the holder is dead, and does not want to wait for its lease.
pub async fn a_break_at_once_hands_on(place: &Place) {
    let client = place.client().await;
    let (holder, waiter) = (client.mutex("a"), client.mutex("a"));
    let tickets = client.held(&holder).await;
    client.queued(&waiter).await;
    assert_eq!(break_it(place, &client, "a", tickets.first, true).await, Standing::Gone(Why::Broken));
    client.holds(&waiter).await;
    assert!(matches!(client.wait(&holder).await, Admission::Gone(_)), "a broken id does not come back");
    assert!(matches!(client.done(&holder).await, Standing::Gone(_)));
    client.holds(&waiter).await;
}

/// A waiter holds nothing: it ends at once.
pub async fn a_waiting_claim_can_be_broken(place: &Place) {
    let client = place.client().await;
    let (holder, front, last) = (client.mutex("a"), client.mutex("a"), client.mutex("a"));
    client.held(&holder).await;
    let ticket = client.queued(&front).await;
    client.queued(&last).await;
    assert_eq!(break_it(place, &client, "a", ticket, false).await, Standing::Gone(Why::Broken));
    client.is_gone(&front).await;
    client.holds(&holder).await;
    client.done(&holder).await;
    client.holds(&last).await;
}

/// Nobody is at work behind what lingers: it ends at once.
pub async fn a_lingering_claim_can_be_broken(place: &Place) {
    let client = place.client().await;
    let (holder, waiter) = (client.mutex("a"), client.mutex("a"));
    let tickets = client.held(&holder).await;
    linger(place, &client, &holder, 3.0).await;
    client.queued(&waiter).await;
    assert_eq!(break_it(place, &client, "a", tickets.first, false).await, Standing::Gone(Why::Broken));
    client.holds(&waiter).await;
}

/// The operator looked, and since then somebody else holds it: that one is not meant.
pub async fn a_break_needs_the_right_fence(place: &Place) {
    let client = place.client().await;
    let (old, holder) = (client.mutex("a"), client.mutex("a"));
    let seen = client.held(&old).await.first;
    client.done(&old).await;
    let tickets = client.held(&holder).await;
    let above = Ticket(tickets.last().0 + 1);
    for at_once in [false, true] {
        for ticket in [seen, above, Ticket(0)] {
            assert_eq!(break_it(place, &client, "a", ticket, at_once).await, Standing::Gone(Why::Unknown));
        }
        assert_eq!(break_it(place, &client, "b", tickets.first, at_once).await, Standing::Gone(Why::Unknown));
    }
    assert_eq!(client.holds(&holder).await, tickets);
}
