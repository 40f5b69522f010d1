//! Two managers book the same driver: one gets her, the other gets an error that names the holder.
//!
//! A note describes the holder of a lock and its purpose to people. It is part of the error that the other manager gets, so the
//! answer can be "Anna is booking her" instead of "try again later".
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

    // `try_lock` does not wait.
    assert!(boris.mutex("driver:7").try_lock().await?.is_none());
    println!("Boris sees at once that she is taken");

    // `lock_within` waits a little; its error names the holder.
    let busy = book(&boris, "driver:7", "Boris, for order 18").await.expect_err("Anna has not finished");
    let text = busy.to_string(); // also names the machine, how long it was held, and how many were ahead in the queue
    assert!(text.starts_with("\"driver:7\" is held by Anna, for order 17"), "{text}");
    let Error::Busy { holder: Some(holder), position, .. } = busy else { panic!("not busy, but: {text}") };
    println!("Boris gives up: held by {}", holder.note.text.as_deref().unwrap_or("an unnamed holder"));
    assert_eq!((holder.fence.0, position), (booking.fence()?, Some(1)));

    // Another driver is another name, which is free.
    let other_booking = book(&boris, "driver:8", "Boris, for order 18").await?;
    println!("Boris takes driver 8 instead");

    // After Anna has finished, the driver is free again.
    booking.release().await?;
    let later_booking = book(&boris, "driver:7", "Boris, for order 19").await?;
    println!("Anna has finished, and Boris has driver 7");
    other_booking.release().await?;
    later_booking.release().await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    story().await
}
