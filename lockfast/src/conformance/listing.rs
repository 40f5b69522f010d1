//! What people see.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::claim::{Claim, Mode, Note};
use crate::name::Name;
use crate::store::{Counters, Leaving, Names, Page, Query, Report};

use super::Time;
use super::place::{Client, Place, promised};

async fn report(client: &Client<'_>, counters: Counters, entered: &[Arc<Claim>]) {
    let entered = entered.iter().map(|claim| (claim.id.hash(), claim.demands.clone())).collect();
    let keep = Duration::from_secs(60);
    let report = Report { client: client.id(), counters, entered, left: Vec::new(), keep };
    promised(client.store().record(&report).await);
}

async fn page(client: &Client<'_>, beginning: &str, after: Option<Name>, limit: usize) -> Page {
    let query = Query { names: Names::Beginning(beginning.to_owned()), after, limit, entries: usize::MAX };
    promised(client.store().inspect(&query).await)
}

/// Holders and waiters as they stand, with what each is and since when.
pub async fn a_line_is_shown_in_ticket_order(place: &Place) {
    let client = place.client().await;
    let note = Note { host: "web-2".into(), pid: 812, text: Some("ключ\r\n".into()), ..Note::default() };
    let labels = vec![("job".to_owned(), "42".to_owned())];
    let note = Arc::new(Note { program: "billing".into(), labels, ..note });
    let first = client.with(client.reader("a"), |claim| claim.note = Arc::clone(&note));
    let second = client.with(client.reader("a"), |claim| claim.block = 3);
    let (writer, last) = (client.mutex("a"), client.reader("a"));
    let tickets = [client.held(&first).await, client.held(&second).await];
    let waiting = [client.queued(&writer).await, client.queued(&last).await];
    place.pass(0.2).await;
    let shown = place.look(&place.name("a")).await.expect("four are in it");
    assert_eq!((&shown.name, shown.sealed_for), (&place.name("a"), None));
    let owners: Vec<_> = shown.queue.iter().map(|entry| entry.owner).collect();
    assert_eq!(owners, [&first, &second, &writer, &last].map(|claim| claim.id.hash()));
    assert_eq!(shown.queue.iter().map(|entry| entry.holds).collect::<Vec<_>>(), [true, true, false, false]);
    assert_eq!([shown.queue[0].tickets, shown.queue[1].tickets], tickets);
    assert_eq!([shown.queue[2].tickets.first, shown.queue[3].tickets.first], waiting);
    assert_eq!((shown.queue[0].mode, shown.queue[0].weight), (Mode::Shared, 1));
    assert_eq!((shown.queue[2].mode, shown.queue[2].weight), (Mode::Exclusive, shown.capacity));
    assert_eq!(shown.queue[0].note, note);
    for entry in &shown.queue {
        assert!(entry.since >= place.brief().mul_f64(0.15) && entry.since < first.ttl, "{entry:?}");
        assert!(entry.expires_in <= first.ttl && entry.expires_in > Duration::ZERO, "{entry:?}");
        assert!(!entry.lingers && !entry.broken, "{entry:?}");
    }
    assert_eq!((shown.holders().count(), shown.waiters().count()), (2, 2));
}

/// Of a long line, the front can be had alone; of the others it is said how many they are.
pub async fn of_a_line_as_many_are_shown_as_asked_for(place: &Place) {
    let client = place.client().await;
    let claims: Vec<_> = (0..5).map(|_| client.mutex("a")).collect();
    client.held(&claims[0]).await;
    for waiter in &claims[1..] {
        client.queued(waiter).await;
    }
    let reads: Vec<_> = (0..3).map(|_| client.reader("b")).collect();
    for reader in &reads {
        client.held(reader).await;
    }
    for (text, all) in [("a", &claims), ("b", &reads)] {
        for entries in [0, 1, 2, all.len() - 1, all.len(), all.len() + 1, usize::MAX] {
            let query = Query { names: Names::One(place.name(text)), after: None, limit: 1, entries };
            let shown = promised(client.store().inspect(&query).await).resources.remove(0);
            // Who asks for nobody is shown the first all the same: of whom it is said how many follow.
            let count = entries.clamp(1, all.len());
            let owners: Vec<_> = shown.queue.iter().map(|entry| entry.owner).collect();
            assert_eq!(
                owners,
                all[..count].iter().map(|claim| claim.id.hash()).collect::<Vec<_>>(),
                "{entries} of {text}"
            );
            assert_eq!(shown.more, all.len() - count, "{entries} of {text}");
        }
    }
}

/// How long somebody waited is over when it holds.
pub async fn a_hold_is_counted_from_its_beginning(place: &Place) {
    let client = place.client().await;
    let (holder, waiter) = (client.mutex("a"), client.mutex("a"));
    client.held(&holder).await;
    client.queued(&waiter).await;
    place.pass(0.9).await;
    client.done(&holder).await;
    let shown = place.look(&place.name("a")).await.expect("it was handed on");
    assert!(shown.queue[0].holds && shown.queue[0].since < place.brief().mul_f64(0.8), "{shown:?}");
    let held_for = client.refused(&client.mutex("a")).await.held_for.expect("since when is known");
    assert!(held_for < place.brief().mul_f64(0.8), "{held_for:?}");
}

/// What is not simply held can be told apart.
pub async fn lingering_broken_and_sealed_are_shown(place: &Place) {
    let client = place.client().await;
    let (lingers, broken, sealer) = (client.mutex("lingers"), client.mutex("broken"), client.mutex("sealed"));
    client.held(&lingers).await;
    let ticket = client.held(&broken).await.first;
    client.held(&sealer).await;
    client.leave(Leaving::Linger(Arc::clone(&lingers), place.brief())).await;
    client.leave(Leaving::Break { name: place.name("broken"), ticket, at_once: false }).await;
    client.leave(Leaving::Seal { claim: Arc::clone(&sealer), value: Bytes::new(), keep: place.brief() }).await;
    let shown = place.look(&place.name("lingers")).await.expect("it lingers");
    assert!(shown.queue[0].lingers && shown.queue[0].holds && shown.queue[0].expires_in <= place.brief(), "{shown:?}");
    let shown = place.look(&place.name("broken")).await.expect("it has not left");
    assert!(shown.queue[0].broken && shown.queue[0].holds, "{shown:?}");
    let shown = place.look(&place.name("sealed")).await.expect("it is sealed");
    assert!(shown.queue.is_empty(), "{shown:?}");
    assert!(shown.sealed_for.is_some_and(|left| left <= place.brief() && !left.is_zero()), "{shown:?}");
}

/// Names in order, a page at a time, each once.
pub async fn pages_follow_each_other(place: &Place) {
    let client = place.client().await;
    let claims: Vec<_> = ["e", "b", "g", "a", "f", "c", "d"].iter().map(|text| client.mutex(text)).collect();
    for claim in &claims {
        client.held(claim).await;
    }
    report(&client, Counters::default(), &claims).await;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = page(&client, &place.beginning(), after.take(), 3).await;
        assert!(page.resources.len() <= 3, "{page:?}");
        seen.extend(page.resources.into_iter().map(|resource| resource.name));
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, ["a", "b", "c", "d", "e", "f", "g"].map(|text| place.name(text)));
    let some = page(&client, place.name("c").as_str(), None, 100).await;
    assert_eq!(some.resources.iter().map(|resource| &resource.name).collect::<Vec<_>>(), [&place.name("c")]);
}

/// What each process reports is in the sum that everybody sees.
pub async fn counters_of_all_clients_add_up(place: &Place) {
    let (one, two) = (place.client().await, place.client().await);
    let before = page(&one, &place.beginning(), None, 1).await.fleet;
    let counters = |times| Counters { acquired: 7 * times, released: 5 * times, contended: 3 * times, lost: times };
    report(&one, counters(1), &[]).await;
    report(&two, counters(2), &[]).await;
    report(&one, counters(1), &[]).await;
    let after = page(&two, &place.beginning(), None, 1).await.fleet;
    let since = Counters {
        acquired: after.acquired - before.acquired,
        released: after.released - before.released,
        contended: after.contended - before.contended,
        lost: after.lost - before.lost,
    };
    match place.time() {
        Time::Set => assert_eq!(since, counters(4)),
        // Others may use the same server.
        Time::Real => assert!(since.acquired >= 28 && since.released >= 20 && since.contended >= 12 && since.lost >= 4),
    }
}

/// Nothing is kept for a name that was used.
pub async fn what_nobody_uses_is_not_shown(place: &Place) {
    let client = place.client().await;
    let (holder, waiter, both) = (client.mutex("a"), client.mutex("a"), client.multi(&["a", "b"]));
    client.held(&holder).await;
    client.queued(&waiter).await;
    client.queued(&both).await;
    for claim in [&waiter, &both, &holder] {
        client.done(claim).await;
    }
    for text in ["a", "b", "never"] {
        assert_eq!(place.look(&place.name(text)).await, None);
    }
    assert_eq!(page(&client, &place.beginning(), None, 10).await.resources, []);
}
