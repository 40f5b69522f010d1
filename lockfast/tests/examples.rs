//! Runs every program in `examples/`, as its own `main` runs it; each asserts what it prints.

macro_rules! stories {
    ($($name:ident $file:literal)*) => {
        $(
            #[path = $file]
            #[allow(dead_code, reason = "the program's `main`, which only calls `story`")]
            mod $name;
        )*

        const STORIES: &[&str] = &[$(stringify!($name)),*];
    };
}

stories! {
    booking "../examples/booking.rs"
    cron_three_servers "../examples/cron_three_servers.rs"
    leader_takeover "../examples/leader_takeover.rs"
    payments "../examples/payments.rs"
    rate_limited_api "../examples/rate_limited_api.rs"
    transfer "../examples/transfer.rs"
    webhook_once "../examples/webhook_once.rs"
}

#[tokio::test]
async fn a_refused_booking_names_the_holder() {
    booking::story().await.unwrap();
}

#[tokio::test]
async fn a_job_on_three_servers_runs_once_for_each_slot() {
    cron_three_servers::story().await.unwrap();
}

#[tokio::test]
async fn a_leader_that_froze_is_replaced_and_its_late_write_refused() {
    leader_takeover::story().await.unwrap();
}

#[tokio::test]
async fn two_payments_at_once_lose_no_update_and_a_late_one_is_refused() {
    payments::story().await.unwrap();
}

#[tokio::test]
async fn a_service_never_sees_more_callers_than_it_allows() {
    rate_limited_api::story().await.unwrap();
}

#[tokio::test]
async fn opposite_transfers_neither_deadlock_nor_lose_money() {
    transfer::story().await.unwrap();
}

#[tokio::test]
async fn a_webhook_is_handled_once_and_each_delivery_gets_its_result() {
    webhook_once::story().await.unwrap();
}

#[test]
fn every_example_is_tested_here() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut example_names: Vec<_> = files.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    example_names.sort();
    assert_eq!(example_names, STORIES);
    let is_run = |name: &&str| include_str!("examples.rs").contains(&format!(" {name}::story()"));
    assert!(STORIES.iter().all(is_run));
}
