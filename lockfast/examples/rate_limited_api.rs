//! An external service allows three calls at a time, counted over all our servers.
//!
//! A semaphore with three permits enforces it. Permits have leases like every lock: those of a server that died become free again.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::cell::Cell;
use std::sync::Arc;

use futures::future::try_join_all;
use lockfast::{Error, Locks, Memory, Result};
use tokio::sync::Barrier;

const ALLOWED: u32 = 3;

/// The service. It answers once three calls have arrived, to show that three run together; a fourth would exceed the limit.
struct Service {
    callers: Cell<u32>,
    most: Cell<u32>,
    three: Barrier,
}

impl Service {
    async fn call(&self) {
        self.callers.set(self.callers.get() + 1);
        self.most.set(self.most.get().max(self.callers.get()));
        self.three.wait().await;
        self.callers.set(self.callers.get() - 1);
    }
}

async fn call(server: &Locks, service: &Service) -> Result<()> {
    let permit = server.semaphore("external-api", ALLOWED).acquire().await?;
    service.call().await;
    permit.release().await
}

pub(crate) async fn story() -> Result<()> {
    // Two clients of one store, as two servers are.
    let store = Arc::new(Memory::new());
    let servers = [Locks::new(store.clone())?, Locks::new(store)?];
    let service = Service { callers: Cell::new(0), most: Cell::new(0), three: Barrier::new(3) };

    try_join_all(servers.iter().cycle().take(12).map(|server| call(server, &service))).await?;
    println!("12 calls from 2 servers, {} at once", service.most.get());
    assert_eq!(service.most.get(), ALLOWED);

    // When all permits are taken, a request can be turned away instead of waiting.
    let all = servers[0].semaphore("external-api", ALLOWED).acquire_many(ALLOWED).await?;
    let turned_away = servers[1].semaphore("external-api", ALLOWED).try_acquire().await?.is_none();
    println!("all permits are taken: {}", if turned_away { "turned away at once" } else { "got in" });
    assert!(turned_away);

    // A server that was deployed with another number would break the limit, so it is refused.
    let refused = servers[1].semaphore("external-api", 50).try_acquire().await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    println!("a server that thinks the limit is 50: refused");
    all.release().await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    story().await
}
