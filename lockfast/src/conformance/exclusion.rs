//! Which claims hold together, and in which order claims are granted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::claim::Claim;
use crate::store::{Admission, Standing, Why};

use super::fixture::{Client, Fixture};

/// Of two claims on a mutex one holds; the other holds once the first has left.
pub async fn one_claim_holds_a_mutex_at_a_time(fixture: &Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let (first, second) = (one.mutex("a"), two.mutex("a"));
    one.acquire_held(&first).await;
    let Admission::Queued { position, .. } = two.acquire(&second).await else { panic!("two hold one mutex") };
    assert_eq!(position, 1);
    two.assert_waits(&second).await;
    assert_eq!(one.release(&first).await, Standing::Gone(Why::Left));
    two.assert_holds(&second).await;
}

/// Claims are granted in the order in which they joined.
pub async fn the_queue_is_first_come_first_served(fixture: &Fixture) {
    fixture.require(fixture.guarantees().fair, "a queue");
    let client = fixture.client().await;
    let claims: Vec<_> = (0..6).map(|_| client.mutex("a")).collect();
    client.acquire_held(&claims[0]).await;
    for (ahead, claim) in claims.iter().enumerate().skip(1) {
        let admission = client.acquire(claim).await;
        assert!(matches!(admission, Admission::Queued { position, .. } if position == ahead), "{admission:?}");
    }
    for (now, claim) in claims.iter().enumerate() {
        client.assert_holds(claim).await;
        for later in &claims[now + 1..] {
            client.assert_waits(later).await;
        }
        client.release(claim).await;
    }
}

/// A waiter that left is not granted anything; the next waiter is.
pub async fn a_waiter_that_left_is_passed_over(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, front, last) = (client.mutex("a"), client.mutex("a"), client.mutex("a"));
    client.acquire_held(&holder).await;
    client.acquire_queued(&front).await;
    client.acquire_queued(&last).await;
    assert_eq!(client.release(&front).await, Standing::Gone(Why::Left));
    client.assert_holds(&holder).await;
    client.release(&holder).await;
    client.assert_holds(&last).await;
    client.assert_gone(&front).await;
}

/// Any number of readers hold together.
pub async fn readers_share(fixture: &Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    for _ in 0..5 {
        one.acquire_held(&one.reader("a")).await;
        two.acquire_held(&two.reader("a")).await;
    }
}

/// A writer waits for all readers, and while it holds no reader and no writer does.
pub async fn a_writer_excludes_all_other_claims(fixture: &Fixture) {
    let client = fixture.client().await;
    let (reader, other, writer) = (client.reader("a"), client.reader("a"), client.mutex("a"));
    client.acquire_held(&reader).await;
    client.acquire_held(&other).await;
    client.acquire_queued(&writer).await;
    client.release(&reader).await;
    client.assert_waits(&writer).await;
    client.release(&other).await;
    client.assert_holds(&writer).await;
    client.acquire_refused(&client.reader("a")).await;
    client.acquire_refused(&client.mutex("a")).await;
}

/// A new reader does not pass a waiting writer; otherwise writers could wait for ever.
pub async fn a_reader_behind_a_writer_waits(fixture: &Fixture) {
    fixture.require(fixture.guarantees().fair, "a queue");
    let client = fixture.client().await;
    let (reader, writer, late) = (client.reader("a"), client.mutex("a"), client.reader("a"));
    client.acquire_held(&reader).await;
    client.acquire_queued(&writer).await;
    client.acquire_queued(&late).await;
    client.acquire_refused(&client.reader("a")).await;
    client.release(&writer).await;
    client.assert_holds(&late).await;
    client.assert_holds(&reader).await;
}

/// All readers between two writers are granted together when the first writer leaves.
pub async fn readers_behind_a_writer_enter_together(fixture: &Fixture) {
    fixture.require(fixture.guarantees().fair, "a queue");
    let client = fixture.client().await;
    let (writer, last) = (client.mutex("a"), client.mutex("a"));
    let readers = [client.reader("a"), client.reader("a"), client.reader("a")];
    client.acquire_held(&writer).await;
    for reader in &readers {
        client.acquire_queued(reader).await;
    }
    client.acquire_queued(&last).await;
    client.release(&writer).await;
    for reader in &readers {
        client.assert_holds(reader).await;
    }
    client.assert_waits(&last).await;
    for reader in &readers {
        client.release(reader).await;
    }
    client.assert_holds(&last).await;
}

/// Permits are granted by weight, up to the capacity.
pub async fn a_semaphore_counts(fixture: &Fixture) {
    let client = fixture.client().await;
    let (two, one, more) = (client.permits("s", 2, 3), client.permits("s", 1, 3), client.permits("s", 1, 3));
    client.acquire_held(&two).await;
    client.acquire_held(&one).await;
    client.acquire_queued(&more).await;
    client.release(&two).await;
    client.assert_holds(&more).await;
    client.acquire_held(&client.permits("s", 1, 3)).await;
    client.acquire_refused(&client.permits("s", 1, 3)).await;
}

/// Free capacity is kept for the first waiter, even if a later claim would fit.
pub async fn a_light_claim_does_not_pass_a_heavy_one(fixture: &Fixture) {
    fixture.require(fixture.guarantees().fair, "a queue");
    let client = fixture.client().await;
    let (holder, heavy, light) = (client.permits("s", 2, 3), client.permits("s", 2, 3), client.permits("s", 1, 3));
    client.acquire_held(&holder).await;
    client.acquire_queued(&heavy).await;
    client.acquire_refused(&client.permits("s", 1, 3)).await;
    client.acquire_queued(&light).await;
    client.release(&holder).await;
    client.assert_holds(&heavy).await;
    client.assert_holds(&light).await;
}

/// With a capacity of one, a semaphore excludes like a mutex.
pub async fn a_semaphore_of_one_is_a_mutex(fixture: &Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let (first, second) = (one.permits("s", 1, 1), two.permits("s", 1, 1));
    one.acquire_held(&first).await;
    two.acquire_queued(&second).await;
    one.release(&first).await;
    two.assert_holds(&second).await;
}

/// Concurrent clients hold one at a time, each of them in the end, with rising fences.
pub async fn concurrent_claims_never_overlap(fixture: &Fixture) {
    fixture.require(fixture.guarantees().push, "pushes");
    const ROUNDS: usize = 25;
    let (holders, highest, grants) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let worker = async || {
        let client = fixture.client().await;
        for _ in 0..ROUNDS {
            let (claim, fence) = lock_mutex(&client).await;
            assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two holders at once");
            assert!(highest.swap(fence, Ordering::SeqCst) < fence, "a fence did not rise");
            grants.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            holders.fetch_sub(1, Ordering::SeqCst);
            client.release(&claim).await;
        }
    };
    futures::join!(worker(), worker(), worker(), worker(), worker(), worker());
    assert_eq!(grants.load(Ordering::SeqCst), 6 * ROUNDS as u64);
}

/// Acquires the mutex "a", and waits for the push of the grant.
async fn lock_mutex(client: &Client<'_>) -> (Arc<Claim>, u64) {
    let claim = client.mutex("a");
    let ticket = match client.acquire(&claim).await {
        Admission::Held(tickets) => tickets.first,
        Admission::Queued { ticket, .. } => {
            client.expect_push_held(&claim, ticket).await;
            ticket
        }
        other => panic!("{other:?}"),
    };
    (claim, ticket.0)
}
