//! The report of a client to the store, at most once a second: its counters, and the claims that are old enough for a listing.
//! Never in the path of an acquisition.

use std::time::Duration;

use crate::clock::Moment;
use crate::store::{Counters, Report};

use super::Engine;
use super::effect::Effects;
use super::phase::Phase;

/// Claims younger than this are not worth listing.
const LISTED_FROM: Duration = Duration::from_secs(1);
/// How long a listing lives without a report; it is refreshed three times in that.
const KEPT: Duration = Duration::from_secs(60);
/// How many claims to take off the listing are remembered for a store that does not answer.
const MOST_UNLISTED: usize = 100_000;

impl Engine {
    /// The report that is due, if any; it counts as delivered unless [`Engine::reported`] says otherwise.
    pub(super) fn report(&mut self, now: Moment) -> Option<Report> {
        self.report_at = Moment::NEVER;
        self.withdrawn.retain(|_, (until, _)| *until > now);
        let mut entered = Vec::new();
        let (mut young, mut listed) = (!self.withdrawn.is_empty(), false);
        let keys: Vec<_> = self.requests.keys().filter(|(_, request)| !request.listed).map(|(key, _)| key).collect();
        listed |= keys.len() < self.requests.len();
        for key in keys {
            let Some(request) = self.requests.get_mut(key) else { continue };
            let is_queued = matches!(*request.phase, Phase::Held | Phase::Between | Phase::Waiting { .. });
            match &request.claim {
                Some(claim) if is_queued && request.since + LISTED_FROM <= now => {
                    entered.push((claim.id.hash(), claim.demands.clone()));
                    request.listed = true;
                    listed = true;
                }
                _ => young = true,
            }
        }
        let counters = minus(self.counters.totals(), self.reported);
        let left = std::mem::take(&mut self.unlisted);
        let silent = counters == Counters::default() && entered.is_empty() && left.is_empty();
        let rests = if young { LISTED_FROM } else { KEPT / 3 };
        if young || listed {
            self.report_at = now + rests;
        }
        // A report without a change is due now and then: it keeps the listing.
        if silent && !(listed && self.reported_at + KEPT / 3 <= now) {
            return None;
        }
        self.reported_at = now;
        self.reported = self.counters.totals();
        Some(Report { client: self.client, counters, entered, left, keep: KEPT })
    }

    /// There is something to report, within a second.
    pub(super) fn report_soon(&mut self, now: Moment, fx: &mut Effects) {
        let soon = now + Duration::from_secs(1);
        if soon < self.report_at {
            self.report_at = soon;
            fx.wakes_keeper |= soon < self.wakes_at;
        }
    }

    pub(super) fn reported(&mut self, report: Report, is_ok: bool, now: Moment, fx: &mut Effects) {
        if is_ok {
            return;
        }
        self.reported = minus(self.reported, report.counters);
        // A store without a report for so long drops the whole listing by itself.
        if self.unlisted.len() < MOST_UNLISTED {
            self.unlisted.extend(report.left);
        }
        for (owner, _) in report.entered {
            let key = self.by_hash.get(&owner).copied();
            if let Some(request) = key.and_then(|key| self.requests.get_mut(key)) {
                request.listed = false;
            }
        }
        self.report_soon(now, fx);
    }
}

fn minus(all: Counters, reported: Counters) -> Counters {
    Counters {
        acquired: all.acquired - reported.acquired,
        released: all.released - reported.released,
        contended: all.contended - reported.contended,
        lost: all.lost - reported.lost,
    }
}
