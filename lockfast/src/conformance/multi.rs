//! Several names in one claim.

use crate::claim::{Demand, Demands};
use crate::store::{Admission, Standing, Why};

use super::fixture::Fixture;

/// A claim on several names that cannot have all of them takes none.
pub async fn a_multi_is_all_or_nothing(fixture: &Fixture) {
    let client = fixture.client().await;
    let holder = client.mutex("b");
    client.acquire_held(&holder).await;
    client.acquire_refused(&client.multi(&["a", "b", "c"])).await;
    for text in ["a", "c"] {
        let claim = client.mutex(text);
        assert!(matches!(client.try_acquire(&claim).await, Admission::Held(_)), "{text} was taken by a refused claim");
        client.release(&claim).await;
    }
    client.release(&holder).await;
    client.acquire_held(&client.multi(&["a", "b", "c"])).await;
    for text in ["a", "b", "c"] {
        client.acquire_refused(&client.mutex(text)).await;
    }
}

/// A name without a holder is not free while a claim waits there for its other name.
pub async fn a_new_claim_does_not_pass_a_multi_at_the_front(fixture: &Fixture) {
    fixture.require(fixture.guarantees().fair, "a queue");
    let client = fixture.client().await;
    let (holder, both, late) = (client.mutex("b"), client.multi(&["a", "b"]), client.mutex("a"));
    client.acquire_held(&holder).await;
    let ticket = client.acquire_queued(&both).await;
    client.acquire_refused(&client.mutex("a")).await;
    client.acquire_queued(&late).await;
    client.release(&holder).await;
    assert_eq!(client.assert_holds(&both).await.first, ticket);
    client.assert_waits(&late).await;
    client.release(&both).await;
    client.assert_holds(&late).await;
}

/// Claims on the same names, written in any order, never wait for each other in a cycle.
pub async fn opposite_orders_do_not_deadlock(fixture: &Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    for _ in 0..10 {
        let (first, second) = (one.multi(&["a", "b"]), two.multi(&["b", "a"]));
        let (a, b) = futures::join!(one.acquire(&first), two.acquire(&second));
        match (a, b) {
            (Admission::Held(_), Admission::Queued { .. }) => {
                one.release(&first).await;
                two.assert_holds(&second).await;
                two.release(&second).await;
            }
            (Admission::Queued { .. }, Admission::Held(_)) => {
                two.release(&second).await;
                one.assert_holds(&first).await;
                one.release(&first).await;
            }
            both => panic!("one holds and one waits, not {both:?}"),
        }
    }
}

/// One claim may combine an exclusive lock, a shared lock and permits.
pub async fn a_multi_may_mix_kinds(fixture: &Fixture) {
    let client = fixture.client().await;
    let demands = || {
        let permits = Demand::permits(fixture.name("c"), 2, 3).expect("two of three");
        Demands::of(vec![Demand::exclusive(fixture.name("a")), Demand::shared(fixture.name("b")), permits])
    };
    let mixed = client.claim(demands().expect("three names"));
    client.acquire_held(&mixed).await;
    client.acquire_refused(&client.reader("a")).await;
    client.acquire_held(&client.reader("b")).await;
    client.acquire_refused(&client.mutex("b")).await;
    client.acquire_held(&client.permits("c", 1, 3)).await;
    client.acquire_refused(&client.permits("c", 1, 3)).await;
    let next = client.claim(demands().expect("three names"));
    client.acquire_queued(&next).await;
    client.release(&mixed).await;
    client.assert_holds(&next).await;
}

/// When a claim on several names leaves, the first waiter of each name is granted.
pub async fn a_multi_frees_all_it_held(fixture: &Fixture) {
    let client = fixture.client().await;
    let (both, first, second) = (client.multi(&["a", "b"]), client.mutex("a"), client.mutex("b"));
    client.acquire_held(&both).await;
    client.acquire_queued(&first).await;
    client.acquire_queued(&second).await;
    client.release(&both).await;
    client.assert_holds(&first).await;
    client.assert_holds(&second).await;
}

/// `UnlessAlone` of a reader releases if a claim behind it fits on this name and waits on another: its ticket is lower
/// than the reader's next one would be.
pub async fn unless_alone_releases_for_a_multi_waiting_elsewhere(fixture: &Fixture) {
    let client = fixture.client().await;
    let (reader, elsewhere) = (client.reader("a"), client.mutex("b"));
    let demands = vec![Demand::shared(fixture.name("a")), Demand::exclusive(fixture.name("b"))];
    let both = client.claim(Demands::of(demands).expect("two names"));
    client.acquire_held(&reader).await;
    client.acquire_held(&elsewhere).await;
    let ticket = client.acquire_queued(&both).await;
    assert_eq!(client.release_unless_alone(&reader, 2, ticket).await, Standing::Gone(Why::Left));
    client.assert_waits(&both).await;
}

/// When the lease ahead of both has run out, a claim on several names that gets its last name does not pass a waiter
/// that fits too.
pub async fn a_multi_does_not_pass_a_waiter_that_fits(fixture: &Fixture) {
    let client = fixture.client().await;
    let permits = |weight| Demand::permits(fixture.name("p"), weight, 3).expect("at most three");
    let shared = |text: &str| Demand::shared(fixture.name(text));
    let (holder, expiring) = (client.mutex("a"), client.claim(permits(2)));
    let expiring = client.with(expiring, |claim| claim.ttl = fixture.brief_ttl());
    let (writer, reader) = (client.brief_mutex("b"), client.reader("b"));
    let (light, third) = (client.permits("p", 2, 3), permits(1));
    let all = vec![Demand::exclusive(fixture.name("a")), shared("b"), third];
    let all = client.claim(Demands::of(all).expect("three names"));
    for claim in [&holder, &expiring, &writer] {
        client.acquire_held(claim).await;
    }
    for waiter in [&light, &reader, &all] {
        client.acquire_queued(waiter).await;
    }
    fixture.advance_brief_ttls(1.1).await;
    client.release(&holder).await;
    for claim in [&all, &light, &reader] {
        client.assert_holds(claim).await;
    }
}
