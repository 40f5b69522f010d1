//! Two managers book the same driver: one gets her, the other hears who has her.
//!
//! A note says for people who holds a lock and what for. It is part of the error that the other one gets, so the answer
//! can be "Anna is booking her" instead of "try again later".
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;
use std::time::Duration;

use lockfast::{Error, Guard, Locks, Memory, Result};

async fn book(manager: &Locks, driver: &str, note: &str) -> Result<Guard> {
    manager.mutex(driver).note(note).lock_within(Duration::from_millis(50)).await
}

pub(crate) async fn story() -> Result<()> {
    // Two clients of one store, as two servers are.
    let store = Arc::new(Memory::new());
    let (anna, boris) = (Locks::new(store.clone())?, Locks::new(store)?);

    let booking = book(&anna, "driver:7", "Anna, for order 17").await?;
    println!("Anna has driver 7");

    // Who only wants to know whether it is possible does not wait.
    assert!(boris.mutex("driver:7").try_lock().await?.is_none());
    println!("Boris sees at once that she is taken");

    // Who waits a little and gives up hears who was in the way.
    let busy = book(&boris, "driver:7", "Boris, for order 18").await.expect_err("Anna has not finished");
    let text = busy.to_string(); // also says on which machine, for how long already, and how many were ahead in line
    assert!(text.starts_with("\"driver:7\" is held by Anna, for order 17"), "{text}");
    let Error::Busy { holder: Some(holder), position, .. } = busy else { panic!("not busy, but: {text}") };
    println!("Boris gives up: held by {}", holder.note.text.as_deref().unwrap_or("somebody"));
    assert_eq!((holder.fence.0, position), (booking.fence()?, Some(1)));

    // Another driver is another name, and nobody is in the way there.
    let other = book(&boris, "driver:8", "Boris, for order 18").await?;
    println!("Boris takes driver 8 instead");

    // Who comes back when Anna has finished gets in.
    booking.release().await?;
    let again = book(&boris, "driver:7", "Boris, for order 19").await?;
    println!("Anna has finished, and Boris has driver 7");
    other.release().await?;
    again.release().await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    story().await
}
