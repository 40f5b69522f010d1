//! Users with the rights that locks need and no others, and users with fewer.

use lockfast::Locks;

use crate::minimal::{COMMANDS, user};
use crate::stage::{Admin, Crowd, assert_in_order, connect, millis, now, secs, soon, until, waiting};

#[tokio::test]
async fn no_right_is_there_for_nothing() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    user(&mut admin, "app", "~lock:*", COMMANDS);
    let locks = connect(&format!("redis://app:pw@127.0.0.1:{}", server.port()), secs(10)).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    guard.release().await.unwrap();
    for denied in
        ["KEYS *", "FLUSHALL", "SCRIPT FLUSH", "CONFIG GET maxmemory", "GET other", "CLIENT LIST", "SUBSCRIBE x"]
    {
        let mut app = Admin::of(&format!("redis://app:pw@127.0.0.1:{}", server.port()));
        let refused = app.ask(denied).unwrap_err().to_string();
        assert!(refused.to_lowercase().contains("perm"), "{denied}: {refused}");
    }
    // Every command that the line allows was used by somebody in the suite: see that each is called in a script or by us.
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
    let ours = ["info", "evalsha", "eval", "subscribe", "unsubscribe", "pubsub|numsub"];
    for command in COMMANDS.split_whitespace().map(|word| &word[1..]) {
        let call = format!("call('{}'", command.to_uppercase());
        assert!(
            ours.contains(&command) || sources.iter().any(|text| text.contains(&call)),
            "{command} is used nowhere"
        );
    }
}

#[test]
fn the_page_on_redis_has_the_same_line() {
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
    user(&mut admin, "app", "~lock:*", COMMANDS);
    let refused = Locks::connect(&url).await.unwrap_err();
    assert!(matches!(refused, lockfast::Error::Unsupported(_)), "{refused:?}");
    user(&mut admin, "app", "~lock:*", &format!("{COMMANDS} +select"));
    every_kind_works(&Locks::connect(&url).await.unwrap()).await;
}

/// Who may not hear, ask or tell gets by without.
async fn works_by_asking(without: &str) {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let fewer: Vec<_> = COMMANDS.split_whitespace().filter(|word| !without.contains(word)).collect();
    user(&mut admin, "app", "~lock:*", &fewer.join(" "));
    let url = format!("redis://app:pw@127.0.0.1:{}", server.port());
    let (holders, waiters) = (connect(&url, secs(3)).await, connect(&url, secs(3)).await);
    let guard = holders.mutex("a").lock().await.unwrap();
    let fence = guard.fence().unwrap();
    let crowd = Crowd::gather(&waiters, "a", 3).await;
    guard.release().await.unwrap();
    assert_in_order(&crowd.all_in().await, 0..3, fence);
    every_kind_works(&holders).await;
}

async fn every_kind_works(locks: &Locks) {
    let reader = locks.rwlock("r").read().await.unwrap();
    assert!(locks.rwlock("r").try_write().await.unwrap().is_none());
    reader.release().await.unwrap();
    locks.semaphore("s", 2).acquire().await.unwrap().release().await.unwrap();
    locks.multi(["x", "y"]).lock().await.unwrap().release().await.unwrap();
    assert!(!locks.mutex("r").is_locked().await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_publish_hands_on_all_the_same() {
    works_by_asking("+publish").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_ask_who_listens_takes_everybody_for_alive() {
    works_by_asking("+pubsub|numsub").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_subscribe_asks() {
    works_by_asking("+subscribe +unsubscribe").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_do_none_of_it_asks() {
    works_by_asking("+subscribe +unsubscribe +publish +pubsub|numsub").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_subscribe_does_not_ask_too_often() {
    let server = servers::Redis::start();
    let mut admin = Admin::of(&server.url());
    let fewer = COMMANDS.replace("+subscribe", "").replace("+unsubscribe", "");
    user(&mut admin, "app", "~lock:*", &fewer);
    let url = format!("redis://app:pw@127.0.0.1:{}", server.port());
    let (ours, theirs) = (connect(&url, secs(30)).await, connect(&url, secs(30)).await);
    let guard = ours.mutex("a").lock().await.unwrap();
    let mutex = theirs.mutex("a");
    let entering = tokio::spawn(async move { mutex.lock().await.unwrap() });
    until("it waits", async || waiting(&ours, "a").await == 1).await;
    let rejected = |admin: &mut Admin| {
        let stats = admin.text("INFO commandstats");
        let line = stats.lines().find(|line| line.starts_with("cmdstat_subscribe:")).unwrap_or("").to_owned();
        line.split("rejected_calls=").nth(1).map_or(0, |rest| rest.split(',').next().unwrap().parse::<u64>().unwrap())
    };
    let (requests, refused, began) = (admin.requests(), rejected(&mut admin), now());
    tokio::time::sleep(secs(3)).await;
    let (asked, tried) = (admin.requests() - requests, rejected(&mut admin) - refused);
    assert!(now().since(began) < secs(5), "the machine is too slow to tell");
    assert!(asked <= 5 * 5 && tried <= 5, "{asked} requests and {tried} attempts to subscribe in three seconds");
    let released = now();
    guard.release().await.unwrap();
    drop(soon(entering).await.unwrap());
    assert!(now().since(released) < millis(3_000), "found out in {:?}", now().since(released));
}
