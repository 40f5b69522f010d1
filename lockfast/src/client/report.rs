//! What a client tells the store about itself, at most once a second: its counters, and the claims that are old enough for
//! a listing. Never on the way of a lock.

use std::time::Duration;

use crate::clock::Moment;
use crate::store::{Counters, Report};

use super::book::{Book, Outbox};
use super::slot::Phase;

/// Claims younger than this are not worth listing.
const LISTED_FROM: Duration = Duration::from_secs(1);
/// How long a listing lives without a report; it is refreshed three times in that.
const KEPT: Duration = Duration::from_secs(60);
/// How many departures from the listing are remembered for a store that does not hear them.
const MOST_UNLISTED: usize = 100_000;

impl Book {
    /// What there is to report, if anything; it counts as told unless [`Book::reported`] hears otherwise.
    pub(crate) fn report(&mut self, now: Moment) -> Option<Report> {
        self.report_at = Moment::NEVER;
        self.withdrawn.retain(|_, (until, _)| *until > now);
        let mut entered = Vec::new();
        let (mut young, mut listed) = (!self.withdrawn.is_empty(), false);
        let keys: Vec<_> = self.slots.keys().filter(|(_, slot)| !slot.listed).map(|(key, _)| key).collect();
        listed |= keys.len() < self.slots.len();
        for key in keys {
            let Some(slot) = self.slots.get_mut(key) else { continue };
            let in_line = matches!(slot.phase, Phase::Held | Phase::Between | Phase::Waiting { .. });
            match &slot.claim {
                Some(claim) if in_line && slot.since + LISTED_FROM <= now => {
                    entered.push((claim.id.hash(), claim.demands.clone()));
                    slot.listed = true;
                    listed = true;
                }
                _ => young = true,
            }
        }
        let counters = minus(self.telling.tally.counters(), self.reported);
        let left = std::mem::take(&mut self.unlisted);
        let silent = counters == Counters::default() && entered.is_empty() && left.is_empty();
        let rests = if young { LISTED_FROM } else { KEPT / 3 };
        if young || listed {
            self.report_at = now + rests;
        }
        // Nothing new is still something to say now and then: that the listing is to be kept.
        if silent && !(listed && self.heard_at + KEPT / 3 <= now) {
            return None;
        }
        self.heard_at = now;
        self.reported = self.telling.tally.counters();
        Some(Report { client: self.client, counters, entered, left, keep: KEPT })
    }

    pub(crate) fn reported(&mut self, report: Report, heard: bool, now: Moment, out: &mut Outbox) {
        if heard {
            return;
        }
        self.reported = minus(self.reported, report.counters);
        // A store that has not heard of us for so long drops the whole listing by itself.
        if self.unlisted.len() < MOST_UNLISTED {
            self.unlisted.extend(report.left);
        }
        for (owner, _) in report.entered {
            let key = self.by_hash.get(&owner).copied();
            if let Some(slot) = key.and_then(|key| self.slots.get_mut(key)) {
                slot.listed = false;
            }
        }
        self.report_soon(now, out);
    }
}

fn minus(all: Counters, told: Counters) -> Counters {
    Counters {
        acquired: all.acquired - told.acquired,
        released: all.released - told.released,
        contended: all.contended - told.contended,
        lost: all.lost - told.lost,
    }
}
