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
    one.held(&first).await;
    let Admission::Queued { position, .. } = two.wait(&second).await else { panic!("two hold one mutex") };
    assert_eq!(position, 1);
    two.waits(&second).await;
    assert_eq!(one.done(&first).await, Standing::Gone(Why::Left));
    two.holds(&second).await;
}

/// Claims are granted in the order in which they joined.
pub async fn the_queue_is_first_come_first_served(fixture: &Fixture) {
    fixture.needs(fixture.guarantees().fair, "a queue");
    let client = fixture.client().await;
    let claims: Vec<_> = (0..6).map(|_| client.mutex("a")).collect();
    client.held(&claims[0]).await;
    for (ahead, claim) in claims.iter().enumerate().skip(1) {
        let admission = client.wait(claim).await;
        assert!(matches!(admission, Admission::Queued { position, .. } if position == ahead), "{admission:?}");
    }
    for (now, claim) in claims.iter().enumerate() {
        client.holds(claim).await;
        for later in &claims[now + 1..] {
            client.waits(later).await;
        }
        client.done(claim).await;
    }
}

/// A waiter that left is not granted anything; the next waiter is.
pub async fn a_waiter_that_left_is_passed_over(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, front, last) = (client.mutex("a"), client.mutex("a"), client.mutex("a"));
    client.held(&holder).await;
    client.queued(&front).await;
    client.queued(&last).await;
    assert_eq!(client.done(&front).await, Standing::Gone(Why::Left));
    client.holds(&holder).await;
    client.done(&holder).await;
    client.holds(&last).await;
    client.is_gone(&front).await;
}

/// Any number of readers hold together.
pub async fn readers_share(fixture: &Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    for _ in 0..5 {
        one.held(&one.reader("a")).await;
        two.held(&two.reader("a")).await;
    }
}

/// A writer waits for all readers, and while it holds no reader and no writer does.
pub async fn a_writer_excludes_all_other_claims(fixture: &Fixture) {
    let client = fixture.client().await;
    let (reader, other, writer) = (client.reader("a"), client.reader("a"), client.mutex("a"));
    client.held(&reader).await;
    client.held(&other).await;
    client.queued(&writer).await;
    client.done(&reader).await;
    client.waits(&writer).await;
    client.done(&other).await;
    client.holds(&writer).await;
    client.refused(&client.reader("a")).await;
    client.refused(&client.mutex("a")).await;
}

/// A new reader does not pass a waiting writer; otherwise writers could wait for ever.
pub async fn a_reader_behind_a_writer_waits(fixture: &Fixture) {
    fixture.needs(fixture.guarantees().fair, "a queue");
    let client = fixture.client().await;
    let (reader, writer, late) = (client.reader("a"), client.mutex("a"), client.reader("a"));
    client.held(&reader).await;
    client.queued(&writer).await;
    client.queued(&late).await;
    client.refused(&client.reader("a")).await;
    client.done(&writer).await;
    client.holds(&late).await;
    client.holds(&reader).await;
}

/// All readers between two writers are granted together when the first writer leaves.
pub async fn readers_behind_a_writer_enter_together(fixture: &Fixture) {
    fixture.needs(fixture.guarantees().fair, "a queue");
    let client = fixture.client().await;
    let (writer, last) = (client.mutex("a"), client.mutex("a"));
    let readers = [client.reader("a"), client.reader("a"), client.reader("a")];
    client.held(&writer).await;
    for reader in &readers {
        client.queued(reader).await;
    }
    client.queued(&last).await;
    client.done(&writer).await;
    for reader in &readers {
        client.holds(reader).await;
    }
    client.waits(&last).await;
    for reader in &readers {
        client.done(reader).await;
    }
    client.holds(&last).await;
}

/// Permits are granted by weight, up to the capacity.
pub async fn a_semaphore_counts(fixture: &Fixture) {
    let client = fixture.client().await;
    let (two, one, more) = (client.permits("s", 2, 3), client.permits("s", 1, 3), client.permits("s", 1, 3));
    client.held(&two).await;
    client.held(&one).await;
    client.queued(&more).await;
    client.done(&two).await;
    client.holds(&more).await;
    client.held(&client.permits("s", 1, 3)).await;
    client.refused(&client.permits("s", 1, 3)).await;
}

/// Free capacity is kept for the first waiter, even if a later claim would fit.
pub async fn a_light_claim_does_not_pass_a_heavy_one(fixture: &Fixture) {
    fixture.needs(fixture.guarantees().fair, "a queue");
    let client = fixture.client().await;
    let (holder, heavy, light) = (client.permits("s", 2, 3), client.permits("s", 2, 3), client.permits("s", 1, 3));
    client.held(&holder).await;
    client.queued(&heavy).await;
    client.refused(&client.permits("s", 1, 3)).await;
    client.queued(&light).await;
    client.done(&holder).await;
    client.holds(&heavy).await;
    client.holds(&light).await;
}

/// With a capacity of one, a semaphore excludes like a mutex.
pub async fn a_semaphore_of_one_is_a_mutex(fixture: &Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let (first, second) = (one.permits("s", 1, 1), two.permits("s", 1, 1));
    one.held(&first).await;
    two.queued(&second).await;
    one.done(&first).await;
    two.holds(&second).await;
}

/// Concurrent clients hold one at a time, each of them in the end, with rising fences.
pub async fn concurrent_claims_never_overlap(fixture: &Fixture) {
    fixture.needs(fixture.guarantees().push, "pushes");
    const ROUNDS: usize = 25;
    let (inside, highest, entries) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let worker = async || {
        let client = fixture.client().await;
        for _ in 0..ROUNDS {
            let (claim, fence) = enter(&client).await;
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders at once");
            assert!(highest.swap(fence, Ordering::SeqCst) < fence, "a fence went back");
            entries.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            client.done(&claim).await;
        }
    };
    futures::join!(worker(), worker(), worker(), worker(), worker(), worker());
    assert_eq!(entries.load(Ordering::SeqCst), 6 * ROUNDS as u64);
}

async fn enter(client: &Client<'_>) -> (Arc<Claim>, u64) {
    let claim = client.mutex("a");
    let ticket = match client.wait(&claim).await {
        Admission::Held(tickets) => tickets.first,
        Admission::Queued { ticket, .. } => {
            client.pushed_held(&claim, ticket).await;
            ticket
        }
        other => panic!("{other:?}"),
    };
    (claim, ticket.0)
}
