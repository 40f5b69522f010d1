//! An external service allows three calls at a time, counted over all our servers.
//!
//! A semaphore with three permits enforces it. Permits have leases like every lock: those of a server that died become free again.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::cell::Cell;
use std::sync::Arc;

use futures::future::try_join_all;
use lockfast::{Error, Locks, Memory, Result};
use tokio::sync::Barrier;

/// How many calls the service allows at a time.
const MAX_CALLS: u32 = 3;

/// The service. It answers once three calls have arrived, to show that three run together; a fourth would exceed the limit.
struct Service {
    callers: Cell<u32>,
    max_callers: Cell<u32>,
    third_call: Barrier,
}

impl Service {
    async fn call(&self) {
        self.callers.set(self.callers.get() + 1);
        self.max_callers.set(self.max_callers.get().max(self.callers.get()));
        self.third_call.wait().await;
        self.callers.set(self.callers.get() - 1);
    }
}

async fn call(server: &Locks, service: &Service) -> Result<()> {
    let permit = server.semaphore("external-api", MAX_CALLS).acquire().await?;
    service.call().await;
    permit.release().await
}

pub(crate) async fn story() -> Result<()> {
    // Two clients of one store, as two servers are.
    let store = Arc::new(Memory::new());
    let servers = [Locks::new(store.clone())?, Locks::new(store)?];
    let service =
        Service { callers: Cell::new(0), max_callers: Cell::new(0), third_call: Barrier::new(MAX_CALLS as usize) };

    try_join_all(servers.iter().cycle().take(12).map(|server| call(server, &service))).await?;
    println!("12 calls from 2 servers, {} at once", service.max_callers.get());
    assert_eq!(service.max_callers.get(), MAX_CALLS);

    // When all permits are taken, a request can be turned away instead of waiting.
    let all_permits = servers[0].semaphore("external-api", MAX_CALLS).acquire_many(MAX_CALLS).await?;
    let turned_away = servers[1].semaphore("external-api", MAX_CALLS).try_acquire().await?.is_none();
    println!("all permits are taken: {}", if turned_away { "turned away at once" } else { "got in" });
    assert!(turned_away);

    // A server that was deployed with another number would break the limit, so it is refused.
    let refused = servers[1].semaphore("external-api", 50).try_acquire().await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    println!("a server that thinks the limit is 50: refused");
    all_permits.release().await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    story().await
}
