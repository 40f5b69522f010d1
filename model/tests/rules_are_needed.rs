//! With all rules kept, no law is broken; with any one of them switched off, the search finds a world in which one is.

use model::rules::{Rule, Rules};
use model::search::search;
use model::setups::{self, PLAIN, Setup};

/// The world in which the search finds a broken law without this rule, and how the name of that law begins.
fn broken_law(rule: Rule) -> (Setup, &'static str) {
    match rule {
        Rule::PushMatchesTicket => (setups::hand_off(2), "honest"),
        Rule::NewIdAfterGone => (setups::hand_off(2), "honest"),
        Rule::NothingShortens => (setups::extending(PLAIN), "honest"),
        Rule::RepeatedAcquireRenews => (setups::lost_answers(2), "honest"),
        Rule::ValidFromSending => (setups::lost_answers(2), "honest"),
        Rule::PushAddsNoTime => (setups::hand_off(2), "honest"),
        Rule::BlockReservedAtJoin => (setups::local_handoff(), "fenced"),
        Rule::BlockGrowsOnlyAlone => (setups::local_handoff(), "fenced"),
        Rule::LateUnlessAloneIsHarmless => (setups::run_ends(PLAIN), "honest"),
        Rule::UnknownLeavesTombstone => (setups::lost_answers(2), "no ghost"),
        Rule::UnsureLeavesAsUnknown => (setups::lost_answers(2), "no ghost"),
        Rule::AnsweredAcquireIsOver => (setups::lost_answers(2), "no ghost"),
        Rule::SkippedLeavesTombstone => (setups::skipping_after_loss(), "no ghost"),
        Rule::SettleBeforeAnswer => (setups::deaths(PLAIN), "progress"),
        Rule::AllWaitersRecheck => (setups::deaths(PLAIN), "awake"),
        Rule::DecideThenPush => (setups::skipping(), "honest"),
        Rule::QueueBeforeKey => (setups::multi(), "safe"),
    }
}

#[test]
fn with_all_rules_no_law_breaks_and_all_milestones_are_reached() {
    for setup in setups::small() {
        let result = search(&setup, 2);
        assert!(result.is_good(), "{result}");
    }
}

#[test]
fn without_any_one_of_the_rules_a_law_is_broken() {
    let mut unnoticed = Vec::new();
    for rule in Rule::ALL {
        let (setup, law) = broken_law(rule);
        let result = search(&Setup { rules: Rules::without(rule), ..setup }, 1);
        if !result.broken().iter().any(|name| name.starts_with(law)) {
            unnoticed.push(format!("{rule:?}: expected {law:?} to break in {result}"));
        }
    }
    assert!(unnoticed.is_empty(), "{}", unnoticed.join("\n"));
}
