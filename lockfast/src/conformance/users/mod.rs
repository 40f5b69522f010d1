//! The half of the suite that meets a store as users do: through [`Locks`](crate::Locks), several clients at once.
//!
//! [`conformance!`](crate::conformance!) runs it together with the rest. [`conformance_of_users!`](crate::conformance_of_users!)
//! runs it alone, and can run it through [`Chaos`](super::Chaos) on several days: what is safe must stay so, and what was
//! asked for must come, whatever the network does. Promises that a bad network breaks by its nature are listed in
//! [`NOT_THROUGH_CHAOS`], each with the reason.

pub mod cron;
pub mod deaths;
pub mod election;
pub mod exclusion;
pub mod handoff;
pub mod looking;
pub mod once;
pub mod order;
pub mod telling;
pub mod terms;
mod user;
mod wire;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fastrand::Rng;

use super::chaos::Faults;
use super::place::Place;
use super::{Executor, Subject, Time, run_in};

pub use user::{Asking, User};
pub(super) use user::{Users, Weather};

/// The cases that are not run through [`Chaos`](super::Chaos), and why.
pub const NOT_THROUGH_CHAOS: &[(&str, &str)] = &[
    ("handoff::a_release_hands_on_without_a_question", ASKS),
    ("handoff::a_drop_hands_on_without_a_question", ASKS),
    ("handoff::a_cancelled_waiter_hands_on_without_a_question", ASKS),
    ("handoff::a_release_hands_on_within_the_bound", "the bound is that of a healthy store"),
    ("once::a_waiter_hears_of_the_result_without_polling", ASKS),
    ("election::observers_are_told", "an observer whose look got lost looks again after a second"),
    (
        "terms::try_lock_says_no_at_once",
        "an attempt whose answer is lost fails, and its claim is in the way until withdrawn",
    ),
    ("terms::giving_up_names_the_holder", "who gives up looks once more, briefly; a lost answer leaves nobody to name"),
    ("terms::attempts_are_counted", "an attempt whose answer is lost ends as unavailable, not as busy"),
];

const ASKS: &str = "a waiter whose push was lost has to ask";

/// Makes one test for each case of the [users' half](crate::conformance::users) of the suite, in a module of this name.
///
/// With days, each a pair of faults and a seed, every case is run through [`Chaos`](crate::conformance::Chaos) on each of
/// them, all at once:
///
/// ```text
/// lockfast::conformance_of_users!(chaos, InMemory::new(), &[(Faults::BAD_DAY, 1), (Faults::BAD_DAY, 2)]);
/// ```
#[macro_export]
macro_rules! conformance_of_users {
    ($module:ident, $subject:expr) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;

            $crate::conformance_of_users! { @all calm $subject }
        }
    };
    ($module:ident, $subject:expr, $days:expr) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;

            $crate::conformance_of_users! { @all [$days] $subject }
        }
    };
    (@all $weather:tt $subject:expr) => {
            $crate::conformance_of_users! { @cases $weather $subject;
                exclusion {
                    a_mutex_excludes
                    a_semaphore_of_one_excludes
                    a_write_lock_excludes
                    a_multi_of_one_excludes
                    a_mutex_a_write_lock_and_a_multi_exclude_each_other
                    readers_share_and_writers_exclude
                    a_semaphore_reaches_its_permits_and_never_passes_them
                    several_permits_count_as_several
                    stays_never_overlap_and_fences_rise
                }
                order {
                    who_was_in_line_first_enters_first
                    a_turn_ends_when_another_client_waits
                    a_reader_behind_a_writer_waits_for_it
                    opposite_orders_do_not_deadlock
                    a_multi_is_all_or_nothing
                    a_multi_that_gives_up_leaves_every_line
                }
                handoff {
                    a_release_hands_on_without_a_question
                    a_drop_hands_on_without_a_question
                    a_cancelled_waiter_hands_on_without_a_question
                    a_release_hands_on_within_the_bound
                    a_cancelled_waiter_is_passed_over
                    who_is_cancelled_when_handed_over_passes_it_on
                    who_is_cancelled_at_any_moment_does_not_block_the_next
                    a_lock_that_nobody_picks_up_is_given_back
                }
                deaths {
                    a_dead_holders_lock_is_free_after_its_lease
                    a_waiter_gets_a_dead_holders_lock
                    a_dead_waiter_is_passed_over
                    a_dead_holder_and_a_dead_waiter_are_passed_over
                    who_lost_a_lock_cannot_touch_it
                }
                terms {
                    a_held_lock_outlives_its_lease
                    without_renewal_a_lock_ends_with_its_lease
                    a_guard_trusts_its_lease_less_than_the_store_does
                    an_extended_lock_lasts
                    hold_at_least_lingers
                    a_waiter_enters_when_a_lingering_lock_ends
                    what_was_held_long_enough_does_not_linger
                    hold_at_most_loses
                    work_stops_when_its_lock_is_lost
                    try_lock_says_no_at_once
                    giving_up_names_the_holder
                    attempts_are_counted
                }
                looking {
                    a_line_can_be_looked_at
                    prefixes_keep_names_apart
                    odd_names_are_locked_and_shown
                    a_broken_lock_passes_on_when_its_holder_has_left
                    a_lock_broken_at_once_passes_on
                    a_wrong_fence_breaks_nothing
                    disagreement_about_permits_is_refused
                }
                once {
                    the_first_runs_it_and_the_others_get_the_result
                    who_does_not_wait_hears_that_it_is_in_progress
                    waiters_get_the_result_and_do_not_run
                    a_waiter_hears_of_the_result_without_polling
                    many_at_once_run_it_once
                    a_thousand_deliveries_run_once
                    a_failure_is_not_remembered
                    cancelled_work_is_run_by_the_next
                    a_crash_lets_the_next_run
                    what_was_lost_is_not_remembered
                    a_result_is_forgotten_after_its_time
                    the_result_can_be_asked_for
                    asking_for_the_result_is_in_nobodys_way
                    a_result_outlives_its_client
                    a_lock_on_what_was_done_once_is_refused
                    results_are_bytes_of_any_size
                }
                cron {
                    one_of_three_servers_runs_the_job
                    a_quick_job_stays_taken
                    a_job_is_free_when_it_has_ended
                    a_job_that_takes_too_long_is_stopped
                    each_slot_runs_once
                    a_slot_in_progress_is_not_waited_for
                    a_slot_that_failed_can_be_run_again
                    a_slot_is_forgotten_after_its_time
                }
                election {
                    one_leads_and_the_next_takes_over
                    candidates_of_one_client_take_turns
                    who_stops_campaigning_is_passed_over
                    the_leader_can_be_seen
                    who_lingers_does_not_lead
                    observers_hear_of_changes_and_of_nothing_else
                    observers_are_told
                    an_observation_ends_with_its_client
                    callbacks_are_called_once_each
                    work_is_stopped_with_its_leadership_and_begins_again
                    leading_ends_with_its_client
                    work_ends_before_the_successor_begins
                    dead_leaders_are_followed_and_never_met
                }
                telling {
                    events_tell_what_happened
                    events_tell_what_went_wrong
                    stats_count
                    fleet_stats_add_up
                    a_shutdown_leaves_nothing
                    a_guard_outlives_the_last_handle
                }
            }
    };
    (@cases $weather:tt $subject:expr; $($topic:ident { $($case:ident)+ })+) => {
        $(mod $topic {
            #[allow(unused_imports)]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::conformance_of_users!(@run $weather $subject, $topic, $case);
            })+
        })+
    };
    (@run calm $subject:expr, $topic:ident, $case:ident) => {
        $crate::conformance::run(async { $subject.await }, async |place| {
            $crate::conformance::users::$topic::$case(place).await;
        })
    };
    (@run [$days:expr] $subject:expr, $topic:ident, $case:ident) => {
        $crate::conformance::users::run_through_chaos(
            concat!(stringify!($topic), "::", stringify!($case)),
            || async { $subject.await },
            $days,
            async |place| $crate::conformance::users::$topic::$case(place).await,
        )
    };
}

/// Runs one case through [`Chaos`](super::Chaos), on all days at once: what
/// [`conformance_of_users!`](crate::conformance_of_users!) puts into each test. The subject's time has to be real.
pub fn run_through_chaos<S: Subject, F: Future<Output = S>>(
    name: &str,
    subject: impl Fn() -> F + Sync,
    days: &[(Faults, u64)],
    case: impl AsyncFn(&Place) + Sync,
) {
    if let Some((_, why)) = NOT_THROUGH_CHAOS.iter().find(|(excluded, _)| *excluded == name) {
        eprintln!("{name} is not run through chaos: {why}");
        return;
    }
    let on_day = |(faults, seed): (Faults, u64)| {
        let weather = Weather { faults, rng: Rng::with_seed(seed) };
        let watched = async |place: &Place| {
            assert_eq!(place.time(), Time::Real, "chaos takes real time");
            case(place).await;
        };
        if let Err(failure) =
            catch_unwind(AssertUnwindSafe(|| Executor::Tokio.run(run_in(subject(), Some(weather), watched))))
        {
            eprintln!("{name} failed with seed {seed} and {faults:?}");
            resume_unwind(failure);
        }
    };
    std::thread::scope(|threads| {
        let running: Vec<_> = days.iter().map(|day| threads.spawn(|| on_day(*day))).collect();
        for thread in running {
            if let Err(failure) = thread.join() {
                resume_unwind(failure);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::NOT_THROUGH_CHAOS;

    const FILES: [(&str, &str); 10] = [
        ("cron", include_str!("cron.rs")),
        ("deaths", include_str!("deaths.rs")),
        ("election", include_str!("election.rs")),
        ("exclusion", include_str!("exclusion.rs")),
        ("handoff", include_str!("handoff.rs")),
        ("looking", include_str!("looking.rs")),
        ("once", include_str!("once.rs")),
        ("order", include_str!("order.rs")),
        ("telling", include_str!("telling.rs")),
        ("terms", include_str!("terms.rs")),
    ];

    fn written() -> Vec<(&'static str, &'static str)> {
        let case_of = |line: &'static str| line.strip_prefix("pub async fn ")?.split('(').next();
        let cases = FILES.iter().flat_map(|(topic, text)| text.lines().filter_map(case_of).map(|case| (*topic, case)));
        let mut cases: Vec<_> = cases.collect();
        cases.sort_unstable();
        cases
    }

    #[test]
    fn every_case_is_in_the_macro_and_the_other_way_round() {
        let mut topic = "";
        let mut listed = Vec::new();
        for line in include_str!("mod.rs").lines().filter(|line| line.starts_with(&" ".repeat(16))) {
            match line.trim().strip_suffix(" {") {
                Some(next) if !next.contains(' ') => topic = next,
                _ if is_a_case(line.trim()) => listed.push((topic, line.trim())),
                _ => {}
            }
        }
        listed.sort_unstable();
        assert_eq!(written(), listed);
    }

    fn is_a_case(line: &str) -> bool {
        line.contains('_') && line.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
    }

    #[test]
    fn what_is_not_run_through_chaos_exists_and_says_why() {
        for (excluded, why) in NOT_THROUGH_CHAOS {
            let (topic, case) = excluded.split_once("::").unwrap();
            assert!(written().contains(&(topic, case)), "{excluded}");
            assert!(!why.is_empty());
        }
    }
}
