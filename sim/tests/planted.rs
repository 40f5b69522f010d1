//! Each rule of the engine and of the table, left out on purpose: the simulation notices within a stated number of seeds.
//!
//! Two rules are not here. A push with the ticket of an earlier life of its claim needs more coincidences than the worlds have; the
//! search of the model finds it (`model/tests/rules_are_needed.rs`). The claim of an acquire that is answered too late costs one
//! lease at most, which no invariant forbids in a world with faults (`lockfast/tests/engine/ghosts.rs`).

use std::sync::atomic::{AtomicU64, Ordering};

use lockfast::planted::{Rule, leave_out};
use sim::{Invariant, Plan, run_plan};

/// How many seeds, from 1 on, it takes at most to notice that the rule is left out.
const FOUND_WITHIN: [(Rule, u64); 22] = [
    (Rule::LeaseCountsFromSending, 20),
    (Rule::UnknownLeavesTombstone, 100),
    (Rule::UnpolledGrantIsGivenBack, 400),
    (Rule::EarlyPushIsKept, 20),
    (Rule::WaitersRenew, 20),
    (Rule::LostAtDeadline, 20),
    (Rule::UnknownIsNotLost, 20),
    (Rule::FiveRequestsASecond, 20),
    (Rule::RunsEnd, 20),
    (Rule::TicketsAreReserved, 20),
    (Rule::ReleaseIsRepeated, 20),
    (Rule::FloorIsCarried, 20),
    (Rule::CancelledClaimIsWithdrawn, 20),
    (Rule::RecheckCoversLeasesAhead, 20),
    (Rule::ResyncAsksAll, 400),
    (Rule::NoVerbShortens, 20),
    (Rule::TombstoneKeepsOut, 100),
    (Rule::UnlessAloneYields, 20),
    (Rule::LateUnlessAloneIsHarmless, 100),
    (Rule::RepeatedAcquireRenews, 100),
    (Rule::TicketsAboveFloor, 20),
    (Rule::SealEmptiesQueue, 20),
];

/// Rules that worlds do not show to be needed; see above.
const SHOWN_ELSEWHERE: [Rule; 2] = [Rule::PushMatchesTicket, Rule::LateAnswerIsWithdrawn];

/// The first seed in whose world an invariant breaks without the rule, and which.
fn found_by(rule: Rule, most: u64) -> Option<(u64, Invariant)> {
    let (next, found) = (AtomicU64::new(1), AtomicU64::new(u64::MAX));
    let search = || {
        leave_out(Some(rule));
        let mut first = None;
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > most || seed > found.load(Ordering::Relaxed) {
                leave_out(None);
                return first;
            }
            if let Some((_, broken)) = run_plan(&Plan::of_seed(seed), false).violation {
                found.fetch_min(seed, Ordering::Relaxed);
                first = first.or(Some((seed, broken.invariant)));
            }
        }
    };
    let both = std::thread::scope(|scope| {
        let other = scope.spawn(search);
        [search(), other.join().expect("a world that panics is a violation")]
    });
    both.into_iter().flatten().min_by_key(|(seed, _)| *seed)
}

#[test]
fn each_rule_that_is_left_out_is_noticed() {
    for (rule, most) in FOUND_WITHIN {
        assert!(found_by(rule, most).is_some(), "{rule:?} is left out, and {most} seeds do not show it");
    }
}

#[test]
fn every_rule_is_listed() {
    let is_listed = |rule: &Rule| FOUND_WITHIN.iter().any(|(it, _)| it == rule) || SHOWN_ELSEWHERE.contains(rule);
    let missing: Vec<_> = Rule::ALL.into_iter().filter(|rule| !is_listed(rule)).collect();
    assert_eq!(missing, []);
}
