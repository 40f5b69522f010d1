//! Code of others that runs inside the client: a subscriber to log lines may take long, call the client, or panic.

use std::panic::AssertUnwindSafe;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use lockfast::store::Standing;
use lockfast::store::{Ticket, Tickets};
use lockfast::{Error, LostWhy};
use tracing::field::{Field, Visit};
use tracing::subscriber::{DefaultGuard, Interest};
use tracing::{Dispatch, Event, Metadata, Subscriber, span};

use crate::fixture::{TTL, hold, soon};
use crate::script::Director;
use crate::steps::{entered, secs, until_waiting, wants};

/// Does something at the first log line with this text on this thread.
struct At<F> {
    line: &'static str,
    is_done: AtomicBool,
    does: F,
}

fn at(line: &'static str, does: impl Fn() + Send + Sync + 'static) -> DefaultGuard {
    // With a single subscriber, `tracing` asks the one of the thread that reaches a log line first. The thread of a test beside
    // this one has none, and the line would be off for all threads. With two subscribers, it asks both.
    static OTHER: LazyLock<Dispatch> =
        LazyLock::new(|| Dispatch::new(At { line: "", is_done: AtomicBool::new(true), does: || {} }));
    LazyLock::force(&OTHER);
    tracing::subscriber::set_default(At { line, is_done: AtomicBool::new(false), does })
}

impl<F: Fn() + Send + Sync + 'static> Subscriber for At<F> {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        if text.0 == self.line && !self.is_done.swap(true, Ordering::SeqCst) {
            (self.does)();
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[tokio::test]
async fn a_lock_that_is_lost_before_its_guard_is_there_is_lost() {
    let mut store = Director::new();
    let locks = store.locks.clone();
    // The client ends after the engine has granted the lock, and before `lock` has returned.
    let _at = at("acquired", move || assert!(locks.shutdown(secs(5)).now_or_never().is_none()));
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (guard, _) = hold(&mut store, &mutex, 7).await;
    let checked = guard.check();
    assert!(matches!(checked, Err(Error::Lost { why: LostWhy::Shutdown, .. })), "{checked:?}");
}

#[tokio::test]
async fn a_subscriber_panic_at_a_hand_off_blocks_no_shutdown() {
    let mut store = Director::new();
    let mutex = store.locks.mutex("a").ttl(TTL);
    let (first, _) = hold(&mut store, &mutex, 7).await;
    let (second, third) = (wants(mutex.clone()), wants(mutex));
    until_waiting(&store.locks, 2).await;
    let (released, ()) = tokio::join!(first.release(), async {
        store.release().await.1.give(vec![Standing::Held(Tickets::new(Ticket(20), 2))]);
    });
    released.unwrap();
    let second = entered(second).await;
    let panics = at("released", || panic!("the test wants a panic here"));
    assert!(AssertUnwindSafe(second.release()).catch_unwind().await.is_err());
    drop(panics);
    let (released, _) = tokio::join!(entered(third).await.release(), store.let_go());
    released.unwrap();
    soon(store.locks.shutdown(secs(5))).await.unwrap();
}
