//! A payment provider delivers one webhook several times, to several servers, and the order is shipped once.
//!
//! Every delivery gets the result: the first one does the work, one that arrives meanwhile waits for it, and a later one is answered
//! at once. Work that fails does not count as done.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::cell::Cell;
use std::sync::Arc;

use lockfast::{Locks, Memory, Outcome};

/// The errors of the work. An error of a lock is one of them.
#[derive(Debug)]
enum Failure {
    WarehouseClosed,
    Locks(lockfast::Error),
}

impl From<lockfast::Error> for Failure {
    fn from(error: lockfast::Error) -> Self {
        Self::Locks(error)
    }
}

pub(crate) async fn story() -> lockfast::Result<()> {
    // Two clients of one store, as two servers are.
    let store = Arc::new(Memory::new());
    let (server_1, server_2) = (Locks::new(store.clone())?, Locks::new(store)?);

    let (is_open, attempts) = (Cell::new(false), Cell::new(0));
    let ship = async |_: &_| {
        attempts.set(attempts.get() + 1);
        tokio::task::yield_now().await; // the other deliveries arrive meanwhile
        if is_open.get() { Ok(format!("parcel {}", attempts.get())) } else { Err(Failure::WarehouseClosed) }
    };

    match server_1.once("webhook:42").run(ship).await {
        Err(Failure::WarehouseClosed) => println!("first delivery: the warehouse is closed, nothing is remembered"),
        Err(Failure::Locks(error)) => return Err(error),
        Ok(_) => unreachable!("the warehouse is closed"),
    }

    is_open.set(true);
    let (one, two) = (server_1.once("webhook:42"), server_2.once("webhook:42"));
    let simultaneous = tokio::join!(one.run(ship), two.run(ship), two.run(ship));
    let later = server_2.once("webhook:42").run(ship).await;

    let mut ran_count = 0;
    for outcome in [simultaneous.0, simultaneous.1, simultaneous.2, later] {
        let outcome = outcome.expect("the warehouse is open and the store is in this process");
        ran_count += u8::from(matches!(outcome, Outcome::Ran(_)));
        let result = outcome.into_value().expect("`run` waits until there is a result");
        println!("a delivery is answered: {}", String::from_utf8_lossy(&result));
        assert_eq!(result, "parcel 2");
    }
    println!("shipped {ran_count} time, after {} attempts", attempts.get());
    assert!(ran_count == 1 && attempts.get() == 2);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> lockfast::Result<()> {
    story().await
}
