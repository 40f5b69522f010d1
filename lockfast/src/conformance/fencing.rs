//! Tickets only go up.

use crate::claim::{Ticket, Tickets};
use crate::store::{Standing, Why};

use super::place::Place;

fn fresh(standing: Standing) -> Tickets {
    match standing {
        Standing::Held(tickets) => tickets,
        other => panic!("the turn should go on and is {other:?}"),
    }
}

/// Each grant has a higher fence than all before it.
pub async fn tickets_rise_with_every_grant(place: &Place) {
    let client = place.client().await;
    let mut last = Ticket(0);
    for _ in 0..20 {
        let claim = client.mutex("a");
        let tickets = client.held(&claim).await;
        assert!(tickets.first > last, "{tickets:?} after {last}");
        assert_eq!(tickets.count, 1);
        last = tickets.last();
        client.done(&claim).await;
    }
}

/// Also when the clients know nothing of each other.
pub async fn tickets_rise_from_handle_to_handle(place: &Place) {
    let mut last = Ticket(0);
    for _ in 0..5 {
        let client = place.client().await;
        let claim = client.mutex("a");
        let tickets = client.held(&claim).await;
        assert!(tickets.first > last, "{tickets:?} after {last}");
        last = tickets.last();
        client.done(&claim).await;
    }
}

/// A client that has seen a higher ticket (from before a loss of data) gets a higher one, and so does everybody after it.
pub async fn a_ticket_is_above_the_floor(place: &Place) {
    let client = place.client().await;
    let first = client.mutex("a");
    let floor = Ticket(client.held(&first).await.last().0 + 1_000);
    client.done(&first).await;
    let raised = client.with(client.mutex("a"), |claim| claim.floor = floor);
    let tickets = client.held(&raised).await;
    assert!(tickets.first > floor, "{tickets:?} is not above {floor}");
    client.done(&raised).await;
    assert!(client.held(&client.mutex("a")).await.first > tickets.last());
}

/// A claim holds with the ticket it waited with, and is not overtaken by one that joined later.
pub async fn a_waiter_keeps_its_ticket(place: &Place) {
    let client = place.client().await;
    let (holder, waiter, late) = (client.mutex("a"), client.mutex("a"), client.mutex("a"));
    let held = client.held(&holder).await.last();
    let ticket = client.queued(&waiter).await;
    let later = client.queued(&late).await;
    assert!(held < ticket && ticket < later);
    client.done(&holder).await;
    assert_eq!(client.holds(&waiter).await, Tickets::new(ticket, 1));
}

/// All numbers of a waiter's block are below those of who joins after it.
pub async fn a_block_is_reserved_at_join(place: &Place) {
    let client = place.client().await;
    let block = |count| client.with(client.mutex("a"), |claim| claim.block = count);
    let (holder, waiter, late) = (block(4), block(16), block(1));
    let held = client.held(&holder).await;
    assert_eq!(held.count, 4);
    let ticket = client.queued(&waiter).await;
    let later = client.queued(&late).await;
    assert!(held.last() < ticket);
    client.done(&holder).await;
    let tickets = client.holds(&waiter).await;
    assert_eq!(tickets, Tickets::new(ticket, 16));
    assert!(tickets.last() < later, "a waiter was overtaken by a block");
}

/// Who ends a turn and is alone goes on with fresh numbers.
pub async fn a_turn_goes_on_when_nobody_waits(place: &Place) {
    let client = place.client().await;
    let holder = client.mutex("a");
    let mut tickets = client.held(&holder).await;
    for block in [8, 1, 3] {
        let next = fresh(client.unless_alone(&holder, block, tickets.last()).await);
        assert_eq!(next.count, block);
        assert!(next.first > tickets.last());
        assert_eq!(client.holds(&holder).await, next);
        tickets = next;
    }
    assert!(client.queued(&client.mutex("a")).await > tickets.last());
}

/// Who ends a turn while somebody waits has left.
pub async fn a_turn_ends_when_somebody_waits(place: &Place) {
    let client = place.client().await;
    let (holder, waiter) = (client.mutex("a"), client.mutex("a"));
    let tickets = client.held(&holder).await;
    let ticket = client.queued(&waiter).await;
    assert_eq!(client.unless_alone(&holder, 8, tickets.last()).await, Standing::Gone(Why::Left));
    assert_eq!(client.holds(&waiter).await.first, ticket);
    client.is_gone(&holder).await;
}

/// Lost, repeated and answered, the first message may still arrive: it must not take the lock from who was told to go on.
pub async fn an_end_of_turn_that_runs_late_changes_nothing(place: &Place) {
    let client = place.client().await;
    let (holder, waiter) = (client.mutex("a"), client.mutex("a"));
    let old = client.held(&holder).await.last();
    let tickets = fresh(client.unless_alone(&holder, 4, old).await);
    assert_eq!(fresh(client.unless_alone(&holder, 4, old).await), tickets);
    client.queued(&waiter).await;
    assert_eq!(fresh(client.unless_alone(&holder, 4, old).await), tickets);
    assert_eq!(client.holds(&holder).await, tickets);
    client.waits(&waiter).await;
}

/// Whoever gets an answer believes in a whole lease from when it asked.
pub async fn a_repeated_end_of_turn_renews(place: &Place) {
    let client = place.client().await;
    let holder = client.brief_mutex("a");
    let old = client.held(&holder).await.last();
    let tickets = fresh(client.unless_alone(&holder, 4, old).await);
    for _ in 0..3 {
        place.pass(0.4).await;
        assert_eq!(fresh(client.unless_alone(&holder, 4, old).await), tickets);
    }
}

/// Other readers are no reason to stop.
pub async fn a_turn_of_a_reader_goes_on_beside_readers(place: &Place) {
    let client = place.client().await;
    let (one, two, writer) = (client.reader("a"), client.reader("a"), client.mutex("a"));
    client.held(&one).await;
    let seen = client.held(&two).await.last();
    let tickets = fresh(client.unless_alone(&one, 2, seen).await);
    client.holds(&two).await;
    client.queued(&writer).await;
    assert_eq!(client.unless_alone(&one, 2, tickets.last()).await, Standing::Gone(Why::Left));
}
