//! Which cases run on which executor, and the blocking cases without one.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};

use super::blocking::wait_for;
use super::fixture::Fixture;
use super::{Subject, conclude};

/// Makes tests of a store on executors other than a tokio runtime with all its drivers, in a module of this name. The expression
/// is a future of a [`Subject`](crate::conformance::Subject), as for [`conformance!`](crate::conformance!), which does not run
/// them.
///
/// [`Locks`](crate::Locks) needs no particular runtime, and [`lockfast::blocking`](crate::blocking) needs none; a store
/// that spawns, sleeps or does I/O on its caller's runtime breaks that. The modules are
///
/// - `blocking`: [`lockfast::blocking`](crate::blocking) from plain threads, without a runtime anywhere;
/// - `blocking_in_a_runtime`: the same on the only thread of a tokio runtime, whose tasks and timers stand still
///   meanwhile;
/// - `thread_pool`, `without_time`, `without_io`, `bare` and `paused`: some cases of the
///   [users' half](crate::conformance::users) on each [`Executor`](crate::conformance::Executor).
///
/// Where time is real, [`Subject::advance`](crate::conformance::Subject::advance) has to work on all of them:
/// [`sleep`](crate::conformance::sleep()) does.
///
/// ```text
/// lockfast::conformance_of_executors!(executors, InMemory::new());
/// ```
#[macro_export]
macro_rules! conformance_of_executors {
    ($module:ident, $subject:expr) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;

            $crate::conformance_of_executors! { @blocking $subject;
                blocking run_blocking {
                    threads_never_overlap
                    a_release_hands_the_lock_to_a_waiting_thread
                    patience_ends_and_the_holder_is_named
                    attempts_end_after_their_count
                    a_semaphore_never_exceeds_its_permits
                    readers_share_and_a_writer_waits_for_them
                    a_multi_is_all_or_nothing
                    many_threads_run_it_once
                    one_of_many_threads_runs_the_job
                    the_next_candidate_leads_when_the_leader_steps_down
                    the_end_of_a_lease_is_noticed
                    a_queue_is_shown_while_threads_wait
                    a_dropped_guard_is_released
                    a_shutdown_ends_waiters_and_holders
                    a_guard_outlives_the_runtime_it_was_acquired_in
                }
                blocking_in_a_runtime run_blocking_in_a_runtime {
                    a_release_hands_the_lock_to_a_waiting_thread
                    patience_ends_and_the_holder_is_named
                    many_threads_run_it_once
                    a_thousand_calls_follow_each_other
                }
            }
            $crate::conformance_of_executors! { @users $subject;
                thread_pool ThreadPool {
                    exclusion a_mutex_excludes
                    handoff a_release_hands_off_without_polling
                    terms attempts_are_counted
                    deaths a_waiter_gets_a_dead_holders_lock
                    election observers_receive_changes_of_the_leader_only
                    events a_shutdown_leaves_nothing
                }
                without_time WithoutTime {
                    terms giving_up_names_the_holder
                    terms attempts_are_counted
                    terms without_renewal_a_lock_ends_with_its_lease
                    election one_leads_and_the_next_takes_over
                }
                without_io WithoutIo {
                    exclusion readers_share_and_writers_exclude
                    once waiters_get_the_result_and_do_not_run
                }
                bare Bare {
                    exclusion a_semaphore_reaches_its_permits_and_never_exceeds_them
                    order a_multi_is_all_or_nothing
                    handoff a_dropped_guard_hands_off_without_polling
                    cron each_slot_runs_once
                    inspection a_queue_can_be_inspected
                }
                paused Paused {
                    handoff a_release_hands_off_without_polling
                    terms giving_up_names_the_holder
                    terms attempts_are_counted
                    terms a_held_lock_outlives_its_lease
                }
            }
        }
    };
    (@blocking $subject:expr; $($way:ident $run:ident { $($case:ident)+ })+) => {
        $(mod $way {
            #[allow(unused_imports)]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::conformance::$run(|| async { $subject.await }, $crate::conformance::blocking::$case);
            })+
        })+
    };
    (@users $subject:expr; $($way:ident $executor:ident { $($topic:ident $case:ident)+ })+) => {
        $(mod $way {
            #[allow(unused_imports)]
            use super::*;

            $(#[test]
            fn $case() {
                let executor = $crate::conformance::Executor::$executor;
                $crate::conformance::run_on(executor, async { $subject.await }, async |fixture| {
                    $crate::conformance::users::$topic::$case(fixture).await;
                });
            })+
        })+
    };
}

/// A case that takes longer than this is blocked for ever. Longer than the patience of the cases themselves.
const CASE_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs one of the [`blocking`](super::blocking) cases without a runtime: the body of tests that
/// [`conformance_of_executors!`](crate::conformance_of_executors!) makes.
pub fn run_blocking<S: Subject, F: Future<Output = S>>(
    subject: impl FnOnce() -> F + Send + 'static,
    case: impl FnOnce(&Fixture) + Send + 'static,
) {
    on_a_thread(move || {
        assert!(Handle::try_current().is_err(), "a new thread has no runtime");
        run_here(subject(), case);
    });
}

/// The same on the only thread of a tokio runtime.
pub fn run_blocking_in_a_runtime<S: Subject, F: Future<Output = S>>(
    subject: impl FnOnce() -> F + Send + 'static,
    case: impl FnOnce(&Fixture) + Send + 'static,
) {
    on_a_thread(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a test can make a runtime");
        runtime.block_on(async { run_here(subject(), case) });
    });
}

fn run_here<S: Subject>(subject: impl Future<Output = S>, case: impl FnOnce(&Fixture)) {
    let fixture = wait_for(async { Fixture::new(Box::new(subject.await), None).await });
    let ended = catch_unwind(AssertUnwindSafe(|| case(&fixture)));
    wait_for(conclude(&fixture, ended));
}

/// Runs the case on a thread of its own: a blocked thread cannot be stopped, so it is left behind.
fn on_a_thread(work: impl FnOnce() + Send + 'static) {
    let (sender, result) = mpsc::channel();
    thread::spawn(move || sender.send(catch_unwind(AssertUnwindSafe(work))));
    match result.recv_timeout(CASE_TIMEOUT) {
        Ok(Ok(())) => {}
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => panic!("a call blocks its thread for ever: does the store wait for the runtime of that thread?"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_blocking_case_is_in_the_macro() {
        let listed = include_str!("executors.rs");
        let cases =
            include_str!("blocking.rs").lines().filter_map(|line| line.strip_prefix("pub fn ")?.split('(').next());
        let cases: Vec<_> = cases.collect();
        assert!(!cases.is_empty());
        for case in cases {
            assert!(listed.lines().any(|line| line.trim() == case), "{case}");
        }
    }
}
