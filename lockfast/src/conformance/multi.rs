//! Several names in one claim.

use crate::claim::{Demand, Demands};
use crate::store::{Admission, Standing, Why};

use super::place::Place;

/// A claim that cannot have everything has nothing.
pub async fn a_multi_is_all_or_nothing(place: &Place) {
    let client = place.client().await;
    let holder = client.mutex("b");
    client.held(&holder).await;
    client.refused(&client.multi(&["a", "b", "c"])).await;
    for text in ["a", "c"] {
        let claim = client.mutex(text);
        assert!(matches!(client.try_now(&claim).await, Admission::Held(_)), "{text} was taken by a refused claim");
        client.done(&claim).await;
    }
    client.done(&holder).await;
    client.held(&client.multi(&["a", "b", "c"])).await;
    for text in ["a", "b", "c"] {
        client.refused(&client.mutex(text)).await;
    }
}

/// A name without a holder is not free when a claim waits there for its other name.
pub async fn a_newcomer_does_not_pass_a_multi_at_the_front(place: &Place) {
    place.needs(place.guarantees().fair, "a line");
    let client = place.client().await;
    let (holder, both, late) = (client.mutex("b"), client.multi(&["a", "b"]), client.mutex("a"));
    client.held(&holder).await;
    let ticket = client.queued(&both).await;
    client.refused(&client.mutex("a")).await;
    client.queued(&late).await;
    client.done(&holder).await;
    assert_eq!(client.holds(&both).await.first, ticket);
    client.waits(&late).await;
    client.done(&both).await;
    client.holds(&late).await;
}

/// Claims on the same names in any order of writing never wait for each other in a circle.
pub async fn opposite_orders_do_not_deadlock(place: &Place) {
    let (one, two) = (place.client().await, place.client().await);
    for _ in 0..10 {
        let (first, second) = (one.multi(&["a", "b"]), two.multi(&["b", "a"]));
        let (a, b) = futures::join!(one.wait(&first), two.wait(&second));
        match (a, b) {
            (Admission::Held(_), Admission::Queued { .. }) => {
                one.done(&first).await;
                two.holds(&second).await;
                two.done(&second).await;
            }
            (Admission::Queued { .. }, Admission::Held(_)) => {
                two.done(&second).await;
                one.holds(&first).await;
                one.done(&first).await;
            }
            both => panic!("one holds and one waits, not {both:?}"),
        }
    }
}

/// A mutex, a reader's part and some permits, in one claim.
pub async fn a_multi_may_mix_kinds(place: &Place) {
    let client = place.client().await;
    let demands = || {
        let permits = Demand::permits(place.name("c"), 2, 3).expect("two of three");
        Demands::of(vec![Demand::exclusive(place.name("a")), Demand::shared(place.name("b")), permits])
    };
    let mixed = client.claim(demands().expect("three names"));
    client.held(&mixed).await;
    client.refused(&client.reader("a")).await;
    client.held(&client.reader("b")).await;
    client.refused(&client.mutex("b")).await;
    client.held(&client.permits("c", 1, 3)).await;
    client.refused(&client.permits("c", 1, 3)).await;
    let next = client.claim(demands().expect("three names"));
    client.queued(&next).await;
    client.done(&mixed).await;
    client.holds(&next).await;
}

/// When it leaves, who waits on any of its names is handed that.
pub async fn a_multi_frees_all_it_held(place: &Place) {
    let client = place.client().await;
    let (both, first, second) = (client.multi(&["a", "b"]), client.mutex("a"), client.mutex("b"));
    client.held(&both).await;
    client.queued(&first).await;
    client.queued(&second).await;
    client.done(&both).await;
    client.holds(&first).await;
    client.holds(&second).await;
}

/// It fits beside the reader, but its number is lower than the reader's next would be.
pub async fn a_turn_ends_for_a_multi_that_waits_elsewhere(place: &Place) {
    let client = place.client().await;
    let (reader, elsewhere) = (client.reader("a"), client.mutex("b"));
    let demands = vec![Demand::shared(place.name("a")), Demand::exclusive(place.name("b"))];
    let both = client.claim(Demands::of(demands).expect("two names"));
    client.held(&reader).await;
    client.held(&elsewhere).await;
    let ticket = client.queued(&both).await;
    assert_eq!(client.unless_alone(&reader, 2, ticket).await, Standing::Gone(Why::Left));
    client.waits(&both).await;
}

/// The lease ahead of both has run out when the claim on several names gets its other name.
pub async fn a_multi_does_not_pass_a_waiter_that_fits(place: &Place) {
    let client = place.client().await;
    let permits = |weight| Demand::permits(place.name("p"), weight, 3).expect("at most three");
    let shared = |text: &str| Demand::shared(place.name(text));
    let (holds, dies) = (client.mutex("a"), client.claim(permits(2)));
    let dies = client.with(dies, |claim| claim.ttl = place.brief());
    let (writes, reads) = (client.brief_mutex("b"), client.reader("b"));
    let (light, third) = (client.permits("p", 2, 3), permits(1));
    let all = vec![Demand::exclusive(place.name("a")), shared("b"), third];
    let all = client.claim(Demands::of(all).expect("three names"));
    for holder in [&holds, &dies, &writes] {
        client.held(holder).await;
    }
    for waiter in [&light, &reads, &all] {
        client.queued(waiter).await;
    }
    place.pass(1.1).await;
    client.done(&holds).await;
    for holder in [&all, &light, &reads] {
        client.holds(holder).await;
    }
}
