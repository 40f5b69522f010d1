//! The secret of a claim is the right to release it, and is never shown: not in log lines, events, errors or `Debug`.
//!
//! A test program of its own, since log lines of the keeper's thread reach only the global subscriber.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in what its tests share too")]

#[allow(dead_code, reason = "shared with the tests of the engine, which use all of it")]
#[path = "engine/fixture.rs"]
mod fixture;
#[allow(dead_code, reason = "shared with the tests of the engine, which use all of it")]
#[path = "engine/script.rs"]
mod script;
#[allow(dead_code, reason = "shared with the tests of the engine, which use all of it")]
#[path = "engine/steps.rs"]
mod steps;

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use lockfast::Memory;
use lockfast::store::{Busy, Leaving, Names, Query, Standing, Store, Why};
use lockfast::store::{Claim, Ticket, Tickets};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use fixture::{NEVER, TTL, hold, settle, soon, until, wait};
use script::Director;

const SECOND: Duration = Duration::from_secs(1);

/// All log lines of all levels, as text.
#[derive(Clone, Default)]
struct CapturedLogs(Arc<Mutex<String>>);

impl CapturedLogs {
    fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }

    fn append(&self, values: impl FnOnce(&mut dyn Visit)) {
        let mut line = Line(String::new());
        values(&mut line);
        *self.0.lock().unwrap() += &(line.0 + "\n");
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for CapturedLogs {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.append(|line| span.record(line));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        self.append(|line| values.record(line));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.append(|line| event.record(line));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Everything that a user can print, and the claims whose secrets must not be in it.
#[derive(Default)]
struct Printed {
    text: String,
    claims: Vec<Arc<Claim>>,
}

impl Printed {
    fn debug(&mut self, shown: &dyn Debug) {
        writeln!(self.text, "{shown:?}\n{shown:#?}").unwrap();
    }

    fn error<T: Debug>(&mut self, failed: lockfast::Result<T>) {
        let error = failed.unwrap_err();
        writeln!(self.text, "{error}").unwrap();
        self.debug(&error);
    }

    /// Not even half of a secret is there, in any notation.
    fn assert_no_secrets(&self) {
        assert!(!self.claims.is_empty());
        let text: String = self.text.to_lowercase().split_whitespace().collect();
        for claim in &self.claims {
            for half in claim.id.expose_secret().chunks(8) {
                let hex = half.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
                let decimal = half.iter().fold(String::new(), |list, byte| format!("{list}{byte},"));
                let is_hidden = !text.contains(&hex) && !text.contains(decimal.trim_end_matches(','));
                let is_raw = self.text.as_bytes().windows(half.len()).any(|bytes| bytes == half);
                assert!(is_hidden && !is_raw, "{hex} is printed in:\n{}", self.text);
            }
        }
    }
}

/// Causes every kind of event: waiting, holding, renewing, failing, losing, giving up, leaving.
async fn cause_all_events(store: &mut Director, printed: &mut Printed) {
    let mutex = store.locks.mutex("held").ttl(TTL);
    let (guard, held) = hold(store, &mutex, 7).await;
    printed.debug(&guard);
    store.manual_clock.advance(10 * SECOND);
    let (leases, answer) = store.renew().await;
    printed.debug(&leases);
    answer.lose();
    settle(store).await;
    store.manual_clock.advance(3 * SECOND);
    store.renew().await.1.give(vec![Standing::Held(Tickets::new(Ticket(7), 1))]);
    settle(store).await;
    printed.claims.push(held);
    let (released, left) = tokio::join!(guard.release(), store.let_go());
    released.unwrap();
    printed.debug(&left);

    let (guard, lost) = hold(store, &mutex, 8).await;
    store.manual_clock.advance(TTL);
    soon(guard.lost()).await;
    printed.error(guard.check());
    printed.debug(&guard);
    printed.claims.push(lost);
    let (released, _) = tokio::join!(guard.release(), store.let_go());
    printed.error(released);

    let waiting = store.locks.mutex("cancelled").ttl(TTL);
    let (waiter, cancelled) = wait(store, waiting, 9).await;
    waiter.abort();
    printed.debug(&store.let_go().await);
    printed.claims.push(cancelled);

    // With a lease so long that no renewal is due, however far the clock goes.
    let impatient = store.locks.mutex("impatient").ttl(7 * 24 * 3600 * SECOND);
    let waiter = tokio::spawn(async move { impatient.lock_within(SECOND).await });
    printed.claims.push(store.queue(10, NEVER).await);
    until(|| {
        store.manual_clock.advance(SECOND / 10);
        waiter.is_finished()
    })
    .await;
    printed.debug(&store.let_go().await);
    printed.error(soon(waiter).await.unwrap());

    let mutex = store.locks.mutex("failed").ttl(TTL);
    let failing = async {
        let (claim, _, answer) = store.acquire().await;
        answer.lose();
        store.acquire().await.2.lose();
        // Repeated after a pause each time, for two seconds.
        for _ in 0..2 {
            settle(store).await;
            store.manual_clock.advance(SECOND);
            store.acquire().await.2.lose();
        }
        claim
    };
    let (tried, claim) = tokio::join!(mutex.try_lock(), failing);
    printed.error(tried);
    printed.claims.push(claim);
    printed.debug(&store.let_go().await);
}

#[tokio::test]
async fn no_secret_is_printed_or_logged() {
    let logs = CapturedLogs::default();
    tracing::subscriber::set_global_default(logs.clone()).unwrap();
    let mut store = Director::new();
    let mut events = store.locks.events();
    let mut printed = Printed::default();
    cause_all_events(&mut store, &mut printed).await;
    while let Some(Some(event)) = events.next().now_or_never() {
        printed.debug(&event);
    }
    printed.debug(&store.locks);
    printed.debug(&store.locks.mutex("held"));
    printed.debug(&printed.claims.clone());
    let lines = logs.text();
    for message in [
        "waiting in the queue",
        "acquired",
        "renewed",
        "a renewal failed",
        "lost",
        "released",
        "gave up waiting",
        "stopped waiting",
    ] {
        assert!(lines.contains(message), "{message:?} is not in\n{lines}");
    }
    printed.text += &lines;
    printed.assert_no_secrets();
    assert!(lines.contains(&printed.claims[0].id.hash().to_string()), "the hash is public");
}

#[tokio::test]
async fn the_in_process_store_shows_no_secret() {
    let mut director = Director::new();
    let mut printed = Printed::default();
    let store = Memory::new();
    let mut guards = Vec::new();
    for ticket in 7..10 {
        let mutex = director.locks.mutex("a").local_handoff(false);
        let (guard, claim) = hold(&mut director, &mutex, ticket).await;
        guards.push(guard);
        printed.debug(&store.acquire(&claim, Busy::Wait).await);
        printed.debug(&store.acquire(&claim, Busy::Refuse).await);
        printed.claims.push(claim);
    }
    printed.debug(&store);
    let everything = Query { names: Names::Beginning(String::new()), after: None, limit: 10, entries: usize::MAX };
    let page = store.inspect(&everything).await.unwrap();
    assert_eq!(page.resources[0].queue.len(), 3);
    printed.debug(&page);
    let leaving: Vec<_> = printed.claims.iter().cloned().map(Leaving::Unknown).collect();
    assert_eq!(store.release(&leaving).await.unwrap(), vec![Standing::Gone(Why::Left); 3]);
    printed.debug(&store);
    printed.assert_no_secrets();
}
