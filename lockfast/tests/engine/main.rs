//! The rules of the client's engine, one test each, against a store whose every answer the test decides.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in what its tests share too")]

mod batches;
mod cancelling;
mod closing;
mod counting;
mod deadlines;
mod events;
mod fixture;
mod flaky;
mod ghosts;
mod handoff;
mod handoff_runs;
mod interleavings;
mod invalid_arguments;
mod loss;
mod named_holder;
mod overdue;
mod panics;
mod patience;
mod pushes;
mod random;
mod releases;
mod repeated_twice;
mod repeated_verbs;
mod repeats;
mod script;
mod slow;
mod steps;
mod storms;
mod stub;
mod stuck;
mod subscribers;
mod trouble;
mod validity;

use lockfast::store::Leaving;
use script::Director;

#[tokio::test]
async fn a_lock_is_asked_for_and_given_back_once() {
    let mut store = Director::new();
    let locks = store.locks.clone();
    let holder = tokio::spawn(async move { locks.mutex("a").lock().await.unwrap().release().await });
    let claim = store.grant(7).await;
    let left = store.let_go().await;
    assert!(matches!(&left[..], [Leaving::Done(gone)] if gone.id.hash() == claim.id.hash()));
    holder.await.unwrap().unwrap();
    assert!(store.call_now().is_none());
}
