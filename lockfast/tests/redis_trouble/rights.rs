//! Users with the rights that locks need and no others, and users with fewer.

use lockfast::Locks;

use crate::fixture::{Admin, Waiters, assert_in_order, connect, count_waiters, millis, now, secs, soon, until};
use crate::minimal::{COMMANDS, create_user};

#[tokio::test]
async fn every_documented_right_is_used_and_others_are_denied() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    create_user(&mut admin, "app", "~lock:*", COMMANDS);
    let locks = connect(&format!("redis://app:pw@127.0.0.1:{}", server.port()), secs(10)).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    guard.release().await.unwrap();
    for denied in
        ["KEYS *", "FLUSHALL", "SCRIPT FLUSH", "CONFIG GET maxmemory", "GET other", "CLIENT LIST", "SUBSCRIBE x"]
    {
        let mut app = Admin::of(&format!("redis://app:pw@127.0.0.1:{}", server.port()));
        let refused = app.try_run(denied).unwrap_err().to_string();
        assert!(refused.to_lowercase().contains("perm"), "{denied}: {refused}");
    }
    // Each command that the ACL allows is called by a script or by the client. The suite as this user shows that they suffice.
    let sources = [
        include_str!("../../src/stores/redis/lua/acquire.lua"),
        include_str!("../../src/stores/redis/lua/acquire_alone.lua"),
        include_str!("../../src/stores/redis/lua/claims.lua"),
        include_str!("../../src/stores/redis/lua/list_clients.lua"),
        include_str!("../../src/stores/redis/lua/list_names.lua"),
        include_str!("../../src/stores/redis/lua/inspect_each.lua"),
        include_str!("../../src/stores/redis/lua/record.lua"),
        include_str!("../../src/stores/redis/lua/release.lua"),
        include_str!("../../src/stores/redis/lua/release_alone.lua"),
        include_str!("../../src/stores/redis/lua/renew.lua"),
        include_str!("../../src/stores/redis/lua/renew_each.lua"),
        include_str!("../../src/stores/redis/lua/rule.lua"),
        include_str!("../../src/stores/redis/lua/seed.lua"),
    ];
    let by_client = ["info", "evalsha", "eval", "subscribe", "unsubscribe", "pubsub|numsub"];
    for command in COMMANDS.split_whitespace().map(|word| &word[1..]) {
        let call = format!("call('{}'", command.to_uppercase());
        assert!(
            by_client.contains(&command) || sources.iter().any(|text| text.contains(&call)),
            "{command} is used nowhere"
        );
    }
}

#[test]
fn the_page_on_redis_has_the_same_rights() {
    let page = include_str!("../../../docs/stores/redis.md");
    let line = page.lines().find(|line| line.contains("ACL SETUSER")).unwrap();
    let rights = |words: &str| {
        let allowed = words.split_whitespace().map(|word| word.trim_matches('\'')).filter(|word| word.starts_with('+'));
        allowed.map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(rights(line), rights(COMMANDS));
}

#[tokio::test]
async fn a_database_other_than_the_first_needs_the_right_to_select_it() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let url = format!("redis://app:pw@127.0.0.1:{}/3", server.port());
    create_user(&mut admin, "app", "~lock:*", COMMANDS);
    let refused = Locks::connect(&url).await.unwrap_err();
    assert!(matches!(refused, lockfast::Error::Unsupported(_)), "{refused:?}");
    create_user(&mut admin, "app", "~lock:*", &format!("{COMMANDS} +select"));
    expect_every_kind(&Locks::connect(&url).await.unwrap()).await;
}

/// Locks work, in order, without these rights to subscribe, to check subscribers or to publish.
async fn expect_locks_without(without: &str) {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let fewer: Vec<_> = COMMANDS.split_whitespace().filter(|word| !without.contains(word)).collect();
    create_user(&mut admin, "app", "~lock:*", &fewer.join(" "));
    let url = format!("redis://app:pw@127.0.0.1:{}", server.port());
    let (holders, waiters) = (connect(&url, secs(3)).await, connect(&url, secs(3)).await);
    let guard = holders.mutex("a").lock().await.unwrap();
    let fence = guard.fence().unwrap();
    let queued = Waiters::join(&waiters, "a", 3).await;
    guard.release().await.unwrap();
    assert_in_order(&queued.wait_until_all_entered().await, 0..3, fence);
    expect_every_kind(&holders).await;
}

async fn expect_every_kind(locks: &Locks) {
    let reader = locks.rwlock("r").read().await.unwrap();
    assert!(locks.rwlock("r").try_write().await.unwrap().is_none());
    reader.release().await.unwrap();
    locks.semaphore("s", 2).acquire().await.unwrap().release().await.unwrap();
    locks.multi(["x", "y"]).lock().await.unwrap().release().await.unwrap();
    assert!(!locks.mutex("r").is_locked().await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_publish_locks_are_handed_off() {
    expect_locks_without("+publish").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_numsub_every_waiter_counts_as_alive() {
    expect_locks_without("+pubsub|numsub").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_subscribe_waiters_poll() {
    expect_locks_without("+subscribe +unsubscribe").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_any_right_to_pushes_waiters_poll() {
    expect_locks_without("+subscribe +unsubscribe +publish +pubsub|numsub").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_without_a_subscription_do_not_poll_too_often() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let fewer = COMMANDS.replace("+subscribe", "").replace("+unsubscribe", "");
    create_user(&mut admin, "app", "~lock:*", &fewer);
    let url = format!("redis://app:pw@127.0.0.1:{}", server.port());
    let (ours, theirs) = (connect(&url, secs(30)).await, connect(&url, secs(30)).await);
    let guard = ours.mutex("a").lock().await.unwrap();
    let mutex = theirs.mutex("a");
    let entering = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until("it waits", async || count_waiters(&ours, "a").await == 1).await;
    let rejected = |admin: &mut Admin| {
        let stats = admin.text("INFO commandstats");
        let line = stats.lines().find(|line| line.starts_with("cmdstat_subscribe:")).unwrap_or("").to_owned();
        line.split("rejected_calls=").nth(1).map_or(0, |rest| rest.split(',').next().unwrap().parse::<u64>().unwrap())
    };
    let (requests, refused, started_at) = (admin.requests(), rejected(&mut admin), now());
    tokio::time::sleep(secs(3)).await;
    let (polled, tried) = (admin.requests() - requests, rejected(&mut admin) - refused);
    assert!(now().since(started_at) < secs(5), "the machine is too slow to measure this");
    assert!(polled <= 5 * 5 && tried <= 5, "{polled} requests and {tried} attempts to subscribe in three seconds");
    let released = now();
    guard.release().await.unwrap();
    drop(soon(entering).await.unwrap());
    assert!(now().since(released) < millis(3_000), "it entered after {:?}", now().since(released));
}
