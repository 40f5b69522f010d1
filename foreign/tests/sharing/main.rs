//! One key, two libraries: lockfast and another lock library exclude each other, so that a team can move one service at a time.
//! Every test uses a real server, and the other library in a process of its own.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails, in its fixture too")]
#![allow(unreachable_pub, reason = "a test has no public interface")]

mod alone;
mod dying;
mod fixture;
mod mixed;
mod ours;
mod peer;
mod theirs;

/// One test for each client and each of these functions; or for one client, in a module of this name.
macro_rules! with_each_client {
    ($($area:ident::$test:ident),* $(,)?) => {
        with_each_client!(@ redis_py REDIS_PY $($area::$test)*);
        with_each_client!(@ python_redis_lock PYTHON_REDIS_LOCK $($area::$test)*);
        with_each_client!(@ redlock REDLOCK $($area::$test)*);
        with_each_client!(@ redlock_5 REDLOCK_5 $($area::$test)*);
        with_each_client!(@ redis_semaphore REDIS_SEMAPHORE $($area::$test)*);
        with_each_client!(@ rslock RSLOCK $($area::$test)*);
    };
    (@ $module:ident $client:ident $($area:ident::$test:ident)*) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    crate::fixture::run(crate::peer::$client, crate::$area::$test);
                }
            )*
        }
    };
}

with_each_client!(
    theirs::their_locks_are_refused_to_us,
    theirs::a_waiter_enters_soon_after_their_release,
    theirs::a_reader_waits_for_them_too,
    theirs::several_names_wait_for_one_of_theirs,
    theirs::when_their_lease_ends_we_get_it_and_they_cannot_touch_it,
    ours::a_mutex_is_refused_to_them_until_it_is_released,
    ours::a_reader_is_refused_to_them_until_the_last_one_leaves,
    ours::each_of_several_names_is_refused_to_them,
    ours::a_renewed_lock_is_never_theirs,
    ours::a_lock_that_is_handed_off_is_never_theirs,
    ours::they_get_it_by_waiting_in_their_own_way,
    ours::a_lock_they_took_after_ours_was_deleted_is_theirs,
    ours::they_cannot_release_or_extend_a_mutex,
    ours::they_cannot_release_or_extend_a_readers_lock,
    mixed::no_update_of_either_library_is_lost,
);

// The only libraries that can lock without a lease. Then only a release frees the key.
with_each_client!(@ redis_py_for_ever REDIS_PY theirs::a_lock_without_a_lease_is_waited_for);
with_each_client!(@ python_redis_lock_for_ever PYTHON_REDIS_LOCK theirs::a_lock_without_a_lease_is_waited_for);

// These rules depend on lockfast alone and need only one other library. The driver of rslock starts fastest.
with_each_client!(@ any RSLOCK
    theirs::waiters_behind_them_enter_in_order
    dying::the_next_waiter_polls_after_the_first_one_died
    ours::a_lock_that_lingers_is_not_theirs_yet
);
