//! Those who die: their locks are free when their leases have ended, and they know it first.

use std::time::Duration;

use crate::clock::Clock;
use crate::error::LostWhy;

use super::super::Time;
use super::super::place::{Place, promised};
use super::user::{Asking, User, soon, spent};

/// How soon after its end a lease is noticed.
const NOTICED_IN: Duration = Duration::from_millis(100);
/// What a busy machine may add to that.
const BUSY: Duration = Duration::from_millis(400);

async fn waits(user: &User, ttl: Duration) -> Asking {
    let lock = user.mutex("a").ttl(ttl);
    user.in_line(async move { lock.lock().await }).await
}

/// Nobody renews it any more, and nobody has to clean up.
pub async fn a_dead_holders_lock_is_free_after_its_lease(place: &Place) {
    let [one, two, _] = place.three().await;
    let held = promised(one.mutex("a").ttl(place.brief()).lock().await);
    one.die();
    assert!(two.surely(async || two.mutex("a").try_lock().await).await.is_none());
    place.pass(1.0).await;
    place.pass_time(NOTICED_IN).await;
    assert_eq!(soon(held.lost()).await, LostWhy::Expired);
    let next = promised(soon(two.mutex("a").lock()).await);
    two.let_go(next).await;
}

/// Who waits for a dead holder's lock gets it when the lease has ended, and not much later.
pub async fn a_waiter_gets_a_dead_holders_lock(place: &Place) {
    let [one, two, _] = place.three().await;
    let held = promised(one.mutex("a").ttl(place.brief()).lock().await);
    let waiter = waits(&two, place.ttl()).await;
    one.die();
    let died = Clock::boot().now();
    if place.time() == Time::Set {
        place.pass(1.0).await;
        place.pass_time(NOTICED_IN).await;
    }
    let next = waiter.held().await;
    // Judged by its own clock, the dead one's time was over before that.
    assert!(held.check().is_err());
    if place.time() == Time::Real && place.is_exact() {
        let took = spent(died);
        assert!(took <= place.brief() + NOTICED_IN + BUSY, "{took:?}");
    }
    two.let_go(next).await;
}

/// A waiter that died keeps the others waiting until its lease has ended, no longer.
pub async fn a_dead_waiter_is_passed_over(place: &Place) {
    let [one, two, three] = place.three().await;
    let held = promised(one.mutex("a").lock().await);
    let dead = waits(&two, place.brief()).await;
    let alive = waits(&three, place.brief() * 3).await;
    two.die();
    one.let_go(held).await;
    three.let_go(place.held_within(2.5, alive).await).await;
    dead.cancel().await;
}

/// Holder and first waiter die together: the second waiter notices all the same.
pub async fn a_dead_holder_and_a_dead_waiter_are_passed_over(place: &Place) {
    let [one, two, three] = place.three().await;
    let held = promised(one.mutex("a").ttl(place.brief()).lock().await);
    let dead = waits(&two, place.brief()).await;
    let alive = waits(&three, place.brief() * 3).await;
    one.die();
    two.die();
    three.let_go(place.held_within(2.5, alive).await).await;
    assert!(held.check().is_err());
    dead.cancel().await;
}

/// Nothing about a lock that was lost to another can be changed by who had it: the guard, its client, or their end.
pub async fn who_lost_a_lock_cannot_touch_it(place: &Place) {
    let [one, two, three] = place.three().await;
    let lapsed = promised(one.mutex("a").ttl(place.brief()).no_renewal().lock().await);
    let waiter = waits(&two, place.ttl()).await;
    let next = place.held_within(2.0, waiter).await;
    assert!(lapsed.extend(place.brief()).await.is_err());
    assert!(lapsed.release().await.is_err());
    let lapsed = one.mutex("a").lock_within(Duration::ZERO).await;
    assert!(lapsed.is_err(), "{lapsed:?}");
    drop(soon(one.shutdown(place.brief())).await);
    assert!(three.surely(async || three.mutex("a").try_lock().await).await.is_none());
    assert!(next.check().is_ok());
    two.let_go(next).await;
}
