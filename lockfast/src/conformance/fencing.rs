//! Tickets only go up.

use crate::claim::{Ticket, Tickets};
use crate::store::{Standing, Why};

use super::fixture::Fixture;

/// The tickets of a claim that goes on holding. Whether they are new is for the caller to check.
fn expect_still_held(standing: Standing) -> Tickets {
    match standing {
        Standing::Held(tickets) => tickets,
        other => panic!("the claim should go on holding and is {other:?}"),
    }
}

/// Each grant has a higher fence than all grants before it.
pub async fn tickets_rise_with_every_grant(fixture: &Fixture) {
    let client = fixture.client().await;
    let mut last = Ticket(0);
    for _ in 0..20 {
        let claim = client.mutex("a");
        let tickets = client.acquire_held(&claim).await;
        assert!(tickets.first > last, "{tickets:?} after {last}");
        assert_eq!(tickets.count, 1);
        last = tickets.last();
        client.release(&claim).await;
    }
}

/// Fences also rise between clients with handles of their own.
pub async fn tickets_rise_from_handle_to_handle(fixture: &Fixture) {
    let mut last = Ticket(0);
    for _ in 0..5 {
        let client = fixture.client().await;
        let claim = client.mutex("a");
        let tickets = client.acquire_held(&claim).await;
        assert!(tickets.first > last, "{tickets:?} after {last}");
        last = tickets.last();
        client.release(&claim).await;
    }
}

/// A claim with a floor (the highest ticket its client saw, perhaps before a loss of data) gets a higher ticket, and so
/// does every later claim.
pub async fn a_ticket_is_above_the_floor(fixture: &Fixture) {
    let client = fixture.client().await;
    let first = client.mutex("a");
    let floor = Ticket(client.acquire_held(&first).await.last().0 + 1_000);
    client.release(&first).await;
    let raised = client.with(client.mutex("a"), |claim| claim.floor = floor);
    let tickets = client.acquire_held(&raised).await;
    assert!(tickets.first > floor, "{tickets:?} is not above {floor}");
    client.release(&raised).await;
    assert!(client.acquire_held(&client.mutex("a")).await.first > tickets.last());
}

/// A waiter is granted with the ticket it joined with, before every claim that joined later.
pub async fn a_waiter_keeps_its_ticket(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, waiter, late) = (client.mutex("a"), client.mutex("a"), client.mutex("a"));
    let held = client.acquire_held(&holder).await.last();
    let ticket = client.acquire_queued(&waiter).await;
    let later = client.acquire_queued(&late).await;
    assert!(held < ticket && ticket < later);
    client.release(&holder).await;
    assert_eq!(client.assert_holds(&waiter).await, Tickets::new(ticket, 1));
}

/// All tickets of a waiter's block are below those of claims that join after it.
pub async fn a_block_is_reserved_at_join(fixture: &Fixture) {
    let client = fixture.client().await;
    let block = |count| client.with(client.mutex("a"), |claim| claim.block = count);
    let (holder, waiter, late) = (block(4), block(16), block(1));
    let held = client.acquire_held(&holder).await;
    assert_eq!(held.count, 4);
    let ticket = client.acquire_queued(&waiter).await;
    let later = client.acquire_queued(&late).await;
    assert!(held.last() < ticket);
    client.release(&holder).await;
    let tickets = client.assert_holds(&waiter).await;
    assert_eq!(tickets, Tickets::new(ticket, 16));
    assert!(tickets.last() < later, "a waiter was overtaken by a block");
}

/// `UnlessAlone` of a holder without waiters renews its claim with a new block of tickets.
pub async fn unless_alone_goes_on_without_waiters(fixture: &Fixture) {
    let client = fixture.client().await;
    let holder = client.mutex("a");
    let mut tickets = client.acquire_held(&holder).await;
    for block in [8, 1, 3] {
        let next = expect_still_held(client.release_unless_alone(&holder, block, tickets.last()).await);
        assert_eq!(next.count, block);
        assert!(next.first > tickets.last());
        assert_eq!(client.assert_holds(&holder).await, next);
        tickets = next;
    }
    assert!(client.acquire_queued(&client.mutex("a")).await > tickets.last());
}

/// `UnlessAlone` of a holder with a waiter behind it releases the lock.
pub async fn unless_alone_releases_with_waiters(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, waiter) = (client.mutex("a"), client.mutex("a"));
    let tickets = client.acquire_held(&holder).await;
    let ticket = client.acquire_queued(&waiter).await;
    assert_eq!(client.release_unless_alone(&holder, 8, tickets.last()).await, Standing::Gone(Why::Left));
    assert_eq!(client.assert_holds(&waiter).await.first, ticket);
    client.assert_gone(&holder).await;
}

/// A late or repeated `UnlessAlone` that was sent before the claim's present tickets were drawn must not release the
/// lock: its owner has since received a reply to go on.
pub async fn a_late_unless_alone_changes_nothing(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, waiter) = (client.mutex("a"), client.mutex("a"));
    let old = client.acquire_held(&holder).await.last();
    let tickets = expect_still_held(client.release_unless_alone(&holder, 4, old).await);
    assert_eq!(expect_still_held(client.release_unless_alone(&holder, 4, old).await), tickets);
    client.acquire_queued(&waiter).await;
    assert_eq!(expect_still_held(client.release_unless_alone(&holder, 4, old).await), tickets);
    assert_eq!(client.assert_holds(&holder).await, tickets);
    client.assert_waits(&waiter).await;
}

/// A repeated `UnlessAlone` renews the lease: the client counts a whole lease from when it sent the call that was
/// answered.
pub async fn a_repeated_unless_alone_renews(fixture: &Fixture) {
    let client = fixture.client().await;
    let holder = client.brief_mutex("a");
    let old = client.acquire_held(&holder).await.last();
    let tickets = expect_still_held(client.release_unless_alone(&holder, 4, old).await);
    for _ in 0..3 {
        fixture.advance_brief_ttls(0.4).await;
        assert_eq!(expect_still_held(client.release_unless_alone(&holder, 4, old).await), tickets);
    }
}

/// `UnlessAlone` of a reader goes on beside other readers, and releases once a writer waits.
pub async fn unless_alone_of_a_reader_ignores_readers(fixture: &Fixture) {
    let client = fixture.client().await;
    let (one, two, writer) = (client.reader("a"), client.reader("a"), client.mutex("a"));
    client.acquire_held(&one).await;
    let seen = client.acquire_held(&two).await.last();
    let tickets = expect_still_held(client.release_unless_alone(&one, 2, seen).await);
    client.assert_holds(&two).await;
    client.acquire_queued(&writer).await;
    assert_eq!(client.release_unless_alone(&one, 2, tickets.last()).await, Standing::Gone(Why::Left));
}
