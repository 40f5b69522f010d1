//! Clients that die: their locks are free when their leases have ended, and their guards are lost before that.

use std::time::Duration;

use crate::clock::Clock;
use crate::error::LostWhy;

use super::super::Time;
use super::super::fixture::{Fixture, expect_supported};
use super::user::{Request, User, elapsed_since, soon};

/// The end of a lease is noticed within this time.
const NOTICED_WITHIN: Duration = Duration::from_millis(100);
/// What a busy machine may add to [`NOTICED_WITHIN`].
const BUSY_MACHINE_DELAY: Duration = Duration::from_millis(400);

/// Starts to lock the mutex "a", and returns once its claim waits.
async fn enqueue_lock(user: &User, ttl: Duration) -> Request {
    let lock = user.mutex("a").ttl(ttl);
    user.enqueue(async move { lock.lock().await }).await
}

/// A dead holder's lock is free when its lease has ended, without any clean-up.
pub async fn a_dead_holders_lock_is_free_after_its_lease(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").ttl(fixture.brief_ttl()).lock().await);
    one.die();
    assert!(two.retry(async || two.mutex("a").try_lock().await).await.is_none());
    fixture.advance_brief_ttls(1.0).await;
    fixture.advance(NOTICED_WITHIN).await;
    assert_eq!(soon(held.lost()).await, LostWhy::Expired);
    let next = expect_supported(soon(two.mutex("a").lock()).await);
    two.release(next).await;
}

/// A waiter gets a dead holder's lock within 100 ms of the end of the lease.
pub async fn a_waiter_gets_a_dead_holders_lock(fixture: &Fixture) {
    let [one, two, _] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").ttl(fixture.brief_ttl()).lock().await);
    let waiter = enqueue_lock(&two, fixture.ttl()).await;
    one.die();
    let died = Clock::boot().now();
    if fixture.time() == Time::Set {
        fixture.advance_brief_ttls(1.0).await;
        fixture.advance(NOTICED_WITHIN).await;
    }
    let next = waiter.expect_held().await;
    // By its own clock, the dead holder's lease was over before this grant.
    assert!(held.check().is_err());
    if fixture.time() == Time::Real && fixture.is_reliable() {
        let took = elapsed_since(died);
        assert!(took <= fixture.brief_ttl() + NOTICED_WITHIN + BUSY_MACHINE_DELAY, "{took:?}");
    }
    two.release(next).await;
}

/// A dead waiter delays the waiters behind it until its lease has ended, no longer.
pub async fn a_dead_waiter_is_passed_over(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").lock().await);
    let dead = enqueue_lock(&two, fixture.brief_ttl()).await;
    let alive = enqueue_lock(&three, fixture.brief_ttl() * 3).await;
    two.die();
    one.release(held).await;
    three.release(fixture.held_within(2.5, alive).await).await;
    dead.cancel().await;
}

/// If holder and first waiter die together, the second waiter is still granted when their leases have ended.
pub async fn a_dead_holder_and_a_dead_waiter_are_passed_over(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let held = expect_supported(one.mutex("a").ttl(fixture.brief_ttl()).lock().await);
    let dead = enqueue_lock(&two, fixture.brief_ttl()).await;
    let alive = enqueue_lock(&three, fixture.brief_ttl() * 3).await;
    one.die();
    two.die();
    three.release(fixture.held_within(2.5, alive).await).await;
    assert!(held.check().is_err());
    dead.cancel().await;
}

/// A client that lost a lock to another cannot change it: not by its guard, by a new acquisition, or by a shutdown.
pub async fn a_client_that_lost_a_lock_cannot_change_it(fixture: &Fixture) {
    let [one, two, three] = fixture.three_users().await;
    let lapsed = expect_supported(one.mutex("a").ttl(fixture.brief_ttl()).no_renewal().lock().await);
    let waiter = enqueue_lock(&two, fixture.ttl()).await;
    let next = fixture.held_within(2.0, waiter).await;
    assert!(lapsed.extend(fixture.brief_ttl()).await.is_err());
    assert!(lapsed.release().await.is_err());
    let lapsed = one.mutex("a").lock_within(Duration::ZERO).await;
    assert!(lapsed.is_err(), "{lapsed:?}");
    drop(soon(one.shutdown(fixture.brief_ttl())).await);
    assert!(three.retry(async || three.mutex("a").try_lock().await).await.is_none());
    assert!(next.check().is_ok());
    two.release(next).await;
}
