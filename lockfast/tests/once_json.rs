//! `run_json`: results of any type that can be written and read as JSON.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::sync::Arc;

use lockfast::{Error, Locks, LostWhy, Memory, Outcome};

type Receipt = (u64, Option<String>, BTreeMap<String, Vec<i32>>);

fn receipt() -> Receipt {
    (42, Some("paid \u{1f980} \"twice\"".to_owned()), BTreeMap::from([("parts".to_owned(), vec![-1, 0, i32::MAX])]))
}

fn two_clients() -> (Locks, Locks) {
    let store = Arc::new(Memory::new());
    (Locks::new(store.clone()).unwrap(), Locks::new(store).unwrap())
}

#[tokio::test]
async fn a_result_comes_back_as_it_was() {
    let (one, two) = two_clients();
    let first = one.once("a").run_json(async |_| Ok::<_, Error>(receipt())).await.unwrap();
    assert_eq!(first, Outcome::Ran(receipt()));
    let second = two.once("a").run_json(async |_| -> Result<Receipt, Error> { panic!("it was done") }).await;
    assert_eq!(second.unwrap(), Outcome::AlreadyDone(receipt()));
    let bytes = two.once("a").result().await.unwrap().unwrap();
    assert!(bytes.starts_with(b"[42,"), "{bytes:?}");
}

#[tokio::test]
async fn the_unit_value_is_a_result() {
    let (one, two) = two_clients();
    assert_eq!(one.once("a").run_json(async |_| Ok::<_, Error>(())).await.unwrap(), Outcome::Ran(()));
    assert_eq!(two.once("a").run_json(async |_| Ok::<_, Error>(())).await.unwrap(), Outcome::AlreadyDone(()));
}

#[tokio::test]
async fn many_tasks_get_the_one_result() {
    let (one, two) = two_clients();
    let tasks: Vec<_> = (0..20)
        .map(|task| {
            let locks = if task % 2 == 0 { one.clone() } else { two.clone() };
            tokio::spawn(async move { locks.once("a").run_json(async move |_| Ok::<_, Error>(task)).await })
        })
        .collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.unwrap().unwrap());
    }
    let ran: Vec<_> = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Ran(_))).cloned().collect();
    assert_eq!(ran.len(), 1);
    let value = ran[0].clone().into_value();
    assert!(outcomes.into_iter().all(|outcome| outcome.into_value() == value));
}

#[tokio::test]
async fn a_failure_is_not_remembered() {
    let (one, two) = two_clients();
    let failed = one.once("a").run_json(async |_| Err::<u32, _>(Error::invalid("no money"))).await;
    assert!(matches!(failed, Err(Error::Invalid(why)) if why == "no money"));
    assert_eq!(two.once("a").run_json(async |_| Ok::<_, Error>(7)).await.unwrap(), Outcome::Ran(7));
}

#[tokio::test]
async fn an_unwritable_result_is_an_error_and_not_remembered() {
    let (one, two) = two_clients();
    let keys = BTreeMap::from([(vec![1], 2)]);
    let error = one.once("a").run_json(async |_| Ok::<_, Error>(keys.clone())).await;
    assert!(matches!(&error, Err(Error::Invalid(why)) if why.contains("does not fit")), "{error:?}");
    assert_eq!(two.once("a").result().await.unwrap(), None);
}

#[tokio::test]
async fn an_unreadable_result_is_an_error_and_not_remembered() {
    let (one, two) = two_clients();
    // JSON has no such number: it is written as `null`.
    let error = one.once("a").run_json(async |_| Ok::<_, Error>(f64::NAN)).await;
    assert!(matches!(&error, Err(Error::Invalid(why)) if why.contains("does not fit")), "{error:?}");
    assert_eq!(two.once("a").result().await.unwrap(), None);
    assert_eq!(two.once("a").run_json(async |_| Ok::<_, Error>(0.5)).await.unwrap(), Outcome::Ran(0.5));
}

#[tokio::test]
async fn a_result_of_another_type_is_an_error() {
    let (one, two) = two_clients();
    one.once("a").run(async |_| Ok::<_, Error>("no number")).await.unwrap();
    let error = two.once("a").run_json(async |_| Ok::<_, Error>(7)).await;
    assert!(matches!(&error, Err(Error::Invalid(why)) if why.contains("does not fit")), "{error:?}");
}

#[tokio::test]
async fn a_lost_lock_remembers_no_result() {
    let (one, two) = two_clients();
    let capped = one.once("a").hold_at_most(std::time::Duration::from_millis(5));
    let lost = capped.run_json(async |_| std::future::pending::<Result<u32, Error>>().await).await;
    assert!(matches!(lost, Err(Error::Lost { why: LostWhy::HeldAtMost, .. })), "{lost:?}");
    assert_eq!(two.once("a").run_json(async |_| Ok::<_, Error>(7)).await.unwrap(), Outcome::Ran(7));
}
