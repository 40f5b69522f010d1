//! Loss: a hold that may not be trusted any more, decided by the local clock and on time, or by the store's own word. And the
//! end of the client, which ends all requests.

use crate::clock::Moment;
use crate::error::LostWhy;
use crate::event::EventKind;

use super::Engine;
use super::effect::{Effect, Effects};
use super::input::Closing;
use super::phase::Phase;
use super::requests::Key;

impl Engine {
    /// A hold is lost. Its guard stays, and says so; giving it back still sends a release.
    pub(super) fn lose(&mut self, hold: Key, why: LostWhy, now: Moment, fx: &mut Effects) {
        self.requests.unschedule(hold);
        let Some(request) = self.requests.get_mut(hold).filter(|request| request.lost.is_none()) else { return };
        request.lost = Some(why);
        if !matches!(*request.phase, Phase::Held) {
            return;
        }
        fx.push(Effect::Lost { hold, terms: request.terms.clone(), why });
        // Its guard may stay for a long time. Local waiters behind it do not wait for that.
        self.hand_lead_on(hold, now, fx);
        self.counters.add_lost();
        self.emit(hold, EventKind::Lost { why }, fx);
        self.report_soon(now, fx);
    }

    /// The guard has seen the deadline pass before the engine did.
    pub(super) fn on_deadline_seen(&mut self, hold: Key, now: Moment, fx: &mut Effects) {
        if self.requests.get(hold).is_some_and(|request| matches!(*request.phase, Phase::Held)) {
            self.lose(hold, LostWhy::Expired, now, fx);
        }
    }

    /// A guard is gone, and its time is counted.
    pub(super) fn count_guard_end(&mut self, hold: Key, is_over: bool, now: Moment, fx: &mut Effects) {
        if let Some(why) = self.requests.get(hold).and_then(|request| request.loss(now)) {
            // The guard saw the loss before the keeper did. It is counted and made an event all the same.
            self.lose(hold, why, now, fx);
        }
        let Some(request) = self.requests.get(hold) else { return };
        if matches!(*request.phase, Phase::Held) {
            let held = now.since(request.since);
            self.counters.add_released(held, is_over);
            if !is_over {
                self.emit(hold, EventKind::Released { held }, fx);
            }
            self.report_soon(now, fx);
        }
    }

    /// The client ends: holds are given back, waiters fail, and no request is admitted any more.
    pub(super) fn close(&mut self, why: Closing, now: Moment, fx: &mut Effects) {
        if self.closed.replace(why).is_some() {
            return;
        }
        let keys: Vec<_> = self.requests.keys().map(|(key, _)| key).collect();
        for key in keys {
            let Some(request) = self.requests.get(key) else { continue };
            match *request.phase {
                Phase::Held | Phase::Between => {
                    let last_word = request.last_word(request.claim.clone().expect("a hold has a claim"), now);
                    self.lose(key, LostWhy::Shutdown, now, fx);
                    self.count_guard_end(key, true, now, fx);
                    self.remove(key);
                    self.release_by_keeper(last_word, now, fx);
                }
                // A release in flight ends by itself.
                Phase::Releasing => {}
                // A request that asks, waits or is behind fails at its next poll.
                _ => {
                    self.withdraw(key, now, fx);
                    fx.wake(key);
                }
            }
        }
        self.local_queues = Default::default();
        self.next_report_at = now;
        fx.wakes_keeper = true;
    }
}
