//! What `inspect` shows.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::claim::{Claim, Mode, Note};
use crate::name::Name;
use crate::store::{Counters, Leaving, Names, Page, Query, Report};

use super::Time;
use super::fixture::{Client, Fixture, expect_supported};

async fn report(client: &Client<'_>, counters: Counters, entered: &[Arc<Claim>]) {
    let entered = entered.iter().map(|claim| (claim.id.hash(), claim.demands.clone())).collect();
    let keep = Duration::from_secs(60);
    let report = Report { client: client.id(), counters, entered, left: Vec::new(), keep };
    expect_supported(client.store().record(&report).await);
}

async fn page(client: &Client<'_>, prefix: &str, after: Option<Name>, limit: usize) -> Page {
    let query = Query { names: Names::Beginning(prefix.to_owned()), after, limit, entries: usize::MAX };
    expect_supported(client.store().inspect(&query).await)
}

/// Holders and waiters are shown in ticket order, each with its kind, weight, note and times.
pub async fn a_queue_is_shown_in_ticket_order(fixture: &Fixture) {
    let client = fixture.client().await;
    let note = Note { host: "web-2".into(), pid: 812, text: Some("ключ\r\n".into()), ..Note::default() };
    let labels = vec![("job".to_owned(), "42".to_owned())];
    let note = Arc::new(Note { program: "billing".into(), labels, ..note });
    let first = client.with(client.reader("a"), |claim| claim.note = Arc::clone(&note));
    let second = client.with(client.reader("a"), |claim| claim.block = 3);
    let (writer, last) = (client.mutex("a"), client.reader("a"));
    let tickets = [client.acquire_held(&first).await, client.acquire_held(&second).await];
    let waiting = [client.acquire_queued(&writer).await, client.acquire_queued(&last).await];
    fixture.advance_brief_ttls(0.2).await;
    let shown = fixture.inspect(&fixture.name("a")).await.expect("four claims are in it");
    assert_eq!((&shown.name, shown.sealed_for), (&fixture.name("a"), None));
    let owners: Vec<_> = shown.queue.iter().map(|entry| entry.owner).collect();
    assert_eq!(owners, [&first, &second, &writer, &last].map(|claim| claim.id.hash()));
    assert_eq!(shown.queue.iter().map(|entry| entry.holds).collect::<Vec<_>>(), [true, true, false, false]);
    assert_eq!([shown.queue[0].tickets, shown.queue[1].tickets], tickets);
    assert_eq!([shown.queue[2].tickets.first, shown.queue[3].tickets.first], waiting);
    assert_eq!((shown.queue[0].mode, shown.queue[0].weight), (Mode::Shared, 1));
    assert_eq!((shown.queue[2].mode, shown.queue[2].weight), (Mode::Exclusive, shown.capacity));
    assert_eq!(shown.queue[0].note, note);
    for entry in &shown.queue {
        assert!(entry.since >= fixture.brief_ttl().mul_f64(0.15) && entry.since < first.ttl, "{entry:?}");
        assert!(entry.expires_in <= first.ttl && entry.expires_in > Duration::ZERO, "{entry:?}");
        assert!(!entry.lingers && !entry.broken, "{entry:?}");
    }
    assert_eq!((shown.holders().count(), shown.waiters().count()), (2, 2));
}

/// A query returns at most the requested number of entries of a queue, and how many more there are.
pub async fn as_many_entries_are_shown_as_requested(fixture: &Fixture) {
    let client = fixture.client().await;
    let claims: Vec<_> = (0..5).map(|_| client.mutex("a")).collect();
    client.acquire_held(&claims[0]).await;
    for waiter in &claims[1..] {
        client.acquire_queued(waiter).await;
    }
    let reads: Vec<_> = (0..3).map(|_| client.reader("b")).collect();
    for reader in &reads {
        client.acquire_held(reader).await;
    }
    for (text, all) in [("a", &claims), ("b", &reads)] {
        for entries in [0, 1, 2, all.len() - 1, all.len(), all.len() + 1, usize::MAX] {
            let query = Query { names: Names::One(fixture.name(text)), after: None, limit: 1, entries };
            let shown = expect_supported(client.store().inspect(&query).await).resources.remove(0);
            // A query for no entries returns the first one all the same.
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

/// The time of a holder is counted from its grant, without the time it waited.
pub async fn a_hold_is_counted_from_its_beginning(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, waiter) = (client.mutex("a"), client.mutex("a"));
    client.acquire_held(&holder).await;
    client.acquire_queued(&waiter).await;
    fixture.advance_brief_ttls(0.9).await;
    client.release(&holder).await;
    let shown = fixture.inspect(&fixture.name("a")).await.expect("it was handed off");
    assert!(shown.queue[0].holds && shown.queue[0].since < fixture.brief_ttl().mul_f64(0.8), "{shown:?}");
    let held_for = client.acquire_refused(&client.mutex("a")).await.held_for.expect("the time of the grant is known");
    assert!(held_for < fixture.brief_ttl().mul_f64(0.8), "{held_for:?}");
}

/// Lingering, broken and sealed are shown as such.
pub async fn lingering_broken_and_sealed_are_shown(fixture: &Fixture) {
    let client = fixture.client().await;
    let (lingers, broken, sealer) = (client.mutex("lingers"), client.mutex("broken"), client.mutex("sealed"));
    client.acquire_held(&lingers).await;
    let ticket = client.acquire_held(&broken).await.first;
    client.acquire_held(&sealer).await;
    client.leave(Leaving::Linger(Arc::clone(&lingers), fixture.brief_ttl())).await;
    client.leave(Leaving::Break { name: fixture.name("broken"), ticket, at_once: false }).await;
    client.leave(Leaving::Seal { claim: Arc::clone(&sealer), value: Bytes::new(), keep: fixture.brief_ttl() }).await;
    let shown = fixture.inspect(&fixture.name("lingers")).await.expect("it lingers");
    assert!(
        shown.queue[0].lingers && shown.queue[0].holds && shown.queue[0].expires_in <= fixture.brief_ttl(),
        "{shown:?}"
    );
    let shown = fixture.inspect(&fixture.name("broken")).await.expect("it has not left");
    assert!(shown.queue[0].broken && shown.queue[0].holds, "{shown:?}");
    let shown = fixture.inspect(&fixture.name("sealed")).await.expect("it is sealed");
    assert!(shown.queue.is_empty(), "{shown:?}");
    assert!(shown.sealed_for.is_some_and(|left| left <= fixture.brief_ttl() && !left.is_zero()), "{shown:?}");
}

/// Names are listed in order, a page at a time, each once.
pub async fn pages_follow_each_other(fixture: &Fixture) {
    let client = fixture.client().await;
    let claims: Vec<_> = ["e", "b", "g", "a", "f", "c", "d"].iter().map(|text| client.mutex(text)).collect();
    for claim in &claims {
        client.acquire_held(claim).await;
    }
    report(&client, Counters::default(), &claims).await;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = page(&client, &fixture.prefix(), after.take(), 3).await;
        assert!(page.resources.len() <= 3, "{page:?}");
        seen.extend(page.resources.into_iter().map(|resource| resource.name));
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, ["a", "b", "c", "d", "e", "f", "g"].map(|text| fixture.name(text)));
    let some = page(&client, fixture.name("c").as_str(), None, 100).await;
    assert_eq!(some.resources.iter().map(|resource| &resource.name).collect::<Vec<_>>(), [&fixture.name("c")]);
}

/// The counters that each client reports are in the sum that every client reads.
pub async fn counters_of_all_clients_add_up(fixture: &Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let before = page(&one, &fixture.prefix(), None, 1).await.fleet;
    let counters = |times| Counters { acquired: 7 * times, released: 5 * times, contended: 3 * times, lost: times };
    report(&one, counters(1), &[]).await;
    report(&two, counters(2), &[]).await;
    report(&one, counters(1), &[]).await;
    let after = page(&two, &fixture.prefix(), None, 1).await.fleet;
    let since = Counters {
        acquired: after.acquired - before.acquired,
        released: after.released - before.released,
        contended: after.contended - before.contended,
        lost: after.lost - before.lost,
    };
    match fixture.time() {
        Time::Set => assert_eq!(since, counters(4)),
        // Other tests may use the same server.
        Time::Real => assert!(since.acquired >= 28 && since.released >= 20 && since.contended >= 12 && since.lost >= 4),
    }
}

/// A name without claims and seal is not shown: nothing is kept for names that were used.
pub async fn an_unused_name_is_not_shown(fixture: &Fixture) {
    let client = fixture.client().await;
    let (holder, waiter, both) = (client.mutex("a"), client.mutex("a"), client.multi(&["a", "b"]));
    client.acquire_held(&holder).await;
    client.acquire_queued(&waiter).await;
    client.acquire_queued(&both).await;
    for claim in [&waiter, &both, &holder] {
        client.release(claim).await;
    }
    for text in ["a", "b", "never"] {
        assert_eq!(fixture.inspect(&fixture.name(text)).await, None);
    }
    assert_eq!(page(&client, &fixture.prefix(), None, 10).await.resources, []);
}
