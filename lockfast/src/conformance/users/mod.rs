//! The half of the suite that uses a store through [`Locks`](crate::Locks), with several clients at once.
//!
//! [`conformance!`](crate::conformance!) runs it together with the rest.
//! [`conformance_of_users!`](crate::conformance_of_users!) runs it alone, and can run it through
//! [`Chaos`](super::Chaos) with several seeds: safety and progress must hold whatever the network does. Promises that a
//! faulty network breaks by its nature are listed in [`NOT_THROUGH_CHAOS`], each with the reason.

pub mod cron;
pub mod deaths;
pub mod election;
pub mod events;
pub mod exclusion;
pub mod handoff;
pub mod inspection;
mod link;
pub mod once;
pub mod order;
pub mod terms;
mod user;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fastrand::Rng;

use super::chaos::Faults;
use super::fixture::Fixture;
use super::{Executor, Subject, Time, run_in};

pub(super) use user::{ChaosRun, Users};
pub use user::{Request, User};

/// The cases that are not run through [`Chaos`](super::Chaos), and why.
pub const NOT_THROUGH_CHAOS: &[(&str, &str)] = &[
    ("handoff::a_release_hands_off_without_polling", LOST_PUSH),
    ("handoff::a_dropped_guard_hands_off_without_polling", LOST_PUSH),
    ("handoff::a_cancelled_waiter_unblocks_others_without_polling", LOST_PUSH),
    ("handoff::a_release_hands_off_within_the_bound", "the bound is that of a healthy store"),
    ("once::a_waiter_gets_the_result_without_polling", LOST_PUSH),
    ("election::observers_are_pushed_to", "an observer whose inspect got lost repeats it after a second"),
    (
        "terms::try_lock_says_no_at_once",
        "an attempt whose reply is lost fails, and its claim blocks others until it is withdrawn",
    ),
    (
        "terms::giving_up_names_the_holder",
        "a waiter that gives up inspects once more; a lost reply leaves no holder to name",
    ),
    ("terms::attempts_are_counted", "an attempt whose reply is lost ends as unavailable, not as busy"),
];

const LOST_PUSH: &str = "a waiter whose push was lost has to poll";

/// Makes one test for each case of the [users' half](crate::conformance::users) of the suite, in a module of this name.
///
/// With a list of faults and seeds, every case is run through [`Chaos`](crate::conformance::Chaos) with each of them,
/// all at once:
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

            $crate::conformance_of_users! { @all healthy $subject }
        }
    };
    ($module:ident, $subject:expr, $runs:expr) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;

            $crate::conformance_of_users! { @all [$runs] $subject }
        }
    };
    (@all $chaos:tt $subject:expr) => {
            $crate::conformance_of_users! { @cases $chaos $subject;
                exclusion {
                    a_mutex_excludes
                    a_semaphore_of_one_excludes
                    a_write_lock_excludes
                    a_multi_of_one_excludes
                    a_mutex_a_write_lock_and_a_multi_exclude_each_other
                    readers_share_and_writers_exclude
                    a_semaphore_reaches_its_permits_and_never_exceeds_them
                    several_permits_count_as_several
                    guards_never_overlap_and_fences_rise
                }
                order {
                    waiters_of_all_clients_are_granted_in_order
                    a_local_hand_off_ends_when_another_client_waits
                    a_reader_behind_a_writer_waits_for_it
                    opposite_orders_do_not_deadlock
                    a_multi_is_all_or_nothing
                    a_multi_that_gives_up_leaves_every_queue
                }
                handoff {
                    a_release_hands_off_without_polling
                    a_dropped_guard_hands_off_without_polling
                    a_cancelled_waiter_unblocks_others_without_polling
                    a_release_hands_off_within_the_bound
                    a_cancelled_waiter_is_passed_over
                    a_waiter_cancelled_after_its_grant_hands_off
                    a_waiter_cancelled_at_any_moment_blocks_no_other
                    a_grant_that_is_not_taken_is_handed_off
                }
                deaths {
                    a_dead_holders_lock_is_free_after_its_lease
                    a_waiter_gets_a_dead_holders_lock
                    a_dead_waiter_is_passed_over
                    a_dead_holder_and_a_dead_waiter_are_passed_over
                    a_client_that_lost_a_lock_cannot_change_it
                }
                terms {
                    a_held_lock_outlives_its_lease
                    without_renewal_a_lock_ends_with_its_lease
                    a_guard_ends_before_its_lease_in_the_store
                    an_extended_lock_lasts
                    hold_at_least_lingers
                    a_waiter_enters_when_a_lingering_lock_ends
                    a_lock_held_long_enough_does_not_linger
                    hold_at_most_loses
                    work_stops_when_its_lock_is_lost
                    try_lock_says_no_at_once
                    giving_up_names_the_holder
                    attempts_are_counted
                }
                inspection {
                    a_queue_can_be_inspected
                    prefixes_keep_names_apart
                    odd_names_are_locked_and_shown
                    a_broken_lock_is_handed_off_once_its_holder_left
                    a_lock_broken_at_once_is_handed_off
                    a_wrong_fence_breaks_nothing
                    disagreement_about_permits_is_refused
                }
                once {
                    the_first_caller_runs_and_later_ones_get_the_result
                    a_caller_that_does_not_wait_gets_in_progress
                    waiters_get_the_result_and_do_not_run
                    a_waiter_gets_the_result_without_polling
                    concurrent_callers_run_it_once
                    a_thousand_deliveries_run_once
                    a_failure_is_not_remembered
                    cancelled_work_is_run_by_the_next
                    a_crash_lets_the_next_run
                    a_result_after_a_loss_is_not_remembered
                    a_result_is_forgotten_after_its_time
                    the_result_can_be_read
                    reading_the_result_blocks_no_caller
                    a_result_outlives_its_client
                    a_lock_on_a_name_done_once_is_refused
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
                    a_candidate_that_stops_is_passed_over
                    the_leader_can_be_seen
                    a_lingering_candidate_does_not_lead
                    observers_receive_changes_of_the_leader_only
                    observers_are_pushed_to
                    an_observation_ends_with_its_client
                    callbacks_are_called_once_each
                    work_stops_with_its_leadership_and_starts_again
                    leading_ends_with_its_client
                    work_ends_before_the_successor_begins
                    dead_leaders_are_followed_and_never_met
                }
                events {
                    events_of_a_lock_come_in_order
                    losses_and_cancellations_have_events
                    stats_count
                    fleet_stats_add_up
                    a_shutdown_leaves_nothing
                    a_guard_outlives_the_last_handle
                }
            }
    };
    (@cases $chaos:tt $subject:expr; $($topic:ident { $($case:ident)+ })+) => {
        $(mod $topic {
            #[allow(unused_imports)]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::conformance_of_users!(@run $chaos $subject, $topic, $case);
            })+
        })+
    };
    (@run healthy $subject:expr, $topic:ident, $case:ident) => {
        $crate::conformance::run(async { $subject.await }, async |fixture| {
            $crate::conformance::users::$topic::$case(fixture).await;
        })
    };
    (@run [$runs:expr] $subject:expr, $topic:ident, $case:ident) => {
        $crate::conformance::users::run_through_chaos(
            concat!(stringify!($topic), "::", stringify!($case)),
            || async { $subject.await },
            $runs,
            async |fixture| $crate::conformance::users::$topic::$case(fixture).await,
        )
    };
}

/// Runs one case through [`Chaos`](super::Chaos), with all faults and seeds at once: the body of each test that
/// [`conformance_of_users!`](crate::conformance_of_users!) makes. The subject's time must be real.
pub fn run_through_chaos<S: Subject, F: Future<Output = S>>(
    name: &str,
    subject: impl Fn() -> F + Sync,
    runs: &[(Faults, u64)],
    case: impl AsyncFn(&Fixture) + Sync,
) {
    if let Some((_, why)) = NOT_THROUGH_CHAOS.iter().find(|(excluded, _)| *excluded == name) {
        eprintln!("{name} is not run through chaos: {why}");
        return;
    }
    let run_one = |(faults, seed): (Faults, u64)| {
        let chaos = ChaosRun { faults, rng: Rng::with_seed(seed) };
        let checked = async |fixture: &Fixture| {
            assert_eq!(fixture.time(), Time::Real, "chaos takes real time");
            case(fixture).await;
        };
        if let Err(failure) =
            catch_unwind(AssertUnwindSafe(|| Executor::Tokio.run(run_in(subject(), Some(chaos), checked))))
        {
            eprintln!("{name} failed with seed {seed} and {faults:?}");
            resume_unwind(failure);
        }
    };
    std::thread::scope(|threads| {
        let running: Vec<_> = runs.iter().map(|run| threads.spawn(|| run_one(*run))).collect();
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
        ("inspection", include_str!("inspection.rs")),
        ("once", include_str!("once.rs")),
        ("order", include_str!("order.rs")),
        ("events", include_str!("events.rs")),
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
    fn the_macro_lists_exactly_the_written_cases() {
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
        line.contains('_') && line.chars().all(|character| character.is_ascii_lowercase() || character == '_')
    }

    #[test]
    fn cases_not_run_through_chaos_exist_and_have_a_reason() {
        for (excluded, why) in NOT_THROUGH_CHAOS {
            let (topic, case) = excluded.split_once("::").unwrap();
            assert!(written().contains(&(topic, case)), "{excluded}");
            assert!(!why.is_empty());
        }
    }
}
