//! The report of a client to the store, at most once a second: its counters, and the claims that are old enough for a listing.
//! Never in the path of an acquisition.

use std::time::Duration;

use crate::clock::Moment;
use crate::store::{Counters, Report};

use super::Engine;
use super::effect::Effects;
use super::phase::Phase;

/// A claim is listed once its request is this old: younger ones are not worth the write.
const LISTED_AFTER: Duration = Duration::from_secs(1);
/// How long a listing lives without a report. It is refreshed every third of this.
const LISTING_TTL: Duration = Duration::from_secs(60);
/// How many claims are remembered, to be taken off the listing, while the store does not answer.
const MAX_CLAIMS_TO_UNLIST: usize = 100_000;

impl Engine {
    /// The report that is due, if any; it counts as delivered unless [`Engine::on_report_answer`] says otherwise.
    pub(super) fn report(&mut self, now: Moment) -> Option<Report> {
        self.next_report_at = Moment::NEVER;
        self.withdrawn_claims.retain(|_, (until, _)| *until > now);
        let mut entered = Vec::new();
        // Withdrawn claims are dropped by later reports.
        let (mut is_more_to_come, mut has_listed) = (!self.withdrawn_claims.is_empty(), false);
        let keys: Vec<_> = self.requests.keys().filter(|(_, request)| !request.is_listed).map(|(key, _)| key).collect();
        has_listed |= keys.len() < self.requests.len();
        for key in keys {
            let Some(request) = self.requests.get_mut(key) else { continue };
            let is_queued = matches!(*request.phase, Phase::Held | Phase::Between | Phase::Waiting { .. });
            match &request.claim {
                Some(claim) if is_queued && request.since + LISTED_AFTER <= now => {
                    entered.push((claim.id.hash(), claim.demands.clone()));
                    request.is_listed = true;
                    has_listed = true;
                }
                _ => is_more_to_come = true,
            }
        }
        let counters = minus(self.counters.totals(), self.last_reported);
        let left = std::mem::take(&mut self.claims_to_unlist);
        let is_empty = counters == Counters::default() && entered.is_empty() && left.is_empty();
        let pause = if is_more_to_come { LISTED_AFTER } else { LISTING_TTL / 3 };
        if is_more_to_come || has_listed {
            self.next_report_at = now + pause;
        }
        // A report without a change is sent only to keep the listing alive.
        if is_empty && !(has_listed && self.last_report_at + LISTING_TTL / 3 <= now) {
            return None;
        }
        self.last_report_at = now;
        self.last_reported = self.counters.totals();
        Some(Report { client: self.client, counters, entered, left, keep: LISTING_TTL })
    }

    /// There is something to report, within a second.
    pub(super) fn report_soon(&mut self, now: Moment, fx: &mut Effects) {
        let soon = now + Duration::from_secs(1);
        if soon < self.next_report_at {
            self.next_report_at = soon;
            fx.wakes_keeper |= soon < self.keeper_wakes_at;
        }
    }

    pub(super) fn on_report_answer(&mut self, report: Report, is_ok: bool, now: Moment, fx: &mut Effects) {
        if is_ok {
            return;
        }
        self.last_reported = minus(self.last_reported, report.counters);
        // A store that got no report for that long has dropped the whole listing by itself.
        if self.claims_to_unlist.len() < MAX_CLAIMS_TO_UNLIST {
            self.claims_to_unlist.extend(report.left);
        }
        for (owner, _) in report.entered {
            let key = self.key_by_claim.get(&owner).copied();
            if let Some(request) = key.and_then(|key| self.requests.get_mut(key)) {
                request.is_listed = false;
            }
        }
        self.report_soon(now, fx);
    }
}

/// Each counter of `all` less that of `reported`.
fn minus(all: Counters, reported: Counters) -> Counters {
    Counters {
        acquired: all.acquired - reported.acquired,
        released: all.released - reported.released,
        contended: all.contended - reported.contended,
        lost: all.lost - reported.lost,
    }
}
