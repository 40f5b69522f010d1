//! The suite that every store must pass, for authors of stores (cargo feature `conformance`).
//!
//! A store is tested through [`Store`], from several handles at once, and through [`Locks`](crate::Locks) as [`users`]
//! do. Implement [`Subject`] to open the store under test and to advance its time;
//! [`conformance!`](crate::conformance!) then makes one test for each case, so that a failure names the case and the
//! store:
//!
//! ```no_run
//! # use std::{sync::Arc, time::Duration};
//! use lockfast::conformance::{Subject, Time};
//! use lockfast::{Clock, ManualClock, Memory, store::Store};
//!
//! struct InMemory {
//!     manual_clock: ManualClock,
//!     store: Arc<Memory>,
//! }
//!
//! impl InMemory {
//!     async fn new() -> Self {
//!         let manual_clock = ManualClock::new();
//!         Self { store: Arc::new(Memory::with_clock(manual_clock.clock())), manual_clock }
//!     }
//! }
//!
//! #[async_trait::async_trait]
//! impl Subject for InMemory {
//!     async fn open(&self) -> Arc<dyn Store> {
//!         self.store.clone()
//!     }
//!
//!     async fn advance(&self, span: Duration) {
//!         self.manual_clock.advance(span);
//!     }
//!
//!     fn time(&self) -> Time {
//!         Time::Set
//!     }
//!
//!     fn clock(&self) -> Clock {
//!         self.manual_clock.clock()
//!     }
//! }
//!
//! lockfast::conformance!(memory, InMemory::new());
//! # fn main() {}
//! ```
//!
//! A case about something that a store does not promise in its [`Guarantees`](crate::store::Guarantees), or refuses as
//! [`Unsupported`](crate::Error::Unsupported), passes and says so in its output. A case that cannot reach what it needs
//! fails.
//!
//! [`conformance_of_executors!`](crate::conformance_of_executors!) makes further tests: without a runtime, on an executor that is
//! not tokio's, and on tokio runtimes without drivers or with paused time.
//!
//! [`lockstep`] applies random verbs to the store and to a [`Table`](crate::table::Table) side by side. [`Chaos`] is a
//! store around a store that delays, repeats and loses calls, for tests of the code above a store.

pub mod blocking;
mod chaos;
pub mod exclusion;
mod executor;
mod executors;
pub mod fencing;
mod fixture;
pub mod leases;
pub mod leaving;
pub mod listing;
pub mod lockstep;
pub mod multi;
pub mod names;
mod pushes;
pub mod refusal;
pub mod repeats;
pub mod users;
pub mod wakes;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;

use crate::clock::Clock;
use crate::store::Store;

pub use chaos::{Chaos, Faults};
pub use executor::{Executor, sleep};
pub use executors::{run_blocking, run_blocking_in_a_runtime};
pub use fixture::{Client, Fixture};
use users::ChaosRun;

/// A store to be tested, new for each case. It need not be empty: a case uses names of its own.
#[async_trait]
pub trait Subject: Send + Sync + 'static {
    /// A new handle to the store. Writes through one handle are seen through the others.
    async fn open(&self) -> Arc<dyn Store>;

    /// Lets time pass for the leases in the store. Where time is real, [`sleep`] does that on any executor.
    async fn advance(&self, span: Duration);

    /// How [`advance`](Self::advance) works.
    fn time(&self) -> Time;

    /// The clock of the clients. For [`Time::Set`], the clock that [`advance`](Self::advance) moves; otherwise the
    /// machine's.
    fn clock(&self) -> Clock {
        Clock::boot()
    }
}

/// How time passes in a [`Subject`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// It stands still except for [`Subject::advance`]: replies can be compared to the nanosecond.
    Set,
    /// It passes by itself; [`Subject::advance`] waits.
    Real,
}

/// Makes one test for each case of the suite, in a module of this name. The expression is a future of a
/// [`Subject`](crate::conformance::Subject); see the [module](mod@crate::conformance) for an example.
#[macro_export]
macro_rules! conformance {
    ($module:ident, $subject:expr) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;

            $crate::conformance! { @cases $subject;
                exclusion {
                    one_claim_holds_a_mutex_at_a_time
                    the_queue_is_first_come_first_served
                    a_waiter_that_left_is_passed_over
                    readers_share
                    a_writer_excludes_all_other_claims
                    a_reader_behind_a_writer_waits
                    readers_behind_a_writer_enter_together
                    a_semaphore_counts
                    a_light_claim_does_not_pass_a_heavy_one
                    a_semaphore_of_one_is_a_mutex
                    concurrent_claims_never_overlap
                }
                multi {
                    a_multi_is_all_or_nothing
                    a_new_claim_does_not_pass_a_multi_at_the_front
                    opposite_orders_do_not_deadlock
                    a_multi_may_mix_kinds
                    a_multi_frees_all_it_held
                    unless_alone_releases_for_a_multi_waiting_elsewhere
                    a_multi_does_not_pass_a_waiter_that_fits
                }
                leases {
                    an_expired_lease_frees
                    a_renewed_lease_is_kept
                    an_expired_claim_does_not_come_back
                    a_repeated_acquire_renews
                    no_verb_shortens_a_lease
                    a_waiting_claim_expires
                    a_recheck_covers_every_death_ahead
                    renewals_are_answered_in_order
                    a_renewal_never_joins
                }
                refusal {
                    a_refused_claim_leaves_no_trace
                    a_refusal_names_the_holder
                    capacity_mismatch_is_refused
                    an_empty_queue_adopts_a_new_capacity
                    a_claim_heavier_than_the_capacity_is_refused
                }
                fencing {
                    tickets_rise_with_every_grant
                    tickets_rise_from_handle_to_handle
                    a_ticket_is_above_the_floor
                    a_waiter_keeps_its_ticket
                    a_block_is_reserved_at_join
                    unless_alone_goes_on_without_waiters
                    unless_alone_releases_with_waiters
                    a_late_unless_alone_changes_nothing
                    a_repeated_unless_alone_renews
                    unless_alone_of_a_reader_ignores_readers
                }
                leaving {
                    a_lingering_claim_keeps_others_out
                    a_repeated_linger_is_not_longer
                    a_lingering_claim_is_not_renewed
                    a_waiter_does_not_linger
                    a_seal_answers_with_its_value_until_it_ends
                    a_seal_empties_the_queue
                    only_an_exclusive_holder_seals
                    a_broken_holder_keeps_its_entry_until_it_leaves
                    a_broken_holder_ends_with_its_lease
                    a_break_at_once_hands_off
                    a_waiting_claim_can_be_broken
                    a_lingering_claim_can_be_broken
                    a_break_needs_the_right_fence
                }
                repeats {
                    every_verb_can_be_sent_twice
                    verbs_with_a_foreign_id_have_no_effect
                    a_late_acquire_is_refused
                    the_tombstone_of_a_long_lease_ends_after_a_minute
                    a_release_of_unknown_outcome_frees
                    a_repeated_release_gets_the_first_reply
                    a_late_copy_of_unless_alone_ends_no_later_hold
                    releases_are_answered_in_order
                }
                names {
                    odd_names_are_independent
                    a_name_and_its_prefix_are_independent
                }
                wakes {
                    a_grant_is_pushed_once_with_its_ticket
                    a_multi_is_pushed_once_it_holds_all_names
                    a_grant_is_pushed_to_one_client_only
                    an_expired_waiter_is_notified
                    a_broken_claim_is_notified
                    waiters_removed_by_a_seal_are_notified
                    a_linger_pushes_its_end_to_the_first_waiter
                    changes_of_queues_can_be_watched
                }
                listing {
                    a_queue_is_shown_in_ticket_order
                    as_many_entries_are_shown_as_requested
                    a_hold_is_counted_from_its_beginning
                    lingering_broken_and_sealed_are_shown
                    pages_follow_each_other
                    counters_of_all_clients_add_up
                    an_unused_name_is_not_shown
                }
                lockstep {
                    random_verbs_are_answered_as_by_a_table
                }
            }
            $crate::conformance_of_users! { users, $subject }
        }
    };
    (@cases $subject:expr; $($topic:ident { $($case:ident)+ })+) => {
        $(mod $topic {
            #[allow(unused_imports)]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::conformance::run(async { $subject.await }, async |fixture| {
                    $crate::conformance::$topic::$case(fixture).await;
                });
            })+
        })+
    };
}

/// Runs one case: the body of each test that [`conformance!`](crate::conformance!) makes.
pub fn run<S: Subject>(subject: impl Future<Output = S>, case: impl AsyncFnOnce(&Fixture)) {
    run_on(Executor::Tokio, subject, case);
}

/// Runs one case on this executor: the body of tests that
/// [`conformance_of_executors!`](crate::conformance_of_executors!) makes.
pub fn run_on<S: Subject>(executor: Executor, subject: impl Future<Output = S>, case: impl AsyncFnOnce(&Fixture)) {
    executor.run(run_in(subject, None, case));
}

async fn run_in<S: Subject>(
    subject: impl Future<Output = S>,
    chaos: Option<ChaosRun>,
    case: impl AsyncFnOnce(&Fixture),
) {
    let fixture = Fixture::new(Box::new(subject.await), chaos).await;
    let ended = AssertUnwindSafe(case(&fixture)).catch_unwind().await;
    conclude(&fixture, ended).await;
}

async fn conclude(fixture: &Fixture, ended: std::thread::Result<()>) {
    match ended {
        Ok(()) => {
            fixture.assert_nothing_is_left().await;
            fixture.assert_users_leave_nothing().await;
        }
        Err(panic) => match panic.downcast::<NotPromised>() {
            Ok(not_promised) => eprintln!("not promised by this store: {}", not_promised.0),
            Err(failure) => std::panic::resume_unwind(failure),
        },
    }
}

/// Ends a case about something that the store does not promise. Travels as a panic, past the case's own code.
struct NotPromised(String);

fn not_promised(what: impl Into<String>) -> ! {
    let why: Box<dyn Any + Send> = Box::new(NotPromised(what.into()));
    std::panic::resume_unwind(why)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_macro_lists_exactly_the_written_cases() {
        let files = [
            include_str!("exclusion.rs"),
            include_str!("fencing.rs"),
            include_str!("leases.rs"),
            include_str!("leaving.rs"),
            include_str!("listing.rs"),
            include_str!("lockstep.rs"),
            include_str!("multi.rs"),
            include_str!("names.rs"),
            include_str!("refusal.rs"),
            include_str!("repeats.rs"),
            include_str!("wakes.rs"),
        ];
        let case_of = |line: &str| Some(line.strip_prefix("pub async fn ")?.split('(').next()?.to_owned());
        let mut written: Vec<_> = files.iter().flat_map(|text| text.lines()).filter_map(case_of).collect();
        let listed = include_str!("mod.rs").lines().filter(|line| line.starts_with(&" ".repeat(20)));
        let mut listed: Vec<_> = listed.map(|line| line.trim().to_owned()).filter(|it| is_a_case(it)).collect();
        written.sort_unstable();
        listed.sort_unstable();
        assert_eq!(written, listed);
    }

    fn is_a_case(line: &str) -> bool {
        line.contains('_') && line.chars().all(|character| character.is_ascii_lowercase() || character == '_')
    }
}
