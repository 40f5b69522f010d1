//! Calls that arrive twice or late, or that another client forged.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::claim::{Claim, Ticket};
use crate::store::{Admission, Leaving, Standing, Why};

use super::fixture::{Fixture, expect_supported};
use super::{Time, not_promised};

fn all_leavings(fixture: &Fixture, claim: &Arc<Claim>, floor: Ticket) -> Vec<Leaving> {
    let claim = || Arc::clone(claim);
    vec![
        Leaving::UnlessAlone { claim: claim(), block: 2, floor },
        Leaving::Linger(claim(), fixture.brief_ttl()),
        Leaving::Seal { claim: claim(), value: Bytes::from_static(b"x"), keep: fixture.brief_ttl() },
        Leaving::Unknown(claim()),
        Leaving::Done(claim()),
    ]
}

/// Every verb that is sent twice has the effect of once.
pub async fn every_verb_can_be_sent_twice(fixture: &Fixture) {
    let client = fixture.client().await;
    for way in 0..5 {
        let text = format!("way {way}");
        let (holder, waiter) = (client.mutex(&text), client.mutex(&text));
        let tickets = client.acquire_held(&holder).await;
        assert_eq!(client.acquire_held(&holder).await, tickets);
        let ticket = client.acquire_queued(&waiter).await;
        assert_eq!(client.acquire_queued(&waiter).await, ticket);
        assert_eq!(client.assert_holds(&holder).await, client.assert_holds(&holder).await);
        let leaving = all_leavings(fixture, &holder, ticket).swap_remove(way);
        assert_eq!(client.leave(leaving.clone()).await, Standing::Gone(Why::Left), "{leaving:?}");
        let after_once = fixture.inspect(&fixture.name(&text)).await.map(|resource| resource.queue.len());
        assert!(matches!(client.leave(leaving.clone()).await, Standing::Gone(_)), "{leaving:?} again");
        let after_twice = fixture.inspect(&fixture.name(&text)).await.map(|resource| resource.queue.len());
        assert_eq!(after_once, after_twice, "{leaving:?} again");
    }
    let (holder, waiter) = (client.mutex("b"), client.mutex("b"));
    let tickets = client.acquire_held(&holder).await;
    client.acquire_queued(&waiter).await;
    for _ in 0..2 {
        let leaving = Leaving::Break { name: fixture.name("b"), ticket: tickets.first, at_once: false };
        assert_eq!(client.leave(leaving).await, Standing::Gone(Why::Broken));
    }
    client.assert_waits(&waiter).await;
}

/// Only the claim's id authorizes a verb: a claim that is equal in everything else has no effect.
pub async fn verbs_with_a_foreign_id_have_no_effect(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, waiter, forger) = (client.mutex("a"), client.mutex("a"), client.mutex("a"));
    let tickets = client.acquire_held(&holder).await;
    let ticket = client.acquire_queued(&waiter).await;
    assert_ne!(forger.id.hash(), holder.id.hash());
    for leaving in all_leavings(fixture, &forger, ticket) {
        assert!(matches!(client.leave(leaving).await, Standing::Gone(_)));
    }
    assert!(matches!(client.renew_by(&forger, Duration::from_secs(3600)).await, Standing::Gone(_)));
    assert_eq!(client.assert_holds(&holder).await, tickets);
    assert_eq!(client.assert_waits(&waiter).await, ticket);
    let shown = fixture.inspect(&fixture.name("a")).await.expect("two claims are in it");
    assert_eq!(shown.queue.len(), 2);
    assert_eq!(shown.sealed_for, None);
}

/// An acquire that runs after its caller has withdrawn it is refused, and leaves no claim that is never renewed.
pub async fn a_late_acquire_is_refused(fixture: &Fixture) {
    let client = fixture.client().await;
    let late = client.brief_mutex("a");
    client.leave(Leaving::Unknown(Arc::clone(&late))).await;
    fixture.advance_brief_ttls(0.6).await;
    for admission in [client.acquire(&late).await, client.try_acquire(&late).await] {
        assert!(matches!(admission, Admission::Gone(_)), "{admission:?}");
    }
    client.assert_gone(&late).await;
    let other = client.mutex("a");
    client.acquire_held(&other).await;
    assert!(matches!(client.acquire(&late).await, Admission::Gone(_)), "also while the lock is held");
    client.release(&other).await;
}

/// The tombstone of a withdrawn acquire lasts for a minute at most, however long the lease would have been.
pub async fn the_tombstone_of_a_long_lease_ends_after_a_minute(fixture: &Fixture) {
    if fixture.time() == Time::Real {
        not_promised("a case cannot wait for a minute");
    }
    let client = fixture.client().await;
    let week = Duration::from_secs(7 * 24 * 3600);
    let late = client.with(client.mutex("a"), |claim| claim.ttl = week);
    let dead = client.with(client.mutex("b"), |claim| claim.ttl = week);
    client.leave(Leaving::Unknown(Arc::clone(&late))).await;
    let fence = client.acquire_held(&dead).await.first;
    client.leave(Leaving::Break { name: fixture.name("b"), ticket: fence, at_once: true }).await;
    fixture.advance(Duration::from_secs(59)).await;
    assert!(matches!(client.acquire(&late).await, Admission::Gone(_)));
    fixture.advance(Duration::from_secs(2)).await;
    client.acquire_held(&late).await;
    assert_eq!(client.assert_gone(&dead).await, Why::Broken, "the tombstone of a broken claim lives for one lease");
}

/// `Leaving::Unknown` of a claim that did join releases it like any other.
pub async fn a_release_of_unknown_outcome_frees(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, front, last) = (client.mutex("a"), client.mutex("a"), client.mutex("a"));
    client.acquire_held(&holder).await;
    client.acquire_queued(&front).await;
    client.acquire_queued(&last).await;
    assert_eq!(client.leave(Leaving::Unknown(Arc::clone(&front))).await, Standing::Gone(Why::Left));
    assert_eq!(client.leave(Leaving::Unknown(Arc::clone(&holder))).await, Standing::Gone(Why::Left));
    client.assert_holds(&last).await;
    for claim in [&holder, &front] {
        assert!(matches!(client.acquire(claim).await, Admission::Gone(_)));
    }
}

/// A repeated `Leaving::Unknown` gets the reply of the first: that the claim left only if it had joined.
pub async fn a_repeated_release_gets_the_first_reply(fixture: &Fixture) {
    let client = fixture.client().await;
    let left = |standing: &Standing| matches!(standing, Standing::Gone(Why::Left | Why::PassedOn(..)));
    let (held, unknown) = (client.mutex("a"), client.mutex("b"));
    client.acquire_held(&held).await;
    for _ in 0..2 {
        let standing = client.leave(Leaving::Unknown(Arc::clone(&held))).await;
        assert!(left(&standing), "{standing:?}");
        let standing = client.leave(Leaving::Unknown(Arc::clone(&unknown))).await;
        assert!(!left(&standing), "a claim that the store never had, or has lost: {standing:?}");
    }
}

/// A second copy of an `UnlessAlone` by whose first copy the claim went on does not end a later linger or a broken
/// hold.
pub async fn a_late_copy_of_unless_alone_ends_no_later_hold(fixture: &Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    // Holds, and goes on with a new block of tickets, while another claim waits behind.
    let hold_twice = async |text: &str| {
        let holder = one.mutex(text);
        let floor = one.acquire_held(&holder).await.last();
        let release = Leaving::UnlessAlone { claim: Arc::clone(&holder), block: 1, floor };
        let Standing::Held(fresh) = one.leave(release.clone()).await else { panic!("it goes on") };
        let waiter = two.mutex(text);
        two.acquire_queued(&waiter).await;
        (holder, fresh, release, waiter)
    };
    let (holder, _, release, waiter) = hold_twice("a").await;
    one.leave(Leaving::Linger(holder, fixture.ttl())).await;
    assert_eq!(one.leave(release).await, Standing::Gone(Why::Left));
    two.assert_waits(&waiter).await;

    let (holder, fresh, release, waiter) = hold_twice("b").await;
    one.leave(Leaving::Break { name: fixture.name("b"), ticket: fresh.first, at_once: false }).await;
    assert_eq!(one.leave(release).await, Standing::Gone(Why::Broken));
    two.assert_waits(&waiter).await;
    assert_eq!(one.release(&holder).await, Standing::Gone(Why::Broken));
    two.assert_holds(&waiter).await;
}

/// One call that releases many claims returns the same number of standings, in the same order. Each standing includes
/// the effects of the releases before it.
pub async fn releases_are_answered_in_order(fixture: &Fixture) {
    let client = fixture.client().await;
    let (first, second, other) = (client.mutex("a"), client.mutex("a"), client.mutex("b"));
    let last = [
        client.acquire_held(&first).await.last(),
        client.acquire_queued(&second).await,
        client.acquire_held(&other).await.last(),
    ];
    let never = client.mutex("c");
    let floor = last.into_iter().max().expect("three of them");
    let leaving = [
        Leaving::Done(Arc::clone(&first)),
        Leaving::Done(never),
        Leaving::UnlessAlone { claim: Arc::clone(&second), block: 2, floor },
        Leaving::Done(other),
    ];
    let answers = expect_supported(client.store().release(&leaving).await);
    let [left, unknown, goes_on, also_left] = &answers[..] else { panic!("four replies, not {answers:?}") };
    assert_eq!((left, also_left), (&Standing::Gone(Why::Left), &Standing::Gone(Why::Left)));
    assert!(matches!(unknown, Standing::Gone(_)));
    assert!(matches!(goes_on, Standing::Held(tickets) if tickets.count == 2), "{goes_on:?}");
    assert_eq!(expect_supported(client.store().release(&[]).await), []);
}
