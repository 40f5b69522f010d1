//! The state of an engine that can be read without an input.

use std::sync::Arc;

use crate::claim::{Claim, Ticket};
use crate::clock::Moment;
use crate::error::Error;

use super::Engine;
use super::counters::Stats;
use super::input::Closing;
use super::phase::Phase;
use super::request::Request;
use super::requests::Key;
use super::terms::Terms;

impl Engine {
    /// How many ids for claims are in stock. The client adds more before they run out.
    pub fn ids_left(&self) -> usize {
        self.ids.len()
    }

    /// Whether the future of this request waits to be woken.
    pub fn is_waiting(&self, key: Key) -> bool {
        let phase = self.requests.get(key).map(|request| &*request.phase);
        matches!(phase, Some(Phase::Behind | Phase::Waiting { .. } | Phase::Outside { .. }))
    }

    /// Whether this hold is lost, or gone.
    pub fn has_lost(&self, hold: Key) -> bool {
        self.requests.get(hold).is_none_or(|request| request.lost.is_some())
    }

    /// Whether there are neither requests nor releases to send.
    pub fn is_idle(&self) -> bool {
        self.requests.len() == 0 && self.releases.is_empty()
    }

    /// Whether nothing is due by now and no answer is awaited: until time passes, or a caller asks, nothing happens.
    #[cfg(feature = "conformance")]
    pub fn is_settled(&self, now: Moment) -> bool {
        let release_at = self.releases.first_key_value().map_or(Moment::NEVER, |((at, _), _)| *at);
        let next =
            [self.requests.next_at(), release_at, self.next_rejoin_at()].into_iter().fold(Moment::NEVER, Moment::min);
        next > now && self.rejoins_in_flight == 0 && self.requests.keys().all(|(_, request)| !request.in_flight)
    }

    /// Why no more requests are admitted, if so.
    pub fn closed(&self) -> Option<Closing> {
        self.closed
    }

    /// Events up to this rank are made; none with 0.
    pub fn set_event_rank(&mut self, rank: u8) {
        self.event_rank = rank;
    }

    /// Up to which rank events are made.
    #[cfg(feature = "record")]
    pub fn event_rank(&self) -> u8 {
        self.event_rank
    }

    /// The terms of this request.
    pub fn terms(&self, key: Key) -> Option<&Arc<Terms>> {
        self.requests.get(key).map(|request| &request.terms)
    }

    /// The claim of this request, and whether one of its acquires may still run.
    pub fn claim(&self, key: Key) -> Option<(Arc<Claim>, bool)> {
        let request = self.requests.get(key)?;
        Some((request.claim.clone()?, request.unsure))
    }

    /// Where `hold_at_most` ends this hold.
    pub fn cap(&self, hold: Key) -> Moment {
        self.requests.get(hold).map_or(Moment::START, Request::cap)
    }

    /// The state of a waiter, for errors.
    pub fn waiter(&self, key: Key) -> Option<Waiter> {
        let request = self.requests.get(key)?;
        let (ticket, position) = match *request.phase {
            // Of several names the store answers with the largest position.
            Phase::Waiting { ticket, .. } if request.terms.demands.len() == 1 => (Some(ticket), request.position()),
            Phase::Waiting { ticket, .. } => (Some(ticket), usize::MAX),
            _ => (None, usize::MAX),
        };
        let trouble = request.last_error().filter(|_| request.failures > 0).cloned();
        let (since, attempts) = (request.since, request.attempts.max(1));
        Some(Waiter { terms: Arc::clone(&request.terms), ticket, position, trouble, since, attempts })
    }

    /// The phase of a request, to be printed.
    #[cfg(feature = "engine")]
    pub fn phase(&self, key: Key) -> Option<Phase> {
        self.requests.get(key).map(|request| Phase::clone(&request.phase))
    }

    /// All requests, to be printed.
    #[cfg(feature = "engine")]
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.requests.keys().map(|(key, _)| key)
    }

    pub(crate) fn stats(&self) -> Stats {
        self.counters.stats()
    }
}

/// The state of a waiter, for errors.
#[derive(Debug)]
pub struct Waiter {
    /// Its terms.
    pub terms: Arc<Terms>,
    /// Its ticket, if it is in the queue.
    pub ticket: Option<Ticket>,
    /// How many claims were ahead when it joined; the largest number if unknown.
    pub position: usize,
    /// Why the store does not answer, if it does not.
    pub trouble: Option<Error>,
    /// Since when it waits.
    pub since: Moment,
    /// How often it asked.
    pub attempts: u32,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("requests", &self.requests.len())
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}
