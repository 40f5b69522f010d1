//! Money goes from A to B and from B to A at the same time, from two servers.
//!
//! Two servers that lock the accounts one after the other, in opposite orders, deadlock: each waits for the other. `multi` takes both
//! in one step, in whatever order they are written, and cannot deadlock.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use lockfast::{Error, Locks, Memory, Result};

struct Account {
    name: &'static str,
    balance: Cell<i64>,
}

async fn transfer(server: &Locks, from: &Account, to: &Account, amount: i64) -> Result<()> {
    let both = server.multi([from.name, to.name]).lock().await?;
    let (from_balance, to_balance) = (from.balance.get(), to.balance.get());
    tokio::task::yield_now().await; // without the lock, others would change the balances here
    from.balance.set(from_balance - amount);
    to.balance.set(to_balance + amount);
    both.release().await
}

pub(crate) async fn story() -> Result<()> {
    // Two clients of one store, as two servers are.
    let store = Arc::new(Memory::new());
    let (server_1, server_2) = (Locks::new(store.clone())?, Locks::new(store)?);
    let a = Account { name: "account:a", balance: Cell::new(1000) };
    let b = Account { name: "account:b", balance: Cell::new(1000) };

    // Locked one after the other, in opposite orders: the deadlock ends only when their patience does.
    let (held_a, held_b) = (server_1.mutex(a.name).lock().await?, server_2.mutex(b.name).lock().await?);
    let patience = Duration::from_millis(50);
    let (mutex_b, mutex_a) = (server_1.mutex(b.name), server_2.mutex(a.name));
    let stuck = tokio::join!(mutex_b.lock_within(patience), mutex_a.lock_within(patience));
    assert!(matches!(stuck, (Err(Error::Busy { .. }), Err(Error::Busy { .. }))));
    println!("one after the other: both wait for each other until they give up");
    held_a.release().await?;
    held_b.release().await?;

    let a_to_b = try_join_all((0..100).map(|_| transfer(&server_1, &a, &b, 3)));
    let b_to_a = try_join_all((0..100).map(|_| transfer(&server_2, &b, &a, 2)));
    let both_ways = async { tokio::try_join!(a_to_b, b_to_a) };
    tokio::time::timeout(Duration::from_secs(10), both_ways).await.expect("no deadlock")?;

    let (a, b) = (a.balance.get(), b.balance.get());
    println!("both in one step: 200 transfers, A has {a}, B has {b}, together {}", a + b);
    assert_eq!((a, b), (900, 1100));
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    story().await
}
