//! Time has passed: requests, releases and reports that are due, and when to look again.

use std::time::Duration;

use crate::clock::Moment;

use super::Engine;
use super::action::On;
use super::effect::{Effect, Effects, Next};

impl Engine {
    pub(super) fn on_elapsed(&mut self, now: Moment, fx: &mut Effects) -> Next {
        self.had_ids = !self.ids.is_empty();
        self.ask_for_missed(fx);
        self.take_over_overdue(now, fx);
        for key in self.requests.take_due(now) {
            self.on(key, On::Due, now, fx);
        }
        while let Some(first) = self.releases.first_entry().filter(|first| first.key().0 <= now) {
            fx.push(Effect::Release(Box::new(first.remove())));
        }
        self.next_to_rejoin(now, fx);
        if self.next_report_at <= now
            && let Some(report) = self.report(now)
        {
            fx.push(Effect::Record(Box::new(report)));
        }
        let release_at = self.releases.first_key_value().map_or(Moment::NEVER, |((at, _), _)| *at);
        let rejoin_at = if self.rejoins_in_flight > 0 { Moment::NEVER } else { self.next_rejoin_at() };
        let overdue_at = self.next_overdue_at();
        self.keeper_wakes_at = [release_at, rejoin_at, overdue_at, self.next_report_at]
            .into_iter()
            .fold(self.requests.next_at(), Moment::min);
        Next::At(self.keeper_wakes_at)
    }

    /// The pause before asking again after this many failures in a row, with jitter.
    pub(super) fn backoff(&mut self, failures: u32) -> Duration {
        jittered(failures, self.jitter.f64())
    }
}

/// 50 ms, doubled by each failure up to 1.6 s, of which a random part is taken away: nothing if `chance` is 1, half if it is 0.
pub(crate) fn jittered(failures: u32, chance: f64) -> Duration {
    let longest = Duration::from_millis(50) * (1 << failures.min(5));
    longest.mul_f64(0.5 + chance / 2.0)
}
