//! Two API servers take a payment from one account at the same moment.
//!
//! Without a lock both read the same balance, and one update is lost. With a lock they run one after the other. The account
//! compares fencing tokens, so it also refuses the write of a server that was paused for longer than its lease.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use lockfast::{Locks, ManualClock, Memory, Result};

/// A row of some database. It remembers the highest fence that wrote to it.
struct Account {
    balance: Cell<u32>,
    highest_fence: Cell<u64>,
}

impl Account {
    fn new(balance: u32) -> Self {
        Self { balance: Cell::new(balance), highest_fence: Cell::new(0) }
    }

    /// Whether the write was accepted. In SQL: `UPDATE .. SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2`.
    fn write(&self, balance: u32, fence: u64) -> bool {
        let is_accepted = fence >= self.highest_fence.get();
        if is_accepted {
            self.highest_fence.set(fence);
            self.balance.set(balance);
        }
        is_accepted
    }

    /// Whether the customer was charged.
    async fn pay(&self, amount: u32, fence: u64) -> bool {
        let balance = self.balance.get();
        tokio::task::yield_now().await; // a real server waits for its database here, and the other server runs meanwhile
        balance >= amount && self.write(balance - amount, fence)
    }
}

async fn pay_under_lock(server: &Locks, account: &Account) -> Result<bool> {
    let guard = server.mutex("account:123").lock().await?;
    let charged = account.pay(70, guard.fence()?).await;
    guard.release().await?;
    Ok(charged)
}

pub(crate) async fn story() -> Result<()> {
    let account = Account::new(100);
    let charged = tokio::join!(account.pay(70, 0), account.pay(70, 0));
    println!("without a lock, two payments of 70 from 100: charged {charged:?}, {} left", account.balance.get());
    assert!(charged == (true, true) && account.balance.get() == 30, "without the race this example has no point");

    // Two clients of one store, as two servers are. The clock is manual, so that a lease can end without waiting.
    let manual_clock = ManualClock::new();
    let store = Arc::new(Memory::with_clock(manual_clock.clock()));
    let server = || Locks::builder().clock(manual_clock.clock()).build(store.clone());
    let (server_1, server_2) = (server()?, server()?);
    let account = Account::new(100);
    let charged = tokio::try_join!(pay_under_lock(&server_1, &account), pay_under_lock(&server_2, &account))?;
    println!("with a lock, two payments of 70 from 100: charged {charged:?}, {} left", account.balance.get());
    assert!(charged == (true, false) && account.balance.get() == 30);

    let account = Account::new(100);
    let paused = server_1.mutex("account:123").lock().await?;
    let balance_before = account.balance.get();
    manual_clock.advance(Duration::from_secs(31)); // server 1 stands still for longer than its lease of 30 s
    assert!(pay_under_lock(&server_2, &account).await?);
    let is_accepted = account.write(balance_before - 70, paused.fence()?); // it resumes as if nothing had happened
    println!("a late write with an old fence: {}", if is_accepted { "accepted" } else { "refused" });
    assert!(!is_accepted && account.balance.get() == 30 && paused.check().is_err());
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    story().await
}
