//! The rule, tested three ways: named interleavings that once broke a draft, random histories against a reference that
//! is too simple to be wrong, and the four consequences of the rule checked from outside.

mod bounded;
mod histories;
mod interleavings;
mod laws;
mod naive;

use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::claim::{ClaimId, Demand, Demands};
use crate::store::{Leaving, Names, Page, Query};

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn at(second: u64) -> Moment {
    Moment::START + secs(second)
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A claim with a lease of ten seconds; each `id` is its own client.
fn claim(id: u64, demands: impl Into<Demands>) -> Claim {
    let mut secret = [0; 16];
    secret[..8].copy_from_slice(&id.to_le_bytes());
    Claim {
        id: ClaimId::from_secret(secret),
        client: ClientId(id),
        demands: demands.into(),
        ttl: secs(10),
        block: 1,
        floor: Ticket(0),
        detached: false,
        note: Arc::default(),
    }
}

fn mutex(id: u64, text: &str) -> Arc<Claim> {
    Arc::new(claim(id, Demand::exclusive(name(text))))
}

fn reader(id: u64, text: &str) -> Arc<Claim> {
    Arc::new(claim(id, Demand::shared(name(text))))
}

fn permits(id: u64, text: &str, weight: u32, capacity: u32) -> Arc<Claim> {
    Arc::new(claim(id, Demand::permits(name(text), weight, capacity).unwrap()))
}

fn multi(id: u64, texts: &[&str]) -> Arc<Claim> {
    let demands = texts.iter().map(|text| Demand::exclusive(name(text))).collect();
    Arc::new(claim(id, Demands::of(demands).unwrap()))
}

fn everything() -> Query {
    Query { names: Names::Beginning(String::new()), after: None, limit: usize::MAX, entries: usize::MAX }
}
