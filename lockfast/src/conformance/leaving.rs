//! The other ways to leave: lingering, sealing, and being broken.

use std::sync::Arc;

use bytes::Bytes;

use crate::claim::{Claim, Ticket};
use crate::store::{Admission, Leaving, Standing, Why};

use super::fixture::{Client, Fixture};

/// Lingers for this many brief TTLs.
async fn linger(fixture: &Fixture, client: &Client<'_>, claim: &Arc<Claim>, brief_ttls: f64) -> Standing {
    client.leave(Leaving::Linger(Arc::clone(claim), fixture.brief_ttl().mul_f64(brief_ttls))).await
}

async fn seal(fixture: &Fixture, client: &Client<'_>, claim: &Arc<Claim>, value: &Bytes) -> Standing {
    client.leave(Leaving::Seal { claim: Arc::clone(claim), value: value.clone(), keep: fixture.brief_ttl() }).await
}

async fn break_claim(fixture: &Fixture, client: &Client<'_>, text: &str, ticket: Ticket) -> Standing {
    break_with(fixture, client, text, ticket, false).await
}

async fn break_at_once(fixture: &Fixture, client: &Client<'_>, text: &str, ticket: Ticket) -> Standing {
    break_with(fixture, client, text, ticket, true).await
}

async fn break_with(fixture: &Fixture, client: &Client<'_>, text: &str, ticket: Ticket, at_once: bool) -> Standing {
    client.leave(Leaving::Break { name: fixture.name(text), ticket, at_once }).await
}

/// A lingering claim keeps others out for the given time, however long its lease was.
pub async fn a_lingering_claim_keeps_others_out(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, waiter) = (client.mutex("a"), client.mutex("a"));
    client.acquire_held(&holder).await;
    assert_eq!(linger(fixture, &client, &holder, 1.0).await, Standing::Gone(Why::Left));
    client.acquire_queued(&waiter).await;
    client.acquire_refused(&client.mutex("a")).await;
    fixture.advance_brief_ttls(1.1).await;
    client.assert_holds(&waiter).await;
}

/// A repeated `Linger` does not make the linger longer.
pub async fn a_repeated_linger_is_not_longer(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, waiter) = (client.mutex("a"), client.mutex("a"));
    client.acquire_held(&holder).await;
    linger(fixture, &client, &holder, 1.0).await;
    client.acquire_queued(&waiter).await;
    fixture.advance_brief_ttls(0.6).await;
    assert_eq!(linger(fixture, &client, &holder, 1.0).await, Standing::Gone(Why::Left));
    fixture.advance_brief_ttls(0.5).await;
    client.assert_holds(&waiter).await;
}

/// A lingering claim's owner is done: neither a renewal nor a late acquire makes the linger longer.
pub async fn a_lingering_claim_is_not_renewed(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, waiter) = (client.mutex("a"), client.mutex("a"));
    client.acquire_held(&holder).await;
    linger(fixture, &client, &holder, 1.0).await;
    client.assert_gone(&holder).await;
    let again = client.acquire(&holder).await;
    assert!(matches!(again, Admission::Gone(_)), "{again:?}");
    client.acquire_queued(&waiter).await;
    fixture.advance_brief_ttls(1.1).await;
    client.assert_holds(&waiter).await;
}

/// A waiter has nothing to keep: `Linger` makes it leave.
pub async fn a_waiter_does_not_linger(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, waiter, late) = (client.mutex("a"), client.mutex("a"), client.mutex("a"));
    client.acquire_held(&holder).await;
    client.acquire_queued(&waiter).await;
    client.acquire_queued(&late).await;
    assert_eq!(linger(fixture, &client, &waiter, 1.0).await, Standing::Gone(Why::Left));
    client.release(&holder).await;
    client.assert_holds(&late).await;
}

/// An acquire of a sealed name returns the sealed value; once the seal has ended, the name can be locked again.
pub async fn a_seal_answers_with_its_value_until_it_ends(fixture: &Fixture) {
    let client = fixture.client().await;
    let value = Bytes::from_static(b"\0\xff done \r\n");
    let sealer = client.multi(&["a", "b"]);
    client.acquire_held(&sealer).await;
    assert_eq!(seal(fixture, &client, &sealer, &value).await, Standing::Gone(Why::Left));
    for claim in [client.mutex("a"), client.reader("b"), client.multi(&["b", "c"])] {
        assert_eq!(client.acquire(&claim).await, Admission::Sealed(value.clone()));
        assert_eq!(client.try_acquire(&claim).await, Admission::Sealed(value.clone()));
    }
    client.assert_gone(&sealer).await;
    fixture.advance_brief_ttls(1.1).await;
    client.acquire_held(&client.multi(&["a", "b", "c"])).await;
}

/// A seal removes all waiters, so that none is granted the lock to repeat what was just done.
pub async fn a_seal_empties_the_queue(fixture: &Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let (sealer, waiter, both, other) = (one.mutex("a"), two.mutex("a"), two.multi(&["a", "b"]), two.mutex("b"));
    one.acquire_held(&sealer).await;
    two.acquire_queued(&waiter).await;
    two.acquire_queued(&both).await;
    two.acquire_queued(&other).await;
    seal(fixture, &one, &sealer, &Bytes::from_static(b"x")).await;
    two.assert_gone(&waiter).await;
    two.assert_gone(&both).await;
    two.assert_holds(&other).await;
    assert!(matches!(two.acquire(&two.mutex("a")).await, Admission::Sealed(_)));
}

/// `Seal` of a claim that shares, waits or is gone only releases it.
pub async fn only_an_exclusive_holder_seals(fixture: &Fixture) {
    let client = fixture.client().await;
    let value = Bytes::from_static(b"x");
    let (reader, waiter, stranger) = (client.reader("a"), client.mutex("a"), client.mutex("a"));
    client.acquire_held(&reader).await;
    client.acquire_queued(&waiter).await;
    for claim in [&stranger, &waiter, &reader] {
        assert!(matches!(seal(fixture, &client, claim, &value).await, Standing::Gone(_)));
    }
    client.acquire_held(&client.mutex("a")).await;
}

/// A broken holder may still be at work: the lock is handed off once it has left.
pub async fn a_broken_holder_keeps_its_entry_until_it_leaves(fixture: &Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let holder = one.with(one.mutex("a"), |claim| claim.block = 4);
    let waiter = two.mutex("a");
    let tickets = one.acquire_held(&holder).await;
    two.acquire_queued(&waiter).await;
    let any_of_the_block = Ticket(tickets.first.0 + 2);
    assert_eq!(break_claim(fixture, &two, "a", any_of_the_block).await, Standing::Gone(Why::Broken));
    assert_eq!(one.assert_gone(&holder).await, Why::Broken);
    let again = one.acquire(&holder).await;
    assert_eq!(again, Admission::Gone(Why::Broken));
    two.assert_waits(&waiter).await;
    assert_eq!(one.release(&holder).await, Standing::Gone(Why::Broken));
    two.assert_holds(&waiter).await;
}

/// A broken holder cannot be renewed: if it does not leave, its lease ends it.
pub async fn a_broken_holder_ends_with_its_lease(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, waiter) = (client.brief_mutex("a"), client.mutex("a"));
    let tickets = client.acquire_held(&holder).await;
    client.acquire_queued(&waiter).await;
    break_claim(fixture, &client, "a", tickets.first).await;
    fixture.advance_brief_ttls(0.5).await;
    client.assert_gone(&holder).await;
    client.assert_waits(&waiter).await;
    fixture.advance_brief_ttls(0.6).await;
    client.assert_holds(&waiter).await;
}

/// A break at once hands the lock off without waiting for the lease: the operator knows that the holder is dead.
pub async fn a_break_at_once_hands_off(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, waiter) = (client.mutex("a"), client.mutex("a"));
    let tickets = client.acquire_held(&holder).await;
    client.acquire_queued(&waiter).await;
    assert_eq!(break_at_once(fixture, &client, "a", tickets.first).await, Standing::Gone(Why::Broken));
    client.assert_holds(&waiter).await;
    assert!(matches!(client.acquire(&holder).await, Admission::Gone(_)), "a broken id does not come back");
    assert!(matches!(client.release(&holder).await, Standing::Gone(_)));
    client.assert_holds(&waiter).await;
}

/// A broken waiter ends at once: it holds nothing.
pub async fn a_waiting_claim_can_be_broken(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, front, last) = (client.mutex("a"), client.mutex("a"), client.mutex("a"));
    client.acquire_held(&holder).await;
    let ticket = client.acquire_queued(&front).await;
    client.acquire_queued(&last).await;
    assert_eq!(break_claim(fixture, &client, "a", ticket).await, Standing::Gone(Why::Broken));
    client.assert_gone(&front).await;
    client.assert_holds(&holder).await;
    client.release(&holder).await;
    client.assert_holds(&last).await;
}

/// A broken lingering claim ends at once: no owner is at work under it.
pub async fn a_lingering_claim_can_be_broken(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, waiter) = (client.mutex("a"), client.mutex("a"));
    let tickets = client.acquire_held(&holder).await;
    linger(fixture, &client, &holder, 3.0).await;
    client.acquire_queued(&waiter).await;
    assert_eq!(break_claim(fixture, &client, "a", tickets.first).await, Standing::Gone(Why::Broken));
    client.assert_holds(&waiter).await;
}

/// A break with another fence than the holder's has no effect: the lock was handed off since the operator looked.
pub async fn a_break_needs_the_right_fence(fixture: &Fixture) {
    let client = fixture.client().await;
    let (old, holder) = (client.mutex("a"), client.mutex("a"));
    let seen = client.acquire_held(&old).await.first;
    client.release(&old).await;
    let tickets = client.acquire_held(&holder).await;
    let above = Ticket(tickets.last().0 + 1);
    for at_once in [false, true] {
        for ticket in [seen, above, Ticket(0)] {
            assert_eq!(break_with(fixture, &client, "a", ticket, at_once).await, Standing::Gone(Why::Unknown));
        }
        assert_eq!(break_with(fixture, &client, "b", tickets.first, at_once).await, Standing::Gone(Why::Unknown));
    }
    assert_eq!(client.assert_holds(&holder).await, tickets);
}
