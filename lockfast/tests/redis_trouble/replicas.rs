//! With `?replicas=N`, a join, a renewal or a hand-off counts only when N replicas have it.

use lockfast::{Error, Locks, LostWhy};

use crate::fixture::{Admin, Pair, connect, millis, now, secs, soon, spawn_until_lost, until};

#[tokio::test]
async fn an_isolated_holder_has_lost_before_the_replica_grants() {
    let pair = Pair::start().await;
    let first = connect(&pair.url(), secs(2)).await;
    let guard = soon(first.mutex("a").lock()).await.unwrap();
    let fence = guard.fence().unwrap();
    let mut admin = Admin::of(&pair.replica.url());
    let mut least = i64::MAX;
    let is_renewed = async || {
        let left = admin.number("PTTL lock:a");
        least = least.min(left);
        left > least + 100
    };
    until("a renewal reaches the replica", is_renewed).await;
    guard.check().unwrap();

    admin.run("REPLICAOF NO ONE");
    let lost = spawn_until_lost(guard);
    let second = connect(&pair.replica.url(), secs(30)).await;
    let granted = soon(second.mutex("a").lock()).await.unwrap();
    let granted_at = now();
    assert!(granted.fence().unwrap() > fence);
    let (why, lost_at) = soon(lost).await.unwrap();
    assert_eq!(why, LostWhy::Expired);
    assert!(lost_at <= granted_at, "two held for {:?}", lost_at.since(granted_at));
    granted.release().await.unwrap();
}

#[tokio::test]
async fn a_holder_without_its_replica_loses_its_lock_at_its_deadline() {
    let mut pair = Pair::start().await;
    let locks = connect(&pair.url(), secs(1)).await;
    let guard = soon(locks.mutex("a").lock()).await.unwrap();
    pair.replica.kill();
    assert_eq!(soon(guard.lost()).await, LostWhy::Expired);
    assert!(guard.check().is_err());
    let extended = guard.extend(secs(5)).await.unwrap_err();
    assert!(matches!(extended, Error::Lost { .. }), "{extended}");
}

#[tokio::test]
async fn an_extension_that_no_replica_has_is_unknown() {
    let mut pair = Pair::start().await;
    let guard = soon(pair.connect().await.mutex("a").lock()).await.unwrap();
    guard.extend(secs(40)).await.unwrap();
    pair.replica.kill();
    let unknown = soon(guard.extend(secs(100))).await.unwrap_err();
    assert!(matches!(&unknown, Error::Unavailable { .. }) && unknown.to_string().contains("replicas"), "{unknown}");
    assert!(guard.remaining() < secs(50), "it is not trusted for longer than what the replica has");
    guard.check().unwrap();
}

/// The lock passes from one claim to the next while the replica is away.
async fn hand_off_without_the_replica(holder_client: &Locks, waiter_client: &Locks, pair: &mut Pair) {
    let guard = soon(holder_client.mutex("a").lock()).await.unwrap();
    let mutex = waiter_client.mutex("a");
    let mut waiter = Box::pin(mutex.lock());
    // The replica has the waiter's entry before it is killed.
    tokio::select! {
        _ = &mut waiter => panic!("the lock is held"),
        () = until("the waiter is in the queue", async || waiter_client.stats().waiting == 1) => {}
    }
    pair.replica.kill();
    let (fence, owner) = (guard.fence().unwrap(), guard.owner().to_string());
    guard.release().await.unwrap();
    let mut admin = Admin::of(&pair.primary.url());
    let next = admin.text("GET lock:a");
    assert!(next.starts_with("lockfast1 x ") && !next.contains(&owner), "the primary has handed it off: {next:?}");
    if let Ok(entered) = tokio::time::timeout(millis(1_500), &mut waiter).await {
        panic!("it entered although no replica knows of it: {entered:?}");
    }
    pair.replica.start_again();
    let entered = soon(waiter).await.unwrap();
    assert!(entered.fence().unwrap() > fence);
    let mut admin = Admin::of(&pair.replica.url());
    assert!(admin.text("GET lock:a").contains(&entered.owner().to_string()), "the replica has it");
    entered.release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_granted_by_a_push_enters_when_a_replica_has_it() {
    let mut pair = Pair::start().await;
    let (holder_client, waiter_client) = (pair.connect().await, pair.connect().await);
    hand_off_without_the_replica(&holder_client, &waiter_client, &mut pair).await;
}

#[tokio::test]
async fn a_waiter_granted_by_a_release_enters_when_a_replica_has_it() {
    let mut pair = Pair::start().await;
    let locks = pair.connect().await;
    hand_off_without_the_replica(&locks, &locks.clone(), &mut pair).await;
}

#[tokio::test]
async fn hand_offs_with_a_replica_are_prompt_by_push_and_by_answer() {
    let pair = Pair::start().await;
    let (one, two) = (connect(&pair.url(), secs(60)).await, connect(&pair.url(), secs(60)).await);
    for (holder_client, waiter_client) in [(&one, &two), (&one, &one)] {
        let guard = soon(holder_client.mutex("a").lock()).await.unwrap();
        let mutex = waiter_client.mutex("a");
        let mut waiter = Box::pin(mutex.lock());
        tokio::select! {
            _ = &mut waiter => panic!("the lock is held"),
            () = until("the waiter is in the queue", async || waiter_client.stats().waiting == 1) => {}
        }
        let begun = now();
        guard.release().await.unwrap();
        let entered = soon(waiter).await.unwrap();
        // The waiter's next renewal is due after twenty seconds.
        assert!(now().since(begun) < secs(10), "it is notified, and does not wait for its renewal");
        entered.release().await.unwrap();
    }
}

#[tokio::test]
async fn local_hand_offs_end_when_no_replica_has_their_tickets() {
    let mut pair = Pair::start().await;
    let locks = Locks::builder().ttl(secs(30)).connect(&pair.url()).await.unwrap();
    let guard = soon(locks.mutex("a").lock()).await.unwrap();
    let behind = tokio::spawn({
        let mutex = locks.mutex("a");
        async move { mutex.lock().await }
    });
    until("the task is behind the holder", async || locks.stats().waiting == 1).await;
    pair.replica.kill();
    let (fence, owner) = (guard.fence().unwrap(), guard.owner());
    let unknown = soon(guard.release()).await.unwrap_err();
    assert!(matches!(&unknown, Error::Unavailable { .. }) && unknown.to_string().contains("replicas"), "{unknown}");
    let mut admin = Admin::of(&pair.primary.url());
    let has_left = async || !admin.text("GET lock:a").contains(&owner.to_string());
    until("the claim whose release is unknown leaves", has_left).await;
    assert_eq!(locks.stats().held, 0, "the next task does not enter");
    pair.replica.start_again();
    let entered = soon(behind).await.unwrap().unwrap();
    assert!(entered.fence().unwrap() > fence && entered.owner() != owner, "it joined with a claim of its own");
    entered.release().await.unwrap();
}

#[tokio::test]
async fn a_replica_that_is_slow_for_less_than_a_lease_costs_no_lock() {
    let pair = Pair::start().await;
    let locks = connect(&pair.url(), secs(9)).await;
    let guard = soon(locks.mutex("a").lock()).await.unwrap();
    let url = pair.replica.url();
    let asleep = std::thread::spawn(move || Admin::of(&url).run("DEBUG SLEEP 4"));
    // A renewal is due within the sleep. Its WAIT ends without the replica.
    until("less is left than after a renewal", async || guard.remaining() < secs(5)).await;
    guard.check().unwrap();
    until("it is renewed", async || guard.remaining() > secs(7)).await;
    asleep.join().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn one_wait_serves_a_batch_of_renewals_and_only_with_replicas() {
    let pair = Pair::start().await;
    let mut admin = Admin::of(&pair.primary.url());
    let plain = connect(&pair.primary.url(), secs(1)).await;
    let guard = plain.mutex("plain").lock().await.unwrap();
    let before = admin.requests();
    until("it is renewed", async || admin.requests() > before + 3).await;
    assert_eq!(admin.calls("wait"), 0);
    guard.release().await.unwrap();

    let locks = connect(&pair.url(), secs(2)).await;
    let mutexes: Vec<_> = (0..90).map(|number| locks.mutex(format!("many:{number}"))).collect();
    let guards = soon(futures::future::try_join_all(mutexes.iter().map(|mutex| mutex.lock()))).await.unwrap();
    let (before, requests) = (admin.calls("wait"), admin.requests());
    until("they are renewed again and again", async || admin.requests() > requests + 10).await;
    let (sent, requests) = (admin.calls("wait") - before, admin.requests() - requests);
    assert!(sent > 0 && sent <= requests, "{sent} for {requests} requests");
    for guard in &guards {
        guard.check().unwrap();
    }
}

#[tokio::test]
async fn an_acquire_that_is_not_polled_holds_up_no_other() {
    let pair = Pair::start().await;
    let locks = pair.connect().await;
    let (mut admin, url) = (Admin::of(&pair.primary.url()), pair.replica.url());
    let (stuck, other) = (locks.mutex("stuck"), locks.mutex("other"));
    let asleep = std::thread::spawn(move || Admin::of(&url).run("DEBUG SLEEP 1"));
    let mut stuck = Box::pin(stuck.lock());
    // While the replica sleeps, the WAIT of this request takes a second.
    tokio::select! {
        _ = &mut stuck => {}
        () = until("it waits for the replica", async || admin.text("INFO clients").contains("blocked_clients:1")) => {}
    }
    let entered = soon(other.lock()).await.unwrap();
    entered.release().await.unwrap();
    asleep.join().unwrap();
    drop(stuck);
}
